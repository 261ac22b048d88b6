"""Pictures in answers: shown with a name, saved by keyboard, and there again when the chat is opened anew."""

import base64
import hashlib

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings
from tests.browser.test_pictures import noise
from tests.requirements import requirement
from tests.support.upstream import Chunk, Done, Finish, Headers, Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}
SHOWN = ".answer-pictures img"


def drawing(*pictures: bytes, text: str = ""):
    urls = [f"data:image/png;base64,{base64.b64encode(data).decode()}" for data in pictures]
    said = [{"content": text}] if text else []
    deltas = [*said, *({"images": [{"type": "image_url", "image_url": {"url": url}}]} for url in urls)]
    chunks = [Chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas]
    return [Headers(), Role(), *chunks, Finish("stop"), Done()]


@requirement("ui.browser-drawn")
async def test_an_answer_of_only_a_picture_is_shown_saved_and_still_there_after_a_reload(tab, up):
    """It had failed: nothing was to be seen."""
    data = noise(1, 40)
    up.enqueue(drawing(data))
    await tab.say("Draw a cat.")
    await expect(tab.page.locator("[data-outcome=completed] img")).to_have_attribute("alt", "Picture 1 of the response")
    await tab.page.reload()
    await tab.finds(40, f"document.querySelector('{SHOWN}')?.naturalWidth ?? 0")
    await tab.page.get_by_role("button", name="Save picture 1").focus()
    async with tab.page.expect_download() as saving:
        await tab.page.keyboard.press("Enter")
    saved = await saving.value

    assert "picture-1.png" == saved.suggested_filename
    with open(await saved.path(), "rb") as file:
        assert hashlib.sha256(data).digest() == hashlib.sha256(file.read()).digest()


@requirement("ui.browser-drawn")
async def test_a_temporary_chat_shows_its_pictures_and_keeps_none(new_tab, server, up):
    """The next question shows them to the model: they are in this tab alone."""
    data = noise(2, 40)
    up.enqueue(drawing(data, text="Here."))
    up.enqueue(drawing(noise(3, 40)))
    tab = await new_tab("/temporary")
    await tab.say("Draw a cat.")
    await expect(tab.page.locator("[data-outcome=completed] img")).to_have_count(1)
    await tab.say("Now red.")
    await expect(tab.page.locator("[data-outcome=completed] img")).to_have_count(2)
    asked = up.requests[-1].body["messages"]

    assert ["user", "assistant", "user"] == [message["role"] for message in asked]
    assert base64.b64encode(data).decode() in asked[-1]["content"][0]["image_url"]["url"]
    assert hashlib.sha256(data).hexdigest() not in str(server.stored())


@requirement("ui.browser-drawn")
async def test_pictures_are_compared_blind_and_there_after_a_reload(new_tab, up, api):
    """A model that draws was no candidate: its pane had failed."""
    up.enqueue(drawing(noise(6, 40)), drawing(noise(7, 40)))
    body = {"prompt": "Draw a cat.", "models": ["up/m", "up/m"], "blind": True, "lifetime": "detached"}
    made = await (await api.client.post("/api/comparisons", body)).json()
    tab = await new_tab(f"/compare/{made['id']}")
    await expect(tab.page.locator(SHOWN)).to_have_count(2)
    await tab.page.reload()
    await expect(tab.page.locator(SHOWN)).to_have_count(2)
    again = await api.get(f"/api/comparisons/{made['id']}")

    assert ["completed", "completed"] == [pane["settlement"]["outcome"] for pane in again["panes"]]


@requirement("ui.browser-drawn")
@pytest.mark.parametrize(
    ("locale", "scheme", "size"),
    [("en-GB", "light", PHONE), ("de-DE", "dark", {"width": 1100, "height": 800}), ("ar-EG", "dark", PHONE)],
    ids=["phone", "dark in German", "Arabic"],
)
async def test_pictures_have_room_and_names(new_tab, up, locale, scheme, size):
    """Nothing hangs over the edge, and axe finds nothing."""
    up.enqueue(drawing(noise(4, 1200), noise(5, 40), text="Two of them."))
    tab = await new_tab("/", locale=locale, color_scheme=scheme, viewport=size, reduced_motion="reduce")
    await tab.say("Draw two cats.")
    await expect(tab.page.locator(f"[data-outcome=completed] {SHOWN}")).to_have_count(2)

    assert [] == await findings(tab)
    await tab.finds(True, "document.documentElement.scrollWidth <= innerWidth")
