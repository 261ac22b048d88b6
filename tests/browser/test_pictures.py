"""Photos in the page: made small before they are sent, and fetched once, when they are looked at."""

import base64
import random
import struct
import zlib
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.tab import Tab
from tests.browser.test_composer import WHEN_DRAWN, png
from tests.browser.test_long_session import said
from tests.requirements import requirement
from tests.support.long import cases
from tests.support.native import Native
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEN_MEGABITS = 10_000_000 / 8
# Draws a photo that does not compress well, as a phone would take it, and pastes it.
PASTE_PHOTO = """async ([width, height, type]) => {
    const canvas = Object.assign(document.createElement("canvas"), {width, height});
    const pen = canvas.getContext("2d"), tile = pen.createImageData(250, 250);
    for (let at = 0; at < tile.data.length; at += 65536)
        crypto.getRandomValues(new Uint8Array(tile.data.buffer, at, Math.min(65536, tile.data.length - at)));
    for (let at = 3; at < tile.data.length; at += 4) tile.data[at] = 255;
    for (let x = 0; x < width; x += 250) for (let y = 0; y < height; y += 250) pen.putImageData(tile, x, y);
    const photo = await new Promise((done) => canvas.toBlob(done, type, 0.98));
    const brought = new DataTransfer();
    brought.items.add(new File([photo], "photo", {type}));
    document.querySelector("#composer").dispatchEvent(
        new ClipboardEvent("paste", {bubbles: true, cancelable: true, clipboardData: brought}));
    return photo.size;
}"""

WIDTHS = "[...document.querySelectorAll('.message.user img')].map((image) => image.naturalWidth)"

PRESS_ENTER = """document.querySelector("#composer").dispatchEvent(
    new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true}));"""


def noise(seed: int, side: int = 365) -> bytes:
    """A picture of about 400 kB that no compression makes smaller."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + random.Random(f"{seed}/{row}").randbytes(3 * side) for row in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def with_photo(seed: int) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{base64.b64encode(noise(seed)).decode()}"
    return [{"type": "text", "text": f"Photo {seed}"}, {"type": "image_url", "image_url": {"url": url}}]


async def imported(api: Native, contents: list[Any]) -> str:
    roles = ("user", "assistant")
    told = [
        {"role": roles[n % 2], "content": content, "outcome": (None, "completed")[n % 2]}
        for n, content in enumerate(contents)
    ]
    made = await api.client.post("/api/sessions/import", {"title": "Photos", "model": "up/m", "messages": told})
    assert 201 == made.status, await made.text()
    return str((await made.json())["id"])


class Traffic:
    """Counts the bytes that a tab receives, as they are on the network."""

    def __init__(self) -> None:
        self.bytes = 0
        self.files = 0
        """Pictures that came over the network."""
        self._files: dict[str, bool] = {}

    async def watch(self, tab: Tab) -> None:
        session = await tab.page.context.new_cdp_session(tab.page)
        session.on("Network.responseReceived", self._begun)
        session.on("Network.loadingFinished", self._ended)
        await session.send("Network.enable")

    def _begun(self, event: dict[str, Any]) -> None:
        response = event["response"]
        self._files[event["requestId"]] = "/files/" in response["url"] and not response.get("fromDiskCache")

    def _ended(self, event: dict[str, Any]) -> None:
        self.bytes += event["encodedDataLength"]
        self.files += self._files.get(event["requestId"], False)


@requirement("ui.browser-pictures")
@pytest.mark.parametrize(
    "kind", cases(["image/jpeg", "image/png", "image/webp"], "image/jpeg", reason="another decoder of the browser")
)
async def test_a_photo_of_twelve_megapixels_is_made_small_and_sent(tab, up, kind):
    """Phones take photos of 4,000 pixels and many megabytes. Models look at fewer, and networks are slow."""
    up.enqueue(answer("A photo."))
    taken = await tab.measure(PASTE_PHOTO, [4000, 3000, kind])
    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)
    await tab.say("What is this?")
    await tab.sees_ending("completed", "A photo.")
    sent = up.requests[-1].body["messages"][-1]["content"][1]["image_url"]["url"]
    shown = tab.page.locator(".message.user img")
    await expect(shown).to_have_js_property("naturalWidth", 2048)
    await expect(shown).to_have_js_property("naturalHeight", 1536)

    assert taken > 2_000_000
    assert sent.startswith(("data:image/jpeg;base64,", f"data:{kind.replace('webp', 'jpeg')};base64,"))
    assert len(sent) < 4_000_000


# Holds a picture over an element, or drops it there. True if the browser would open it in place of the page.
DRAG = """([where, kind, dot]) => {
    const dataTransfer = new DataTransfer();
    const bytes = Uint8Array.from(atob(dot), (letter) => letter.charCodeAt(0));
    dataTransfer.items.add(new File([bytes], "dot.png", {type: "image/png"}));
    const event = new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer});
    return document.querySelector(where).dispatchEvent(event);
}"""

DOT = base64.b64encode(png(1)).decode()


@requirement("ui.browser-pictures")
@pytest.mark.parametrize("where", [".welcome", ".sidebar", "body"])
async def test_a_picture_can_be_dropped_anywhere_in_the_window(tab, where):
    """Whoever misses the box must not find the page gone, and the picture in its place."""
    would_open = await tab.measure(DRAG, [where, "dragover", DOT])
    await expect(tab.page.get_by_text("Drop files to attach them")).to_be_visible()
    would_open = would_open or await tab.measure(DRAG, [where, "drop", DOT])

    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)
    await expect(tab.page.get_by_text("Drop files to attach them")).to_have_count(0)
    assert would_open is False


@requirement("ui.browser-pictures")
async def test_a_picture_that_is_dropped_as_soon_as_the_page_is_drawn_is_taken(new_tab):
    """The page began to take files a frame after it was drawn: one that came before was lost without a word."""
    tab = await new_tab(None)
    await tab.page.add_init_script(f"const drop = {DRAG};{WHEN_DRAWN} drop(['body', 'drop', '{DOT}']))")
    await tab.open("/")

    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)


@requirement("ui.browser-pictures")
async def test_a_file_that_is_dropped_where_nothing_takes_it_does_not_open(new_tab):
    """The page stays where it is, in every view."""
    tab = await new_tab("/settings")
    await expect(tab.page.get_by_role("heading", name="Settings")).to_be_visible()

    taken = [await tab.measure(DRAG, ["main", kind, DOT]) for kind in ("dragover", "drop")]

    assert [False, False] == taken


@requirement("ui.browser-pictures")
async def test_what_only_calls_itself_a_picture_is_refused_and_says_why(tab, up):
    """The browser cannot show it, and no model could read it."""
    await tab.measure(
        """() => {
            const brought = new DataTransfer();
            brought.items.add(new File(["no picture"], "broken.png", {type: "image/png"}));
            document.querySelector("#composer").dispatchEvent(
                new ClipboardEvent("paste", {bubbles: true, cancelable: true, clipboardData: brought}));
        }"""
    )

    await expect(tab.page.get_by_text("“broken.png” can't be read as an image.")).to_be_visible()
    await expect(tab.page.locator(".composer .attached")).to_have_count(0)


@requirement("ui.browser-pictures")
async def test_a_message_that_is_sent_right_after_a_paste_waits_for_its_picture(tab, api, up):
    """Enter within milliseconds of Ctrl-V is how people send a screenshot; without it the question makes no sense."""
    up.enqueue(answer("A photo."))
    await tab.box.fill("What is this?")
    await tab.measure(PASTE_PHOTO.replace("return photo.size;", PRESS_ENTER), [3000, 2000, "image/jpeg"])
    await tab.sees_ending("completed", "A photo.")
    asked = (await api.session(tab.session_id))["messages"][0]["content"]

    assert ["text", "image_url"] == [part["type"] for part in asked]
    await expect(tab.box).to_have_value("")
    await expect(tab.page.locator(".composer .attached")).to_have_count(0)


@requirement("ui.browser-pictures")
async def test_a_message_whose_picture_cannot_be_read_is_not_sent_without_it(tab, up):
    """The text comes back to the box, and the page says which picture it was."""
    await tab.box.fill("What is this?")
    await tab.measure(
        """() => {
            const brought = new DataTransfer();
            brought.items.add(new File(["no picture"], "torn.png", {type: "image/png"}));
            const box = document.querySelector("#composer");
            box.dispatchEvent(new ClipboardEvent("paste", {bubbles: true, cancelable: true, clipboardData: brought}));
            box.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true}));
        }"""
    )

    await expect(tab.page.get_by_text("“torn.png” can't be read as an image.")).to_be_visible()
    await expect(tab.box).to_have_value("What is this?")
    await expect(tab.messages).to_have_count(0)


@requirement("ui.browser-pictures")
async def test_eight_photos_and_two_thousand_messages_open_within_a_second_and_a_half_at_ten_megabits(new_tab, api):
    """Counted in bytes: the page, the session and the stream, up to its last message."""
    photos = [with_photo(n) if n < 16 and n % 2 == 0 else said(n) for n in range(2000)]
    session = await imported(api, photos)
    tab, traffic = await new_tab(None), Traffic()
    await traffic.watch(tab)
    await tab.open(f"/s/{session}")
    await expect(tab.page.get_by_text("Answer 999.")).to_be_visible()

    assert traffic.bytes < 0.5 * TEN_MEGABITS
    assert 0 == traffic.files


@requirement("ui.browser-pictures")
async def test_a_photo_is_fetched_when_it_is_looked_at_and_only_once(new_tab, api):
    """A reload, and another tab, find it in the browser."""
    session = await imported(api, [with_photo(100), "Yes.", with_photo(101), "Yes."])
    tab, traffic = await new_tab(None), Traffic()
    await traffic.watch(tab)
    await tab.open(f"/s/{session}")
    await tab.finds([365, 365], WIDTHS)
    await tab.page.reload()
    await tab.finds([365, 365], WIDTHS)

    assert 2 == traffic.files


@requirement("ui.browser-pictures")
async def test_an_edited_message_keeps_its_photo(new_tab, api, up):
    """The photo is not sent again; the model is shown it."""
    up.enqueue(answer("Still a photo."))
    session = await imported(api, [with_photo(102), "Yes."])
    tab = await new_tab(f"/s/{session}")
    await expect(tab.page.locator(".message.user img")).to_have_count(1)
    await tab.box.press("ArrowUp")
    box = tab.page.locator(".is-edited textarea")
    await box.fill("And now?")
    await box.press("Enter")
    await tab.sees_ending("completed", "Still a photo.")

    assert ["And now?", with_photo(102)[1]["image_url"]["url"]] == [
        part.get("text") or part["image_url"]["url"] for part in up.requests[-1].body["messages"][-1]["content"]
    ]
    await expect(tab.page.locator(".message.user img")).to_have_count(1)
