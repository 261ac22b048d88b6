"""What the provider of OpenAI's dialect makes of an upstream that can do every wrong thing.

What the bytes of an answer mean is tested in `tests/unit/test_openai_stream.py`. Here are connections: real sockets,
what is said of each way to end, and that whoever leaves leaves nothing open.
"""

import asyncio
import os
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from urllib.parse import unquote_plus

import pytest

from holdfast.engine.core import Core
from holdfast.errors import ProviderBroke, ProviderError, ProviderRefused, ProviderUnreachable
from holdfast.events import Completed, Failed, Finish, Notice, Reasoning, Text, ToolCall, Truncated, Usage
from holdfast.history import estimate_tokens
from holdfast.http_client import connection as one_connection
from holdfast.log.reasoning import AnswerSplitter
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.http.upstream import LONGEST_RETRY_AFTER, retry_after, where_nobody_is
from holdfast.upstreams.openai.provider import OpenAICompatible
from tests.requirements import requirement
from tests.support import outlets
from tests.support.http import Client
from tests.support.upstream import (
    ENDINGS,
    ODDITIES,
    REASONING,
    TEXT,
    Cut,
    Delta,
    Done,
    Eof,
    Gate,
    Hang,
    Headers,
    Pause,
    Repeat,
    Role,
    Status,
    Upstream,
    Wire,
)
from tests.support.upstream import Finish as FinishStep
from tests.support.waiting import LONG, SOON

KEY = "sk-test-Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8"
NEVER_END = {"endless", "silence", "silence-after-headers", "stall"}  # of themselves: the engine ends them


@pytest.fixture
async def up():
    async with Upstream() as up:
        yield up


@pytest.fixture
async def provider(up):
    provider = OpenAICompatible("up", up.base_url, api_key=KEY, linger=0.2)
    yield provider
    await provider.close()


def request(model="m", *, content="Hello", patience=0.0, **params):
    return ChatRequest(model=model, messages=[{"role": "user", "content": content}], params=params, patience=patience)


@dataclass
class Heard:
    """What came out of one stream."""

    events: list = field(default_factory=list)
    error: BaseException | None = None

    def all(self, *kinds):
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def text(self):
        return "".join(event.text for event in self.all(Text))


async def listen(provider, asked=None):
    out = outlets.Collected()
    heard = Heard(out.events)
    try:
        async with asyncio.timeout(LONG):
            await provider.answer(asked or request(), out)
    except ProviderError as error:
        heard.error = error
    return heard


async def play(up, provider, script, asked=None):
    up.enqueue(script)
    return await listen(provider, asked)


async def gone(up):
    """Wait until nobody is connected to the upstream any more."""
    await until(lambda: not up.open_connections, SOON)


async def until(condition, within=LONG):
    """Give the loop its turns until something has happened on the other side of a socket."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  # the kernel brings it about, and has no event to wait for
            await asyncio.sleep(0)


async def first_text(stream):
    """Read up to the first text."""
    async for batch in stream:
        if texts := [event.text for event in batch if isinstance(event, Text)]:
            return texts
    raise AssertionError("there was no text")


# answers


@requirement("start.text-exact", "truth.completed")
@pytest.mark.parametrize(
    "name",
    [
        "completed",
        "completed-no-done",
        "crlf",
        "comments",
        "no-space",
        "split-utf8",
        "done-no-finish",
        "text-after-finish",
        "null-fields",
        "changing-ids",
        "cr",
        "bom",
        "sse-fields",
        "split-crlf",
        "wrong-content-type",
        "length-too-long",
        "until-close",
    ],
)
async def test_the_text_of_a_whole_answer_is_exact(up, provider, name):
    """Whatever the upstream's habits are."""
    heard = await play(up, provider, (ENDINGS | ODDITIES)[name])

    assert heard.error is None
    assert TEXT == heard.text
    assert [Finish("stop")] == heard.all(Finish)


@requirement("start.text-exact")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("line-separators", "a\u2028b\u2029c\u0085de\x0bf\x0cg\x1ch\x1di"),
        ("lone-surrogate", "a🌊b\ufffd"),
        ("invalid-utf8", TEXT + "\ufffd\ufffd"),
        ("two-data-lines", TEXT + "!"),
        ("drip", "slow"),
        ("empty", ""),
    ],
)
async def test_odd_text_stays_what_it_is(up, provider, name, text):
    """Only CR and LF end a line; half an emoji waits for its other half."""
    heard = await play(up, provider, ODDITIES[name])

    assert (text, None, [Finish("stop")]) == (heard.text, heard.error, heard.all(Finish))


@requirement("truth.length", "truth.content-filter")
@pytest.mark.parametrize(
    ("name", "reason"), [("length", "length"), ("content-filter", "content_filter"), ("unknown-finish", "eos_token")]
)
async def test_the_finish_reason_is_passed_on(up, provider, name, reason):
    """What it means is judged elsewhere."""
    heard = await play(up, provider, (ENDINGS | ODDITIES)[name])

    assert (TEXT, [Finish(reason)]) == (heard.text, heard.all(Finish))


@requirement("start.text-exact", "truth.cut", "truth.in-band-error")
@pytest.mark.parametrize("name", sorted({**ENDINGS, **ODDITIES}.keys() - NEVER_END))
async def test_an_answer_is_the_same_for_an_outlet_that_often_has_no_room(up, provider, name):
    """What arrives while the source waits for room is emitted afterwards, in each way that an upstream can go."""
    script = (ENDINGS | ODDITIES)[name]
    waiting = await play(up, provider, script)
    up.enqueue(script)
    at_once = Heard()
    try:
        async with asyncio.timeout(LONG), aclosing(outlets.answer(provider, request())) as batches:
            async for batch in batches:
                at_once.events += batch
    except ProviderError as error:
        at_once.error = error

    assert said(waiting) == said(at_once)
    assert str(waiting.error) == str(at_once.error)


def said(heard):
    """Return what was said, however it was cut into reads, and without the ids that were made up."""
    text = {kind: "".join(event.text for event in heard.all(kind)) for kind in (Text, Reasoning)}
    calls = [(call.name, call.arguments) for call in heard.all(ToolCall)]
    return text, calls, heard.all(Usage, Finish)


@requirement("start.reasoning-apart")
@pytest.mark.parametrize("name", ["think", "reasoning", "reasoning-content"])
async def test_reasoning_is_apart_from_the_answer(up, provider, name):
    """By field or, for whoever reads the answer, by tag, also where a tag is split across deltas."""
    heard = await play(up, provider, (ENDINGS | ODDITIES)[name])
    heard.events = AnswerSplitter(provider.think).feed(heard.events)

    assert REASONING == "".join(event.text for event in heard.all(Reasoning))
    assert TEXT == heard.text


async def test_usage_is_estimated_first_and_counted_by_the_upstream_last(up, provider):
    """A run that is stopped has only the estimate."""
    heard = await play(up, provider, ENDINGS["completed"], request(content="x" * 41))

    assert Usage(11, 0, "estimated") == heard.events[0]
    assert [Usage(3, 5, "provider")] == heard.all(Usage)[1:]


async def test_tool_calls_are_assembled(up, provider):
    """Pieces first, as they come, then the whole call, then the reason."""
    heard = await play(up, provider, ODDITIES["tool-call"])

    assert [ToolCall("call_1", "add", '{"a": 1, "b": 2}')] == heard.all(ToolCall)
    assert [Finish("tool_calls")] == heard.all(Finish)


async def test_an_upstream_that_does_not_stream_is_heard_all_the_same(up, provider):
    """A whole completion is an answer in one piece."""
    completion = {"object": "chat.completion", "choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]}
    heard = await play(up, provider, [Status(200, completion)])

    assert (TEXT, [Finish("stop")], None) == (heard.text, heard.all(Finish), heard.error)


async def test_what_arrives_together_is_yielded_together(up, provider):
    """One append, one commit and one write for each read, not for each token."""
    up.enqueue([Headers(), Gate(), Repeat(50, Delta("x")), FinishStep(), Done()])
    async with aclosing(outlets.answer(provider, request())) as batches:
        await anext(batches)
        first = asyncio.ensure_future(anext(batches))
        await up.reached()
        up.open()
        sizes = [len(await first), *[len(batch) async for batch in batches]]

    assert 51 == sum(sizes)
    assert len(sizes) < 51


async def test_an_upstream_that_stays_after_its_finish_reason_is_not_waited_for_long(up, provider):
    """The answer is whole; usage and `[DONE]` get a moment, not the idle limit."""
    heard = await play(up, provider, [Headers(), Delta(TEXT), FinishStep(), Hang()])

    assert (TEXT, [Finish("stop")], None) == (heard.text, heard.all(Finish), heard.error)
    await gone(up)


# what is asked


async def test_what_the_caller_said_is_passed_on(up, provider):
    """Unknown fields too: the upstream knows better what it understands."""
    await listen(provider, request("some/model", temperature=0.5, n=1, made_up={"x": [1]}, stream=False))
    [asked] = up.requests

    assert {
        "model": "some/model",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0.5,
        "n": 1,
        "made_up": {"x": [1]},
        "stream": True,
        "stream_options": {"include_usage": True},
    } == asked.body
    assert f"Bearer {KEY}" == asked.headers["authorization"]
    assert "identity" == asked.headers["accept-encoding"]


async def test_stream_options_of_the_caller_are_kept(up, provider):
    """Ours is added to them: without usage nobody knows what an answer cost."""
    await listen(provider, request(stream_options={"include_usage": False, "chunk_size": 3}))

    assert {"include_usage": True, "chunk_size": 3} == up.requests[0].body["stream_options"]


async def test_an_upstream_that_does_not_know_stream_options_is_asked_without_them_from_then_on(up, provider):
    """Older servers refuse what they do not know; an answer without usage is better than none."""
    refusal = Status(400, {"error": {"message": "Unrecognized request argument supplied: stream_options"}})
    up.enqueue([refusal], [refusal])
    both = await asyncio.gather(listen(provider), listen(provider))
    last = await listen(provider)

    assert [TEXT] * 3 == [heard.text for heard in (*both, last)]
    assert [True, True, False, False, False] == ["stream_options" in asked.body for asked in up.requests]


async def test_messages_take_turns_where_the_model_insists(up):
    """Some templates refuse two messages of one role in a row."""
    provider = OpenAICompatible("up", up.base_url, alternate=True, headers={"X-Team": "blue"})
    messages = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    await listen(provider, ChatRequest(model="m", messages=messages))
    await provider.close()

    assert [{"role": "user", "content": "one\n\ntwo"}] == up.requests[0].body["messages"]
    assert "blue" == up.requests[0].headers["x-team"]
    assert "authorization" not in up.requests[0].headers


async def test_half_an_emoji_in_a_message_can_be_asked(up, provider):
    """It came from a client, and must not end the run with a codec's error."""
    heard = await listen(provider, request(content="a\ud83c"))

    assert TEXT == heard.text
    assert "a\ud83c" == up.requests[0].body["messages"][0]["content"]


async def test_a_large_request_is_sent_whole(up, provider):
    """Images are megabytes."""
    content = "x" * 3_000_000
    heard = await listen(provider, request(content=content))

    assert TEXT == heard.text
    assert content == up.requests[0].body["messages"][0]["content"]


@pytest.mark.parametrize(
    "base_url", ["", "localhost:1", "ftp://x/v1", "http://", "http://a..b/v1", "http://me:secret@localhost/v1"]
)
def test_a_base_url_that_cannot_work_is_refused_at_once(base_url):
    """At the start, where the operator sees it, and not in the first run."""
    with pytest.raises(ValueError, match=r"base_url (must|is not set)"):
        OpenAICompatible("up", base_url)


def test_a_key_that_no_header_can_hold_is_refused_at_once():
    """A line end inside a key would forge a header; one after it is only a slip."""
    OpenAICompatible("up", "http://localhost/v1", api_key="key\n")
    with pytest.raises(ValueError, match="Authorization"):
        OpenAICompatible("up", "http://localhost/v1", api_key="key\nX-Evil: 1")


@requirement("truth.redacted")
@pytest.mark.parametrize("query", ["key=s3cr%2Ft-0123456789", "code=Ab0123456789%3D%3D", "sig=Ab+0123456789"])
async def test_a_key_in_the_query_of_a_base_url_is_in_no_error(up, query):
    """An upstream that quotes the address it was asked at quotes it as it was written, or as it is meant."""
    written = query.partition("=")[2]
    provider = OpenAICompatible("up", f"{up.base_url}?{query}")
    said = f"No route for {written}, that is {unquote_plus(written)}."
    heard = await play(up, provider, [Status(404, {"error": {"message": said}})])
    await provider.close()

    assert "No route for" in str(heard.error)
    assert "0123456789" not in str(heard.error)


@requirement("truth.redacted")
@pytest.mark.parametrize(
    "url", ["ftp://up.test/v1?key=s3cret", "ftp://joe:s3cret@up.test/v1", "up.test/v1?code=s3cret"]
)
def test_an_address_that_is_none_is_named_without_its_secrets(url):
    """The error is shown to whoever set it, and stands in the log."""
    with pytest.raises(ValueError, match=r"base_url must begin with http:// or https://.*up\.test/v1") as refused:
        OpenAICompatible("up", url)

    assert "s3cret" not in str(refused.value)


async def test_a_query_in_the_base_url_stays_at_its_end(up):
    """Azure and some gateways want one."""
    provider = OpenAICompatible("up", up.base_url + "/?api-version=7")
    await listen(provider)
    await provider.close()

    assert "/v1/chat/completions?api-version=7" == up.requests[0].path


def test_tokens_are_estimated_from_text_and_not_from_images():
    """A picture of a megabyte is not a quarter of a million tokens."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    call = {"id": "call_1", "function": {"name": "add", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "x" * 40}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "x" * 4},
    ]

    assert (40 + 5 + 4 + 3) // 4 == estimate_tokens(messages)


# failures


FAILURES = {
    # name: the error, its code and status, and whether TEXT came before it
    "400": (ProviderRefused, "upstream_rejected", 400, False),
    "401": (ProviderRefused, "upstream_auth", 502, False),
    "403": (ProviderRefused, "upstream_auth", 502, False),
    "404": (ProviderRefused, "model_not_found", 404, False),
    "429": (ProviderRefused, "upstream_rate_limited", 429, False),
    "500": (ProviderRefused, "upstream_error", 502, False),
    "503": (ProviderRefused, "upstream_error", 502, False),
    "redirect": (ProviderRefused, "upstream_error", 502, False),
    "html-200": (ProviderBroke, "upstream_broke", 502, False),
    "json-error-200": (ProviderError, "upstream_error", 502, False),
    "nothing-at-all": (ProviderBroke, "upstream_broke", 502, False),
    "gzip": (ProviderBroke, "upstream_broke", 502, False),
    "not-http": (ProviderBroke, "upstream_broke", 502, False),
    "eof": (ProviderBroke, "upstream_broke", 502, True),
    "eof-unclean": (ProviderBroke, "upstream_broke", 502, True),
    "in-band-error": (ProviderError, "upstream_error", 502, True),
    "event-error": (ProviderError, "upstream_error", 502, True),
    "garbage-json": (ProviderBroke, "upstream_broke", 502, True),
    "bad-chunked": (ProviderBroke, "upstream_broke", 502, True),
    "huge-line": (ProviderBroke, "upstream_broke", 502, True),
}


@requirement("truth.redacted", "truth.in-band-error", "truth.eof", "truth.no-error-text-in-content")
@pytest.mark.parametrize("name", FAILURES)
async def test_every_failure_is_told_apart_and_says_no_secret(up, provider, name):
    """Each has a code and a status of its own, keeps the text that came before it, and is tried once."""
    kind, code, status, has_text = FAILURES[name]
    heard = await play(up, provider, (ENDINGS | ODDITIES)[name])

    assert isinstance(heard.error, kind)
    assert (code, status) == (heard.error.code, heard.error.status)
    assert (TEXT if has_text else "") == heard.text
    assert [] == heard.all(Finish, Notice)
    assert KEY not in str(heard.error.info())
    assert "Sign in" not in str(heard.error)
    assert 1 == len(up.requests)


@pytest.mark.parametrize(
    ("status", "ours", "code"),
    [(413, 413, "upstream_rejected"), (422, 422, "upstream_rejected"), (402, 502, "upstream_auth")]
    + [(status, 502, "upstream_error") for status in (408, 409, 418, 501, 502, 504)],
)
async def test_statuses_become_what_they_mean_to_our_own_client(up, provider, status, ours, code):
    """A fault of the request is the caller's to mend, anything else is not."""
    heard = await play(up, provider, [Status(status)])

    assert (ours, code) == (heard.error.status, heard.error.code)


async def test_a_status_that_http_does_not_know_is_told_too():
    """Anthropic's 529, Cloudflare's 52x."""
    odd = b"HTTP/1.1 529 \r\nContent-Length: 0\r\nRetry-After: 3\r\nConnection: close\r\n\r\n"
    async with Listener(odd) as listener:
        provider = OpenAICompatible("up", listener.base_url)
        heard = await listen(provider)
        await provider.close()

    assert (529, "upstream_overloaded", 3.0) == (heard.error.status, heard.error.code, heard.error.retry_after)
    assert "up answered 529: it did not say why." == str(heard.error)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "too long", "param": "messages"}}, "up answered 400: too long"),
        ({"error": "too long"}, "up answered 400: too long"),
        ({"detail": "too long"}, "up answered 400: too long"),
        ({"detail": [{"msg": "too long"}]}, "up answered 400: too long"),
        ({"message": "too long"}, "up answered 400: too long"),
        ('[{"error": {"message": "too long"}}]', "up answered 400: too long"),
        ("<html>too long</html>", "up answered 400: Bad Request."),
        ("", "up answered 400: Bad Request."),
    ],
)
async def test_an_error_is_told_in_the_upstreams_words_where_it_has_some(up, provider, body, message):
    """In each of the shapes that servers use, and never as a page."""
    heard = await play(up, provider, [Status(400, body)])

    assert message == str(heard.error)
    assert ("messages" if "param" in str(body) else None) == heard.error.param


async def test_an_error_whose_body_never_ends_is_told_by_its_status(up, provider):
    """The status has said the main thing."""
    heard = await play(up, provider, [Headers(500), Delta("x"), Hang()])

    assert "up answered 500: Internal Server Error." == str(heard.error)
    await gone(up)


async def test_a_redirect_is_not_followed(up, provider):
    """It would send the key to whoever the upstream names."""
    heard = await play(up, provider, [Status(307, "", {"Location": f"{up.base_url}/elsewhere"})])

    assert (502, "upstream_error") == (heard.error.status, heard.error.code)
    assert (1, 0) == (len(up.requests), len(up.others))


@requirement("truth.cut")
async def test_a_cut_connection_is_a_failure(up, provider):
    """RST in the middle of an answer."""
    up.enqueue([Headers(), Role(), Delta(TEXT), Gate(), Cut()])
    async with aclosing(outlets.answer(provider, request())) as stream:
        texts = await first_text(stream)
        up.open()
        with pytest.raises(ProviderBroke, match="up broke off the connection in the middle of its answer"):
            await anext(stream)

    assert [TEXT] == texts


@requirement("truth.cut")
async def test_what_had_arrived_before_the_cut_is_kept_although_nobody_was_reading(up, provider):
    """A store that is away keeps the reader waiting: what it has not read must not be forgotten."""
    up.enqueue([Headers(), Delta("one"), Gate(), Delta(" two"), Eof(clean=False)])
    async with aclosing(outlets.answer(provider, request())) as stream:
        await first_text(stream)
        [response] = provider.upstream._open
        up.open()
        await until(lambda: response._error is not None)

        assert [Text(" two")] == await anext(stream)
        with pytest.raises(ProviderBroke):
            await anext(stream)


@requirement("truth.cut")
async def test_a_connection_that_is_closed_before_any_answer_is_a_failure_and_not_repeated(up, provider):
    """The upstream may have run the model already: a second try could cost a second time."""
    heard = await play(up, provider, [Cut()], request(patience=5))

    assert str(heard.error).startswith("up closed the connection before it answered. Its model may have worked on")
    assert ("upstream_broke", 502) == (heard.error.code, heard.error.status)
    assert 1 == len(up.requests)


async def test_nobody_there_is_unreachable(up, provider):
    """Connection refused: the most common failure of all."""
    up.refuse()
    heard = await listen(provider)

    assert isinstance(heard.error, ProviderUnreachable)
    assert ("upstream_unreachable", 502) == (heard.error.code, heard.error.status)
    told = "up could not be reached: connection refused. Check the address and its port."
    assert told == str(heard.error)


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        ("http://127.0.0.1:11434", " Is Ollama running?"),
        ("http://[::1]:8000", " Check the address and its port."),
        ("http://llm.intern:8000", " Check the address and its port."),
    ],
)
def test_who_is_not_there_is_asked_for_by_name(origin, told):
    """Most often it is an Ollama that was not started. The name of a host inside a network is not everybody's."""
    assert told == where_nobody_is(origin)


async def test_a_name_that_does_not_resolve_is_unreachable():
    """RFC 6761 keeps `.invalid` free of hosts."""
    provider = OpenAICompatible("up", "http://nowhere.invalid/v1")
    heard = await listen(provider)
    await provider.close()

    assert isinstance(heard.error, ProviderUnreachable)


class Listener:
    """A server that says some bytes to whoever connects, reads what comes (or does not), and never answers."""

    def __init__(self, says=b"", *, reads=True, scheme="http"):
        self.connections = []
        self.heard = 0
        self._says, self._reads, self._scheme = says, reads, scheme

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", 0)
        self.base_url = f"{self._scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *exc):
        self._server.close()
        for connection in self.connections:
            connection.transport.abort()

    def greet(self, transport):
        transport.write(self._says)
        if not self._reads:
            transport.pause_reading()


class Connection(asyncio.Protocol):
    """One connection of a listener."""

    def __init__(self, listener):
        self.listener = listener
        self.lost = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport
        self.listener.connections.append(self)
        self.listener.greet(transport)

    def data_received(self, data):
        self.listener.heard += len(data)

    def connection_lost(self, error):
        self.lost.set()


async def test_an_upstream_that_speaks_no_tls_is_unreachable_over_https():
    """And its answer in plain text is not looked at."""
    async with Listener(b"HTTP/1.1 200 OK\r\n\r\n", scheme="https") as listener:
        provider = OpenAICompatible("up", listener.base_url)
        heard = await listen(provider)
        await provider.close()

    assert isinstance(heard.error, ProviderUnreachable)
    assert "up could not be reached: it does not speak TLS." == str(heard.error)


async def test_a_connection_that_does_not_come_about_in_time_is_unreachable():
    """The handshake of TLS belongs to connecting."""
    async with Listener(scheme="https") as listener:
        provider = OpenAICompatible("up", listener.base_url, connect_timeout=0.05)
        heard = await listen(provider)
        await provider.close()

    assert isinstance(heard.error, ProviderUnreachable)
    told = "up could not be reached: nothing was there within 0.05 s. Check base_url, and proxy if a proxy leads there."
    assert told == str(heard.error)


@requirement("safe.answer-limit")
async def test_an_answer_that_is_too_long_is_a_failure_and_its_connection_is_closed(up):
    """A model that repeats itself for ever."""
    provider = OpenAICompatible("up", up.base_url, max_text=10_000)
    heard = await play(up, provider, ODDITIES["endless"])
    await gone(up)
    await provider.close()

    assert "up sent an answer of more than 10000 characters." == str(heard.error)


# through the engine


@requirement("truth.completed", "truth.length", "truth.cut", "truth.in-band-error", "truth.eof")
@pytest.mark.parametrize(
    ("name", "outcome", "code"),
    [
        ("completed", Completed, None),
        ("completed-no-done", Completed, None),
        ("done-no-finish", Completed, None),
        ("length", Truncated, None),
        ("content-filter", Truncated, None),
        ("eof", Failed, "upstream_broke"),
        ("eof-unclean", Failed, "upstream_broke"),
        ("in-band-error", Failed, "upstream_error"),
        ("garbage-json", Failed, "upstream_broke"),
    ],
)
async def test_a_run_settles_as_the_upstream_ended(up, provider, name, outcome, code):
    """The whole way from the socket to the settlement, with all of the text."""
    up.enqueue((ENDINGS | ODDITIES)[name])
    async with Core() as engine:
        run = await engine.start(partial(provider.answer, request()))
        settlement = await run.settled()

    assert isinstance(settlement, outcome)
    assert TEXT == settlement.text
    assert code == (settlement.error.code if isinstance(settlement, Failed) else None)


@requirement("stop.closes-upstream", "stop.usage")
async def test_a_stopped_run_closes_its_upstream_and_knows_about_what_it_cost(up, provider):
    """The upstream's work ends with the run, and the estimate stands for its count."""
    up.enqueue([Headers(), Role(), Delta("12345678"), Hang()])
    async with Core() as engine:
        run = await engine.start(partial(provider.answer, request(content="x" * 40)))
        async for _, event in run.read():
            if isinstance(event, Text):
                break
        stopped = (await run.stop()).settlement
        await up.requests[0].wait_closed(SOON)

    assert ("12345678", Usage(10, 2, "estimated")) == (stopped.text, stopped.usage)


# leaving


PHASES = {
    "waiting for headers": [Gate(), Hang()],
    "headers came": [Headers(), Gate(), Hang()],
    "in the middle of the answer": [Headers(), Role(), Delta("one"), Gate(), Hang()],
    "inside an event": [Headers(), Role(), Delta("one"), *ODDITIES["huge-line"][4:5], Gate(), Hang()],
    "while it streams": [Headers(), Role(), Delta("one"), Gate(), Repeat(10**9, Delta("again "))],
    "after the finish reason": [Headers(), Delta("one"), FinishStep(), Gate(), Hang()],
    "in the body of an error": [Headers(500), Gate(), Hang()],
}


async def consume(stream):
    """As the engine's pump does."""
    try:
        async for _ in stream:
            pass
    finally:
        await stream.aclose()


@requirement("stop.closes-upstream")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancel_closes_the_upstream_at_once(up, phase, times):
    """In each phase, in silence too, and a second cancel keeps nothing open."""
    provider = OpenAICompatible("up", up.base_url, linger=60)
    up.enqueue(PHASES[phase])
    task = asyncio.create_task(consume(outlets.answer(provider, request())))
    await up.reached()
    up.open()
    for _ in range(times):
        task.cancel()
    await asyncio.wait({task})
    await up.requests[0].wait_closed(SOON)
    await gone(up)

    assert task.cancelled()
    assert "client" == up.requests[0].closed_by
    await provider.close()


@requirement("stop.closes-upstream")
@pytest.mark.parametrize("phase", ["in the middle of the answer", "while it streams"])
async def test_closing_the_generator_closes_the_upstream_at_once(up, provider, phase):
    """Without a cancel: a consumer that has seen enough."""
    up.enqueue(PHASES[phase])
    stream = outlets.answer(provider, request())
    while not any(isinstance(event, Text) for event in await anext(stream)):
        pass
    up.open()
    await stream.aclose()
    await up.requests[0].wait_closed(SOON)
    await gone(up)

    assert "client" == up.requests[0].closed_by


@requirement("stop.closes-upstream")
async def test_an_upstream_that_ignores_the_close_is_left_all_the_same(up, provider):
    """It goes on sending; the kernel tells it that nobody is there."""
    up.ignores_close = True
    up.enqueue(PHASES["while it streams"])
    task = asyncio.create_task(consume(outlets.answer(provider, request())))
    await up.reached()
    up.open()
    task.cancel()
    await asyncio.wait({task})
    await up.requests[0].wait_closed(SOON)
    await gone(up)


@requirement("stop.closes-upstream")
@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancel_while_connecting_leaves_nothing_open(times):
    """The connection is there, but TLS does not answer."""
    async with Listener(scheme="https") as listener:
        provider = OpenAICompatible("up", listener.base_url)
        task = asyncio.create_task(consume(outlets.answer(provider, request())))
        await until(lambda: listener.connections, within=LONG)
        for _ in range(times):
            task.cancel()
        await asyncio.wait({task})
        async with asyncio.timeout(SOON):
            await listener.connections[0].lost.wait()
        await provider.close()


@requirement("stop.closes-upstream")
async def test_a_cancel_at_any_step_of_connecting_leaves_no_socket(up, provider):
    """One loop turn after the other, from before the first step to the first text."""
    await listen(provider)
    await provider.close()
    await gone(up)
    sockets = open_sockets()
    up.script = [Headers(), Delta("one"), Hang()]
    for turns in range(25):
        task = asyncio.create_task(consume(outlets.answer(provider, request())))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await gone(up)

    assert sockets == open_sockets()


def open_sockets():
    links = (os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path))
    return sum(link.startswith("socket:") for link in links)


@requirement("stop.closes-upstream")
async def test_an_upstream_that_does_not_read_the_request_is_left_at_once():
    """A polite close would first deliver the rest of the request, for as long as the upstream likes."""
    body = "x" * 30_000_000
    async with Listener(reads=False) as listener:
        provider = OpenAICompatible("up", listener.base_url)
        task = asyncio.create_task(consume(outlets.answer(provider, request(content=body))))
        await until(lambda: listener.connections, within=LONG)
        await asyncio.sleep(0.05)  # not to wait for anything: the kernel's buffers fill, and then our own
        task.cancel()
        await asyncio.wait({task})
        [connection] = listener.connections
        connection.transport.resume_reading()
        async with asyncio.timeout(SOON):
            await connection.lost.wait()
        await provider.close()

    assert listener.heard < len(body)


@requirement("stop.closes-upstream")
async def test_a_cancel_in_the_pause_before_a_retry_ends_it(up, provider):
    """Nothing is open then, and nothing is asked again."""
    up.enqueue([Status(503, headers={"retry-after": "30"})])
    stream = outlets.answer(provider, request(patience=60))
    while not any(isinstance(event, Notice) for event in await anext(stream)):
        pass
    await provider.close()  # lets go of the kept connection, so that only an open request could remain
    task = asyncio.create_task(consume(stream))
    await asyncio.sleep(0)
    begin = time.monotonic()
    task.cancel()
    await asyncio.wait({task})
    await gone(up)

    assert time.monotonic() - begin < SOON
    assert task.cancelled()
    assert 1 == len(up.requests)


async def test_closing_the_provider_ends_its_streams(up, provider):
    """Otherwise their readers would wait for ever."""
    up.enqueue(PHASES["in the middle of the answer"])
    stream = outlets.answer(provider, request())
    await first_text(stream)
    reading = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    await provider.close()
    with pytest.raises(ProviderBroke):
        await reading
    await gone(up)


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run there")
@requirement("stop.closes-upstream")
def test_the_same_holds_on_uvloop():
    """The server runs on it, and its transports are not asyncio's."""
    uvloop = pytest.importorskip("uvloop")

    async def main():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.upstream", stdout=asyncio.subprocess.PIPE
        )
        try:
            port = int((await process.stdout.readline()).split()[-1])
            await leave_one_after_the_other(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            await process.wait()

    uvloop.run(main())


async def leave_one_after_the_other(address):
    provider = OpenAICompatible("up", f"{address}/v1")
    assert TEXT == (await listen(provider, request("end:completed"))).text
    assert isinstance((await listen(provider, request("end:bad-chunked"))).error, ProviderBroke)
    async with Client(address) as control:
        for model in ("silent", "end:silence-after-headers", "hang-after:5", "tokens:1000000:1"):
            task = asyncio.create_task(consume(outlets.answer(provider, request(model))))
            await asked_and(control, model, is_open=True, within=LONG)
            task.cancel()
            await asyncio.wait({task})
            await asked_and(control, model, is_open=False, within=SOON)
    await provider.close()


async def asked_and(control, model, *, is_open, within):
    """Wait until the upstream says that it was asked for a model, and whether that connection is open."""
    async with asyncio.timeout(within):
        while True:
            recorded = (await (await control.get("/_control/requests")).json())["requests"]
            if [is_open] == [entry["open"] for entry in recorded if entry["model"] == model]:
                return


# connections that are used again


async def test_a_finished_answer_leaves_its_connection_to_the_next(up, provider):
    """A handshake for each message would cost more than the first token."""
    for _ in range(3):
        await listen(provider)

    assert 1 == len({asked.connection for asked in up.requests})


async def test_an_unfinished_answer_does_not(up, provider):
    """What is left of it would be read as the beginning of the next."""
    up.enqueue(PHASES["in the middle of the answer"], PHASES["after the finish reason"])
    async with aclosing(outlets.answer(provider, request())) as stream:
        await first_text(stream)
    await listen(provider)
    heard = await listen(provider)

    assert TEXT == heard.text
    assert [1, 2, 3] == [asked.connection for asked in up.requests]


async def test_a_kept_connection_that_is_lost_with_the_write_is_replaced_without_a_word(up, provider, monkeypatch):
    """The request met a close that was already on its way, so nobody has read it."""
    monkeypatch.setattr(one_connection, "UNREAD", 60.0)  # a busy machine may notice the close late
    await listen(provider)
    heard = await play(up, provider, [Cut()])

    assert (TEXT, None, []) == (heard.text, heard.error, heard.all(Notice))
    assert [1, 1, 2] == [asked.connection for asked in up.requests]


@requirement("truth.asked-once")
@pytest.mark.parametrize("end", [Cut(), Eof(clean=False)], ids=["reset", "closed"])
async def test_a_model_that_has_worked_is_not_asked_again_when_its_kept_connection_is_lost(up, provider, end):
    """A second try would let it work, and cost, twice. So the run fails and says why."""
    up.models["second"] = [Pause(0.3), end]
    await listen(provider, request("first"))
    heard = await listen(provider, request("second", patience=5))

    assert ["first", "second"] == [asked.model for asked in up.requests]
    assert 1 == len({asked.connection for asked in up.requests})
    assert ("upstream_broke", []) == (heard.error.code, heard.all(Notice))
    assert str(heard.error) == (
        "up closed the connection before it answered. Its model may have worked on the request, so it was not sent "
        "again. Ask again for another answer."
    )


@requirement("truth.asked-once")
async def test_a_model_that_has_begun_a_response_is_not_asked_again(up, provider, monkeypatch):
    """One byte of a response shows that the request was read, however soon the connection ends."""
    monkeypatch.setattr(one_connection, "UNREAD", 60.0)
    await listen(provider)
    heard = await play(up, provider, [Wire(b"HTTP/1.1 100 Continue\r\n\r\n"), Eof(clean=False)])

    assert "upstream_broke" == heard.error.code
    assert [1, 1] == [asked.connection for asked in up.requests]


async def test_connections_that_were_closed_while_idle_are_not_used(up, provider):
    """Servers close them after a few seconds."""
    await listen(provider)
    up.drop_idle()
    await gone(up)
    heard = await listen(provider)

    assert (TEXT, 2) == (heard.text, len(up.requests))


# retries


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_a_status_that_may_pass_is_tried_again_with_a_notice(up, provider, status):
    """Before any text a second try costs nobody anything."""
    heard = await play(up, provider, [Status(status)], request(patience=5))

    assert (TEXT, None) == (heard.text, heard.error)
    [notice] = heard.all(Notice)
    assert "retry" == notice.code
    assert notice.message.startswith("Trying again in 0.")
    assert f"because up answered {status}" in notice.message
    assert KEY not in notice.message
    assert 2 == len(up.requests)


@pytest.mark.parametrize(
    "name", ["400", "401", "403", "404", "redirect", "html-200", "json-error-200", "eof", "garbage-json"]
)
async def test_what_will_not_pass_is_not_tried_again(up, provider, name):
    """A second try would give the same answer, or say the same text twice."""
    heard = await play(up, provider, (ENDINGS | ODDITIES)[name], request(patience=5))

    assert heard.error is not None
    assert 1 == len(up.requests)


async def test_an_upstream_that_comes_up_in_time_is_reached(up, provider):
    """A model server that is restarted is away for a moment."""
    up.refuse()
    heard = Heard()
    async for batch in outlets.answer(provider, request(patience=5)):
        heard.events += batch
        if len(heard.all(Notice)) == 1 and not heard.text:
            await up.listen()

    assert TEXT == heard.text
    assert "because up could not be reached: connection refused." in heard.all(Notice)[0].message


async def test_patience_ends(up, provider):
    """The pauses grow, and there is no try that would come too late."""
    up.script = [Status(503)]
    begin = time.monotonic()
    heard = await listen(provider, request(patience=1.0))

    assert ("upstream_error", 502) == (heard.error.code, heard.error.status)
    assert 1 <= len(heard.all(Notice)) <= 3
    assert len(up.requests) == len(heard.all(Notice)) + 1
    assert time.monotonic() - begin < SOON


async def test_an_upstream_that_asks_for_more_time_than_there_is_fails_at_once(up, provider):
    """Its `Retry-After` goes to the client, who may have more patience."""
    begin = time.monotonic()
    heard = await play(up, provider, [Status(429, headers={"retry-after": "60"})], request(patience=1.0))

    assert (429, 60.0) == (heard.error.status, heard.error.retry_after)
    assert time.monotonic() - begin < SOON
    assert [] == heard.all(Notice)


async def test_the_time_that_an_upstream_asks_for_is_given(up, provider):
    """Not less, although the first pause would be shorter."""
    begin = time.monotonic()
    heard = await play(up, provider, [Status(429, headers={"retry-after": "0.5"})], request(patience=5))

    assert TEXT == heard.text
    assert 0.5 <= time.monotonic() - begin
    assert "Trying again in 0.5 s" in heard.all(Notice)[0].message


NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        (" 7 ", 7.0),
        ("-1", 0.0),
        ("1000000000", LONGEST_RETRY_AFTER),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        ("Wed, 21 Oct 2099 07:28:00 GMT", LONGEST_RETRY_AFTER),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_in_all_its_forms(header, seconds):
    """Seconds or a date; nobody waits for more than an hour, or less than nothing."""
    headers = {} if header is None else {"retry-after": header}

    assert seconds == retry_after(headers, NOW.timestamp())


# models


async def test_configured_models_are_listed_without_asking(up):
    """The operator knows."""
    provider = OpenAICompatible("up", up.base_url, models=["a", "b"])

    assert ["a", "b"] == await provider.list_models()
    assert [] == up.others


async def test_the_upstream_is_asked_for_its_models_once_for_all_who_ask(up, provider):
    """A server with ten tabs open does not ask ten times."""
    up.listed = ["m", "n", "m"]
    lists = await asyncio.gather(*(provider.list_models() for _ in range(10)))

    assert [["m", "n"]] * 10 == lists
    assert ["m", "n"] == await provider.list_models()
    assert 1 == len(up.others)
    assert f"Bearer {KEY}" == up.others[0].headers["authorization"]


async def test_a_list_that_grew_old_is_given_at_once_and_renewed_meanwhile(up):
    """Nobody waits for a look-up who could have the last list."""
    provider = OpenAICompatible("up", up.base_url, models_fresh=0.0)
    up.listed = ["old"]
    await provider.list_models()
    up.listed = ["new"]
    first = await provider.list_models()
    while ["new"] != (second := await provider.list_models()):  # noqa: ASYNC110  # what is renewed comes a little later
        await asyncio.sleep(0)
    await provider.close()

    assert (["old"], ["new"]) == (first, second)


@pytest.mark.parametrize(
    "failure",
    [[Status(500)], [Status(404)], [Status(200, "<html>")], [Status(200, {"data": 7})], [Cut()], [Headers(), Cut()]],
)
async def test_a_look_up_that_fails_leaves_the_last_list_or_none(up, failure):
    """An upstream that is away for a moment has not lost its models, and an error here would break every page."""
    up.models_script = failure
    provider = OpenAICompatible("up", up.base_url, models_fresh=0.0)
    assert [] == await provider.list_models()
    up.models_script = None
    assert ["m"] == await provider.list_models()
    up.models_script = failure
    asked = len(up.others)
    async with asyncio.timeout(LONG):
        while len(up.others) < asked + 3:
            assert ["m"] == await provider.list_models()
            await asyncio.sleep(0)
    await provider.close()


async def test_a_look_up_that_failed_is_not_repeated_at_once(up, provider):
    """A page that lists models would otherwise wait two seconds each time."""
    up.models_script = [Status(500)]
    assert [] == await provider.list_models()
    assert [] == await provider.list_models()

    assert 1 == len(up.others)


async def test_a_silent_upstream_keeps_nobody_waiting_for_its_models(up):
    """The look-up has a limit of its own, and closes its connection."""
    up.models_script = [Hang()]
    provider = OpenAICompatible("up", up.base_url, models_timeout=0.05)

    assert [] == await provider.list_models()
    await gone(up)
    await provider.close()


async def test_whoever_stops_waiting_for_the_models_takes_the_look_up_from_nobody(up, provider):
    """It belongs to all who ask."""
    up.models_script = [Gate(), Status(200, {"data": [{"id": "m"}]})]
    one, two = (asyncio.create_task(provider.list_models()) for _ in range(2))
    await up.reached()
    one.cancel()
    await asyncio.wait({one})
    up.open()

    assert ["m"] == await two
    assert 1 == len(up.others)
