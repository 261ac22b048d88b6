"""A session whose view comes late, after what happened in it: a slow network, a quick answer."""

import asyncio

import pytest
from playwright.async_api import Page, Route, expect

from tests.requirements import requirement
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

WATCH = """() => {
    window.most = 0;
    new MutationObserver(() => {
        const said = [...document.querySelectorAll(".transcript .message.user")];
        window.most = Math.max(window.most, said.filter((e) => e.textContent.includes("Only once")).length);
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


@requirement("ui.browser-chat")
async def test_what_was_sent_is_shown_once_also_where_the_session_is_loaded_late(new_tab, up):
    """The view of a new session that comes after its first run has begun tells of the message that is being sent."""
    tab = await new_tab(None)
    await load_after_the_start(tab.page)
    await tab.open("/")
    await tab.measure(WATCH)
    up.enqueue(answer("Yes."))
    await tab.say("Only once")

    await tab.sees_ending("completed", "Yes.")
    await tab.transcript_is(["Only once", "Yes."])
    await tab.finds(1, "window.most")
    await expect(tab.page.locator(".message.user")).to_have_count(1)


async def load_after_the_start(page: Page) -> None:
    """Hold back each view of a session until a run has been started in it."""
    started = asyncio.Event()
    page.on("requestfinished", lambda request: request.url.endswith("/runs") and started.set())

    async def load(route: Route) -> None:
        if route.request.method == "GET":
            await started.wait()
        await route.continue_()

    await page.route("**/api/sessions/ses_*", load)


@requirement("ui.browser-access")
async def test_a_screen_reader_is_told_of_an_answer_that_was_over_before_the_page_had_loaded(new_tab, up, api):
    """A quick answer and a slow network: what was asked for here is told. What was there before is not."""
    tab = await new_tab(None)
    await load_after_the_start(tab.page)
    await tab.open("/")
    up.enqueue(answer("Half", finish="length"))
    await tab.say("Only once")
    status = tab.page.locator(".chat > [role=status]")
    await expect(status).to_have_text("Stopped at the token limit.")
    await tab.page.reload()
    await tab.sees_ending("truncated", "Half")

    await expect(status).to_have_text("")
