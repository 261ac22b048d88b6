"""A blind comparison by hand: one pane fails, nothing is named before the vote, and axe finds nothing."""

import pytest
from playwright.async_api import expect

from tests.browser.test_access import findings
from tests.requirements import requirement
from tests.support.upstream import TEXT, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def choose(tab, *models: str) -> None:
    """In the words of the page: add a model, type its name, Enter."""
    for model in models:
        await tab.page.get_by_role("button", name="Add model").click()
        await tab.page.get_by_label("Search models").fill(model)
        await tab.page.get_by_label("Search models").press("Enter")
        await expect(tab.page.get_by_role("dialog")).to_have_count(0)


@requirement("ui.browser-compare", "cmp.blind", "cmp.failed-pane")
async def test_a_blind_comparison_with_a_failing_pane(new_tab, up):
    """Nothing on the page names a model before the vote, and a pane that failed cannot win."""
    up.models["other"] = answer("A red answer.")
    up.models["m"] = answer("A blue answer.")
    tab = await new_tab("/compare")
    await choose(tab, "up/m", "up/other", "up/end:cut")
    await expect(tab.page.get_by_label("Blind")).to_be_checked()
    box = tab.page.get_by_label("Prompt for all models")
    await box.fill("Which colour?")
    await box.press("Enter")
    panes = tab.page.locator(".pane")
    await expect(panes).to_have_count(3)
    await expect(tab.page.locator(".pane[data-outcome=completed]")).to_have_count(2)
    failed = tab.page.locator(".pane[data-outcome=failed]")
    await expect(failed.get_by_role("note")).to_contain_text("Failed.")

    board = await tab.page.locator("main").inner_html()
    assert [] == [name for name in ("up/m", "up/other", "up/end") if name in board]
    said = panes.locator(".segment > .markdown")
    for text in ("A blue answer.", "A red answer."):
        await expect(said.get_by_text(text, exact=True)).to_have_count(1)
    partial = await failed.locator(".segment > .markdown").text_content()
    assert TEXT.startswith(partial or "")
    assert [] == await findings(tab)

    winners = tab.page.locator(".vote .winner")
    await expect(winners).to_have_count(2)
    await winners.first.click()
    await expect(tab.page.locator(".pane.is-winner")).to_have_count(1)
    await expect(tab.page.locator(".pane h2")).to_have_count(3)
    for name in ("up/m", "up/other", "up/end:cut"):
        await expect(tab.page.locator(".pane h2").get_by_text(name, exact=True)).to_have_count(1)
    assert [] == await findings(tab)
