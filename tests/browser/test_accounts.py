"""Accounts as people use them: the first admin, signing in and out, keys, and what an admin does."""

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast.server.features.accounts.factors.totp import STEP, totp_code
from tests.browser.axe import beyond, findings, sideways
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, first_admin, sign_in
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")

OTHER_PASSWORD = "another horse, another battery"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
SignedIn = Callable[..., Awaitable[Tab]]


@dataclass
class World:
    """A server with accounts, and the cookie of its admin."""

    server: Server
    ada: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Server(tmp_path_factory.mktemp("accounts"), [provider(up.base_url)]) as server:
        yield World(server, await first_admin(server))


@pytest_asyncio.fixture(loop_scope="session")
async def signed_in(world: World, new_tab: NewTab) -> SignedIn:
    """`await signed_in(cookie, "/account")` is a tab of a browser in which a person is signed in."""

    async def make(cookie: str, path: str = "/", server: Server = world.server, **options: Any) -> Tab:
        tab = await new_tab(None, url=server.url, **options)
        name, _, value = cookie.partition("=")
        await tab.page.context.add_cookies([{"name": name, "value": value, "url": server.url}])
        await tab.open(path)
        return tab

    return make


async def fill_in(tab: Tab, name: str, password: str = PASSWORD) -> None:
    await tab.page.get_by_label("Name or e-mail").fill(name)
    await tab.page.get_by_label("Password", exact=True).fill(password)
    await tab.page.get_by_label("Password", exact=True).press("Enter")


async def choose_password(tab: Tab, password: str) -> None:
    await tab.page.get_by_label("New password", exact=True).fill(password)
    await tab.page.get_by_label("New password, again").fill(password)


async def sees_sign_in(tab: Tab) -> None:
    await expect(tab.page.get_by_role("heading", name="Sign in to Holdfast")).to_be_visible()
    await expect(tab.page.locator(".sidebar, .transcript")).to_have_count(0)


def person(tab: Tab, name: str) -> Any:
    """Who is signed in, as the sidebar says."""
    return tab.page.locator(".sidebar .person").get_by_role("link", name=name)


@requirement("ui.browser-accounts")
async def test_the_first_admin_is_made_with_the_code_that_the_server_prints(new_tab: NewTab, tmp_path: Path):
    """A server that others can reach is closed to everyone until then, and a guessed code opens nothing."""
    async with Server(tmp_path, args=["--host", "0.0.0.0"], env={"HOLDFAST_OFFLINE": "1"}) as server:
        (code,) = re.findall(r"with this code: (\S+)", server.log_text())
        tab = await new_tab(url=server.url)
        await tab.page.get_by_label("Code").fill("guessed")
        await tab.page.get_by_label("Name", exact=True).fill("ada")
        await choose_password(tab, PASSWORD)
        await tab.press("Create account")
        await expect(tab.page.get_by_role("alert")).not_to_be_empty()
        await tab.page.get_by_label("Code").fill(code)
        await tab.press("Create account")

        await expect(person(tab, "ada")).to_be_visible()
        await expect(tab.box).to_be_visible()
        stranger = await new_tab(url=server.url)
        await sees_sign_in(stranger)
        for each in (tab, stranger):
            await each.page.close()


@requirement("ui.browser-accounts")
async def test_the_only_user_adds_accounts_and_keeps_the_chats(new_tab: NewTab, up: Upstream, tmp_path: Path):
    """From the settings, without a code; the page says before what will change, and weak passwords are not sent."""
    async with Server(tmp_path, [provider(up.base_url)]) as server:
        up.enqueue(answer("Kept."))
        tab = await new_tab(url=server.url)
        await tab.say("Before there were accounts")
        await tab.sees_ending("completed", "Kept.")
        await tab.open("/settings")
        await tab.page.get_by_role("link", name="Add accounts").click()
        await expect(tab.page.get_by_text("Everyone has to sign in, on this computer too.")).to_be_visible()
        await expect(tab.page.get_by_label("Code")).to_have_count(0)
        await tab.page.get_by_label("Name", exact=True).fill("ada")
        await choose_password(tab, "short")
        await expect(tab.button("Create account")).to_be_disabled()
        await choose_password(tab, "password123")
        await tab.press("Create account")
        await expect(tab.page.get_by_role("alert")).to_contain_text("most common")
        await choose_password(tab, PASSWORD)
        await tab.press("Create account")

        await expect(person(tab, "ada")).to_be_visible()
        await tab.page.locator(".session a", has_text="Before there were accounts").click()
        await tab.sees_ending("completed", "Kept.")
        await tab.page.close()


@requirement("ui.browser-accounts")
async def test_a_person_signs_in_where_they_were_and_out_in_every_tab(world: World, new_tab: NewTab, up: Upstream):
    """A wrong password says so and opens nothing; a sign-out leaves no chat on the screen of any tab."""
    cookie = await add_person(world.server, world.ada, "dora")
    async with browser(world.server, cookie) as client:
        session = await Native(client).new_session(title="Dora's chat", model="up/m")
    tab = await new_tab(f"/s/{session}", url=world.server.url)
    await sees_sign_in(tab)
    await fill_in(tab, "dora", "wrong password")
    await expect(tab.page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    await fill_in(tab, "dora")
    await expect(tab.page.get_by_role("heading", name="Dora's chat")).to_be_visible()
    assert tab.page.url.endswith(f"/s/{session}")
    beside = await new_tab("/", beside=tab)
    up.enqueue(answer("Hello."))
    await beside.say("Hi")
    await beside.sees_ending("completed", "Hello.")
    await tab.box.fill("A secret draft")
    async with tab.page.expect_event("load"):  # its page is another one then
        await beside.press("Sign out")

    for each in (beside, tab):
        await sees_sign_in(each)
    await tab.finds([], "Object.keys(localStorage).filter((name) => name.startsWith('holdfast.draft'))")
    await fill_in(tab, "dora")
    for each in (tab, beside):
        await expect(person(each, "dora")).to_be_visible()


@requirement("ui.browser-accounts")
async def test_another_persons_tabs_are_loaded_anew(world: World, signed_in: SignedIn, new_tab: NewTab):
    """Two people use one browser: what the first one had open is gone when the second one signs in."""
    theirs = await add_person(world.server, world.ada, "early")
    await add_person(world.server, world.ada, "late")
    async with browser(world.server, theirs) as client:
        session = await Native(client).new_session(title="Early's chat")
    first = await signed_in(theirs, f"/s/{session}")
    await expect(first.page.get_by_role("heading", name="Early's chat")).to_be_visible()
    second = await new_tab("/sign-in?next=/settings", beside=first)
    await fill_in(second, "late")
    await expect(person(second, "late")).to_be_visible()

    assert second.page.url.endswith("/settings")
    await expect(first.page.get_by_text("Chat not found")).to_be_visible()
    await expect(first.page.get_by_text("Early's chat")).to_have_count(0)


@requirement("ui.browser-accounts")
async def test_a_sign_in_leads_to_no_other_site(world: World, new_tab: NewTab):
    """A link to our own sign-in must not be a trap. What else a link can try is tested where the path is read."""
    await add_person(world.server, world.ada, "led")
    tab = await new_tab("/sign-in?next=//there.example/", url=world.server.url)
    await fill_in(tab, "led")
    await expect(tab.box).to_be_visible()

    assert f"{world.server.url}/" == tab.page.url


@requirement("ui.browser-accounts")
async def test_too_many_wrong_passwords_have_to_wait_and_are_told_how_long(world: World, new_tab: NewTab):
    """The button counts the seconds down; a press of Enter sends nothing meanwhile."""
    tab = await new_tab("/sign-in", url=world.server.url)
    button = tab.page.locator("form button[type=submit]")
    alert = tab.page.get_by_role("alert")
    for _ in range(10):  # a slow machine may let a first wait pass
        await expect(button).to_be_enabled()
        async with tab.page.expect_response("**/api/sign-in") as answered:
            await fill_in(tab, "no-such-person", "wrong password")
        if 429 == (await answered.value).status:
            break
        await expect(alert).to_have_text("The name or the password is wrong.")

    await expect(alert).to_contain_text("too many wrong passwords")
    await expect(button).to_have_text(re.compile(r"Try again in \d+ seconds"))
    await expect(button).to_be_disabled()


@requirement("ui.browser-accounts")
async def test_a_key_is_another_way_in(world: World, new_tab: NewTab):
    """Who has a key and no account uses that; the page offers no account then."""
    async with browser(world.server, world.ada) as client:
        made = await (await client.post("/api/admin/keys", {"name": "kiosk"})).json()
    tab = await new_tab(url=world.server.url)
    await sees_sign_in(tab)
    await tab.press("Use a key instead")
    await tab.page.get_by_label("API key", exact=True).fill(made["key"])
    await tab.page.get_by_role("dialog").get_by_role("button", name="Sign in").click()

    await expect(tab.box).to_be_visible()
    await expect(tab.page.locator(".sidebar .person")).to_have_count(0)


@requirement("ui.browser-accounts")
async def test_a_key_is_made_shown_once_used_rotated_and_revoked(world: World, signed_in: SignedIn):
    """What the page shows is what a program sends; the list knows only its beginning."""
    tab = await signed_in(await add_person(world.server, world.ada, "keen"), "/account")
    await tab.press("New key")
    await tab.page.get_by_label("Name", exact=True).last.fill("laptop")
    await tab.press("Create key")
    first = await tab.page.get_by_label("API key").input_value()
    await tab.press("Done")
    line = tab.page.locator("[data-key=laptop]")
    await expect(line).to_contain_text(first[:6])
    await expect(tab.page.get_by_label("API key")).to_have_count(0)
    assert first not in await tab.page.content()
    assert 200 == await status_of(world, first)
    await tab.press("Rotate laptop")
    await tab.page.get_by_role("dialog").get_by_role("button", name="Rotate", exact=True).click()
    second = await tab.page.get_by_label("API key").input_value()
    await tab.press("Done")
    assert [200, 200] == [await status_of(world, key) for key in (first, second)]
    await tab.press("Revoke laptop")
    await tab.page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()

    await expect(line).to_have_count(0)
    assert [401, 200] == [await status_of(world, key) for key in (first, second)]


async def status_of(world: World, key: str) -> int:
    async with world.server.client(authorization=f"Bearer {key}") as client:
        return (await client.get("/v1/models")).status


@requirement("ui.browser-accounts", "budget.set")
async def test_the_limits_of_a_key_are_set_by_its_owner_and_changed_by_an_admin(world: World, signed_in: SignedIn):
    """Who makes a key can bound it; only an admin changes that later. Both lists show what a key is limited to."""
    tab = await signed_in(await add_person(world.server, world.ada, "bounded"), "/account")
    await tab.press("New key")
    await tab.page.get_by_label("Name", exact=True).last.fill("cron")
    await tab.page.get_by_label("Models (blank for all)").fill("up/*")
    await tab.page.get_by_role("dialog").get_by_text("Limits", exact=True).click()
    await tab.page.get_by_label("Tokens per day").fill("1500")
    await tab.page.get_by_label("Tokens per day").press("Enter")
    await tab.press("Done")
    line = tab.page.locator("[data-key=cron]")
    await expect(line).to_contain_text("models: up/* · Tokens per day: 1,500")
    await expect(line.get_by_role("button", name="Limits of cron")).to_have_count(0)
    admin = await signed_in(world.ada, "/admin/keys")
    await admin.press("Limits of cron")
    await admin.page.get_by_label("Tokens per day").fill("")
    await admin.page.get_by_label("Requests per minute").fill("7")
    await admin.press("Save")

    await expect(admin.page.locator("[data-key=cron]")).to_contain_text("Requests per minute: 7")
    async with browser(world.server, world.ada) as client:
        keys = (await Native(client).get("/api/admin/keys"))["keys"]
    assert [{"requests_per_minute": 7}] == [key["budget"] for key in keys if key["name"] == "cron"]


@requirement("ui.browser-accounts", "people.oidc", "ui.browser-language")
@pytest.mark.parametrize(
    ("code", "locale", "told"),
    [
        ("no_account", "en-US", "You have no account on this server, or it is disabled. Ask an administrator"),
        ("oidc_unavailable", "de", "Ihr Identitätsanbieter ist nicht erreichbar. Versuchen Sie es in einigen Minuten"),
        ("Call 0900", "en-US", "Signing in did not work. Try again."),
    ],
)
async def test_a_sign_in_that_failed_elsewhere_is_told(
    world: World, new_tab: NewTab, code: str, locale: str, told: str
):
    """What to do, in words; the code leaves the address, and one that a stranger made up is not shown."""
    tab = await new_tab(f"/?sign_in_error={code}", url=world.server.url, locale=locale)
    alert = tab.page.get_by_role("alert").first

    await expect(alert).to_contain_text(told)
    assert f"{world.server.url}/" == tab.page.url
    assert "0900" not in await tab.page.content()


@requirement("ui.browser-accounts", "ui.browser-access")
async def test_dialogs_of_accounts_are_used_by_keyboard_alone(world: World, signed_in: SignedIn):
    """The first field has the focus, an error is tied to its field, Escape closes, and the focus is where it was."""
    tab = await signed_in(world.ada, "/admin/groups")
    dialog, focused = tab.page.get_by_role("dialog"), tab.page.locator(":focus")
    opener = tab.button("Add group")
    await opener.focus()
    await tab.page.keyboard.press("Enter")
    await expect(tab.page.get_by_label("Name", exact=True)).to_be_focused()
    await tab.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(opener).to_be_focused()
    await tab.open("/admin/people")
    await tab.button("Add person").focus()
    await tab.page.keyboard.press("Enter")
    await tab.page.keyboard.type("not a name")
    await tab.page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_contain_text("A name has 1 to 64 letters")
    await expect(focused).to_have_attribute("name", "name")
    await expect(focused).to_have_attribute("aria-invalid", "true")
    alert = await dialog.get_by_role("alert").get_attribute("id")
    await expect(focused).to_have_attribute("aria-describedby", str(alert))
    await focused.fill("keyboarder")
    await tab.page.keyboard.press("Enter")
    link = tab.page.get_by_label("Reset link", exact=True)
    await expect(link).to_be_focused()
    await tab.page.keyboard.press("Escape")

    await expect(dialog).to_have_count(0)
    await expect(tab.button("Add person")).to_be_focused()


@requirement("ui.browser-accounts")
async def test_name_password_and_sign_ins_are_changed_in_the_page(world: World, signed_in: SignedIn):
    """The other browser is out at once; the old password opens nothing any more."""
    await add_person(world.server, world.ada, "mutable")
    tab = await signed_in(await sign_in(world.server, "mutable"), "/account")
    other = await signed_in(await sign_in(world.server, "mutable"))
    await expect(other.box).to_be_visible()
    await tab.page.get_by_label("Name", exact=True).fill("changed")
    await tab.press("Save")
    await expect(person(tab, "changed")).to_be_visible()
    await tab.page.get_by_text("Change password").first.click()
    current = tab.page.get_by_role("region", name="Password").get_by_label("Current password")
    await current.fill("wrong password")
    await choose_password(tab, OTHER_PASSWORD)
    await tab.press("Change password")
    await expect(tab.page.get_by_text("The name or the password is wrong.")).to_be_visible()
    await current.fill(PASSWORD)
    await tab.press("Change password")

    await expect(tab.page.get_by_text("Password changed.")).to_be_visible()
    await sees_sign_in(other)
    await expect(tab.page.locator("[data-sign-in]")).to_have_count(1)
    await expect(tab.page.locator("[data-sign-in]")).to_contain_text("this browser")
    await fill_in(other, "changed", OTHER_PASSWORD)
    await expect(person(other, "changed")).to_be_visible()
    await tab.page.reload()
    await tab.press("Sign out everywhere else")
    await sees_sign_in(other)


@requirement("ui.browser-accounts")
async def test_an_admin_adds_a_person_who_sets_a_password_with_the_link(
    world: World, signed_in: SignedIn, new_tab: NewTab
):
    """The link works once, and its token stays in no address."""
    tab = await signed_in(world.ada, "/admin/groups")
    await tab.press("Add group")
    await tab.page.get_by_label("Name", exact=True).fill("Research")
    await tab.page.get_by_label("Models (blank for all)").fill("up/*, other/*")
    await tab.press("Save")
    await expect(tab.page.locator("[data-group=Research]")).to_contain_text("up/*, other/*")
    await tab.page.get_by_role("link", name="People").click()
    await tab.press("Add person")
    await tab.page.get_by_label("Name", exact=True).fill("not a name")
    await tab.page.get_by_label("Research").check()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Add person").click()
    await expect(tab.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("A name has 1 to 64 letters")
    await tab.page.get_by_label("Name", exact=True).fill("newcomer")
    await tab.page.get_by_role("dialog").get_by_role("button", name="Add person").click()
    link = await tab.page.get_by_label("Reset link", exact=True).input_value()
    await tab.press("Done")
    await expect(tab.page.locator("[data-person=newcomer]")).to_contain_text("Research")
    newcomer = await new_tab(link, url=world.server.url)
    await expect(newcomer.page.locator("input[autocomplete=username]")).to_have_value("newcomer")
    await expect(newcomer.page.get_by_text("You have a new account newcomer on 127.0.0.1:")).to_be_visible()
    await choose_password(newcomer, OTHER_PASSWORD)
    assert "#" not in newcomer.page.url
    await newcomer.press("Set password and sign in")
    await expect(person(newcomer, "newcomer")).to_be_visible()

    again = await new_tab(link, url=world.server.url)
    await expect(again.page.get_by_role("alert")).to_contain_text("not valid: it was used")
    await expect(again.page.get_by_label("New password", exact=True)).to_have_count(0)


@requirement("ui.browser-accounts")
async def test_who_is_disabled_sees_the_sign_in_at_once(world: World, signed_in: SignedIn):
    """The open page of that person says so by itself: nobody has to press anything."""
    open_page = await signed_in(await add_person(world.server, world.ada, "leaving"))
    await expect(open_page.box).to_be_visible()
    await expect(open_page.page.get_by_text("Your chats will appear here.")).to_be_visible()
    tab = await signed_in(world.ada, "/admin")
    await tab.page.get_by_label("Find by name or e-mail").fill("leaving")
    await expect(tab.page.locator("[data-person]")).to_have_count(1)
    await tab.press("Edit leaving")
    await tab.page.get_by_role("checkbox", name="Disabled").check()
    await tab.press("Save")
    await expect(tab.page.locator("[data-person=leaving]")).to_contain_text("disabled")

    await sees_sign_in(open_page)
    await expect(open_page.page.get_by_role("status")).to_contain_text("Your sign-in has ended.")
    await fill_in(open_page, "leaving")
    await expect(open_page.page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    await tab.press("Delete leaving")
    await tab.page.get_by_role("dialog").get_by_label("Keep them on the server").check()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(tab.page.get_by_text("No account has this in its name or e-mail address.")).to_be_visible()


@requirement("ui.browser-accounts", "budget.refuse")
async def test_what_is_left_of_a_limit_is_shown_with_the_day_of_its_renewal(world: World, signed_in: SignedIn):
    """Who was stopped by a limit looks there."""
    cookie = await add_person(world.server, world.ada, "limited", budget={"tokens_per_day": 1000})
    tab = await signed_in(cookie, "/account")
    limit = tab.page.locator("[data-limit='owner day']")

    await expect(limit).to_contain_text("1,000 of 1,000 left")
    await expect(limit).to_contain_text("Your limit · renewed ")


@requirement("ui.browser-accounts", "people.audit")
async def test_the_audit_log_shows_each_change_once_and_of_one_person(world: World, signed_in: SignedIn):
    """A change has an entry before it and one after it; a reader wants to know how it ended."""
    cookie = await add_person(world.server, world.ada, "noted")
    async with browser(world.server, cookie) as client:
        await client.post("/api/keys", {"name": "noted-key"})
    tab = await signed_in(world.ada, "/admin/audit")
    await expect(tab.page.locator("td", has_text="person.new").first).to_be_visible()
    await tab.page.get_by_label("Find by name or e-mail").fill("note")
    actors, actions = (tab.page.locator(f"tbody td:nth-child({n})") for n in (2, 3))
    await expect(actors).to_have_text(["noted", "noted"])

    await expect(actions).to_have_text(["key.new", "sign_in"])
    await expect(tab.page.locator("tbody td:nth-child(4)")).to_have_text(["done", "done"])
    await tab.page.get_by_label("Kind of action").select_option("key")
    await expect(actions).to_have_text(["key.new"])
    await expect(tab.page.locator("tbody td:nth-child(6)")).to_have_text(["noted-key"])


@requirement("ui.browser-accounts", "people.audit")
async def test_reads_of_the_audit_log_are_in_it_and_shown_on_request(world: World, signed_in: SignedIn):
    """An admin who looks around would else see only that they looked around."""
    cookie = await add_person(world.server, world.ada, "looking", role="admin")
    tab = await signed_in(cookie, "/admin/people")
    await tab.page.get_by_label("Find by name or e-mail").fill("lookin")
    await expect(tab.page.locator(".cards li")).to_have_count(1)
    await tab.open("/admin/audit")
    await tab.page.get_by_label("Find by name or e-mail").fill("looking")
    actions = tab.page.locator("tbody td:nth-child(3)")

    await expect(actions).to_have_text(["sign_in"])
    await tab.page.get_by_label("Show what admins have only read").check()
    await expect(actions.filter(has_text="person.list").first).to_be_visible()


@requirement("ui.browser-accounts")
async def test_the_administration_asks_for_nothing_that_the_server_refuses(world: World, signed_in: SignedIn):
    """A red line in the console at each load hides the one that matters."""
    tab = await signed_in(world.ada, "/admin")
    refused: list[str] = []
    tab.page.on(
        "response", lambda got: refused.append(f"{got.request.method} {got.url}") if got.status >= 400 else None
    )
    for name in ("People", "Groups", "Keys", "Usage", "Audit", "Shares"):
        await tab.page.locator(".tabs").get_by_role("link", name=name).click()
        await expect(tab.page.get_by_role("heading", name=name, level=2)).to_be_visible()
        await expect(tab.page.locator(".loading")).to_have_count(0)

    assert [] == refused


@requirement("ui.browser-accounts", "ui.browser-settings", "ui.browser-language")
@pytest.mark.parametrize("locale", ["en-US", "de-DE", "ar"])
async def test_no_page_of_settings_hangs_over_the_edge_of_a_phone(world: World, signed_in: SignedIn, locale: str):
    """German words are long, and a button beyond the edge cannot be pressed."""
    async with browser(world.server, world.ada) as client:
        added = {"name": "a-provider-with-a-long-name", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-none"}
        await client.request("PUT", "/api/settings", json={"providers": [added]})
        await client.post("/api/keys", {"name": f"laptop {locale}", "expires_in_days": 30, "models": ["up/*"]})
        await client.post("/api/admin/groups", {"name": f"Everyone-who-works-here-{locale}", "agents": ["helper"]})
    tab = await signed_in(world.ada, "/settings", viewport=PHONE, locale=locale, reduced_motion="reduce")
    found: dict[str, list[str]] = {}
    tabs = ("people", "groups", "keys", "usage", "audit", "shares")
    for path in ("/settings", "/account", "/status", "/runs", *(f"/admin/{name}" for name in tabs)):
        await tab.open(path)
        await expect(tab.page.locator("main h1, main h2").first).to_be_visible()
        await expect(tab.page.locator(".loading")).to_have_count(0)
        found[path] = await beyond(tab)
    async with browser(world.server, world.ada) as client:
        await client.request("PUT", "/api/settings", json={"providers": []})

    assert {path: [] for path in found} == found


@requirement("ui.browser-accounts")
async def test_what_one_may_not_do_is_not_offered(world: World, signed_in: SignedIn):
    """A member has no administration, and a guest nothing to write in."""
    member = await signed_in(await add_person(world.server, world.ada, "plain"), "/admin")
    guest = await signed_in(await add_person(world.server, world.ada, "visitor", role="guest"))

    await expect(member.page.get_by_text("Administrators only")).to_be_visible()
    await expect(member.page.get_by_role("link", name="Administration")).to_have_count(0)
    await expect(guest.page.get_by_role("heading", name="You are a guest")).to_be_visible()
    await expect(guest.box).to_have_count(0)
    for name in ("Compare", "Administration"):
        await expect(guest.page.get_by_role("link", name=name)).to_have_count(0)


@requirement("ui.browser-accounts", "ui.browser-access", "ui.browser-language")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("size", "scheme", "locale"),
    [
        pytest.param(DESKTOP, "dark", "en-US", id="desktop", marks=pytest.mark.long("the other size sees each page")),
        pytest.param(PHONE, "light", "ar", id="arabic phone"),
    ],
)
async def test_the_pages_of_accounts_are_for_everyone(
    world: World, signed_in: SignedIn, new_tab: NewTab, size: Any, scheme: str, locale: str
):
    """Axe finds nothing in any of them, with dialogs open too, and nothing hangs over the edge of a phone."""
    options = {"viewport": size, "color_scheme": scheme, "locale": locale, "reduced_motion": "reduce"}
    found: dict[str, tuple[list[str], int]] = {}
    stranger = await new_tab(None, url=world.server.url, **options)
    for path in ("/sign-in", "/first-admin", "/reset#token", "/reset"):
        await stranger.open("about:blank")
        await stranger.open(path)
        await expect(stranger.page.locator("h1")).to_be_visible()
        await expect(stranger.page.locator(".loading")).to_have_count(0)
        found[path] = await findings(stranger), await sideways(stranger)
    cookie = await add_person(world.server, world.ada, f"axe-{locale}", role="admin")
    async with browser(world.server, cookie) as client:
        await client.post("/api/keys", {"name": "laptop", "expires_in_days": 30, "models": ["up/*"]})
        await client.post("/api/admin/groups", {"name": f"Group-{locale}", "agents": ["helper"]})
    tab = await signed_in(cookie, "/account", **options)
    for path, dialog in (
        ("/account", ".cards + button"),
        ("/account", "[data-key] button >> nth=0"),
        ("/admin", ".line button.primary"),
        ("/admin/groups", ".cards + button"),
        ("/admin/keys", "[data-key] button >> nth=0"),
        ("/admin/keys", "[data-key] button >> nth=1"),
    ):
        await tab.open(path)
        await expect(tab.page.locator(".cards").last).to_be_visible()
        await expect(tab.page.locator(".loading")).to_have_count(0)
        found[path] = await findings(tab), await sideways(tab)
        await tab.page.locator(dialog).last.click()
        await expect(tab.page.get_by_role("dialog")).to_be_visible()
        found[f"{path} {dialog}"] = await findings(tab), await sideways(tab)

    assert dict.fromkeys(found, ([], 0)) == found


# second factors


async def shown_secret(tab: Tab) -> str:
    return str(await tab.page.get_by_label("Or type this into the app").input_value())


async def turn_on(tab: Tab) -> tuple[str, int, list[str]]:
    """Turn the second factor on: the app's secret, the step of its first code, and the recovery codes."""
    await tab.page.get_by_label("Current password", exact=True).last.fill(PASSWORD)
    await tab.page.get_by_label("Current password", exact=True).last.press("Enter")
    await expect(tab.page.get_by_role("img", name="QR code for an authenticator app")).to_be_visible()
    secret, step = await shown_secret(tab), int(time.time() // STEP)
    field = tab.page.get_by_label("Code of the app")
    await expect(field).to_be_focused()
    await field.fill(totp_code(secret, step))
    await field.press("Enter")
    codes = tab.page.get_by_role("group", name="Recovery codes")
    await expect(codes.get_by_role("listitem")).to_have_count(10)
    shown = await codes.get_by_role("listitem").all_inner_texts()
    return secret, step, shown


@requirement("ui.browser-accounts", "people.second-factor")
async def test_a_person_turns_a_second_factor_on_signs_in_with_it_and_turns_it_off(
    world: World, signed_in: SignedIn, new_tab: NewTab
):
    """With the keyboard alone after the first click; the code is asked for after the password, and takes the focus."""
    tab = await signed_in(await add_person(world.server, world.ada, "twofold"), "/account")
    section = tab.page.get_by_role("region", name="Second factor")
    await section.get_by_text("Turn on").click()
    secret, step, codes = await turn_on(tab)
    assert [] == await findings(tab)
    await tab.press("Done")
    await expect(section.get_by_text("10 recovery codes left.")).to_be_visible()

    other = await new_tab("/", url=world.server.url)
    await fill_in(other, "twofold")
    code = other.page.get_by_label("Code of your app, or a recovery code")
    await expect(code).to_be_focused()
    assert [] == await findings(other)
    await code.fill("000000")
    await code.press("Enter")
    await expect(other.page.get_by_role("alert")).to_contain_text("The code is wrong")
    await code.fill(totp_code(secret, step + 1))
    await code.press("Enter")
    await expect(person(other, "twofold")).to_be_visible()

    await tab.page.reload()
    await section.get_by_role("button", name="Turn off").click()
    await tab.page.get_by_role("dialog").get_by_label("Code of your app, or a recovery code").fill(codes[0])
    await tab.page.get_by_role("dialog").get_by_role("button", name="Turn off").click()
    await expect(section.get_by_text("Turn on")).to_be_visible()


@requirement("people.second-factor-required")
async def test_who_must_have_a_second_factor_sets_it_up_at_once(new_tab: NewTab, tmp_path: Path):
    """Nothing else is shown before; afterwards the page is there."""
    async with Server(tmp_path, config='second_factor = "all"\n') as server:
        await first_admin(server)
        tab = await new_tab("/", url=server.url)
        await fill_in(tab, "ada")
        await expect(tab.page.get_by_role("heading", name="Second factor")).to_be_visible()
        await expect(tab.page.locator(".sidebar, .transcript")).to_have_count(0)
        await turn_on(tab)
        assert [] == await findings(tab)
        await tab.press("Done")

        await expect(person(tab, "ada")).to_be_visible()
        await tab.page.close()


@requirement("people.second-factor-reset")
async def test_an_admin_resets_the_second_factor_of_a_person(world: World, signed_in: SignedIn):
    """The list says who has one; the dialog says what it means."""
    tab = await signed_in(await add_person(world.server, world.ada, "loser"), "/account")
    await tab.page.get_by_role("region", name="Second factor").get_by_text("Turn on").click()
    await turn_on(tab)
    admin = await signed_in(world.ada, "/admin")
    await admin.page.get_by_role("button", name="Reset the second factor of loser").click()
    await admin.page.get_by_role("dialog").get_by_role("button", name="Reset second factor").click()

    await expect(admin.page.locator('[data-person="loser"]').get_by_text("Second factor")).to_have_count(0)
    assert 200 == (await signs_in(world, "loser"))


async def signs_in(world: World, name: str) -> int:
    async with browser(world.server) as client:
        return (await client.post("/api/sign-in", {"name": name, "password": PASSWORD})).status


async def grow_old(server: Server) -> None:
    """Let all sign-ins be older than they are: half an hour has passed."""

    def change() -> None:
        with closing(sqlite3.connect(server.data / "holdfast.db", timeout=LONG)) as db, db:
            for n, body in db.execute("SELECT n, body FROM documents WHERE kind = 'sign_in'").fetchall():
                aged = json.loads(body)
                aged["began_at"] -= 1800
                db.execute("UPDATE documents SET body = ? WHERE n = ?", (json.dumps(aged).encode(), n))

    await server.terminate()
    await asyncio.to_thread(change)
    await server.restart()


@requirement("ui.browser-accounts", "people.fresh")
@pytest.mark.one_server("it changes the SQLite file of a server")
async def test_the_page_asks_for_the_password_again_and_goes_on(signed_in: SignedIn, tmp_path: Path):
    """A wrong password is told in the dialog. What was asked for is done without being asked for again."""
    async with Server(tmp_path) as server:
        ivy = await first_admin(server, "ivy")
        await grow_old(server)
        tab = await signed_in(ivy, "/account", server)
        await tab.page.get_by_role("button", name="New key").click()
        form = tab.page.get_by_role("dialog", name="New key")
        await form.get_by_label("Name").fill("laptop")
        await form.locator("button[type=submit]").click()
        proof = tab.page.get_by_role("dialog", name="Confirm that it is you")
        await proof.get_by_label("Current password").fill("not the password")
        await proof.get_by_role("button", name="Continue").click()
        await expect(proof.get_by_role("alert")).to_be_visible()
        await proof.get_by_label("Current password").fill(PASSWORD)
        await proof.get_by_role("button", name="Continue").click()

        await expect(proof).to_have_count(0)
        await expect(tab.page.get_by_text("hf-").first).to_be_visible()
        await expect(tab.page.locator("[data-key=laptop]")).to_have_count(1)
        await tab.page.close()


@requirement("ui.browser-accounts", "people.fresh")
async def test_who_changes_the_password_can_revoke_keys_with_it(world: World, signed_in: SignedIn):
    """Whoever had the old password may have made one."""
    jon = await add_person(world.server, world.ada, "jon")
    async with browser(world.server, jon) as client:
        for name in ("mine", "planted"):
            assert 201 == (await client.post("/api/keys", {"name": name})).status
    tab = await signed_in(jon, "/account")
    await tab.page.get_by_text("Change password").first.click()
    await tab.page.get_by_label("Current password").first.fill(PASSWORD)
    await choose_password(tab, OTHER_PASSWORD)
    await tab.page.get_by_role("group", name="Revoke these API keys too").get_by_label("planted").check()
    await tab.page.get_by_role("button", name="Change password").click()

    await expect(tab.page.get_by_text("Password changed")).to_be_visible()
    async with browser(world.server, jon) as client:
        keys = (await Native(client).get("/api/keys"))["keys"]
    assert ["mine"] == [key["name"] for key in keys]
