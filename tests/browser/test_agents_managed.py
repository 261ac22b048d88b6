"""Agents and MCP servers in the page: set up, tried, changed and removed, by keyboard and on a phone."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.axe import beyond, findings, sideways
from tests.browser.conftest import NewTab
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
PHONE = {"width": 360, "height": 740}


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def nothing_is_left(api: Native) -> AsyncIterator[None]:
    """Other tests see no agents of these."""
    yield
    for kind, listed in (("agents", "agents"), ("mcp", "servers")):
        for each in (await api.get(f"/api/{kind}"))[listed]:
            if each["editable"]:
                assert 204 == (await api.client.request("DELETE", f"/api/{kind}/{each['name']}")).status


@requirement("ui.agents-managed")
async def test_a_server_and_an_agent_are_set_up_tried_used_and_removed(new_tab: NewTab, up, api, tmp_path):
    """From a command to an answer without a file, and each step says what it has found."""
    tab = await new_tab("/settings")
    await tab.page.get_by_role("link", name="Open agents").click()
    await expect(tab.page.get_by_text("No MCP servers yet.")).to_be_visible()
    await tab.press("Add MCP server")
    form = tab.page.get_by_role("dialog", name="Add MCP server")
    await form.get_by_label("Name", exact=True).fill("slow")
    await form.get_by_role("combobox", name="Type").select_option("Command on the server")
    await form.get_by_label("Command", exact=True).fill(sys.executable)
    await form.get_by_label("Arguments, one on each line").fill("-c\nraise SystemExit('error: no licence')")
    await form.get_by_role("button", name="Test connection").click()
    await expect(form.get_by_role("alert")).to_contain_text("It printed: error: no licence")
    await form.get_by_label("Arguments, one on each line").fill(f"-P\n{SERVER}\n{tmp_path / 'seen'}")
    await form.get_by_role("button", name="Add variable").click()
    await form.get_by_label("Name").nth(1).fill("SLOW_SECRET")
    await form.get_by_label("Value of SLOW_SECRET").fill("quiet-please")
    await form.get_by_role("button", name="Test connection").click()
    await expect(form.get_by_role("status")).to_contain_text("tools.")
    await form.get_by_role("button", name="Save").click()
    line = tab.page.locator("[data-server=slow]")
    await expect(line.get_by_text("not connected")).to_be_visible()
    await expect(line.locator(".excerpt")).to_have_text(f"{sys.executable} -P {SERVER} {tmp_path / 'seen'}")

    await line.get_by_role("button", name="Tools of slow").press("Enter")
    tools = tab.page.get_by_role("dialog", name="Tools of slow")
    await tools.locator("summary", has_text="Add two numbers.").press("Enter")
    await expect(tools.get_by_role("region", name="Arguments of add")).to_contain_text("integer")
    await tools.get_by_label("Arguments (JSON)").first.fill('{"a": 20, "b": 22}')
    await tools.get_by_role("button", name="Call add").press("Enter")
    await expect(tools.get_by_text("42")).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await expect(line.get_by_text("connected", exact=True)).to_be_visible()
    await line.get_by_role("button", name="Edit MCP server slow").click()
    await expect(tab.page.get_by_label("Value of SLOW_SECRET")).to_have_value("")
    await tab.page.keyboard.press("Escape")

    await tab.press("New agent")
    form = tab.page.get_by_role("dialog", name="New agent")
    await form.get_by_label("Name").fill("counter")
    await form.get_by_label("Model", exact=True).fill("up/m")
    await form.get_by_label("mcp:slow").check()
    await form.get_by_role("button", name="Check").click()
    await form.get_by_role("combobox", name="slow__add").select_option("Allow")
    await form.get_by_role("button", name="Save").click()
    line = tab.page.locator("[data-agent=counter]")
    await expect(line).to_contain_text("mcp:slow")
    agents = (await api.get("/api/agents"))["agents"]
    assert {"slow__add": "allow"} == next(each["approvals"] for each in agents if each["name"] == "counter")
    up.enqueue(answer("Done."))
    await line.get_by_role("button", name="Chat with counter").click()
    await tab.say("Count.")
    await tab.sees_ending("completed", "Done.")
    await tab.page.goto("/agents")
    await tab.page.locator("[data-server=slow]").get_by_role("button", name="Remove MCP server slow").click()
    dialog = tab.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Remove", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text("'counter' has the tools of 'slow'")
    await tab.page.keyboard.press("Escape")
    await line.get_by_role("button", name="Remove agent counter").click()
    await dialog.get_by_role("button", name="Remove", exact=True).click()
    await expect(line).to_have_count(0)


@requirement("ui.agents-managed")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("locale", "scheme", "new", "add"),
    [
        ("en-US", "dark", "New agent", "Add MCP server"),
        ("de-DE", "light", "Neuer Agent", "MCP-Server hinzufügen"),
        ("ar", "dark", "وكيل جديد", "إضافة خادم MCP"),
    ],
)
async def test_agents_are_read_on_a_phone_in_each_language(
    new_tab: NewTab, api: Native, locale: str, scheme: str, new: str, add: str
):
    """Nothing goes beyond the edge, and nothing is out of reach of a screen reader."""
    url = "http://127.0.0.1:9/a/rather/long/path/of/a/server/mcp"
    for path, body in (
        (
            "/api/mcp",
            {"name": "away", "url": url, "headers": {"X": "y"}},
        ),
        ("/api/agents", {"name": "a-helper-with-quite-a-long-name", "model": "up/m", "tools": ["files", "mcp:away"]}),
    ):
        assert 201 == (await api.client.post(path, body)).status
    await api.client.post("/api/mcp/away/connect")
    tab = await new_tab("/agents", viewport=PHONE, locale=locale, color_scheme=scheme, reduced_motion="reduce")
    await expect(tab.page.locator("[data-server=away] .problem")).to_be_visible()
    seen = {"page": (await findings(tab), await beyond(tab), await sideways(tab))}
    await _pictured(tab.page, f"page-{locale}")
    for name, button in (("agent", new), ("server", add)):
        await tab.page.get_by_role("button", name=button, exact=True).click()
        for fold in await tab.page.locator("dialog[open] details").all():
            await fold.locator("summary").click()
        seen[name] = (await findings(tab), await beyond(tab), await sideways(tab))
        await _pictured(tab.page, f"{name}-{locale}")
        await tab.page.keyboard.press("Escape")
    assert {name: ([], [], 0) for name in seen} == seen


async def _pictured(page: Any, name: str) -> None:
    if folder := os.environ.get("PICTURES"):
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@requirement("ui.browser-everyday")
@pytest.mark.parametrize(
    ("path", "button", "field"),
    [
        ("/agents", "New agent", "System prompt"),
        ("/agents", "Add MCP server", "Address"),
        ("/presets", "New prompt", "Text"),
        ("/schedules", "New schedule", "Prompt"),
    ],
)
async def test_a_form_asks_before_it_forgets(new_tab: NewTab, path: str, button: str, field: str):
    """The system prompt of an agent is as long in the writing as that of a chat. What is untouched closes at once.

    Escape is no answer to the question: whoever presses it twice has not read it.
    """
    tab = await new_tab(path)
    dialog = tab.page.get_by_role("dialog")
    await tab.press(button)
    await expect(dialog).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await tab.press(button)
    typed = dialog.get_by_role("textbox", name=field)
    await typed.fill("https://example.com")
    question = dialog.get_by_role("alert").filter(has_text="Discard the changes?")
    for times in (1, 0, 1, 0, 1):
        await tab.page.keyboard.press("Escape")
        await expect(question).to_have_count(times)
        await expect(typed).to_be_visible()
        await expect(typed).to_be_focused()
    await expect(typed).to_have_value("https://example.com")
    await dialog.get_by_role("button", name="Discard").click()

    await expect(dialog).to_have_count(0)
