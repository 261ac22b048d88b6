"""The truth table: every way in which an upstream can end, on every surface, streaming and not.

Each row is played once on all surfaces at the same time, and then each test looks at what was told there.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import ag_ui.core
import pytest
import pytest_asyncio
from pydantic import TypeAdapter

from holdfast import Failed, Text, events
from holdfast.engine.core import Core
from holdfast.history import alternating
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import (
    AI_SDK,
    CHAT,
    NATIVE,
    NEXT_QUESTION,
    OBJECTS,
    QUESTION,
    RESPONSES,
    RESUMED,
    STREAMS,
    SURFACES,
    WIRES,
    Told,
    World,
)
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.served import NO_HOME, Served
from tests.support.server import UP_KEY, Server, provider
from tests.support.upstream import (
    FALLBACK_KEY,
    REASONING,
    TEXT,
    Cut,
    Delta,
    Done,
    Finish,
    Hang,
    Headers,
    Pause,
    Role,
    Step,
    Upstream,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

AG_UI_EVENT: TypeAdapter[ag_ui.core.Event] = TypeAdapter(ag_ui.core.Event)

BEGIN: list[Step] = [Headers(), Role(), Delta(TEXT[:3]), Delta(TEXT[3:])]
SCRIPTS: dict[str, list[Step]] = {
    # A reset at once would take text with it that had arrived but was not read yet: that is TCP, and no fault of ours.
    "late-cut": [*BEGIN, Pause(0.3), Cut()],
    "failed-result": [*BEGIN, Finish("error"), Done()],
    "failed-before-text": [Headers(), Role(), Finish("error"), Done()],
    "deadline": [*BEGIN, Hang()],
    "deadline-in-silence": [Hang()],
}


@dataclass(frozen=True)
class Row:
    """One ending and what must be told of it. `finish` is OpenAI's word, `said` the upstream's own."""

    model: str
    outcome: str
    finish: str
    said: str | None = None
    text: str = TEXT
    reasoning: str = ""
    code: str | None = None
    status: int = 200
    retry_after: str | None = None
    patience: str = "long"

    @property
    def is_bare(self) -> bool:
        """It failed before anything could be shown."""
        return self.outcome == "failed" and not self.text and not self.reasoning

    @property
    def object_status(self) -> int:
        return self.status if self.is_bare or self.status == 200 else 406


def end(name: str, outcome: str, finish: str, *, said: str | None = None, **more: object) -> Row:
    return Row(f"up/end:{name}", outcome, finish, said, **more)  # type: ignore[arg-type]


def completed(name: str, finish: str = "stop", *, said: str | None = None, **more: object) -> Row:
    return end(name, "completed", finish, said=said or finish, **more)


def failed(name: str, code: str = "upstream_broke", status: int = 502, **more: object) -> Row:
    return end(name, "failed", "error", code=code, status=status, **more)


def bare(name: str, code: str = "upstream_broke", status: int = 502, **more: object) -> Row:
    return failed(name, code, status, text="", **more)


def script(name: str, code: str, status: int = 502, **more: object) -> Row:
    return Row(f"up/{name}", "failed", "error", code=code, status=status, **more)  # type: ignore[arg-type]


COMPLETED = requirement("truth.completed")
NO_ANSWER = requirement("truth.no-answer")
LENGTH = requirement("truth.length")
FILTER = requirement("truth.content-filter")
RAISE = requirement("truth.raise")
FAILED_RESULT = requirement("truth.failed-result")
IN_BAND = requirement("truth.in-band-error")
CUT = requirement("truth.cut")
EOF = requirement("truth.eof")
STALL = requirement("truth.stall")
DEADLINE = requirement("truth.deadline")

ROWS: list[tuple[Row, Sequence[pytest.MarkDecorator]]] = [
    (completed("completed"), [COMPLETED]),
    (completed("completed-no-done"), [COMPLETED]),
    (completed("done-no-finish"), [COMPLETED]),
    (completed("text-after-finish"), [COMPLETED]),
    (completed("unknown-finish", said="eos_token"), [COMPLETED]),
    (bare("empty", "no_answer", 406, said="stop"), [NO_ANSWER]),
    (completed("crlf"), [COMPLETED]),
    (completed("comments"), [COMPLETED]),
    (completed("no-space"), [COMPLETED]),
    (completed("split-utf8"), [COMPLETED]),
    (completed("null-fields"), [COMPLETED]),
    (completed("changing-ids"), [COMPLETED]),
    (completed("until-close"), [COMPLETED]),
    (completed("length-too-long"), [COMPLETED]),
    (completed("think", reasoning=REASONING), [COMPLETED]),
    (completed("reasoning-content", reasoning=REASONING), [COMPLETED]),
    (bare("unclosed-think", "no_answer", 406, said="stop", reasoning=REASONING), [NO_ANSWER]),
    (completed("tool-call", "tool_calls", text=""), [COMPLETED]),
    (end("length", "truncated", "length", said="length"), [LENGTH]),
    (end("content-filter", "truncated", "content_filter", said="content_filter"), [FILTER]),
    (Row("scripted/fail", "failed", "error", text="What is ", code="upstream_error", status=502), [RAISE]),
    (script("failed-result", "upstream_error", said="error"), [FAILED_RESULT]),
    (script("failed-before-text", "upstream_error", said="error", text=""), [FAILED_RESULT]),
    (failed("in-band-error", "upstream_error"), [IN_BAND]),
    (failed("event-error", "upstream_error"), [IN_BAND]),
    (script("late-cut", "upstream_broke"), [CUT]),
    (failed("eof"), [EOF]),
    (failed("eof-unclean"), [EOF]),
    (bare("nothing-at-all"), [EOF]),
    (failed("garbage-json"), []),
    (failed("stall", "upstream_stalled", 504, patience="idle"), [STALL]),
    (bare("silence", "upstream_stalled", 504, patience="idle"), [STALL]),
    (bare("silence-after-headers", "upstream_stalled", 504, patience="idle"), [STALL]),
    (script("deadline", "deadline_exceeded", 504, patience="deadline"), [DEADLINE]),
    (script("deadline-in-silence", "deadline_exceeded", 504, text="", patience="deadline"), [DEADLINE]),
    (bare("400", "upstream_rejected", 400), []),
    (bare("401", "upstream_auth"), []),
    (bare("403", "upstream_auth"), []),
    (bare("404", "model_not_found", 404), []),
    (bare("429", "upstream_rate_limited", 429, retry_after="7"), []),
    (bare("500", "upstream_error"), []),
    (bare("html-200"), []),
    (bare("json-error-200", "upstream_error"), []),
    (bare("not-http"), []),
    (bare("gzip"), []),
    (bare("redirect", "upstream_error"), []),
    (Row("gone/m", "failed", "error", text="", code="upstream_unreachable", status=502), []),
]
TOLD_WITH_KEY = frozenset({"in-band-error", "event-error", "400", "401", "403", "404", "429", "500", "json-error-200"})
"""The endings in which U's error quotes the key that it was called with."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= SCRIPTS
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worlds(up, tmp_path_factory):
    """One server that waits, one that takes silence for a failure, one whose runs have a deadline."""
    # Long enough that a busy machine has shown all of the text by then, on thirty surfaces at once.
    configs = {"long": "", "idle": "idle_limit = 3.0", "deadline": "deadline = 3.0"}
    always = 'log_level = "debug"\nretry_patience = 0.05\n'
    async with Upstream() as gone:
        gone.refuse()
        providers = [
            provider(up.base_url, models=None),
            provider(gone.base_url, name="gone"),
            {"name": "scripted", "dialect": "scripted"},
        ]
        folder = tmp_path_factory.mktemp("truth")
        servers = {name: Server(folder / name, providers, config=always + text) for name, text in configs.items()}
        async with AsyncExitStack() as stack:
            for server in servers.values():
                await stack.enter_async_context(server)
            clients = {name: await stack.enter_async_context(server.client()) for name, server in servers.items()}
            yield {name: World(up, server, clients[name]) for name, server in servers.items()}


@dataclass
class Seen:
    """What the clients of all surfaces were told of one row."""

    row: Row
    world: World
    told: dict[str, Told]
    bytes: bytes


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[pytest.param(row, id=row.model.rpartition(":")[2], marks=marks) for row, marks in ROWS],
)
async def seen(request, worlds, up):
    row: Row = request.param
    shared = worlds[row.patience]
    async with shared.server.client() as client:
        world = World(up, shared.server, client)
        told = await asyncio.gather(*(surface(world, row.model) for surface in SURFACES.values()))
        yield Seen(row, world, dict(zip(SURFACES, told, strict=True)), world.every_byte())


# The table.


async def test_every_surface_tells_the_same_truth(seen):
    """Only `completed` may look like success, and the text is what was sent: no word less, no word more."""
    row, without_reasoning = seen.row, {"run-status", "session-feed"}
    without_reasoning |= set() if row.text else {"session-messages"}  # nothing visible, no message

    told = {surface: (said.outcome, said.text, said.code) for surface, said in seen.told.items()}
    thought = {surface: said.reasoning for surface, said in seen.told.items() if surface not in without_reasoning}

    assert dict.fromkeys(SURFACES, (row.outcome, row.text, row.code)) == told
    assert dict.fromkeys(thought, row.reasoning) == thought


async def test_the_native_api_says_how_it_ended_and_what_the_upstream_called_it(seen):
    """`partial` marks kept text of a run that did not complete: a reader must not have to work that out."""
    row = seen.row
    expected = (200, row.said, bool(row.text) and row.outcome != "completed")

    told = {surface: seen.told[surface] for surface in NATIVE}

    assert dict.fromkeys(NATIVE, expected) == {
        surface: (said.status, said.finish_reason, said.partial) for surface, said in told.items()
    }


@pytest.mark.parametrize("surface", STREAMS)
async def test_a_chat_stream_ends_as_the_protocol_says(seen, surface):
    """An ending is always said: a bare end of stream is taken for success by some clients."""
    row, told = seen.row, seen.told[surface]
    chunks = [chunk for chunk in told.body if "choices" in chunk] if told.frames else []
    ends = [chunk for chunk in chunks if chunk["choices"] and chunk["choices"][0]["finish_reason"]]

    if row.is_bare and surface not in RESUMED:  # whoever comes back has been sent the status before
        assert (row.status, None) == (told.status, told.done)
        assert set(told.body) == {"error", "holdfast"}
    elif row.is_bare:
        assert (200, False) == (told.status, told.done)
        assert [{"error", "holdfast"}] == [set(chunk) for chunk in told.body[len(chunks) :]]
    else:
        assert (200, True, row.finish) == (told.status, told.done, told.finish_reason)
        assert [chunks[-1]] == ends
        assert {} == ends[0]["choices"][0]["delta"]
        assert (row.outcome == "failed") is ("error" in ends[0])
        assert (row.outcome != "completed") is ("holdfast" in ends[0])
        assert not any({"error", "holdfast"} & set(chunk) for chunk in chunks[:-1])


@pytest.mark.parametrize("surface", AI_SDK)
async def test_a_ui_message_stream_ends_with_a_finish_that_is_true(seen, surface):
    """The SDK takes a stream that just ends for success, and its workflow transport asks for a finish for ever."""
    row, told = seen.row, seen.told[surface]
    types = [part["type"] for part in told.body]

    assert (200, row.finish.replace("_", "-")) == (told.status, told.finish_reason)
    assert ["start", "start-step"] == types[:2]
    assert (row.outcome == "failed") is ("error" in types)
    assert "abort" not in types
    for kind in ("text", "reasoning"):
        assert types.count(f"{kind}-start") == types.count(f"{kind}-end")


@pytest.mark.parametrize("surface", OBJECTS)
async def test_a_finished_object_says_it_by_its_status_too(seen, surface):
    """Most clients look at nothing but the status."""
    row, told = seen.row, seen.told[surface]

    assert (row.object_status, row.retry_after) == (told.status, told.retry_after)
    assert (row.outcome == "failed") is ("error" in told.body)
    assert (row.outcome != "completed") is ("holdfast" in told.body)
    assert row.is_bare or row.finish == told.finish_reason
    assert "error" not in told.body or ["error", "holdfast"] == [*told.body], "people read what comes first"


ASKED_AGAIN = frozenset({"server_error", "rate_limit_error", "overloaded_error", "timeout_error"})
"""Error types at which coding agents ask again, whatever the status and the headers say."""


@requirement("wire.no-useless-retry")
async def test_what_must_not_be_repeated_has_a_type_that_no_agent_repeats(seen):
    """opencode, Continue and Claude Code read the type in the body: a wrong one ran a model eleven times after text."""
    row = seen.row
    types = {surface: told.error.get("type") for surface, told in seen.told.items() if told.error}

    repeated = {surface: kind for surface, kind in types.items() if kind in ASKED_AGAIN}

    assert {"rate_limit_error"} == {*repeated.values()} if row.status == 429 else not repeated


ANTHROPIC = {"length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use", "error": None}


@requirement("wire.truth")
@pytest.mark.parametrize("surface", ["message-stream", "message-watched"])
async def test_a_stream_of_anthropics_events_ends_as_the_protocol_says(seen, surface):
    """Its SDKs raise on an `error` event and take every other end for success, so nothing that failed may have one."""
    row, told = seen.row, seen.told[surface]

    if row.is_bare and surface == "message-stream":  # where frames were skipped, the status has been sent before
        assert (row.status, None, "error") == (told.status, told.done, told.body["type"])
    else:
        kinds = [event["type"] for event in told.body]
        assert (200, row.outcome != "failed") == (told.status, told.done)
        assert ANTHROPIC.get(row.finish, "end_turn") == told.finish_reason
        assert (row.outcome == "failed") is ("error" in kinds)
        assert ("message_start" in kinds) is (surface == "message-stream")
        assert kinds.count("content_block_start") - kinds.count("content_block_stop") in (0, row.outcome == "failed")


async def test_a_whole_message_says_it_by_its_status_too(seen):
    """An error has Anthropic's shape, with the partial beside it: a stranger's client finds the type, ours the text."""
    row, told = seen.row, seen.told["message-object"]

    assert (row.object_status, row.retry_after) == (told.status, told.retry_after)
    assert (row.outcome == "failed") is (told.body["type"] == "error")
    assert ANTHROPIC.get(row.finish, "end_turn") == told.finish_reason


@pytest.mark.parametrize("surface", RESPONSES)
async def test_a_response_says_it_by_its_status_and_by_its_words(seen, surface):
    """A failed request has a status that says so; a response that is fetched, or whose stream has begun, has words."""
    row, told = seen.row, seen.told[surface]
    asked_for = surface not in ("responses-polled", "responses-resumed")  # the request that failed, not one to look
    word = {"completed": "completed", "truncated": "incomplete", "failed": "failed"}[row.outcome]
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}

    if row.is_bare and asked_for:
        assert (row.status, row.retry_after) == (told.status, told.retry_after)
        assert {"error", "holdfast"} == set(told.body)
    else:
        assert (row.object_status if surface == "responses-object" else 200) == told.status
        said = told.body.get("holdfast", {}).get("partial", told.body)
        assert word == told.finish_reason
        assert (row.outcome == "failed") is (told.body["error"] is not None)
        assert (row.outcome != "completed") is ("holdfast" in told.body)
        assert ({"reason": reasons[row.finish]} if word == "incomplete" else None) == said["incomplete_details"]
        assert told.usage is not None


@requirement("wire.truth", "wire.ag-ui")
@pytest.mark.parametrize("surface", ["ag-ui-stream", "ag-ui-watched"])
async def test_a_stream_of_ag_uis_events_is_one_that_its_own_types_know(seen, surface):
    """Every event is one of the protocol's, and a run that did not complete never finishes with success."""
    row, told = seen.row, seen.told[surface]
    events = [event for event in told.body if "type" in event]
    parsed = [AG_UI_EVENT.validate_python(event) for event in events]
    kinds = [event["type"] for event in events]

    assert [json.loads(said.model_dump_json(by_alias=True)) for said in parsed] == events
    assert ("RUN_FINISHED" if row.outcome == "completed" else "RUN_ERROR") == kinds[-1]
    assert 1 == kinds.count("RUN_FINISHED") + kinds.count("RUN_ERROR")
    assert kinds.count("TEXT_MESSAGE_START") == kinds.count("TEXT_MESSAGE_END") == bool(row.text)
    assert row.outcome != "truncated" or row.finish == events[-1]["code"]


async def test_what_is_told_of_a_run_names_it(seen):
    """Whoever reads `holdfast` or an error needs the id to look the run up."""
    row = seen.row
    verdicts = {surface: told.verdict for surface, told in seen.told.items() if told.verdict is not None}

    assert all(told.run_id.startswith("run_") for told in seen.told.values())
    assert set(verdicts) == (set() if row.outcome == "completed" else set(CHAT | WIRES | RESPONSES))
    for surface, verdict in verdicts.items():
        run_id = seen.told[surface].run_id
        help = {"help": f"/docs/errors/{row.code}"} if row.outcome == "failed" else {}
        assert {"outcome": row.outcome, "code": row.code or row.said, "run_id": run_id, **help} == verdict


# What is kept.


@pytest.mark.parametrize("surface", ["chat-stream-in-session", "chat-object-in-session", "run-stream", "ui-chat"])
async def test_the_answer_is_kept_once_and_the_next_turn_is_shown_it(seen, surface):
    """A failed turn leaves a clean transcript: the user's message once, the partial as the assistant's words."""
    row, world, run_id = seen.row, seen.world, seen.told[surface].run_id
    session_id = (await world.get(f"/api/runs/{run_id}"))["session_id"]
    before = await world.messages(session_id)
    mark = f"{surface} {row.model.replace('/', ' ')}"

    shown = await world.shown_next(session_id, mark)

    answers = [] if not row.text else [{"role": "assistant", "content": row.text}]
    calls = [message for message in before if message.get("tool_calls")]
    turns = [{"role": "user", "content": QUESTION}, *answers, {"role": "user", "content": NEXT_QUESTION}]
    assert alternating(turns) == shown
    assert [("user", QUESTION), *(("assistant", row.text) for _ in answers or calls)] == [
        (message["role"], message["content"]) for message in before
    ]
    assert len(before) + 2 == len(await world.messages(session_id))


@requirement("truth.no-error-text-in-content")
async def test_no_error_text_is_ever_content(seen):
    """An error that looks like an answer is stored, shown to the model next, and believed."""
    failures = {surface: told.error for surface, told in seen.told.items() if told.error}
    contents = {surface: told.text + told.reasoning for surface, told in seen.told.items()}

    assert set(failures) == (set(SURFACES) if seen.row.outcome == "failed" else set())
    assert all(error["message"] and error["type"] for error in failures.values())
    assert {seen.row.text, seen.row.text + seen.row.reasoning} >= set(contents.values())


@requirement("truth.redacted")
async def test_no_upstream_secret_is_told_or_logged(seen):
    """Upstreams quote the key they were called with. Not a piece of it may reach a client or a log."""
    name = seen.row.model.rpartition(":")[2]
    log = seen.world.server.log_text().encode()

    for key in (UP_KEY, FALLBACK_KEY):
        pieces = {key[at : at + 12].encode() for at in range(len(key) - 11)}
        assert not [piece for piece in pieces if piece in seen.bytes]
        assert not [piece for piece in pieces if piece in log]
    assert (name in TOLD_WITH_KEY) is (b"[redacted]" in seen.bytes)


@requirement("truth.redacted")
async def test_the_upstream_did_quote_the_key(worlds, up):
    """Without this the test above would prove nothing."""
    async with Client(up.base_url, {"Authorization": f"Bearer {UP_KEY}"}) as client:
        bodies = [
            await (await client.post("/chat/completions", {"model": f"end:{name}", "stream": True})).body()
            for name in TOLD_WITH_KEY
        ]
    await (await worlds["long"].chat("up/end:401")).body()

    assert all(UP_KEY.encode() in body for body in bodies)
    assert UP_KEY == up.requests[-1].key


# What does not fit the table.


@requirement("truth.cut")
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_reset_that_overtakes_the_text_is_a_failure_all_the_same(worlds, surface):
    """The kernel drops what was not read when a reset arrives: text may be lost there, the truth may not."""
    told = await SURFACES[surface](worlds["long"], "up/end:cut")

    assert ("failed", "upstream_broke") == (told.outcome, told.code)
    assert TEXT.startswith(told.text)


@requirement("truth.deadline")
async def test_an_upstream_that_never_stops_talking_meets_the_deadline(worlds):
    """The idle limit never strikes there; somebody pays for every token."""
    world = worlds["deadline"]

    told = await SURFACES["run-stream"](world, "up/tokens:100000:10")

    assert ("failed", "deadline_exceeded", True) == (told.outcome, told.code, told.partial)
    assert told.text.startswith("t0 t1 ")
    await world.request_for("tokens:100000:10").wait_closed()


@requirement("truth.raise")
@pytest.mark.parametrize("texts", [(), ("Seen ", "text")])
async def test_a_source_that_raises_has_failed_and_its_words_stay_its_own(texts, caplog):
    """What a stranger's exception says may hold anything: it goes to the log, without keys, and not to a reader."""

    async def source():
        for text in texts:
            yield Text(text)
        raise ZeroDivisionError(f"password is {UP_KEY}")

    async with Core() as engine:
        run = await engine.start(source())
        settlement = await run.settled()

    assert isinstance(settlement, Failed)
    assert ("".join(texts), "source_failed") == (settlement.text, settlement.error.code)
    assert "ZeroDivisionError" in settlement.error.message
    assert "password" not in settlement.error.message
    assert "password is [redacted]" in caplog.text
    assert UP_KEY not in caplog.text


@requirement("truth.failed-result")
@pytest.mark.parametrize(
    ("finish", "code"),
    [
        (events.Finish("error"), "source_failed"),
        (events.Finish("failed"), "source_failed"),
        (events.Finish("stop", error=events.ErrorInfo("my_code", "It did not work.")), "my_code"),
    ],
)
async def test_a_source_that_says_it_failed_has_failed(finish, code):
    """Also where it ends without raising, and where its finish reason sounds like success."""

    async def source():
        yield "partial"
        yield finish

    async with Core() as engine:
        run = await engine.start(source())
        settlement = await run.settled()

    assert isinstance(settlement, Failed)
    assert ("partial", code) == (settlement.text, settlement.error.code)


class SlowToTell(MemoryStore):
    """Has saved a settlement, and takes its time to say so."""

    def __init__(self) -> None:
        super().__init__()
        self.saved, self.may_tell = asyncio.Event(), asyncio.Event()

    async def settle(self, *args, **named):
        standing = await super().settle(*args, **named)
        self.saved.set()
        await self.may_tell.wait()
        return standing


@requirement("truth.completed")
async def test_the_feed_tells_the_end_of_a_run_only_with_its_settlement():
    """The store has the end a moment before the engine does: a tab that looks just then must not be told `null`."""
    store = SlowToTell()
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), store, NO_HOME)
    async with Served(app) as served, served.client() as client:
        session_id = (await (await client.post("/api/sessions", {})).json())["id"]
        await (await client.post(f"/api/sessions/{session_id}/runs", {"input": "hi", "model": "scripted/echo"})).body()
        await store.saved.wait()
        feed = await client.get(f"/api/sessions/{session_id}/events")
        while (await feed.next_event()).event != "text.delta":
            pass
        store.may_tell.set()
        while (frame := await feed.next_event()).event != "run.settled":
            pass
        feed.leave()

    assert ("completed", "hi") == (frame.json()["settlement"]["outcome"], frame.json()["settlement"]["text"])


# Coming back.


@pytest.mark.parametrize("name", ["completed", "length", "in-band-error", "think", "tool-call", "429", "empty"])
@requirement("truth.completed", "truth.in-band-error")
async def test_a_resumed_stream_is_the_same_bytes_from_any_frame(worlds, name):
    """Renderings are deterministic: whoever has seen N data frames gets exactly the rest, and the same ending."""
    world = worlds["long"]
    started = await (await world.chat(f"up/end:{name}", background=True, stream_options={"include_usage": True})).json()
    path = f"/v1/chat/completions/{started['id']}?stream=true&starting_after="
    rest = await (await world.call("GET", path + "1")).body()
    frames = rest.decode().split("\n\n")[:-1]

    resumed = [await (await world.call("GET", f"{path}{n}")).body() for n in range(1, len(frames) + 3)]

    expected = ["".join(f"{frame}\n\n" for frame in frames[skip:]).encode() for skip in range(len(frames) + 2)]
    assert expected == resumed
    assert (b"[DONE]" in rest) is (name not in ("429", "empty"))


@requirement("truth.completed")
async def test_a_background_answer_that_is_not_finished_says_so(worlds, up):
    """202 and no finish reason: a poll must not take half an answer for a whole one."""
    world = worlds["long"]
    started = await world.chat("up/hang-after:2", background=True)
    completion_id = (await started.json())["id"]
    stream = await world.call("GET", f"/v1/chat/completions/{completion_id}?stream=true")
    seen = [json.loads((await stream.next_event()).data)["choices"][0]["delta"].get("content") for _ in range(3)]

    polled = await world.call("GET", f"/v1/chat/completions/{completion_id}")
    body = await polled.json()

    assert ["", "t0 ", "t1 "] == seen
    assert (202, 202, "running") == (started.status, polled.status, body["status"])
    assert ("t0 t1 ", None) == (body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"])
    assert ({"outcome": None, "run_id": polled.headers["x-run-id"]}, None) == (body["holdfast"], body.get("error"))
    stream.leave()
    await world.call("POST", f"/api/runs/{polled.headers['x-run-id']}/stop")
