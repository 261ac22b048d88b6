"""A session of very many messages: only what is near the view is drawn, and its reader does not notice."""

from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.tab import WORDS, Tab
from tests.requirements import requirement
from tests.support.long import cases
from tests.support.native import Native
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

MESSAGES = 600
MOST_DRAWN = 220
"""Lines in sight, sixty above and below them that come when there is time, twenty that are not taken off at once."""
LONG = "The tide comes in and goes out, **twice a day**.\n\n"
CODE = "```python\ndef tide(hour):\n    return 2.1 * math.cos(hour / 6.2)\n```\n\n"
TABLE = "| moon | tide |\n| --- | --- |\n| full | high |\n"


def said(n: int) -> str:
    """No two messages are as high as one another, so that guesses are wrong."""
    return (
        f"Question {n // 2}" if n % 2 == 0 else f"Answer {n // 2}. " + LONG * (n % 7) + (CODE + TABLE if n % 3 else "")
    )


async def long_session(api: Native, messages: int = MESSAGES) -> str:
    roles = ("user", "assistant")
    told = [{"role": roles[n % 2], "content": said(n), "outcome": (None, "completed")[n % 2]} for n in range(messages)]
    made = await api.client.post("/api/sessions/import", {"title": "Long", "model": "up/m", "messages": told})
    assert 201 == made.status, await made.text()
    return str((await made.json())["id"])


async def drawn(tab: Tab) -> list[str]:
    """The first line of each message that is drawn, in the order of the page."""
    return [text.split(".")[0].split("\n")[0] for text in await tab.messages.evaluate_all(WORDS)]


# Scrolls up two views with each frame; the most messages that were on the page at once.
TO_FIRST = """async () => {
    const box = document.querySelector(".transcript");
    let most = 0;
    while (box.scrollTop > 0) {
        box.scrollBy(0, -2 * box.clientHeight);
        await new Promise((done) => requestAnimationFrame(done));
        most = Math.max(most, box.querySelectorAll(".message").length);
    }
    return most;
}"""
# The line at the top of the view, and how far from the top it begins.
AT_TOP = """() => {
    const box = document.querySelector(".transcript"), edge = box.getBoundingClientRect().top;
    for (const line of box.querySelectorAll(".line")) {
        const {top, bottom} = line.getBoundingClientRect();
        if (bottom > edge + 1) return {line: line.dataset.line, top: top - edge};
    }
}"""
METRICS = {
    "as the page has it": "",
    "small and dense": "html { font-size: 12px } * { line-height: 1 !important }",
    "large": "html { font-size: 22px } * { line-height: 2.1 !important }",
    "wide": "* { letter-spacing: 0.3em !important }",
    "serif": "* { font-family: serif !important }",
}
"""Style sheets that make every line as high as it would be with another font."""
RESTYLE = """(rules) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(rules);
    document.adoptedStyleSheets = [sheet];
}"""
# The same as AT_TOP, when it has been the same for thirty frames: what is near has been laid out by then.
SETTLED = f"""async () => {{
    const atTop = {AT_TOP};
    let place = atTop();
    for (let same = 0; same < 30; same++) {{
        await new Promise((done) => requestAnimationFrame(done));
        const now = atTop();
        if (now?.line !== place?.line || Math.abs(now.top - place.top) > 2) same = 0;
        place = now;
    }}
    return place;
}}"""
# Scrolls up in small steps; how far the line at the top was moved after each, when what is near has come.
JUMPS = f"""async () => {{
    const atTop = {AT_TOP}, box = document.querySelector(".transcript"), jumps = [];
    const frames = async (n) => {{ while (n--) await new Promise((done) => requestAnimationFrame(done)) }};
    for (let step = 0; step < 25; step++) {{
        box.scrollTop -= 400;
        await frames(1);
        const before = atTop();
        await frames(4);
        const after = atTop();
        jumps.push(before.line === after.line ? Math.abs(before.top - after.top) : 10_000);
    }}
    return jumps;
}}"""


async def at_top(tab: Tab, message: str) -> None:
    """Wait until the message stands at the top of the view; it must not leave it any more."""
    await expect(tab.page.locator(f"[data-message='{message}']")).to_be_in_viewport()
    place = await tab.measure(SETTLED)
    assert (message, True) == (place["line"], abs(place["top"]) < 2), place


# Where the browser does not keep the reader's place by itself, the page does.
NO_ANCHORS = """() => {
    const supports = CSS.supports.bind(CSS);
    CSS.supports = (...asked) => asked[0] !== "overflow-anchor" && supports(...asked);
    addEventListener("DOMContentLoaded", () => {
        new MutationObserver(() => document.querySelector(".transcript")?.style.setProperty("overflow-anchor", "none"))
            .observe(document.body, {subtree: true, childList: true});
    });
}"""


@requirement("ui.browser-smooth")
async def test_only_what_is_near_is_drawn_from_the_last_message_to_the_first(new_tab, api):
    """What the page has to draw does not grow with the session, nor with how much of it one has seen."""
    tab = await new_tab(f"/s/{await long_session(api)}")
    expected = [said(n).split(".")[0].split("\n")[0] for n in range(MESSAGES)]
    await expect(tab.messages.last).to_be_in_viewport()
    at_end = await drawn(tab)
    most = await tab.measure(TO_FIRST)

    await expect(tab.messages.first).to_be_in_viewport()
    assert expected[-len(at_end) :] == at_end
    assert len(at_end) < MOST_DRAWN
    assert most < MOST_DRAWN
    await expect(tab.messages.first.locator(".said")).to_have_text("Question 0")
    at_start = await drawn(tab)
    assert expected[-3:] == at_start[-3:]  # the end is always there


@requirement("ui.browser-smooth")
@pytest.mark.parametrize("who", ["the browser", "the page"])
async def test_nothing_jumps_while_one_scrolls_up_through_messages_of_unknown_height(new_tab, api, who):
    """The line at the top of the view stands where one's hand has put it, whatever is drawn above it."""
    tab = await new_tab(None)
    if who == "the page":
        await tab.page.add_init_script(f"({NO_ANCHORS})()")
    await tab.open(f"/s/{await long_session(api, 240)}")
    await expect(tab.messages.last).to_be_in_viewport()
    jumps = await tab.measure(JUMPS)

    assert 25 == len(jumps)
    assert [] == [jump for jump in jumps if jump > 2]


@requirement("ui.browser-smooth")
@pytest.mark.parametrize("metrics", cases(METRICS, "as the page has it", "large", reason="another height of lines"))
async def test_a_link_leads_to_its_message_and_an_answer_does_not_lead_away_from_it(new_tab, api, up, metrics):
    """A message in the middle of six hundred, with any font. Its reader stays there while the session goes on."""
    session = await long_session(api)
    messages: list[dict[str, Any]] = (await api.session(session))["messages"]
    tab = await new_tab(None)
    await tab.page.add_init_script(f"({RESTYLE})({METRICS[metrics]!r})")
    await tab.open(f"/s/{session}#{messages[300]['id']}")
    await at_top(tab, messages[300]["id"])
    up.enqueue(answer("The newest words."))
    await api.settled(await api.start(session, "Meanwhile", "up/m"))

    await expect(tab.last_answer.locator(".markdown")).to_have_text("The newest words.")
    await at_top(tab, messages[300]["id"])
    await tab.press("Scroll to bottom")
    await expect(tab.last_answer).to_be_in_viewport()


@requirement("ui.browser-smooth")
async def test_the_linked_message_stays_when_the_font_changes_until_its_reader_scrolls(new_tab, api):
    """A font may arrive late and a window may change its size. The reader's own scrolling counts more."""
    session = await long_session(api)
    linked = (await api.session(session))["messages"][300]["id"]
    tab = await new_tab(f"/s/{session}#{linked}")
    await at_top(tab, linked)
    for metrics in METRICS.values():
        await tab.measure(RESTYLE, metrics)
        await at_top(tab, linked)
    await tab.page.set_viewport_size({"width": 500, "height": 500})
    await at_top(tab, linked)
    await tab.page.locator(".transcript").hover()
    await tab.page.mouse.wheel(0, -3000)

    await expect(tab.page.locator(f"[data-line='{linked}']")).not_to_be_in_viewport()
    place = await tab.measure(SETTLED)
    await tab.measure(RESTYLE, METRICS["as the page has it"])
    after = await tab.measure(SETTLED)
    assert linked not in (place["line"], after["line"])


# Scrolls up between the frame in which the page has followed what grew, and the one in which it is told that it did.
SCROLL_AS_IT_GROWS = f"""async (rules) => {{
    ({RESTYLE})(rules);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    document.querySelector(".transcript").scrollTop -= 400;
}}"""


@requirement("ui.browser-smooth")
async def test_who_scrolls_up_while_a_chat_grows_is_not_led_back(new_tab, api):
    """The page took the two for its own going to the end, where the next line drew its reader back."""
    tab = await new_tab(f"/s/{await long_session(api, 60)}")
    await expect(tab.messages.last).to_be_in_viewport()
    await tab.measure(SETTLED)
    await tab.measure(SCROLL_AS_IT_GROWS, ".line { padding-bottom: 300px }")
    await tab.measure(RESTYLE, ".line { padding-bottom: 310px }")
    await tab.measure(SETTLED)

    await expect(tab.button("Scroll to bottom")).to_be_visible()


@requirement("ui.browser-smooth", "ui.browser-turns")
async def test_what_is_being_edited_stays_however_far_one_scrolls(new_tab, api):
    """A second thought is not lost because its message went out of sight. And who does not scroll can ask for more."""
    tab = await new_tab(f"/s/{await long_session(api, 300)}")
    await tab.press("Edit message")
    field = tab.page.get_by_role("article", name="Editing message").get_by_role("textbox")
    await field.fill("Changed, not sent")
    await tab.page.locator(".transcript").evaluate("e => { e.scrollTop = 0 }")
    await expect(tab.messages.first.locator(".said")).to_have_text("Question 0")
    await expect(field).to_have_value("Changed, not sent")

    older = tab.page.get_by_role("button", name="more messages")
    await expect(older).to_have_count(1)
    await older.press("Enter")
    await expect(tab.messages.first).to_be_attached()
    await expect(field).to_have_value("Changed, not sent")
