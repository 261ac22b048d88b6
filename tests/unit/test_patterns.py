"""A caller's patterns, tried in a process of their own."""

import os
import pathlib
import signal

from holdfast.evals.patterns import PatternCheck, PatternFault, Patterns


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


async def test_a_pattern_that_takes_too_long_has_no_verdict_and_the_next_one_has():
    """Its process goes with it, and what it would have said is not taken for the next answer."""
    patterns = Patterns(time_limit=1.0)

    assert await patterns.found("(a+)+$", "a" * 40 + "!") is None
    assert await patterns.found("!$", "a!")
    assert not await patterns.found("b$", "a!")
    await patterns.close()


async def test_a_pattern_that_takes_too_much_memory_has_no_verdict_and_leaves_no_process():
    """The child has 1 GiB. Compiling this takes more, or more than the time limit: both mean that nothing is known."""
    before = children()
    patterns = Patterns(time_limit=1.0)

    assert await patterns.found(f"(?:{'(?:a?){1000}' * 60}){{1000}}$", "a" * 1000 + "!") is None
    assert set() == set(children()) - set(before)


async def test_the_first_pattern_that_is_none_is_named():
    """Who has written a thousand of them looks for it."""
    assert await PatternCheck().fault(["a+", "[ü]", ""]) is None
    assert PatternFault("This is not a valid pattern: missing ), unterminated subpattern at position 1.", 1) == (
        await PatternCheck().fault(["a+", "b(", "c("])
    )


async def test_patterns_that_take_too_much_memory_to_compile_are_refused_and_leave_no_process():
    """The child has 1 GiB; whether the limit of memory or of time comes first is of no matter."""
    before = children()
    fault = await PatternCheck().fault([f"(?i){'[Ā-ſ]' * 150}{number}" for number in range(10_000)])

    assert fault is not None
    assert fault.number is None
    assert set() == set(children()) - set(before)
