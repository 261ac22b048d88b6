"""A long answer of marks that nobody closes: its session opens, and the page can be used."""

import pytest
from playwright.async_api import CDPSession, expect

from tests.browser.tab import THROTTLE
from tests.requirements import requirement
from tests.support.long import cases
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

LENGTH = int(180_000 / THROTTLE)
TEXTS = {
    "dollars on lines": "$$ x\n",
    "brackets on lines": "\\[ x\n",
    "emphasis": "_a_",
    "parentheses": "\\(a",
    "formulas": "$x$ ",
    "lists in lists": "- ",
}
MOST = 15.0
"""Seconds for which the page computes until it can be used: once 40, now 2. Other work on a machine does not count."""


async def processor_time(watch: CDPSession) -> float:
    """Seconds for which the page has computed."""
    metrics = (await watch.send("Performance.getMetrics"))["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


@requirement("safe.page-time")
@pytest.mark.parametrize("name", cases(TEXTS, "brackets on lines", "emphasis", reason="other signs, the same parser"))
async def test_a_session_with_it_opens_and_can_be_used(new_tab, api, up, name):
    """It froze each time it was opened, and nobody could even delete it."""
    text = (TEXTS[name] * LENGTH)[:LENGTH].strip()
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": text, "outcome": "completed"}]
    made = await api.client.post("/api/sessions/import", {"title": name, "model": "up/m", "messages": messages})
    assert 201 == made.status, await made.text()
    tab = await new_tab(None)
    watch = await tab.page.context.new_cdp_session(tab.page)
    await watch.send("Performance.enable", {"timeDomain": "threadTicks"})
    await tab.open(f"/s/{(await made.json())['id']}")
    await expect(tab.last_answer).to_have_attribute("data-outcome", "completed")
    await tab.copies(["Go", text])
    up.enqueue(answer("Still here."))
    await tab.say("And now?")

    await tab.sees_ending("completed", "Still here.")
    spent = await processor_time(watch)
    assert spent < MOST
