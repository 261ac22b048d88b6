"""The page in other languages: chosen, kept, right to left, and with plurals, numbers and dates of their own."""

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings, sideways
from tests.requirements import requirement
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 390, "height": 844}


@requirement("ui.browser-language")
async def test_a_language_that_was_chosen_is_spoken_at_once_and_after_a_reload(new_tab, up):
    """Nothing has to be loaded again, an answer that goes on is not disturbed, and English comes back the same way."""
    up.enqueue(answer("Gern."))
    tab = await new_tab("/settings")
    await tab.page.get_by_label("Deutsch").check()
    await expect(tab.page.get_by_role("heading", name="Einstellungen")).to_be_visible()
    await tab.page.reload()
    await expect(tab.page.get_by_role("heading", name="Einstellungen")).to_be_visible()
    await expect(tab.page.locator("html")).to_have_attribute("lang", "de")
    await tab.open("/")
    await expect(tab.page.get_by_role("heading", name="Womit kann ich helfen?")).to_be_visible()
    await tab.say("Guten Tag")
    await tab.sees_ending("completed", "Gern.")
    await expect(tab.button("Neu generieren")).to_be_visible()
    await expect(tab.last_answer.locator(".figures")).to_contain_text("erstes Token")

    await tab.page.locator(".sidebar footer a").last.click()
    await tab.page.get_by_label("English").check()
    await expect(tab.page.get_by_role("heading", name="Settings")).to_be_visible()


@requirement("ui.browser-language")
@pytest.mark.parametrize(("locale", "title"), [("de-AT", "Womit kann ich helfen?"), ("fr-FR", "What can I help with?")])
async def test_without_a_choice_the_page_speaks_as_the_browser_does(new_tab, locale, title):
    """As far as it can; else English."""
    tab = await new_tab("/", locale=locale)

    await expect(tab.page.get_by_role("heading", name=title)).to_be_visible()


@requirement("ui.browser-language")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize("size", [{"width": 1280, "height": 800}, PHONE], ids=["desktop", "phone"])
async def test_in_arabic_the_page_runs_from_right_to_left(new_tab, api, up, size):
    """The list stands on the right, the words are in order, nothing hangs over the edge, and axe finds nothing."""
    up.enqueue(answer("An answer in English.\n\nوجواب بالعربية."))
    session = await api.new_session(model="up/m")
    await api.settled(await api.start(session, "سؤال", "up/m"))
    tab = await new_tab(f"/s/{session}", locale="ar", viewport=size, reduced_motion="reduce")
    await expect(tab.page.get_by_role("log", name="الرسائل")).to_be_visible()
    await expect(tab.page.locator("html")).to_have_attribute("dir", "rtl")
    await tab.sees_ending("completed", "An answer in English.\n\nوجواب بالعربية.")
    if size == PHONE:
        await tab.page.locator("main header button").first.click()
    list_of_sessions = tab.page.get_by_role("navigation", name="المحادثات")
    await expect(list_of_sessions).to_be_in_viewport()
    box = await list_of_sessions.bounding_box()

    assert box is not None
    assert size["width"] == round(box["x"] + box["width"])
    assert [] == await findings(tab)
    for path in (f"/s/{session}", "/settings", "/compare", "/runs"):
        await tab.open(path)
        await expect(tab.page.locator("main :is(h1, h2)").first).to_be_visible()
        assert 0 == await sideways(tab)


@requirement("ui.browser-language")
async def test_a_language_that_cannot_be_fetched_leaves_the_page_in_english(new_tab):
    """A lost file is no reason for a blank page."""
    tab = await new_tab(None, locale="de")
    await tab.page.route("**/assets/de.js", lambda route: route.abort())
    await tab.open("/")

    await expect(tab.page.get_by_role("heading", name="What can I help with?")).to_be_visible()
    await expect(tab.page.locator("html")).to_have_attribute("lang", "en")
