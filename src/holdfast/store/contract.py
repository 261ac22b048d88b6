"""What every store promises, as checks: the one suite for all of them.

Each check is a sentence that must be true. `holdfast.testing` is the public name of what is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ..errors import (
    Conflict,
    HoldfastError,
    IdempotencyConflict,
    MessageNotFound,
    ResumeGap,
    SessionBusy,
    SessionNotFound,
    StaleDocument,
    StaleView,
)
from ..events import (
    AnySettlement,
    ApprovalDecided,
    ApprovalRequested,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Notice,
    Reasoning,
    Receipt,
    RunStarted,
    Settled,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolProgress,
    ToolResult,
    Truncated,
    Usage,
)
from ..history import Message, Session
from ..ids import new_id
from . import HEAD, Append, Document, FeedEntry, Idempotency, RunRecord, Store

OpenStore = Callable[[], Awaitable[Store]]
"""Opens a store on one medium, used for nothing else. Called again after `close`, it opens the same medium."""

Check = Callable[["Case"], Awaitable[None]]

_CHECKS: list[Check] = []


async def check_store(open: OpenStore) -> None:
    """Check every promise of the Store protocol; an AssertionError tells the first that is broken."""
    for check in _CHECKS:
        await run_check(check, open)


async def run_check(check: Check, open: OpenStore) -> None:
    """Check one promise."""
    case = Case(open, await open())
    try:
        await check(case)
    finally:
        await case.store.close()


def _check(function: Check) -> Check:
    _CHECKS.append(function)
    return function


class Case:
    """One check's view of a store: names of its own, so that checks can share a medium."""

    def __init__(self, open: OpenStore, store: Store) -> None:
        self.store = store
        self._open = open
        self._tag = new_id("case")
        self.owner = self.id("owner")

    async def reopen(self) -> None:
        """Close the store and open its medium again."""
        await self.store.close()
        self.store = await self._open()

    def id(self, name: str) -> str:
        """Return an id that no other check uses."""
        return f"{name}.{self._tag}"

    def user(self, name: str, text: str | list[Any] = "hello") -> Message:
        """Return a user's message."""
        return Message(id=self.id(name), role="user", content=text, created_at=5.0)

    def answer(self, run: RunRecord, text: str = "hi") -> Message:
        """Return the message that a run leaves."""
        return Message(id=run.message_id or "", role="assistant", content=text, run_id=run.id, outcome="completed")

    def record(self, name: str, session: str | None = "s", **fields: Any) -> RunRecord:
        """Return the record of a run that is not in the store yet."""
        return RunRecord(
            id=self.id(name),
            owner=self.owner,
            session_id=None if session is None else self.id(session),
            message_id=self.id(f"answer-{name}"),
            keeper=self.id("keeper"),
            **fields,
        )

    def key(self, name: str, digest: str = "d") -> Idempotency:
        """Return an idempotency key."""
        return Idempotency(self.owner, self.id(name), digest)

    async def session(self, name: str = "s", **fields: Any) -> Session:
        """Add a session."""
        return await self.store.create_session(Session(**{"id": self.id(name), "owner": self.owner} | fields))

    async def start(self, name: str, *input: Message, session: str | None = "s", **options: Any) -> RunRecord:
        """Start a run, or queue it."""
        return await self.store.create_run(self.record(name, session), input, **options)

    async def append(self, run: RunRecord, first: int, *events: Event) -> bool:
        """Add events to the log of one run."""
        (saved,) = await self.store.append([Append(run.id, run.epoch, first, events)])
        return saved

    async def settle(
        self,
        run: RunRecord,
        settlement: AnySettlement | None = None,
        *,
        seq: int = 1,
        message: Message | None = None,
        now: float = 9.0,
    ) -> AnySettlement | None:
        """Settle a run."""
        ending = settlement or Completed(text="hi", finish_reason="stop")
        return await self.store.settle(run.id, run.epoch, seq=seq, settlement=ending, message=message, now=now)

    async def head(self, session: str = "s") -> str | None:
        """Return the id of a session's head."""
        found = await self.store.get_session(self.id(session))
        assert found is not None
        return found.head_id

    async def transcript(self, session: str = "s") -> list[tuple[str, str | None]]:
        """Return each message's id and its parent's, in the order in which they were added."""
        return [(message.id, message.parent_id) for message in await self.store.messages(self.id(session))]

    async def feed(self, session: str = "s", after: int = 0) -> list[FeedEntry]:
        """Return what happened in a session."""
        return await self.store.read_feed(self.id(session), after)

    async def everything(self, session: str = "s") -> tuple[Any, ...]:
        """Return all that a store says of a session, to see whether something changed."""
        session_id = self.id(session)
        runs = await self.store.list_runs(session_id=session_id)
        return (
            await self.store.get_session(session_id),
            await self.store.messages(session_id),
            await self.store.read_feed(session_id, 0),
            await self.store.queued(session_id),
            runs,
            [await self.store.read_log(run.id, run.oldest - 1) for run in runs],
        )


async def _raised(error: type[BaseException], work: Awaitable[Any]) -> Any:
    """Return the error that work must raise."""
    try:
        result = await work
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised, but {result!r} returned")


def _types(feed: Sequence[FeedEntry]) -> list[str]:
    return [entry.type for entry in feed]


# starting a run


@_check
async def a_run_is_kept_as_it_was_given(case: Case) -> None:
    """A record comes back with every field."""
    record = RunRecord(
        id=case.id("r"),
        owner=case.owner,
        model="m",
        kind="agent",
        lifetime="attached",
        keeper="k",
        request={"nested": {"list": [1, 2.5, None, True, "ü"]}},
        created_at=1.25,
        started_at=1.5,
    )

    assert record == await case.store.create_run(record)
    assert record == await case.store.get_run(record.id)
    assert await case.store.get_run(case.id("unknown")) is None


@_check
async def input_is_added_after_the_head_and_becomes_the_head(case: Case) -> None:
    """The answer follows the last message of the input."""
    await case.session()
    first = await case.start("r1", case.user("a"), case.user("b"))
    await case.settle(first, message=case.answer(first))
    second = await case.start("r2", case.user("c"))

    ids = [case.id(name) for name in ("a", "b", "answer-r1", "c")]
    assert list(zip(ids, [None, *ids[:-1]], strict=True)) == await case.transcript()
    assert (ids[1], ids[3]) == (first.parent_id, second.parent_id)
    assert ids[3] == await case.head()
    assert "running" == second.status


@_check
async def an_edit_adds_a_sibling_and_moves_the_head_there(case: Case) -> None:
    """`parent` names an older message, and what was said after it is kept."""
    await case.session()
    first = await case.start("r1", case.user("a"))
    await case.settle(first, message=case.answer(first))
    edit = await case.start("r2", case.user("b"), parent=case.id("a"))
    await case.settle(edit)
    anew = await case.start("r3", case.user("c"), parent=None)

    assert [None, case.id("a"), case.id("a"), None] == [parent for _, parent in await case.transcript()]
    assert case.id("b") == edit.parent_id
    assert case.id("c") == anew.parent_id == await case.head()


@_check
async def a_regenerated_answer_follows_the_message_it_answers(case: Case) -> None:
    """Without input the answer follows `parent` itself, and the head goes back there."""
    await case.session()
    first = await case.start("r1", case.user("a"))
    await case.settle(first, message=case.answer(first))
    again = await case.start("r2", parent=case.id("a"))

    assert case.id("a") == again.parent_id == await case.head()
    await case.settle(again, message=case.answer(again))
    assert (case.id("answer-r2"), case.id("a")) == (await case.transcript())[-1]
    assert case.id("answer-r2") == await case.head()


@_check
async def a_run_that_goes_on_with_a_message_changes_it_and_adds_none(case: Case) -> None:
    """An answer that was cut off and continued is one answer, where it was; search finds what was added."""
    await case.session()
    first = await case.start("r1", case.user("a"))
    await case.settle(first, message=case.answer(first, "begun"))
    before = await case.transcript()
    record = case.record("r2")
    record = replace(record, message_id=case.id("answer-r1"))
    more = await case.store.create_run(record, expect_head=case.id("answer-r1"))
    await case.settle(more, message=case.answer(more, "begun finished"))

    assert case.id("answer-r1") == more.parent_id == await case.head()
    assert before == await case.transcript()
    message = (await case.store.messages(case.id("s")))[-1]
    assert ("begun finished", more.id) == (message.content, message.run_id)
    assert ["run.started", "message.changed", "run.settled"] == _types(await case.feed())[-3:]
    assert [case.id("s")] == [found.id for found in await case.store.list_sessions(case.owner, query="finished")]


@_check
async def an_unknown_parent_is_refused_and_nothing_is_written(case: Case) -> None:
    """A message of another session is unknown too."""
    await case.session("other")
    await case.start("r0", case.user("elsewhere"), session="other")
    await case.session()
    before = await case.everything()

    await _raised(MessageNotFound, case.start("r1", case.user("a"), parent=case.id("elsewhere")))
    assert before == await case.everything()
    assert await case.store.get_run(case.id("r1")) is None


@_check
async def a_caller_who_saw_another_head_is_refused(case: Case) -> None:
    """`expect_head` is the head, or HEAD for whatever it is; None is that of an empty session."""
    await case.session()
    await case.settle(await case.start("r1", case.user("a"), expect_head=None))
    before = await case.everything()

    await _raised(StaleView, case.start("r2", case.user("b"), expect_head=None))
    await _raised(StaleView, case.start("r2", case.user("b"), expect_head=case.id("gone")))
    assert before == await case.everything()
    await case.settle(await case.start("r3", case.user("c"), expect_head=case.id("a")))
    await case.start("r4", case.user("d"), expect_head=HEAD)
    assert case.id("d") == await case.head()


@_check
async def a_run_in_a_session_that_is_not_there_is_refused(case: Case) -> None:
    """Nothing is left of it, its idempotency key included."""
    await _raised(SessionNotFound, case.start("r1", case.user("a"), idempotency=case.key("k")))

    assert await case.store.get_run(case.id("r1")) is None
    assert await case.store.find_repeated(case.key("k")) is None


@_check
async def a_message_id_stands_for_one_message_of_its_session(case: Case) -> None:
    """A second message with the id of a first, or of one that waits, would change what was said."""
    await case.session()
    await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    for name in ("a", "b"):
        await _raised(Conflict, case.start("r3", case.user(name, "other"), if_busy="queue"))
    await _raised(Conflict, case.start("r3", case.user("c"), case.user("c"), if_busy="queue"))
    assert before == await case.everything()


@_check
async def a_title_comes_from_the_first_user_message(case: Case) -> None:
    """Of parts only the text counts; a title that is there stays."""
    await case.session("empty")
    await case.session("named", title="mine")
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "What\nis this?"}]
    for session in ("empty", "named"):
        await case.settle(await case.start(f"r-{session}", case.user("a", parts), session=session))
    await case.start("r2", case.user("b", "Another"), session="empty")

    empty = await case.store.get_session(case.id("empty"))
    named = await case.store.get_session(case.id("named"))
    assert empty is not None
    assert named is not None
    assert ("What is this?", "mine") == (empty.title, named.title)


# a busy session


@_check
async def a_busy_session_refuses_and_names_the_run(case: Case) -> None:
    """The running one, or else the first that is queued."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    error = await _raised(SessionBusy, case.start("r3", case.user("c")))
    assert running.id == error.run_id
    assert before == await case.everything()
    await case.settle(running)
    error = await _raised(SessionBusy, case.start("r3", case.user("c")))
    assert queued.id == error.run_id


@_check
async def a_queued_run_keeps_its_input_out_of_the_session(case: Case) -> None:
    """It waits with its messages, its number, and nobody who owns it."""
    await case.session()
    await case.start("r1", case.user("a"))
    message = case.user("b")
    queued = await case.store.create_run(replace(case.record("r2"), started_at=3.0), [message], if_busy="queue")

    assert ("queued", 1, (message,), None) == (queued.status, queued.queue_number, queued.input, queued.started_at)
    assert [case.id("a")] == [id for id, _ in await case.transcript()]
    assert case.id("a") == await case.head()
    assert queued == await case.store.get_run(queued.id)
    assert [queued] == await case.store.queued(case.id("s"))


@_check
async def a_run_that_may_queue_starts_at_once_where_nothing_is_busy(case: Case) -> None:
    """It is not queued, and uses no number."""
    await case.session()
    run = await case.start("r1", case.user("a"), if_busy="queue")

    assert ("running", None) == (run.status, run.queue_number)


@_check
async def a_run_that_interrupts_passes_the_queue_but_not_a_running_run(case: Case) -> None:
    """The engine stops the running one first; the queue goes on after the one that interrupted."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), if_busy="queue")

    error = await _raised(SessionBusy, case.start("r3", case.user("c"), if_busy="interrupt"))
    assert running.id == error.run_id
    await case.settle(running)
    passed = await case.start("r3", case.user("c"), if_busy="interrupt")
    assert "running" == passed.status
    assert [case.id("r2")] == [run.id for run in await case.store.queued(case.id("s"))]


@_check
async def queue_numbers_are_never_used_twice(case: Case) -> None:
    """Whether a run was dropped, has started, or the store was closed in between."""
    await case.session()
    running = await case.start("r1", case.user("m1"))
    two, three = [await case.start(f"r{n}", case.user(f"m{n}"), if_busy="queue") for n in (2, 3)]
    await case.store.drop_queued(three.id, Stopped(by="user"), 2.0)
    await case.settle(running)
    await case.store.start_queued(case.id("s"), keeper="k", now=3.0)
    await case.reopen()
    four = await case.start("r4", case.user("m4"), if_busy="queue")

    assert [1, 2, 3] == [run.queue_number for run in (two, three, four)]


@_check
async def of_many_that_start_at_once_one_runs(case: Case) -> None:
    """A session has at most one run at a time; the others are refused, or queued each with a number of its own."""
    await case.session("reject")
    await case.session("queue")
    refused = await asyncio.gather(
        *(case.start(f"r{n}", case.user(f"m{n}"), session="reject") for n in range(8)), return_exceptions=True
    )
    queued = await asyncio.gather(
        *(case.start(f"q{n}", case.user(f"m{n}"), session="queue", if_busy="queue") for n in range(8))
    )

    assert 7 == sum(isinstance(result, SessionBusy) for result in refused)
    assert [None, *range(1, 8)] == sorted((run.queue_number for run in queued), key=lambda number: number or 0)
    assert 1 == len(await case.store.messages(case.id("queue")))


# repeated starts


@_check
async def an_idempotency_key_starts_one_run(case: Case) -> None:
    """The same key gives the record that it made, even under another id, and adds nothing; also after a restart."""
    await case.session()
    run = await case.start("r1", case.user("a"), idempotency=case.key("k"))
    before = await case.everything()

    assert run == await case.start("r2", case.user("b"), idempotency=case.key("k"))
    await case.reopen()
    assert run == await case.start("r3", case.user("c"), idempotency=case.key("k"))
    assert run == await case.store.find_repeated(case.key("k"))
    assert before == await case.everything()


@_check
async def an_idempotency_key_belongs_to_its_owner_and_its_request(case: Case) -> None:
    """Another request with the key is a conflict; another owner's key is another key."""
    await case.start("r1", session=None, idempotency=case.key("k"))
    foreign = replace(case.key("k"), owner=case.id("stranger"))

    await _raised(IdempotencyConflict, case.start("r2", session=None, idempotency=case.key("k", digest="other")))
    await _raised(IdempotencyConflict, case.store.find_repeated(case.key("k", digest="other")))
    assert await case.store.find_repeated(foreign) is None
    assert case.id("r3") == (await case.start("r3", session=None, idempotency=foreign)).id


@_check
async def a_refused_start_leaves_no_key(case: Case) -> None:
    """Tried again when the session is free, the same request starts a run."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    await _raised(SessionBusy, case.start("r2", case.user("b"), idempotency=case.key("k")))

    assert await case.store.find_repeated(case.key("k")) is None
    await case.settle(running)
    assert case.id("r2") == (await case.start("r2", case.user("b"), idempotency=case.key("k"))).id


@_check
async def a_start_that_is_repeated_changes_nothing(case: Case) -> None:
    """The caller may not know whether it happened. A queued run, and one that has settled, are returned as they are."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    assert running == await case.start("r1", case.user("a"))
    assert queued == await case.start("r2", case.user("b"), if_busy="queue")
    assert before == await case.everything()
    await case.settle(running)
    assert "settled" == (await case.start("r1", case.user("a"))).status


# the queue


@_check
async def queued_runs_start_in_their_order(case: Case) -> None:
    """Each after the one before has settled; its input enters the session then, after the head of that moment."""
    await case.session()
    running = await case.start("r0", case.user("m0"))
    for n in (1, 2, 3):
        await case.start(f"r{n}", case.user(f"m{n}"), if_busy="queue")
    started = []
    for _ in range(3):
        await case.settle(running, message=case.answer(running))
        promoted = await case.store.start_queued(case.id("s"), keeper=case.id("k2"), now=7.0)
        assert promoted is not None
        assert promoted == await case.store.get_run(promoted.id)
        started.append(running := promoted)

    assert [case.id(f"r{n}") for n in (1, 2, 3)] == [run.id for run in started]
    assert {("running", case.id("k2"), 7.0, ())} == {(r.status, r.keeper, r.started_at, r.input) for r in started}
    assert [case.id(f"m{n}") for n in (1, 2, 3)] == [run.parent_id for run in started]
    expected = [case.id(name) for name in ("m0", "answer-r0", "m1", "answer-r1", "m2", "answer-r2", "m3")]
    assert list(zip(expected, [None, *expected[:-1]], strict=True)) == await case.transcript()


@_check
async def a_queued_edit_remembers_where_it_belongs(case: Case) -> None:
    """After the message that it named, or at the very beginning, however far the session has moved on."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), parent=case.id("a"), if_busy="queue")
    await case.start("r3", case.user("c"), parent=None, if_busy="queue")
    await case.settle(running, message=case.answer(running))
    second = await case.store.start_queued(case.id("s"), keeper="k", now=7.0)
    assert second is not None
    await case.settle(second)
    await case.store.start_queued(case.id("s"), keeper="k", now=8.0)

    assert [(case.id("b"), case.id("a")), (case.id("c"), None)] == (await case.transcript())[2:]


@_check
async def nothing_is_promoted_into_a_busy_or_empty_session(case: Case) -> None:
    """Asking twice starts no second run."""
    await case.session()
    start = case.store.start_queued
    assert await start(case.id("s"), keeper="k", now=7.0) is None
    assert await start(case.id("gone"), keeper="k", now=7.0) is None

    running = await case.start("r1", case.user("a"))
    for n in (2, 3):
        await case.start(f"r{n}", case.user(f"m{n}"), if_busy="queue")
    assert await start(case.id("s"), keeper="k", now=7.0) is None
    await case.settle(running)
    assert await start(case.id("s"), keeper="k", now=7.0) is not None
    before = await case.everything()
    assert await start(case.id("s"), keeper="k", now=7.0) is None
    assert before == await case.everything()


@_check
async def a_queued_run_can_say_something_else(case: Case) -> None:
    """Until it starts. Saying the same again changes nothing."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    changed = await case.store.change_queued(queued.id, [case.user("c", "other")])
    before = await case.everything()

    assert replace(queued, input=(case.user("c", "other"),)) == changed
    assert changed == await case.store.change_queued(queued.id, [case.user("c", "other")])
    assert before == await case.everything()
    assert "queue.changed" == (await case.feed())[-1].type
    await case.settle(running)
    await case.store.start_queued(case.id("s"), keeper="k", now=7.0)
    assert case.id("c") == (await case.transcript())[-1][0]
    for run_id in (queued.id, running.id, case.id("unknown")):
        assert await case.store.change_queued(run_id, []) is None


@_check
async def a_dropped_run_leaves_no_trace_in_the_transcript(case: Case) -> None:
    """It is settled, and its log is that settlement alone."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    stopped = Stopped(by="user", receipt=Receipt(1.0, 1.0, 1.0))
    dropped = await case.store.drop_queued(queued.id, stopped, 8.0)

    assert dropped is not None
    assert dropped == await case.store.get_run(queued.id)
    assert ("settled", stopped, 8.0, 1) == (dropped.status, dropped.settlement, dropped.settled_at, dropped.seq)
    assert [Settled(stopped)] == await case.store.read_log(queued.id, 0)
    assert [case.id("a")] == [id for id, _ in await case.transcript()]
    assert [] == await case.store.queued(case.id("s"))
    last = (await case.feed())[-1]
    assert ("run.settled", queued.id) == (last.type, last.data["run_id"])
    before = await case.everything()
    for run_id in (queued.id, running.id, case.id("unknown")):
        assert await case.store.drop_queued(run_id, Stopped(by="shutdown"), 9.0) is None
    assert before == await case.everything()


@_check
async def sessions_that_wait_are_found(case: Case) -> None:
    """Those in which a run is queued and none is running."""

    async def waiting() -> bool:
        return case.id("s") in await case.store.waiting_sessions()

    await case.session()
    assert not await waiting()
    running = await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), if_busy="queue")
    assert not await waiting()
    await case.settle(running)
    assert await waiting()
    await case.reopen()
    assert await waiting()
    await case.store.start_queued(case.id("s"), keeper="k", now=7.0)
    assert not await waiting()


# logs


@_check
async def every_kind_of_event_comes_back_as_it_was(case: Case) -> None:
    """In its order, with every field."""
    events: list[Event] = [
        RunStarted("m", "msg"),
        Text("a", choice=1),
        Text("\u2028\x00🙂ü"),
        Reasoning("why"),
        ToolDelta(0, "t", "tool", "{"),
        ToolCall("t", "tool", "{}"),
        ToolProgress("t", "half", 0.5),
        ToolResult("t", "out", is_error=True),
        ApprovalRequested("p", "tool", "{}"),
        ApprovalDecided("p", "deny", "no"),
        Usage(1, 2),
        Notice("retry", "again"),
    ]
    run = await case.start("r", session=None)

    assert await case.append(run, 1, *events)
    assert events == await case.store.read_log(run.id, 0)


@_check
async def a_log_can_be_read_from_anywhere(case: Case) -> None:
    """After n comes n + 1, wherever one append ended and the next began, and in pieces of any size."""
    run = await case.start("r", session=None)
    events = [Text(str(n)) for n in range(1, 31)]
    first = 1
    for size in (1, 7, 2, 15, 4):
        await case.append(run, first, *events[first - 1 : first - 1 + size])
        first += size
    await case.settle(run, seq=first)
    whole = [*events[: first - 1], Settled(Completed(text="hi", finish_reason="stop"))]

    for after in range(len(whole) + 2):
        assert whole[after:] == await case.store.read_log(run.id, after)
        for limit in (1, 3, 8):
            read = await case.store.read_log(run.id, after, limit)
            assert whole[after : after + len(read)] == read
            assert bool(read) == (after < len(whole))
    assert [] == await case.store.read_log(case.id("unknown"), 0)


@_check
async def one_append_can_serve_many_runs(case: Case) -> None:
    """Each entry has its own answer, and one run may have several entries."""
    one, two = [await case.start(name, session=None) for name in ("r1", "r2")]
    saved = await case.store.append(
        [
            Append(one.id, 1, 1, [Text("a")]),
            Append(two.id, 1, 1, [Text("b")]),
            Append(one.id, 1, 2, [Text("c"), Text("d")]),
            Append(case.id("unknown"), 1, 1, [Text("e")]),
        ]
    )

    assert [True, True, True, False] == saved
    assert [Text("a"), Text("c"), Text("d")] == await case.store.read_log(one.id, 0)
    assert [Text("b")] == await case.store.read_log(two.id, 0)
    assert 3 == (await case.start("r1", session=None)).seq
    assert [] == await case.store.append([])


@_check
async def an_append_that_is_repeated_changes_nothing(case: Case) -> None:
    """Nor does one that begins with what is there: only the rest of it is added."""
    run = await case.start("r", session=None)
    for _ in range(2):
        assert await case.append(run, 1, Text("a"), Text("b"))
    assert await case.append(run, 1, Text("a"))
    assert await case.append(run, 2, Text("b"), Text("c"))

    assert [Text("a"), Text("b"), Text("c")] == await case.store.read_log(run.id, 0)


@_check
async def an_append_that_would_leave_a_hole_is_refused_whole(case: Case) -> None:
    """A log has no gaps, and an append is one transaction."""
    one, two = [await case.start(name, session=None) for name in ("r1", "r2")]
    entries = [Append(one.id, 1, 1, [Text("a")]), Append(two.id, 1, 2, [Text("b")])]

    await _raised(ValueError, case.store.append(entries))
    assert [] == await case.store.read_log(one.id, 0)


@_check
async def nothing_is_added_by_another_epoch_or_after_the_settlement(case: Case) -> None:
    """A late or stale writer is refused."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"))

    assert not await case.append(replace(run, epoch=2), 2, Text("b"))
    assert not await case.append(replace(run, epoch=0), 2, Text("b"))
    await case.settle(run, seq=2)
    assert not await case.append(run, 2, Text("b"))
    assert not await case.append(run, 3, Text("c"))
    assert 2 == len(await case.store.read_log(run.id, 0))


@_check
async def nothing_is_added_to_a_run_that_waits(case: Case) -> None:
    """Only a started run has events."""
    await case.session()
    await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")

    assert not await case.append(queued, 1, Text("x"))
    assert [] == await case.store.read_log(queued.id, 0)


@_check
async def a_record_knows_the_end_of_its_log(case: Case) -> None:
    """While the run goes on, and the settlement counts too."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"), Text("b"))

    going_on = await case.store.get_run(run.id)
    assert going_on is not None
    assert (2, 1) == (going_on.seq, going_on.oldest)
    await case.settle(run, seq=3)
    settled = await case.store.get_run(run.id)
    assert settled is not None
    assert 3 == settled.seq


@_check
async def trimmed_logs_keep_their_settlement(case: Case) -> None:
    """Old events are forgotten, a cursor before them learns of the gap, and the ending stays."""
    await case.store.trim_logs(60.0)  # what other checks have left
    old, new, going_on, queued_only = [await case.start(f"r{n}", session=None) for n in range(4)]
    for run in (old, new, going_on):
        await case.append(run, 1, Text("a"), Text("b"))
    await case.settle(old, seq=3, now=50.0)
    await case.settle(new, seq=3, now=60.0)
    await case.settle(queued_only, now=50.0)

    assert 1 == await case.store.trim_logs(60.0)
    assert 0 == await case.store.trim_logs(60.0)
    for after in (0, 1):
        gap = await _raised(ResumeGap, case.store.read_log(old.id, after))
        assert 3 == gap.oldest
    assert [Settled(Completed(text="hi", finish_reason="stop"))] == await case.store.read_log(old.id, 2)
    assert [] == await case.store.read_log(old.id, 3)
    record = await case.store.get_run(old.id)
    assert record is not None
    assert (3, 3) == (record.seq, record.oldest)
    assert [3, 2] == [len(await case.store.read_log(run.id, 0)) for run in (new, going_on)]


@_check
async def a_run_tells_when_its_events_came(case: Case) -> None:
    """One time for what came together; a repeated append keeps the time it had, and trimming forgets them."""
    await case.store.trim_logs(60.0)  # what other checks have left
    run = await case.start("r", session=None)
    for first, at, events in ((1, 10.0, [Text("a"), Text("b")]), (3, 11.5, [Text("c")]), (3, 99.0, [Text("c")])):
        await case.store.append([Append(run.id, run.epoch, first, events, at)])

    assert [(2, 10.0), (3, 11.5)] == await case.store.read_times(run.id)
    assert [] == await case.store.read_times(case.id("unknown"))
    await case.settle(run, seq=4, now=50.0)
    await case.store.trim_logs(60.0)
    assert [] == await case.store.read_times(run.id)


# settling


@_check
async def a_settlement_is_the_last_event_and_on_the_record(case: Case) -> None:
    """Each of the five comes back as it was."""
    settlements: list[AnySettlement] = [
        Completed(text="t", usage=Usage(1, 2), finish_reason="stop", finish_reasons=("stop", "length")),
        Truncated(text="t", finish_reason="length"),
        Stopped(text="t", by="budget", receipt=Receipt(1.0, None, 2.5)),
        Failed(text="t", error=ErrorInfo("c", "m", "t", "p", 418, 1.5)),
        Interrupted(text="t"),
    ]
    for number, settlement in enumerate(settlements):
        run = await case.start(f"r{number}", session=None)
        await case.append(run, 1, Text("t"))
        assert settlement == await case.settle(run, settlement, seq=2, now=9.5)
        record = await case.store.get_run(run.id)
        assert record is not None
        assert ("settled", settlement, 9.5) == (record.status, record.settlement, record.settled_at)
        assert [Text("t"), Settled(settlement)] == await case.store.read_log(run.id, 0)


@_check
async def the_first_settlement_stands(case: Case) -> None:
    """Compare-and-set: whoever comes later is told the ending that is there, and changes nothing."""
    await case.session()
    run = await case.start("r", case.user("a"))
    first = Stopped(text="hi", by="user")
    assert first == await case.settle(run, first, message=case.answer(run))
    before = await case.everything()

    assert first == await case.settle(run, first, message=case.answer(run))
    assert first == await case.settle(run, Completed(text="all"), seq=1, message=case.answer(run, "all"), now=10.0)
    assert first == await case.settle(run, Completed(text="all"), seq=7)
    assert before == await case.everything()


@_check
async def of_many_settlements_at_once_one_stands(case: Case) -> None:
    """Fifty stops at once give one settlement, and all are told the same."""
    await case.session()
    run = await case.start("r", case.user("a"))
    endings = [Stopped(text=str(n), by="user") for n in range(50)]
    told = await asyncio.gather(*(case.settle(run, ending, message=case.answer(run)) for ending in endings))

    assert told[0] in endings
    assert [told[0]] * 50 == told
    (settled,) = await case.store.read_log(run.id, 0)
    assert isinstance(settled, Settled)
    assert told[0] == settled.settlement
    assert 2 == len(await case.store.messages(case.id("s")))


@_check
async def another_epoch_cannot_settle(case: Case) -> None:
    """Nor can anybody settle a run that is not there, or one that waits."""
    await case.session()
    run = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    assert await case.settle(replace(run, epoch=2), message=case.answer(run)) is None
    assert await case.settle(queued, message=case.answer(queued)) is None
    assert await case.settle(case.record("unknown")) is None
    assert before == await case.everything()


@_check
async def a_settlement_comes_right_after_the_last_event(case: Case) -> None:
    """Any other number would leave a gap or write over what was seen."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"))

    for seq in (1, 3):
        await _raised(ValueError, case.settle(run, seq=seq))
    assert [Text("a")] == await case.store.read_log(run.id, 0)


@_check
async def an_answer_follows_what_it_answers(case: Case) -> None:
    """It becomes the head only where nobody has moved the head in the meantime."""
    await case.session()
    first = await case.start("r1", case.user("a"))
    await case.settle(first, message=case.answer(first))
    second = await case.start("r2", case.user("b"))
    await case.store.update_session(case.id("s"), {"head_id": case.id("answer-r1")}, 8.0)
    await case.settle(second, message=replace(case.answer(second), parent_id=case.id("a")))

    assert (case.id("answer-r2"), case.id("b")) == (await case.transcript())[-1]
    assert case.id("answer-r1") == await case.head()


@_check
async def a_run_that_showed_nothing_leaves_no_message(case: Case) -> None:
    """The user's message stays, and stays the head."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.settle(run, Stopped(by="user"))

    assert [(case.id("a"), None)] == await case.transcript()
    assert case.id("a") == await case.head()
    assert ["message.added", "run.started", "run.settled"] == _types(await case.feed())


@_check
async def messages_come_back_as_they_were(case: Case) -> None:
    """With every field, parts and tool calls included."""
    await case.session()
    question = case.user("a", [{"type": "text", "text": "ü"}, {"type": "image_url", "image_url": {"url": "data:"}}])
    tool = Message(id=case.id("t"), role="tool", content="42", tool_call_id="c", name="f", created_at=1.5)
    run = await case.start("r", question, tool)
    answer = Message(
        id=case.id("answer"),
        role="assistant",
        content=None,
        run_id=run.id,
        model="m",
        partial=True,
        outcome="stopped",
        reasoning="why",
        tool_calls=(ToolCall("c", "f", "{}"),),
        created_at=2.5,
    )
    await case.settle(run, message=answer)

    expected = [question, replace(tool, parent_id=question.id), replace(answer, parent_id=tool.id)]
    assert expected == await case.store.messages(case.id("s"))


# the feed


@_check
async def the_feed_tells_all_in_its_order_without_gaps(case: Case) -> None:
    """What two tabs need to stay in step: each message before the run that it starts or ends."""
    await case.session()
    first = await case.start("r1", case.user("a"), case.user("b"))
    queued = await case.start("r2", case.user("c"), if_busy="queue")
    await case.store.change_queued(queued.id, [case.user("d")])
    await case.settle(first, message=case.answer(first))
    await case.store.update_session(case.id("s"), {"title": "new", "pinned": True}, 8.0)
    await case.store.start_queued(case.id("s"), keeper="k", now=9.0)
    feed = await case.feed()

    assert [
        *("message.added", "message.added", "run.started"),
        *("run.queued", "queue.changed"),
        *("message.added", "run.settled"),
        "session.changed",
        *("message.added", "run.started"),
    ] == _types(feed)
    assert list(range(1, len(feed) + 1)) == [entry.n for entry in feed]
    added = [entry.data["message"]["id"] for entry in feed if entry.type == "message.added"]
    assert [case.id(name) for name in ("a", "b", "answer-r1", "d")] == added
    assert {"title": "new", "pinned": True} == feed[7].data
    told = [entry.data["run_id"] for entry in feed if "run_id" in entry.data]
    assert [first.id, queued.id, queued.id, first.id, queued.id] == told


@_check
async def the_feed_can_be_read_from_anywhere(case: Case) -> None:
    """In pieces too; and it goes on where it was when the store was closed."""
    await case.session()
    for n in range(4):
        await case.settle(await case.start(f"r{n}", case.user(f"m{n}")))
    await case.reopen()
    await case.start("r4", case.user("m4"))
    feed = await case.feed()

    assert list(range(1, 15)) == [entry.n for entry in feed]
    for after in range(16):
        assert feed[after:] == await case.feed(after=after)
        assert feed[after : after + 3] == await case.store.read_feed(case.id("s"), after, 3)
    assert [] == await case.store.read_feed(case.id("unknown"), 0)
    assert (14, 0) == (await case.store.feed_end(case.id("s")), await case.store.feed_end(case.id("unknown")))


# sessions


@_check
async def a_session_is_kept_as_it_was_given(case: Case) -> None:
    """And adding it again changes nothing, whatever became of it."""
    given = Session(
        id=case.id("s"),
        owner=case.owner,
        title="t",
        model="m",
        system="be brief",
        params={"temperature": 0.5, "stop": ["a"]},
        pinned=True,
        created_at=1.5,
        updated_at=2.5,
    )
    assert given == await case.store.create_session(given)
    assert given == await case.store.get_session(given.id)
    changed = await case.store.update_session(given.id, {"title": "other"}, 3.0)

    assert changed == await case.store.create_session(given)
    assert changed == await case.store.get_session(given.id)
    assert await case.store.get_session(case.id("unknown")) is None


@_check
async def the_id_of_a_session_is_no_key_to_it(case: Case) -> None:
    """For another owner a session that exists looks like one that does not."""
    await case.session()
    foreign = Session(id=case.id("s"), owner=case.id("stranger"))

    await _raised(SessionNotFound, case.store.create_session(foreign))
    await _raised(SessionNotFound, case.store.copy_session(foreign, [case.user("a")]))
    assert [] == await case.store.messages(case.id("s"))


@_check
async def a_session_can_be_changed(case: Case) -> None:
    """Field by field; what is the same already is no change."""
    await case.session(updated_at=1.0)
    run = await case.start("r", case.user("a"))
    await case.settle(run, message=case.answer(run))
    changes: dict[str, Any] = {"title": "t", "model": "m", "system": "s", "params": {"a": 1}, "pinned": True}
    changes["head_id"] = case.id("a")
    changed = await case.store.update_session(case.id("s"), changes, 20.0)
    before = await case.everything()

    assert changed is not None
    assert changes == {name: getattr(changed, name) for name in changes}
    assert 20.0 == changed.updated_at
    assert changed == await case.store.update_session(case.id("s"), changes, 21.0)
    assert before == await case.everything()
    cleared = await case.store.update_session(case.id("s"), {"model": None, "head_id": None}, 22.0)
    assert cleared == replace(changed, model=None, head_id=None, updated_at=22.0)
    assert await case.store.update_session(case.id("gone"), {"title": "t"}, 23.0) is None


@_check
async def a_change_that_makes_no_sense_is_refused(case: Case) -> None:
    """A head that is no message of the session, and what is not the caller's to change."""
    await case.session()
    before = await case.everything()

    await _raised(MessageNotFound, case.store.update_session(case.id("s"), {"head_id": case.id("no")}, 2.0))
    for changes in ({"owner": "me"}, {"id": "x"}, {"created_at": 0.0}, {"colour": "red"}, {"pinned": "perhaps"}):
        await _raised(ValueError, case.store.update_session(case.id("s"), changes, 2.0))
    assert before == await case.everything()


@_check
async def a_copied_session_has_its_messages(case: Case) -> None:
    """As they are; the last is the head. Copying again changes nothing."""
    messages = [case.user("a"), replace(case.user("b"), parent_id=case.id("a"))]
    given = Session(id=case.id("s"), owner=case.owner, title="copy", updated_at=3.0)
    copied = await case.store.copy_session(given, messages)

    assert replace(given, head_id=case.id("b")) == copied
    assert messages == await case.store.messages(case.id("s"))
    assert copied == await case.store.copy_session(given, [case.user("c")])
    assert messages == await case.store.messages(case.id("s"))
    await case.start("r", case.user("c"))
    assert (case.id("c"), case.id("b")) == (await case.transcript())[-1]


@_check
async def sessions_can_share_message_ids(case: Case) -> None:
    """A fork may keep the ids of what it copied."""
    await case.session()
    await case.start("r", case.user("a", "original"))
    await case.store.copy_session(Session(id=case.id("fork"), owner=case.owner), [case.user("a", "fork")])

    assert ["original"] == [message.content for message in await case.store.messages(case.id("s"))]
    assert ["fork"] == [message.content for message in await case.store.messages(case.id("fork"))]


@_check
async def a_deleted_session_leaves_nothing(case: Case) -> None:
    """No message, run, log, feed, key or word of it; and a run that was going on cannot write any more."""
    await case.session()
    run = await case.start("r1", case.user("a", "findable"), idempotency=case.key("k1"))
    queued = await case.start("r2", case.user("b"), if_busy="queue", idempotency=case.key("k2"))
    await case.append(run, 1, Text("x"))

    assert await case.store.delete_session(case.id("s"))
    assert not await case.store.delete_session(case.id("s"))
    assert (None, [], [], [], [], []) == await case.everything()
    for record in (run, queued):
        assert await case.store.get_run(record.id) is None
        assert [] == await case.store.read_log(record.id, 0)
    assert [None, None] == [await case.store.find_repeated(case.key(name)) for name in ("k1", "k2")]
    assert [] == await case.store.list_runs(owner=case.owner)
    assert [] == await case.store.list_sessions(case.owner, query="findable")
    assert not await case.append(run, 2, Text("y"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert await case.store.start_queued(case.id("s"), keeper="k", now=9.0) is None
    assert not {run.id, queued.id} & {orphan.id for orphan in await case.store.claim(case.id("other"), 9.0)}


@_check
async def a_deleted_run_leaves_nothing(case: Case) -> None:
    """No record, log or key of it; whatever has not settled, or belongs to a session, stays."""
    await case.session()
    alone = await case.start("alone", session=None, idempotency=case.key("k"))
    other = await case.start("other", session=None)
    inside = await case.start("inside", case.user("a"))
    await case.append(alone, 1, Text("x"))

    assert not await case.store.delete_run(alone.id)
    await case.settle(alone, seq=2)
    await case.settle(inside, message=case.answer(inside))
    assert await case.store.delete_run(alone.id)
    assert [False] * 3 == [await case.store.delete_run(run.id) for run in (alone, other, inside)]
    await case.reopen()
    assert [None, []] == [await case.store.get_run(alone.id), await case.store.read_log(alone.id, 0)]
    assert await case.store.find_repeated(case.key("k")) is None
    assert await case.settle(alone, seq=2) is None
    assert {other.id, inside.id} == {run.id for run in await case.store.list_runs(owner=case.owner)}
    assert alone.id == (await case.start("alone", session=None, idempotency=case.key("k"))).id


@_check
async def a_session_can_come_again_after_it_was_deleted(case: Case) -> None:
    """It is a new one, with numbers that begin at 1."""
    for _ in range(2):
        await case.session()
        await case.start("r1", case.user("a"), idempotency=case.key("k"))
        queued = await case.start("r2", case.user("b"), if_busy="queue")
        assert 1 == queued.queue_number
        assert [1, 2, 3] == [entry.n for entry in await case.feed()]
        await case.store.delete_session(case.id("s"))


@_check
async def deleting_one_session_leaves_the_others(case: Case) -> None:
    """Runs without a session too."""
    for name in ("s", "other"):
        await case.session(name)
        await case.start(f"r-{name}", case.user("a", "findable"), session=name, idempotency=case.key(name))
    alone = await case.start("alone", session=None)
    before = await case.everything("other")
    await case.store.delete_session(case.id("s"))

    assert before == await case.everything("other")
    assert alone == await case.store.get_run(alone.id)
    assert [case.id("other")] == [session.id for session in await case.store.list_sessions(case.owner, query="find")]
    assert await case.store.find_repeated(case.key("other")) is not None


@_check
async def sessions_are_listed_pinned_first_then_changed_last(case: Case) -> None:
    """Those of their owner only."""
    for name, pinned, at in (("a", False, 1.0), ("b", True, 2.0), ("c", False, 3.0), ("d", True, 1.0)):
        await case.session(name, pinned=pinned, updated_at=at)
    await case.session("foreign", owner=case.id("stranger"))

    async def names() -> list[str]:
        return [session.id.partition(".")[0] for session in await case.store.list_sessions(case.owner)]

    assert ["b", "d", "c", "a"] == await names()
    await case.store.update_session(case.id("a"), {"model": "m"}, 4.0)
    assert ["b", "d", "a", "c"] == await names()
    await case.store.update_session(case.id("c"), {"pinned": True}, 5.0)
    assert ["c", "b", "d", "a"] == await names()


@_check
async def what_happens_in_a_session_moves_it_up(case: Case) -> None:
    """A run that starts, queues or settles; but its time never goes back."""

    async def changed_at() -> float:
        session = await case.store.get_session(case.id("s"))
        assert session is not None
        return session.updated_at

    await case.session(updated_at=1.0)
    run = await case.store.create_run(case.record("r1", created_at=2.0), [case.user("a")])
    assert 2.0 == await changed_at()
    await case.store.create_run(case.record("r2", created_at=3.0), [case.user("b")], if_busy="queue")
    assert 3.0 == await changed_at()
    await case.settle(run, now=4.0)
    assert 4.0 == await changed_at()
    await case.store.start_queued(case.id("s"), keeper="k", now=5.0)
    assert 5.0 == await changed_at()
    await case.store.update_session(case.id("s"), {"title": "t"}, 4.5)
    assert 5.0 == await changed_at()


@_check
async def pages_of_sessions_show_each_once(case: Case) -> None:
    """Also where many were changed at the same moment, with a query and without."""
    for n in range(23):
        await case.session(f"{n:02}", title="same words", updated_at=float(n % 2), pinned=n % 5 == 0)
    whole = await case.store.list_sessions(case.owner, limit=100)
    assert 23 == len(whole)

    for query in ("", "word"):
        paged: list[Session] = []
        while page := await case.store.list_sessions(
            case.owner, query=query, limit=4, before=paged[-1].id if paged else None
        ):
            paged += page
        assert whole == paged
    assert [] == await case.store.list_sessions(case.owner, before=case.id("unknown"))
    assert [] == await case.store.list_sessions(case.owner, limit=0)


@_check
async def a_search_finds_beginnings_of_words_in_titles_and_messages(case: Case) -> None:
    """Whatever their case and accents, and wherever in the session each word stands."""
    await case.session("s", title="Über die Brücke")
    run = await case.start("r", case.user("a", "Tell me about snake_case and C++"))
    await case.settle(run, message=case.answer(run, "Programming, 东京 and straße"))
    await case.session("other", title="nothing of it")

    async def found(query: str) -> bool:
        return [case.id("s")] == [one.id for one in await case.store.list_sessions(case.owner, query=query)]

    for query in ("über", "UBER", "bruck", "tell ab", "prog", "brücke program", "case", "c++", "东", "京东", "STRASSE"):
        assert await found(query), query
    for query in ("ogramming", "tellx", "brücke missing", "大"):
        assert not await found(query), query


@_check
async def a_search_finds_parts_and_new_titles_only(case: Case) -> None:
    """A title that was changed is not found any more under its old words."""
    await case.session("s", title="before")
    await case.start("r", case.user("a", [{"type": "text", "text": "inparts"}, {"type": "image_url", "text": None}]))
    await case.store.update_session(case.id("s"), {"title": "after"}, 2.0)
    await case.session("foreign", owner=case.id("stranger"), title="after")

    async def count(query: str) -> int:
        return len(await case.store.list_sessions(case.owner, query=query))

    assert [1, 1, 0] == [await count(query) for query in ("after", "inparts", "before")]


@_check
async def no_query_is_an_error(case: Case) -> None:
    """A search box takes whatever is typed into it. Signs alone look for nothing, and so find all."""
    await case.session("s", title="plain")
    signs = list("\"'*()[]{}<>^-+|&:%_\\\x00\ud800🙂")
    syntax = ["a AND", "OR", "a* OR b", "NEAR(", "NEAR(a, b)", "title:x", '"a', '""a"', "((a", "-a", "^a", "{a}:b"]
    for query in [*signs, *syntax, "é" * 500, "x " * 1000, "SELECT * FROM sessions; --"]:
        assert await case.store.list_sessions(case.owner, query=query) in ([], [await case.session()])
    for query in ("", " ", "*", '"'):
        assert 1 == len(await case.store.list_sessions(case.owner, query=query))


@_check
async def only_chats_are_listed_and_found(case: Case) -> None:
    """A session of another kind belongs to a feature, which knows its id; all else works in it as in a chat."""
    await case.session("chat", title="words")
    pane = await case.session("pane", title="words", kind="pane")
    run = await case.start("r", case.user("a", "words"), session="pane")
    await case.settle(run, message=case.answer(run, "words"))

    for query in ("", "words"):
        assert [case.id("chat")] == [found.id for found in await case.store.list_sessions(case.owner, query=query)]
    kept = await case.store.get_session(pane.id)
    assert kept is not None
    assert ("pane", case.id("answer-r")) == (kept.kind, kept.head_id)
    copy = await case.store.copy_session(replace(pane, id=case.id("copy")), await case.store.messages(pane.id))
    assert "pane" == copy.kind
    assert await case.store.delete_session(pane.id)


# documents


@_check
async def a_document_is_kept_as_it_was_given(case: Case) -> None:
    """With the version that the store gives it, the first time 1; kinds are apart."""
    one = Document(kind="a", id=case.id("d"), owner=case.owner, created_at=1.5, updated_at=2.5, body={"x": [1, "ü"]})
    kept = await case.store.put_document(one)
    other = await case.store.put_document(replace(one, kind="b", body={}), 0)

    assert replace(one, version=1) == kept == await case.store.get_document("a", one.id)
    assert other == await case.store.get_document("b", one.id)
    assert await case.store.get_document("a", case.id("unknown")) is None
    kept.body["x"].append("changed by its reader")
    assert replace(one, version=1) == await case.store.get_document("a", one.id)


@_check
async def a_document_is_changed_by_who_has_seen_it_as_it_is(case: Case) -> None:
    """Each change is the next version. When it was made stays, and so does its owner."""
    one = Document(kind="a", id=case.id("d"), owner=case.owner, created_at=1.0, updated_at=1.0, body={"n": 1})
    first = await case.store.put_document(one)
    second = await case.store.put_document(replace(first, created_at=9.0, updated_at=9.0, body={"n": 2}), 1)

    assert (2, 1.0, 9.0, {"n": 2}) == (second.version, second.created_at, second.updated_at, second.body)
    for stale in (None, 0, 1, 3):
        await _raised(StaleDocument, case.store.put_document(replace(one, body={"n": 3}), stale))
    await _raised(StaleDocument, case.store.put_document(replace(second, owner=case.id("stranger")), 2))
    await _raised(StaleDocument, case.store.put_document(replace(one, id=case.id("unknown")), 1))
    assert second == await case.store.get_document("a", one.id)
    assert await case.store.get_document("a", case.id("unknown")) is None


@_check
async def a_put_that_is_repeated_changes_nothing(case: Case) -> None:
    """Who heard no answer may ask again."""
    one = Document(kind="a", id=case.id("d"), owner=case.owner, created_at=1.0, body={"n": 1})
    first = await case.store.put_document(one)
    assert first == await case.store.put_document(one)
    second = await case.store.put_document(replace(one, body={"n": 2}), 1)

    assert second == await case.store.put_document(replace(one, body={"n": 2}), 1)
    await _raised(StaleDocument, case.store.put_document(one))
    assert second == await case.store.get_document("a", one.id)


@_check
async def of_many_puts_at_once_one_stands(case: Case) -> None:
    """Two who vote at the same moment do not both have the last word."""
    one = await case.store.put_document(Document(kind="a", id=case.id("d"), owner=case.owner))
    puts = [case.store.put_document(replace(one, body={"by": n}), one.version) for n in range(10)]
    results = await asyncio.gather(*puts, return_exceptions=True)

    assert 9 == sum(isinstance(result, StaleDocument) for result in results)
    (stands,) = [result for result in results if isinstance(result, Document)]
    assert stands == await case.store.get_document("a", one.id)


@_check
async def documents_are_listed_with_those_added_last_first(case: Case) -> None:
    """Of one owner or of all, page after page. A change moves none."""
    for n in range(5):
        owner = case.owner if n != 2 else case.id("stranger")
        await case.store.put_document(Document(kind=case.id("kind"), id=f"d{n}", owner=owner))
    await case.store.put_document(Document(kind=case.id("other"), id="d9", owner=case.owner))
    await case.store.put_document(Document(kind=case.id("kind"), id="d0", owner=case.owner, body={"n": 1}), 1)

    async def names(owner: str | None, **options: Any) -> list[str]:
        return [found.id for found in await case.store.list_documents(case.id("kind"), owner, **options)]

    assert ["d4", "d3", "d1", "d0"] == await names(case.owner)
    assert ["d4", "d3", "d2", "d1", "d0"] == await names(None)
    assert ["d4", "d3"] == await names(case.owner, limit=2)
    assert ["d1", "d0"] == await names(case.owner, before="d3")
    assert ["d1"] == await names(case.owner, before="d2", limit=1)
    assert [] == await names(case.owner, before="d0")
    assert [] == await names(case.owner, before="unknown")
    assert [] == await names(case.owner, limit=0)


@_check
async def a_deleted_document_is_gone_and_can_come_again(case: Case) -> None:
    """As the newest one, with the first version."""
    kind = case.id("kind")
    for name in ("d1", "d2"):
        await case.store.put_document(Document(kind=kind, id=name, owner=case.owner))

    assert await case.store.delete_document(kind, "d1")
    assert not await case.store.delete_document(kind, "d1")
    assert await case.store.get_document(kind, "d1") is None
    await _raised(StaleDocument, case.store.put_document(Document(kind=kind, id="d1", owner=case.owner), 1))
    again = await case.store.put_document(Document(kind=kind, id="d1", owner=case.owner))
    assert 1 == again.version
    assert ["d1", "d2"] == [found.id for found in await case.store.list_documents(kind)]


@_check
async def documents_are_there_after_a_restart(case: Case) -> None:
    """With their versions and their order."""
    for n in range(3):
        await case.store.put_document(Document(kind=case.id("kind"), id=f"d{n}", body={"n": n}))
    await case.store.put_document(Document(kind=case.id("kind"), id="d1", body={"n": 9}), 1)
    before = await case.store.list_documents(case.id("kind"))
    await case.reopen()

    assert before == await case.store.list_documents(case.id("kind"))
    assert [2, 9, 0] == [found.body["n"] for found in before]


# lists of runs


@_check
async def runs_are_listed_newest_first(case: Case) -> None:
    """By owner, session and state; page after page."""
    await case.session()
    for n in range(7):
        run = await case.start(f"r{n}", case.user(f"m{n}"))
        await case.settle(run)
    await case.start("r7", case.user("m7"))
    await case.start("r8", case.user("m8"), if_busy="queue")
    await case.start("r9", session=None)

    async def names(**options: Any) -> list[str]:
        return [run.id.partition(".")[0] for run in await case.store.list_runs(owner=case.owner, **options)]

    assert [f"r{n}" for n in (9, 8, 7, 6, 5, 4, 3, 2, 1, 0)] == await names()
    assert [f"r{n}" for n in (8, 7, 6, 5, 4, 3, 2, 1, 0)] == await names(session_id=case.id("s"))
    assert ["r9", "r7"] == await names(status="running")
    assert ["r8"] == await names(status="queued")
    assert ["r6", "r5"] == await names(status="settled", limit=2)
    assert ["r4", "r3"] == await names(status="settled", limit=2, before=case.id("r5"))
    assert ["r1", "r0"] == await names(before=case.id("r2"))
    assert [] == await names(before=case.id("unknown"))
    assert [] == await names(limit=0)
    assert [] == await names(session_id=case.id("unknown"))


# leases


@_check
async def runs_of_a_process_whose_lease_has_ended_are_taken_over(case: Case) -> None:
    """With this keeper and the next epoch; those of a living one are not."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"))

    async def claimed(by: str, now: float) -> list[RunRecord]:
        return [found for found in await case.store.claim(case.id(by), now) if found.id == run.id]

    await case.store.renew(run.keeper, 100.0)
    await case.store.renew(case.id("k2"), 1000.0)
    assert [] == await claimed("k2", 99.0)
    taken = await claimed("k2", 100.0)
    assert [replace(run, keeper=case.id("k2"), epoch=2, seq=1)] == taken
    assert taken == [await case.store.get_run(run.id)]
    assert [] == await claimed("k3", 999.0)
    await case.store.renew(case.id("k2"), 0.0)
    assert [3] == [found.epoch for found in await claimed("k3", 500.0)]


@_check
async def a_process_that_lost_its_run_can_no_longer_write(case: Case) -> None:
    """It may only have slept. The new owner goes on where the log ends."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.append(run, 1, Text("a"))
    await case.store.renew(case.id("k2"), 1000.0)
    (taken,) = [found for found in await case.store.claim(case.id("k2"), 100.0) if found.id == run.id]

    assert not await case.append(run, 2, Text("late"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert await case.append(taken, 2, Text("b"))
    ending = Interrupted(text="ab")
    assert ending == await case.settle(taken, ending, seq=3, message=case.answer(taken, "ab"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert [Text("a"), Text("b"), Settled(ending)] == await case.store.read_log(run.id, 0)


@_check
async def a_lease_can_be_renewed_again_and_again(case: Case) -> None:
    """The last word counts, a shorter one too; a process that never had a lease is dead."""
    run = await case.start("r", session=None)

    async def is_orphan(now: float) -> bool:
        return run.id in {found.id for found in await case.store.claim(case.id("other"), now)}

    for until in (50.0, 50.0, 200.0):
        await case.store.renew(run.keeper, until)
    assert not await is_orphan(199.0)
    await case.store.renew(run.keeper, 60.0)
    assert await is_orphan(61.0)
    never = await case.store.create_run(replace(case.record("r2", None), keeper=case.id("never")))
    assert never.id in {found.id for found in await case.store.claim(case.id("other"), 0.0)}


@_check
async def what_was_claimed_for_nobody_can_be_claimed_again(case: Case) -> None:
    """So whoever fails half-way leaves the rest to whoever looks next, under one more epoch."""
    run = await case.start("r", session=None)
    epochs = []
    for _ in range(3):
        epochs += [found.epoch for found in await case.store.claim("", 100.0) if found.id == run.id]

    assert [2, 3, 4] == epochs
    assert not await case.append(run, 1, Text("late"))


@_check
async def a_run_that_was_claimed_for_nobody_can_be_adopted_once(case: Case) -> None:
    """By one who goes on with it; repeating that changes nothing, and another comes too late."""
    run = await case.start("r", session=None)
    (claimed,) = [found for found in await case.store.claim("", 100.0) if found.id == run.id]
    adopted = await case.store.adopt(run.id, claimed.epoch, case.id("k2"))

    assert replace(claimed, keeper=case.id("k2")) == adopted == await case.store.get_run(run.id)
    assert adopted == await case.store.adopt(run.id, claimed.epoch, case.id("k2"))
    assert await case.store.adopt(run.id, claimed.epoch, case.id("k3")) is None
    assert await case.store.adopt(run.id, run.epoch, case.id("k2")) is None
    assert adopted is not None
    await case.settle(adopted)
    assert await case.store.adopt(run.id, claimed.epoch, case.id("k2")) is None


@_check
async def neither_queued_nor_settled_runs_are_taken_over(case: Case) -> None:
    """A queued run has no owner: it starts when its turn comes. A settled one needs none."""
    await case.session()
    settled = await case.start("r1", case.user("a"))
    await case.settle(settled)
    running = await case.start("r2", case.user("b"))
    queued = await case.start("r3", case.user("c"), if_busy="queue")
    claimed = {found.id for found in await case.store.claim(case.id("other"), 100.0)}

    assert {running.id} == claimed & {settled.id, running.id, queued.id}
    assert queued == await case.store.get_run(queued.id)


@_check
async def what_a_dead_process_left_is_found_after_a_restart(case: Case) -> None:
    """Its log is there, and its runs can be taken over and settled."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.append(run, 1, Text("a"))
    await case.reopen()

    (taken,) = [found for found in await case.store.claim(case.id("k2"), 1e12) if found.id == run.id]
    assert [Text("a")] == await case.store.read_log(run.id, 0)
    assert await case.settle(taken, seq=2, message=case.answer(taken)) is not None


# closing


@_check
async def everything_is_there_after_a_restart(case: Case) -> None:
    """A store is what outlives the process."""
    await case.session(title="kept", params={"a": [1]})
    run = await case.start("r1", case.user("a"), idempotency=case.key("k"))
    await case.append(run, 1, Text("x"), Text("y"))
    await case.settle(run, seq=3, message=case.answer(run))
    await case.start("r2", case.user("b"))
    await case.start("r3", case.user("c"), if_busy="queue")
    before = await case.everything()
    await case.reopen()

    assert before == await case.everything()
    assert [case.id("s")] == [session.id for session in await case.store.list_sessions(case.owner, query="kept")]


@_check
async def closing_finishes_what_was_asked_for(case: Case) -> None:
    """A write that is under way when the store closes happens. Closing twice is harmless."""
    asked = [asyncio.ensure_future(case.session(f"s{n}")) for n in range(20)]
    await asyncio.sleep(0)  # so that each of them has been asked for
    await case.store.close()
    await asyncio.gather(*asked)
    await case.reopen()

    assert 20 == len(await case.store.list_sessions(case.owner))


@_check
async def a_caller_who_stops_waiting_breaks_nothing(case: Case) -> None:
    """The write happens all the same, whole, and others go on."""
    await case.session()
    run = await case.start("r", case.user("a"))
    waiting = [asyncio.ensure_future(case.append(run, 1, Text("a"))) for _ in range(5)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert await case.append(run, 2, Text("b"))
    assert [Text("a"), Text("b")] == await case.store.read_log(run.id, 0)


@_check
async def a_refusal_spoils_nobody_elses_write(case: Case) -> None:
    """Writes of one moment may share a commit, never a fate."""
    await case.session()
    work: list[Awaitable[Any]] = []
    for n in range(10):
        work.append(case.session(f"s{n}"))
        work.append(case.start(f"r{n}", case.user("a"), session="gone"))
        work.append(case.start(f"ok{n}", session=None))
        work.append(case.store.append([Append(case.id("gone"), 1, 1, [Text("x")])]))
    results = await asyncio.gather(*work, return_exceptions=True)

    assert 10 == sum(isinstance(result, SessionNotFound) for result in results)
    assert 10 == sum(isinstance(result, HoldfastError) for result in results)
    assert 11 == len(await case.store.list_sessions(case.owner))
    assert 10 == len(await case.store.list_runs(owner=case.owner))


STORE_CHECKS: tuple[Check, ...] = tuple(_CHECKS)
"""Every check of the contract, for `pytest.mark.parametrize`: run each with `run_check(check, open)`."""
