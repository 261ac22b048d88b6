"""Ratings are right: against a published table, against a likelihood of their own, and where votes are few or odd."""

import itertools
import math
import random
import time

import pytest

from holdfast.compare.ratings import Game, Rating, chance, rate

POINTS = 400 / math.log(10)

# Games of the 1987 season in the American League East, wins of the row over the column: A. Agresti, Categorical Data
# Analysis (2nd edition, Wiley 2002), section 10.6. Its Table 10.11 gives the strengths relative to Baltimore's.
TEAMS = ["Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"]
WINS = [
    [0, 7, 9, 7, 7, 9, 11],
    [6, 0, 7, 5, 11, 9, 9],
    [4, 6, 0, 7, 7, 8, 12],
    [6, 8, 6, 0, 6, 7, 10],
    [6, 2, 6, 7, 0, 7, 12],
    [4, 4, 5, 6, 6, 0, 6],
    [2, 4, 1, 3, 1, 7, 0],
]
PUBLISHED = [1.58, 1.44, 1.29, 1.25, 1.11, 0.68, 0.0]
ALMOST_NONE = 1e-8
"""A prior that is too weak to be seen in the digits that are compared: others fit without one."""


def season() -> list[list[Game]]:
    return [
        [Game(TEAMS[i], TEAMS[j], 1)]
        for i, j in itertools.permutations(range(len(TEAMS)), 2)
        for _ in range(WINS[i][j])
    ]


def votes_of(*results: tuple[str, str, float]) -> list[list[Game]]:
    return [[Game(*result)] for result in results]


def test_a_published_example_is_reproduced():
    """Agresti's baseball teams, almost without a prior, as the book fits them: to the two digits that it prints."""
    rated = rate(season(), prior=ALMOST_NONE)

    strengths = [(rated[team].rating - rated["Baltimore"].rating) / POINTS for team in TEAMS]
    assert PUBLISHED == [round(strength, 2) for strength in strengths]
    assert 1000 == pytest.approx(sum(each.rating for each in rated.values()) / len(TEAMS))


def test_intervals_are_those_of_the_published_example():
    """The book says of the differences that their standard errors are about 0.3; that of one strength is smaller."""
    rated = rate(season(), prior=ALMOST_NONE)

    errors = [(each.high - each.low) / 2 / 1.96 / POINTS for each in rated.values()]
    differences = [math.hypot(one, two) for one, two in itertools.pairwise(errors)]
    assert [0.3] * 6 == [round(error, 1) for error in differences]


def log_likelihood(votes: list[list[Game]], ratings: dict[str, float], prior: float) -> float:
    """The definition, as a statistician writes it: nothing of the code under test."""
    total = 0.0
    for vote in votes:
        for game in vote:
            p = 1 / (1 + 10 ** ((ratings[game.b] - ratings[game.a]) / 400))
            total += game.score * math.log(p) + (1 - game.score) * math.log(1 - p)
    for rating in ratings.values():
        p = 1 / (1 + 10 ** ((1000 - rating) / 400))
        total += prior / 2 * (math.log(p) + math.log(1 - p))
    return total


def top_of(ratings: dict[str, float]) -> dict[str, float]:
    """The same differences at the level which the imagined model of 1000 gives them; votes know no level."""
    low, high = -3000.0, 3000.0
    while high - low > 1e-9:
        by = (low + high) / 2
        won = sum(1 / (1 + 10 ** (-(rating + by - 1000) / 400)) - 0.5 for rating in ratings.values())
        low, high = (low, by) if won > 0 else (by, high)
    return {name: rating + low for name, rating in ratings.items()}


@pytest.mark.parametrize("seed", range(8))
def test_no_other_ratings_make_the_votes_more_likely(seed):
    """A concave function has one top: where no small step in any direction leads up, it has been reached."""
    chosen = random.Random(seed)
    names = [f"m{number}" for number in range(chosen.randint(2, 7))]
    votes = [
        [Game(*chosen.sample(names, 2), chosen.choice([0, 0.5, 1, 1])) for _ in range(chosen.choice([1, 1, 3]))]
        for _ in range(chosen.randint(1, 80))
    ]
    best = top_of({name: each.rating for name, each in rate(votes).items()})

    top = log_likelihood(votes, best, 1.0)
    for name, by in itertools.product(best, (-1.0, 1.0)):
        assert top > log_likelihood(votes, best | {name: best[name] + by}, 1.0)
    drift = {name: chosen.gauss(0, 3) for name in best}
    assert top > log_likelihood(votes, {name: best[name] + drift[name] for name in best}, 1.0)


def independently(wins: dict[tuple[str, str], float], names: list[str]) -> dict[str, float]:
    """Zermelo's iteration (1929), written for this test: another way up the same hill, without derivatives."""
    worth = dict.fromkeys(names, 1.0)
    for _ in range(20_000):
        before = dict(worth)
        for name in names:
            won = sum(wins.get((name, other), 0) for other in names)
            met = sum(
                (wins.get((name, other), 0) + wins.get((other, name), 0)) / (worth[name] + worth[other])
                for other in names
                if other != name
            )
            worth[name] = won / met
        mean = math.exp(sum(math.log(each) for each in worth.values()) / len(names))
        worth = {name: each / mean for name, each in worth.items()}
        if max(abs(math.log(worth[name] / before[name])) for name in names) < 1e-12:
            break
    return {name: 1000 + POINTS * math.log(each) for name, each in worth.items()}


@pytest.mark.parametrize("seed", range(4))
def test_another_algorithm_comes_to_the_same_ratings(seed):
    """Ties included: half a win for each."""
    chosen = random.Random(100 + seed)
    names = [f"m{number}" for number in range(6)]
    votes = [[Game(a, b, score)] for a, b in itertools.combinations(names, 2) for score in (0, 0.5, 1)]
    votes += [[Game(*chosen.sample(names, 2), chosen.choice([0, 0.5, 1]))] for _ in range(200)]
    wins: dict[tuple[str, str], float] = {}
    for [game] in votes:
        wins[game.a, game.b] = wins.get((game.a, game.b), 0) + game.score
        wins[game.b, game.a] = wins.get((game.b, game.a), 0) + 1 - game.score

    expected = independently(wins, names)
    assert expected == {
        name: pytest.approx(each.rating, abs=1e-5) for name, each in rate(votes, prior=ALMOST_NONE).items()
    }


def test_no_votes_rate_nobody():
    """An empty scoreboard is an answer, not an error."""
    assert {} == rate([])
    assert {} == rate([[]])
    assert {} == rate(votes_of(("a", "a", 1)))


def test_a_model_that_never_lost_has_a_finite_rating_and_says_how_little_is_known():
    """Plain maximum likelihood would say infinity after a single vote."""
    once = rate(votes_of(("a", "b", 1)))
    often = rate(votes_of(*[("a", "b", 1)] * 50))

    assert 1000 < once["a"].rating < often["a"].rating < 2000
    assert once["a"].low < 1000 < often["a"].low
    assert once["a"].rating - 1000 == pytest.approx(1000 - once["b"].rating)


def test_models_that_never_met_are_rated_apart_around_the_same_thousand():
    """Two scoreboards in one: neither says anything of the other, and neither breaks the other."""
    left, right = [("a", "b", 1), ("a", "b", 1), ("b", "a", 1)], [("c", "d", 1), ("d", "c", 1)]
    together = rate(votes_of(*left, *right))

    alone = rate(votes_of(*left))
    assert [alone["a"].rating, alone["b"].rating] == pytest.approx([together["a"].rating, together["b"].rating])
    assert together["a"].high - together["a"].low > alone["a"].high - alone["a"].low
    assert [1000, 1000] == pytest.approx([together["c"].rating, together["d"].rating])


def rounded(rated: dict[str, Rating]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(round(number, 6) for number in each) for name, each in rated.items()}


def test_a_tie_is_half_a_win_for_each():
    """Two ties say what one win and one loss say."""
    assert 1000 == pytest.approx(rate(votes_of(("a", "b", 0.5)))["a"].rating)

    ties = rate(votes_of(("a", "b", 0.5), ("a", "b", 0.5), ("b", "c", 1)))
    both = rate(votes_of(("a", "b", 1), ("a", "b", 0), ("b", "c", 1)))
    assert {name: each.rating for name, each in both.items()} == {
        name: pytest.approx(each.rating) for name, each in ties.items()
    }


def test_the_order_of_votes_and_of_sides_does_not_matter():
    """Elo's updates depend on who came first; this must not."""
    results = [("a", "b", 1.0), ("b", "c", 1.0), ("c", "a", 0.5), ("a", "c", 1.0)]
    turned = [(b, a, 1 - score) for a, b, score in reversed(results)]

    assert rounded(rate(votes_of(*results))) == rounded(rate(votes_of(*turned)))


@pytest.mark.parametrize("panes", [2, 4])
def test_the_interval_holds_the_truth_as_often_as_it_says(panes):
    """95 of 100, for pairs and for votes among four, whose three wins are one opinion."""
    chosen = random.Random(7)
    truth = {"a": 1150.0, "b": 1050.0, "c": 1000.0, "d": 950.0, "e": 850.0}
    held = 0
    for _ in range(200):
        rated = rate([one_vote(chosen, truth, panes) for _ in range(150)])
        held += sum(rated[name].low <= truth[name] <= rated[name].high for name in truth)

    assert 0.93 <= held / (200 * len(truth)) <= 0.985


def one_vote(chosen: random.Random, truth: dict[str, float], panes: int) -> list[Game]:
    """A person picks the best of some panes, each with the chance that its strength gives it."""
    shown = chosen.sample(sorted(truth), panes)
    [winner] = chosen.choices(shown, [10 ** (truth[name] / 400) for name in shown])
    return [Game(winner, other, 1) for other in shown if other != winner]


def test_one_vote_among_many_panes_does_not_count_as_many_votes():
    """Fifteen wins from one click are not fifteen opinions: the interval stays that of few votes."""
    names = [f"m{number}" for number in range(16)]
    one = rate([[Game("m0", other, 1) for other in names[1:]]] * 4)["m0"]
    many = rate([[Game("m0", other, 1)] for other in names[1:] for _ in range(4)])["m0"]

    assert one.rating == pytest.approx(many.rating)
    assert one.high - one.low >= many.high - many.low


def test_a_chance_follows_from_two_ratings():
    """400 points are ten to one."""
    assert 10 / 11 == pytest.approx(chance(1400, 1000))
    assert 0.5 == chance(1000, 1000)


def test_a_hundred_thousand_votes_over_sixty_models_are_rated_in_seconds():
    """The scoreboard of a large team, on a slow machine."""
    chosen = random.Random(1)
    names = [f"m{number}" for number in range(60)]
    votes = [[Game(*chosen.sample(names, 2), chosen.random() < 0.5)] for _ in range(100_000)]

    began = time.process_time()
    assert 60 == len(rate(votes))
    assert time.process_time() - began < 20
