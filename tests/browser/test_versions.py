"""Edit, leave out, vote on and go on from answers, by hand, by keyboard and on a phone."""

import asyncio

import pytest
from playwright.async_api import Route, expect

from tests.browser.axe import findings, sideways
from tests.requirements import requirement
from tests.support.upstream import Delta, Done, Finish, Headers, Role, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}
VOICE = """
window.said = [];
speechSynthesis.speak = (utterance) => { window.said.push(utterance.text); };
window.SpeechRecognition = window.webkitSpeechRecognition = class {
    start() {
        const words = Object.assign([{ transcript: "what did they say" }], { isFinal: true });
        this.onresult({ resultIndex: 0, results: [words] });
    }
    abort() { this.onend(); }
};
"""


async def choose(tab, message, item):
    """Open the menu of a message and choose an item, by keyboard."""
    await message.get_by_role("button", name="More actions").focus()
    await tab.page.keyboard.press("Enter")
    # the menu takes the focus when it is drawn
    await expect(tab.page.locator("[role=menuitem]:focus")).to_have_count(1)
    await tab.page.get_by_role("menuitem", name=item, exact=True).focus()
    await tab.page.keyboard.press("Enter")


@requirement("versions.edit", "ui.browser-turns")
async def test_an_edited_answer_is_a_version_that_says_so(tab, up):
    """Who reads it later, or exports it, is not told that the model has said it."""
    up.enqueue(answer("Ann did it."), answer("Then he is guilty."))
    await tab.say("Who?")
    await tab.sees_ending("completed", "Ann did it.")
    await choose(tab, tab.last_answer, "Edit response")
    field = tab.page.get_by_label("Response text")
    await expect(field).to_be_focused()
    await field.fill("Bob did it.")
    await tab.page.keyboard.press("Control+Enter")

    await tab.sees_ending("completed", "Bob did it.")
    await expect(tab.last_answer.get_by_text("Edited", exact=True)).to_be_visible()
    await expect(tab.last_answer.locator(".branches")).to_contain_text("2/2")
    await tab.say("And?")
    await tab.sees_ending("completed", "Then he is guilty.")
    assert "Bob did it." == up.requests[-1].body["messages"][-2]["content"]


@requirement("ui.browser-turns")
async def test_a_menu_that_is_opened_before_its_items_have_come_is_used_by_keyboard_too(new_tab, up):
    """They are loaded when a message is drawn. Nothing had the focus, and no key led to them."""
    come = asyncio.Event()

    async def late(route: Route) -> None:
        await come.wait()
        await route.continue_()

    tab = await new_tab(None)
    await tab.page.route("**/assets/items.js", late)
    await tab.open("/")
    up.enqueue(answer("Ann did it."))
    await tab.say("Who?")
    await tab.sees_ending("completed", "Ann did it.")
    await tab.last_answer.get_by_role("button", name="More actions").press("Enter")
    await expect(tab.page.locator(".menu:popover-open")).to_have_count(1)
    come.set()

    await expect(tab.page.get_by_role("menuitem", name="Edit response")).to_be_focused()


@requirement("fork.edited", "ui.browser-turns")
async def test_an_answer_is_gone_on_with_from_where_a_person_cut_it(tab, up):
    """An answer that went wrong in its second line is not asked for again as a whole."""
    up.enqueue(answer("Once upon a time lived a dragon."), answer("Once upon a time lived a keeper."))
    await tab.say("Tell me")
    await tab.sees_ending("completed", "Once upon a time lived a dragon.")
    await choose(tab, tab.last_answer, "Edit response")
    await tab.page.get_by_label("Response text").fill("Once upon a time")
    await tab.press("Continue from here")

    await tab.sees_ending("completed", "Once upon a time lived a keeper.")
    await expect(tab.last_answer.get_by_text("Continued from an earlier response")).to_be_visible()
    await expect(tab.last_answer.get_by_text("Edited", exact=True)).to_be_visible()
    await tab.last_answer.get_by_role("button", name="Previous version").click()
    await tab.sees_ending("completed", "Once upon a time lived a dragon.")


@requirement("fork.exact", "ui.browser-inspector")
async def test_the_replay_of_a_run_can_be_left_at_any_moment(tab, up):
    """Where the slider stands, the new answer begins."""
    up.enqueue(answer("One ", "two ", "three."), answer("One two three. Four."))
    await tab.say("Count")
    await tab.sees_ending("completed", "One two three.")
    await tab.last_answer.get_by_role("link", name="Run details").click()
    await expect(tab.page.locator("[data-whole=true]")).to_be_visible()
    await tab.page.locator(".replay").get_by_role("button", name="Continue from here").click()

    await tab.sees_ending("completed", "One two three. Four.")
    await expect(tab.last_answer.locator(".branches")).to_contain_text("2/2")


@requirement("versions.delete", "ui.browser-turns")
async def test_a_message_is_left_out_and_comes_back(new_tab, up):
    """One slip is one click to mend."""
    tab = await new_tab(None)
    await tab.lingers()
    await tab.open()
    up.enqueue(answer("One."), answer("Two."))
    await tab.say("1?")
    await tab.sees_ending("completed", "One.")
    await tab.say("2?")
    await tab.sees_ending("completed", "Two.")
    await choose(tab, tab.answers.first, "Delete response")
    await tab.transcript_is(["1?", "2?", "Two."])
    await tab.button("Undo").click()
    await tab.transcript_is(["1?", "One.", "2?", "Two."])
    await choose(tab, tab.messages.nth(2), "Delete message")
    await tab.transcript_is(["1?", "One.", "Two."])


@requirement("versions.thumbs")
async def test_a_vote_counts_among_the_scores(new_tab, up, api):
    """And is taken back by the same item."""
    tab = await new_tab(None)
    await tab.lingers()
    await tab.open()
    up.enqueue(answer("It is Bob."))
    await tab.say("Who?")
    await tab.sees_ending("completed", "It is Bob.")
    await choose(tab, tab.last_answer, "Bad response")
    await tab.button("Say why").click()
    await tab.page.get_by_label("Why? (optional)").fill("It was Ann.")
    await tab.button("Save").click()
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await choose(tab, tab.last_answer, "Bad response: Remove vote")
    await choose(tab, tab.last_answer, "Good response")
    await tab.button("Say why").last.wait_for()
    (thumb,) = (await api.get(f"/api/thumbs?session_id={tab.session_id}"))["thumbs"]

    assert ("up", "") == (thumb["vote"], thumb["why"])


@requirement("ui.browser-turns")
async def test_an_answer_is_read_aloud_and_a_message_is_dictated(new_tab, up):
    """By the browser's own voice, without the marks of Markdown; where the sound may go is said before."""
    tab = await new_tab(None)
    await tab.page.add_init_script(VOICE)
    await tab.open()
    up.enqueue(answer("# A **bold** word. And\n\n- another: $E = mc^2$.\n\n  ```sh\n  rm -rf\n  ```\n"))
    await tab.button("Dictate").click()
    await expect(tab.page.get_by_role("dialog")).to_contain_text("Some browsers send the sound to their maker")
    await tab.button("Start dictating").click()
    await expect(tab.box).to_have_value("what did they say")
    await tab.button("Dictate").click()
    await tab.box.press("Enter")
    await tab.sees_ending("completed")
    await choose(tab, tab.last_answer, "Read aloud")

    await tab.finds(["A bold word.", "And", "another: formula.", "Code."], "window.said")
    await choose(tab, tab.last_answer, "Stop reading")


@requirement("ui.browser-turns")
async def test_a_continued_response_is_read_aloud_as_a_whole(new_tab, up):
    """It is one response, although two runs made it."""
    tab = await new_tab(None)
    await tab.page.add_init_script(VOICE)
    await tab.open()
    up.enqueue([Headers(), Role(), Delta("The first half"), Finish("length"), Done()], answer(" and the second."))
    await tab.say("Both halves.")
    await tab.sees_ending("truncated")
    await tab.press("Continue")
    await tab.sees_ending("completed")
    await choose(tab, tab.last_answer, "Read aloud")

    await tab.finds(["The first half and the second."], "window.said")


@requirement("ui.browser-sessions")
async def test_a_response_and_a_whole_chat_are_copied_as_markdown(new_tab, up):
    """As the model has written it, with its signs; the chat with who said what. By the keyboard."""
    tab = await new_tab("/", permissions=["clipboard-read", "clipboard-write"])
    up.enqueue(answer("**Bold**\n\n- one\n- two"))
    await tab.say("A list.")
    await tab.sees_ending("completed")
    await tab.last_answer.get_by_role("button", name="Copy response").press("Enter")
    await tab.finds("**Bold**\n\n- one\n- two", "navigator.clipboard.readText()")
    await tab.page.get_by_role("button", name="Chat actions").press("Enter")
    await tab.page.get_by_role("menuitem", name="Copy as Markdown").press("Enter")
    chat = "# A list.\n\n## You\n\nA list.\n\n## up/m\n\n**Bold**\n\n- one\n- two\n"
    await tab.finds(chat, "navigator.clipboard.readText()")


@requirement("ui.words", "versions.edit")
@pytest.mark.parametrize("language", ["en", "de", "ar"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.usefixtures("needs_axe")
async def test_the_menu_and_the_edit_box_are_accessible_on_a_phone(new_tab, up, api, language, scheme):
    """In the dark and in the light, in every language."""
    up.enqueue(answer("An answer."))
    session_id = await api.new_session()
    await api.settled(await api.start(session_id, "A question", "up/m"))
    tab = await new_tab(f"/s/{session_id}", viewport=PHONE, locale=language, color_scheme=scheme, has_touch=True)
    await expect(tab.last_answer).to_have_attribute("data-outcome", "completed")
    await tab.last_answer.locator("button[aria-haspopup=menu]").click()
    await expect(tab.page.locator(".menu:popover-open [role=menuitem]").first).to_be_focused()
    assert ([], 0) == (await findings(tab), await sideways(tab))

    await tab.page.locator(".menu:popover-open [role=menuitem]").first.click()
    await expect(tab.page.locator(".is-edited textarea")).to_be_focused()
    assert ([], 0) == (await findings(tab), await sideways(tab))
