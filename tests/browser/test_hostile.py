"""A model's words are a stranger's: nothing of them runs, and nothing is asked for from elsewhere."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.browser.hostile import HOSTILE
from tests.browser.tab import Tab
from tests.requirements import requirement
from tests.support.long import count
from tests.support.native import Native
from tests.support.upstream import Delta, Done, Finish, Headers, Pause, Role, Step, UsageChunk, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")

BATCH = 13
"""Outputs in one session: with their questions, and the formula at the end, all of them are drawn at once."""
AT_ONCE = 3
PIECES = 4
OURS = ("http://127.0.0.1:", "data:")
FORMULA = "$e = mc^2$ and ```let a```"
"""The last answer of each session. When it is drawn, so is everything before it."""

WATCH = """
window.ran = [];
for (const name of ["pwned", "alert", "confirm", "prompt", "open"])
    window[name] = (...said) => { window.ran.push([name, String(said), new Error().stack]) };
addEventListener("securitypolicyviolation", (e) =>
    window.ran.push(["policy", e.violatedDirective, e.blockedURI, e.sourceFile]));
"""
PROVOKE = """() => {
    const kinds = ["click", "mouseover", "pointerenter", "focus", "toggle", "animationstart", "load", "error"];
    for (const element of document.querySelectorAll(".message :not(a, button, button *, summary, footer, footer *)"))
        for (const kind of kinds) element.dispatchEvent(new Event(kind, {bubbles: false}));
    return window.ran;
}"""
FORBIDDEN = """() => {
    const tags = `script, style, link, meta, base, iframe, frame, object, embed, form, video, audio, source, track,
        template, slot, use, image, feImage, foreignObject, animate, set, dialog, textarea, select, area, map, portal`;
    const isBadAttribute = ({name, value}) =>
        name.startsWith("on") || name === "id" || (name === "target" && value !== "_blank") ||
        (/href$|^action$|^ping$/.test(name) && !/^(https?|mailto):/i.test(value)) ||
        (/^(src|srcset|data|poster|background)$/.test(name) && !/^data:image.(png|jpeg|gif|webp);/i.test(value)) ||
        (name === "style" && /url[(]|expression/i.test(value));
    return [...document.querySelectorAll(".markdown *, .said *, .session .title *")]
        .filter((element) => element.matches(tags) || [...element.attributes].some(isBadAttribute))
        .map((element) => element.outerHTML.slice(0, 300));
}"""


def in_pieces(text: str) -> list[Step]:
    """The text in a few pieces with pauses, so that a half of it is drawn too. Each cut falls where it may."""
    size = max(1, -(-len(text) // PIECES))
    steps: list[Step] = []
    for start in range(0, len(text), size):
        steps += [Delta(text[start : start + size]), Pause(0.02)]
    return [Headers(), Role(), *steps, Finish(), UsageChunk(), Done()]


@requirement("safe.markdown")
async def test_the_corpus_is_as_large_as_it_says():
    """A corpus that shrank would prove less and look the same."""
    assert len(HOSTILE) >= 200
    assert sum("pwned" in text for text in HOSTILE) >= 150
    assert sum("evil.example" in text for text in HOSTILE) >= 50


@requirement("safe.markdown")
async def test_nothing_runs_and_nothing_is_asked_for(new_tab, api, up, elsewhere):
    """Each text is written piece by piece before open eyes, as question, title and answer, and is then loaded again."""
    visits, limit = elsewhere.visits, asyncio.Semaphore(AT_ONCE)
    up.models["hostile"] = lambda request: in_pieces(request.body["messages"][-1]["content"])

    async def one(texts: list[str]) -> list[str]:
        async with limit:
            return await found_in(await new_tab(None), api, [*texts, FORMULA])

    texts = HOSTILE[:: count(6, 1)]
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    found = await asyncio.gather(*map(one, batches))

    assert [] == [each for batch in found for each in batch]
    assert visits == elsewhere.visits


async def found_in(tab: Tab, api: Native, texts: list[str]) -> list[str]:
    """What one session of such texts did that it must not do, while it was written and after it was loaded again."""
    found: list[str] = []
    page = tab.page
    await page.add_init_script(WATCH)
    page.on("dialog", lambda dialog: found.append(f"dialog: {dialog.message}"))
    page.on("popup", lambda popup: found.append(f"popup: {popup.url}"))
    page.on("request", lambda request: None if request.url.startswith(OURS) else found.append(request.url))
    session = await api.new_session(model="up/hostile")
    await tab.open(f"/s/{session}")
    for text in texts:
        await api.settled(await api.start(session, text, "up/hostile"))
    found += await looked_at(tab, api, session)
    await page.reload()
    found += await looked_at(tab, api, session)
    if not page.url.endswith(f"/s/{session}"):
        found.append(f"went to {page.url}")
    await page.close()
    return found


async def looked_at(tab: Tab, api: Native, session: str) -> list[str]:
    """What is wrong with what is drawn. The texts of the page must be those of the store, in that order."""
    said = [each["content"] for each in (await api.session(session))["messages"]]
    await expect(tab.messages).to_have_count(len(said))
    await expect(tab.last_answer.locator(".katex")).to_be_visible()
    await tab.copies(said)
    ran = await tab.measure(PROVOKE)
    return [*map(str, ran), *await tab.measure(FORBIDDEN)]


@requirement("safe.markdown")
async def test_a_picture_from_elsewhere_is_loaded_when_its_reader_asks_for_it(tab, up, elsewhere):
    """Loading it tells a stranger who is reading, and when. It also shows that a visit elsewhere would be seen."""
    visits = elsewhere.visits
    elsewhere.visited.clear()
    up.enqueue(answer("Look: ![a seal](https://there.example/seal.png)"))
    await tab.say("Show me a seal")
    consent = tab.page.get_by_role("button", name="Load image from there.example")
    await expect(consent).to_be_visible()
    assert visits == elsewhere.visits
    await consent.click()

    async with asyncio.timeout(LONG):
        await elsewhere.visited.wait()
