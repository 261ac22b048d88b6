"""Long answers, measured in the browser. Figures of a quiet machine: bench/README.md."""

import pytest

from bench.browser import MEASURE, Figures, Prose, prose
from tests.browser.tab import THROTTLE
from tests.browser.test_hostile_length import processor_time
from tests.requirements import requirement
from tests.support.upstream import Done, Finish, Headers, Role, UsageChunk

pytestmark = pytest.mark.asyncio(loop_scope="session")


MOST = 4.0 * THROTTLE
"""Seconds for which the page computes: as long as the answer takes; now 0.6. Other work on a machine does not count."""


@requirement("ui.browser-smooth")
async def test_a_long_answer_is_drawn_without_blocking_the_page(tab, up):
    """2,000 tokens at 500 a second, with tables and code. The bound of a task is wide: a busy machine is slow."""
    tokens = prose(2_000)
    up.enqueue([Headers(), Role(), Prose(tuple(tokens), 500), Finish(), UsageChunk(), Done()])
    watch = await tab.page.context.new_cdp_session(tab.page)
    await watch.send("Performance.enable", {"timeDomain": "threadTicks"})
    await tab.measure(MEASURE)
    await tab.say("Write at length")
    await tab.sees_ending("completed")
    spent = await processor_time(watch)
    figures = Figures.of(await tab.measure("window.measured"))

    await tab.copies(["Write at length", "".join(tokens)])
    assert spent < MOST
    assert figures.longest_task < 2_000
