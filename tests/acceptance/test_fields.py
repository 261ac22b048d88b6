"""Each field of a request, one by one: it reaches the model, or leaving it out is harmless, or it is refused by name.

The tables are those of the code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from holdfast.fields import PASSED_ON, Rule, Table
from holdfast.server.sources import agents
from holdfast.upstreams.anthropic import fields as anthropic_upstream
from holdfast.wires.anthropic import fields as anthropic_fields
from holdfast.wires.openai import fields as openai_fields
from tests.acceptance.test_messages import ANTHROPICS_ANSWER
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.server import Server, provider
from tests.support.upstream import Headers, Raw, Upstream

pytestmark = [pytest.mark.asyncio(loop_scope="module"), requirement("wire.no-silent-drop")]

USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
ADD = {"name": "add", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
TEXT_DOCUMENT = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "The sea is wide."},
}
AGENT = """
[[agents]]
name = "helper"
model = "up/echo:done"
"""


@dataclass(frozen=True)
class Dialect:
    """One way to ask: what is sent, where, and the rules for its fields."""

    path: str
    model: str
    asked: Mapping[str, Any]
    table: Table
    unknown: Rule
    samples: Mapping[str, Any]
    """A value that asks for something, for each field of the table."""
    ours: frozenset[str] = frozenset()
    """Fields that are used without the upstream's being asked anything else."""

    def cases(self) -> list[tuple[str, Any, Rule]]:
        rules = {**self.table, "made_up": self.unknown}
        return [(name, self.samples.get(name, {"x": 1}), rule) for name, rule in rules.items()]


MESSAGES = {
    "model": "-",
    "messages": [{"role": "user", "content": "Something else"}],
    "max_tokens": 7,
    "system": "Be brief.",
    "stream": True,
    "stop_sequences": ["END"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "metadata": {"user_id": "u"},
    "tools": [ADD],
    "tool_choice": {"type": "any"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "service_tier": "standard_only",
    "session_id": "fields",
    "background": False,
    "if_busy": "queue",
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"},
    "output_format": {"type": "json_schema", "schema": SCHEMA},
    "cache_control": {"type": "ephemeral"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "mcp_servers": [{"type": "url", "url": "https://example.com", "name": "x"}],
    "container": "container_1",
    "inference_geo": "eu",
    "speed": "fast",
    "diagnostics": {"previous_message_id": "msg_1"},
    "fallback_credit_token": "t",
    "thread": {"type": "create"},
    "compaction": {"type": "enabled"},
    "fallbacks": [{"model": "other"}],
}
OURS = frozenset({"model", "stream", "session_id", "background", "if_busy", "thread"})
RESPONSES = {
    "background": False,
    "include": ["message.output_text.logprobs"],
    "input": "Something else",
    "instructions": "Be brief.",
    "max_output_tokens": 7,
    "max_tool_calls": 3,
    "metadata": {"a": "b"},
    "model": "-",
    "previous_response_id": None,
    "conversation": None,
    "reasoning": {"effort": "low"},
    "store": False,
    "stream": True,
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
    "tool_choice": "required",
    "tools": [{"type": "function", "name": "add", "parameters": SCHEMA}],
    "top_logprobs": 2,
    "parallel_tool_calls": False,
    "temperature": 0.5,
    "top_p": 0.5,
    "truncation": "auto",
}
CHAT = {
    "max_tokens": 7,
    "max_completion_tokens": 7,
    "stop": ["END"],
    "tools": [FUNCTION],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "reasoning_effort": "low",
    "user": "u",
    "metadata": {"user_id": "u"},
    "service_tier": "standard_only",
    "anthropic_beta": ["files-api-2025-04-14"],
    "prompt_cache_key": "x",
    "seed": 4,
    "store": True,
    "stream_options": {"include_usage": True},
    "modalities": ["text", "audio"],
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "logprobs": True,
    "top_logprobs": 2,
    "function_call": {"name": "add"},
    "functions": [{"name": "add"}],
    "n": 2,
    "verbosity": "low",
}
NEEDS_TOOLS = ("tool_choice", "parallel_tool_calls")
"""Fields that say nothing without tools."""

DIALECTS = {
    "messages to Anthropic": Dialect(
        *("/v1/messages", "ant/claude", {"max_tokens": 50, "messages": [USER]}),
        *(anthropic_fields.FOR_ANTHROPIC, PASSED_ON, MESSAGES, OURS - {"session_id"}),
    ),
    "messages to others": Dialect(
        *("/v1/messages", "up/echo:ok", {"max_tokens": 50, "messages": [USER]}),
        *(anthropic_fields.FOR_OTHERS, anthropic_fields.UNKNOWN, MESSAGES, OURS | {"context_management"}),
    ),
    "responses": Dialect(
        *("/v1/responses", "up/echo:ok", {"input": "Hi"}),
        *(openai_fields.RESPONSES, PASSED_ON, RESPONSES),
        OURS | {"metadata", "store", "previous_response_id", "conversation"},
    ),
    "chat completions to Anthropic": Dialect(
        *("/v1/chat/completions", "ant/claude", {"messages": [USER]}),
        *(anthropic_upstream.PARAMS, PASSED_ON, CHAT, frozenset({"anthropic_beta"})),
    ),
    "chat completions to an agent": Dialect(
        *("/v1/chat/completions", "agent/helper", {"messages": [USER]}),
        *(agents.PARAMS, PASSED_ON, CHAT),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models["claude"] = [Headers(), Raw(ANTHROPICS_ANSWER)]
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(up, tmp_path_factory):
    claude = {
        "name": "ant",
        "dialect": "anthropic",
        "base_url": up.base_url.removesuffix("/v1"),
        "api_key_env": "UP_KEY",
        "models": ["claude"],
    }
    providers = [provider(up.base_url, models=None), claude]
    async with Server(tmp_path_factory.mktemp("fields"), providers, config=AGENT) as server:
        async with server.client() as client:
            yield client


async def asked(client: Client, up: Upstream, dialect: Dialect, name: str, value: Any) -> tuple[Response, Any]:
    """The answer to a request with that field (... leaves it out), and what the upstream was asked, or None."""
    up.requests.clear()
    more = {"tools": dialect.samples["tools"]} if name in NEEDS_TOOLS else {}
    own = {} if value is ... else {name: dialect.model if name == "model" else value}
    response = await client.post(dialect.path, {"model": dialect.model, **dialect.asked, **more, **own})
    await response.body()
    return response, up.requests[0].body if up.requests else None


@pytest.mark.parametrize(
    ("dialect", "name", "value", "rule"),
    [(key, *case) for key, dialect in DIALECTS.items() for case in dialect.cases()],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_field_does_what_its_rule_says(client, up, dialect, name, value, rule):
    """A field that is dropped without a word gives another answer than the one that was asked for."""
    it = DIALECTS[dialect]
    value = f"{value} {dialect}" if name == "session_id" else value
    response, body = await asked(client, up, it, name, value)
    _, without = await asked(client, up, it, name, ...)

    if rule.kind == "refused":
        error = (await response.json())["error"]
        assert (400, rule.code, name, None) == (response.status, error["code"], error["param"], body)
        assert name in error["message"]
        return
    assert 200 == response.status, await response.text()
    if rule.kind == "passed on":
        assert (value, False) == (body[name], name in without)
    elif rule.kind == "harmless" or name in it.ours:
        assert without == body
    else:
        assert without != body


NEUTRAL = [
    (key, name, value)
    for key, dialect in DIALECTS.items()
    for name, rule in dialect.table.items()
    for value in (None, *rule.neutral)
    if rule.kind == "refused"
]


@pytest.mark.parametrize(("dialect", "name", "value"), NEUTRAL, ids=str)
async def test_a_value_that_asks_for_nothing_is_never_refused(client, up, dialect, name, value):
    """Many programs send every field that they know, most of them with the value that it has anyway."""
    response, _ = await asked(client, up, DIALECTS[dialect], name, value)

    assert 200 == response.status, await response.text()


@pytest.mark.parametrize(
    ("name", "value", "body"),
    [
        ("format", {"output_config": MESSAGES["output_config"]}, "response_format"),
        ("format", {"output_format": MESSAGES["output_format"]}, "response_format"),
        ("effort", {"output_config": {"effort": "max"}}, "reasoning_effort"),
    ],
)
async def test_structured_output_and_effort_reach_other_upstreams_in_their_words(client, up, name, value, body):
    """`messages.parse()` of Anthropic's SDKs sends a schema, and reads the answer as JSON."""
    dialect = DIALECTS["messages to others"]
    _, shown = await asked(client, up, dialect, *next(iter(value.items())))
    expected = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}},
        "reasoning_effort": "max",
    }

    assert expected[body] == shown[body]


async def test_structured_output_and_effort_of_responses_reach_anthropic_in_its_words(client, up):
    """They are put into a chat's words first, and then into Anthropic's."""
    up.requests.clear()
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA}
    body = {"model": "ant/claude", "input": "Hi", "text": {"format": form}, "reasoning": {"effort": "low"}}
    response = await client.post("/v1/responses", body)
    await response.body()

    expected = {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}
    assert (200, expected) == (response.status, up.requests[0].body["output_config"])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_format_that_anthropic_does_not_have_is_refused_by_name(client, up, stream):
    """Any JSON object: there is only a schema. Also in a stream it is a real status."""
    up.requests.clear()
    body = {"model": "ant/claude", "messages": [USER], "response_format": {"type": "json_object"}, "stream": stream}
    response = await client.post("/v1/chat/completions", body)
    error = (await response.json())["error"]

    assert (400, "unsupported", "response_format") == (response.status, error["code"], error["param"])
    assert [] == up.requests


async def test_the_default_effort_asks_for_nothing(client, up):
    """Claude Code names it in every request; a model that cannot reason would refuse it."""
    _, shown = await asked(client, up, DIALECTS["messages to others"], "output_config", {"effort": "high"})

    assert "reasoning_effort" not in shown


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("output_config", {"task_budget": {"type": "tokens", "total": 9}}, "output_config.task_budget"),
        ("output_config", {"made_up": 1}, "output_config.made_up"),
        ("output_config", {"format": {"type": "grammar"}}, "output_config.format"),
        ("context_management", {"edits": [{"type": "clear_tool_uses_20250919"}]}, "context_management.edits[0].type"),
        ("context_management", {"made_up": 1}, "context_management.made_up"),
        ("tools", [ADD | {"allowed_callers": ["code_execution_20250825"]}], "tools[0].allowed_callers"),
        ("tools", [ADD, ADD | {"made_up": 1}], "tools[1].made_up"),
        (
            "messages",
            [{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "x"}}]}],
            "messages[0].content[0].source.type",
        ),
        (
            "messages",
            [{"role": "user", "content": [{**TEXT_DOCUMENT, "citations": {"enabled": True}}]}],
            "messages[0].content[0].citations.enabled",
        ),
        ("messages", [{"role": "user", "content": "Hi", "made_up": 1}], "messages[0].made_up"),
        ("messages", [{"role": "user", "content": [{"type": "mcp_tool_use"}]}], "messages[0].content[0].type"),
        ("messages", [{"role": "system", "content": "Hi", "clear_at": "x"}, USER], "messages[0].clear_at"),
        ("tool_choice", {"type": "auto", "made_up": 1}, "tool_choice.made_up"),
    ],
)
async def test_what_stands_inside_a_field_is_refused_by_name_too(client, up, field, value, param):
    """For upstreams that are not Anthropic's."""
    response, body = await asked(client, up, DIALECTS["messages to others"], field, value)
    error = (await response.json())["error"]

    assert (400, param, None) == (response.status, error["param"], body)


async def test_a_tool_is_described_to_other_upstreams_with_all_that_it_says(client, up):
    """Examples have no field of their own there. Claude Code sends `defer_loading`, which is harmless."""
    tool = {**ADD, "type": "custom", "description": "Adds.", "strict": True, "input_examples": [{"a": 1}]}
    harmless = {"cache_control": {"type": "ephemeral"}, "eager_input_streaming": True, "defer_loading": True}
    _, shown = await asked(client, up, DIALECTS["messages to others"], "tools", [tool | harmless])

    described = 'Adds.\n\nExamples of its input:\n{"a": 1}'
    function = {"name": "add", "description": described, "parameters": SCHEMA, "strict": True}
    assert [{"type": "function", "function": function}] == shown["tools"]


async def test_a_tool_reaches_anthropic_as_it_was_sent(client, up):
    """Its own models know every field of it."""
    tool = {**ADD, "description": "Adds.", "strict": True, "input_examples": [{"a": 1}], "made_up": 1}
    tool |= {"cache_control": {"type": "ephemeral"}, "defer_loading": True, "allowed_callers": ["x"]}
    _, shown = await asked(client, up, DIALECTS["messages to Anthropic"], "tools", [tool])

    assert [tool] == shown["tools"]


async def test_a_document_of_text_keeps_its_title(client, up):
    """Other upstreams have no documents; Anthropic's has."""
    source = {"type": "text", "media_type": "text/plain", "data": "The sea is wide."}
    document = {"type": "document", "source": source, "title": "The sea", "context": "A poem."}
    messages = [{"role": "user", "content": [document, {"type": "text", "text": "How wide?"}]}]
    _, others = await asked(client, up, DIALECTS["messages to others"], "messages", messages)
    _, theirs = await asked(client, up, DIALECTS["messages to Anthropic"], "messages", messages)

    assert "The sea\n\nA poem.\n\nThe sea is wide.\n\nHow wide?" == others["messages"][0]["content"]
    assert document in theirs["messages"][0]["content"]


async def test_betas_reach_anthropic_and_nobody_else(client, up):
    """What a beta switches on is Anthropic's own, and it would refuse the fields of one without its name."""
    headers = []
    for model in ("ant/claude", "up/echo:ok"):
        up.requests.clear()
        body = {"model": model, "max_tokens": 9, "messages": [USER]}
        response = await client.post("/v1/messages", body, headers={"anthropic-beta": "a-2026-01-01, b"})
        await response.body()
        headers.append(up.requests[0].headers.get("anthropic-beta"))

    assert ["a-2026-01-01,b", None] == headers


async def test_a_choice_of_tools_that_an_agent_does_not_have_is_refused_before_anything_is_stored(client, up):
    """It calls its own. A run that failed would be left in the session."""
    before = (await (await client.get("/api/sessions")).json())["sessions"]
    for path, more in (("/v1/chat/completions", {"messages": [USER]}), ("/v1/responses", {"input": "Hi"})):
        tool = FUNCTION if "chat" in path else {"type": "function", "name": "add", "parameters": SCHEMA}
        body = {"model": "agent/helper", "tools": [tool], "tool_choice": "required", **more}
        response = await client.post(path, body, headers={"x-session-id": "an agent's"} if "chat" in path else None)

        assert (400, "tool_choice") == (response.status, (await response.json())["error"]["param"])
    assert before == (await (await client.get("/api/sessions")).json())["sessions"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/api/chat", {"messages": [{"role": "user", "parts": [{"type": "video"}]}]}, "messages[0].parts[0].type"),
        ("/ag-ui", {"messages": [{"id": "u", **USER}], "resume": [{"interruptId": "i"}]}, "resume"),
        ("/ag-ui", {"messages": [{"id": "u", **USER}], "made_up": 1}, "made_up"),
        ("/ag-ui", {"messages": [{"id": "u", **USER, "made_up": 1}]}, "messages[0].made_up"),
        ("/v1/responses", {"input": [{"role": "user", "content": "Hi", "made_up": 1}]}, "input[0].made_up"),
        ("/v1/responses", {"input": "Hi", "text": {"made_up": 1}}, "text.made_up"),
        (
            "/v1/responses",
            {"input": "Hi", "tools": [{"type": "function", "name": "a", "async": True}]},
            "tools[0].async",
        ),
    ],
)
async def test_what_stands_inside_a_field_is_refused_by_name_on_other_wires(client, up, path, body, param):
    """The same rule on all of them."""
    up.requests.clear()
    more = {"threadId": "fields", "runId": "r", "forwardedProps": {"model": "up/echo:no"}} if path == "/ag-ui" else {}
    named = {} if path == "/ag-ui" else {"model": "up/echo:no"}
    response = await client.post(path, {**body, **more, **named})

    assert (400, param, []) == (response.status, (await response.json())["error"]["param"], up.requests)
