"""Folders, tags, the archive, and several chats at once, by hand and by the keyboard."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.browser.axe import beyond, findings
from tests.browser.tab import Tab
from tests.browser.test_sessions import choose, gone, line, listed
from tests.requirements import requirement
from tests.support.upstream import Delta, Gate, Headers, Role

pytestmark = pytest.mark.asyncio(loop_scope="session")


def dialog(tab: Tab) -> Locator:
    return tab.page.get_by_role("dialog")


def folder(tab: Tab, name: str) -> Locator:
    return tab.page.get_by_role("region", name=name, exact=True)


async def move(tab: Tab, title: str, to: str) -> None:
    """Into a new folder, by the menu of the chat."""
    await choose(tab, title, "Organize…")
    await dialog(tab).get_by_role("combobox", name="Folder").select_option("New folder…")
    await dialog(tab).get_by_label("Name of the folder").fill(to)
    await dialog(tab).get_by_role("button", name="Save").click()
    await expect(folder(tab, to)).to_be_visible()


@requirement("ui.browser-filing")
async def test_a_chat_is_moved_to_a_folder_that_opens_and_closes_in_every_tab(tab, new_tab, api):
    """By the keyboard alone; the folder is the server's, not this browser's."""
    (session,) = await listed(tab, api, "Winged kelp")
    keys = tab.page.keyboard
    await line(tab, "Winged kelp").get_by_role("link").focus()
    await keys.press("ArrowRight")
    await keys.press("Enter")
    await expect(tab.page.get_by_role("menuitem", name="Pin", exact=True)).to_be_focused()
    for _ in range(2):
        await keys.press("ArrowDown")
    await expect(tab.page.get_by_role("menuitem", name="Organize…")).to_be_focused()
    await keys.press("Enter")
    await expect(dialog(tab).get_by_role("combobox", name="Folder")).to_be_focused()
    await keys.type("New")
    await dialog(tab).get_by_label("Name of the folder").fill("Seaweed")
    await keys.press("Enter")

    await expect(dialog(tab)).to_have_count(0)  # what is below it takes no focus, and the list is told before it closes
    await expect(line(tab, "Winged kelp")).to_have_count(0)
    opener = folder(tab, "Seaweed").get_by_role("button", name=re.compile("Seaweed")).first
    await opener.focus()
    await keys.press("Enter")
    await expect(opener).to_have_attribute("aria-expanded", "true")
    await expect(line(tab, "Winged kelp")).to_be_visible()
    await keys.press("Enter")
    await expect(line(tab, "Winged kelp")).to_have_count(0)
    assert "Seaweed" == (await api.session(session))["folder"]
    await expect(folder(await new_tab(), "Seaweed")).to_be_visible()


@requirement("ui.browser-filing")
async def test_a_move_can_be_undone_and_a_folder_renamed_and_removed(new_tab, api):
    """Removing a folder removes no chat."""
    tab = await new_tab(None)
    await tab.lingers()
    await tab.open("/")
    await listed(tab, api, "Irish moss")
    await move(tab, "Irish moss", "Red algae")
    await tab.button("Undo").click()
    await expect(line(tab, "Irish moss")).to_be_visible()
    await expect(folder(tab, "Red algae")).to_have_count(0)
    await move(tab, "Irish moss", "Red algae")
    await folder(tab, "Red algae").get_by_role("button", name="Actions for Red algae").click()
    await tab.page.get_by_role("menuitem", name="Rename").click()
    await dialog(tab).get_by_label("Name of the folder").fill("Reds")
    await dialog(tab).get_by_role("button", name="Save").click()
    await expect(folder(tab, "Reds")).to_be_visible()
    await folder(tab, "Reds").get_by_role("button", name="Actions for Reds").click()
    await tab.page.get_by_role("menuitem", name="Remove folder").click()
    await dialog(tab).get_by_role("button", name="Remove folder").click()

    await expect(line(tab, "Irish moss")).to_be_visible()
    await expect(folder(tab, "Reds")).to_have_count(0)


@requirement("ui.browser-filing")
async def test_an_archived_chat_leaves_the_list_and_search_finds_it(tab, api):
    """The archive can be opened, and gives its chats back."""
    (session,) = await listed(tab, api, "Bootlace weed")
    await choose(tab, "Bootlace weed", "Organize…")
    await dialog(tab).get_by_label("New tags").fill("brown, long")
    await dialog(tab).get_by_role("button", name="Save").click()
    await tab.page.get_by_role("button", name="brown", exact=True).click()
    await expect(tab.page.locator(".session")).to_have_count(1)
    await tab.page.get_by_role("button", name="brown", exact=True).click()
    await choose(tab, "Bootlace weed", "Organize…")
    await dialog(tab).get_by_role("button", name="Archive").click()
    await expect(dialog(tab)).to_have_count(0)  # what is below it takes no text
    await expect(line(tab, "Bootlace weed")).to_have_count(0)
    await tab.page.get_by_role("searchbox").fill("bootlace")
    await expect(line(tab, "Bootlace weed")).to_be_visible()
    await tab.page.get_by_role("searchbox").fill("")
    await tab.page.get_by_role("button", name=re.compile(r"^Archive \(")).click()
    await choose(tab, "Bootlace weed", "Organize…")
    await dialog(tab).get_by_role("button", name="Take out of the archive").click()

    await expect(line(tab, "Bootlace weed")).to_have_count(0)
    await tab.page.get_by_role("button", name=re.compile(r"^Archive \(")).click()
    await expect(line(tab, "Bootlace weed")).to_be_visible()
    assert (["brown", "long"], False) == tuple(map((await api.session(session)).get, ("tags", "archived")))


@requirement("ui.browser-filing")
async def test_several_chats_are_chosen_with_shift_and_deleted_together(new_tab, api, up):
    """With a way back, and with a word about the response that runs in one of them."""
    tab = await new_tab(None)
    await tab.lingers()
    await tab.open("/")
    ids = await listed(tab, api, "Bulk one", "Bulk two", "Bulk three")
    up.enqueue([Headers(), Role(), Delta("so far"), Gate("never")])
    await api.shown(await api.start(ids[2], "A question", "up/m"), "so far")
    await expect(line(tab, "Bulk three").locator(".running")).to_be_visible()
    await line(tab, "Bulk three").get_by_role("link").click(modifiers=["Shift"])
    await tab.page.get_by_label("Bulk one", exact=True).click(modifiers=["Shift"])
    await expect(tab.page.get_by_text("3 selected")).to_be_visible()
    bar = tab.page.get_by_role("toolbar", name="Selected chats")
    await bar.get_by_role("button", name="Delete").click()
    await expect(tab.page.get_by_text("Deleted 3 chats. A response in them is running")).to_be_visible()
    await tab.button("Undo").click()
    await expect(line(tab, "Bulk two")).to_be_visible()
    await line(tab, "Bulk three").get_by_role("link").click(modifiers=["Shift"])
    await tab.page.keyboard.press("ArrowDown")
    await tab.page.keyboard.press("Escape")
    await expect(bar).to_have_count(0)
    await line(tab, "Bulk three").get_by_role("link").click(modifiers=["Shift"])
    await tab.page.get_by_label("Bulk one", exact=True).click(modifiers=["Shift"])
    await bar.get_by_role("button", name="Delete").click()
    await tab.page.close(run_before_unload=True)

    for session in ids:
        await gone(api, session)


@requirement("ui.browser-filing")
async def test_chosen_chats_are_archived_and_exported_together(tab, api):
    """One file with all of them."""
    ids = await listed(tab, api, "Export one", "Export two")
    await choose(tab, "Export one", "Organize…")
    await dialog(tab).get_by_role("button", name="Select several").click()
    await tab.page.get_by_label("Export two", exact=True).check()
    bar = tab.page.get_by_role("toolbar", name="Selected chats")
    async with tab.page.expect_download() as started:
        await bar.get_by_role("button", name="Export as Markdown").click()
    text = Path(await (await started.value).path()).read_text()
    await expect(bar).to_have_count(0)
    await line(tab, "Export one").get_by_role("link").click(modifiers=["Shift"])
    await tab.page.get_by_label("Export two", exact=True).check()
    await bar.get_by_role("button", name="Archive").click()
    await expect(line(tab, "Export two")).to_have_count(0)

    assert "# Export one" in text
    assert "# Export two" in text
    for session in ids:
        assert (await api.session(session))["archived"]


@requirement("ui.browser-filing", "ui.browser-access")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("size", "scheme", "locale", "organize"),
    [
        ({"width": 1280, "height": 800}, "light", "en-US", "Organize…"),
        ({"width": 360, "height": 740}, "dark", "de-DE", "Ordnen…"),
        ({"width": 390, "height": 844}, "light", "ar", "تنظيم…"),
    ],
)
async def test_axe_finds_nothing_in_folders_and_their_dialog(new_tab, api, size, scheme, locale, organize):
    """On a phone, in the dark, from right to left: nothing hangs over the edge."""
    names = ["Kelp", "Work with a very long name that no list of chats has room for"]
    ids = [await api.new_session(title=f"Filed {n}", folder=name, tags=["sea"]) for n, name in enumerate(names)]
    tab = await new_tab(color_scheme=scheme, viewport=size, locale=locale, reduced_motion="reduce")
    if size["width"] < 700:
        await tab.page.locator("main header .icon-button").first.click()
    await tab.page.get_by_role("region", name="Kelp", exact=True).get_by_role("button").first.click()
    shown = tab.page.locator(".session").filter(has_text="Filed 0")
    await expect(shown).to_be_visible()
    found = {"list": await findings(tab), "edge": await beyond(tab)}
    await shown.get_by_role("button").click()
    await tab.page.get_by_role("menuitem", name=organize).click()
    await expect(tab.page.get_by_role("dialog")).to_be_visible()
    found |= {"dialog": await findings(tab), "edge of the dialog": await beyond(tab)}
    for session in ids:
        await api.client.request("DELETE", f"/api/sessions/{session}")

    assert {"list": [], "edge": [], "dialog": [], "edge of the dialog": []} == found
