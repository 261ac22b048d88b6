"""Ratings of models from votes: the Bradley-Terry model.

The chance that `a` is preferred to `b` is `1 / (1 + 10 ** ((b - a) / 400))`, on the scale of chess ratings. A
tie is half a win for each side. The ratings are the ones that make the votes most likely, found by Newton's method.

A model that never lost would be infinitely strong, and two groups that never met could not be placed on one scale.
So each model is also given half a win and half a loss against an imagined model of 1000 (`PRIOR`, one game in all).
That makes every rating finite and unique, and fades as votes come in. Ratings are relative: their mean is 1000.

The 95% interval is the larger of two estimates. The curvature of the likelihood is right for few votes. But it
counts the three wins of one vote among four panes as three independent votes: there the spread between votes (the
sandwich estimate, with each vote as one cluster) is right.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["PRIOR", "Game", "Rating", "chance", "rate"]

CENTRE = 1000.0
SCALE = 400 / math.log(10)
"""Points for each unit of log-odds."""
PRIOR = 1.0
"""Games against the imagined model of 1000, half of them won."""
TWO_SIDED_95 = 1.959963984540054

Vector = list[float]
Matrix = list[Vector]


class Game(NamedTuple):
    """Two models that were compared. `score` is 1 if `a` was preferred, 0 if `b` was, and 0.5 for a tie."""

    a: str
    b: str
    score: float


class Rating(NamedTuple):
    """A model's rating with its 95% interval, and the games that it rests on."""

    rating: float
    low: float
    high: float
    games: int


def rate(votes: Iterable[Sequence[Game]], *, prior: float = PRIOR) -> dict[str, Rating]:
    """Return the rating of each model that was in a game. Each vote is the games that it decided.

    `prior` is the number of games of each model against the imagined one: more than 0.
    """
    votes = [[game for game in vote if game.a != game.b] for vote in votes]
    names = sorted({name for vote in votes for game in vote for name in (game.a, game.b)})
    if not names:
        return {}
    index = {name: place for place, name in enumerate(names)}
    table = _table(votes, index)
    strengths = _fit(table, len(names), prior)
    errors = _errors(votes, index, table, strengths, prior)
    games = Counter(name for vote in votes for game in vote for name in (game.a, game.b))
    centred = _centred(strengths)
    return {name: _on_the_scale(centred[place], errors[place], games[name]) for name, place in index.items()}


def chance(a: float, b: float) -> float:
    """Return the chance that a model rated `a` is preferred to one rated `b`."""
    return _sigmoid((a - b) / SCALE)


def _centred(values: Vector) -> Vector:
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _on_the_scale(strength: float, error: float, games: int) -> Rating:
    middle, reach = CENTRE + SCALE * strength, SCALE * TWO_SIDED_95 * error
    return Rating(middle, middle - reach, middle + reach, games)


# The votes as counts: the likelihood needs no more, and a million votes become a table.


class _Pair(NamedTuple):
    games: float
    won: float
    """Indexed by the first of the two."""


_Table = Mapping[tuple[int, int], _Pair]


def _table(votes: Sequence[Sequence[Game]], index: Mapping[str, int]) -> _Table:
    table: dict[tuple[int, int], _Pair] = {}
    for vote in votes:
        for game in vote:
            i, j, score = index[game.a], index[game.b], game.score
            if i > j:
                i, j, score = j, i, 1 - score
            games, won = table.get((i, j), (0.0, 0.0))
            table[i, j] = _Pair(games + 1, won + score)
    return table


# The fit.


def _fit(table: _Table, size: int, prior: float) -> Vector:
    """Return the maximum of the likelihood, which is concave."""
    strengths = [0.0] * size
    likelihood = _likelihood(table, strengths, prior)
    for _ in range(100):
        step = _solve(_information(table, strengths, prior), [_gradient(table, strengths, prior)])[0]
        strengths, new_likelihood = _climb(table, strengths, step, likelihood, prior)
        if max(map(abs, step)) < 1e-9 or new_likelihood <= likelihood:
            return strengths
        likelihood = new_likelihood
    raise ValueError("the votes have no finite ratings: some models only won against the others, or never met them")


def _climb(table: _Table, start: Vector, step: Vector, likelihood: float, prior: float) -> tuple[Vector, float]:
    """Take a Newton step, shortened until the likelihood does not fall."""
    reach = min(1.0, 4.0 / max(max(map(abs, step)), 1e-300))
    for _ in range(60):
        tried = [at + reach * by for at, by in zip(start, step, strict=True)]
        new_likelihood = _likelihood(table, tried, prior)
        if new_likelihood >= likelihood:
            return tried, new_likelihood
        reach /= 2
    return start, likelihood


def _likelihood(table: _Table, strengths: Vector, prior: float) -> float:
    total = sum(
        pair.won * _log_sigmoid(strengths[i] - strengths[j])
        + (pair.games - pair.won) * _log_sigmoid(strengths[j] - strengths[i])
        for (i, j), pair in table.items()
    )
    return total + sum(prior / 2 * (_log_sigmoid(strength) + _log_sigmoid(-strength)) for strength in strengths)


def _gradient(table: _Table, strengths: Vector, prior: float) -> Vector:
    slope = [prior * (0.5 - _sigmoid(strength)) for strength in strengths]
    for (i, j), pair in table.items():
        surprise = pair.won - pair.games * _sigmoid(strengths[i] - strengths[j])
        slope[i] += surprise
        slope[j] -= surprise
    return slope


def _information(table: _Table, strengths: Vector, prior: float) -> Matrix:
    """Return the curvature at a point."""
    size = len(strengths)
    matrix = [[0.0] * size for _ in range(size)]
    for i, strength in enumerate(strengths):
        matrix[i][i] += prior * _variance(strength)
    for (i, j), pair in table.items():
        curvature = pair.games * _variance(strengths[i] - strengths[j])
        matrix[i][i] += curvature
        matrix[j][j] += curvature
        matrix[i][j] -= curvature
        matrix[j][i] -= curvature
    return matrix


# The intervals.


def _errors(
    votes: Sequence[Sequence[Game]], index: Mapping[str, int], table: _Table, strengths: Vector, prior: float
) -> Vector:
    """Return the standard errors: the larger of the curvature's and that of the spread between votes.

    They are relative to the mean, since votes do not determine the level of all ratings.
    """
    size = len(strengths)
    unit = [[float(i == j) for j in range(size)] for i in range(size)]
    inverse = [_centred(row) for row in _solve(_information(table, strengths, prior), unit)]
    curvature = [_centred(list(column)) for column in zip(*inverse, strict=True)]
    spread = _spread(votes, index, strengths)
    few = len(votes) / (len(votes) - 1) if len(votes) > 1 else 1.0
    found: Vector = []
    for i, row in enumerate(curvature):
        sandwich = few * _dot(row, [_dot(each, row) for each in spread])
        found.append(math.sqrt(max(row[i], sandwich, 0.0)))
    return found


def _spread(votes: Sequence[Sequence[Game]], index: Mapping[str, int], strengths: Vector) -> Matrix:
    """Return the spread between votes: the sum of the squares of their gradients."""
    size = len(strengths)
    spread = [[0.0] * size for _ in range(size)]
    for vote in votes:
        pushes = _pushes(vote, index, strengths)
        for i, one in pushes.items():
            for j, other in pushes.items():
                spread[i][j] += one * other
    return spread


def _pushes(vote: Sequence[Game], index: Mapping[str, int], strengths: Vector) -> dict[int, float]:
    """Return the gradient of one vote for each of its models."""
    pushes: dict[int, float] = {}
    for game in vote:
        i, j = index[game.a], index[game.b]
        surprise = game.score - _sigmoid(strengths[i] - strengths[j])
        pushes[i] = pushes.get(i, 0.0) + surprise
        pushes[j] = pushes.get(j, 0.0) - surprise
    return pushes


# Numbers.


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def _variance(x: float) -> float:
    return _sigmoid(x) * _sigmoid(-x)


def _dot(left: Vector, right: Vector) -> float:
    return sum(map(operator.mul, left, right), 0.0)


def _solve(matrix: Matrix, right: Sequence[Vector]) -> list[Vector]:
    """Return the solutions of a symmetric positive definite system for several right sides."""
    lower = _cholesky(matrix)
    return [_back(lower, _forward(lower, side)) for side in right]


def _cholesky(matrix: Matrix) -> Matrix:
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        row = lower[i]
        for j in range(i):
            row[j] = (matrix[i][j] - _dot(row[:j], lower[j][:j])) / lower[j][j]
        left = matrix[i][i] - _dot(row[:i], row[:i])
        if left <= 1e-13 * max(matrix[i][i], 1e-300):
            raise ValueError("the votes do not join all models: some never met the others, or only won against them")
        row[i] = math.sqrt(left)
    return lower


def _forward(lower: Matrix, side: Vector) -> Vector:
    found: Vector = []
    for i, row in enumerate(lower):
        found.append((side[i] - _dot(row[:i], found)) / row[i])
    return found


def _back(lower: Matrix, side: Vector) -> Vector:
    size = len(side)
    found = [0.0] * size
    for i in range(size - 1, -1, -1):
        known = sum(lower[k][i] * found[k] for k in range(i + 1, size))
        found[i] = (side[i] - known) / lower[i][i]
    return found
