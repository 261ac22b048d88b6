"""The progress of long commands on standard error."""

import io

import pytest

from holdfast.cli import show
from tests.requirements import requirement


@requirement("store.backup")
@pytest.mark.parametrize(("is_terminal", "pause"), [(True, 0.25), (False, 11.0)])
def test_a_long_step_shows_percent_and_rate_and_a_short_one_nothing(monkeypatch, is_terminal, pause):
    """Who waits for minutes wants to know how many. A log gets few lines."""
    clock, written = [0.0], io.StringIO()
    monkeypatch.setattr(show.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(show, "err", show.Console(file=written, force_terminal=is_terminal))
    with show.Progress("writing", 200_000_000) as progress:
        progress.add(50_000_000)
        clock[0] = 1.0 if is_terminal else 10.0
        progress.add(0)
        clock[0] += pause
        progress.add(50_000_000)

    lines = written.getvalue().replace("\r\x1b[K", "\n").strip().splitlines()
    assert ["writing: 25 % of 200 MB", "writing: 50 % of 200 MB"] == [line.partition(", ")[0] for line in lines]
    assert all(line.endswith(" MB/s") for line in lines)
