"""A caller's patterns, tried in a process of their own."""

import os
import pathlib
import signal

from holdfast.server.patterns import Patterns


def children() -> list[int]:
    """The processes that this one has started, and that have not ended."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.append(int(stat.parent.name))
    return found


async def test_a_process_that_was_killed_between_two_patterns_makes_no_answer_wrong():
    """That the system was short of memory says nothing of a model."""
    before = children()
    patterns = Patterns()
    assert await patterns.found("^a+$", "aaa")
    [child] = set(children()) - set(before)
    os.kill(child, signal.SIGKILL)

    assert await patterns.found("^a+$", "aaa")
    assert await patterns.found("^ü.$", "ü…")
    assert not await patterns.found("^b+$", "aaa")
    await patterns.close()


async def test_a_pattern_that_takes_too_long_is_not_found_and_the_next_one_is():
    """Its process goes with it, and what it would have said is not taken for the next answer."""
    patterns = Patterns(patience=1.0)

    assert not await patterns.found("(a+)+$", "a" * 40 + "!")
    assert await patterns.found("!$", "a!")
    await patterns.close()
