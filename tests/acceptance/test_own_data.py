"""What only one dialect has reaches the clients of that dialect as it came; and conversations that the server holds."""

import json
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Chunk, Delta, Done, Finish, Gate, Headers, Raw, Role, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

USER = {"role": "user", "content": "Hi"}
ADD = {"name": "add", "input_schema": {"type": "object"}}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "eHh4"}
SEARCHED = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "sea"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [{"type": "web_search_result", "url": "u"}],
}
CITATION = {"type": "web_search_result_location", "url": "u", "cited_text": "wide"}
CITED = {"type": "text", "text": "It is wide.", "citations": [CITATION]}
ANNOTATION = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 2}}


def events(*told: dict[str, Any]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in told)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    told = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    start_of_it = {"type": "content_block_start", "index": index, "content_block": start}
    return [start_of_it, *told, {"type": "content_block_stop", "index": index}]


ALL_BLOCKS = events(
    {"type": "message_start", "message": {"usage": {"input_tokens": 4, "output_tokens": 0}}},
    *block(
        *(0, {"type": "thinking", "thinking": "", "signature": ""}),
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "c2ln"},
    ),
    *block(1, REDACTED),
    *block(2, SEARCHED | {"input": {}}, {"type": "input_json_delta", "partial_json": '{"query": "sea"}'}),
    *block(3, FOUND),
    *block(
        *(4, {"type": "text", "text": ""}),
        {"type": "text_delta", "text": "It is wide."},
        {"type": "citations_delta", "citation": CITATION},
    ),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
)
WHOLE = [SIGNED, REDACTED, SEARCHED, FOUND, CITED]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= {
            "claude": [Headers(), Raw(ALL_BLOCKS)],
            "cites": [Role(), Delta("Sea."), Chunk(chunk({"annotations": [ANNOTATION]})), Finish(), Done()],
            "waits": [Role(), Delta("Sea."), Gate("goes on"), Finish(), Done()],
            "fails": [Role(), Delta("Sea."), Finish("error"), Done()],
        }
        yield up


def chunk(delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(up, tmp_path_factory):
    base_url = up.base_url.removesuffix("/v1")
    claude = {"name": "ant", "dialect": "anthropic", "base_url": base_url, "api_key_env": "UP_KEY"}
    providers = [provider(up.base_url, models=None), claude | {"models": ["claude"]}]
    async with Server(tmp_path_factory.mktemp("own-data"), providers) as server:
        async with server.client() as client:
            yield client


async def ask(client, model: str, messages: list[dict[str, Any]] | None = None, **more: Any):
    return await client.post(
        "/v1/messages", {"model": model, "max_tokens": 50, "messages": [USER] if messages is None else messages, **more}
    )


@requirement("wire.own-data")
async def test_blocks_of_anthropics_own_come_back_whole_and_in_their_order(client):
    """Thinking without its signature cannot be sent back, and a search without its results cannot be gone on from."""
    message = await (await ask(client, "ant/claude")).json()

    assert WHOLE == message["content"]
    assert ("stop_sequence", "END") == (message["stop_reason"], message["stop_sequence"])


@requirement("wire.own-data")
async def test_a_stream_has_the_same_blocks_in_anthropics_events(client):
    """The SDKs put them together by their deltas."""
    told = [frame.json() for frame in await (await ask(client, "ant/claude", stream=True)).all_events()]

    starts = [event["content_block"]["type"] for event in told if event["type"] == "content_block_start"]
    deltas = [event["delta"]["type"] for event in told if event["type"] == "content_block_delta"]
    assert [each["type"] for each in WHOLE] == starts
    assert ["thinking_delta", "signature_delta", "input_json_delta", "text_delta", "citations_delta"] == deltas
    assert {"stop_reason": "stop_sequence", "stop_sequence": "END"} == told[-2]["delta"]


@requirement("wire.own-data", "wire.no-silent-drop")
async def test_a_conversation_reaches_anthropic_as_it_was_sent(client, up):
    """With every block that it knows; only thinking that nobody has signed is not Anthropic's."""
    unsigned = {"type": "thinking", "thinking": "Of another model.", "signature": ""}
    turns = [USER, {"role": "assistant", "content": [unsigned, *WHOLE]}, {"role": "user", "content": "And?"}]
    await (await ask(client, "ant/claude", turns)).body()

    assert [turns[0], {"role": "assistant", "content": WHOLE}, turns[2]] == up.requests[-1].body["messages"]


@requirement("wire.own-data")
async def test_what_is_anthropics_own_is_no_part_of_an_answer_elsewhere(client):
    """OpenAI's clients see reasoning and text."""
    body = {"model": "ant/claude", "messages": [USER]}
    message = (await (await client.post("/v1/chat/completions", body)).json())["choices"][0]["message"]

    assert ("It is wide.", "Hm.") == (message["content"], message["reasoning"])


@requirement("wire.own-data")
@pytest.mark.parametrize("stream", [False, True])
async def test_annotations_reach_the_clients_of_chat_completions(client, stream):
    """They say what an answer is based on."""
    body = {"model": "up/cites", "messages": [USER], "stream": stream}
    response = await client.post("/v1/chat/completions", body)
    if stream:
        deltas = [frame.json()["choices"][0]["delta"] for frame in (await response.all_events())[:-1]]
        found = [delta["annotations"] for delta in deltas if "annotations" in delta]
    else:
        found = [(await response.json())["choices"][0]["message"]["annotations"]]

    assert [[ANNOTATION]] == found


@requirement("wire.own-data")
async def test_annotations_of_a_chat_are_those_of_a_response(client):
    """Responses have them one level higher."""
    response = await (await client.post("/v1/responses", {"model": "up/cites", "input": "Hi"})).json()

    flat = {"type": "url_citation", **ANNOTATION["url_citation"]}
    assert [flat] == response["output"][0]["content"][0]["annotations"]


# Threads.


@requirement("wire.thread")
async def test_a_thread_is_whole_for_the_model_in_every_turn(client, up):
    """The tool runners of Anthropic's SDKs send only what is new, without system and tools."""
    more = {"system": "Be brief.", "tools": [ADD], "thread": {"type": "create"}}
    first = await (await ask(client, "up/echo:one", **more)).json()
    thread = {"type": "continue", "previous_message_id": first["id"]}
    second = await (await ask(client, "up/echo:two", [{"role": "user", "content": "And?"}], thread=thread)).json()
    thread = {"type": "continue", "previous_message_id": second["id"]}
    await (await ask(client, "up/echo:three", [{"role": "user", "content": "Then?"}], thread=thread)).body()

    shown = up.requests[-1].body
    said = [(message["role"], message["content"]) for message in shown["messages"]]
    turns = [("user", "Hi"), ("assistant", "one"), ("user", "And?"), ("assistant", "two"), ("user", "Then?")]
    assert [("system", "Be brief."), *turns] == said
    assert ["add"] == [tool["function"]["name"] for tool in shown["tools"]]


@requirement("wire.thread")
async def test_a_thread_of_anthropics_own_model_keeps_its_blocks(client, up):
    """The model is shown what it thought and found, as it was."""
    first = await (await ask(client, "ant/claude", thread={"type": "create"})).json()
    thread = {"type": "continue", "previous_message_id": first["id"]}
    await (await ask(client, "ant/claude", [{"role": "user", "content": "And?"}], thread=thread)).body()

    body = up.requests[-1].body
    assert {"role": "assistant", "content": WHOLE} == body["messages"][1]
    assert "thread" not in body


@requirement("wire.thread")
@pytest.mark.parametrize(
    ("model", "more"),
    [(None, {}), ("up/echo:no thread", {}), ("up/fails", {"thread": {"type": "create"}})],
)
async def test_a_thread_that_cannot_be_continued_is_not_found(client, up, model, more):
    """On this code the SDKs send the whole conversation. A model would answer to half of it else."""
    response = None if model is None else await ask(client, model, **more)
    known = None if response is None else await response.json()
    message_id = "msg_run_gone" if known is None else (known.get("id") or known["holdfast"]["partial"]["id"])
    asked = len(up.requests)
    answer = await ask(client, "up/echo:no", thread={"type": "continue", "previous_message_id": message_id})
    error = (await answer.json())["error"]

    assert (404, {"error_code": "thread_not_found"}) == (answer.status, error["details"])
    assert asked == len(up.requests)


@requirement("wire.thread")
async def test_a_message_that_is_not_finished_cannot_be_continued(client, up):
    """What it will have said is not known."""
    more = {"thread": {"type": "create"}, "background": True}
    first = await (await ask(client, "up/waits", **more)).json()
    await up.reached("goes on")
    answer = await ask(client, "up/echo:no", thread={"type": "continue", "previous_message_id": first["id"]})
    up.open("goes on")

    error = (await answer.json())["error"]
    assert (409, {"error_code": "thread_continue_in_flight"}) == (answer.status, error["details"])


@requirement("wire.thread")
@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"thread": {"type": "create"}, "session_id": "s"}, "thread"),
        ({"thread": {"type": "create", "made_up": 1}}, "thread.made_up"),
        ({"thread": {"type": "continue", "previous_message_id": "msg_x"}, "tools": [ADD]}, "tools"),
        ({"thread": {"type": "fork"}}, "thread.type"),
    ],
)
async def test_a_thread_that_asks_for_something_else_is_refused_by_name(client, more, param):
    """A session holds its conversation itself, and a thread its tools."""
    answer = await ask(client, "up/echo:no", **more)

    assert (400, param) == (answer.status, (await answer.json())["error"]["param"])
