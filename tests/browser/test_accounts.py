"""Accounts as people use them: the first admin, signing in and out, keys, and what an admin does."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.axe import findings, sideways
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import PASSWORD, add_person, browser, first_admin, sign_in
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer

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

    async def make(cookie: str, path: str = "/", **options: Any) -> Tab:
        tab = await new_tab(None, url=world.server.url, **options)
        name, _, value = cookie.partition("=")
        await tab.page.context.add_cookies([{"name": name, "value": value, "url": world.server.url}])
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
        await expect(tab.page.get_by_text("Everyone signs in, on this machine too.")).to_be_visible()
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
    await beside.press("Sign out")

    for each in (beside, tab):
        await sees_sign_in(each)
    assert [] == await tab.measure("Object.keys(localStorage).filter((name) => name.startsWith('holdfast.draft'))")
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
    await tab.page.get_by_label("Access key", exact=True).fill(made["key"])
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
    await tab.page.get_by_label("Tokens a day").fill("1500")
    await tab.page.get_by_label("Tokens a day").press("Enter")
    await tab.press("Done")
    line = tab.page.locator("[data-key=cron]")
    await expect(line).to_contain_text("models: up/* · Tokens a day: 1,500")
    await expect(line.get_by_role("button", name="Limits of cron")).to_have_count(0)
    admin = await signed_in(world.ada, "/admin/keys")
    await admin.press("Limits of cron")
    await admin.page.get_by_label("Tokens a day").fill("")
    await admin.page.get_by_label("Requests a minute").fill("7")
    await admin.press("Save")

    await expect(admin.page.locator("[data-key=cron]")).to_contain_text("Requests a minute: 7")
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
    described = await focused.get_attribute("aria-describedby")
    assert described == await dialog.get_by_role("alert").get_attribute("id")
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
    await tab.page.get_by_label("Current password").fill("wrong password")
    await choose_password(tab, OTHER_PASSWORD)
    await tab.press("Change password")
    await expect(tab.page.get_by_text("The name or the password is wrong.")).to_be_visible()
    await tab.page.get_by_label("Current password").fill(PASSWORD)
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
    await choose_password(newcomer, OTHER_PASSWORD)
    assert "#" not in newcomer.page.url
    await newcomer.press("Set password and sign in")
    await expect(person(newcomer, "newcomer")).to_be_visible()

    again = await new_tab(link, url=world.server.url)
    await choose_password(again, PASSWORD)
    await again.press("Set password and sign in")
    await expect(again.page.get_by_role("alert")).not_to_be_empty()


@requirement("ui.browser-accounts")
async def test_who_is_disabled_sees_the_sign_in_at_once(world: World, signed_in: SignedIn):
    """The open page of that person says so by itself: nobody has to press anything."""
    open_page = await signed_in(await add_person(world.server, world.ada, "leaving"))
    await expect(open_page.box).to_be_visible()
    await expect(open_page.page.get_by_text("Your chats will appear here.")).to_be_visible()
    tab = await signed_in(world.ada, "/admin")
    await tab.page.get_by_label("Find by full name or e-mail").fill("leaving")
    await expect(tab.page.locator("[data-person]")).to_have_count(1)
    await tab.press("Edit leaving")
    await tab.page.get_by_role("checkbox", name="Disabled").check()
    await tab.press("Save")
    await expect(tab.page.locator("[data-person=leaving]")).to_contain_text("disabled")

    await sees_sign_in(open_page)
    await fill_in(open_page, "leaving")
    await expect(open_page.page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    await tab.press("Delete leaving")
    await tab.page.get_by_role("dialog").get_by_label("Keep them on the server").check()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(tab.page.get_by_text("No account has this name or e-mail address.")).to_be_visible()


@requirement("ui.browser-accounts", "people.audit")
async def test_the_audit_log_shows_each_change_once_and_of_one_person(world: World, signed_in: SignedIn):
    """A change has an entry before it and one after it; a reader wants to know how it ended."""
    cookie = await add_person(world.server, world.ada, "noted")
    async with browser(world.server, cookie) as client:
        await client.post("/api/keys", {"name": "noted-key"})
    tab = await signed_in(world.ada, "/admin/audit")
    await expect(tab.page.locator("td", has_text="person.new").first).to_be_visible()
    await tab.page.get_by_label("Find by full name or e-mail").fill("noted")
    actors = tab.page.locator("tbody td:nth-child(2)")
    await expect(actors).to_have_text(["noted", "noted"])

    await expect(tab.page.locator("tbody td:nth-child(3)")).to_have_text(["key.new", "sign_in"])
    await expect(tab.page.locator("tbody td:nth-child(4)")).to_have_text(["done", "done"])


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
