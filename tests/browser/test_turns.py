"""Queue, interrupt, edit, answer again, branches and forks, by hand."""

import pytest
from playwright.async_api import expect

from tests.requirements import requirement
from tests.support.upstream import Cut, Delta, Done, Finish, Gate, Hang, Headers, Role, UsageChunk, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
    assert ["first", "One", "second, changed", "Two, changed."] == await tab.transcript()


@requirement("ui.browser-turns", "busy.interrupt-order")
async def test_interrupting_keeps_the_partial_and_answers_the_new_message(tab, up):
    """The order on the page is the order in which it was said."""
    up.enqueue([Headers(), Role(), Delta("Let me begin in 1600"), Hang()], answer("Briefly: the moon."))
    await tab.say("Why are there tides?")
    await tab.reads("Let me begin in 1600")
    await tab.box.fill("Briefly, please")
    await tab.press("Interrupt")

    await tab.sees_ending("completed", "Briefly: the moon.")
    assert [
        "Why are there tides?",
        "Let me begin in 1600",
        "Briefly, please",
        "Briefly: the moon.",
    ] == await tab.transcript()
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
    assert ["b", "B1"] == await tab.transcript()

    await tab.press("Previous version")
    await tab.sees_ending("completed", "A2")
    assert ["a", "A2"] == await tab.transcript()
    await tab.last_answer.get_by_role("button", name="Previous version").click()
    await tab.sees_ending("completed", "A1")

    first = tab.session_id
    await tab.press("Fork chat from here")
    await expect(tab.page).not_to_have_url(f"{tab.page.url.rpartition('/')[0]}/{first}")
    await tab.sees_ending("completed", "A1")
    assert ["a", "A1"] == await tab.transcript()
    assert [("user", "a"), ("assistant", "A1")] == await api.transcript(tab.session_id)


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
    assert whole == await tab.copied()
    await tab.page.reload()
    await tab.sees_ending("completed")
    assert whole == await tab.copied()


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
    assert ["Say on", "Anew."] == await tab.transcript()


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
    assert ["hello there", "Whole."] == await tab.transcript()

    await keys.press("Control+/")
    await expect(tab.page.get_by_role("dialog")).to_be_visible()
    await keys.press("Escape")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await keys.press("Control+k")
    await expect(tab.page.locator("#search")).to_be_focused()
    await keys.press("Control+Shift+O")
    await expect(tab.box).to_be_focused()
    await expect(tab.messages).to_have_count(0)
