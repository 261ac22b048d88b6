"""A comparison that is left while it runs: the page asks first, and says afterwards what happened."""

from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Dialog, Route, expect

from tests.browser.tab import Tab
from tests.browser.test_compare import ANSWERS, HANGS, PHONE, compare, comparison_id, pane, server, set_up  # noqa: F401
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def linger(route: Route) -> None:
    """Ask for panes that linger as long as the server allows: a slow machine needs longer than the page gives it."""
    await route.continue_(post_data={**route.request.post_data_json, "linger": 60})


async def running(new_tab, ask: Callable[[Route], Awaitable[None]] | None = None) -> Tab:
    """A comparison of which one pane has completed, and one goes on."""
    tab: Tab = await new_tab("/compare")
    if ask is not None:
        await tab.page.route("**/api/comparisons", ask)
    await set_up(tab, [HANGS, ANSWERS], blind=False)
    await tab.say("Which wave?")
    await expect(pane(tab, 1)).to_have_attribute("data-outcome", "completed")
    await expect(pane(tab, 0).locator(".words > .markdown")).not_to_be_empty()
    return tab


def questions(tab: Tab) -> list[str]:
    """What the browser asks before it leaves; the answer is always yes."""
    asked: list[str] = []

    async def agree(dialog: Dialog) -> None:
        asked.append(dialog.type)
        await dialog.accept()

    tab.page.on("dialog", agree)
    return asked


@requirement("ui.browser-compare", "cmp.detached")
async def test_panes_that_keep_going_are_live_again_after_a_reload(new_tab, compare):  # noqa: F811
    """Whoever wants the answers of a long comparison need not keep a page open for them."""
    tab = await running(new_tab)
    asked = questions(tab)
    await tab.press("Keep going without me")
    await expect(tab.page.get_by_text("Continues in the background.")).to_be_visible()
    said = "t0 t1 t2"
    await expect(pane(tab, 0).locator(".words > .markdown")).to_have_text(said, use_inner_text=True)
    await tab.page.reload()
    await expect(pane(tab, 0)).to_have_attribute("data-status", "running")
    await expect(pane(tab, 0).locator(".words > .markdown")).to_have_text(said, use_inner_text=True)
    assert "running" == (await compare.get(comparison_id(tab)))["status"]
    await tab.press("Stop A")

    await expect(pane(tab, 0)).to_have_attribute("data-outcome", "stopped")
    assert [] == asked


@requirement("ui.browser-compare", "cmp.linger")
async def test_a_reload_takes_a_comparison_up_again_and_stop_still_stops_it(new_tab, compare):  # noqa: F811
    """The browser asks first, in whatever view: it cannot tell a reload from the end of the page."""
    tab = await running(new_tab, linger)
    asked, path = questions(tab), f"/compare/{comparison_id(tab)}"
    await tab.page.locator("a.brand").click()
    await expect(tab.page.locator(".welcome")).to_be_visible()
    await tab.page.reload()
    await tab.open(path)
    await expect(pane(tab, 0)).to_have_attribute("data-status", "running")
    await expect(pane(tab, 0).locator(".words > .markdown")).not_to_be_empty()
    await expect(tab.page.get_by_text("Stops a few seconds after you close this page.")).to_be_visible()
    await tab.press("Stop all")
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()

    kept = await compare.get(comparison_id(tab))
    assert ["beforeunload"] == asked
    assert ["user", None] == [each["settlement"]["by"] for each in kept["panes"]]


@requirement("ui.browser-compare", "cmp.rerun")
async def test_a_comparison_whose_page_stayed_closed_says_so_and_runs_again(new_tab, compare, up):  # noqa: F811
    """What had completed is kept, and is not paid for again."""
    left = await running(new_tab)
    path = f"/compare/{comparison_id(left)}"
    await left.page.close()
    await next(request for request in reversed(up.requests) if request.model == HANGS.removeprefix("up/")).wait_closed()
    tab = await new_tab(path)
    await expect(tab.page.get_by_text("Stopped because the page was closed.").first).to_be_visible()
    requests = len(up.requests)
    await tab.press("Run again")
    await expect(pane(tab, 0)).to_have_attribute("data-status", "running")
    await expect(pane(tab, 0).locator(".words > .markdown")).not_to_be_empty()
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()

    kept = await compare.get(comparison_id(tab))
    assert 1 == len(up.requests) - requests
    assert ["stopped", "completed"] == [each["settlement"]["outcome"] for each in kept["panes"]]


@requirement("ui.browser-compare", "cmp.detached")
async def test_the_page_asks_before_another_comparison_takes_the_place_of_one_that_runs(new_tab, compare):  # noqa: F811
    """Cancel leaves it running; it can be stopped, or keep going."""
    tab = await running(new_tab)
    id = comparison_id(tab)
    dialog = tab.page.get_by_role("dialog")
    await tab.press("New comparison")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(pane(tab, 0)).to_have_attribute("data-status", "running")
    await tab.press("New comparison")
    await dialog.get_by_role("button", name="Keep going without me").click()
    await expect(tab.page.locator(".panes")).to_have_count(0)

    kept = await compare.get(id)
    assert ("running", "detached") == (kept["status"], kept["lifetime"])
    await compare.post(f"/api/comparisons/{id}/stop")


@requirement("ui.browser-compare")
async def test_on_a_phone_every_button_of_a_running_comparison_shows_its_words(new_tab, compare):  # noqa: F811
    """The tab of each pane has its letter, and no word of the question before leaving is broken."""
    tab: Tab = await new_tab("/compare", viewport=PHONE)
    await set_up(tab, [HANGS, ANSWERS], blind=False)
    await tab.say("Which wave?")
    await expect(tab.page.locator(".pane-tabs .running")).to_have_count(1)
    tabs = await tab.page.locator(".pane-tabs button").evaluate_all("all => all.map(each => each.offsetWidth)")
    await tab.press("New")
    cancel = tab.page.get_by_role("dialog").get_by_role("button", name="Cancel")
    await expect(cancel).to_be_visible()
    heights = await tab.page.locator("dialog footer button").evaluate_all("all => all.map(each => each.offsetHeight)")

    assert min(tabs) > 20
    assert 1 == len(set(heights))
    await tab.page.get_by_role("button", name="Stop and leave").click()
    await expect(tab.page.locator(".panes")).to_have_count(0)
