"""What a vote decides, and what a scoreboard counts: pairs of different models that both completed, and no others."""

import pytest

from holdfast.compare.model import Comparison, Pane, Vote
from holdfast.compare.ratings import Game, rate
from holdfast.compare.scores import games, scoreboard, vote_rows, votes
from tests.requirements import requirement


def pane(number, model, outcome="completed", **more):
    speed = {"ttft_ms": 100.0, "tokens_per_second": 50.0, "output_tokens": 10}
    told = {"status": "settled", "outcome": outcome, **speed, **more}
    return Pane(pane=number, model=model, session_id=f"ses_{number}", **told)


def comparison(*panes, winner=None, blind=True, revealed=True, kind="general", at=1.0):
    made = [each if isinstance(each, Pane) else pane(number, each) for number, each in enumerate(panes)]
    return Comparison(
        id="cmp_1",
        owner="local",
        prompts=("?",),
        panes=tuple(made),
        blind=blind,
        kind=kind,
        status="settled",
        created_at=at,
        revealed_at=at if revealed else None,
        vote=None if winner is None else Vote(winner, at),
    )


def row(board, model):
    return next(each for each in board["models"] if each["model"] == model)


def test_the_winner_beats_each_other_pane():
    """One click among four panes is three pairs."""
    decided = games(comparison("a", "b", "c", "d", winner=2))

    assert [Game("c", "a", 1), Game("c", "b", 1), Game("c", "d", 1)] == decided


def test_a_tie_is_half_to_each_pair():
    """All of them are as good as each other."""
    tied = games(comparison("a", "b", "c", winner="tie"))

    assert [Game("a", "b", 0.5), Game("a", "c", 0.5), Game("b", "c", 0.5)] == tied


@pytest.mark.parametrize(
    "nothing",
    [
        comparison("a", "b"),
        comparison("a", "b", winner="none"),
        comparison("a", "b", winner=0, blind=False),
        comparison("a", "a", winner=0),
        comparison("a", "a", winner="tie"),
        comparison("a", pane(1, "b", "failed"), winner=0),
        comparison("a", pane(1, "b", "truncated"), winner=0),
        comparison(pane(0, "a", "stopped"), pane(1, "b", "interrupted"), winner="tie"),
    ],
    ids=["no vote", "all bad", "not blind", "one model", "one model, tie", "failed", "truncated", "none completed"],
)
def test_what_decides_nothing(nothing):
    """Who wins against a failure has won nothing, and a vote with open eyes rates nobody."""
    assert [] == games(nothing)
    assert {None} == {each["rating"] for each in scoreboard([nothing])["models"]}


def test_a_model_twice_does_not_beat_itself():
    """Two samples of one model: the other pane of the winner's model has not lost."""
    assert [Game("a", "b", 1)] == games(comparison("a", "b", "a", winner=0))


@requirement("cmp.scores")
def test_a_scoreboard_counts_pairs_and_rates_from_blind_votes_only():
    """The numbers by hand."""
    board = scoreboard(
        [
            comparison("a", "b", winner=0),
            comparison("b", "a", winner=1),
            comparison("a", "b", winner=1),
            comparison("a", "b", winner="tie"),
            comparison("a", "b", winner="none"),
            comparison("a", "b", winner=0, blind=False),
            comparison("a", pane(1, "b", "failed"), winner=0),
        ]
    )

    a, b = row(board, "a"), row(board, "b")
    assert {"blind_votes": 6, "other_votes": 1} == board["counted"]
    counts = ("votes", "wins", "losses", "ties", "all_bad", "win_rate", "panes", "completed", "failed")
    assert (5, 2, 1, 1, 1, 0.625, 7, 7, 0) == tuple(a[name] for name in counts)
    assert (5, 1, 2, 1, 1, 0.375, 7, 6, 1) == tuple(b[name] for name in counts)
    decided = [[Game("a", "b", 1)], [Game("a", "b", 1)], [Game("b", "a", 1)], [Game("a", "b", 0.5)]]
    expected = rate(decided)["a"]
    assert [expected.rating, expected.low, expected.high] == pytest.approx([a["rating"], a["low"], a["high"]], abs=0.05)
    assert a["rating"] > 1000 > b["rating"]
    assert ["a", "b"] == [each["model"] for each in board["models"]]


def test_what_is_still_blind_is_counted_nowhere():
    """Not in a rating, not in a count, not in a median: any of them could tell which pane was whose."""
    assert {"models": [], "counted": {"blind_votes": 0, "other_votes": 0}} == scoreboard(
        [comparison("a", "b", revealed=False)]
    )


def test_speed_is_that_of_completed_panes():
    """Who fails at once is not fast; what was never measured is not zero."""
    slow, quick = pane(0, "a", ttft_ms=900.0), pane(1, "a", "failed", ttft_ms=1.0, cost=0.5)
    board = scoreboard([comparison(slow, quick), comparison(pane(0, "b", "failed"), "a")])

    assert (500.0, 50.0, 30, 0.5) == tuple(
        row(board, "a")[name] for name in ("ttft_ms_p50", "tokens_per_second_p50", "output_tokens", "cost")
    )
    assert (None, None, None) == tuple(
        row(board, "b")[name] for name in ("ttft_ms_p50", "tokens_per_second_p50", "cost")
    )


def test_an_empty_scoreboard():
    """Before the first comparison."""
    assert {"models": [], "counted": {"blind_votes": 0, "other_votes": 0}} == scoreboard([])


def test_every_vote_is_exported_with_its_panes():
    """And no comparison without one."""
    told = votes([comparison("a", "b", winner="tie", kind="code"), comparison("a", "b")])

    assert [("tie", "code", ["a", "b"])] == [
        (vote["winner"], vote["kind"], [each["model"] for each in vote["panes"]]) for vote in told
    ]
    assert [("cmp_1", "A", "a"), ("cmp_1", "B", "b")] == [
        (each["comparison"], each["label"], each["model"]) for each in vote_rows(told)
    ]
