"""Chats of other programs are imported in the settings, and the page says what became of them."""

import json

import pytest
from playwright.async_api import expect

from tests.browser.axe import beyond, findings
from tests.browser.test_sessions import line
from tests.requirements import requirement
from tests.support.exports import chatgpt, open_webui

pytestmark = pytest.mark.asyncio(loop_scope="session")


@requirement("ui.browser-import")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("size", "scheme", "locale", "choose", "found"),
    [
        ({"width": 1280, "height": 800}, "light", "en-US", "Choose a file…", "3 chats found"),
        ({"width": 360, "height": 740}, "dark", "de-DE", "Datei auswählen…", "3 Chats gefunden"),
    ],
)
async def test_an_export_is_imported_and_what_was_refused_is_named(new_tab, size, scheme, locale, choose, found):
    """On a phone and in the dark too; the chats are in the list at once."""
    chat = chatgpt() | {"title": f"Imported in {locale}", "conversation_id": locale}
    export = [chat, open_webui() | {"id": locale}, {"title": "Odd one", "conversationId": "o", "messages": 1}]
    tab = await new_tab("/settings", viewport=size, color_scheme=scheme, locale=locale, reduced_motion="reduce")
    async with tab.page.expect_file_chooser() as chooser:
        await tab.page.get_by_role("button", name=choose).click()
    file = {"name": "export.json", "mimeType": "application/json", "buffer": json.dumps(export).encode()}
    await (await chooser.value).set_files([file])
    report = tab.page.locator(".report")
    await expect(report).to_contain_text(found)
    await report.locator("summary").click()
    await expect(report).to_contain_text("Odd one")

    assert {"axe": [], "edge": []} == {"axe": await findings(tab), "edge": await beyond(tab)}
    await expect(line(tab, f"Imported in {locale}")).to_have_count(1)


@requirement("ui.browser-import", "people.export")
async def test_all_chats_are_exported_and_the_file_is_imported_again(new_tab, api, tmp_path):
    """Without accounts too. What is there already is told, and not added twice."""
    await api.settled(await api.start(await api.new_session(title="Kept for later"), "Hello.", "scripted/echo"))
    tab = await new_tab("/settings")
    async with tab.page.expect_download() as download:
        await tab.page.get_by_role("button", name="Export all chats").click()
    file = tmp_path / "holdfast.zip"
    await (await download.value).save_as(file)
    async with tab.page.expect_file_chooser() as chooser:
        await tab.page.get_by_role("button", name="Choose a file…").click()
    await (await chooser.value).set_files([file])

    await expect(tab.page.locator(".report")).to_contain_text("0 added")
    await expect(tab.page.locator(".report")).to_contain_text("already here")


@requirement("ui.browser-import")
async def test_a_file_without_chats_is_never_called_a_success(new_tab):
    """The page says what the file is not, and what to choose."""
    tab = await new_tab("/settings")
    async with tab.page.expect_file_chooser() as chooser:
        await tab.page.get_by_role("button", name="Choose a file…").click()
    await (await chooser.value).set_files([{"name": "a.json", "mimeType": "application/json", "buffer": b"{}"}])

    await expect(tab.page.get_by_role("alert").filter(has_text="The file has no chats of ChatGPT")).to_be_visible()
    await expect(tab.page.locator(".report")).to_have_count(0)
