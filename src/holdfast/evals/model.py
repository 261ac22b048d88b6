"""Batches of prompts: their data, when an answer is right, and the report.

A *batch* is a set of prompts with its models and settings. A *cell* is one prompt answered by one model. No I/O.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import msgspec

from ..access import Payer
from ..events import Outcome
from ..ids import ModelName

__all__ = ["Batch", "BatchPrompt", "BatchReport", "Cell", "Match", "agrees", "wilson"]

Match = Literal["exact", "contains", "regex", "number"]
State = Literal["making", "running", "stopped", "finished", "deleting"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
UNANSWERED = frozenset(("stopped", "failed", "interrupted"))

MOST_MODELS = 16
MOST_PROMPTS = 10_000
MOST_AT_ONCE = 32


class BatchPrompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One prompt of a set, with the expected answer if there is one."""

    prompt: str | list[dict[str, Any]]
    expected: str | int | float | None = None
    kind: str = ""
    """A category, to filter reports."""
    id: str = ""
    """Its name in the set; its number, from 1, if it has none."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A set of prompts for several models. Prompts and cells are stored in separate documents."""

    name: str = ""
    models: tuple[ModelName, ...]
    prompts: int
    system: str | None = None
    params: dict[str, Any] = {}
    concurrency: int = 4
    timeout: float | None = None
    match: Match = "contains"
    state: State = "running"
    settled_at: float | None = None
    key: str = ""
    """The document that holds the caller's idempotency key, if there was one."""
    rounds: int = 0
    """How often it was resumed. An agent's cell has one run in each."""
    again_at: float | None = None
    """Cells that failed before this time are repeated."""
    done: int | None = None
    failed: int | None = None
    """The counts of a stopped or finished batch; None if the cells have to be counted."""
    payer: Payer = Payer()
    progress: dict[str, int] = {}
    """The last stored counts of a running batch, for other nodes than the one that works on it."""

    @property
    def total(self) -> int:
        """The number of its cells."""
        return self.prompts * len(self.models)


class Cell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of one model to one prompt."""

    prompt: int
    """The number of the prompt in its set, from 0."""
    model: int
    """The number of the model in its batch, from 0."""
    run_id: str = ""
    outcome: Outcome
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    answered_by: str | None = None
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    tokens_per_second: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    usage_source: str = "estimated"
    cost: float | None = None
    right: bool | None = None
    """Whether the answer is the expected one; None if there is none, if it did not complete, or if not judged."""
    not_judged: str = ""
    """The reason why a completed answer was not judged."""
    settled_at: float = 0.0


# Agreement.

_NUMBER = re.compile(
    r"(?:(?<![\w.])-)?(?:\d{1,3}(?:[,_\u202f\u2009]\d{3})+(?!\d)|\d+|(?=\.\d))(?:\.\d+)?(?:[eE][+-]?\d+)?"
)


def agrees(match: Match, expected: str | int | float, answer: str) -> bool:
    """Return whether an answer is the expected one.

    `exact`: equal, without surrounding space. `contains`: a part of the answer, without regard to case and spacing.
    `number`: the last number of the answer. `regex`: the pattern is found.
    """
    match match:
        case "exact":
            return answer.strip() == str(expected).strip()
        case "contains":
            return _folded(str(expected)) in _folded(answer)
        case "number":
            return _same_number(last_number(str(expected)), last_number(answer))
        case "regex":
            return re.search(str(expected), answer) is not None


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def last_number(text: str) -> float | None:
    """Return the last number in a text; `1,234.5` is one number."""
    found = _NUMBER.findall(text)
    digits = re.sub(r"[^\d.eE+-]", "", found[-1]) if found else ""
    return float(digits) if digits else None


def _same_number(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


# The report.


class BatchReport:
    """The report of a batch. It stores a few numbers for each cell, and no text."""

    def __init__(self, models: Sequence[str], prompts: Sequence[BatchPrompt]) -> None:
        self._columns = [_Column(model) for model in models]
        self._prompts = prompts

    def add(self, cell: Cell) -> None:
        """Count a cell."""
        self._columns[cell.model].add(cell, has_expected=self._prompts[cell.prompt].expected is not None)

    def models(self) -> list[dict[str, Any]]:
        """Return the figures of each model."""
        return [column.as_json() for column in self._columns]


class _Column:
    """The figures of one model. Speed is that of completed answers only."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._outcomes: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._verdicts: Counter[bool | None] = Counter()
        self._not_judged = 0
        self._ttft: list[float] = []
        self._speed: list[float] = []
        self._tokens = Counter({"input": 0, "output": 0, "estimated": 0})
        self._costs: list[float] = []

    def add(self, cell: Cell, *, has_expected: bool) -> None:
        self._outcomes[cell.outcome] += 1
        self._tokens.update(input=cell.input_tokens, output=cell.output_tokens)
        self._tokens["estimated"] += cell.usage_source == "estimated"
        if cell.error is not None:
            self._errors[str(cell.error.get("code"))] += 1
        if cell.cost is not None:
            self._costs.append(cell.cost)
        if cell.not_judged:
            self._not_judged += 1
        elif has_expected:
            self._verdicts[cell.right] += 1
        if cell.outcome == "completed":
            self._ttft += [] if cell.ttft_ms is None else [cell.ttft_ms]
            self._speed += [] if cell.tokens_per_second is None else [cell.tokens_per_second]

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self._model,
            "answered": self._outcomes.total(),
            "outcomes": {outcome: self._outcomes[outcome] for outcome in OUTCOMES},
            "errors": dict(self._errors.most_common()),
            "ttft_ms_p50": quantile(self._ttft, 0.5),
            "ttft_ms_p95": quantile(self._ttft, 0.95),
            "tokens_per_second_p50": quantile(self._speed, 0.5),
            "input_tokens": self._tokens["input"],
            "output_tokens": self._tokens["output"],
            "estimated": self._tokens["estimated"],
            "cost": math.fsum(self._costs) if self._costs else None,
            "agreement": self._agreement(),
        }

    def _agreement(self) -> dict[str, Any]:
        """Return the share of right answers among all that could be judged; a missing answer is not right."""
        total = self._verdicts.total()
        right, wrong, silent = (self._verdicts[verdict] for verdict in (True, False, None))
        low, high = wilson(right, total)
        rates = {"rate": right / total, "low": low, "high": high} if total else dict.fromkeys(("rate", "low", "high"))
        counts = {"asked": total, "right": right, "wrong": wrong, "no_answer": silent, "not_judged": self._not_judged}
        return counts | rates


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return a quantile, interpolated between neighbours."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))


def wilson(right: int, asked: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson 1927): it stays within 0 and 1 even for few answers."""
    if not asked:
        return (0.0, 1.0)
    z2, share = 1.959963984540054**2, right / asked
    middle = (share + z2 / (2 * asked)) / (1 + z2 / asked)
    reach = math.sqrt(z2 * (share * (1 - share) + z2 / (4 * asked)) / asked) / (1 + z2 / asked)
    return (max(0.0, middle - reach), min(1.0, middle + reach))
