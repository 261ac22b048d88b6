"""The log of a run, and the feed of a session."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.errors import (
    ResumeGap,
)
from holdfast.events import (
    ApprovalDecided,
    ApprovalRequested,
    Completed,
    Event,
    FormField,
    InputDecided,
    InputRequested,
    Notice,
    OutcomeDecided,
    OutcomeRequested,
    Picture,
    ProviderData,
    Reasoning,
    RunStarted,
    Settled,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolProgress,
    ToolResult,
    ToolStarted,
    Usage,
)
from holdfast.store import Append, FeedPlace

from .case import Case, Checks, raised, types

CHECKS = Checks()


# logs


@CHECKS.add
async def every_kind_of_event_comes_back_as_it_was(case: Case) -> None:
    """In its order, with every field."""
    events: list[Event] = [
        RunStarted("m", "msg"),
        Text("a", choice=1),
        Text("\u2028\x00🙂ü"),
        Reasoning("why"),
        Picture("data:image/png;base64,iVBORw0KGgo="),
        ToolDelta(0, "t", "tool", "{"),
        ToolCall("t", "tool", "{}"),
        ToolProgress("t", "half", 0.5),
        ToolResult("t", "out", is_error=True),
        ApprovalRequested("p", "tool", "{}"),
        ApprovalDecided("p", "deny", "no"),
        ToolStarted("call_1", "eff_1", 1.5, "keyed"),
        OutcomeRequested("o", "tool", "{}", "call_1", "eff_1", 1.5),
        OutcomeDecided("o", "again"),
        InputRequested("i", "tool", "t", "How many?", (FormField("n", "integer", "Number", lowest=1),)),
        InputDecided("i", "accept", {"n": 2}),
        Usage(1, 2),
        Notice("retry", "again"),
        ProviderData("anthropic", {"type": "signature_delta", "signature": "s"}),
    ]
    run = await case.start("r", session=None)

    assert await case.append(run, 1, *events)
    assert events == await case.store.read_log(run.id, 0)


@CHECKS.add
async def a_log_can_be_read_from_anywhere(case: Case) -> None:
    """After n comes n + 1, whatever the appends were, and in pages of any size."""
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


@CHECKS.add
async def one_append_can_serve_many_runs(case: Case) -> None:
    """Each entry has its own answer, and one run may have several entries."""
    one, two = [await case.start(name, session=None) for name in ("r1", "r2")]
    ends = await case.store.append(
        one.node_id,
        [
            Append(one.id, 1, 1, [Text("a")]),
            Append(two.id, 1, 1, [Text("b")]),
            Append(one.id, 1, 2, [Text("c"), Text("d")]),
            Append(case.id("unknown"), 1, 1, [Text("e")]),
        ],
    )

    assert [1, 1, 3, "lost"] == ends
    assert [Text("a"), Text("c"), Text("d")] == await case.store.read_log(one.id, 0)
    assert [Text("b")] == await case.store.read_log(two.id, 0)
    assert 3 == (await case.start("r1", session=None)).seq
    assert [] == await case.store.append(one.node_id, [])


@CHECKS.add
async def an_append_that_is_repeated_changes_nothing(case: Case) -> None:
    """If an append begins with stored events, only the rest of it is added."""
    run = await case.start("r", session=None)
    for _ in range(2):
        assert await case.append(run, 1, Text("a"), Text("b"))
    assert await case.append(run, 1, Text("a"))
    assert await case.append(run, 2, Text("b"), Text("c"))

    assert [Text("a"), Text("b"), Text("c")] == await case.store.read_log(run.id, 0)


@CHECKS.add
async def an_append_returns_where_the_log_ends(case: Case) -> None:
    """A log has no gaps. If the store was rolled back, the owner of a run learns which events it has to send again."""
    one, two = [await case.start(name, session=None) for name in ("r1", "r2")]
    entries = [Append(one.id, 1, 1, [Text("a"), Text("b")]), Append(two.id, 1, 3, [Text("d")])]

    assert [2, 0] == await case.store.append(one.node_id, entries)
    assert [Text("a"), Text("b")] == await case.store.read_log(one.id, 0)
    assert [] == await case.store.read_log(two.id, 0)
    assert 2 == await case.end_after(one, 1, Text("a"))
    assert 2 == await case.end_after(one, 4, Text("d"))
    assert 4 == await case.end_after(one, 2, Text("b"), Text("c"), Text("d"))


@CHECKS.add
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


@CHECKS.add
async def nothing_is_added_to_a_run_that_waits(case: Case) -> None:
    """Only a started run has events."""
    await case.session()
    await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")

    assert not await case.append(queued, 1, Text("x"))
    assert [] == await case.store.read_log(queued.id, 0)


@CHECKS.add
async def a_record_knows_the_end_of_its_log(case: Case) -> None:
    """While the run runs, and after it: the settlement counts too."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"), Text("b"))

    going_on = await case.store.get_run(run.id)
    assert going_on is not None
    assert (2, 1) == (going_on.seq, going_on.oldest)
    await case.settle(run, seq=3)
    settled = await case.store.get_run(run.id)
    assert settled is not None
    assert 3 == settled.seq


@CHECKS.add
async def trimmed_logs_keep_their_settlement(case: Case) -> None:
    """Old events are deleted, a cursor before them gets `ResumeGap`, and the settlement stays."""
    await case.store.trim_logs(60.0)  # left by other checks
    old, new, going_on, queued_only = [await case.start(f"r{n}", session=None) for n in range(4)]
    for run in (old, new, going_on):
        await case.append(run, 1, Text("a"), Text("b"))
    await case.settle(old, seq=3, now=50.0)
    await case.settle(new, seq=3, now=60.0)
    await case.settle(queued_only, now=50.0)

    assert 1 == await case.store.trim_logs(60.0)
    assert 0 == await case.store.trim_logs(60.0)
    for after in (0, 1):
        gap = await raised(ResumeGap, case.store.read_log(old.id, after))
        assert 3 == gap.oldest
    assert [Settled(Completed(text="hi", finish_reason="stop"))] == await case.store.read_log(old.id, 2)
    assert [] == await case.store.read_log(old.id, 3)
    record = await case.store.get_run(old.id)
    assert record is not None
    assert (3, 3) == (record.seq, record.oldest)
    assert [3, 2] == [len(await case.store.read_log(run.id, 0)) for run in (new, going_on)]


@CHECKS.add
async def old_runs_outside_of_sessions_are_deleted(case: Case) -> None:
    """With their logs and idempotency keys. Runs of sessions, recent ones and running ones stay."""
    await case.store.delete_runs(60.0)  # left by other checks
    await case.session()
    inside = await case.start("inside", case.user("m"))
    old, recent, running = [await case.start(name, session=None) for name in ("old", "recent", "running")]
    for run, now in ((inside, 50.0), (old, 50.0), (recent, 60.0)):
        await case.append(run, 1, Text("a"))
        await case.settle(run, seq=2, now=now)

    assert 0 == await case.store.delete_runs(60.0, besides=[case.owner])
    assert 0 == await case.store.delete_runs(60.0, of=[case.id("another")])
    assert 1 == await case.store.delete_runs(60.0, of=[case.id("another"), case.owner])
    assert 0 == await case.store.delete_runs(60.0)
    assert await case.store.get_run(old.id) is None
    assert [] == await case.store.read_log(old.id, 0)
    for kept in (inside, recent, running):
        assert await case.store.get_run(kept.id) is not None


@CHECKS.add
async def old_idempotency_keys_are_forgotten_and_their_runs_stay(case: Case) -> None:
    """A repeated request is a new one from then on, independent of the old run."""
    await case.store.forget_idempotency(60.0)  # left by other checks
    keys = [case.key(name) for name in ("old", "recent", "running")]
    runs = [await case.start(key.key, session=None, idempotency=key) for key in keys]
    for run, now in zip(runs[:2], (50.0, 60.0), strict=True):
        await case.settle(run, now=now)

    assert (1, 0) == (await case.store.forget_idempotency(60.0), await case.store.forget_idempotency(60.0))
    assert await case.store.get_run(runs[0].id) is not None
    found = [await case.store.find_repeated(key) for key in keys]
    assert [None, runs[1].id, runs[2].id] == [each and each.id for each in found]
    again = await case.start("again", session=None, idempotency=keys[0])
    assert await case.store.delete_run(runs[0].id)
    repeated = await case.store.find_repeated(keys[0])
    assert repeated is not None
    assert again.id == repeated.id


@CHECKS.add
async def lists_of_sessions_come_without_what_can_be_long(case: Case) -> None:
    """A list of 200 sessions must not read 200 system prompts."""
    session = await case.session()
    changed = await case.store.update_session(session.id, {"system": "s", "params": {"top_p": 1}}, 5.0)
    (listed,) = await case.store.list_sessions(case.owner)

    assert changed is not None
    assert replace(changed, system=None, params={}) == listed


@CHECKS.add
async def a_run_tells_when_its_events_came(case: Case) -> None:
    """One time for each append; a repeated append keeps its time, and trimming deletes the times."""
    await case.store.trim_logs(60.0)  # left by other checks
    run = await case.start("r", session=None)
    for first, at, events in ((1, 10.0, [Text("a"), Text("b")]), (3, 11.5, [Text("c")]), (3, 99.0, [Text("c")])):
        await case.store.append(run.node_id, [Append(run.id, run.epoch, first, events, at)])

    assert [(2, 10.0), (3, 11.5)] == await case.store.read_times(run.id)
    assert [] == await case.store.read_times(case.id("unknown"))
    await case.settle(run, seq=4, now=50.0)
    await case.store.trim_logs(60.0)
    assert [] == await case.store.read_times(run.id)


# the feed


@CHECKS.add
async def the_feed_tells_all_in_its_order_without_gaps(case: Case) -> None:
    """Two tabs stay in sync by it: each message comes before the run that it starts or ends."""
    await case.session()
    first = await case.start("r1", case.user("a"), case.user("b"))
    queued = await case.start("r2", case.user("c"), if_busy="queue")
    await case.store.change_queued(queued.id, [case.user("d")])
    await case.settle(first, message=case.answer(first))
    await case.store.update_session(case.id("s"), {"title": "new", "pinned": True}, 8.0)
    await case.store.start_queued(case.id("s"), node_id="k", now=9.0)
    feed = await case.feed()

    assert [
        *("message.added", "message.added", "run.started"),
        *("run.queued", "queue.changed"),
        *("message.added", "run.settled"),
        "session.changed",
        *("message.added", "run.started"),
    ] == types(feed)
    assert list(range(1, len(feed) + 1)) == [entry.n for entry in feed]
    added = [entry.data["message"]["id"] for entry in feed if entry.type == "message.added"]
    assert [case.id(name) for name in ("a", "b", "answer-r1", "d")] == added
    assert {"title": "new", "pinned": True} == feed[7].data
    run_ids = [entry.data["run_id"] for entry in feed if "run_id" in entry.data]
    assert [first.id, queued.id, queued.id, first.id, queued.id] == run_ids


@CHECKS.add
async def the_feed_can_be_read_from_anywhere(case: Case) -> None:
    """In pages, and its numbers continue after the store was closed and reopened."""
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


@CHECKS.add
async def a_place_in_the_feed_has_the_run_that_was_active_there(case: Case) -> None:
    """A reader that resumes continues in this run. A run that was dropped from the queue does not end it."""
    await case.session()
    assert FeedPlace(run_id=None, end=0) == await case.store.feed_place(case.id("s"), 0)
    first = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    await case.store.drop_queued(queued.id, Stopped(by="user"), 8.0)
    await case.settle(first, message=case.answer(first))
    await case.store.update_session(case.id("s"), {"title": "new"}, 9.0)
    second = await case.start("r3", case.user("c"))
    added = ["message.added"]
    expected = [*added, "run.started", "run.queued", "run.settled", *added, "run.settled", "session.changed", *added]
    assert [*expected, "run.started"] == types(await case.feed())

    places = [await case.store.feed_place(case.id("s"), n) for n in range(12)]
    active = [None, None, *[first.id] * 4, None, None, None, *[second.id] * 3]
    assert [FeedPlace(run_id, 9) for run_id in active] == places
    assert await case.store.feed_place(case.id("unknown"), 0) is None


@CHECKS.add
async def a_place_beyond_the_end_of_the_feed_is_its_end(case: Case) -> None:
    """A client may send any number. It has seen all that there is, and not what is still to come."""
    await case.session()
    await case.start("r", case.user("a"))
    end = len(await case.feed())
    reader, far = case.id("reader"), 2**53

    assert FeedPlace(run_id=case.id("r"), end=end) == await case.store.feed_place(case.id("s"), far)
    assert [] == await case.feed(after=far)
    assert await case.store.note_reader(case.id("s"), reader, seen=far, told=far)
    assert not await case.store.note_reader(case.id("s"), reader, seen=far + 1)
    standing = (await case.store.standings(reader, [case.id("s")]))[case.id("s")]
    assert (end, end, end) == (standing.end, standing.seen, standing.told)
