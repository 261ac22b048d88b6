"""Accounts at MCP servers in the page: connected at the server that grants the access, used, and disconnected."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.axe import beyond, findings, sideways
from tests.browser.conftest import NewTab
from tests.requirements import requirement
from tests.support.mcp_oauth import OauthLab
from tests.support.native import Native
from tests.support.served import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}


@pytest_asyncio.fixture(loop_scope="session")
async def desk(api: Native) -> AsyncIterator[OauthLab]:
    """An MCP server that wants accounts, set up in the page."""
    lab = OauthLab()
    async with Served(lab) as served:
        lab.url = served.url
        described = {"name": "desk", "url": f"{lab.url}/mcp", "auth": "oauth"}
        assert 201 == (await api.client.post("/api/mcp", described)).status
        yield lab
        assert 204 == (await api.client.request("DELETE", "/api/mcp/desk")).status


@requirement("mcp.oauth", "mcp.oauth-secret")
async def test_an_account_is_connected_and_disconnected_by_keyboard(new_tab: NewTab, desk: OauthLab):
    """The browser goes away and comes back; the code does not stay in the address."""
    tab = await new_tab("/agents")
    line = tab.page.locator("[data-server=desk]")
    await line.get_by_role("button", name="Connect an account at desk").press("Enter")
    await expect(tab.page.get_by_text("Connected: desk")).to_be_visible()
    account = tab.page.locator("[data-account=desk]")
    await expect(account.get_by_text("Connected as of")).to_be_visible()
    address = tab.page.url
    await tab.open("/agents")
    await line.get_by_role("button", name="Tools of desk").press("Enter")
    tools = tab.page.get_by_role("dialog", name="Tools of desk")
    await expect(tools.locator("summary", has_text="Look at the desk.")).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await line.get_by_role("button", name="Disconnect the account at desk").press("Enter")
    await expect(line.get_by_role("button", name="Connect an account at desk")).to_be_visible()

    assert address.endswith("/settings")
    assert 2 == len(desk.revoked)


@requirement("mcp.oauth-client", "mcp.sealed")
async def test_the_secret_of_a_client_is_given_kept_and_given_anew(new_tab: NewTab, desk: OauthLab, api: Native):
    """It is written and never read: the field is empty, and says that one is stored."""
    tab = await new_tab("/agents")
    desk.client = "client_secret_basic holdfast:first"
    for secret in ("first", "", "second"):
        await tab.page.get_by_role("button", name="Edit MCP server desk").press("Enter")
        form = tab.page.get_by_role("dialog", name="Edit MCP server desk")
        await form.locator("summary").press("Enter")
        field = form.get_by_label("Client secret")
        await expect(field).to_have_value("")
        stored = "" if secret == "first" else "Stored. Leave blank to keep it"
        await expect(field).to_have_attribute("placeholder", stored)
        await form.get_by_label("Client id").fill("holdfast")
        await field.fill(secret)
        await form.get_by_role("button", name="Save").press("Enter")
        await expect(form).to_have_count(0)
        listed = (await api.get("/api/mcp"))["servers"]
        assert [("holdfast", True)] == [(each["oauth_client"], each["oauth_secret_set"]) for each in listed]
        if not secret:
            await tab.page.locator("[data-server=desk]").get_by_role("button", name="Connect an account").press("Enter")
            await expect(tab.page.get_by_text("Connected: desk")).to_be_visible()
            await tab.open("/agents")
    desk.client = "client_secret_basic holdfast:second"
    desk.end_tokens()
    called = await (await api.client.post("/api/mcp/desk/call", {"tool": "look", "arguments": {}})).json()

    assert "a lamp" == called["output"]


@requirement("mcp.oauth")
@pytest.mark.usefixtures("needs_axe", "desk")
@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "dark"), ("de-DE", "light"), ("ar", "dark")])
async def test_accounts_are_read_on_a_phone_in_each_language(new_tab: NewTab, locale: str, scheme: str):
    """Nothing goes beyond the edge, and nothing is out of reach of a screen reader."""
    seen = {}
    for path, place in (("/settings", "[data-account=desk] button"), ("/agents", "[data-server=desk] button")):
        tab = await new_tab(path, viewport=PHONE, locale=locale, color_scheme=scheme, reduced_motion="reduce")
        await expect(tab.page.locator(place).first).to_be_visible()
        if folder := os.environ.get("PICTURES"):
            await tab.page.screenshot(path=Path(folder) / f"accounts{path[1:]}-{locale}.png", full_page=True)
        seen[path] = (await findings(tab), await beyond(tab), await sideways(tab))

    assert {path: ([], [], 0) for path in seen} == seen
