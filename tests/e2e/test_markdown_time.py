"""The page reads whatever a model writes in time that grows with its length, and no faster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.long import count

ROOT = Path(__file__).parents[2]
NODE = Path(sys.executable).parent / "node"
SCRIPT = Path(__file__).parent / "node" / "markdown_time.mjs"
STEADY = 12.0
"""How much longer four times the text may take. What grows with the square of it takes sixteen times as long."""
A_MOMENT = 30.0
"""Milliseconds below which a measurement says nothing."""


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, float]]:
    """Each family of texts, read by the source of the page in Node. Only the process's own time counts."""
    if not (ROOT / "web" / "node_modules" / "marked").exists():
        pytest.skip("the page's libraries are installed by `make setup-dev`")
    source = ROOT / "web" / "src" / "markdown" / "blocks.ts"
    size = str(count(10_000, 20_000))
    ended = subprocess.run([NODE, SCRIPT, source, size], capture_output=True, text=True, check=False)
    assert 0 == ended.returncode, ended.stderr
    found: dict[str, dict[str, float]] = json.loads(ended.stdout)
    assert len(found) > 90
    return found


@requirement("safe.page-time")
def test_four_times_the_text_takes_about_four_times_the_time(measured):
    """80,000 characters of `$$ x` took seconds, and twice as many four times as long."""
    slow = {
        name: times
        for name, times in measured.items()
        if times["long"] > STEADY * max(times["short"], A_MOMENT) or times["long"] > 5_000
    }

    assert {} == slow


@requirement("safe.page-time")
def test_a_frame_of_a_text_that_streams_takes_no_longer_than_a_piece_of_it(measured):
    """Only the last block is read again with each word, and it is bounded."""
    slow = {name: times for name, times in measured.items() if times["frame"] > 8 * max(times["short"], A_MOMENT)}

    assert {} == slow


@requirement("safe.page-time")
def test_what_is_too_much_for_the_lexer_is_shown_as_it_was_written(measured):
    """A limit may leave marks unread. It loses no character."""
    assert [] == [name for name, each in measured.items() if not each["isWhole"]]
