"""Comparisons as a person makes them: panes side by side, stopped, voted on, and gone on with."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Route, expect

from tests.browser.tab import Tab, becomes
from tests.requirements import requirement
from tests.support.compare import Compare
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import TEXT, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANSWERS, FAILS, HANGS = "up/end:completed", "up/end:in-band-error", "up/hang-after:3"
PHONE = {"width": 390, "height": 844}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server whose U plays whatever a model's name says."""
    folder = tmp_path_factory.mktemp("compare")
    async with Server(folder, [provider(up.base_url, models=None), provider(up.base_url, "same", None)]) as server:
        yield server


@pytest.fixture
def compare(api: Native) -> Compare:
    return Compare(api.client)


def pane(tab: Tab, number: int) -> Locator:
    return tab.page.locator(f".pane[data-pane='{number}']")


async def choose(tab: Tab, model: str) -> None:
    dialog = tab.page.get_by_role("dialog")
    await dialog.get_by_role("combobox").fill(model)
    await dialog.get_by_role("combobox").press("Enter")
    await expect(dialog).to_have_count(0)


async def set_up(tab: Tab, models: list[str], *, blind: bool) -> None:
    for model in models:
        await tab.press("Add model")
        await choose(tab, model)
    await tab.page.get_by_label("Blind").set_checked(blind)


def comparison_id(tab: Tab) -> str:
    return tab.page.url.rpartition("/")[2]


@requirement("ui.browser-compare")
async def test_a_pane_that_failed_or_was_stopped_never_looks_like_a_winner(new_tab, compare):
    """Blind, one fails, one is stopped with Esc, one completes: one can be chosen, and then the page tells all."""
    tab = await new_tab("/compare")
    await set_up(tab, [ANSWERS, FAILS, HANGS], blind=True)
    await tab.say("Which wave?")
    await expect(tab.page.locator(".pane[data-status=settled]")).to_have_count(2)
    await expect(tab.page.locator(".pane[data-status=running] .segment > .markdown")).not_to_be_empty()
    await tab.page.keyboard.press("Escape")
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()
    kept = await compare.get(comparison_id(tab))
    winner = next(each for each in kept["panes"] if each["settlement"]["outcome"] == "completed")

    assert {"completed", "failed", "stopped"} == {each["settlement"]["outcome"] for each in kept["panes"]}
    await expect(tab.page.locator(".vote .winner")).to_have_text([winner["label"]])
    before = await tab.page.content()
    assert not any(model in before for model in (ANSWERS, FAILS, HANGS))
    for each in kept["panes"]:
        await expect(pane(tab, each["pane"]).locator(".segment > .markdown")).to_have_text(each["text"])

    await tab.page.locator(".vote .winner").click()
    await expect(tab.page.locator(".vote-told")).to_contain_text(ANSWERS)
    await expect(tab.page.locator(".pane.is-winner")).to_have_count(1)
    await expect(tab.page.locator(".pane.is-winner")).to_have_attribute("data-outcome", "completed")
    failed = tab.page.locator(".pane[data-outcome=failed]")
    await expect(failed.get_by_role("heading")).to_have_text(FAILS)
    await expect(failed.get_by_role("note")).to_contain_text("Failed.")


@requirement("ui.browser-compare")
async def test_one_pane_is_stopped_and_the_others_go_on(new_tab, compare):
    """What is stopped here is closed at the upstream, and what was said is kept."""
    tab = await new_tab("/compare")
    await set_up(tab, [HANGS, "same/hang-after:2"], blind=False)
    await tab.say("Which wave?")
    await tab.press("Stop A")
    await expect(pane(tab, 0)).to_have_attribute("data-outcome", "stopped")
    await expect(pane(tab, 1)).to_have_attribute("data-status", "running")
    await tab.press("Stop all")
    await expect(pane(tab, 1)).to_have_attribute("data-outcome", "stopped")

    assert ["user", "user"] == [each["settlement"]["by"] for each in (await compare.get(comparison_id(tab)))["panes"]]


@requirement("ui.browser-compare")
async def test_a_pane_answers_again_takes_another_model_and_goes_on_as_a_chat(new_tab, compare):
    """Whatever is done with one pane leaves the others as they are."""
    kept = await compare.whole([ANSWERS, FAILS])
    tab = await new_tab(f"/compare/{kept['id']}")
    await tab.press("Actions for B")
    await tab.page.get_by_role("menuitem", name="Change model").click()
    await choose(tab, "up/echo:better")
    await expect(pane(tab, 1)).to_have_attribute("data-outcome", "completed")
    await expect(pane(tab, 1).locator(".segment > .markdown")).to_have_text("better")
    await expect(pane(tab, 0).locator(".segment > .markdown")).to_have_text(TEXT)
    await tab.press("Actions for A")
    await tab.page.get_by_role("menuitem", name="Regenerate").click()
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()
    await tab.say("And then?")
    await expect(tab.page.locator(".compare-prompt .asked")).to_have_text("And then?")
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()
    await tab.press("Actions for B")
    await tab.page.get_by_role("menuitem", name="Continue as chat").click()
    await expect(tab.messages).to_have_count(4)

    await tab.transcript_is(["Which wave?", "better", "And then?", "better"])


@requirement("ui.browser-compare")
async def test_the_scores_are_the_servers_and_no_failure_is_rated(new_tab, compare, api):
    """The table says what the server computed, the best first; on a phone nothing hangs over the edge."""
    for _ in range(2):
        kept = await compare.whole([ANSWERS, "same/echo:other", FAILS], blind=True, kind="scored")
        best = next(
            each for each in kept["panes"] if each["text"] == TEXT and each["settlement"]["outcome"] == "completed"
        )
        await compare.vote(kept, best["pane"])
    told = await api.get("/api/comparisons/scores?kind=scored")
    tab = await new_tab("/compare/scores", viewport=PHONE)
    await tab.page.get_by_label("Category").fill("scored")
    rows = tab.page.locator("tbody tr")
    await expect(rows).to_have_count(3)

    for row, model in enumerate((ANSWERS, "same/echo:other", FAILS)):
        await expect(rows.nth(row)).to_have_attribute("data-model", model)
    for score in told["models"]:
        rating = "not rated" if score["rating"] is None else str(round(score["rating"]))
        await expect(tab.page.locator(f"tr[data-model='{score['model']}']")).to_contain_text(rating)
    await expect(tab.page.locator(f"tr[data-model='{FAILS}']")).to_contain_text("not rated")
    await tab.finds(True, "document.documentElement.scrollWidth <= innerWidth")


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PASTE = """(pixel) => {
    const bytes = Uint8Array.from(atob(pixel), (letter) => letter.charCodeAt(0));
    const data = new DataTransfer();
    data.items.add(new File([bytes], "seal.png", {type: "image/png"}));
    const pasted = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
    document.querySelector("#composer").dispatchEvent(pasted);
}"""


@requirement("ui.browser-compare")
async def test_panes_get_pictures_and_show_what_they_answered_before(new_tab, compare):
    """What was pasted reaches every pane; after the next prompt each has its earlier answer, also after a reload."""
    tab = await new_tab("/compare")
    await set_up(tab, ["up/echo:one", "same/echo:two"], blind=False)
    await tab.measure(PASTE, PIXEL)
    await expect(tab.page.locator(".composer .attached img")).to_have_count(1)
    await tab.say("What is this?")
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()
    await expect(tab.page.locator(".compare-prompt .pictures img")).to_have_count(1)
    await tab.say("And then?")
    await expect(tab.page.locator(".compare-prompt .asked")).to_have_text("And then?")
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()
    await tab.page.reload()
    first = (await compare.get(comparison_id(tab)))["prompts"][0]

    assert [{"type": "text", "text": "What is this?"}, PIXEL] == [first[0], first[1]["image_url"]["url"].split(",")[1]]
    for number, said in enumerate(("one", "two")):
        earlier = pane(tab, number).locator(".earlier-answers")
        await earlier.locator("summary").click()
        await expect(earlier.locator("li")).to_have_count(1)
        await expect(earlier.locator("li")).to_contain_text("What is this?")
        await expect(earlier.locator("li .markdown")).to_have_text(said)


MARKDOWN = """# One

## A second heading that is so long that it does not fit into a line of a pane, however wide the window may be

### Three

- a point
- another

1. first

> quoted

| a | b |
| - | - |
| 1 | 2 |

`code`
"""
# How each element of some Markdown is set: sizes in relation to the text around it.
LOOK = """(markdown) => {
    const size = (element) => parseFloat(getComputedStyle(element).fontSize);
    return [...markdown.querySelectorAll("*")].map((element) => {
        const {whiteSpace, overflow, textOverflow, fontWeight} = getComputedStyle(element);
        const mark = element.matches("li") && getComputedStyle(element).listStyleType !== "none";
        const relative = Math.round(100 * size(element) / size(markdown));
        return [element.localName, relative, whiteSpace, overflow, textOverflow, mark, fontWeight].join(" ");
    });
}"""


@requirement("ui.browser-compare", "ui.browser-inspector")
async def test_an_answer_looks_the_same_in_a_chat_in_a_pane_and_in_a_replay(new_tab, compare, api, up):
    """The headings of a view are no rule for those of an answer: in a pane they were cut to one line."""
    up.enqueue(*[answer(MARKDOWN)] * 4)
    session = await api.new_session(model="up/m")
    run = await api.start(session, "Which wave?", "up/m")
    await api.settled(run)
    kept = await compare.whole(["up/m"] * 2)
    tab = await new_tab(f"/s/{session}")
    await expect(tab.last_answer.locator(".markdown code")).to_have_text("code")
    chat = await tab.last_answer.locator(".markdown").evaluate(LOOK)
    assert len(chat) > 20

    await tab.open(f"/compare/{kept['id']}")
    await becomes(chat, lambda: pane(tab, 0).locator(".segment > .markdown").evaluate(LOOK))
    await tab.say("And then?")
    earlier = pane(tab, 0).locator(".earlier-answers")
    await earlier.locator("summary").click()
    await becomes(chat, lambda: earlier.locator(".markdown").evaluate(LOOK))
    await tab.open(f"/runs/{run}")
    await becomes(chat, lambda: tab.page.locator(".replay .screen > .markdown").evaluate(LOOK))


@requirement("ui.browser-inspector")
async def test_the_details_of_a_panes_run_lead_to_its_comparison(new_tab, compare):
    """They named a model and an id, and nothing by which a person knows what was compared."""
    kept = await compare.whole([ANSWERS, "up/echo:other"])
    tab = await new_tab(f"/runs/{kept['panes'][1]['run_id']}")
    await tab.page.get_by_role("link", name="Open comparison").click()
    await expect(pane(tab, 1)).to_contain_text("other")

    assert tab.page.url.endswith(f"/compare/{kept['id']}")


@requirement("ui.browser-compare")
async def test_one_pane_is_looked_at_alone_and_copied(new_tab, compare):
    """With eight panes one reads each alone; Esc shows all of them again."""
    kept = await compare.whole([ANSWERS, "up/echo:other"])
    tab = await new_tab(None, permissions=["clipboard-read", "clipboard-write"])
    await tab.lingers()
    await tab.open(f"/compare/{kept['id']}")
    await tab.press("Expand A")
    await expect(pane(tab, 0)).to_be_visible()
    await expect(pane(tab, 1)).not_to_be_visible()
    await pane(tab, 0).get_by_role("button", name="Copy response A").click()
    await expect(pane(tab, 0).get_by_role("button", name="Copied")).to_be_visible()
    await tab.finds(TEXT, "navigator.clipboard.readText()")
    await tab.page.keyboard.press("Escape")

    await expect(pane(tab, 1)).to_be_visible()


@requirement("ui.browser-compare")
@pytest.mark.parametrize("width", [1280, 390])
async def test_the_badge_of_the_winner_takes_no_room_from_its_name(new_tab, compare, width):
    """At the reveal the name is what everybody looks for."""
    kept = await compare.whole([f"up/echo:a long name of a model {n}" for n in range(3)])
    await compare.vote(kept, 0)
    tab = await new_tab(f"/compare/{kept['id']}", viewport={"width": width, "height": 800})
    await expect(pane(tab, 0).locator("header .badge")).to_be_visible()
    names = tab.page.locator(".pane > header > h2")
    await expect(names).to_have_count(3)
    first, *others = await names.evaluate_all("all => all.map(name => name.getBoundingClientRect().width)")

    assert all(abs(first - other) < 2 for other in others)
    assert first > 100


@requirement("ui.browser-compare")
async def test_four_responses_scroll_together_and_none_by_itself(new_tab, compare, up):
    """Four panes in a laptop's window have little room: a reader scrolls one thing, and all of a response is there."""
    up.models["long"] = answer("A line.\n\n" * 30)
    kept = await compare.whole(["up/long"] * 4)
    tab = await new_tab(f"/compare/{kept['id']}", viewport={"width": 1280, "height": 800})
    await expect(tab.page.locator(".panes[data-status=settled]")).to_be_visible()
    inner = "[...document.querySelectorAll('.words')].map((each) => each.scrollHeight > each.clientHeight + 1)"

    await tab.finds([False] * 4, inner)
    await tab.finds(
        True, "(({scrollHeight, clientHeight}) => scrollHeight > clientHeight)(document.querySelector('.panes'))"
    )
    await tab.page.mouse.move(800, 400)
    await tab.page.mouse.wheel(0, 5000)
    await expect(pane(tab, 3).locator("footer")).to_be_in_viewport()


@requirement("ui.browser-compare")
async def test_a_vote_stays_with_the_responses_that_it_was_on(new_tab, compare):
    """After a follow-up nobody has voted on what is shown. The history names the winner once."""
    kept = await compare.whole(["up/echo:one", "same/echo:two"])
    await compare.vote(kept, 0)
    tab = await new_tab(f"/compare/{kept['id']}")
    await expect(tab.page.locator(".vote-told")).to_have_text("You voted for A: up/echo:one.")
    await expect(tab.page.locator(".pane.is-winner")).to_have_count(1)
    await tab.say("And then?")
    await expect(tab.page.locator(".compare-prompt .asked")).to_have_text("And then?")

    await expect(tab.page.locator(".vote-told")).to_have_text(
        "You voted for A: up/echo:one. The vote was on earlier responses."
    )
    await expect(tab.page.locator(".pane.is-winner")).to_have_count(0)
    await tab.open("/compare")
    line = tab.page.locator(f".earlier a[href='/compare/{kept['id']}'] .about > span").first
    await expect(line).to_have_text("up/echo:one won against same/echo:two")


@requirement("ui.browser-compare")
async def test_a_vote_is_not_taken_back_by_the_answer_to_a_stop_before_it(new_tab, compare):
    """The page is told that all have ended before the stop is answered, with a comparison without a vote."""
    tab = await new_tab("/compare")
    await set_up(tab, [ANSWERS, HANGS], blind=False)
    await tab.say("Which wave?")
    await expect(pane(tab, 0)).to_have_attribute("data-outcome", "completed")
    await expect(pane(tab, 1).locator(".segment > .markdown")).not_to_be_empty()
    voted = asyncio.Event()

    async def late(route: Route) -> None:
        answered = await route.fetch()
        await voted.wait()
        await route.fulfill(response=answered)

    await tab.page.route("**/stop", late)
    await tab.page.keyboard.press("Escape")
    await tab.page.locator(".vote .winner").click()
    await expect(tab.page.locator(".vote-told")).to_be_visible()
    async with tab.page.expect_response("**/stop"):
        voted.set()
    await tab.measure("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    await expect(tab.page.locator(".vote-told")).to_be_visible()


@requirement("ui.browser-compare")
async def test_a_double_click_on_a_vote_votes_once_and_complains_of_nothing(new_tab, compare):
    """The second click is not meant."""
    made = await compare.whole(["up/echo:one", "same/echo:two"], blind=True)
    tab = await new_tab(f"/compare/{made['id']}")
    await tab.button("Tie").dblclick()

    await expect(tab.page.locator(".vote-told")).to_have_text("You voted: tie.")
    await expect(tab.page.locator(".toast")).to_have_count(0)


@requirement("ui.browser-compare")
async def test_the_search_finds_comparisons_too(new_tab, compare):
    """Whoever searches does not know any more whether it was a chat or a comparison."""
    made = await compare.whole([ANSWERS], prompt="How deep is the Marianenzander?")
    tab = await new_tab()
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("marianenzander deep")
    found = tab.page.get_by_role("region", name="Comparisons")
    await expect(found.get_by_role("link")).to_have_text(["How deep is the Marianenzander?"])
    await expect(tab.page.locator(".session a")).to_have_count(1)  # the list of chats is that of the search too
    await tab.page.keyboard.press("ArrowDown")
    await tab.page.keyboard.press("Enter")

    await expect(pane(tab, 0)).to_have_attribute("data-outcome", "completed")
    assert made["id"] == comparison_id(tab)
