"""The list of sessions by hand: renamed, pinned, deleted with a way back, searched, walked, saved as a file."""

import asyncio
import json
import re
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.browser.cable import Cable
from tests.browser.tab import Tab, becomes
from tests.browser.test_composer import WHEN_DRAWN
from tests.browser.test_long_session import long_session
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.upstream import Cut, Delta, Gate, Hang, Headers, ReasoningDelta, Role, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")


def line(tab: Tab, title: str) -> Locator:
    """A session's line in the list."""
    return tab.page.locator(".session").filter(has=tab.page.get_by_text(title, exact=True))


def in_group(tab: Tab, group: str, title: str) -> Locator:
    return tab.page.get_by_role("region", name=group, exact=True).get_by_text(title, exact=True)


async def choose(tab: Tab, title: str, action: str) -> None:
    """From the menu of a session's line."""
    await line(tab, title).get_by_role("button", name=f"Actions for {title}").click()
    await tab.page.get_by_role("menuitem", name=action, exact=True).click()


async def listed(tab: Tab, api: Native, *titles: str) -> list[str]:
    """New sessions of these titles, which the tab lists; their ids."""
    ids = [await api.new_session(title=title, model="up/m") for title in titles]
    await tab.page.reload()
    for title in titles:
        await expect(line(tab, title)).to_be_visible()
    return ids


async def is_there(api: Native, session: str) -> bool:
    return 200 == (await api.client.get(f"/api/sessions/{session}")).status


async def gone(api: Native, session: str) -> None:
    """Wait until the server no longer has it."""
    async with asyncio.timeout(LONG):
        while True:
            if not await is_there(api, session):
                return
            await asyncio.sleep(0.1)


# renaming and pinning


@requirement("ui.browser-sessions")
async def test_a_session_is_renamed_and_every_tab_and_the_server_know_it(tab, new_tab, api):
    """Its name is the list's, the page's and the server's, and Esc leaves it as it was."""
    (session,) = await listed(tab, api, "Bladder wrack")
    await tab.open(f"/s/{session}")
    await choose(tab, "Bladder wrack", "Rename")
    field = tab.page.get_by_label("Title", exact=True)
    await expect(field).to_be_focused()
    await field.fill("Never mind")
    await field.press("Escape")
    await expect(line(tab, "Bladder wrack")).to_be_visible()
    await choose(tab, "Bladder wrack", "Rename")
    await field.fill("  كِلْب البحر <b>kelp</b> ")
    await field.press("Enter")

    await expect(tab.page).to_have_title("كِلْب البحر <b>kelp</b> · Holdfast")
    assert "كِلْب البحر <b>kelp</b>" == (await api.session(session))["title"]
    await expect(line(await new_tab(), "كِلْب البحر <b>kelp</b>")).to_be_visible()


@requirement("ui.browser-sessions")
async def test_a_session_is_renamed_with_the_keyboard_alone(tab, api):
    """Its line, its menu, its new name; and the keyboard is then where it was, not at the top of the page."""
    (session,) = await listed(tab, api, "Sea lettuce")
    keys = tab.page.keyboard
    await line(tab, "Sea lettuce").get_by_role("link").focus()
    await keys.press("ArrowRight")
    await keys.press("Enter")
    await expect(tab.page.get_by_role("menuitem", name="Pin", exact=True)).to_be_focused()
    await keys.press("ArrowDown")
    await expect(tab.page.get_by_role("menuitem", name="Rename", exact=True)).to_be_focused()
    await keys.press("Enter")
    await expect(tab.page.get_by_label("Title", exact=True)).to_be_focused()
    await keys.type("Sea beet")
    await keys.press("Enter")

    await expect(line(tab, "Sea beet").get_by_role("link")).to_be_focused()
    assert "Sea beet" == (await api.session(session))["title"]


@requirement("ui.browser-sessions")
async def test_the_list_goes_on_when_it_is_scrolled_and_each_chat_is_one_tab_stop(new_tab, api):
    """Nobody presses a button after every fifty chats, or Tab a hundred times to get past them."""
    first = await api.new_session(title="The very first kelp")
    for number in range(60):
        await api.new_session(title=f"Kelp {number}")
    tab = await new_tab()
    await expect(line(tab, "Kelp 59")).to_be_visible()
    await expect(line(tab, "The very first kelp")).to_have_count(0)
    await line(tab, "Kelp 20").scroll_into_view_if_needed()
    await tab.page.locator(".session").last.scroll_into_view_if_needed()
    await expect(line(tab, "The very first kelp")).to_have_count(1)
    await line(tab, "Kelp 59").get_by_role("link").focus()
    await tab.page.keyboard.press("Tab")

    await expect(line(tab, "Kelp 58").get_by_role("link")).to_be_focused()
    assert await is_there(api, first)


@requirement("ui.browser-sessions")
async def test_a_pinned_session_stands_first_until_it_is_unpinned(tab, api):
    """Newer sessions do not push it down, and a reload does not forget it."""
    session, _ = await listed(tab, api, "Dulse", "Pepper dulse")
    await choose(tab, "Dulse", "Pin")
    await expect(in_group(tab, "Pinned", "Dulse")).to_be_visible()
    await tab.page.reload()
    await expect(in_group(tab, "Pinned", "Dulse")).to_be_visible()
    await expect(tab.page.locator(".sessions h2").first).to_have_text("Pinned")
    assert True is (await api.session(session))["pinned"]
    await choose(tab, "Dulse", "Unpin")

    await expect(in_group(tab, "Pinned", "Dulse")).to_have_count(0)
    await expect(in_group(tab, "Today", "Dulse")).to_be_visible()
    assert False is (await api.session(session))["pinned"]


@requirement("ui.browser-sessions")
async def test_a_session_that_is_being_answered_says_so_in_the_list(tab, new_tab, api, up):
    """Whoever started it, and wherever: one sees it without opening it."""
    (session,) = await listed(tab, api, "Thongweed")
    up.enqueue([Headers(), Role(), Delta("Half"), Gate("badge"), *answer(" done")[2:]])
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url) if "/api/sessions?" in request.url else None)
    await api.start(session, "Go", "up/m")
    running = line(tab, "Thongweed").locator(".running")
    await expect(running).to_be_visible()
    await expect(running).to_contain_text("Generating a response")
    up.open("badge")

    await expect(running).to_have_count(0)
    await expect(line(tab, "Thongweed")).to_be_visible()
    assert [] == asked


@requirement("ui.browser-sessions", "sub.session-list")
async def test_a_list_is_right_again_after_its_connection_was_lost(new_tab, api, server, stack):
    """What was renamed, made and deleted meanwhile, on another device, is seen without a reload."""
    cable = await stack.enter_async_context(Cable(server.port))
    tab = await new_tab(url=cable.url)
    renamed, deleted = await listed(tab, api, "Sea lettuce", "Gutweed")
    cable.cut()
    await expect(tab.away).to_be_visible()
    await api.client.request("PATCH", f"/api/sessions/{renamed}", json={"title": "Ulva"})
    await api.client.request("DELETE", f"/api/sessions/{deleted}")
    await api.new_session(title="Sugar kelp")
    await cable.listen()

    await expect(line(tab, "Ulva")).to_be_visible()
    await expect(line(tab, "Sugar kelp")).to_be_visible()
    await expect(line(tab, "Gutweed")).to_have_count(0)


# deleting


@requirement("ui.browser-sessions")
async def test_what_is_deleted_comes_back_with_undo(tab, api, up):
    """Its page too, with every word; and it is not deleted a little later after all."""
    up.enqueue(answer("Kept."))
    (session,) = await listed(tab, api, "Oarweed")
    await api.settled(await api.start(session, "Keep this", "up/m"))
    await tab.lingers()
    await tab.open(f"/s/{session}")
    await tab.sees_ending("completed", "Kept.")
    deletions: list[str] = []
    tab.page.on("request", lambda request: deletions.append(request.url) if request.method == "DELETE" else None)
    await choose(tab, "Oarweed", "Delete")
    await expect(line(tab, "Oarweed")).to_have_count(0)
    await expect(tab.messages).to_have_count(0)
    await tab.press("Undo")

    await expect(line(tab, "Oarweed")).to_be_visible()
    await tab.sees_ending("completed", "Kept.")
    await tab.transcript_is(["Keep this", "Kept."])
    await tab.page.close()
    assert [] == deletions
    assert await is_there(api, session)


@requirement("ui.browser-sessions")
async def test_without_undo_it_is_deleted(tab, api, up):
    """After the time in which one can think again, at the server too; other sessions stay."""
    await tab.lingers()
    session, other = await listed(tab, api, "Dabberlocks", "Carrageen")
    await choose(tab, "Dabberlocks", "Delete")
    await expect(tab.page.get_by_text("Deleted “Dabberlocks”")).to_be_visible()
    assert await is_there(api, session)
    await tab.lets_go()
    await gone(api, session)

    await expect(tab.page.get_by_text("Deleted “Dabberlocks”")).to_have_count(0)
    await tab.page.reload()
    await expect(line(tab, "Carrageen")).to_be_visible()
    await expect(line(tab, "Dabberlocks")).to_have_count(0)
    assert await is_there(api, other)


@requirement("ui.browser-sessions")
@pytest.mark.parametrize("way", ["close", "reload"])
async def test_who_leaves_before_that_time_is_over_has_deleted_it(tab, api, way):
    """A closed tab cannot be asked again, and what was said to be deleted must not be back tomorrow."""
    (session,) = await listed(tab, api, f"Laver {way}")
    await choose(tab, f"Laver {way}", "Delete")
    await expect(line(tab, f"Laver {way}")).to_have_count(0)
    if way == "close":
        await tab.page.close(run_before_unload=True)
    else:
        await tab.page.reload()
        await expect(line(tab, f"Laver {way}")).to_have_count(0)

    await gone(api, session)


@requirement("ui.browser-sessions", "hist.delete-during-run")
async def test_deleting_a_session_ends_its_answer(tab, api, up):
    """Nothing is paid for that nobody can read."""
    up.enqueue([Headers(), Role(), Delta("Half"), Hang()])
    (session,) = await listed(tab, api, "Furbelows")
    await tab.open(f"/s/{session}")
    await tab.say("Go")
    await tab.reads("Half")
    asked = up.requests[-1]
    await choose(tab, "Furbelows", "Delete")
    await gone(api, session)

    async with asyncio.timeout(LONG):
        await asked.closed.wait()
    assert "client" == asked.closed_by


# searching


@requirement("ui.browser-sessions")
async def test_titles_and_contents_are_searched_and_walked_with_the_keyboard(tab, api, up):
    """Mod-K, some letters, the arrows, Enter: no hand leaves the keyboard."""
    said, answered, titled = await listed(tab, api, "Of shells", "Of stones", "Of the quuxfish")
    up.enqueue(answer("Nothing."), answer("It is called a Quuxfish, they say."))
    await api.settled(await api.start(said, "What is a quuxfish?", "up/m"))
    await api.settled(await api.start(answered, "What is that?", "up/m"))
    keys = tab.page.keyboard
    await keys.press("Control+k")
    await expect(tab.page.locator("#search")).to_be_focused()
    await keys.insert_text("quuxfish")  # at once: the hits of its beginning may be others
    found = tab.page.locator(".session .title")
    for title in ("Of shells", "Of stones", "Of the quuxfish"):
        await expect(found.get_by_text(title, exact=True)).to_be_visible()
    await expect(found).to_have_count(3)

    order = await found.all_text_contents()
    links = tab.page.locator(".session a")
    await keys.press("ArrowDown")
    await expect(links.nth(0)).to_be_focused()
    await keys.press("ArrowDown")
    await expect(links.nth(1)).to_be_focused()
    await keys.press("ArrowUp")
    await keys.press("ArrowUp")
    await expect(tab.page.locator("#search")).to_be_focused()
    await keys.press("ArrowDown")
    await keys.press("ArrowDown")
    await keys.press("ArrowDown")
    await expect(links.nth(2)).to_be_focused()
    await keys.press("Enter")
    ids = {"Of shells": said, "Of stones": answered, "Of the quuxfish": titled}
    await expect(tab.page).to_have_url(re.compile(rf"/s/{ids[order[2]]}(#msg_\w+)?$"))


@requirement("ui.browser-sessions", "hist.search-hit")
async def test_a_search_shows_the_sentence_and_leads_to_the_message(new_tab, api):
    """Of very many messages it is drawn, in sight and marked; the end of the chat would be the wrong place."""
    session = await long_session(api)
    message = (await api.session(session))["messages"][41]
    tab = await new_tab()
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("answer 20")
    hit = tab.page.locator(f".session a[href^='/s/{session}']")
    await expect(hit.locator(".excerpt")).to_have_text("Answer 20.")
    await expect(hit.locator("mark")).to_have_text(["Answer", "20"])
    await hit.click()

    await expect(tab.page.locator(".line.is-target")).to_be_in_viewport()
    await expect(tab.page.locator(".line.is-target")).to_contain_text("Answer 20.")
    await expect(tab.page).to_have_url(re.compile(rf"/s/{session}#{message['id']}$"))


@requirement("ui.browser-sessions", "hist.search-hit")
async def test_an_excerpt_is_read_without_the_marks_of_markdown(new_tab, api, up):
    """It is one line, which draws no Markdown."""
    up.enqueue(answer("> **Note:** a *quorum* of `axolotls` is enough."))
    session = await api.new_session(model="up/m", title="Zoo")
    await api.settled(await api.start(session, "Go", "up/m"))
    tab = await new_tab()
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("axolotls")

    excerpt = tab.page.locator(f".session a[href^='/s/{session}'] .excerpt")
    await expect(excerpt).to_have_text("Note: a quorum of axolotls is enough.")
    await expect(excerpt.locator("mark")).to_have_text(["axolotls"])


@requirement("ui.browser-sessions", "hist.search-hit")
async def test_a_search_leads_to_a_message_of_another_branch(new_tab, api, up):
    """What was said before an edit is still said, and found: the page shows the branch that it is on."""
    up.enqueue(answer("Of limpets."), answer("Of whelks."))
    session = await api.new_session()
    await api.settled(await api.start(session, "Tell me of limpetology", "up/m"))
    message = (await api.session(session))["messages"][0]["id"]
    edit = {"message_id": message, "input": "Tell me of whelks", "model": "up/m"}
    run = await (await api.client.post(f"/api/sessions/{session}/edit", edit)).json()
    await api.settled(run["id"])
    tab = await new_tab(f"/s/{session}")
    await tab.sees_ending("completed", "Of whelks.")
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.insert_text("limpetology")  # at once: the hits of its beginning may be others
    await tab.page.locator(".session a:has(mark)").click()

    await expect(tab.page.locator(".line.is-target")).to_contain_text("Tell me of limpetology")
    await tab.sees_ending("completed", "Of limpets.")


FOUND = """() => [...(CSS.highlights.get("found") ?? [])].map((range) => {
    const place = range.getBoundingClientRect();
    return [range.toString(), place.top > 0 && place.bottom < innerHeight];
})"""


@requirement("ui.browser-sessions", "hist.search-hit")
async def test_a_search_opens_a_long_message_at_its_words_and_marks_them(new_tab, api, up):
    """Whoever has to search a long answer once more, by eye, has not found anything."""
    sections = "".join(f"## Section {n}\n\n{'Words. ' * 90}\n\n" for n in range(60))
    up.enqueue(answer(f"{sections}The *zanderfish* swims here.\n\n{sections}"))
    session = await api.new_session()
    await api.settled(await api.start(session, "At length", "up/m"))
    tab = await new_tab()
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("zanderfish swims")
    await expect(tab.page.locator(".session mark")).to_have_text(["zanderfish", "swims"])  # not yet after one word
    await tab.page.locator(".session a:has(mark)").click()
    await expect(tab.last_answer.get_by_text("zanderfish")).to_be_in_viewport()

    await tab.finds([["zanderfish", True], ["swims", True]], FOUND)


@requirement("ui.browser-sessions")
async def test_a_new_chat_ends_the_search_and_has_its_title(new_tab, api, up):
    """It is in the list at once, and has its name, whatever is searched for meanwhile."""
    up.enqueue(answer("Of lentils."), answer("Of beans."))
    await api.settled(await api.start(await api.new_session(), "Tell me of lentils", "up/m"))
    tab = await new_tab()
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("lentils")
    await tab.page.locator(".session a:has(mark)").first.click()
    await tab.page.keyboard.press("Control+Shift+O")
    await expect(tab.page.locator("#search")).to_have_value("")
    await tab.say("Tell me of beans")
    await tab.sees_ending("completed", "Of beans.")
    await expect(line(tab, "Tell me of beans")).to_be_visible()
    await tab.page.locator("#search").fill("lentils")
    await expect(line(tab, "Tell me of beans")).to_have_count(0)

    await expect(tab.page.get_by_role("heading", name="Tell me of beans")).to_be_visible()


FRAMES = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done))))"


@requirement("ui.browser-sessions")
async def test_no_letter_typed_right_after_the_search_key_is_lost(tab):
    """The search was selected again a frame later, so that the second letter replaced the first."""
    await tab.page.evaluate("""() => {
        document.dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true}));
        document.execCommand("insertText", false, "a");
        return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    }""")
    await tab.page.keyboard.type("b")

    await expect(tab.page.locator("#search")).to_have_value("ab")


@requirement("ui.browser-sessions")
async def test_no_letter_typed_as_soon_as_the_page_is_drawn_is_lost(new_tab):
    """A frame later the search was emptied, as it is by a new chat."""
    tab = await new_tab(None)
    typed = 'document.querySelector("#search").focus() ?? document.execCommand("insertText", false, "ab")'
    await tab.page.add_init_script(f"{WHEN_DRAWN} {typed})")
    await tab.open("/")
    await tab.measure(FRAMES)

    await expect(tab.page.locator("#search")).to_have_value("ab")


@requirement("ui.browser-sessions")
async def test_a_search_that_finds_nothing_says_so_and_esc_gives_the_list_back(tab, api):
    """An empty list without a word looks like lost chats."""
    await listed(tab, api, "Tangle")
    await tab.page.keyboard.press("Control+k")
    await tab.page.keyboard.type("no such thing as this")
    await expect(tab.page.get_by_text("No results")).to_be_visible()
    await tab.page.keyboard.press("Escape")

    await expect(line(tab, "Tangle")).to_be_visible()
    await expect(tab.page.locator("#search")).to_have_value("")


# taking it elsewhere


async def exported(tab: Tab, kind: str) -> tuple[str, str]:
    """The name and the text of the file that the browser saved."""
    await tab.page.get_by_role("button", name="Chat actions", exact=True).click()
    async with tab.page.expect_download() as saving:
        await tab.page.get_by_role("menuitem", name=f"Export as {kind}").click()
    download = await saving.value
    return download.suggested_filename, Path(await download.path()).read_bytes().decode()


@requirement("ui.browser-sessions")
async def test_an_export_holds_the_words_of_the_log(new_tab, api, up):
    """As Markdown, to be read, and as JSON, with all that the server knows: the words are the log's, to the letter."""
    whole = "Two  spaces,\ttabs, ünïcödé 🌊, <b>&amp;\n\n```python\nprint('# not a heading')\n```"
    half = "The tide comes in"
    up.enqueue([Headers(), Role(), ReasoningDelta("Hm."), *answer(whole)[2:]], [Headers(), Role(), Delta(half), Hang()])
    session = await api.new_session(title="Tides: a/b", model="up/m", system="Be brief.\nBe kind.")
    first = await api.start(session, "One\n\nquestion", "up/m")
    await api.settled(first)
    second = await api.start(session, "Another", "up/m")
    await api.shown(second, half)
    await api.stop(second)
    tab = await new_tab(f"/s/{session}")
    await tab.sees_ending("stopped", half)
    logs = [await words(api, run) for run in (first, second)]
    markdown_name, markdown = await exported(tab, "Markdown")
    json_name, text = await exported(tab, "JSON")

    assert [whole, half] == logs
    assert ("Tides ab.md", "Tides ab.json") == (markdown_name, json_name)
    head = "# Tides: a/b\n\n> Be brief.\n> Be kind.\n\n## You\n\nOne\n\nquestion\n\n## up/m\n\n"
    assert f"{head}{logs[0]}\n\n## You\n\nAnother\n\n## up/m\n\n{logs[1]}\n\n*Stopped.*\n" == markdown
    assert await api.session(session) == json.loads(text)
    assert ["One\n\nquestion", logs[0], "Another", logs[1]] == [
        said["content"] for said in json.loads(text)["messages"]
    ]


async def words(api: Native, run: str) -> str:
    frames = [frame for frame in await api.replay(run) if frame.event == "text.delta"]
    return "".join(frame.json()["text"] for frame in frames)


# what has happened meanwhile


@requirement("ui.browser-sessions")
async def test_a_chat_that_was_answered_or_failed_meanwhile_is_marked_until_it_is_looked_at(tab, api, up):
    """In a product about leaving this is the first thing to look for."""
    up.enqueue(answer("Ready."), [Headers(), Cut()])
    await expect(tab.box).to_be_visible()
    await expect(tab.page.locator(".sessions:not(.loading)")).to_be_visible()
    ready, failed = await api.new_session(title="Of readiness"), await api.new_session(title="Of failure")
    await api.settled(await api.start(ready, "Go", "up/m"))
    await api.settled(await api.start(failed, "Go", "up/m"))
    await expect(line(tab, "Of readiness").get_by_title("New response")).to_be_visible()
    await expect(line(tab, "Of failure").get_by_title("Failed")).to_be_visible()
    await line(tab, "Of readiness").locator("a").click()
    await tab.sees_ending("completed", "Ready.")
    await tab.page.reload()

    await expect(line(tab, "Of failure").get_by_title("Failed")).to_be_visible()
    await expect(line(tab, "Of readiness").locator(".news")).to_have_count(0)


@requirement("ui.browser-sessions", "seen.cursor")
async def test_what_is_read_on_one_device_is_read_on_the_other(tab, new_tab, api, up):
    """Two browsers, one person. An answer in a chat that is open here, with its end in view, needs no mark anywhere."""
    up.enqueue(answer("Ready."), answer("Again."))
    session = await api.new_session(title="On two devices")
    phone = await new_tab()
    for each in (tab, phone):
        await expect(line(each, "On two devices")).to_be_visible()
    await api.settled(await api.start(session, "Go", "up/m"))
    for each in (tab, phone):
        await expect(line(each, "On two devices").get_by_title("New response")).to_be_visible()
    await line(tab, "On two devices").locator("a").click()
    await tab.sees_ending("completed", "Ready.")
    await expect(line(phone, "On two devices").locator(".news")).to_have_count(0)
    await api.settled(await api.start(session, "Again", "up/m"))
    await tab.sees_ending("completed", "Again.")

    await becomes(None, partial(unread, api, session))
    await expect(line(phone, "On two devices").locator(".news")).to_have_count(0)


async def unread(api: Native, session: str) -> str | None:
    return (await api.get(f"/api/sessions/{session}/seen"))["unread"]
