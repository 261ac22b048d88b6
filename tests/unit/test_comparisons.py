"""The rules of comparisons, without a server: what may follow what, and what is said of answers."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from holdfast.compare import wire
from holdfast.compare.model import (
    MOST_PANES,
    AlreadyDecided,
    AlreadyRevealed,
    AlreadyVoted,
    Comparison,
    ComparisonRunning,
    Pane,
    PaneAnswer,
    PaneCannotWin,
    PaneNotFound,
    StillBlind,
    answered,
    asked,
    asked_again,
    fastest,
    label,
    masked,
    revealed,
    settled,
    swapped,
    voted,
)
from holdfast.errors import BadRequest, HoldfastError

OUTCOMES = ["completed", "truncated", "stopped", "failed", "interrupted"]


def comparison(*outcomes, blind=False, **fields):
    """A settled comparison whose panes ended so, pane 0 soonest."""
    panes = [
        Pane(pane=n, model=f"m{n}", session_id=f"s{n}", status="settled", outcome=outcome, ttft_ms=float(n + 1))
        for n, outcome in enumerate(outcomes)
    ]
    made = Comparison(id="c", owner="o", prompts=("p",), panes=tuple(panes), blind=blind, status="settled")
    return replace(made, **fields)


@pytest.mark.parametrize(
    ("outcomes", "pane"),
    [
        (["completed", "completed"], 0),
        (["failed", "completed", "completed"], 1),
        (["stopped", "truncated", "interrupted", "completed", "completed"], 3),
        (["failed", "completed"], None),
        (["completed"], None),
        (["failed", "failed"], None),
    ],
)
def test_the_fastest_is_one_of_those_that_completed(outcomes, pane):
    """However soon the others spoke; and where one completed alone there was no race."""
    assert pane == fastest(comparison(*outcomes))


def test_nobody_is_the_fastest_before_the_end():
    """The one that still runs may yet complete."""
    assert fastest(comparison("completed", "completed", status="running")) is None


def test_who_never_spoke_is_not_the_fastest():
    """An answer without a word has no time to its first."""
    kept = comparison("completed", "completed")
    kept = replace(kept, panes=(replace(kept.panes[0], ttft_ms=None), kept.panes[1]))

    assert 1 == fastest(kept)


def test_every_pane_has_a_letter():
    """As many as there can be."""
    assert MOST_PANES == len({label(n) for n in range(MOST_PANES)})
    assert "blind/A" == masked(0)


@pytest.mark.parametrize("number", ["2", "-1", "", "x", "1.0", "²", "1e3", "00001"])
def test_a_pane_that_is_not_there_is_not_found(number):
    """Whatever stands in its place."""
    with pytest.raises(PaneNotFound):
        comparison("completed", "completed").pane(number)


def test_a_vote_for_no_pane_is_refused():
    """A negative number would count from the end."""
    for winner in (-1, 2):
        with pytest.raises(BadRequest):
            voted(comparison("completed", "completed"), winner, 1.0)


def test_what_comes_after_the_vote_does_not_change_what_was_voted_on():
    """Whoever counts reads the pane; whoever looks is shown what came last."""
    kept = voted(comparison("completed", "failed"), 0, 1.0)
    before = kept.panes
    kept = asked(kept, "more")
    kept = settled(answered(kept, 0, PaneAnswer(run_id="r", status="settled", outcome="failed")), 2.0)

    assert [pane.outcome for pane in before] == [pane.outcome for pane in kept.panes]
    assert "failed" == kept.panes[0].latest.outcome


# Any sequence of calls.


@dataclass
class Seen:
    """What a client was told when it voted."""

    winner: object
    outcome: object


class Calls(RuleBasedStateMachine):
    """Does to a comparison whatever a client may ask for, in any order, and looks at what it must never see."""

    @initialize(blind=st.booleans(), outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4))
    def begin(self, blind, outcomes):
        self.kept = comparison(*outcomes, blind=blind)
        self.vote = None

    def attempt(self, change, *refusals):
        try:
            self.kept = msgspec.convert(msgspec.to_builtins(change(self.kept)), Comparison)
        except refusals:
            return False
        return True

    @rule(prompt=st.text(min_size=1, max_size=3))
    def ask(self, prompt):
        self.attempt(lambda kept: asked(kept, prompt), ComparisonRunning)

    @rule(pane=st.integers(0, 3))
    def ask_again(self, pane):
        if pane < len(self.kept.panes):
            self.attempt(lambda kept: asked_again(kept, pane), ComparisonRunning, AlreadyDecided)

    @rule(pane=st.integers(0, 3))
    def swap(self, pane):
        if pane < len(self.kept.panes):
            done = self.attempt(
                lambda kept: swapped(kept, pane, "other"), ComparisonRunning, AlreadyDecided, StillBlind
            )
            assert not done or self.kept.is_revealed

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=4, max_size=4))
    def end(self, outcomes):
        if self.kept.status == "running":
            for pane in self.kept.panes:
                if pane.latest.status != "settled":
                    answer = PaneAnswer(run_id="r", status="settled", outcome=outcomes[pane.pane], error=None)
                    self.kept = answered(self.kept, pane.pane, answer)
            self.kept = settled(self.kept, 1.0)

    @rule(winner=st.integers(0, 3) | st.sampled_from(["tie", "none"]))
    def cast(self, winner):
        before = self.kept
        refusals = (AlreadyVoted, AlreadyRevealed, ComparisonRunning, PaneCannotWin, BadRequest)
        if self.attempt(lambda kept: voted(kept, winner, 2.0), *refusals):
            assert before.vote is None
            assert before.status == "settled"
            outcome = before.panes[winner].outcome if isinstance(winner, int) else None
            assert outcome in ("completed", None)
            self.vote = Seen(winner, outcome)

    @rule()
    def reveal(self):
        self.attempt(lambda kept: revealed(kept, 3.0), HoldfastError)

    @invariant()
    def the_vote_stands(self):
        if self.vote is not None:
            assert self.kept.vote is not None
            assert self.vote.winner == self.kept.vote.winner
            if isinstance(self.vote.winner, int):
                assert self.vote.outcome == self.kept.panes[self.vote.winner].outcome

    @invariant()
    def nothing_is_told_before_the_reveal(self):
        for shown in (wire.listed_comparison(self.kept), wire.comparison(self.kept, {}, None)):
            for pane in shown["panes"]:
                assert self.kept.is_revealed or (pane["model"], pane["metrics"]) == (None, None)
                assert pane["metrics"] is None or not pane["metrics"]["fastest"] or pane["status"] == "settled"


def test_any_sequence_of_calls_keeps_the_rules():
    """A vote is final, is only for what completed, and names appear with the reveal and not before."""
    run_state_machine_as_test(Calls, settings=settings(max_examples=100, stateful_step_count=20))
