"""A long answer of marks that nobody closes: its session opens, and the page can be used."""

import pytest
from playwright.async_api import expect

from tests.requirements import requirement
from tests.support.long import cases
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

LENGTH = 180_000
TEXTS = {
    "dollars on lines": "$$ x\n",
    "brackets on lines": "\\[ x\n",
    "emphasis": "_a_",
    "parentheses": "\\(a",
    "formulas": "$x$ ",
    "lists in lists": "- ",
}
# The longest time for which the page does nothing else, in milliseconds, while a script waits for frames.
LONGEST_TASK = """async () => {
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({duration}) => duration)));
    observer.observe({type: "longtask", buffered: true});
    for (let frame = 0; frame < 30; frame++) await new Promise((done) => requestAnimationFrame(done));
    return Math.max(0, ...tasks);
}"""
NEVER_OVER = 15_000
"""Milliseconds. It was 40,000 on a quiet machine; what it is now, a busy one may multiply by eight."""


@requirement("safe.page-time")
@pytest.mark.parametrize("name", cases(TEXTS, "brackets on lines", "emphasis", reason="other signs, the same parser"))
async def test_a_session_with_it_opens_and_can_be_used(new_tab, api, up, name):
    """It froze each time it was opened, and nobody could even delete it."""
    text = (TEXTS[name] * LENGTH)[:LENGTH].strip()
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": text, "outcome": "completed"}]
    made = await api.client.post("/api/sessions/import", {"title": name, "model": "up/m", "messages": messages})
    assert 201 == made.status, await made.text()
    tab = await new_tab(f"/s/{(await made.json())['id']}")
    await expect(tab.last_answer).to_have_attribute("data-outcome", "completed")
    assert ["Go", text] == await tab.copied()
    longest = await tab.measure(LONGEST_TASK)
    up.enqueue(answer("Still here."))
    await tab.say("And now?")

    await tab.sees_ending("completed", "Still here.")
    assert longest < NEVER_OVER
