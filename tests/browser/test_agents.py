"""An agent on the page: its tools between its words, approvals, steering, and all of it again after a reload."""

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.requirements import requirement
from tests.support.server import Server
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGENT = """
[[agents]]
name = "helper"
model = "scripted/steps"
tools = ["files"]
approvals = { files_write = "ask" }
folder = "."

[prices]
"scripted/steps" = { input = 2.0, output = 8.0 }
"""
WORK = """files_list {"path": "."}
files_read {"path": "missing.txt"}
files_write {"path": "new.txt", "content": "hi"}
All done."""


@pytest_asyncio.fixture(loop_scope="session")
async def agent(new_tab, tmp_path):
    async with Server(tmp_path, config=AGENT) as server, server.client() as client:
        made = await client.post("/api/sessions", {"model": "agent/helper"})
        yield await new_tab(f"/s/{(await made.json())['id']}", url=server.url)


@requirement("ui.browser-agents")
async def test_what_an_agent_did_is_there_in_its_place_while_it_works_and_after_a_reload(agent):
    """Who comes later sees what one who watched has seen: calls, how they went, who allowed them, what was put in."""
    await agent.say(WORK)
    await expect(agent.page.locator(".approval")).to_be_visible()
    await agent.box.fill("Mind the gap.")
    await agent.press("Steer")
    await expect(agent.live.locator(".steered")).to_have_text("Mind the gap.")
    await agent.press("Allow once")
    await expect(agent.live).to_have_count(0)
    watched = await agent.last_answer.inner_text()
    await agent.page.reload()
    await expect(agent.last_answer).to_have_attribute("data-outcome", "completed")
    tools = agent.last_answer.locator(".tool")

    assert ["files_list", "files_read", "files_write"] == await tools.evaluate_all(
        "all => all.map(e => e.dataset.tool)"
    )
    await expect(tools.nth(0)).to_contain_text("done")
    await expect(tools.nth(1)).to_contain_text("failed")
    await expect(tools.nth(2)).to_contain_text("allowed, done")
    await expect(agent.last_answer.locator(".steered")).to_have_text("Mind the gap.")
    await expect(agent.last_answer.locator(".figures")).to_contain_text("first word")
    await expect(agent.last_answer.locator(".figures")).to_contain_text("cost")
    assert watched == await agent.last_answer.inner_text()


@requirement("ui.browser-smooth")
async def test_the_words_of_an_answer_stay_where_they_are_when_it_ends(tab, up):
    """Nothing is drawn again, so that nothing flickers and no selection is lost."""
    up.enqueue([Headers(), Role(), Delta("First words.\n\n"), Gate("last"), Delta("Last words."), Finish(), Done()])
    await tab.say("Go")
    await tab.reads("First words.\n\n")
    await tab.measure("() => { window.first = document.querySelector('.is-live .markdown p') }")
    up.open("last")
    await tab.sees_ending("completed", "First words.\n\nLast words.")

    assert await tab.measure("() => window.first.isConnected && window.first === document.querySelector('.answer p')")


@requirement("ui.browser-agents", "busy.steer")
async def test_why_an_agent_takes_nothing_more_is_said_where_one_types(agent):
    """It ended at that moment, or another node has it: what was typed is still there, with the reason above it."""
    await agent.say(WORK)
    await expect(agent.page.locator(".approval")).to_be_visible()
    refusal = {
        "error": {"message": "This run is finishing.", "type": "conflict", "code": "cannot_steer", "param": None}
    }
    await agent.page.route("**/steer", lambda route: route.fulfill(status=409, json=refusal))
    await agent.box.fill("Mind the gap.")
    await agent.press("Steer")

    told = agent.page.locator(".composer [role=alert]")
    await expect(told).to_have_text("The agent did not take this: This run is finishing.")
    await expect(agent.box).to_have_value("Mind the gap.")
    await agent.box.fill("Mind the gap, please.")
    await expect(told).to_have_text("")
