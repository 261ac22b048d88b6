"""A chat that fills its model's window: a gauge, a summary by button, by command and by itself, and a way on."""

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Status, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}
SUMMARY = "They spoke of ships."
TOO_LONG = [Status(400, {"error": {"message": "This model's maximum context length is 20 tokens.", "type": "invalid"}})]


async def chat(api: Native, *texts: str) -> str:
    session = await api.new_session(model="up/m")
    for text in texts:
        await api.settled(await api.start(session, text, "up/m"))
    return session


@requirement("ui.browser-context")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("locale", "scheme", "size"),
    [("en-US", "light", {"width": 1280, "height": 800}), ("de", "dark", PHONE), ("ar", "dark", PHONE)],
    ids=["desktop", "German phone", "Arabic phone"],
)
async def test_a_chat_is_compacted_by_command_and_the_summary_undone(new_tab, api, up, locale, scheme, size):
    """The messages stay above a quiet line; the model gets the summary, until it is undone."""
    up.enqueue(answer("Aye."))
    session = await chat(api, "About ships")
    tab = await new_tab(f"/s/{session}", locale=locale, color_scheme=scheme, viewport=size, reduced_motion="reduce")
    await tab.sees_ending("completed", "Aye.")
    up.enqueue(answer(SUMMARY))
    await tab.say("/compact")
    await tab.sees_ending("completed", SUMMARY)
    line = tab.page.locator(".compaction")
    await expect(line.get_by_role("button")).to_be_visible()
    seen = await findings(tab)
    up.enqueue(answer("Two."))
    await tab.say("And now?")
    await tab.sees_ending("completed", "Two.")
    with_summary = up.requests[-1].body["messages"]
    await line.get_by_role("button").press("Enter")
    await expect(line).to_have_count(0)
    up.enqueue(answer("Three."))
    await tab.say("Again?")
    await tab.sees_ending("completed", "Three.")

    assert [] == seen
    assert [f"Summary of the conversation so far:\n\n{SUMMARY}\n\nAnd now?"] == [
        each["content"] for each in with_summary
    ]
    assert ["About ships", "Aye.", "And now?", "Two.", "Again?"] == [
        each["content"] for each in up.requests[-1].body["messages"]
    ]


@requirement("ui.browser-context")
async def test_one_press_leads_on_after_a_message_that_was_too_long(new_tab, api, up):
    """The chat is summarised, and the message sent again behind the summary, also if the tab is closed at once."""
    up.enqueue(answer("Aye."))
    session = await chat(api, "About ships")
    tab = await new_tab(f"/s/{session}")
    up.enqueue(TOO_LONG)
    await tab.say("And now?")
    up.enqueue(answer(SUMMARY))
    up.enqueue(answer("Here."))
    await tab.page.get_by_role("button", name="Compact and send again").press("Enter")
    await tab.sees_ending("completed", "Here.")

    assert [f"Summary of the conversation so far:\n\n{SUMMARY}\n\nAnd now?"] == [
        each["content"] for each in up.requests[-1].body["messages"]
    ]


@requirement("ui.browser-context")
async def test_the_gauge_says_how_full_the_window_is_and_a_full_one_is_compacted_before_the_next_message(
    new_tab, tmp_path
):
    """Only where the window is known. By itself, unless the person has turned that off."""
    async with Upstream() as up:
        up.described = {"m": {"context_length": 4}}
        async with Server(tmp_path, [provider(up.base_url, models=None)]) as server, server.client() as client:
            up.script = answer("Aye.")
            session = await chat(Native(client), "About ships")
            tab = await new_tab(None, url=server.url)
            await tab.open(f"/s/{session}")
            gauge = tab.page.get_by_role("button", name="Context: about 4 of 4 tokens")
            await gauge.press("Enter")
            automatic = tab.page.get_by_role("checkbox", name="Compact by itself")
            await expect(automatic).to_be_checked()
            await tab.page.keyboard.press("Escape")
            up.enqueue(answer(SUMMARY))
            up.enqueue(answer("Here."))
            await tab.say("And now?")
            await tab.sees_ending("completed", "Here.")
            told = [each["content"] for each in up.requests[-1].body["messages"]]

    assert [f"Summary of the conversation so far:\n\n{SUMMARY}\n\nAnd now?"] == told
