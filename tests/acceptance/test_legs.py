"""An answer that breaks off is gone on with by another call: no word twice, none missing, and the seam is told."""

import asyncio
import itertools
import re
import signal
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from holdfast.access import NO_BUDGET, Budget
from holdfast.pricing import Price
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import ag_ui_input
from tests.requirements import requirement
from tests.support.long import EVERYTHING, cases
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import (
    Cut,
    Delta,
    Done,
    Eof,
    Finish,
    Hang,
    Headers,
    InBandError,
    Raw,
    ReasoningDelta,
    Role,
    Status,
    ToolDelta,
    Upstream,
    UsageChunk,
)

WORDS = "In the harbour of a small town there lived an old keeper who counted the tides, and each of them had a name. "
STORY = [
    *re.findall(r"\s*\S+", WORDS + "She wrote it down, the hour too, and the colour of the water.\n\n- low\n- high")
]
TOKENS = [*itertools.chain.from_iterable((word[: len(word) // 2], word[len(word) // 2 :]) for word in STORY)][:60]
TEXT = "".join(TOKENS)
ANCHOR = re.compile(r"last characters:\n\n(.*)\n\nContinue it:", re.DOTALL)

CUT = [Cut()]
BREAKS = {
    "the connection is reset": [Cut()],
    "the stream ends early": [Eof()],
    "an error is sent as an event": [InBandError()],
    "an event is no JSON": [Raw(b"data: {nonsense\n\n"), Hang()],
}


CHAT = {"messages": [{"role": "user", "content": "Tell me"}]}
WIRES = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": {**CHAT, "max_tokens": 500},
    "/v1/responses": {"input": "Tell me"},
    "/api/chat": CHAT,
}
"""The requests of the wires that answer both as a stream and whole."""


class Model:
    """Writes one story, breaks off where it is told to, and goes on as real models do."""

    def __init__(self, *cuts: int, breaks=CUT) -> None:
        self.cuts, self.breaks = [*cuts], breaks

    def __call__(self, request):
        text = self.rest_of(request.body["messages"])
        tokens = re.findall(r"\s*\S{1,4}|\s+", text) if text != TEXT else TOKENS
        begin = [Headers(), Role()]
        if not self.cuts:
            return [*begin, *map(Delta, tokens), Finish("stop"), Done()]
        return [*begin, *map(Delta, tokens[: self.cuts.pop(0)]), *self.breaks]

    def rest_of(self, messages):
        last = messages[-1]
        if last["role"] == "assistant":
            assert TEXT.startswith(last["content"])
            return TEXT[len(last["content"]) :]
        if asked := ANCHOR.search(last["content"]):
            return TEXT[TEXT.rindex(asked[1], 0, len(messages[-2]["content"]) + 1) :]
        return TEXT


def _first_request():
    return SimpleNamespace(body={"messages": [{"role": "user", "content": "Tell me"}]})


class World:
    def __init__(self, up, other, client):
        self.up, self.other, self.client = up, other, client
        self.api = Native(client)

    async def run(self, model="up/m", on_break="continue", **more):
        session_id = await self.api.new_session()
        body = {"input": "Tell me", "model": model, **more}
        headers = {"holdfast-on-break": on_break} if on_break else {}
        run = await (await self.client.post(f"/api/sessions/{session_id}/runs", body, headers=headers)).json()
        settlement = await self.api.settled(run["id"])
        events = [frame.json() for frame in await self.api.replay(run["id"])]
        return settlement, events, (await self.api.session(session_id))["messages"][-1]


@pytest.fixture(params=[True, False], ids=["prefill", "turn"])
def prefills(request):
    return request.param


@pytest.fixture
def fallbacks():
    return {}


@pytest.fixture
def budget():
    return NO_BUDGET


PRICES = {"up/m": Price(input=1e6, output=2e6), "other/m": Price(input=1e7, output=2e7)}


@pytest.fixture
async def world(tmp_path, prefills, fallbacks, budget):
    async with Upstream() as up, Upstream() as other:
        providers = [
            ProviderSettings(name, base_url=each.base_url, models=("m",), prefills=prefills)
            for name, each in {"up": up, "other": other}.items()
        ]
        settings = Settings(
            data=str(tmp_path),
            providers=tuple(providers),
            fallbacks=fallbacks,
            budget=budget,
            prices=PRICES,
            retry_patience=0.0,
            drain=0.0,
            idle_limit=2.0,
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            yield World(up, other, client)


@requirement("legs.joined", "legs.told")
@pytest.mark.parametrize("breaks", BREAKS.values(), ids=BREAKS)
async def test_the_joined_text_equals_the_uncut_one_wherever_the_answer_breaks_off(world, breaks, prefills):
    """In the middle of a word, behind white space, and behind the last word."""
    for cut in range(1, len(TOKENS) + 1):
        world.up.models["m"] = Model(cut, breaks=breaks)
        settlement, events, message = await world.run()
        visible = "".join(TOKENS[:cut])
        seam = {"leg": 2, "model": "up/m", "how": "prefill" if prefills else "turn", "at": len(visible)}
        told = [event for event in events if event["type"] == "leg.started"]

        assert (TEXT, "completed") == (settlement["text"], settlement["outcome"]), cut
        assert TEXT == message["content"] == "".join(e["text"] for e in events if e["type"] == "text.delta")
        assert [seam] == [{name: event[name] for name in seam} for event in told]
        assert [0, len(visible)] == [leg["at"] for leg in settlement["legs"]] == [leg["at"] for leg in message["legs"]]


@requirement("legs.spent")
async def test_without_a_count_every_leg_is_estimated(world):
    """The estimate of the first leg is not the whole."""
    world.up.models["m"] = Model(20)
    settlement, *_ = await world.run()
    usage = settlement["usage"]

    assert "estimated" == usage["source"]
    assert usage["output_tokens"] >= len(TEXT) // 4
    assert usage["output_tokens"] == sum(leg["usage"]["output_tokens"] for leg in settlement["legs"])


@requirement("legs.joined")
async def test_an_answer_that_falls_silent_is_gone_on_with_before_its_run_fails(world):
    """A model that hangs would otherwise take the whole run with it."""
    world.up.models["m"] = Model(20, breaks=[Hang()])
    settlement, *_ = await world.run()

    assert (TEXT, "completed") == (settlement["text"], settlement["outcome"])
    assert "upstream_stalled" == settlement["legs"][1]["reason"]
    await world.up.requests[0].wait_closed()


@requirement("legs.joined")
async def test_an_answer_that_breaks_off_twice_is_written_in_three_legs_and_no_more(world):
    """An upstream that always breaks off must not be asked for ever."""
    world.up.models["m"] = Model(20, 30)
    settlement, *_ = await world.run()

    assert (TEXT, 3) == (settlement["text"], len(settlement["legs"]))

    world.up.models["m"] = Model(10, 25, 30, 3)
    settlement, *_ = await world.run()
    assert ("failed", "upstream_broke", 3) == (
        settlement["outcome"],
        settlement["error"]["code"],
        len(settlement["legs"]),
    )
    assert TEXT.startswith(settlement["text"])
    assert len(settlement["text"]) > len("".join(TOKENS[:10]))
    assert 6 == len(world.up.requests)


@requirement("legs.joined", "legs.told")
@pytest.mark.parametrize("fallbacks", [{"up/m": "other/m"}])
async def test_a_fallback_goes_on_where_the_model_cannot_be_reached_any_more(world):
    """And the answer names both, each with its own part and its own tokens."""
    world.up.models["m"] = Model(20)
    world.other.models["m"] = Model()
    run = asyncio.create_task(world.run())
    await world.up.next_request()
    world.up.refuse()
    settlement, _, message = await run

    assert (TEXT, "completed", "other/m") == (settlement["text"], settlement["outcome"], settlement["answered_by"])
    assert ["up/m", "other/m"] == [leg["model"] for leg in settlement["legs"]]
    assert "other/m" == message["model"]


@requirement("legs.joined")
async def test_a_model_that_begins_its_answer_again_is_not_joined(world):
    """It would stand there twice."""
    again = [Headers(), Role(), *map(Delta, TOKENS), Finish("stop"), Done()]
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:55]), Cut()], again)
    settlement, events, _ = await world.run()

    assert ("failed", "".join(TOKENS[:55]), []) == (settlement["outcome"], settlement["text"], settlement["legs"])
    assert "continuing" in [event.get("code") for event in events]
    assert "could not go on" in settlement["error"]["message"]


@requirement("legs.joined")
async def test_nothing_is_continued_behind_a_tool_call(world):
    """A half-written call cannot be joined, and a whole one may have been used."""
    call = ToolDelta(0, id="call_1", name="look", arguments='{"a": ')
    world.up.enqueue([Headers(), Role(), Delta("I look. "), call, Cut()])
    settlement, *_ = await world.run()

    assert ("failed", "I look. ", 1) == (settlement["outcome"], settlement["text"], len(world.up.requests))


@requirement("legs.joined")
async def test_an_answer_of_which_only_the_reasoning_came_is_asked_for_again(world):
    """No word of it would be there twice."""
    world.up.enqueue([Headers(), Role(), ReasoningDelta("Hm. "), Cut()])
    settlement, events, message = await world.run()

    assert ("completed", [0, 0]) == (settlement["outcome"], [leg["at"] for leg in settlement["legs"]])
    assert ["anew"] == [event["how"] for event in events if event["type"] == "leg.started"]
    assert settlement["text"] == message["content"]


@requirement("legs.chosen")
@pytest.mark.parametrize("prefills", [True], ids=["prefill"])
async def test_in_a_session_an_answer_is_gone_on_with_unless_the_request_says_otherwise(world):
    """Whoever chats wants the answer; a program is told what became of its call."""
    outcomes = {}
    for on_break in (None, "continue", "settle"):
        world.up.models["m"] = Model(20)
        settlement, *_ = await world.run(on_break=on_break)
        outcomes[on_break] = settlement["outcome"]

    assert {None: "completed", "continue": "completed", "settle": "failed"} == outcomes

    for headers, status in ({}, 406), ({"Holdfast-On-Break": "continue"}, 200), ({"Holdfast-On-Break": "maybe"}, 400):
        world.up.models["m"] = Model(20)
        body = {"model": "up/m", "messages": [{"role": "user", "content": "Tell me"}]}
        assert status == (await world.client.post("/v1/chat/completions", body, headers=headers)).status


@requirement("legs.chosen")
@pytest.mark.parametrize("prefills", [False], ids=["turn"])
async def test_a_chat_keeps_its_choice_which_a_request_may_override(world):
    """Who has once chosen to wait for whole answers does not choose it with every message."""
    api, outcomes = world.api, []
    session_id = await api.new_session(model="up/m", on_break="continue")
    choices = [("continue", None), ("settle", None), ("settle", "continue"), (None, None), ("continue", "settle")]
    for kept, header in choices:
        changed = await world.client.request("PATCH", f"/api/sessions/{session_id}", json={"on_break": kept})
        assert (200, kept) == (changed.status, (await changed.json())["on_break"])
        world.up.models["m"] = Model(20)
        run_id = await api.start(session_id, "Tell me", "up/m", headers={"holdfast-on-break": header} if header else {})
        outcomes.append((await api.settled(run_id))["outcome"])

    assert ["completed", "failed", "completed", "failed", "failed"] == outcomes
    bad = await world.client.request("PATCH", f"/api/sessions/{session_id}", json={"on_break": "maybe"})
    assert 400 == bad.status


@requirement("legs.chosen")
@pytest.mark.parametrize("prefills", [False], ids=["turn"])
@pytest.mark.parametrize(("chosen", "outcome"), [("continue", "completed"), ("settle", "failed")])
async def test_the_choice_of_a_chat_counts_for_forks_and_for_schedules(world, chosen, outcome):
    """Nobody is there to choose for a run of the night, and a fork is an answer of the same chat."""
    api, post = world.api, world.client.post
    session_id = await api.new_session(model="up/m", on_break=chosen)
    world.up.models["m"] = Model()
    first = await api.start(session_id, "Tell me", "up/m")
    await api.settled(first)
    world.up.models["m"] = Model(20)
    fork = await (await post(f"/api/runs/{first}/fork", {"after": 0})).json()
    outcomes = [(await api.settled(fork["id"]))["outcome"]]
    assert 201 == (await post("/api/presets", {"name": f"So {chosen}", "on_break": chosen})).status
    for place in ({"session": session_id}, {"preset": f"So {chosen}", "model": "up/m"}):
        world.up.models["m"] = Model(20)
        when = {"kind": "once", "at": "2999-01-01T00:00"}
        made = await (
            await post("/api/schedules", {"name": "At night", "prompt": "Tell me", "when": when, **place})
        ).json()
        one = await (await post(f"/api/schedules/{made['id']}/run")).json()
        outcomes.append((await api.settled(one["run"]["id"]))["outcome"])

    assert [outcome] * 3 == outcomes


@requirement("legs.chosen")
async def test_the_choice_of_a_chat_goes_with_its_copies_and_comes_from_its_preset(world):
    """A fork, an import and a preset set a chat up like the one that they were made of."""
    api, post = world.api, world.client.post
    assert 201 == (await post("/api/presets", {"name": "Sure", "on_break": "continue"})).status
    session_id = await api.new_session(model="up/m", preset="Sure")
    world.up.models["m"] = Model()
    await api.settled(await api.start(session_id, "Tell me", "up/m"))
    session = await api.session(session_id)
    fork = await (await post(f"/api/sessions/{session_id}/fork", {"message_id": session["head_id"]})).json()
    imported = await (await post("/api/sessions/import", session)).json()

    assert ["continue"] * 3 == [each["on_break"] for each in (session, fork, imported)]
    changed = await world.client.request("PATCH", f"/api/sessions/{session_id}", json={"on_break": "settle"})
    assert (None, "settle") == ((changed := await changed.json())["preset"], changed["on_break"])


@requirement("legs.chosen")
@pytest.mark.parametrize("fallbacks", [{}, {"up/m": "other/m"}], ids=["alone", "with a fallback"])
async def test_the_list_of_models_says_what_a_chat_does_by_itself(world, prefills, fallbacks):
    """So the page's switch shows what will happen, not only what was chosen."""
    listed = {model["id"]: model["on_break"] for model in (await world.api.get("/api/models"))["models"]}

    assert ("continue" if prefills or fallbacks else "settle") == listed["up/m"]


@requirement("legs.chosen")
@pytest.mark.parametrize("prefills", [False], ids=["turn"])
async def test_a_model_that_cannot_continue_its_message_is_asked_in_a_turn_only_where_that_was_chosen(world):
    """It costs a second prompt, and a seam that a small model may not hit."""
    world.up.models["m"] = Model(20)
    settlement, *_ = await world.run(on_break=None)

    assert ("failed", 1) == (settlement["outcome"], len(world.up.requests))


@requirement("legs.told")
@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("path", [*WIRES])
async def test_every_wire_tells_of_the_seam(world, path, stream):
    """Two halves are not passed off as one answer."""
    world.up.models["m"] = Model(20)
    body = {**WIRES[path], "model": "up/m", "stream": stream}
    response = await world.client.post(path, body, headers={"holdfast-on-break": "continue"})
    text = await response.text()

    assert 200 == response.status, text
    assert 1 == text.count('"reason":"upstream_broke"'), text
    assert f'"at":{len("".join(TOKENS[:20]))}' in text


@requirement("legs.spent")
async def test_usage_is_the_sum_of_all_legs_and_each_leg_has_its_own(world):
    """Both calls are paid for."""
    world.up.enqueue(
        [Headers(), Role(), *map(Delta, TOKENS[:20]), UsageChunk(100, 20), Cut()],
    )
    world.up.models["m"] = lambda request: [*Model()(request)[:-1], UsageChunk(130, 41), Done()]
    settlement, *_ = await world.run()
    usage, legs = settlement["usage"], settlement["legs"]

    assert (230, 61) == (usage["input_tokens"], usage["output_tokens"])
    assert [(100, 20), (130, 41)] == [(leg["usage"]["input_tokens"], leg["usage"]["output_tokens"]) for leg in legs]


@requirement("legs.joined")
async def test_a_stop_in_a_further_leg_closes_its_upstream_and_keeps_both_parts(world):
    """A run is one, whichever call writes it."""
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:20]), Cut()])
    rest = Model().rest_of
    world.up.models["m"] = lambda request: [Headers(), Role(), Delta(rest(request.body["messages"])[:90]), Hang()]
    session_id = await world.api.new_session()
    headers = {"holdfast-on-break": "continue"}
    run_id = await world.api.start(session_id, "Tell me", "up/m", headers=headers)
    half = "".join(TOKENS[:20])
    await world.api.shown(run_id, TEXT[: len(half) + 5])
    stopped = (await world.api.stop(run_id))["settlement"]

    assert ("stopped", 2) == (stopped["outcome"], len(stopped["legs"]))
    assert TEXT.startswith(stopped["text"])
    assert len(stopped["text"]) > len(half)
    await world.up.requests[1].wait_closed()


@requirement("legs.crash")
async def test_an_answer_goes_on_after_kill_9(tmp_path, prefills):
    """A server that dies in the night costs a moment, not the answer."""
    async with (
        Upstream() as up,
        Server(tmp_path, [provider(up.base_url, prefills=prefills)]) as server,
        server.client() as client,
    ):
        api = Native(client)
        for cut in range(1, len(TOKENS) + 1, 1 if EVERYTHING else 20):
            up.models["m"] = Model(cut, breaks=[Hang()])
            run_id = await api.start(
                await api.new_session(), "Tell me", "up/m", headers={"holdfast-on-break": "continue"}
            )
            await api.shown(run_id, "".join(TOKENS[:cut]))
            await server.kill9()
            await server.restart()
            settlement = await api.settled(run_id)
            reasons = [leg["reason"] for leg in settlement["legs"]]

            assert (TEXT, "completed") == (settlement["text"], settlement["outcome"])
            assert [None, "server_died"] == reasons


BEGUN = {
    "before its first event": [Headers(), Hang()],
    "while it thinks": [Headers(), Role(), ReasoningDelta("Hm. "), Hang()],
}


@requirement("legs.crash")
@pytest.mark.parametrize("begun", BEGUN.values(), ids=BEGUN)
@pytest.mark.parametrize("prefills", [False], ids=["turn"])
async def test_an_answer_without_a_word_is_asked_for_again_after_kill_9(tmp_path, begun, prefills):
    """There is nothing yet that could be there twice."""
    async with (
        Upstream() as up,
        Server(tmp_path, [provider(up.base_url, prefills=prefills)]) as server,
        server.client() as client,
    ):
        api = Native(client)
        up.enqueue(begun)
        run_id = await api.start(await api.new_session(), "Tell me", "up/m", headers={"holdfast-on-break": "continue"})
        await up.next_request()
        if begun is BEGUN["while it thinks"]:
            reader = await api.events(run_id)
            while (await reader.next_event()).event != "reasoning.delta":
                pass
        await server.kill9()
        up.models["m"] = Model()
        await server.restart()
        settlement = await api.settled(run_id)

    assert (TEXT, "completed") == (settlement["text"], settlement["outcome"])
    assert [("anew", "server_died", 0)] == [(leg["how"], leg["reason"], leg["at"]) for leg in settlement["legs"][1:]]


@requirement("legs.crash", "legs.told")
async def test_an_answer_goes_on_after_kill_9_in_its_second_leg(tmp_path, prefills):
    """The legs before the crash are read from the log: none is told twice, and three are still the most."""
    async with (
        Upstream() as up,
        Server(tmp_path, [provider(up.base_url, prefills=prefills)]) as server,
        server.client() as client,
    ):
        api, first = Native(client), Model(20)
        half = first(_first_request())
        rest = Model().rest_of

        def second(request):
            up.models["m"] = Model()
            return [Headers(), Role(), Delta(rest(request.body["messages"])[:90]), Hang()]

        up.enqueue(half)
        up.models["m"] = second
        run_id = await api.start(await api.new_session(), "Tell me", "up/m", headers={"holdfast-on-break": "continue"})
        await api.shown(run_id, TEXT[: len("".join(TOKENS[:20])) + 5])
        await server.kill9()
        await server.restart()
        settlement = await api.settled(run_id)
        log = [frame.json() for frame in await api.replay(run_id)]

    assert (TEXT, "completed") == (settlement["text"], settlement["outcome"])
    assert [None, "upstream_broke", "server_died"] == [leg["reason"] for leg in settlement["legs"]]
    assert [2, 3] == [event["leg"] for event in log if event["type"] == "leg.started"]


@requirement("legs.joined")
async def test_a_stop_between_two_legs_asks_nobody_any_more(world):
    """What was said so far is the answer, and the call that had not answered yet is closed."""
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:20]), Cut()], [Hang()])
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Tell me", "up/m", headers={"holdfast-on-break": "continue"})
    for _ in range(2):
        await world.up.next_request()
    stopped = (await world.api.stop(run_id))["settlement"]

    assert ("stopped", "".join(TOKENS[:20]), []) == (stopped["outcome"], stopped["text"], stopped["legs"])
    assert 2 == len(world.up.requests)
    await world.up.requests[1].wait_closed()


@requirement("legs.spent")
@pytest.mark.parametrize("budget", [Budget(tokens_per_day=50)])
async def test_a_budget_that_the_first_leg_has_spent_pays_for_no_second(world):
    """The answer that broke off is charged, and nothing more is."""
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:20]), UsageChunk(60, 20), Cut()])
    world.up.models["m"] = Model()
    settlement, *_ = await world.run()

    assert ("stopped", "budget") == (settlement["outcome"], settlement["by"])
    assert 1 == len(world.up.requests)


@requirement("legs.chosen")
@pytest.mark.parametrize(
    ("chosen", "status"),
    [
        ({"up/m": "continue", "up/*": "settle", "*": "settle"}, 200),
        ({"up/*": "continue", "*": "settle"}, 200),
        ({"*": "continue", "other/m": "settle"}, 200),
        ({"up/m": "settle", "up/*": "continue"}, 406),
        ({}, 406),
    ],
)
async def test_the_settings_choose_for_a_model_for_its_provider_and_for_all(tmp_path, chosen, status):
    """The nearest says it; a program that said nothing gets what the operator has chosen."""
    async with Upstream() as up:
        up.models["m"] = Model(20)
        providers = (ProviderSettings("up", base_url=up.base_url, models=("m",), prefills=True),)
        settings = Settings(data=str(tmp_path), providers=providers, on_break=chosen, retry_patience=0.0, drain=0.0)
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            answered = await client.post("/v1/chat/completions", {**CHAT, "model": "up/m"})

    assert status == answered.status


@requirement("legs.told")
async def test_the_wires_of_pages_tell_of_the_seam_where_it_is(world):
    """As an event of the wire's own between the two parts of the text."""
    seam = {"leg": 2, "model": "up/m", "reason": "upstream_broke", "at": len("".join(TOKENS[:20]))}
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Tell me"}]}
    asked = {
        "/ag-ui": ag_ui_input("t1", "up/m"),
        "/api/chat": {"id": "c1", "messages": [message], "trigger": "submit-message", "model": "up/m"},
    }
    for path, body in asked.items():
        world.up.models["m"] = Model(20)
        response = await world.client.post(path, body, headers={"holdfast-on-break": "continue"})
        events = [frame.json() for frame in await response.all_events() if frame.data != "[DONE]"]
        [place] = [at for at, event in enumerate(events) if "leg" in (event.get("name") or event["type"])]
        told = events[place].get("value") or events[place]["data"]
        texts = ["".join(str(event.get("delta", "")) for event in part) for part in (events[:place], events[place:])]

        assert seam == {name: told[name] for name in seam}, path
        assert [TEXT[: seam["at"]], TEXT[seam["at"] :]] == texts


@requirement("legs.spent")
@pytest.mark.parametrize("fallbacks", [{"up/m": "other/m"}])
async def test_each_leg_costs_what_its_model_costs(world):
    """The second half of an answer may be a hundred times as dear as the first."""
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:20]), UsageChunk(100, 20), Cut()], [Status(500)])
    world.other.models["m"] = lambda request: [*Model()(request)[:-1], UsageChunk(130, 40), Done()]
    settlement, _, message = await world.run()

    assert ["up/m", "other/m"] == [leg["model"] for leg in settlement["legs"]]
    assert 100 * 1 + 20 * 2 + 130 * 10 + 40 * 20 == (await world.api.run(message["run_id"]))["cost"]


@requirement("legs.spent")
@pytest.mark.parametrize("budget", [Budget(tokens_per_day=150)])
async def test_a_budget_holds_across_legs(world):
    """An upstream that breaks off would otherwise be a way around it."""
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:20]), UsageChunk(20, 20), Cut()])
    rest = Model().rest_of
    world.up.models["m"] = lambda request: [
        *(Headers(), Role(), Delta(rest(request.body["messages"])[:120])),
        *([Delta("and so on, ")] * 400),
        Hang(),
    ]
    settlement, *_ = await world.run()

    assert ("stopped", "budget", 2) == (settlement["outcome"], settlement["by"], len(settlement["legs"]))
    assert len(settlement["text"]) < 2_000


@requirement("legs.crash")
@pytest.mark.parametrize("end", ["kill -9", "SIGTERM"])
@pytest.mark.parametrize("cut", cases(range(1, len(TOKENS) + 1), 30, reason="starts three servers at every token"))
async def test_another_server_of_the_store_goes_on_with_an_answer(postgres, tmp_path, end, cut):
    """A node that dies, or is restarted for an upgrade, cuts no answer short. Half of them are joined in a turn."""
    prefills = (cut % 2 == 0) == (end == "kill -9")
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database())}
    async with Upstream() as up, AsyncExitStack() as stack:
        up.models["m"] = Model(cut, breaks=[Hang()])
        one, two, _ = [
            await stack.enter_async_context(
                Server(tmp_path / name, [provider(up.base_url, prefills=prefills)], config="drain = 0.0", env=env)
            )
            for name in ("one", "two", "three")
        ]
        async with one.client() as client, two.client() as other:
            api = Native(client)
            session_id = await api.new_session()
            headers = {"holdfast-on-break": "continue"}
            run_id = await api.start(session_id, "Tell me", "up/m", headers=headers)
            (await api.shown(run_id, "".join(TOKENS[:cut]))).close()
            if end == "SIGTERM":
                one.send_signal(signal.SIGTERM)
            else:
                await one.kill9()
            settlement = await Native(other).settled(run_id)

    assert (TEXT, "completed") == (settlement["text"], settlement["outcome"])
    assert [None, "server_died"] == [leg["reason"] for leg in settlement["legs"]]


@requirement("legs.joined")
async def test_an_answer_is_gone_on_with_after_the_server_was_suspended(tmp_path):
    """A paused container finds all of its limits passed at once, and the run's must not be the first to count."""
    silence = 2.0
    config = f'[limits]\n"up/m" = {{first_token = 60, silence = {silence}}}'
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, prefills=True)], config=config) as server:
        up.models["m"] = Model(20, breaks=[Hang()])
        async with server.client() as client:
            api = Native(client)
            headers = {"holdfast-on-break": "continue"}
            run_id = await api.start(await api.new_session(), "Tell me", "up/m", headers=headers)
            (await api.shown(run_id, "".join(TOKENS[:20]))).close()
            server.send_signal(signal.SIGSTOP)
            await asyncio.sleep(2 * silence)  # the length of the fault: a longer one changes nothing
            server.send_signal(signal.SIGCONT)
            settlement = await api.settled(run_id)

    assert (TEXT, "completed") == (settlement["text"], settlement["outcome"])
    assert [None, "upstream_stalled"] == [leg["reason"] for leg in settlement["legs"]]


@requirement("legs.joined")
async def test_a_model_that_is_silent_before_its_first_word_is_not_asked_again(world):
    """It may be reading a long prompt, which it would have to begin anew."""
    world.up.models["m"] = [Headers(), Hang()]
    settlement, *_ = await world.run()

    assert ("failed", "upstream_stalled", 1) == (
        settlement["outcome"],
        settlement["error"]["code"],
        len(world.up.requests),
    )


@requirement("legs.joined")
async def test_an_answer_that_its_model_has_ended_is_not_gone_on_with(world):
    """What breaks behind the end of an answer is no reason to write more of it."""
    world.up.enqueue([Headers(), Role(), Delta("All of it."), Finish("stop"), InBandError()])
    settlement, *_ = await world.run()

    assert ("All of it.", 1) == (settlement["text"], len(world.up.requests))


@requirement("legs.spent")
async def test_a_continuation_that_is_not_joined_is_paid_for_too(world):
    """The model has written it, whether or not anybody reads it."""
    again = [Headers(), Role(), *map(Delta, TOKENS), Finish("stop"), Done()]
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:55]), Cut()])
    alone, *_ = await world.run(on_break="settle")
    world.up.enqueue([Headers(), Role(), *map(Delta, TOKENS[:55]), Cut()], again)
    settlement, *_ = await world.run()

    assert "failed" == settlement["outcome"]
    assert settlement["usage"]["output_tokens"] > alone["usage"]["output_tokens"]
