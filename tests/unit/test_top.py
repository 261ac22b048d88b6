"""The figures of `holdfast top`: rates and quantiles between two readings of the metrics."""

import pytest

from holdfast.cli.top.samples import Interval, Moment
from holdfast.cli.top.view import lines
from tests.requirements import requirement

BUCKETS = "holdfast_time_to_first_token_seconds_bucket"


def reading(at, runs, buckets=(0, 0, 0)):
    text = f'# HELP x y\nholdfast_runs_total{{outcome="completed",kind="chat",provider="up",model="m"}} {runs}\n'
    for bound, count in zip(("0.1", "1.0", "+Inf"), buckets, strict=True):
        text += f'{BUCKETS}{{provider="up",model="m",le="{bound}"}} {count}\n'
    return Moment(text, at)


@requirement("ops.top")
def test_a_rate_is_the_growth_of_a_counter_in_a_second():
    """The total since the start says nothing of now."""
    interval = Interval(reading(10.0, 100), reading(12.0, 110))

    assert 5.0 == interval.rate("holdfast_runs_total", provider="up")


@requirement("ops.top")
def test_a_server_that_was_restarted_counts_from_zero():
    """A rate below zero would be shown otherwise."""
    assert 3.0 == Interval(reading(10.0, 100), reading(12.0, 3)).more("holdfast_runs_total")


@requirement("ops.top")
@pytest.mark.parametrize(
    ("buckets", "share", "found"),
    [
        ((10, 10, 10), 0.5, 0.05),  # the middle of the first bucket
        ((0, 10, 10), 0.5, 0.55),
        ((0, 0, 10), 0.5, 1.0),  # beyond the last bound nothing is known
        ((0, 0, 0), 0.5, None),
    ],
)
def test_a_quantile_is_interpolated_as_prometheus_does_it(buckets, share, found):
    """The dashboard and the terminal show the same."""
    interval = Interval(reading(1.0, 0), reading(2.0, 0, buckets))

    assert found == (
        None if found is None else pytest.approx(interval.quantile(share, "holdfast_time_to_first_token_seconds"))
    )
    assert found is not None or interval.quantile(share, "holdfast_time_to_first_token_seconds") is None


@requirement("ops.top")
def test_no_line_is_longer_than_the_terminal_and_none_is_below_it():
    """A line that wraps moves all others."""
    nodes = {"http://a:8787": Interval(reading(1.0, 0), reading(2.0, 5)), "http://b:8787": "Could not connect. " * 20}
    shown = lines(nodes, [], 60, 4)

    assert 4 == len(shown)
    assert all(len(line) <= 60 for line in shown)
    assert shown[2].startswith("http://b:8787  Could not connect.")


@requirement("ops.top")
def test_a_name_of_a_model_does_not_command_the_terminal():
    """It comes from the list of an upstream."""
    evil = r"one\nholdfast_runs_total 7 \x1b[2J" + "\x1b]0;owned\x07"
    text = f'holdfast_runs_total{{outcome="completed",kind="chat",provider="up",model="{evil}"}} 1\n'
    shown = lines({"here": Interval(Moment(text, 1.0), Moment(text, 2.0))}, [], 500)

    assert "\n".join(shown).replace("\n", "").isprintable()
    assert any("up/one holdfast_runs_total 7" in line for line in shown)
