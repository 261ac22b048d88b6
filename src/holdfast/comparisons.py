"""Comparisons: one prompt, several panes, at most one vote. What they are, and what may be done to them when.

A comparison is kept as one document. It alone knows which model speaks in which pane of a blind comparison: the runs
of such a pane bear its label, so that nothing else could tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from .errors import BadRequest, Conflict, NotFound
from .events import Completed, ErrorInfo, Failed, Interrupted, Settlement, Stopped, Usage
from .ids import new_id

DOCUMENT = "comparison"
"""The kind of document that keeps a comparison."""
MOST_PANES = 16

Content = str | list[dict[str, Any]]
Winner = int | Literal["tie", "none"]


# What can stand in the way.


class ComparisonNotFound(NotFound):
    """No such comparison, or it is not yours."""

    code = "comparison_not_found"

    def __init__(self, comparison_id: str) -> None:
        super().__init__(f"There is no comparison {comparison_id!r}.")


class PaneNotFound(NotFound):
    """The comparison has no such pane."""

    code = "pane_not_found"

    def __init__(self, pane: str) -> None:
        super().__init__(f"This comparison has no pane {pane!r}. They are numbered from 0.")


class ComparisonRunning(Conflict):
    """Panes are still answering."""

    code = "comparison_running"

    def __init__(self) -> None:
        super().__init__("Panes of this comparison are still answering. Wait for them, or stop them.")


class AlreadyVoted(Conflict):
    """A vote is final."""

    code = "already_voted"

    def __init__(self) -> None:
        super().__init__("There is a vote on this comparison already, and a vote is final.")


class AlreadyRevealed(Conflict):
    """The names are known: a vote would no longer be a blind one."""

    code = "already_revealed"

    def __init__(self) -> None:
        super().__init__("The models of this blind comparison were revealed without a vote, so it takes none any more.")


class AlreadyDecided(Conflict):
    """The vote was on these answers, so they stay."""

    code = "already_decided"

    def __init__(self) -> None:
        super().__init__("The vote was on these answers, so no pane can answer again. Start a new comparison.")


class StillBlind(Conflict):
    """This would tell which model is in the pane."""

    code = "still_blind"

    def __init__(self) -> None:
        super().__init__("This comparison is still blind. Vote, or reveal its models, first.")


class PaneCannotWin(Conflict):
    """Only an answer that was completed can win."""

    code = "pane_cannot_win"

    def __init__(self, pane: int, outcome: str | None) -> None:
        super().__init__(
            f"Pane {label(pane)} cannot win: its answer did not complete ({outcome}). "
            'Choose another pane, "tie" or "none".'
        )


# What a comparison is.


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs, for each million tokens, in whatever currency the operator counts."""

    input: float = 0.0
    output: float = 0.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a pane's answer, the names and numbers that a blind comparison withholds included."""

    run_id: str | None = None
    """Given before the run starts, so that whatever becomes of the server the run can be found."""
    status: Literal["waiting", "running", "settled"] = "waiting"
    outcome: str | None = None
    by: str | None = None
    finish_reason: str | None = None
    error: ErrorInfo | None = None
    ttft_ms: float | None = None
    """From the moment the model was asked to the first of its text, reasoning or tool call."""
    duration_ms: float | None = None
    tokens_per_second: float | None = None
    """Output tokens over the time from the first to the last; None where all of it came at once."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    usage_source: str | None = None
    cost: float | None = None


class Pane(Answer, frozen=True, kw_only=True):
    """One model, its own session, and its answer to the last turn; after the vote, to the turn that was voted on."""

    pane: int
    model: str
    session_id: str
    left: tuple[str, ...] = ()
    """The sessions of models that were in this pane before: each has one of its own, which begins empty."""
    later: Answer | None = None
    """The answer to a turn that came after the vote: what was voted on stays as it was."""

    @property
    def latest(self) -> Answer:
        """The answer to the last turn."""
        return self.later or self


class Vote(msgspec.Struct, frozen=True):
    """Who was preferred: a pane, all the same, or nobody."""

    winner: Winner
    at: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, or several in turn, and the panes that answer."""

    id: str
    owner: str
    prompts: tuple[Content, ...]
    panes: tuple[Pane, ...]
    system: str | None = None
    params: dict[str, Any] = {}
    blind: bool = False
    order: Literal["parallel", "sequential"] = "parallel"
    kind: str = "general"
    timeout: float | None = None
    status: Literal["running", "settled"] = "running"
    created_at: float = 0.0
    settled_at: float | None = None
    revealed_at: float | None = None
    vote: Vote | None = None
    blind_runs: dict[str, str] = {}
    """Which model answers in each run that bears a blind name, for when it may be known."""
    key: str | None = None
    """Where the idempotency key is kept that it was made with."""

    @property
    def is_revealed(self) -> bool:
        """Whether everybody may know which model is in which pane."""
        return not self.blind or self.revealed_at is not None

    @property
    def turns(self) -> int:
        """How many prompts there were so far."""
        return len(self.prompts)

    def pane(self, number: str) -> Pane:
        """Return the pane that a path names."""
        if not (number.isascii() and number.isdigit() and len(number) < 4 and int(number) < len(self.panes)):
            raise PaneNotFound(number)
        return self.panes[int(number)]


def from_body(body: Mapping[str, Any]) -> Comparison:
    """Return a comparison from the body of its document."""
    return msgspec.convert(body, Comparison)


def to_body(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as the body of its document."""
    body: dict[str, Any] = msgspec.to_builtins(comparison)
    return body


def label(pane: int) -> str:
    """Return a pane's letter."""
    return "ABCDEFGHIJKLMNOP"[pane]


def masked(pane: int) -> str:
    """Return the name under which a model answers in a pane of a blind comparison."""
    return f"blind/{label(pane)}"


# What may be done to it. Each returns the comparison as it is afterwards, or says what stands in the way.


def asked(comparison: Comparison, prompt: Content) -> Comparison:
    """Let every pane answer one more prompt."""
    return _begun(replace(comparison, prompts=(*comparison.prompts, prompt)), range(len(comparison.panes)))


def asked_again(comparison: Comparison, pane: int) -> Comparison:
    """Let one pane answer its last prompt again."""
    if comparison.vote is not None:
        raise AlreadyDecided
    return _begun(comparison, [pane])


def swapped(comparison: Comparison, pane: int, model: str) -> Comparison:
    """Let another model answer in a pane."""
    if not comparison.is_revealed:
        raise StillBlind
    after = asked_again(comparison, pane)
    there = after.panes[pane]
    left = (*there.left, there.session_id)
    return _with_pane(after, replace(there, model=model, session_id=new_id("ses"), left=left))


def _begun(comparison: Comparison, panes: Sequence[int]) -> Comparison:
    if comparison.status == "running":
        raise ComparisonRunning
    for pane in panes:
        comparison = answered(comparison, pane, Answer(run_id=new_id("run")))
    return noted_if_blind(replace(comparison, status="running", settled_at=None))


def noted_if_blind(comparison: Comparison) -> Comparison:
    """Note which model answers in which run while the runs may not say it: a pane may have another model later."""
    if comparison.is_revealed:
        return comparison
    now = {pane.latest.run_id: pane.model for pane in comparison.panes if pane.latest.run_id is not None}
    return replace(comparison, blind_runs={**comparison.blind_runs, **now})


def answered(comparison: Comparison, pane: int, answer: Answer) -> Comparison:
    """Note how a pane is getting on. What was voted on is not touched by what comes later."""
    before = comparison.panes[pane]
    if comparison.vote is not None:
        return _with_pane(comparison, replace(before, later=answer))
    return _with_pane(comparison, replace(before, **msgspec.structs.asdict(answer)))


def _with_pane(comparison: Comparison, pane: Pane) -> Comparison:
    panes = [pane if each.pane == pane.pane else each for each in comparison.panes]
    return replace(comparison, panes=tuple(panes))


def settled(comparison: Comparison, now: float) -> Comparison:
    """Note that no pane answers any more."""
    return replace(comparison, status="settled", settled_at=now)


def voted(comparison: Comparison, winner: Winner, now: float) -> Comparison:
    """Take a vote. It is the only one, and it reveals the models."""
    if comparison.vote is not None:
        raise AlreadyVoted
    if comparison.status == "running":
        raise ComparisonRunning
    if comparison.blind and comparison.revealed_at is not None:
        raise AlreadyRevealed
    if isinstance(winner, int):
        _check_can_win(comparison, winner)
    return replace(revealed(comparison, now), vote=Vote(winner, now))


def _check_can_win(comparison: Comparison, winner: int) -> None:
    if not 0 <= winner < len(comparison.panes):
        raise BadRequest(f"winner is a pane from 0 to {len(comparison.panes) - 1}, tie or none.", param="winner")
    outcome = comparison.panes[winner].outcome
    if outcome != "completed":
        raise PaneCannotWin(winner, outcome)


def revealed(comparison: Comparison, now: float) -> Comparison:
    """Let everybody know the models. Twice is harmless."""
    return comparison if comparison.revealed_at is not None else replace(comparison, revealed_at=now)


# What is said of answers.


def fastest(comparison: Comparison) -> int | None:
    """Return the pane whose first word came soonest among those that completed; None where fewer than two did."""
    completed = [pane for pane in comparison.panes if pane.latest.outcome == "completed"]
    timed = [(pane.latest.ttft_ms, pane.pane) for pane in completed if pane.latest.ttft_ms is not None]
    return min(timed)[1] if len(completed) > 1 and timed and comparison.status == "settled" else None


def cost(price: Price | None, usage: Usage) -> float | None:
    """Return what an answer cost; None where nobody said what its model costs."""
    if price is None:
        return None
    return (usage.input_tokens * price.input + usage.output_tokens * price.output) / 1_000_000


def settlement_of(answer: Answer) -> Settlement:
    """Return how a pane ended that was never asked, or whose run is gone."""
    match answer.outcome:
        case "stopped":
            return Stopped(by=answer.by or "user")  # type: ignore[arg-type]
        case "failed":
            return Failed(error=answer.error or ErrorInfo("internal_error", "This pane could not start."))
        case "completed":
            return Completed(finish_reason=answer.finish_reason)
        case _:
            return Interrupted()
