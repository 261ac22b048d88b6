"""Queue, interrupt, edit, answer again, branches and forks, by hand."""

import pytest
from playwright.async_api import expect

from tests.requirements import requirement
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, UsageChunk, answer

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
    """What was cut off is taken up again, and the reader sees one answer."""
    up.enqueue([Headers(), Role(), Delta("The tide comes in"), Finish("length"), Done()], answer(" and goes out."))
    await tab.say("Tell me of the tide")
    await tab.sees_ending("truncated", "The tide comes in")
    await tab.press("Continue")

    await expect(tab.last_answer).to_have_attribute("data-outcome", "completed")
    await expect(tab.page.locator(".continued")).to_have_text("The model was asked to continue.")
    assert ["Tell me of the tide", "The tide comes in", " and goes out."] == await tab.copied()


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
