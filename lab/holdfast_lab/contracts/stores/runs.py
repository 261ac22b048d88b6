"""Starting and settling runs."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from holdfast.asks import ProgramAsk
from holdfast.errors import (
    Conflict,
    IdempotencyConflict,
    LogBehind,
    MessageNotFound,
    SessionBusy,
    SessionNotFound,
    StaleView,
)
from holdfast.events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Failed,
    Interrupted,
    Receipt,
    Settled,
    Stopped,
    Text,
    ToolCall,
    Truncated,
    Usage,
)
from holdfast.history import Message
from holdfast.ids import ModelName
from holdfast.store import HEAD, RunRecord

from .case import Case, Checks, raised, types

CHECKS = Checks()


# starting a run


@CHECKS.add
async def a_run_is_kept_as_it_was_given(case: Case) -> None:
    """A record comes back with every field."""
    record = RunRecord(
        id=case.id("r"),
        owner=case.owner,
        model=ModelName("up/m"),
        asked="m",
        kind="agent",
        lifetime="attached",
        node_id="k",
        ask=ProgramAsk(data={"nested": {"list": [1, 2.5, None, True, "ü"]}}),
        created_at=1.25,
        started_at=1.5,
    )

    assert record == await case.store.create_run(record)
    assert record == await case.store.get_run(record.id)
    assert await case.store.get_run(case.id("unknown")) is None


@CHECKS.add
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


@CHECKS.add
async def an_edit_adds_a_sibling_and_moves_the_head_there(case: Case) -> None:
    """`parent` names an older message, and the messages after it are kept."""
    await case.session()
    first = await case.start("r1", case.user("a"))
    await case.settle(first, message=case.answer(first))
    edit = await case.start("r2", case.user("b"), parent=case.id("a"))
    await case.settle(edit)
    anew = await case.start("r3", case.user("c"), parent=None)

    assert [None, case.id("a"), case.id("a"), None] == [parent for _, parent in await case.transcript()]
    assert case.id("b") == edit.parent_id
    assert case.id("c") == anew.parent_id == await case.head()


@CHECKS.add
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


@CHECKS.add
async def a_run_that_goes_on_with_a_message_changes_it_and_adds_none(case: Case) -> None:
    """An answer that was cut off and continued is one message in its old place; search finds what was added."""
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
    assert ["run.started", "message.changed", "run.settled"] == types(await case.feed())[-3:]
    assert [case.id("s")] == [found.id for found in await case.store.list_sessions(case.owner, query="finished")]


@CHECKS.add
async def an_unknown_parent_is_refused_and_nothing_is_written(case: Case) -> None:
    """A message of another session is unknown too."""
    await case.session("other")
    await case.start("r0", case.user("elsewhere"), session="other")
    await case.session()
    before = await case.everything()

    await raised(MessageNotFound, case.start("r1", case.user("a"), parent=case.id("elsewhere")))
    assert before == await case.everything()
    assert await case.store.get_run(case.id("r1")) is None


@CHECKS.add
async def a_caller_who_saw_another_head_is_refused(case: Case) -> None:
    """`expect_head` is the id of the head, or HEAD for any; None is that of an empty session."""
    await case.session()
    await case.settle(await case.start("r1", case.user("a"), expect_head=None))
    before = await case.everything()

    await raised(StaleView, case.start("r2", case.user("b"), expect_head=None))
    await raised(StaleView, case.start("r2", case.user("b"), expect_head=case.id("gone")))
    assert before == await case.everything()
    await case.settle(await case.start("r3", case.user("c"), expect_head=case.id("a")))
    await case.start("r4", case.user("d"), expect_head=HEAD)
    assert case.id("d") == await case.head()


@CHECKS.add
async def a_run_in_a_session_that_is_not_there_is_refused(case: Case) -> None:
    """Nothing is stored, not even its idempotency key."""
    await raised(SessionNotFound, case.start("r1", case.user("a"), idempotency=case.key("k")))

    assert await case.store.get_run(case.id("r1")) is None
    assert await case.store.find_repeated(case.key("k")) is None


@CHECKS.add
async def a_message_id_stands_for_one_message_of_its_session(case: Case) -> None:
    """A message with the id of another one, or of a queued one, would replace it."""
    await case.session()
    await case.start("r1", case.user("a"))
    await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    for name in ("a", "b"):
        await raised(Conflict, case.start("r3", case.user(name, "other"), if_busy="queue"))
    await raised(Conflict, case.start("r3", case.user("c"), case.user("c"), if_busy="queue"))
    assert before == await case.everything()


@CHECKS.add
async def a_title_comes_from_the_first_user_message(case: Case) -> None:
    """Of parts only the text counts; an existing title stays."""
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


# repeated starts


@CHECKS.add
async def an_idempotency_key_starts_one_run(case: Case) -> None:
    """A repeated key returns the first record, even with another id, and adds nothing; also after a restart."""
    await case.session()
    run = await case.start("r1", case.user("a"), idempotency=case.key("k"))
    before = await case.everything()

    assert run == await case.start("r2", case.user("b"), idempotency=case.key("k"))
    await case.reopen()
    assert run == await case.start("r3", case.user("c"), idempotency=case.key("k"))
    assert run == await case.store.find_repeated(case.key("k"))
    assert before == await case.everything()


@CHECKS.add
async def an_idempotency_key_belongs_to_its_owner_and_its_request(case: Case) -> None:
    """Another request with the key is a conflict; another owner's key is another key."""
    await case.start("r1", session=None, idempotency=case.key("k"))
    foreign = replace(case.key("k"), owner=case.id("stranger"))

    await raised(IdempotencyConflict, case.start("r2", session=None, idempotency=case.key("k", digest="other")))
    await raised(IdempotencyConflict, case.store.find_repeated(case.key("k", digest="other")))
    assert await case.store.find_repeated(foreign) is None
    assert case.id("r3") == (await case.start("r3", session=None, idempotency=foreign)).id


@CHECKS.add
async def a_refused_start_leaves_no_key(case: Case) -> None:
    """A retry of the same request, when the session is free, starts a run."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    await raised(SessionBusy, case.start("r2", case.user("b"), idempotency=case.key("k")))

    assert await case.store.find_repeated(case.key("k")) is None
    await case.settle(running)
    assert case.id("r2") == (await case.start("r2", case.user("b"), idempotency=case.key("k"))).id


@CHECKS.add
async def a_start_that_is_repeated_changes_nothing(case: Case) -> None:
    """The caller may not know whether it took effect. A queued or settled run is returned unchanged."""
    await case.session()
    running = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    assert running == await case.start("r1", case.user("a"))
    assert queued == await case.start("r2", case.user("b"), if_busy="queue")
    assert before == await case.everything()
    await case.settle(running)
    assert "settled" == (await case.start("r1", case.user("a"))).status


# settling


@CHECKS.add
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


@CHECKS.add
async def the_first_settlement_stands(case: Case) -> None:
    """Compare-and-set: a later caller gets the stored settlement, and changes nothing."""
    await case.session()
    run = await case.start("r", case.user("a"))
    first = Stopped(text="hi", by="user")
    assert first == await case.settle(run, first, message=case.answer(run))
    before = await case.everything()

    assert first == await case.settle(run, first, message=case.answer(run))
    assert first == await case.settle(run, Completed(text="all"), seq=1, message=case.answer(run, "all"), now=10.0)
    assert first == await case.settle(run, Completed(text="all"), seq=7)
    assert before == await case.everything()


@CHECKS.add
async def of_many_settlements_at_once_one_stands(case: Case) -> None:
    """Fifty stops at once give one settlement, and all callers get the same."""
    await case.session()
    run = await case.start("r", case.user("a"))
    endings = [Stopped(text=str(n), by="user") for n in range(50)]
    standing = await asyncio.gather(*(case.settle(run, ending, message=case.answer(run)) for ending in endings))

    assert standing[0] in endings
    assert [standing[0]] * 50 == standing
    (settled,) = await case.store.read_log(run.id, 0)
    assert isinstance(settled, Settled)
    assert standing[0] == settled.settlement
    assert 2 == len(await case.store.messages(case.id("s")))


@CHECKS.add
async def another_epoch_cannot_settle(case: Case) -> None:
    """Nor can a run be settled that does not exist, or is queued."""
    await case.session()
    run = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    before = await case.everything()

    assert await case.settle(replace(run, epoch=2), message=case.answer(run)) is None
    assert await case.settle(queued, message=case.answer(queued)) is None
    assert await case.settle(case.record("unknown")) is None
    assert before == await case.everything()


@CHECKS.add
async def a_settlement_comes_right_after_the_last_event(case: Case) -> None:
    """Any other number would leave a gap or overwrite an event: the error has the end of the log."""
    run = await case.start("r", session=None)
    await case.append(run, 1, Text("a"))

    for seq in (1, 3):
        assert 1 == (await raised(LogBehind, case.settle(run, seq=seq))).end
    assert [Text("a")] == await case.store.read_log(run.id, 0)


@CHECKS.add
async def an_answer_follows_what_it_answers(case: Case) -> None:
    """It becomes the head only if the head has not moved in the meantime."""
    await case.session()
    first = await case.start("r1", case.user("a"))
    await case.settle(first, message=case.answer(first))
    second = await case.start("r2", case.user("b"))
    await case.store.update_session(case.id("s"), {"head_id": case.id("answer-r1")}, 8.0)
    await case.settle(second, message=replace(case.answer(second), parent_id=case.id("a")))

    assert (case.id("answer-r2"), case.id("b")) == (await case.transcript())[-1]
    assert case.id("answer-r1") == await case.head()


@CHECKS.add
async def a_run_that_showed_nothing_leaves_no_message(case: Case) -> None:
    """The user's message stays, and stays the head."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.settle(run, Stopped(by="user"))

    assert [(case.id("a"), None)] == await case.transcript()
    assert case.id("a") == await case.head()
    assert ["message.added", "run.started", "run.settled"] == types(await case.feed())


@CHECKS.add
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
        model=ModelName("up/m"),
        partial=True,
        outcome="stopped",
        reasoning="why",
        tool_calls=(ToolCall("c", "f", "{}"),),
        created_at=2.5,
    )
    await case.settle(run, message=answer)

    expected = [question, replace(tool, parent_id=question.id), replace(answer, parent_id=tool.id)]
    assert expected == await case.store.messages(case.id("s"))


# lists of runs


@CHECKS.add
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
    assert ["r3"] == await names(prefix=case.id("r3")[:-1])
    assert ["r9", "r7"] == await names(prefix="r", status="running")
    assert [] == await names(prefix="R") == await names(prefix="%") == await names(prefix="_")
    assert [] == await names(before=case.id("unknown"))
    assert [] == await names(limit=0)
    assert [] == await names(session_id=case.id("unknown"))
