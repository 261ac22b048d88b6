"""Upstreams of every dialect behind the server: how runs settle, what an agent sends back, and a stop."""

import json

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.model_limits import ModelLimits
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from holdfast_lab.contracts import PLAYED
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.dialects import gemini, ollama, responses
from tests.support.dialects.anthropic import ANTHROPIC
from tests.support.dialects.bedrock import BEDROCK
from tests.support.dialects.gemini import GEMINI
from tests.support.dialects.ollama import OLLAMA
from tests.support.dialects.openai import OPENAI
from tests.support.dialects.responses import RESPONSES
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Raw, Upstream
from tests.support.waiting import LONG

DIALECTS = {dialect.name: dialect for dialect in (OPENAI, RESPONSES, ANTHROPIC, GEMINI, OLLAMA, BEDROCK)}
OUTCOMES = {
    "complete": ("completed", PLAYED.text, None),
    "length": ("truncated", PLAYED.text, None),
    "content_filter": ("truncated", PLAYED.text, None),
    "reasoning": ("completed", PLAYED.text, None),
    "tool_call": ("completed", "", None),
    "parallel_calls": ("completed", "", None),
    "error_later": ("failed", PLAYED.text, "upstream_error"),
    "cut": ("failed", PLAYED.text, "upstream_broke"),
    "no_end": ("failed", PLAYED.text, "upstream_broke"),
    "malformed": ("failed", PLAYED.text, "upstream_broke"),
    "silence_first": ("failed", "", "upstream_stalled"),
    "silence_later": ("failed", PLAYED.text, "upstream_stalled"),
}
LIMITS = {
    "silence_first": {"*": ModelLimits(first_token=0.5)},
    "silence_later": {"*": ModelLimits(first_token=LONG, silence=0.5)},
}
CASES = [(dialect, ending) for dialect in DIALECTS for ending in OUTCOMES if ending not in DIALECTS[dialect].cannot]


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


def described(dialect, up):
    base_url = f"http://{up.host}:{up.port}{dialect.base}"
    return ProviderSettings("up", dialect.name, base_url=base_url, api_key=PLAYED.secret, models=("m",))


@requirement("upstream.contract", "truth.cut", "truth.eof", "truth.stall", "truth.in-band-error", "truth.length")
@pytest.mark.parametrize(("name", "ending"), CASES)
async def test_a_run_settles_as_its_upstream_ended(up, name, ending):
    """Whatever an upstream speaks, only what completed is told as completed."""
    dialect = DIALECTS[name]
    up.enqueue(dialect.script(ending))
    settings = Settings(providers=(described(dialect, up),), on_break={"*": "settle"}, limits=LIMITS.get(ending, {}))
    async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
        api = Native(client)
        settled = await api.settled(await api.start(await api.new_session(), "Hello", "up/m"))

    outcome, text, code = OUTCOMES[ending]
    code = "upstream_overloaded" if (name, ending) == ("anthropic", "error_later") else code
    assert (outcome, text, code) == (settled["outcome"], settled["text"], (settled.get("error") or {}).get("code"))
    assert PLAYED.secret not in json.dumps(settled)
    assert 1 == len(up.requests)


FIRST = {
    "gemini": gemini.end("STOP", gemini.called("add", {"a": 1, "b": 2}, thoughtSignature="c2ln")),
    "openai-responses": responses.told()
    .reasoning("Hm.", encrypted="gAAAA")
    .call("add", '{"a": 1, "b": 2}', "call_1")
    .end()
    .bytes(),
    "ollama": ollama.piece(tool_calls=[ollama.called("add", {"a": 1, "b": 2})]) + ollama.end(),
}


def sent_back(name, body):
    """What an upstream was sent of the first step of an agent: what was sealed, the call, and the result."""
    match name:
        case "gemini":
            [called], [result] = [content["parts"] for content in body["contents"][-2:]]
            return called["thoughtSignature"], called["functionCall"]["args"], result["functionResponse"]["response"]
        case "openai-responses":
            thought, called, result = body["input"][-3:]
            return thought["encrypted_content"], json.loads(called["arguments"]), result["output"]
        case "ollama":
            called, result = body["messages"][-2:]
            return result["tool_name"], called["tool_calls"][0]["function"]["arguments"], result["content"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemini", ("c2ln", {"a": 1, "b": 2}, {"result": "3"})),
        ("openai-responses", ("gAAAA", {"a": 1, "b": 2}, "3")),
        ("ollama", ("add", {"a": 1, "b": 2}, "3")),
    ],
)
async def test_an_agent_sends_back_what_its_model_sealed(up, tmp_path, name, expected):
    """Signatures and encrypted reasoning go with the results of calls, as the dialect wants them."""
    dialect = DIALECTS[name]
    up.enqueue([Raw(FIRST[name])], dialect.script("complete"))
    settings = {"providers": (described(dialect, up),)}
    async with serving(up, tmp_path, settings=settings) as world:
        _, run_id = await world.start()
        settled = await world.api.settled(run_id)

    assert ("completed", PLAYED.text) == (settled["outcome"], settled["text"])
    assert expected == sent_back(name, up.requests[1].body)
