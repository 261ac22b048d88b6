"""Queue, interrupt, edit, answer again, branches and forks, by hand."""

import asyncio
import re

import pytest
from playwright.async_api import Route, expect

from tests.requirements import requirement
from tests.support.upstream import Cut, Delta, Done, Finish, Gate, Hang, Headers, Role, Status, UsageChunk, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@requirement("ui.browser-turns", "busy.queue")
async def test_messages_wait_in_the_order_in_which_they_were_sent(tab, up):
    """Each has a connection of its own, and the second one can be the faster."""
    up.enqueue(
        [Headers(), Role(), Delta("One"), Gate("order"), Finish(), UsageChunk(), Done()],
        answer("Two."),
        answer("Three."),
    )
    is_said = asyncio.Event()

    async def hold(route: Route) -> None:
        if "second" in (route.request.post_data or ""):
            await is_said.wait()
        await route.continue_()

    await tab.say("first")
    await tab.reads("One")
    await tab.page.route("**/api/sessions/*/runs", hold)
    await tab.say("second")
    await tab.say("third")
    await tab.measure("fetch('/health').then(({ ok }) => ok)")  # what is sent is on its way
    is_said.set()

    await expect(tab.queued).to_have_text(["second", "third"])
    up.open("order")
    await tab.transcript_is(["first", "One", "second", "Two.", "third", "Three."])


@requirement("ui.browser-turns", "busy.queue")
async def test_what_is_said_meanwhile_waits_and_can_be_changed_or_taken_back(tab, up):
    """A second thought is free as long as it has not been sent."""
    half = [Headers(), Role(), Delta("One"), Gate("queue"), Finish(), UsageChunk(), Done()]
    up.enqueue(half, answer("Two, changed."))
    await tab.say("first")
    await tab.reads("One")
    await tab.say("second")
    await tab.say("third")
    await expect(tab.queued).to_have_text(["second", "third"])

    await tab.queued.nth(0).get_by_role("button", name="Edit").click()
    field = tab.page.get_by_label("Queued message", exact=True)
    await field.fill("second, changed")
    await field.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "bubbles": True, "cancelable": True})
    await expect(field).to_be_focused()
    await tab.queued.nth(0).get_by_role("button", name="Save").click()
    await expect(tab.queued).to_have_text(["second, changed", "third"])
    await tab.queued.nth(1).get_by_role("button", name="Remove").click()
    await expect(tab.queued).to_have_text(["second, changed"])
    up.open("queue")

    await tab.sees_ending("completed", "Two, changed.")
    await expect(tab.queued).to_have_count(0)
    await tab.transcript_is(["first", "One", "second, changed", "Two, changed."])


@requirement("ui.browser-turns", "busy.queue-order")
@pytest.mark.parametrize("place", ["/", "/temporary"])
async def test_what_waits_is_moved_and_sent_now_by_keyboard(new_tab, up, place):
    """In a temporary chat too, which has its queue in this tab alone."""
    up.enqueue([Headers(), Role(), Delta("One"), Hang()], answer("Three."), answer("Four."), answer("Two."))
    tab = await new_tab(place)
    await tab.say("first")
    await tab.reads("One")
    for text in ("second", "third", "fourth"):
        await tab.say(text)
    await tab.queued.nth(2).get_by_role("button", name="Move up").focus()
    await tab.page.keyboard.press("Enter")
    await expect(tab.queued).to_have_text(["second", "fourth", "third"])
    await expect(tab.queued.nth(1).get_by_role("button", name="Send queued message now")).to_be_focused()
    await tab.queued.nth(1).get_by_role("button", name="Move up").press("Enter")
    await expect(tab.queued).to_have_text(["fourth", "second", "third"])
    await tab.queued.nth(2).get_by_role("button", name="Send queued message now").press("Enter")

    await expect(tab.queued).to_have_count(0)
    await tab.sees_ending("completed", "Two.")
    await tab.transcript_is(["first", "One", "third", "Three.", "fourth", "Four.", "second", "Two."])
    await expect(tab.answers.first).to_have_attribute("data-outcome", "stopped")


@requirement("ui.browser-turns")
async def test_what_enter_does_meanwhile_is_a_preference(new_tab, up):
    """Some never want to wait. Ctrl-Enter does the other, and the button of Enter is marked."""
    half = [Headers(), Role(), Delta("One"), Hang()]
    up.enqueue(half, half)
    tab = await new_tab("/settings")
    await tab.page.get_by_role("group", name="Enter while a response is running").get_by_label("Interrupt").check()
    await tab.open("/")
    await tab.say("first")
    await tab.reads("One")
    await tab.box.fill("waits")
    await expect(tab.page.locator(".tools-line button.small").last).to_have_text("Interrupt")
    await tab.box.press("Control+Enter")
    await expect(tab.queued).to_have_text(["waits"])
    await tab.say("second")

    await expect(tab.answers.first).to_have_attribute("data-outcome", "stopped")
    await expect(tab.queued).to_have_text(["waits"])
    await expect(tab.page.locator(".message.user").last).to_contain_text("second")
    await tab.reads("One")
    await tab.press("Stop all")
    await tab.sees_ending("stopped")


@requirement("ui.browser-turns", "busy.interrupt-order")
async def test_interrupting_keeps_the_partial_and_answers_the_new_message(tab, up):
    """The order on the page is the order in which it was said."""
    up.enqueue([Headers(), Role(), Delta("Let me begin in 1600"), Hang()], answer("Briefly: the moon."))
    await tab.say("Why are there tides?")
    await tab.reads("Let me begin in 1600")
    await tab.box.fill("Briefly, please")
    await tab.press("Interrupt")

    await tab.sees_ending("completed", "Briefly: the moon.")
    await tab.transcript_is(["Why are there tides?", "Let me begin in 1600", "Briefly, please", "Briefly: the moon."])
    await expect(tab.answers.first).to_have_attribute("data-outcome", "stopped")


@requirement("ui.browser-turns", "hist.regenerate-edit-fork")
async def test_edits_and_new_answers_are_branches_that_one_can_walk(tab, up, api):
    """Nothing that was said is lost: the arrows lead to it, and a fork leaves the session as it was."""
    up.enqueue(answer("A1"), answer("A2"), answer("B1"))
    await tab.say("a")
    await tab.sees_ending("completed", "A1")
    await tab.press("Regenerate")
    await tab.sees_ending("completed", "A2")
    await expect(tab.last_answer.get_by_role("group", name="Versions")).to_contain_text("2/2")

    await tab.press("Edit message")
    field = tab.page.get_by_role("article", name="Editing message").get_by_role("textbox")
    await field.fill("b")
    await field.press("Enter")
    await tab.sees_ending("completed", "B1")
    await tab.transcript_is(["b", "B1"])

    await tab.press("Previous version")
    await tab.sees_ending("completed", "A2")
    await tab.transcript_is(["a", "A2"])
    await tab.last_answer.get_by_role("button", name="Previous version").click()
    await tab.sees_ending("completed", "A1")

    first = tab.session_id
    await tab.press("Fork chat from here")
    await expect(tab.page).not_to_have_url(f"{tab.page.url.rpartition('/')[0]}/{first}")
    await tab.sees_ending("completed", "A1")
    await tab.transcript_is(["a", "A1"])
    assert [("user", "a"), ("assistant", "A1")] == await api.transcript(tab.session_id)


# Notes what is drawn whenever it has changed, before the browser has drawn a frame of it.
NOTE = """() => {
    window.noted = [];
    const words = (e) => e.querySelector(".said, .markdown")?.textContent ?? "";
    new MutationObserver(() => window.noted.push([...document.querySelectorAll(".transcript .message")].map(words)))
        .observe(document.querySelector(".transcript"), {subtree: true, childList: true});
}"""


@requirement("ui.browser-turns")
async def test_another_branch_is_drawn_all_at_once(new_tab, api, up):
    """What its reader sees of it has no gap, not even for a moment."""
    up.enqueue(*[answer(f"A{n}") for n in range(4)], answer("B"))
    session = await api.new_session(model="up/m")
    for n in range(4):
        await api.settled(await api.start(session, f"a{n}", "up/m"))
    first = (await api.session(session))["messages"][0]["id"]
    edit = {"message_id": first, "input": "b", "model": "up/m"}
    await api.settled((await (await api.client.post(f"/api/sessions/{session}/edit", edit)).json())["id"])
    tab = await new_tab(f"/s/{session}")
    await tab.transcript_is(["b", "B"])
    await tab.measure(NOTE)
    await tab.press("Previous version")

    whole = [text for n in range(4) for text in (f"a{n}", f"A{n}")]
    await tab.transcript_is(whole)
    noted = await tab.measure("window.noted")
    assert [] == [drawn for drawn in noted if "A3" in drawn and drawn != whole]


@requirement("ui.browser-turns")
async def test_what_is_typed_right_after_edit_replaces_what_was_selected(tab, up):
    """The box put its caret at the end a frame later: what was selected by then was kept."""
    up.enqueue(answer("Yes."))
    await tab.say("before")
    await tab.sees_ending("completed", "Yes.")
    await tab.measure("""async () => {
        document.querySelector("button[aria-label='Edit message']").click();
        await null;
        document.activeElement.select();
        document.execCommand("insertText", false, "a");
        document.activeElement.select();
        await new Promise((done) => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done))));
    }""")
    await tab.page.keyboard.type("after")

    field = tab.page.get_by_role("article", name="Editing message").get_by_role("textbox")
    await expect(field).to_have_value("after")


@requirement("ui.browser-turns")
async def test_an_answer_that_failed_goes_on_with_continue(tab, up):
    """What was cut off is taken up again, in the middle of code too, and the reader sees and copies one answer."""
    begun, rest, whole = "```python\ntide = ", "12.42\n```\n\nTwice a day.", ["Tell me of the tide", ""]
    up.enqueue([Headers(), Role(), Delta(begun), Finish("length"), Done()], answer(rest))
    await tab.say(whole[0])
    await tab.sees_ending("truncated")
    await tab.press("Continue")
    await tab.sees_ending("completed")
    whole[1] = begun + rest

    await expect(tab.last_answer.locator("pre")).to_have_text("tide = 12.42")
    await expect(tab.last_answer.locator(".joint")).to_have_attribute("title", "Continued here")
    await tab.copies(whole)
    await tab.page.reload()
    await tab.sees_ending("completed")
    await tab.copies(whole)


@requirement("ui.browser-turns")
async def test_a_continued_response_is_exported_regenerated_and_found_as_one(tab, api, up):
    """Its second half is nobody's second answer, and the turn that asked for it is no word of the user."""
    up.enqueue(
        [Headers(), Role(), Delta("The neap"), Finish("length"), Done()], answer(" tide is low."), answer("Anew.")
    )
    await tab.say("Say on")
    await tab.sees_ending("truncated")
    await tab.press("Continue")
    await tab.sees_ending("completed", "The neap tide is low.")
    last = (await api.session(tab.session_id))["messages"][-1]["id"]
    await tab.page.get_by_role("button", name="Chat actions").click()
    async with tab.page.expect_download() as download:
        await tab.page.get_by_role("menuitem", name="Export as Markdown").click()
    exported = await (await download.value).path()
    await tab.open(f"/s/{tab.session_id}#{last}")
    await expect(tab.page.locator(".line.is-target")).to_contain_text("The neap tide is low.")
    await tab.press("Regenerate")
    await tab.sees_ending("completed", "Anew.")

    text = exported.read_text()
    assert "The neap tide is low." in text
    assert 1 == text.count("## You")
    await tab.transcript_is(["Say on", "Anew."])


@requirement("ui.browser-turns")
async def test_a_continuation_that_fails_says_so_and_can_be_tried_again(tab, up):
    """What was there before stays as it was, with its own way on."""
    up.enqueue([Headers(), Role(), Delta("Half"), Finish("length"), Done()], [Headers(), Cut()], answer(" and half."))
    await tab.say("Go")
    await tab.sees_ending("truncated", "Half")
    await tab.press("Continue")
    await expect(tab.last_answer).to_have_attribute("data-outcome", "failed")
    await tab.last_answer.get_by_role("button", name="Retry").click()

    await tab.sees_ending("completed", "Half and half.")


@requirement("ui.browser-turns")
async def test_another_model_answers_a_continued_response_from_its_beginning(tab, up):
    """Half of one model's words under the name of another would be a lie."""
    cut = [Headers(), Role(), Delta("Mine"), Finish("length"), Done()]
    up.enqueue(cut, cut, answer("All of it is mine."))
    await tab.say("Go")
    await tab.sees_ending("truncated", "Mine")
    await tab.press("Continue")
    await tab.sees_ending("truncated", "MineMine")
    await tab.press("Try another model")
    await tab.page.get_by_role("option", name="up/other").click()

    await tab.sees_ending("completed", "All of it is mine.")
    assert ["user"] == [message["role"] for message in up.requests[-1].body["messages"]]
    await expect(tab.last_answer.locator(".figures")).to_have_count(1)
    await expect(tab.last_answer.locator(".figures span").first).to_have_text("up/other")


@requirement("ui.browser-turns")
async def test_each_model_of_a_response_is_named_with_what_it_took(tab, up):
    """Whoever continues with another model finds both: under the response, and in its export."""
    up.enqueue([Headers(), Role(), Delta("One"), Finish("length"), UsageChunk(3, 11), Done()], answer(" and two."))
    await tab.say("Go")
    await tab.sees_ending("truncated", "One")
    await tab.page.locator(".model-button").click()
    await tab.page.get_by_role("option", name="up/other").click()
    await expect(tab.page.locator(".model-button")).to_contain_text("up/other")
    await tab.press("Continue")
    await tab.sees_ending("completed", "One and two.")
    await tab.page.get_by_role("button", name="Chat actions").click()
    async with tab.page.expect_download() as download:
        await tab.page.get_by_role("menuitem", name="Export as Markdown").click()
    exported = await (await download.value).path()

    figures = tab.last_answer.locator(".figures")
    await expect(figures).to_have_count(2)
    await expect(figures.first).to_contain_text("11 tokens")
    await expect(figures.first.locator("span").first).to_have_text("up/m")
    await expect(figures.last.locator("span").first).to_have_text("up/other")
    assert "## up/m, up/other\n" in exported.read_text()


@requirement("ui.browser-turns")
async def test_only_with_the_keyboard(tab, up):
    """Enter sends, Esc stops, the up arrow edits, and the rest is reached with Tab and shortcuts."""
    keys = tab.page.keyboard
    up.enqueue([Headers(), Role(), Delta("Half"), Hang()], answer("Whole."))
    await expect(tab.box).to_be_focused()
    await keys.type("hello")
    await keys.press("Enter")
    await tab.reads("Half")
    await keys.press("Escape")
    await tab.sees_ending("stopped", "Half")
    await tab.box.focus()
    await keys.press("ArrowUp")
    await expect(tab.page.get_by_role("article", name="Editing message").get_by_role("textbox")).to_be_focused()
    await keys.type(" there")
    await keys.press("Enter")
    await tab.sees_ending("completed", "Whole.")
    await tab.transcript_is(["hello there", "Whole."])

    await keys.press("Control+/")
    await expect(tab.page.get_by_role("dialog")).to_be_visible()
    await keys.press("Escape")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await keys.press("Control+k")
    await expect(tab.page.locator("#search")).to_be_focused()
    await keys.press("Control+Shift+O")
    await expect(tab.box).to_be_focused()
    await expect(tab.messages).to_have_count(0)


@requirement("ui.browser-turns", "busy.queue")
async def test_stop_all_stops_the_response_and_empties_the_queue(tab, up):
    """Esc stops one response, and the next message is answered at once; whoever wants silence asks for it once."""
    up.enqueue([Headers(), Role(), Delta("One"), Hang()])
    await tab.say("first")
    await tab.reads("One")
    await tab.say("second")
    await tab.say("third")
    await expect(tab.queued).to_have_count(2)
    await tab.press("Stop all")

    await tab.sees_ending("stopped", "One")
    await expect(tab.queued).to_have_count(0)
    await tab.transcript_is(["first", "One"])


@requirement("ui.browser-turns")
async def test_a_double_click_on_retry_starts_one_run_and_complains_of_nothing(tab, up):
    """The second click is not meant, and nothing has to be loaded again."""
    up.enqueue([Headers(), Role(), Delta("Half"), Finish("length"), Done()], answer("Whole."))
    await tab.say("Go")
    await tab.sees_ending("truncated", "Half")
    await tab.button("Retry").dblclick()

    await tab.sees_ending("completed", "Whole.")
    await expect(tab.page.locator(".toast")).to_have_count(0)


@requirement("ui.browser-turns")
async def test_a_response_that_has_fallen_silent_shows_for_how_long(tab, up):
    """Three words and nothing more look like the end; a rate of zero tells nobody what is going on."""
    up.enqueue([Headers(), Role(), Delta("Well, you see"), Hang()])
    await tab.say("Go")
    await tab.reads("Well, you see")
    figures = tab.live.locator(".figures")
    await expect(figures).to_contain_text("waiting · ")

    await expect(figures).not_to_contain_text("tokens/s")
    await tab.press("Stop")
    await tab.sees_ending("stopped")


# Notes the seconds that are left, whenever they change: each is shown for one second only.
COUNTED = """() => {
    window.counted = [];
    new MutationObserver(() => {
        const left = document.querySelector(".waiting")?.textContent.match(/in (\\d+) s/)?.[1];
        if (left !== undefined && window.counted.at(-1) !== Number(left)) window.counted.push(Number(left));
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


@requirement("ui.browser-turns")
async def test_the_time_until_the_next_try_counts_down_and_goes_away(tab, up):
    """One that stands still, or stays under the answer, is no news."""
    up.enqueue(
        [Status(429, headers={"retry-after": "3"})],
        [Headers(), Role(), Delta("Here."), Gate("tried"), Finish(), Done()],
    )
    await tab.measure(COUNTED)
    await tab.say("Go")
    await expect(tab.live.locator(".waiting")).to_contain_text("Trying again in")
    await tab.reads("Here.")

    await expect(tab.live).not_to_contain_text("Trying again")
    counted = await tab.measure("window.counted")
    assert len(counted) > 1
    assert sorted(counted, reverse=True) == counted
    up.open("tried")
    await tab.sees_ending("completed", "Here.")


EDIT = "Second thoughts of ten minutes"


@requirement("ui.browser-turns", "busy.queue")
async def test_stop_all_puts_what_waited_back_into_the_message_box(tab, up):
    """It was written to be read: whoever wants silence does not want to write it again."""
    up.enqueue([Headers(), Role(), Delta("One"), Hang()])
    await tab.say("first")
    await tab.reads("One")
    await tab.say("second")
    await tab.say("third")
    await expect(tab.queued).to_have_count(2)
    await tab.box.fill("fourth")
    await tab.press("Stop all")

    await tab.sees_ending("stopped", "One")
    await expect(tab.box).to_have_value("second\n\nthird\nfourth")


@requirement("ui.browser-turns", "busy.queue")
@pytest.mark.parametrize("how", ["sent", "removed elsewhere", "reloaded"])
async def test_what_is_typed_over_a_queued_message_is_not_lost(new_tab, up, how):
    """Its turn comes, another tab takes it back, or the page is loaded again, in the middle of a sentence."""
    half = [Headers(), Role(), Delta("One"), Gate(f"typed {how}"), Finish(), UsageChunk(), Done()]
    up.enqueue(half, answer("Two."))
    tab = await new_tab()
    await tab.say("first")
    await tab.reads("One")
    await tab.say("second")
    await tab.queued.get_by_role("button", name="Edit").click()
    field = tab.page.get_by_label("Queued message", exact=True)
    await field.fill(EDIT)
    if how == "reloaded":
        await tab.page.reload()
        await expect(field).to_have_value(EDIT)
        await field.press("Enter")
        await expect(tab.queued).to_have_text([EDIT])
    elif how == "removed elsewhere":
        other = await new_tab(f"/s/{tab.session_id}")
        await other.queued.get_by_role("button", name="Remove").click()
        await expect(tab.box).to_have_value(EDIT)
        await tab.say(EDIT)
    up.open(f"typed {how}")

    await tab.sees_ending("completed", "Two.")
    sent = "second" if how == "sent" else EDIT
    await tab.transcript_is(["first", "One", sent, "Two."])
    await expect(tab.box).to_have_value(EDIT if how == "sent" else "")


@requirement("ui.browser-turns", "hist.regenerate-edit-fork")
@pytest.mark.parametrize("role", ["user", "answer"])
async def test_what_is_typed_over_a_message_is_kept_until_it_is_taken_or_cancelled(tab, up, role):
    """A key, a reload, another chat, and a server that does not answer: none of them loses it."""
    up.enqueue(answer("One."))
    await tab.say("first")
    await tab.sees_ending("completed", "One.")
    field = tab.page.locator(".is-edited textarea")

    async def edit() -> None:
        message = tab.page.locator(f".message.{role}")
        if role == "user":
            await message.get_by_role("button", name="Edit message").click()
        else:
            await message.get_by_role("button", name="More actions").click()
            await tab.page.get_by_role("menuitem", name="Edit response").click()

    await edit()
    await field.fill(EDIT)
    await field.press("Escape")
    await expect(tab.messages.first).to_contain_text("first")
    await tab.page.reload()
    await edit()
    await expect(field).to_have_value(EDIT)
    await tab.page.route(re.compile("/edit$"), lambda route: route.fulfill(status=400))
    await field.locator("..").get_by_role("button", name="Send" if role == "user" else "Save", exact=True).click()
    await tab.page.locator(".toast").first.wait_for()
    await tab.page.unroute_all()
    await tab.page.reload()
    await edit()
    await expect(field).to_have_value(EDIT)
    await field.locator("..").get_by_role("button", name="Cancel").click()
    await edit()

    await expect(field).to_have_value("first" if role == "user" else "One.")


@requirement("ui.browser-turns")
async def test_whoever_sends_sees_it_from_wherever_they_were_reading(tab, up):
    """A message that is sent out of sight looks as if it had not been."""
    up.enqueue(answer("A line.\n\n" * 100 + "The end."), answer("Two."))
    await tab.say("first")
    await tab.sees_ending("completed")
    await tab.page.locator(".transcript").hover()
    await tab.page.mouse.wheel(0, -1500)
    await expect(tab.button("Scroll to bottom")).to_be_visible()
    await tab.say("second")

    await tab.sees_ending("completed", "Two.")
    await expect(tab.last_answer).to_be_in_viewport()
