"""OpenAI's Responses as an upstream: what is asked, odd answers, and answers that go on without us."""

import asyncio
import json
import signal
import sqlite3
from contextlib import AsyncExitStack, aclosing, closing

import pytest

from holdfast.errors import AnswerLost, ProviderError, Unsupported
from holdfast.events import Finish, Notice, Reasoning, Text, Thought, ToolCall, ToolDelta, Usage
from holdfast.server.live.notes import StoredNotes
from holdfast.store.memory import MemoryStore
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.responses.decoder import ResponsesDecoder
from holdfast.upstreams.responses.provider import ResponsesOptions
from holdfast.upstreams.responses.request import body_in
from holdfast_lab.contracts import PLAYED
from tests.contract.test_provider import first_text, listen, until
from tests.requirements import requirement
from tests.support import outlets
from tests.support.dialects.responses import ERROR, ID, PIECES, RESPONSES, WHOLE, Told, frame, response, told
from tests.support.native import Native
from tests.support.postgres import rows_of
from tests.support.server import Server
from tests.support.upstream import Cut, Eof, Gate, Raw, Status, Upstream
from tests.support.waiting import SOON

NAME = "run_1"
NOTE = f"up\n{NAME}"
AT = f"GET /v1/responses/{ID}"
CANCEL = f"POST /v1/responses/{ID}/cancel"
BEGIN = WHOLE.up_to_the_text
ONE_PIECE = b"".join(
    frame(event) for event in WHOLE.events if event["sequence_number"] <= WHOLE.events[4]["sequence_number"]
)
"""Up to the first piece of the text."""


@pytest.fixture
async def up():
    async with Upstream([Raw(WHOLE.bytes())]) as up:
        up.at[CANCEL] = [Status(200, response("cancelled"))]
        yield up


@pytest.fixture
async def provider(up):
    provider = RESPONSES.provider(up)
    yield provider
    await provider.close()


@pytest.fixture
def notes():
    """What every process of a server finds, after a crash too."""
    return StoredNotes(MemoryStore())


@pytest.fixture
async def attaching(up, notes):
    provider = RESPONSES.provider(up, attaches=True, notes=notes)
    yield provider
    await provider.close()


def request(*messages, name="", **params):
    messages = list(messages) or [{"role": "user", "content": "Hello"}]
    return ChatRequest(model="m", messages=messages, params=params, patience=0.0, name=name)


def body(*messages, background=False, encrypted=False, summary=None, **params):
    return body_in(request(*messages, **params), background=background, encrypted=encrypted, summary=summary)


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def play(up, provider, data, asked=None):
    up.enqueue([Raw(data.bytes() if isinstance(data, Told) else data)])
    return await listen(provider, asked or request())


# what is asked


def test_a_conversation_is_made_of_items():
    """Calls and results are items of their own; nothing is stored at OpenAI."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa", "detail": "low"}}
    asked = body(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Add."}, picture]},
        {"role": "assistant", "content": "I will.", "tool_calls": [call("c1", "add", '{"a":1}')]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "user", "name": "Ada", "content": "Why?"},
    )

    assert [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Add."},
                {"type": "input_image", "image_url": "data:image/png;base64,aaaa", "detail": "low"},
            ],
        },
        {"role": "assistant", "content": "I will."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "3"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Ada:"}, {"type": "input_text", "text": "Why?"}]},
    ] == asked["input"]
    assert ("m", True, False) == (asked["model"], asked["stream"], asked["store"])


def test_parameters_are_said_in_the_words_of_responses():
    """Formats and tools have a level less, and a function is strict only if it says so."""
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    function = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a/"}}
    asked = body(
        max_completion_tokens=7,
        reasoning_effort="low",
        verbosity="low",
        temperature=0.5,
        response_format={"type": "json_schema", "json_schema": schema},
        tools=[
            {"type": "function", "function": function},
            {"type": "custom", "custom": {"name": "sql", "format": grammar}},
            {"type": "web_search"},
        ],
        tool_choice={"type": "function", "function": {"name": "add"}},
        summary="auto",
    )

    assert (7, 0.5, {"effort": "low", "summary": "auto"}) == (
        asked["max_output_tokens"],
        asked["temperature"],
        asked["reasoning"],
    )
    assert {"format": {"type": "json_schema", **schema}, "verbosity": "low"} == asked["text"]
    assert [
        {"type": "function", "strict": False, **function},
        {"type": "custom", "name": "sql", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}},
        {"type": "web_search"},
    ] == asked["tools"]
    assert {"type": "function", "name": "add"} == asked["tool_choice"]


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"stop": ["END"]}, "stop"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"frequency_penalty": 1}, "frequency_penalty"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_what_responses_does_not_have_is_refused_by_name(params, field):
    """A provider of chat completions may have it."""
    with pytest.raises(Unsupported) as refused:
        body(**params)

    assert field == refused.value.param


# what is answered


async def test_usage_is_told_in_full(up, provider):
    """Cached and reasoning tokens too."""
    heard = await play(up, provider, WHOLE)

    assert Usage(PLAYED.input_tokens, PLAYED.output_tokens, "provider", 2, 1) in heard.all(Usage)


async def test_the_parts_of_a_summary_are_paragraphs(up, provider):
    """Each has a heading of its own."""
    heard = await play(up, provider, told().reasoning("**One**").reasoning("**Two**").text(*PIECES).end())

    assert "**One**\n\n**Two**" == "".join(piece.text for piece in heard.all(Reasoning))


async def test_custom_calls_are_told_as_such(up, provider):
    """Their input is any text, and no JSON."""
    heard = await play(up, provider, told().call("sql", "SELECT 1", "call_1", "custom_tool_call").end())

    assert [ToolCall("call_1", "sql", "SELECT 1", kind="custom")] == heard.all(ToolCall)
    assert {"custom"} == {delta.kind for delta in heard.all(ToolDelta)}


async def test_text_without_deltas_is_told_once(up, provider):
    """Some servers send only the whole part; others send both."""
    without = Told()
    without.events = [event for event in WHOLE.events if event["type"] != "response.output_text.delta"]
    heard = await play(up, provider, without)

    assert (PLAYED.text, [Finish("stop")]) == (heard.text, heard.all(Finish))


@requirement("truth.in-band-error")
@pytest.mark.parametrize(
    "data", [BEGIN + frame(ERROR), BEGIN + told().end("cancelled").bytes(3)], ids=["error", "cancelled"]
)
async def test_an_answer_that_openai_gave_up_has_failed(up, provider, data):
    """What came before it is kept, and no key is told."""
    heard = await play(up, provider, data)

    assert isinstance(heard.error, ProviderError)
    assert PLAYED.text == heard.text
    assert PLAYED.secret not in str(heard.error)


async def test_encrypted_reasoning_goes_back_with_the_results(up, provider):
    """OpenAI keeps nothing, so it wants it back."""
    tools = [{"type": "function", "function": {"name": "add"}}]
    said = told().reasoning("Hm.", encrypted="gAAAA").call("add", "{}", "call_1").end()
    heard = await play(up, provider, said, request(tools=tools))
    [thought] = heard.all(Thought)
    asked = body({"role": "assistant", "thoughts": [thought.block], "tool_calls": [call("call_1", "add", "{}")]})

    assert ["reasoning.encrypted_content"] == up.requests[0].body["include"]
    assert ["reasoning", "function_call"] == [item["type"] for item in asked["input"]]
    assert "gAAAA" == asked["input"][0]["encrypted_content"]


async def test_a_model_without_reasoning_is_asked_without_it_from_then_on(up, provider):
    """OpenAI refuses to encrypt what is not there."""
    refusal = {"error": {"message": "Encrypted content is not supported with this model.", "param": "include"}}
    up.enqueue([Status(400, refusal)])
    tools = [{"type": "function", "function": {"name": "add"}}]
    first, second = await listen(provider, request(tools=tools)), await listen(provider, request(tools=tools))

    assert (PLAYED.text, PLAYED.text) == (first.text, second.text)
    assert [True, False, False] == ["include" in asked.body for asked in up.requests]


def test_any_cutting_of_the_bytes_gives_the_same_answer():
    """Where the network cuts says nothing."""
    data = told().reasoning("Hm.").text("Héllo ", "🌊").call("add", '{"a":1}', "call_1").end().bytes()

    def heard(*reads):
        decoder = ResponsesDecoder("up")
        return [event for read in reads for events in decoder.feed(read) for event in events], decoder.sequence

    whole = heard(data)
    for cut in range(0, len(data), 7):
        assert whole == heard(data[:cut], data[cut:])


# answers in the background


async def test_an_answer_is_in_the_background_only_if_it_has_a_name(up, attaching):
    """A client that waits for it stops it by leaving."""
    await listen(attaching, request())
    await listen(attaching, request(name=NAME))

    assert [(None, False), (True, True)] == [
        (asked.body.get("background"), asked.body["store"]) for asked in up.requests
    ]


@requirement("crash.goes-on")
@pytest.mark.parametrize("broken", [[Raw(ONE_PIECE), Cut()], [Raw(ONE_PIECE), Eof()]], ids=["cut", "eof"])
async def test_a_broken_connection_is_read_on_after_the_last_event(up, attaching, broken):
    """No token is generated twice, and none is told twice."""
    up.enqueue(broken)
    up.at[AT] = lambda asked: [Raw(WHOLE.bytes(int(asked.query("starting_after"))))]
    heard = await listen(attaching, request(name=NAME))

    assert (PLAYED.text, None, [Finish("stop")]) == (heard.text, heard.error, heard.all(Finish))
    assert ["retry"] == [notice.code for notice in heard.all(Notice)]
    assert 1 == len(up.requests)


async def test_a_connection_that_brings_nothing_new_is_given_up(up, attaching):
    """A gateway may cut every stream at once."""
    up.enqueue([Raw(ONE_PIECE), Cut()])
    up.at[AT] = [Raw(b": nothing\n\n"), Eof()]
    heard = await listen(attaching, request(name=NAME))

    assert isinstance(heard.error, ProviderError)
    assert PIECES[0] == heard.text
    assert 1 == len(up.requests)


@requirement("crash.goes-on")
@pytest.mark.parametrize("how", ["streamed", "whole"])
async def test_a_successor_goes_on_after_what_was_seen(up, attaching, notes, how):
    """Its predecessor was killed: only the note is left, and OpenAI's response."""
    up.enqueue([Raw(ONE_PIECE), Gate()])
    task = asyncio.create_task(attaching.answer(request(name=NAME), outlets.Collected()))
    await up.reached()
    await kept(notes)
    up.at[AT] = [Raw(WHOLE.bytes())] if how == "streamed" else lambda asked: whole_or_refused(asked.query("stream"))
    successor = RESPONSES.provider(up, attaches=True, notes=notes)
    async with aclosing(outlets.attach(successor, NAME, text=PIECES[0])) as stream:
        events = [event async for batch in stream for event in batch]
    await successor.close()
    task.cancel()

    assert PIECES[1] == "".join(event if isinstance(event, str) else event.text for event in texts(events))
    assert Finish("stop") in events
    assert 1 == len(up.requests)


async def kept(notes):
    """Wait until the id of the response is kept."""
    async with asyncio.timeout(SOON):
        while await notes.find(NOTE) is None:  # noqa: ASYNC110 - a store tells nobody
            await asyncio.sleep(0.01)


def texts(events):
    return [event for event in events if isinstance(event, Text | str)]


def whole_or_refused(stream):
    if stream:
        return [Status(400, {"error": {"message": "This response cannot be streamed any more."}})]
    return [Status(200, response("completed", output=WHOLE.items, usage=None))]


async def test_an_answer_that_nobody_kept_is_lost(attaching):
    """Its process was killed before OpenAI had told the id."""
    with pytest.raises(AnswerLost):
        await attaching.attach("run_unknown", outlets.Collected())


@requirement("stop.closes-upstream")
async def test_a_stop_cancels_the_response_and_forgets_it(up, attaching, notes):
    """Closing the connection does not stop what is in the background."""
    up.enqueue([Raw(ONE_PIECE), Gate()])
    async with aclosing(outlets.answer(attaching, request(name=NAME))) as stream:
        await first_text(stream)
    await until(lambda: any(asked.path.endswith("/cancel") for asked in up.others), SOON)
    await attaching.close()

    assert await notes.find(NOTE) is None


async def test_a_whole_answer_is_forgotten_and_not_cancelled(up, attaching, notes):
    """There is nothing to stop."""
    await listen(attaching, request(name=NAME))
    await attaching.close()

    assert [] == [asked for asked in up.others if asked.method == "POST"]
    assert await notes.find(NOTE) is None


def test_options_have_defaults_that_every_model_takes():
    """A summary is refused by models that do not reason."""
    assert ResponsesOptions().summary is None


def noted(folder):
    """Whether a server has kept the id of a response, as its file says."""
    [file] = folder.rglob("*.db")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as opened:
        return opened.execute("SELECT 1 FROM documents WHERE kind = 'note'").fetchall()


@requirement("crash.goes-on", "nodes.takeover")
@pytest.mark.parametrize("end", ["kill -9", "SIGTERM"])
async def test_another_server_reads_on_in_the_response_of_one_that_ended(up, postgres, tmp_path, end):
    """The id is in the store that they share. OpenAI is asked once, and nothing is cancelled there."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database())}
    entry = {"name": "up", "dialect": "openai-responses", "base_url": up.base_url, "models": ["m"], "attaches": True}
    up.enqueue([Raw(ONE_PIECE), Gate()])
    up.at[AT] = [Raw(WHOLE.bytes())]
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(Server(tmp_path / name, [entry], config="drain = 0.0", env=env))
            for name in ("one", "two")
        ]
        async with one.client() as client, two.client() as other:
            run = await Native(client).start(await Native(client).new_session(), "Hello", "up/m")
            (await Native(client).shown(run, PIECES[0])).close()
            async with asyncio.timeout(SOON):
                while "note" not in str((await rows_of(env["HOLDFAST_STORE"]))["documents"]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            if end == "SIGTERM":
                one.send_signal(signal.SIGTERM)
            else:
                await one.kill9()
            settled = await Native(other).settled(run)

    assert ("completed", PLAYED.text, []) == (settled["outcome"], settled["text"], settled["legs"])
    assert 1 == len(up.requests)
    assert [] == [asked for asked in up.others if asked.method == "POST"]


@requirement("crash.goes-on")
async def test_a_run_goes_on_after_a_kill_of_the_server(up, tmp_path):
    """From a real process to the next one: the client's answer is whole, and OpenAI was asked once."""
    entry = {
        "name": "up",
        "dialect": "openai-responses",
        "base_url": up.base_url,
        "api_key": PLAYED.secret,
        "models": ["m"],
        "attaches": True,
    }
    up.enqueue([Raw(ONE_PIECE), Gate()])
    up.at[AT] = [Raw(WHOLE.bytes())]
    async with Server(tmp_path, [entry]) as server, server.client() as client:
        api = Native(client)
        session = await api.new_session()
        run = await api.start(session, "Hello", "up/m")
        await api.shown(run, PIECES[0])
        await until(lambda: noted(tmp_path), SOON)
        await server.kill9()
        await server.restart()
        settled = await api.settled(run)

    assert ("completed", PLAYED.text, []) == (settled["outcome"], settled["text"], settled["legs"])
    assert 1 == len(up.requests)
    assert json.loads(up.requests[0].raw)["background"] is True


@requirement("legs.crash")
@pytest.mark.parametrize("gone", ["the server", "the connection"])
async def test_another_call_goes_on_where_the_response_is_not_told_any_more(up, tmp_path, gone):
    """OpenAI streams a response for minutes only: what cannot be read on is continued like any other answer."""
    entry = {"name": "up", "dialect": "openai-responses", "base_url": up.base_url, "models": ["m"], "attaches": True}
    text = "Anna Livia went down to the river, and there she sat"
    up.at[AT] = [Status(404, {"error": {"message": "Response not found."}})]
    up.enqueue(
        [Raw(told().text(text).up_to_the_text), *([Gate()] if gone == "the server" else [Cut()])],
        [Raw(told().text(text, " for an hour.").end().bytes())],
    )
    async with Server(tmp_path, [entry], config='[on_break]\n"*" = "continue"') as server, server.client() as client:
        api = Native(client)
        run = await api.start(await api.new_session(), "Hello", "up/m")
        if gone == "the server":
            await api.shown(run, text)
            await until(lambda: noted(tmp_path), SOON)
            await server.kill9()
            await server.restart()
        settled = await api.settled(run)

    assert ("completed", text + " for an hour.") == (settled["outcome"], settled["text"])
    reason = "server_died" if gone == "the server" else "answer_lost"
    assert [reason] == [leg["reason"] for leg in settled["legs"][1:]]
    assert 2 == len(up.requests)
