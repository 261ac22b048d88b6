"""Agents in panes, and the one answer that a model makes of all: pressed, read, stopped, asked and allowed."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser.axe import findings, sideways
from tests.browser.conftest import NewTab
from tests.browser.test_compare import PHONE, set_up
from tests.requirements import requirement
from tests.support.compare import Compare
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Upstream, answer, calling

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGENT = """
[[agents]]
name = "helper"
model = "up/writes"
tools = ["files"]
approvals = { files_write = "ask" }
folder = "."
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    up.models["one"] = answer("The moon is **4 billion** years old.")
    up.models["two"] = answer("The moon is 4.5 billion years old.")
    up.models["judge"] = answer("About 4.5 billion years.")
    wrote = calling(("files_write", {"path": "new.txt", "content": "hi"}), text="I write it down. ")
    up.models["writes"] = lambda request: answer("Done.") if request.body["messages"][-1]["role"] == "tool" else wrote
    folder = tmp_path_factory.mktemp("synthesis")
    async with Server(folder, [provider(up.base_url, models=None)], config=AGENT) as server:
        yield server


@requirement("cmp.synthesis")
async def test_one_press_makes_one_answer_of_all_and_the_vote_is_still_blind(new_tab: NewTab, up: Upstream):
    """By keyboard: the model is chosen once. After a reload it is there, and it can be stopped and made again."""
    tab = await new_tab("/compare")
    await set_up(tab, ["up/one", "up/two"], blind=True)
    await tab.say("How old is the moon?")
    await tab.page.get_by_role("button", name="Synthesize the responses").press("Enter")
    dialog = tab.page.get_by_role("dialog")
    await dialog.get_by_role("combobox").fill("up/judge")
    await dialog.get_by_role("combobox").press("Enter")
    made = tab.page.locator(".pane.synthesis[data-outcome=completed]")
    await expect(made.locator(".markdown")).to_have_text("About 4.5 billion years.")
    await expect(made.locator("footer")).to_contain_text("Made of A, B")
    shown = await tab.page.content()
    assert [] == [model for model in ("up/one", "up/two") if model in shown]
    await tab.page.reload()
    await expect(made.locator(".markdown")).to_have_text("About 4.5 billion years.")
    up.models["judge"] = [Headers(), Role(), Delta("Well, "), Gate("never"), Finish(), Done()]
    await made.get_by_role("button", name="Actions for Synthesis").click()
    await tab.page.get_by_role("menuitem", name="Make it again").click()
    await expect(tab.page.locator(".pane.synthesis .markdown")).to_have_text("Well,")
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.locator(".pane.synthesis[data-outcome=stopped] .markdown")).to_have_text("Well,")
    up.models["judge"] = answer("About 4.5 billion years.")
    await tab.page.locator(".vote .winner").first.click()
    await expect(tab.page.locator(".vote-told")).to_contain_text("up/")
    await expect(tab.page.locator(".pane.synthesis .markdown")).to_have_text("Well,")
    await tab.say("And the sun?")
    await expect(tab.page.locator(".pane.synthesis footer")).to_contain_text("answered again")
    await tab.page.get_by_role("button", name="Synthesize with up/judge").click()
    await expect(tab.page.locator(".pane.synthesis .markdown")).to_have_text("About 4.5 billion years.")


@requirement("cmp.synthesis")
async def test_a_synthesis_comes_into_view(new_tab: NewTab, up: Upstream, api: Native):
    """The fourth pane begins a second row, which is out of sight."""
    kept = await Compare(api.client).whole(["up/one", "up/two", "up/one"], "How old is the moon?")
    up.models["judge"] = [Headers(), Role(), Delta("Well, "), Gate("never"), Finish(), Done()]
    tab = await new_tab(f"/compare/{kept['id']}")
    await tab.page.get_by_role("button", name="Synthesize the responses").click()
    await tab.page.get_by_role("dialog").get_by_role("combobox").fill("up/judge")
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.locator(".pane.synthesis .markdown")).to_have_text("Well,")
    await expect(tab.page.locator(".pane.synthesis")).to_be_in_viewport(ratio=0.9)
    await tab.page.keyboard.press("Escape")

    await expect(tab.page.locator(".pane.synthesis")).to_have_attribute("data-outcome", "stopped")
    up.models["judge"] = answer("About 4.5 billion years.")


@requirement("cmp.agents")
async def test_an_agent_in_a_pane_shows_its_calls_and_asks_there(new_tab: NewTab):
    """The other pane is done meanwhile. What it did stays in sight when all have ended."""
    tab = await new_tab("/compare")
    await set_up(tab, ["up/one", "agent/helper"], blind=False)
    await tab.say("Write it down.")
    agent = tab.page.locator(".pane[data-pane='1']")
    await expect(agent.locator(".approval")).to_be_visible()
    await expect(tab.page.locator(".pane[data-pane='0'][data-outcome=completed]")).to_be_visible()
    await expect(agent.get_by_role("button", name="Allow for this chat")).to_have_count(0)
    await agent.get_by_role("button", name="Allow once").click()
    await expect(tab.page.locator(".pane[data-pane='1'][data-outcome=completed]")).to_be_visible()
    await expect(agent.locator(".tool")).to_contain_text("files_write")
    await expect(agent.locator(".segment > .markdown")).to_have_text(["I write it down. ", "Done."])


@requirement("cmp.synthesis", "cmp.agents")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("locale", "scheme", "madeOf"), [("en-US", "dark", "Made of"), ("de-DE", "light", "Aus"), ("ar", "dark", "من")]
)
async def test_they_fit_a_phone_in_every_language_and_axe_finds_nothing(
    new_tab: NewTab, api: Native, locale: str, scheme: str, madeOf: str
):
    """The synthesis is one more card, with a tab; a pane that asks says so in its tab."""
    compare = Compare(api.client)
    kept = await compare.whole(["up/one", "up/two"], "How old is the moon?")
    path = f"/api/comparisons/{kept['id']}/synthesis"
    made = await compare.post(path, {"model": "up/judge"}, 202)
    await api.settled(made["synthesis"]["run_id"])
    tab = await new_tab(f"/compare/{kept['id']}", viewport=PHONE, locale=locale, color_scheme=scheme)
    await expect(tab.page.locator(".pane.synthesis footer")).to_contain_text(f"{madeOf} A, B")
    await tab.page.locator(".pane-tabs button").last.click()
    await expect(tab.page.locator(".pane.synthesis")).to_be_in_viewport(ratio=0.9)
    await pictured(tab.page, f"synthesis-{locale}")
    assert ([], 0) == (await findings(tab), await sideways(tab))
    asking = await compare.begin(["up/one", "agent/helper"], "Write it down.", lifetime="detached")
    await asking.until("approval.requested")
    await tab.page.goto(f"{tab.page.url.rpartition('/')[0]}/{asking.comparison['id']}")
    await expect(tab.page.locator(".pane-tabs .asking")).to_be_visible()
    await tab.page.locator(".pane-tabs .asking").click()
    await expect(tab.page.locator(".approval")).to_be_in_viewport(ratio=0.3)
    await pictured(tab.page, f"asking-{locale}")
    assert [] == await findings(tab)
    await compare.post(f"{asking.path}/stop")


async def pictured(page: Page, name: str) -> None:
    if folder := os.environ.get("PICTURES"):
        await page.screenshot(path=Path(folder) / f"{name}.png")
