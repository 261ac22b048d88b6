"""Files that go with a message: attached by button, drop and paste, measured before they are sent, and opened later."""

import base64
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings
from tests.browser.tab import Tab
from tests.browser.test_composer import bring
from tests.requirements import requirement
from tests.support.pdfs import text_pdf
from tests.support.server import Server, provider
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}
PASTE = """(text) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", text);
    document.querySelector("#composer").dispatchEvent(
        new ClipboardEvent("paste", {bubbles: true, cancelable: true, clipboardData}));
}"""
HOSTILE = "<img src=x onerror=alert(1)>\u202egpj.md"


async def choose(tab: Tab, *files: tuple[str, bytes]) -> None:
    async with tab.page.expect_file_chooser() as choosing:
        await tab.press("Attach files")
    chosen: list[Any] = [{"name": name, "mimeType": "", "buffer": data} for name, data in files]
    await (await choosing.value).set_files(chosen)


@requirement("ui.browser-files")
async def test_files_are_measured_sent_and_opened_again(tab, up):
    """Their names, sizes, pages and tokens are said before they are sent; the model gets the whole texts."""
    up.enqueue(answer("About ships."))
    await choose(tab, ("notes.md", b"# Sea\n\n<b>A ship.</b>\n"), ("paper.pdf", text_pdf("Page one.", "Page two.")))
    chips = tab.page.locator(".composer .file-chip")
    await expect(chips).to_have_count(2)
    await expect(chips.nth(0)).to_contain_text("notes.md")
    await expect(chips.nth(0)).to_contain_text("22 bytes · ≈ 13 tokens")
    await expect(chips.nth(1)).to_contain_text("2 pages")
    await tab.say("What are they about?")
    await tab.sees_ending("completed", "About ships.")
    shown = tab.page.locator(".message.user .file-chip")
    await expect(shown).to_have_text(["notes.md", "paper.pdf"])
    await tab.page.reload()
    await shown.nth(0).press("Enter")
    preview = tab.page.get_by_role("dialog", name="notes.md")
    await expect(preview.locator("pre")).to_have_text("# Sea\n\n<b>A ship.</b>\n", use_inner_text=True)
    async with tab.page.expect_download() as saving:
        await preview.get_by_role("button", name="Save").click()
    saved = await saving.value

    assert "notes.md" == saved.suggested_filename
    assert b"# Sea\n\n<b>A ship.</b>\n" == Path(await saved.path()).read_bytes()
    asked = up.requests[-1].body["messages"][-1]["content"]
    assert asked.startswith('<file name="notes.md">\n# Sea')
    assert "[Page 2]\nPage two." in asked
    assert asked.endswith("What are they about?")


@requirement("ui.browser-files")
async def test_a_long_paste_becomes_a_file_and_text_again(tab, up):
    """Thousands of lines would fill the chat. Who wants them there gets them with one press."""
    text = "\n".join(f"line {n}" for n in range(300))
    await tab.measure(PASTE, "a short paste stays what it is")
    await tab.measure(PASTE, text)
    chip = tab.page.locator(".composer .file-chip")
    await expect(chip).to_contain_text("Pasted text.txt")
    await expect(tab.box).to_have_value("")
    await chip.get_by_role("button", name="Insert as text").press("Enter")
    await expect(chip).to_have_count(0)
    await expect(tab.box).to_have_value(text)


@requirement("ui.browser-files")
async def test_a_file_that_the_server_finds_too_large_is_named(tab):
    """Of several files, its owner has to know which."""
    await choose(tab, ("large.txt", b"a line\n" * 3_100_000))
    await expect(tab.page.locator(".toast")).to_contain_text("“large.txt” is too large.")
    await expect(tab.page.locator(".composer .file-chip")).to_have_count(0)


@requirement("ui.browser-files")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("locale", "scheme", "size"),
    [("en-US", "light", PHONE), ("de", "dark", PHONE), ("ar", "dark", {"width": 1280, "height": 800})],
    ids=["phone", "dark in German", "Arabic"],
)
async def test_chips_and_previews_have_room_and_contrast(new_tab, up, locale, scheme, size):
    """With a long and hostile name too: nothing hangs over the edge, nothing of it is markup, and axe finds nothing."""
    up.enqueue(answer("Seen."))
    tab = await new_tab("/", locale=locale, color_scheme=scheme, viewport=size, reduced_motion="reduce")
    await bring(tab, "drop", b"x = 1\n" * 40, "text/x-python")
    await tab.measure(
        """([name, encoded]) => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([atob(encoded)], name, {type: "text/html"}));
            document.body.dispatchEvent(new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer}));
        }""",
        [HOSTILE + "long" * 40, base64.b64encode(b"<script>alert(1)</script>").decode()],
    )
    chips = tab.page.locator(".composer .file-chip:not(.is-coming)")
    await expect(chips).to_have_count(2)
    written = await findings(tab)
    await tab.say("?")
    await tab.sees_ending("completed", "Seen.")
    said = await findings(tab)
    await tab.page.locator(".message.user .file-chip").nth(1).click()
    await expect(tab.page.locator(".file-preview pre")).to_have_text("<script>alert(1)</script>")
    opened = await findings(tab)

    assert ([], [], []) == (written, said, opened)
    await tab.finds(True, "document.documentElement.scrollWidth <= innerWidth")


@requirement("ui.browser-files")
async def test_a_temporary_chat_sends_its_files_and_leaves_none_on_the_server(new_tab, server, up):
    """The file is measured, and goes with each request."""
    up.enqueue(answer("Read."))
    tab = await new_tab("/temporary")
    await choose(tab, ("secret.txt", b"a secret of this tab"))
    await expect(tab.page.locator(".composer .file-chip")).to_contain_text("secret.txt")
    await tab.say("Read it.")
    await tab.sees_ending("completed", "Read.")
    await tab.page.locator(".message.user .file-chip").click()
    await expect(tab.page.locator(".file-preview pre")).to_have_text("a secret of this tab")
    kept = str(server.stored())

    assert "a secret of this tab" in up.requests[-1].body["messages"][-1]["content"]
    assert "a secret of this tab" not in kept
    assert "secret.txt" not in kept


@requirement("ui.browser-files")
async def test_a_queued_and_an_edited_message_keep_their_files(tab, up):
    """What was attached is part of what was said, whatever happens to the words."""
    up.enqueue(answer("One."))
    up.enqueue(answer("Two."))
    await choose(tab, ("kept.txt", b"keep me"))
    await tab.say("First")
    await tab.sees_ending("completed", "One.")
    await tab.page.locator(".message.user").get_by_role("button", name="Edit message").click()
    box = tab.page.locator(".is-edited textarea")
    await box.fill("Second")
    await box.press("Enter")
    await tab.sees_ending("completed", "Two.")

    assert '<file name="kept.txt">\nkeep me\n</file>\n\nSecond' == up.requests[-1].body["messages"][-1]["content"]
    await expect(tab.page.locator(".message.user .file-chip")).to_have_text(["kept.txt"])


@requirement("ui.browser-files")
async def test_what_the_chosen_model_cannot_take_is_said_before_it_is_sent(new_tab, up, tmp_path):
    """Its provider says that the model has no eyes, and how much it reads."""
    up.described = {"m": {"architecture": {"input_modalities": ["text"]}, "context_length": 100}}
    try:
        async with Server(tmp_path, [provider(up.base_url, models=None)]) as server:
            tab = await new_tab(None, url=server.url)
            await tab.open("/")
            await choose(tab, ("long.txt", b"word " * 500))
            warning = tab.page.locator(".attached-warning")
            await expect(warning).to_have_text("About 632 tokens: more than m can read (100).")
            await tab.page.get_by_role("button", name="Remove “long.txt”").click()
            await choose(tab, ("scan.pdf", text_pdf("")))
            await expect(warning).to_have_text("m can't see pictures. Choose a model that can.")
    finally:
        up.described = {}


@requirement("ui.browser-files")
async def test_the_pages_of_a_pdf_are_shown_as_pictures_by_wish(tab, up):
    """A table or a formula says nothing as text. By keyboard, and taken back in the same way."""
    up.enqueue(answer("Seen."), answer("Read."))
    for presses, kind in ((1, "image_url"), (2, "text")):
        await choose(tab, ("paper.pdf", text_pdf("tides", "moons")))
        look = tab.page.get_by_role("button", name="Show the pages as pictures to the model")
        for _ in range(presses):
            await look.press("Enter")
        await expect(look).to_have_attribute("aria-pressed", "true" if presses == 1 else "false")
        await tab.say("What is it?")
        await tab.sees_ending("completed", "Seen." if presses == 1 else "Read.")
        content = up.requests[-1].body["messages"][-1]["content"]

        assert (kind == "image_url") == isinstance(content, list)
        assert "tides" in content or [1 for part in content if part["type"] == kind] == [1, 1]
