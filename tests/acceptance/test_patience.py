"""How long a model may be silent: by its own limits, longer for one that reads a long prompt on a small machine."""

import asyncio
import contextlib
import datetime
import time

import pytest

from holdfast.server.config.settings import ModelLimits
from holdfast.server.sources.patience import Patience
from holdfast.silence import ModelAsked
from holdfast.upstreams import ChatRequest, FoundModel
from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Pause, Raw, Role, Step, Upstream
from tests.support.waiting import LONG

END: list[Step] = [Delta("At last."), Finish("stop"), Done()]
QUESTION = "a long question " * 40


@contextlib.asynccontextmanager
async def served(tmp_path, config, **more):
    async with (
        Upstream() as up,
        Server(tmp_path, [provider(up.base_url, **more)], config=config) as server,
        server.client() as client,
    ):
        yield up, Native(client), server


async def waited(api, run_id, seconds):
    """Wait until a run has waited for some time. What it says that it waits for."""
    async with asyncio.timeout(LONG):
        while True:
            waits = (await api.run(run_id))["waits_for"]
            if (
                waits is not None
                and time.time() - datetime.datetime.fromisoformat(waits["since"]).timestamp() >= seconds
            ):
                return waits
            await asyncio.sleep(0.05)


async def settled(api, text="Hi"):
    return await api.settled(await api.start(await api.new_session(), text, "up/m"))


@requirement("wait.limits")
async def test_a_local_model_that_reads_a_long_prompt_is_waited_for_and_the_run_says_so(tmp_path):
    """A big model on a small machine reads for minutes, without a byte: it works, and must not begin again."""
    config = "idle_limit = 1.0\nretry_patience = 0.0"
    async with served(tmp_path, config, profile="ollama") as (up, api, _):
        up.models["m"] = [Gate("read"), Headers(), Role(), *END]
        run_id = await api.start(await api.new_session(), QUESTION, "up/m")
        waits = await waited(api, run_id, 1.5)
        again = (await api.run(run_id))["waits_for"]
        listed = (await api.get("/api/runs"))["runs"][0]["waits_for"]
        up.open("read")
        settlement = await api.settled(run_id)
        after = (await api.run(run_id))["waits_for"]

    assert ("completed", "At last.") == (settlement["outcome"], settlement["text"])
    assert ("up/m", "prompt", None) == (waits["model"], waits["what"], after)
    assert waits == again == listed, "it changes only when something comes"


@requirement("wait.limits")
async def test_each_model_has_its_own_limits_before_and_after_its_first_word(tmp_path):
    """A service answers soon or never: who waits for it need not wait as long as for a model of one's own."""
    config = '[limits]\n"up/m" = { first_token = 0.4, silence = 60 }\n"up/*" = { first_token = 60, silence = 0.4 }'
    async with served(tmp_path, config, models=["m", "n"]) as (up, api, _):
        up.models["m"] = [Headers(), Hang()]
        up.models["n"] = [Headers(), Role(), Delta("One. "), Hang()]
        first = await settled(api)
        after = await api.settled(await api.start(await api.new_session(), "Hi", "up/n"))

    assert ("upstream_stalled", "") == (first["error"]["code"], first["text"])
    assert "up/m sent nothing before its first word, for 0.4 s." == first["error"]["message"]
    assert ("upstream_stalled", "One. ") == (after["error"]["code"], after["text"])
    assert "up/n sent nothing more for 0.4 s." == after["error"]["message"]


@requirement("wait.limits")
async def test_the_limit_of_the_first_word_holds_for_each_call_of_an_agent(tmp_path):
    """Its second call reads a longer prompt than the first."""
    config = (
        'idle_limit = 30\n[limits]\n"up/m" = { first_token = 0.4 }\n'
        '[[agents]]\nname = "helper"\nmodel = "up/m"\n[[agents]]\nname = "slow"\nmodel = "up/n"'
    )
    async with served(tmp_path, config, models=["m", "n"]) as (up, api, _):
        up.models["m"] = [Headers(), Hang()]
        settlement = await api.settled(await api.start(await api.new_session(), "Hi", "agent/helper"))
        up.models["n"] = [Headers(), Role(), Delta("Well, "), Gate("on"), *END]
        run_id = await api.start(await api.new_session(), "Hi", "agent/slow")
        await api.shown(run_id, "Well, ")
        waits = (await api.run(run_id))["waits_for"]
        up.open("on")
        await api.settled(run_id)

    assert "upstream_stalled" == settlement["error"]["code"]
    assert ("up/n", "more") == (waits["model"], waits["what"])


@requirement("wait.limits")
async def test_runs_ls_says_what_a_silent_run_waits_for(tmp_path):
    """An operator sees which of many runs hang, and on whom, without reading a log."""
    async with served(tmp_path, "") as (up, api, server):
        up.models["m"] = [Headers(), Gate("read"), *END]
        run_id = await api.start(await api.new_session(), "Hi", "up/m")
        await waited(api, run_id, 3.0)
        told = (await Shell(tmp_path, here(server))("runs", "ls")).out
        up.open("read")
        await api.settled(run_id)

    assert "waiting for the first word of up/m: " in told, told


@requirement("truth.stall")
@pytest.mark.long("the same with shorter times is in test_signs_of_life")
async def test_an_upstream_that_comments_for_two_and_a_half_minutes_still_answers(tmp_path):
    """With the limits as they are by default."""
    comments = [Raw(b": OPENROUTER PROCESSING\n\n"), Pause(10.0)] * 15
    async with served(tmp_path, "") as (up, api, _):
        up.models["m"] = [Headers(), *comments, Role(), *END]
        run_id = await api.start(await api.new_session(), "Hi", "up/m")
        async with asyncio.timeout(2 * LONG):
            settlement = await api.settled(run_id)

    assert ("completed", "At last.") == (settlement["outcome"], settlement["text"])


class _Near:
    name = "near"
    is_local = True


def asked(limits, idle, *, words=0, provider=_Near) -> ModelAsked:
    found = FoundModel(provider(), "m", f"{provider.name}/m")  # type: ignore[arg-type]
    messages = [{"role": "user", "content": "abcd" * words}]
    return Patience(limits, idle).with_request(found, ChatRequest(model="m", messages=messages))


@requirement("wait.limits")
def test_the_limits_of_a_local_model_grow_with_its_prompt():
    """And what the settings say has precedence: of the model, then of its provider, then of all."""
    few, many = asked({}, 120.0), asked({}, 120.0, words=30_000)
    assert (300.0, 120.0) == (few.first, few.silence)
    assert many.first == pytest.approx(300.0 + 3000.0, rel=0.05)
    assert (None, None) == (asked({}, None).first, asked({}, None).silence)
    limits = {
        "near/m": ModelLimits(first_token=5.0),
        "near/*": ModelLimits(first_token=6.0, per_token=0.0),
        "*": ModelLimits(silence=0.0),
    }
    chosen = asked(limits, 120.0, words=1000)
    assert (5.0, None) == (chosen.first, chosen.silence)
