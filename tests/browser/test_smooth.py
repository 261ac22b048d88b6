"""Long answers, measured in the browser. Figures of a quiet machine: bench/README.md."""

import pytest

from bench.browser import MEASURE, Figures, Prose, prose
from tests.requirements import requirement
from tests.support.upstream import Done, Finish, Headers, Role, UsageChunk

pytestmark = pytest.mark.asyncio(loop_scope="session")


@requirement("ui.browser-smooth")
async def test_a_long_answer_is_drawn_without_blocking_the_page(tab, up):
    """2,000 tokens at 500 a second, with tables and code. Bounds are wide: a busy machine is slow, a bad page hangs."""
    tokens = prose(2_000)
    up.enqueue([Headers(), Role(), Prose(tuple(tokens), 500), Finish(), UsageChunk(), Done()])
    await tab.measure(MEASURE)
    await tab.say("Write at length")
    await tab.sees_ending("completed")
    figures = Figures.of(await tab.measure("window.measured"))

    await tab.copies(["Write at length", "".join(tokens)])
    assert figures.frame_median < 100
    assert figures.longest_task < 2_000
