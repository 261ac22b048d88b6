"""Long answers and long sessions, measured in the browser. Figures of a quiet machine: bench/README.md."""

import asyncio

import pytest
from playwright.async_api import expect

from bench.browser import MEASURE, Figures, Prose, prose
from tests.requirements import requirement
from tests.support.upstream import Done, Finish, Headers, Role, UsageChunk, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@requirement("ui.browser-smooth")
async def test_a_long_answer_is_drawn_without_blocking_the_page(tab, up):
    """2,000 tokens at 500 a second, with tables and code. Bounds are wide: a busy machine is slow, a bad page hangs."""
    tokens = prose(2_000)
    up.enqueue([Headers(), Role(), Prose(tuple(tokens), 500), Finish(), UsageChunk(), Done()])
    await tab.measure(MEASURE)
    await tab.say("Write at length")
    await tab.sees_ending("completed", "".join(tokens))
    figures = Figures.of(await tab.measure("window.measured"))

    assert figures.frame_median < 100
    assert figures.longest_task < 2_000


@requirement("ui.browser-smooth")
async def test_a_long_session_opens_with_its_newest_messages_only(new_tab, api, up):
    """Its older ones are drawn as one scrolls up to them, to the very first."""
    up.models["paced"] = answer("An answer of some words.")
    session = await api.new_session(model="up/paced")
    for n in range(50):
        await api.settled(await api.start(session, f"Question {n}", "up/paced"))
    tab = await new_tab(f"/s/{session}")
    await expect(tab.messages.last).to_have_attribute("data-text", "An answer of some words.")
    assert await tab.messages.count() < 60

    async with asyncio.timeout(40):
        while await tab.messages.count() < 100:
            await tab.page.locator(".transcript").evaluate("e => { e.scrollTop = 0 }")
            await tab.measure("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert "Question 0" == (await tab.transcript())[0]
