"""The promises, judged from the facts after the last task has gone quiet.

Nothing here looks at how the engine works: it compares what callers and subscribers were told with what the sources
really did and with what the store holds in the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.events import (
    FAILED,
    TRUNCATED,
    AnySettlement,
    Completed,
    Event,
    Failed,
    Interrupted,
    Notice,
    Reasoning,
    RunStarted,
    Settled,
    Stopped,
    Text,
    ToolCall,
    Truncated,
    Usage,
)
from holdfast.history import Message
from holdfast.nodes.intents import LOOK as LOOK_AGAIN
from holdfast.store import RunRecord

from .history import Ask, RunFacts, SendFacts, SourceFacts, Stopping
from .scenario import GRACE, LEASE
from .sources import events
from .store import peek

if TYPE_CHECKING:
    from .world import World


def check(world: World) -> list[str]:
    """Return every broken promise of a schedule."""
    found: list[str] = []
    for run in world.history.runs.values():
        found += world.check_of(run)(world, run).check()
    for number in range(world.scenario.sessions):
        found += _check_session(world, f"ses_{number}")
    for send in world.history.sends:
        found += _check_send(world, send)
    found += _check_stoppings(world)
    found += _check_left_behind(world)
    return found


class RunCheck:
    """What must be true of one run."""

    def __init__(self, world: World, run: RunFacts) -> None:
        self.world = world
        self.run = run
        self.found: list[str] = []
        self.record: RunRecord | None = peek(world.medium.get_run(run.id)) if run.kept else None
        self.log: list[Event] = []
        self.trimmed = 0
        self.settlement: AnySettlement | None = None

    def violate(self, text: str) -> None:
        self.found.append(f"{self.run.id}: {text}")

    def check(self) -> list[str]:
        if self.run.session_id not in self.world.history.deleted and self._exists():
            self._check_log()
            self._check_owner()
            self._check_views()
            if self.settlement is not None:
                self._check_told()
                if not self.trimmed:
                    self._check_words()
                self._check_truth(self.settlement)
                self._check_hook(self.settlement)
        self._check_sources()
        return self.found

    def _exists(self) -> bool:
        """Tell whether the run was started, and find what is left of it."""
        run = self.run
        if run.kept and self.record is not None:
            self.log = peek(self.world.medium.read_log(run.id, 0, 1_000_000))
            self.settlement = self.record.settlement
        elif run.kept and run.accepted is not None:
            self.violate("it was accepted, and the store has lost it")
        elif not run.kept and run.run is not None:
            self.trimmed = run.run.log.oldest - 1
            self.log = all_of(run.run.log, self.trimmed)
            self.settlement = run.run.settlement
        return bool(self.log) or self.record is not None or (not run.kept and run.accepted is not None)

    def _died_with_its_process(self) -> bool:
        return not self.run.kept and any(server.crashed for server in self.run.processes)  # type: ignore[attr-defined]

    # the log

    def _check_log(self) -> None:
        settled = [event for event in self.log if isinstance(event, Settled)]
        if self.settlement is None or (self.record is not None and self.record.status != "settled"):
            if not self._died_with_its_process():
                self.violate("it was never settled")
        elif len(settled) != 1:
            self.violate(f"it was settled {len(settled)} times")
        elif self.log[-1] != Settled(self.settlement):
            self.violate("something follows its settlement")
        if self.record is not None and self.record.seq != len(self.log):
            self.violate("its record and its log differ in length")
        if any(isinstance(event, RunStarted) for event in self.log[1:]):
            self.violate("it has begun twice")

    def _check_views(self) -> None:
        for view in self.run.views:
            seen = [event for _, event in view.shown[self.trimmed :]]
            numbers = [seq for seq, _ in view.shown]
            if numbers != sorted(set(numbers)):
                self.violate(f"a subscriber saw events again: {numbers}")
            elif numbers != list(range(1, len(numbers) + 1)):
                self.violate(f"a subscriber missed events: {numbers}")
            elif seen != self.log[: len(seen)]:
                self.violate("a subscriber saw something else than the log has")
            elif not view.gave_up and not view.refused and len(seen) != len(self.log):
                self.violate("a subscriber did not see the end")

    def _check_told(self) -> None:
        for _, told in self.run.told:
            if told != self.settlement:
                self.violate(f"a caller was told {told}, and it is {self.settlement}")

    # the words

    def _source(self) -> SourceFacts | None:
        """Return the source that was consumed: the last that went on, where another process has taken the run over."""
        entered = [source for source in self.run.sources if source.entered is not None]
        resumed = [source for source in entered if source.after is not None]
        return resumed[-1] if resumed else entered[0] if entered else None

    def _asks(self) -> list[Ask]:
        in_session = self.world.history.session_asks.get(self.run.session_id or "", ())
        return self.run.asks + [ask for ask in in_session if ask.asker != self.run.id]

    def _check_words(self) -> None:
        assert self.settlement is not None
        text = "".join(event.text for event in self.log if isinstance(event, Text) and event.choice == 0)
        if text != self.settlement.text:
            self.violate(f"its log says {text!r}, its settlement {self.settlement.text!r}")
        self._check_usage(self.settlement)
        source = self._source()
        yielded = list(_events(source)) if source is not None else []
        logged = [event for event in self.log if not is_ours(event)]
        before = 0 if source is None else source.after or 0
        planned = [event for _, item in self.run.send.plan.source.items for event in events(item)]
        if (
            logged[before:] != [event for _, event in yielded[: len(logged[before:])]]
            or logged[:before] != planned[:before]
        ):
            self.violate("its log is not what its source yielded")
        elif len(logged) < before + self._least(source, yielded):
            self.violate(f"it lost words: {len(logged)} of {before + len(yielded)} events are in its log")

    def _check_usage(self, settlement: AnySettlement) -> None:
        """The provider's last count stands, with an estimate of what an answer without an end has said after it."""
        counts = [place for place, event in enumerate(self.log) if isinstance(event, Usage)]
        if not counts or settlement.usage == self.log[counts[-1]]:
            return
        counted, later = self.log[counts[-1]], self.log[counts[-1] + 1 :]
        is_cut = not isinstance(settlement, Completed | Truncated) or not counted.output_tokens
        is_more = settlement.usage.output_tokens > counted.output_tokens
        if not (is_cut and is_more and any(isinstance(event, Text | Reasoning | ToolCall) for event in later)):
            self.violate("its usage is not what the provider counted")

    def _least(self, source: SourceFacts | None, yielded: list[tuple[int, Event]]) -> int:
        """Return how many events must be in the log: all that came before anyone asked for an end."""
        if source is None or isinstance(self.settlement, Interrupted) or self._was_taken_over(source):
            return 0
        ends = [ask.step for ask in self._asks()] + [step for step, _ in source.cancels]
        return sum(step < min(ends, default=step + 1) for step, _ in yielded)

    # the truth

    def _check_truth(self, settlement: AnySettlement) -> None:
        problem = self._TRUTH[type(settlement)](self, settlement)
        if problem:
            self.violate(f"it is called {settlement.outcome}, {problem}")

    def _completed(self, settlement: Completed) -> str:
        source = self._source()
        if source is None:
            return "and its source never began"
        if self._broke(source):
            return "and its source raised"
        if source.said is not None:
            return "" if _as_said(source) is Completed else f"and its source said {source.said[1].reason}"
        if source.how != "returned" or source.cancels:
            return f"and its source was {source.how or 'still going on'}"
        return ""

    def _truncated(self, settlement: Truncated) -> str:
        source = self._source()
        if source is None or _as_said(source) is not Truncated:
            return "and its source did not say so"
        return "and its source raised" if self._broke(source) else ""

    def _broke(self, source: SourceFacts) -> bool:
        """Tell whether a source raised before anyone asked for an end, in the process that the run belonged to."""
        if not source.broke or self._was_taken_over(source):
            return False
        return all(source.ended is not None and source.ended < ask.step for ask in self._asks())

    def _stopped(self, settlement: Stopped) -> str:
        asks, source = self._asks(), self._source()
        if settlement.by not in {ask.by for ask in asks}:
            return f"and nobody ({settlement.by}) asked for it"
        if source is not None and self._was_taken_over(source):
            return ""
        first = min(ask.step for ask in asks)
        if source is not None and source.said is not None and source.said[0] < first:
            return "and its source had said before how it ended"
        clear = source is not None and source.plan.end != "cancels itself"  # that looks like being cancelled
        if source is not None and clear and source.ended is not None and source.ended < first:
            return f"and its source had {source.how} before"
        return self._check_receipt(settlement, source)

    def _check_receipt(self, settlement: Stopped, source: SourceFacts | None) -> str:
        receipt = settlement.receipt
        if receipt is None or source is None or self.world.jumps:
            return ""
        if source.plan.shape == "iterator without aclose":
            return ""
        closed = receipt.upstream_closed_at
        if closed is None and source.closed_at is not None and source.closed_at < receipt.settled_at:
            return "and says that its source was not closed: it was"
        if closed is not None and (source.closed_at is None or source.closed_at > closed):
            return f"and says that its source was closed at {closed}: it was not"
        return ""

    def _failed(self, settlement: Failed) -> str:
        source, code = self._source(), settlement.error.code
        if code == "upstream_stalled":
            return self._stalled(source)
        if code == "deadline_exceeded":
            return "" if self.world.scenario.limits.deadline is not None else "and it had no deadline"
        if code == "store_unavailable":
            return "" if self.run.unsure and source is None else "and the store did take it"
        if code == "owner_silent":  # it was to interrupt a run whose node did not answer
            return "" if source is None and self.run.send.plan.if_busy == "interrupt" else "and it interrupted nothing"
        if source is None:
            return "" if self.run.send.plan.source.shape == "cannot be made" else "and its source never began"
        if stranger := self._stranger(settlement, source):
            return f"and its source did not raise {stranger}"
        if source.how == "raised" or "nonsense" in source.plan.end or _as_said(source) is Failed:
            return ""
        return f"({code}) and its source {source.how}"

    def _stranger(self, settlement: Failed, source: SourceFacts) -> str:
        """Return the name of an error that the source cannot have raised: the engine did."""
        named = re.search(r"failed with (\w+)", settlement.error.message)
        expected = {"Boom", "TypeError"} if "nonsense" in source.plan.end else {"Boom"}
        return named[1] if named is not None and named[1] not in expected else ""

    def _stalled(self, source: SourceFacts | None) -> str:
        idle = self.world.scenario.limits.idle
        if source is None or not source.cancels or idle is None or self._was_taken_over(source):
            return ""
        last = source.last_yield
        return "and its source was not silent" if last is not None and source.cancels[0][1] - last < idle - 1e-6 else ""

    def _interrupted(self, settlement: Interrupted) -> str:
        return "" if self.record is not None and self.record.epoch > 1 else "and nobody has taken it over"

    def _was_taken_over(self, source: SourceFacts) -> bool:
        """Tell whether a source may have lost its run: to another process, or with its own."""
        return (self.record is not None and self.record.epoch > 1) or self.world.was_lost(source)

    def _check_owner(self) -> None:
        """A process loses its runs only if its lease could end."""
        epochs = 0 if self.record is None else self.record.epoch - 1
        lost = sum(map(self.world.losses, self.world.servers))
        if epochs and not any(map(self.world.losses, self.run.processes)):
            self.violate("it was taken over from a living process")
        if epochs > lost:
            self.violate(f"it was taken over {epochs} times, and servers were in trouble {lost} times")

    def _check_hook(self, settlement: AnySettlement) -> None:
        calls = len(self.run.hooks)
        began = self.trimmed > 0 or any(isinstance(event, RunStarted) for event in self.log)
        if calls > 1:
            self.violate(f"its interrupt hook was called {calls} times")
        elif not calls and isinstance(settlement, Stopped) and began and self._keeps_its_hook():
            self.violate("it was stopped, and its interrupt hook was not called")

    def _keeps_its_hook(self) -> bool:
        """A hook lives in the process that was given it, and is lost where its caller was told that nothing started."""
        moved = len(self.run.processes) > 1
        return self.run.hooked and not self.run.unsure and not self.world.disturbed and not moved

    # the sources

    def _check_sources(self) -> None:
        entered = [source for source in self.run.sources if source.entered is not None and source.after is None]
        if len(entered) > 1:
            self.violate(f"{len(entered)} sources were consumed for it")
        for source in self.run.sources:
            if len(source.cancels) > 1:
                self.violate(f"its source was cancelled {len(source.cancels)} times")
            if not self.world.may_linger(source):
                self._check_closed(source)

    def _check_closed(self, source: SourceFacts) -> None:
        if source.entered is not None and source.ended is None:
            self.violate("its source was left open")
        elif source.plan.shape == "iterator" and not source.closes and self.run.accepted is not None:
            self.violate("its source was never closed")

    _TRUTH: ClassVar[dict[type, Any]] = {
        Completed: _completed,
        Truncated: _truncated,
        Stopped: _stopped,
        Failed: _failed,
        Interrupted: _interrupted,
    }


def all_of(log: Any, after: int) -> list[Event]:
    """Return all that can be read of a log in memory."""
    events: list[Event] = []
    while found := log.slice(after + len(events)):
        events += found
    return events


def is_ours(event: Event) -> bool:
    """Tell whether an event comes from the engine, not from a source."""
    return isinstance(event, (RunStarted, Settled)) or (isinstance(event, Notice) and event.code == "resumed")


def _as_said(source: SourceFacts) -> type | None:
    """Return the outcome that a source's own words amount to."""
    if source.said is None:
        return None
    reason = source.said[1].reason
    return Failed if reason in FAILED else Truncated if reason in TRUNCATED else Completed


def _events(source: SourceFacts) -> Iterator[tuple[int, Event]]:
    """Yield the events of what a source yielded, with their steps."""
    for step, _, item in source.yielded:
        for event in events(item):
            yield step, event


# sessions


def _check_session(world: World, session_id: str) -> Iterator[str]:
    """Yield what is wrong in a session: each message once, in order, each answer right after what it answers."""
    if session_id in world.history.deleted:
        return
    messages: list[Message] = peek(world.medium.messages(session_id))
    runs = [run for run in world.history.runs.values() if run.session_id == session_id]
    records = {run.id: peek(world.medium.get_run(run.id)) for run in runs}
    withdrawn = {run_id.replace("run", "usr") for run_id, record in records.items() if _is_withdrawn(record)}
    shown = [message for message in messages if message.id not in withdrawn]
    yield from _check_chain(session_id, shown, peek(world.medium.get_session(session_id)).head_id)
    for run in runs:
        record = records[run.id]
        if record is not None and record.settlement is not None:
            log = peek(world.medium.read_log(run.id, 0, 1_000_000))
            yield from _check_messages(run, record, record.settlement, log, messages)
    yield from _check_feed(world, session_id)


def _is_withdrawn(record: RunRecord | None) -> bool:
    """Whether a run did not start for its caller, who was told so: what was asked is not shown, and is asked again."""
    ended = None if record is None else record.settlement
    return isinstance(ended, Failed) and record.seq == 1 and ended.error.code == "store_unavailable"


def _check_chain(session_id: str, messages: Sequence[Message], head_id: str | None) -> Iterator[str]:
    ids = [None, *(message.id for message in messages)]
    if len(set(ids)) != len(ids):
        yield f"{session_id}: a message is there twice: {ids}"
    if [message.parent_id for message in messages] != ids[:-1] or head_id != ids[-1]:
        yield f"{session_id}: its messages do not follow one another: {ids}"


def _check_messages(
    run: RunFacts, record: RunRecord, settlement: AnySettlement, log: Sequence[Event], messages: Sequence[Message]
) -> Iterator[str]:
    asked = [at for at, message in enumerate(messages) if message.id == run.id.replace("run", "usr")]
    answers = [at for at, message in enumerate(messages) if message.run_id == run.id]
    started = record.started_at is not None
    if len(asked) != started:
        yield f"{run.id}: its user's message is there {len(asked)} times"
    completed = isinstance(settlement, Completed)
    calls = (completed or run.send.plan.tools) and any(isinstance(event, ToolCall) for event in log)
    if len(answers) != bool(settlement.text or calls):
        yield f"{run.id}: its answer {settlement.text!r} is there {len(answers)} times"
    for at in answers:
        answer = messages[at]
        if answer.content != settlement.text or answer.partial is completed or answer.outcome != settlement.outcome:
            yield f"{run.id}: its answer {answer.content!r} ({answer.outcome}) is not {settlement}"
        if at == 0 or messages[at - 1].id != run.id.replace("run", "usr"):
            yield f"{run.id}: its answer does not follow its question"


def _check_feed(world: World, session_id: str) -> Iterator[str]:
    feed = peek(world.medium.read_feed(session_id, 0, 1_000_000))
    if [entry.n for entry in feed] != list(range(1, len(feed) + 1)):
        yield f"{session_id}: its feed has gaps"
    seen = Counter((entry.type, entry.data["run_id"]) for entry in feed if entry.type in ("run.settled", "run.started"))
    yield from (f"{run_id}: the feed says {count} times {kind}" for (kind, run_id), count in seen.items() if count > 1)


# requests


def _check_send(world: World, send: SendFacts) -> Iterator[str]:
    """One idempotency key is one run, however often it is sent. A start that was refused has freed its key.

    A caller at another node may have been told of it before: it sees that run fail, and can repeat.
    """
    if send.key is None:
        return
    made = [run.id for run in send.runs if is_accepted(peek(world.medium.get_run(run.id)))]
    told = {run_id for run_id in send.told if is_accepted(peek(world.medium.get_run(run_id)))}
    consumed = [source for run in send.runs for source in run.sources if source.after is None]
    called = sum(source.entered is not None for source in consumed)
    if len(made) > 1 or len(told) > 1:
        yield f"{send.key}: one key made {made}, callers were told {send.told}"
    if called > 1:
        yield f"{send.key}: {called} sources were consumed for one key"


def is_accepted(record: RunRecord | None) -> bool:
    """Tell whether a run counts for its key: one that was refused has freed it."""
    if record is None or not isinstance(record.settlement, Failed):
        return record is not None
    return record.seq > 1 or record.settlement.error.code not in ("store_unavailable", "owner_silent")


def _check_stoppings(world: World) -> Iterator[str]:
    """A stop returns soon: the grace of the source, and the time that the store takes."""
    slow = max(0.0, *world.scenario.weather.delays)
    elsewhere = LEASE / 3 + LOOK_AGAIN if world.scenario.nodes > 1 else 0.0  # a lost hint costs one look
    for stopping in [*world.history.stoppings, *_ends_of_left_runs(world)]:
        took = (stopping.ended or 0.0) - stopping.began
        if stopping.calm and took > 2 * GRACE + 20 * slow + 0.1 + elsewhere:
            yield f"{stopping.what} took {took} s"


def _ends_of_left_runs(world: World) -> Iterator[Stopping]:
    """Yield when the attached runs ended whose client left before it knew of them."""
    for run_id, stopping in world.history.left.items():
        record = peek(world.medium.get_run(run_id))
        if record is not None and record.settled_at is not None:
            stopping.ended = record.settled_at - world.clock() + world.loop.time()
            stopping.calm = not (world.jumps or world.disturbed or world.store_was_away_since(stopping.began))
            yield stopping


def _check_left_behind(world: World) -> Iterator[str]:
    """No task is left when an engine has closed, and no error was lost."""
    lingering = any(world.lingers(source) for run in world.history.runs.values() for source in run.sources)
    for task, number in world.loop.tasks.items():
        process: Any = world.loop.processes[task]
        name = task.get_coro().__qualname__  # type: ignore[union-attr]
        if process is None or name.startswith("World."):
            continue  # a client who waits for ever is told of elsewhere
        if not task.done():
            if number <= process.closed and not (lingering and name == "Pump.read"):
                yield f"a task is left behind: {name}"
        elif not process.crashed and not task.cancelled() and task._log_traceback:  # type: ignore[attr-defined]
            yield f"nobody asked for {task.exception()!r} of {name}"
    for error in world.loop.errors:
        yield f"the loop got {error}"
