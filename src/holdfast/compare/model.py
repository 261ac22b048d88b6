"""Comparisons: one prompt, several panes, at most one vote; and the rules of what may be done when.

A comparison is stored as one document. Only that document has the models of a blind comparison: the runs of its panes
have labels in place of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..access import Payer
from ..errors import BadRequest, Conflict, NotFound
from ..events import (
    Completed,
    ErrorInfo,
    Failed,
    Interrupted,
    Outcome,
    Settlement,
    Stopped,
    StoppedBy,
    UsageSource,
)
from ..ids import BLIND, ModelName, full_name, new_id

DOCUMENT = "comparison"
"""The kind of document that keeps a comparison."""
MOST_PANES = 16

PromptContent = str | list[dict[str, Any]]
Winner = int | Literal["tie", "none"]


# Refusals.


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
    message = "Panes of this comparison are still answering. Wait for them, or stop them."


class AlreadyVoted(Conflict):
    """A vote is final."""

    code = "already_voted"
    message = "This comparison already has a vote, and a vote is final."


class AlreadyRevealed(Conflict):
    """The models are revealed: a vote would not be blind."""

    code = "already_revealed"
    message = "The models of this blind comparison were revealed without a vote, so it accepts no vote any more."


class AlreadyDecided(Conflict):
    """The answers that were voted on cannot be changed."""

    code = "already_decided"
    message = "The vote was on these responses, so no pane can answer again. Start a new comparison."


class AllCompleted(Conflict):
    """There is no pane to run again."""

    message = "Every pane has completed. Reroll a single pane to get another response from it."


class StillBlind(Conflict):
    """This would reveal the model of a pane."""

    code = "still_blind"
    message = "This comparison is still blind. Vote, or reveal its models, first."


class PaneCannotWin(Conflict):
    """Only an answer that was completed can win."""

    code = "pane_cannot_win"

    def __init__(self, pane: int, outcome: str | None) -> None:
        super().__init__(
            f"Pane {label(pane)} cannot win: its answer did not complete ({outcome}). "
            'Choose another pane, "tie" or "none".'
        )


# Data.


class PaneAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a pane, with the names and figures that a blind comparison withholds."""

    run_id: str | None = None
    """Set before the run starts, so that the run can be found after a crash."""
    status: Literal["waiting", "running", "settled"] = "waiting"
    outcome: Outcome | None = None
    by: StoppedBy | None = None
    finish_reason: str | None = None
    error: ErrorInfo | None = None
    ttft_ms: float | None = None
    """Time from the request to the first text, reasoning or tool call."""
    duration_ms: float | None = None
    tokens_per_second: float | None = None
    """Output tokens over the time from the first to the last; None if all of it came at once."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    usage_source: UsageSource | None = None
    cost: float | None = None


class Pane(PaneAnswer, frozen=True, kw_only=True):
    """One model, its session, and its answer to the last turn; after the vote, to the turn that was voted on."""

    pane: int
    model: ModelName
    session_id: str
    left: tuple[str, ...] = ()
    """The sessions of earlier models of this pane: each model begins with an empty one."""
    later: PaneAnswer | None = None
    """The answer to a turn after the vote: the one that was voted on stays."""

    @property
    def latest(self) -> PaneAnswer:
        """The answer to the last turn."""
        return self.later or self


class Vote(msgspec.Struct, frozen=True):
    """A vote: a pane, a tie, or none."""

    winner: Winner
    at: float


class Synthesis(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a model makes of the answers of panes."""

    run_id: str
    session_id: str
    model: ModelName
    panes: tuple[tuple[int, str], ...]
    """The panes that it is made of, each with the run of its answer."""
    turn: int
    """The number of the prompt, from 1."""
    created_at: float


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt, or several in turn, and the panes that answer."""

    id: str
    owner: str
    prompts: tuple[PromptContent, ...]
    panes: tuple[Pane, ...]
    system: str | None = None
    params: dict[str, Any] = {}
    blind: bool = False
    order: Literal["parallel", "sequential"] = "parallel"
    kind: str = "general"
    timeout: float | None = None
    lifetime: Literal["attached", "detached"] = "attached"
    """Attached panes stop when the client leaves that began them. Detached ones continue."""
    status: Literal["running", "settled"] = "running"
    is_stopping: bool = False
    """True if another node has requested a stop. The node with the round reads this."""
    created_at: float = 0.0
    settled_at: float | None = None
    revealed_at: float | None = None
    vote: Vote | None = None
    synthesis: Synthesis | None = None
    blind_runs: dict[str, str] = {}
    """The model of each run that has a blind name, for the time after the reveal."""
    key: str | None = None
    """The id of the document of the idempotency key that it was made with."""
    payer: Payer = Payer()

    @property
    def is_revealed(self) -> bool:
        """True if the models are shown."""
        return not self.blind or self.revealed_at is not None

    @property
    def turns(self) -> int:
        """The number of prompts so far."""
        return len(self.prompts)

    @property
    def is_synthesis_old(self) -> bool:
        """True if a pane has answered again since the synthesis was made of its answer."""
        used = () if self.synthesis is None else self.synthesis.panes
        return any(self.panes[pane].latest.run_id != run_id for pane, run_id in used)

    def pane(self, number: str) -> Pane:
        """Return the pane that a path names."""
        if not (number.isascii() and number.isdigit() and len(number) < 4 and int(number) < len(self.panes)):
            raise PaneNotFound(number)
        return self.panes[int(number)]


def label(pane: int) -> str:
    """Return a pane's letter."""
    return "ABCDEFGHIJKLMNOP"[pane]


def masked(pane: int) -> ModelName:
    """Return the blind name of the model in a pane."""
    return full_name(BLIND, label(pane))


# Changes. Each returns the changed comparison, or raises a refusal.


def asked(comparison: Comparison, prompt: PromptContent) -> Comparison:
    """Add a prompt for every pane."""
    return _begun(replace(comparison, prompts=(*comparison.prompts, prompt)), range(len(comparison.panes)))


def asked_again(comparison: Comparison, *panes: int) -> Comparison:
    """Let some panes answer their last prompt again."""
    if comparison.vote is not None:
        raise AlreadyDecided
    return _begun(comparison, panes)


def panes_to_rerun(comparison: Comparison) -> list[int]:
    """Return the panes whose last answer did not complete."""
    panes = [pane.pane for pane in comparison.panes if pane.latest.outcome != "completed"]
    if not panes:
        raise AllCompleted
    return panes


def detached(comparison: Comparison) -> Comparison:
    """Let the panes continue without their client. Repeating it changes nothing."""
    return replace(comparison, lifetime="detached")


def swapped(comparison: Comparison, pane: int, model: ModelName) -> Comparison:
    """Replace the model of a pane."""
    if not comparison.is_revealed:
        raise StillBlind
    after = asked_again(comparison, pane)
    before = after.panes[pane]
    left = (*before.left, before.session_id)
    return _with_pane(after, replace(before, model=model, session_id=new_id("ses"), left=left))


def _begun(comparison: Comparison, panes: Sequence[int]) -> Comparison:
    if comparison.status == "running":
        raise ComparisonRunning
    for pane in panes:
        comparison = answered(comparison, pane, PaneAnswer(run_id=new_id("run")))
    return noted_if_blind(replace(comparison, status="running", settled_at=None))


def noted_if_blind(comparison: Comparison) -> Comparison:
    """Record the model of each blind run: a pane may have another model later."""
    if comparison.is_revealed:
        return comparison
    now = {pane.latest.run_id: pane.model for pane in comparison.panes if pane.latest.run_id is not None}
    return replace(comparison, blind_runs={**comparison.blind_runs, **now})


def answered(comparison: Comparison, pane: int, answer: PaneAnswer) -> Comparison:
    """Set the state of a pane's answer. Answers that were voted on never change."""
    before = comparison.panes[pane]
    if comparison.vote is not None:
        return _with_pane(comparison, replace(before, later=answer))
    return _with_pane(comparison, replace(before, **msgspec.structs.asdict(answer)))


def _with_pane(comparison: Comparison, pane: Pane) -> Comparison:
    panes = [pane if each.pane == pane.pane else each for each in comparison.panes]
    return replace(comparison, panes=tuple(panes))


def settled(comparison: Comparison, now: float) -> Comparison:
    """Set the comparison to settled."""
    return replace(comparison, status="settled", settled_at=now, is_stopping=False)


def stopping(comparison: Comparison) -> Comparison:
    """Request a stop from the node that has the round."""
    return replace(comparison, is_stopping=True) if comparison.status == "running" else comparison


def voted(comparison: Comparison, winner: Winner, now: float) -> Comparison:
    """Save the only vote, and reveal the models."""
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
    """Reveal the models. Repeating it changes nothing."""
    return comparison if comparison.revealed_at is not None else replace(comparison, revealed_at=now)


# Figures.


def fastest(comparison: Comparison) -> int | None:
    """Return the completed pane with the shortest time to first token; None if fewer than two completed."""
    completed = [pane for pane in comparison.panes if pane.latest.outcome == "completed"]
    timed = [(pane.latest.ttft_ms, pane.pane) for pane in completed if pane.latest.ttft_ms is not None]
    return min(timed)[1] if len(completed) > 1 and timed and comparison.status == "settled" else None


def settlement_of(answer: PaneAnswer) -> Settlement:
    """Return the settlement of a pane without a run, or whose run is gone."""
    match answer.outcome:
        case "stopped":
            return Stopped(by=answer.by or "user")
        case "failed":
            return Failed(error=answer.error or ErrorInfo("internal_error", "This pane could not start."))
        case "completed":
            return Completed(finish_reason=answer.finish_reason)
        case _:
            return Interrupted()
