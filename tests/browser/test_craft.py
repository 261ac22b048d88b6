"""What makes a tool of a page: answers drawn as they are meant, on every device, still for those who want it so."""

import os
import re
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from holdfast.errors import ProviderError
from holdfast.upstreams.local.weights import SMOLLM2, fetch_now
from tests.browser.tab import Tab
from tests.requirements import requirement
from tests.support.programs import missing_for_the_built_in_model
from tests.support.server import Server
from tests.support.upstream import Delta, Gate, Headers, ReasoningDelta, Role, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

CODE = 'def tide(hour):\n    """Twice a day."""\n    return hour % 12.4  # <b>\n'
RICH = f"""Some **bold** words and $e = mc^2$.

| moon | tide |
| --- | ---: |
| full | 4.2 m |

```python
{CODE}```
"""


@requirement("ui.browser-chat")
async def test_code_tables_formulas_and_thoughts_are_drawn_as_they_are_meant(new_tab, up):
    """Thoughts are folded away until asked for; code is coloured, and copied as it was written."""
    tab = await new_tab(None, permissions=["clipboard-read", "clipboard-write"])
    await tab.lingers()
    await tab.open()
    up.enqueue([Headers(), Role(), ReasoningDelta("The moon, of course."), *answer(RICH)[2:]])
    await tab.say("Show me all")
    shown = await tab.sees_ending("completed")

    await expect(shown.locator("strong").first).to_have_text("bold")
    await expect(shown.locator("td")).to_have_text(["full", "4.2 m"])
    await expect(shown.locator(".katex").first).to_be_visible()
    await expect(shown.locator("pre code")).to_have_text(CODE)
    await expect(shown.locator("pre code span").first).to_be_visible()  # a colour
    await expect(shown.get_by_text("The moon, of course.")).not_to_be_visible()
    await shown.get_by_text("Reasoning").click()
    await expect(shown.get_by_text("The moon, of course.")).to_be_visible()
    for number, (button, text) in enumerate((("Copy code", CODE), ("Copy response", RICH))):
        await shown.get_by_role("button", name=button).click()
        await expect(shown.get_by_role("button", name="Copied")).to_have_count(number + 1)
        await tab.finds(text.rstrip("\n"), "navigator.clipboard.readText().then((text) => text.replace(/\\n+$/, ''))")


@requirement("ui.browser-everyday")
@pytest.mark.parametrize("file", ["katex.css", "katex.js"])
async def test_a_formula_is_drawn_once_though_a_request_of_it_was_lost(new_tab, up, file):
    """On the networks of phones one often is. Without its styles a formula is drawn twice, beside itself."""
    lost = []

    async def lose(route: Route) -> None:
        lost.append(route.request.url)
        await (route.abort() if len(lost) == 1 else route.fallback())

    up.enqueue(answer("So $n \\cdot m$ it is."))
    tab = await new_tab()
    await tab.page.route(f"**/assets/{file}", lose)
    await tab.say("How many?")
    shown = await tab.sees_ending("completed")
    await expect(shown.locator(".katex-html")).to_be_visible()

    await expect(shown.locator(".katex-mathml")).to_have_css("position", "absolute")
    assert 2 == len(lost)


@requirement("ui.browser-chat")
async def test_another_device_shows_what_goes_on_and_can_stop_it(tab, new_tab, up):
    """A phone and a desk have nothing in common but the server."""
    up.enqueue([Headers(), Role(), Delta("Half"), Gate("device"), *answer(" whole")[2:]])
    await tab.say("Go")
    await tab.reads("Half")
    phone = await new_tab(
        f"/s/{tab.session_id}", viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
    )
    await phone.reads("Half")
    await phone.button("Stop").tap()

    for device in (phone, tab):
        await device.sees_ending("stopped", "Half")
        await device.transcript_is(["Go", "Half"])


@requirement("ui.browser-chat")
async def test_a_session_that_is_not_there_says_so_and_leads_on(new_tab):
    """A link can be older than what it leads to."""
    tab = await new_tab("/s/ses_nothing")
    await expect(tab.page.get_by_text("Chat not found")).to_be_visible()
    await expect(tab.box).to_have_count(0)
    await tab.page.get_by_role("link", name="Start a new chat").click()

    await expect(tab.box).to_be_focused()


@requirement("ui.browser-chat")
async def test_lists_that_cannot_be_loaded_say_so_and_can_be_asked_for_again(new_tab):
    """An empty list would look like lost chats, an endless wheel like a slow day."""

    async def fail(route):
        await route.fulfill(status=500, content_type="application/json", body="{}")

    tab = await new_tab(None)
    await tab.page.route("**/api/sessions?*", fail)
    await tab.page.route("**/api/models", fail)
    await tab.open("/")
    await expect(tab.page.get_by_text("Chats could not be loaded.")).to_be_visible()
    await tab.page.locator(".model-button").click()
    await expect(tab.page.get_by_text("Models could not be loaded.")).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await tab.page.unroute("**/api/sessions?*")
    await tab.page.unroute("**/api/models")
    await tab.press("Try again")

    await expect(tab.page.get_by_text("Chats could not be loaded.")).to_have_count(0)
    await tab.page.locator(".model-button").click()
    await expect(tab.page.get_by_role("option").first).to_be_visible()


@requirement("ui.page")
async def test_the_page_can_be_installed(tab):
    """The browser itself reads the manifest, finds no fault with it, and can draw its icon."""
    session = await tab.page.context.new_cdp_session(tab.page)
    manifest = await session.send("Page.getAppManifest")
    problems = (await session.send("Page.getInstallabilityErrors"))["installabilityErrors"]
    drawn = await tab.measure("""async () => {
        const icon = new Image();
        icon.src = "/icon.svg";
        await icon.decode();
        return icon.naturalWidth;
    }""")
    await session.detach()

    assert [] == manifest["errors"]
    assert manifest["url"].endswith("/manifest.webmanifest")
    assert [] == [
        each["errorId"] for each in problems if each["errorId"] != "in-incognito"
    ]  # as every test's window is
    assert drawn > 0


@requirement("ui.browser-access")
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
async def test_nothing_moves_for_those_who_want_it_still(new_tab, up, motion):
    """While an answer is awaited something moves for the others, and for them nothing does."""
    tab = await new_tab(reduced_motion=motion)
    up.enqueue([Headers(), Role(), Gate(f"motion {motion}"), *answer("Here.")[2:]])
    await tab.say("Go")
    await expect(tab.live.locator(".dots").first).to_be_visible()
    await tab.measure("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await tab.finds(
        motion != "reduce",
        """document.getAnimations()
        .map((each) => each.effect.getComputedTiming())
        .some(({activeDuration}) => activeDuration > 50)""",
    )
    up.open(f"motion {motion}")
    await tab.sees_ending("completed", "Here.")


# the built-in model


@pytest.fixture(scope="module")
def weights(request: pytest.FixtureRequest) -> Path:
    """Fetched once for all sessions of a checkout, and shared with the tests of the model itself."""
    if missing := missing_for_the_built_in_model():
        pytest.skip(missing)
    try:
        return fetch_now(request.config.cache.mkdir("holdfast-data") / "models")
    except ProviderError as error:
        pytest.skip(f"the weights could not be fetched: {error}")


async def interrupted(tab: Tab) -> None:
    """Ask for something long and stop it. A real model may be done before that: then ask again."""
    for answers in range(2, 12):
        await tab.say("Write a very long story about a fox and a bear.")
        await expect(tab.answers).to_have_count(answers)
        await expect(tab.last_answer.locator(".markdown")).not_to_be_empty()
        await tab.page.keyboard.press("Escape")
        await expect(tab.last_answer).to_have_attribute("data-outcome", re.compile("stopped|completed|truncated"))
        if "stopped" == await tab.last_answer.get_attribute("data-outcome"):
            return
    raise AssertionError("no answer was long enough to be stopped")


@pytest.mark.long("the model is tested with its own clients, and the page with other models")
@requirement("ui.browser-chat")
async def test_the_built_in_model_answers_in_the_page_and_is_stopped(weights, new_tab, tmp_path):
    """With nothing set up at all: a real model, its words on the page as the server has them, and Esc ends it."""
    (tmp_path / "models").mkdir()
    os.link(weights, tmp_path / "models" / SMOLLM2.filename)
    async with Server(tmp_path) as server, server.client() as client:
        tab = await new_tab(url=server.url)
        await tab.say("Say hello in one short sentence.")
        await expect(tab.last_answer).to_have_attribute("data-outcome", "completed")
        said = await (await client.get(f"/api/sessions/{tab.session_id}")).json()
        await tab.copies([each["content"] for each in said["messages"]])
        assert said["messages"][-1]["content"].strip()

        await interrupted(tab)
        said = await (await client.get(f"/api/sessions/{tab.session_id}")).json()
        await tab.copies([each["content"] for each in said["messages"]])
        assert said["messages"][-1]["partial"]
        await tab.page.close()


@requirement("ui.browser-access")
async def test_a_question_mark_shows_the_keys_and_is_a_letter_in_the_box(tab):
    """Whoever types a question must not get a card of keys for it."""
    await expect(tab.box).to_be_focused()
    await tab.page.keyboard.type("Why?")
    await expect(tab.box).to_have_value("Why?")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await tab.box.blur()
    await tab.page.keyboard.press("?")

    await expect(tab.page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("New chat")


@requirement("ui.browser-chat")
async def test_footnotes_lead_to_their_text_and_back(tab, up):
    """Models cite their sources so. A mark without a note stays as it was written, and nothing in one runs."""
    hostile = "[^x]: <img src=x onerror=\"document.title='run'\"> [here](javascript:alert(1))"
    up.enqueue(answer(f"A claim.[^1] Another.[^x] No note.[^none]\n\n[^1]: The *source*.\n{hostile}\n"))
    await tab.say("Sources?")
    shown = await tab.sees_ending("completed")
    await shown.get_by_role("button", name="Footnote 1", exact=True).click()
    back = shown.get_by_role("button", name="Footnote 1: back to the text")
    await expect(back).to_be_focused()
    await back.press("Enter")

    await expect(shown.get_by_role("button", name="Footnote 1", exact=True)).to_be_focused()
    await expect(shown.locator("p").first).to_have_text("A claim.1 Another.2 No note.[^none]")
    await expect(shown.locator(".footnote em")).to_have_text("source")
    await expect(shown.locator(".footnote :is(img, a)")).to_have_count(0)
