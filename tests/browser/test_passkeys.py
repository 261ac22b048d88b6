"""Passkeys in a real browser, with Chromium's virtual authenticator."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.browser.test_accounts import grow_old
from tests.requirements import requirement
from tests.support.people import PASSWORD, browser, first_admin
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def device(tab: Tab, *, verifies: bool = True) -> tuple[Any, str]:
    """Give the tab an authenticator that has a person's finger on it: its CDP session, and its id."""
    cdp = await tab.page.context.new_cdp_session(tab.page)
    await cdp.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": verifies,
        "automaticPresenceSimulation": True,
    }
    made = await cdp.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return cdp, str(made["authenticatorId"])


def at_localhost(server: Server) -> str:
    """The address of a server under a name: browsers have no passkeys for numbers."""
    return server.url.replace("127.0.0.1", "localhost")


async def signed_out(tab: Tab) -> None:
    """Sign out, and wait for the page that comes then: what is pressed on the one before is lost."""
    async with tab.page.expect_event("load"):
        await tab.press("Sign out")


@requirement("people.passkeys", "people.fresh", "ui.browser-accounts")
@pytest.mark.one_server("it changes the SQLite file of a server")
async def test_a_person_adds_a_passkey_signs_in_with_it_and_removes_it(new_tab: NewTab, tmp_path: Path):
    """Without the password, which an old sign-in does not need either; a copied answer signs nobody in, and neither
    does a passkey that was removed."""
    async with Server(tmp_path) as server:
        await first_admin(server)
        tab = await new_tab("/account", url=at_localhost(server))
        await device(tab)
        await tab.page.get_by_label("Name or e-mail").fill("ada")
        await tab.page.get_by_label("Password", exact=True).fill(PASSWORD)
        await tab.page.get_by_label("Password", exact=True).press("Enter")
        section = tab.page.get_by_role("region", name="Passkeys")
        await section.get_by_role("button", name="Add a passkey").click()
        dialog = tab.page.get_by_role("dialog")
        await dialog.get_by_label("Name").fill("laptop")
        await dialog.get_by_label("Current password", exact=True).fill(PASSWORD)
        await dialog.get_by_role("button", name="Add a passkey").click()
        await expect(section.get_by_text("laptop")).to_be_visible()
        await signed_out(tab)

        sent: list[str] = []
        tab.page.on("request", lambda it: sent.append(it.post_data or "") if it.url.endswith("/passkey") else None)
        await tab.page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(tab.page.locator(".sidebar .person").get_by_role("link", name="ada")).to_be_visible()
        async with browser(server) as thief:
            replayed = await thief.request(
                "POST", "/api/sign-in/passkey", body=sent[0].encode(), headers={"content-type": "application/json"}
            )

        await grow_old(server)
        await tab.open("/account")
        await section.get_by_role("button", name="Delete passkey laptop").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Use a passkey").click()
        await expect(section.get_by_text("laptop")).to_have_count(0)
        await signed_out(tab)
        await tab.page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(tab.page.get_by_role("alert").filter(has_text="was not")).to_be_visible()

        assert (401, "passkey_refused") == (replayed.status, (await replayed.json())["error"]["code"])
        assert [] == await findings(tab)
        await tab.page.close()
