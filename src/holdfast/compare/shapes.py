"""The JSON objects of comparisons, as types. `wire` returns them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from ..events import StoppedBy
from ..wires.shapes import ContentJson, ErrorInfoJson, OutcomeJson, SettlementJson, StepJson, UsageSourceJson


class MetricsJson(TypedDict):
    """Tokens, times and cost of a pane's answer."""

    ttft_ms: float | None
    tokens_per_second: float | None
    input_tokens: int | None
    output_tokens: int | None
    usage_source: UsageSourceJson | None
    cost: float | None
    duration_ms: float | None
    fastest: bool


class EarlierAnswerJson(TypedDict):
    """The answer of a pane to an earlier prompt."""

    text: str
    outcome: OutcomeJson | None


class PaneEndingJson(TypedDict):
    """How a pane ended, as a list shows it."""

    outcome: OutcomeJson | None
    by: StoppedBy | None
    finish_reason: str | None
    error: ErrorInfoJson | None


class PaneHeadJson(TypedDict):
    """The fields of a pane that a list has too. `model` is null while the comparison is blind."""

    pane: int
    label: str
    model: str | None
    run_id: str | None
    status: Literal["waiting", "running", "settled"]
    metrics: MetricsJson | None


class ListedPaneJson(PaneHeadJson):
    """A pane of a comparison in a list."""

    settlement: PaneEndingJson | None


class PaneJson(PaneHeadJson):
    """A pane with its answers. `earlier` has null for a prompt that got no answer."""

    text: str
    reasoning: str | None
    pictures: list[str]
    steps: list[StepJson]
    """What an agent did, once it has settled; a model's own calls are one step."""
    earlier: list[EarlierAnswerJson | None]
    settlement: SettlementJson | None


class VoteJson(TypedDict):
    """The pane that won, and the time of the vote."""

    winner: int | Literal["tie", "none"]
    at: str


class ComparisonHeadJson(TypedDict):
    """The fields of a comparison that a list has too."""

    id: str
    blind: bool
    revealed: bool
    order: Literal["parallel", "sequential"]
    kind: str
    timeout: float | None
    lifetime: Literal["attached", "detached"]
    status: Literal["running", "settled"]
    created_at: str
    settled_at: str | None
    turns: int
    vote: VoteJson | None


class ListedComparisonJson(ComparisonHeadJson):
    """A comparison in a list, with the beginning of its first prompt."""

    prompt: str
    panes: list[ListedPaneJson]


class SynthesisJson(TypedDict):
    """One answer that a model makes of the answers of panes."""

    run_id: str
    model: str
    panes: list[int]
    turn: int
    old: bool
    """True if a pane has answered again since."""
    status: Literal["running", "settled"]
    text: str
    reasoning: str | None
    pictures: list[str]
    settlement: SettlementJson | None
    cost: float | None
    created_at: str


class ComparisonJson(ComparisonHeadJson):
    """A comparison with its answers."""

    prompt: ContentJson
    prompts: list[ContentJson]
    system: str | None
    params: dict[str, Any]
    panes: list[PaneJson]
    synthesis: SynthesisJson | None


class ComparisonFrameJson(TypedDict):
    """The first or the last frame of a comparison's stream."""

    type: Literal["comparison.started", "comparison.settled"]
    comparison: ComparisonJson
