"""Scores of models from comparisons: preferences, outcomes, speed. Thumbs on answers of chats are counted beside them.

Only revealed comparisons are counted. Preferences are those of blind votes alone, and only between panes that both
completed: a failed pane has not lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from ..evals.model import quantile
from .model import Comparison, Pane, label
from .ratings import Game, rate

__all__ = ["games", "scoreboard", "vote_rows", "votes"]

OUTCOMES = ("completed", "truncated", "stopped", "failed", "interrupted")


def games(comparison: Comparison) -> list[Game]:
    """Return the games of a blind vote: each pair of different models in it that both completed."""
    vote = comparison.vote
    if vote is None or not comparison.blind or vote.winner == "none":
        return []
    completed = [pane for pane in comparison.panes if pane.outcome == "completed"]
    if vote.winner == "tie":
        return [Game(one.model, two.model, 0.5) for one, two in combinations(completed, 2) if one.model != two.model]
    best = comparison.panes[vote.winner].model
    if comparison.panes[vote.winner] not in completed:
        return []
    return [Game(best, other.model, 1) for other in completed if other.model != best]


def scoreboard(comparisons: Iterable[Comparison], thumbs: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return the scores of every model, the best rated first. `thumbs` are votes on single answers, by model."""
    rows: dict[str, _Row] = {}
    decided: list[list[Game]] = []
    counted = {"blind_votes": 0, "other_votes": 0}
    for comparison in comparisons:
        if not comparison.is_revealed:
            continue
        for pane in comparison.panes:
            rows.setdefault(pane.model, _Row(pane.model)).see(pane)
        if comparison.vote is not None:
            counted["blind_votes" if comparison.blind else "other_votes"] += 1
            decided.append(games(comparison))
            _count(comparison, decided[-1], rows)
    for model, vote in thumbs:
        rows.setdefault(model, _Row(model)).thumbs[vote] += 1
    return {"models": _ranked(rows.values(), [vote for vote in decided if vote]), "counted": counted}


def _count(comparison: Comparison, decided: Sequence[Game], rows: dict[str, _Row]) -> None:
    """Count one vote: once for each of its models, and for each pair as won, lost or tied."""
    for game in decided:
        rows[game.a].pairs["wins" if game.score == 1 else "ties"] += 1
        rows[game.b].pairs["losses" if game.score == 1 else "ties"] += 1
    voted_on = {name for game in decided for name in (game.a, game.b)}
    if comparison.blind and comparison.vote is not None and comparison.vote.winner == "none":
        voted_on = {pane.model for pane in comparison.panes if pane.outcome == "completed"}
        for name in voted_on:
            rows[name].pairs["all_bad"] += 1
    for name in voted_on:
        rows[name].votes += 1


def _ranked(rows: Iterable[_Row], decided: Sequence[Sequence[Game]]) -> list[dict[str, Any]]:
    ratings = rate(decided)
    ranked = []
    for row in rows:
        rating = ratings.get(row.model)
        numbers = (rating.rating, rating.low, rating.high) if rating else (None, None, None)
        ranked.append(row.as_json(*(None if number is None else round(number, 1) for number in numbers)))
    return sorted(ranked, key=lambda row: (row["rating"] is None, -(row["rating"] or 0), row["model"]))


class _Row:
    """The figures of one model. Speed is that of completed panes only."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.votes = 0
        self.pairs: Counter[str] = Counter()
        self.thumbs: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._ttft: list[float] = []
        self._speed: list[float] = []
        self._output_tokens = 0
        self._costs: list[float] = []

    def see(self, pane: Pane) -> None:
        """Count a pane that has settled."""
        if pane.status != "settled":
            return
        self._outcomes[pane.outcome or "interrupted"] += 1
        self._output_tokens += pane.output_tokens or 0
        self._costs += [] if pane.cost is None else [pane.cost]
        if pane.outcome == "completed":
            self._ttft += [] if pane.ttft_ms is None else [pane.ttft_ms]
            self._speed += [] if pane.tokens_per_second is None else [pane.tokens_per_second]

    def as_json(self, rating: float | None, low: float | None, high: float | None) -> dict[str, Any]:
        """Return the row as JSON."""
        wins, losses, ties = (self.pairs[name] for name in ("wins", "losses", "ties"))
        met = wins + losses + ties
        return {
            "model": self.model,
            "votes": self.votes,
            "wins": wins,
            "losses": losses,
            "ties": ties,
            "all_bad": self.pairs["all_bad"],
            "win_rate": (wins + ties / 2) / met if met else None,
            "rating": rating,
            "low": low,
            "high": high,
            "thumbs_up": self.thumbs["up"],
            "thumbs_down": self.thumbs["down"],
            "panes": self._outcomes.total(),
            **{outcome: self._outcomes[outcome] for outcome in OUTCOMES},
            "ttft_ms_p50": quantile(self._ttft, 0.5),
            "tokens_per_second_p50": quantile(self._speed, 0.5),
            "output_tokens": self._output_tokens,
            "cost": math.fsum(self._costs) if self._costs else None,
        }


# Single votes.


def votes(comparisons: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Return every vote with its panes."""
    return [
        {
            "comparison": comparison.id,
            "at": comparison.vote.at,
            "blind": comparison.blind,
            "kind": comparison.kind,
            "prompts": comparison.prompts,
            "winner": comparison.vote.winner,
            "panes": [_pane(pane) for pane in comparison.panes],
        }
        for comparison in comparisons
        if comparison.vote is not None
    ]


def _pane(pane: Pane) -> dict[str, Any]:
    return {
        "pane": pane.pane,
        "label": label(pane.pane),
        "model": pane.model,
        "outcome": pane.outcome,
        "ttft_ms": pane.ttft_ms,
        "duration_ms": pane.duration_ms,
        "tokens_per_second": pane.tokens_per_second,
        "input_tokens": pane.input_tokens,
        "output_tokens": pane.output_tokens,
        "usage_source": pane.usage_source,
        "cost": pane.cost,
    }


def vote_rows(votes_json: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return votes as table rows, one for each pane."""
    return [
        {**{name: vote[name] for name in ("comparison", "at", "blind", "kind", "winner")}, **pane}
        for vote in votes_json
        for pane in vote["panes"]
    ]
