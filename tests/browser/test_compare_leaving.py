"""A comparison that is left while it runs goes on, and is live again for whoever comes back."""

import pytest
from playwright.async_api import Dialog, expect

from tests.browser.tab import Tab
from tests.browser.test_compare import ANSWERS, HANGS, PHONE, compare, comparison_id, pane, server, set_up  # noqa: F401
from tests.requirements import requirement

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def running(new_tab) -> Tab:
    """A comparison of which one pane has completed, and one goes on."""
    tab: Tab = await new_tab("/compare")
    await set_up(tab, [HANGS, ANSWERS], blind=False)
    await tab.say("Which wave?")
    await expect(pane(tab, 1)).to_have_attribute("data-outcome", "completed")
    await expect(pane(tab, 0).locator(".segment > .markdown")).not_to_be_empty()
    return tab


@requirement("ui.browser-compare", "cmp.detached")
@pytest.mark.parametrize("how", ["reload", "closed tab", "another view"])
async def test_a_comparison_that_is_left_is_live_again_for_whoever_comes_back(new_tab, compare, how):  # noqa: F811
    """Whoever wants the responses need not keep a page open for them, and is not asked whether to leave."""
    tab = await running(new_tab)
    asked: list[Dialog] = []
    tab.page.on("dialog", lambda dialog: asked.append(dialog))
    path, said = f"/compare/{comparison_id(tab)}", "t0 t1 t2"
    await expect(tab.page.get_by_text("Continues in the background.")).to_be_visible()
    await expect(pane(tab, 0).locator(".segment > .markdown")).to_have_text(said, use_inner_text=True)
    match how:
        case "reload":
            await tab.page.reload()
        case "closed tab":
            await tab.page.close(run_before_unload=True)
            tab = await new_tab(path)
        case _:
            await tab.page.locator("a.brand").click()
            await expect(tab.page.locator(".welcome")).to_be_visible()
            await tab.open(path)
    await expect(pane(tab, 0)).to_have_attribute("data-status", "running")
    await expect(pane(tab, 0).locator(".segment > .markdown")).to_have_text(said, use_inner_text=True)
    going_on = await compare.get(comparison_id(tab))
    await tab.press("Stop A")
    await expect(pane(tab, 0)).to_have_attribute("data-outcome", "stopped")

    assert ("running", "detached") == (going_on["status"], going_on["lifetime"])
    assert [] == asked


@requirement("ui.browser-compare", "cmp.rerun")
async def test_a_comparison_whose_client_left_says_so_and_runs_again(new_tab, compare, up):  # noqa: F811
    """A program may have begun it and gone. What had completed is kept, and is not paid for again."""
    begun = await compare.begin([HANGS, ANSWERS], prompt="Which wave?")
    while not (begun.texts[0] and any(frame.event == "run.settled" for frame in begun.frames)):
        await begun.next()
    begun.response.leave()
    await next(request for request in reversed(up.requests) if request.model == HANGS.removeprefix("up/")).wait_closed()
    tab = await new_tab(f"/compare/{begun.path.rpartition('/')[2]}")
    await expect(tab.page.get_by_text("Stopped because the page was closed.").first).to_be_visible()
    requests = len(up.requests)
    await tab.press("Run again")
    await expect(pane(tab, 0)).to_have_attribute("data-status", "running")
    await expect(pane(tab, 0).locator(".segment > .markdown")).not_to_be_empty()
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()

    kept = await compare.get(comparison_id(tab))
    assert 1 == len(up.requests) - requests
    assert ["stopped", "completed"] == [each["settlement"]["outcome"] for each in kept["panes"]]


@requirement("ui.browser-compare", "cmp.detached")
async def test_another_comparison_may_take_the_place_of_one_that_runs(new_tab, compare):  # noqa: F811
    """Both go on, and the first one is found in the list."""
    tab = await running(new_tab)
    id = comparison_id(tab)
    await tab.press("New comparison")
    await expect(tab.page.locator(".panes")).to_have_count(0)

    kept = await compare.get(id)
    assert ("running", "detached") == (kept["status"], kept["lifetime"])
    await compare.post(f"/api/comparisons/{id}/stop")


@requirement("ui.browser-compare")
async def test_on_a_phone_every_button_of_a_running_comparison_shows_its_words(new_tab, compare):  # noqa: F811
    """The tab of each pane has its letter."""
    tab: Tab = await new_tab("/compare", viewport=PHONE)
    await set_up(tab, [HANGS, ANSWERS], blind=False)
    await tab.say("Which wave?")
    await expect(tab.page.locator(".pane-tabs .running")).to_have_count(1)
    tabs = await tab.page.locator(".pane-tabs button").evaluate_all("all => all.map(each => each.offsetWidth)")
    await tab.press("Stop all")

    assert min(tabs) > 20


@requirement("ui.browser-compare", "cmp.detached")
async def test_a_comparison_that_was_left_is_marked_in_the_history_while_it_runs(new_tab, compare):  # noqa: F811
    """It goes on, and costs, on whatever device it was begun."""
    path = f"/compare/{comparison_id(await running(new_tab))}"
    tab: Tab = await new_tab("/compare")
    line = tab.page.locator(f".earlier a[href='{path}'] .about")
    await expect(line).to_contain_text("running · ")
    other = await new_tab(path)
    await other.press("Stop all")

    await expect(line).to_contain_text(HANGS)
    await expect(line).not_to_contain_text("running · ")


@requirement("ui.browser-compare")
async def test_a_comparison_is_deleted_after_a_question_only(new_tab, compare):  # noqa: F811
    """Nobody can bring its responses back."""
    made = await compare.whole([ANSWERS, ANSWERS], prompt="Which wave?")
    tab: Tab = await new_tab("/compare")
    line = tab.page.locator(".earlier li", has=tab.page.locator(f"a[href='/compare/{made['id']}']"))
    dialog = tab.page.get_by_role("dialog", name="Delete")
    await line.get_by_role("button", name="Delete").click()
    await expect(dialog).to_contain_text("Which wave?")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(dialog).to_have_count(0)
    kept = await compare.get(made["id"])
    await line.get_by_role("button", name="Delete").click()
    await dialog.get_by_role("button", name="Delete").click()

    await expect(line).to_have_count(0)
    assert made["id"] == kept["id"]
