"""A chat that survives anything, as a person sees it: stop, reload, a second tab, a dead server, a pulled cable."""

import asyncio
import time

import pytest
from playwright.async_api import expect

from tests.browser.cable import Cable
from tests.browser.frozen import FreezableTab
from tests.browser.tab import LINGER
from tests.requirements import requirement
from tests.support.long import count
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, UsageChunk, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = "delete window.SharedWorker; window.ahead = 0; const now = Date.now; Date.now = () => now() + window.ahead;"
"""A browser in which the page itself has the connection, and stops with it. Its clock can be put forward."""
COMES_BACK = {
    "visibilitychange": "document.dispatchEvent(new Event('visibilitychange'))",
    "online": "window.dispatchEvent(new Event('online'))",
}
FROZEN = count(0, 60)
"""Seconds for which a page is frozen; its clock is put forward by the rest of a minute."""
ANSWER = "document.querySelector('.message.answer .markdown')?.innerText"
OUTCOMES = "[...document.querySelectorAll('.message.answer')].map(({dataset}) => dataset.outcome)"
HALF = "The tide comes in"
REST = " and goes out again."


def gated(name: str, half: str = HALF, rest: str = REST):
    """An answer that waits in its middle until the test lets it go on."""
    return [Headers(), Role(), Delta(half), Gate(name), Delta(rest), Finish(), UsageChunk(), Done()]


@requirement("ui.browser-chat")
async def test_what_is_said_and_answered_is_on_the_page_word_for_word(tab, up, api):
    """The text on the page, the text in the store and what the model sent are one and the same."""
    words = ["Two words\tapart,  two spaces, ünïcödé 🌊, ", "a < b && c > d, ", "and 100% 'quotes' \"too\"."]
    up.enqueue(answer(*words))
    await tab.say("What is <b>bold</b> & what isn't?")
    await tab.sees_ending("completed", "".join(words))

    stored = await api.transcript(tab.session_id)

    await tab.copies([text for _, text in stored])
    await tab.transcript_is([text for _, text in stored])
    await expect(tab.page).to_have_title("What is <b>bold</b> & what isn't? · Holdfast")


@requirement("ui.browser-chat")
@pytest.mark.parametrize("way", ["button", "Esc"])
async def test_stop_keeps_what_was_said_and_says_stopped(tab, up, api, way):
    """The two ways that everyone tries first."""
    up.enqueue([Headers(), Role(), Delta(HALF), Hang()])
    await tab.say("Tell me of the tide")
    await tab.reads(HALF)
    if way == "button":
        await tab.press("Stop")
    else:
        await tab.page.keyboard.press("Escape")

    shown = await tab.sees_ending("stopped", HALF)
    await expect(shown.get_by_role("note")).to_contain_text("Stopped")
    await expect(tab.button("Continue")).to_be_visible()
    assert [("user", "Tell me of the tide"), ("partial", HALF)] == await api.transcript(tab.session_id)


@requirement("ui.browser-chat")
async def test_a_reload_in_mid_stream_goes_on_where_it_was(tab, up):
    """The page is only a reader: nothing is lost, nothing comes twice."""
    up.enqueue(gated("reload"))
    await tab.say("Tell me of the tide")
    await tab.reads(HALF)
    await tab.page.reload()
    await tab.reads(HALF)
    up.open("reload")

    await tab.sees_ending("completed", HALF + REST)
    await tab.transcript_is(["Tell me of the tide", HALF + REST])


@requirement("ui.browser-chat", "sub.two-tabs")
async def test_two_tabs_are_in_step(tab, new_tab, up):
    """What is said in one is in the other: the user's words, the half answer, the stop."""
    up.enqueue(answer("Hello."), [Headers(), Role(), Delta(HALF), Hang()])
    await tab.say("Hi")
    await tab.sees_ending("completed", "Hello.")
    second = await new_tab(f"/s/{tab.session_id}", beside=tab)
    await second.sees_ending("completed", "Hello.")

    await second.say("Tell me of the tide")
    await tab.reads(HALF)
    await second.reads(HALF)
    await tab.press("Stop")

    for each in (tab, second):
        await each.sees_ending("stopped", HALF)
        await each.transcript_is(["Hi", "Hello.", "Tell me of the tide", HALF])


@requirement("ui.browser-chat", "crash.kill9")
async def test_a_server_that_is_killed_is_said_to_be_away_and_comes_back(tab, up, server):
    """What was on the page stays on it, and is what the restarted server says, marked as interrupted or going on."""
    up.enqueue([Headers(), Role(), Delta(HALF), Hang()])
    await tab.say("Tell me of the tide")
    await tab.reads(HALF)
    await server.kill9()
    await expect(tab.away).to_contain_text("Connection lost")
    await tab.transcript_is(["Tell me of the tide", HALF])
    await server.restart()

    shown = await tab.sees_ending("interrupted", HALF)
    await expect(tab.away).to_have_count(0)
    await expect(shown.get_by_role("note")).to_contain_text("Interrupted")
    await expect(tab.button("Continue")).to_be_visible()


@requirement("ui.browser-chat")
async def test_a_pulled_cable_loses_no_word(new_tab, server, up, stack):
    """The answer goes on without its reader, who gets the rest when the network is back. What is sent then waits."""
    cable = await stack.enter_async_context(Cable(server.port))
    tab = await new_tab(url=cable.url)
    up.enqueue(gated("cable"))
    await tab.say("Tell me of the tide")
    await tab.reads(HALF)
    cable.cut()
    await expect(tab.away).to_be_visible()
    await tab.say("And of the moon?")
    await expect(tab.page.locator(".transcript .message").last).to_contain_text("Not sent yet")
    up.enqueue(answer("It pulls."))
    up.open("cable")
    await cable.listen()
    await tab.sees_ending("completed", "It pulls.")
    await expect(tab.away).to_have_count(0)

    await tab.transcript_is(["Tell me of the tide", HALF + REST, "And of the moon?", "It pulls."])


@requirement("ui.browser-chat", "ui.browser-back")
@pytest.mark.parametrize("network", ["dead", "healthy"])
async def test_a_page_that_the_browser_has_frozen_is_current_when_it_is_back(browser, server, up, api, stack, network):
    """A phone in a pocket: nothing says that the connection is lost, and nobody who is back waits for a time limit.

    No timer that lasts ends in this page: what it does comes from what the browser tells it, and from nothing else.
    """
    cable = await stack.enter_async_context(Cable(server.port))
    session_id = await api.new_session()
    up.enqueue(gated(f"frozen, {network}"))
    run = await api.start(session_id, "Tell me of the tide", "up/m")
    async with FreezableTab(browser, f"{cable.url}/s/{session_id}", LINGER + PHONE) as tab:
        await tab.becomes(HALF, ANSWER)
        if network == "dead":
            cable.fall_silent()
            await tab.measure(f"window.ahead = {1000 * (60 - FROZEN)}")
        counted = await tab.freeze()
        up.open(f"frozen, {network}")
        await api.settled(run)
        await asyncio.sleep(FROZEN)
        cable.speak_again()
        stood_still = await tab.measure("window.ticks")
        since = time.monotonic()
        await tab.thaw()
        await tab.becomes(HALF + REST, ANSWER)
        print(f"\n{network}: current after {time.monotonic() - since:.2f} s")
        await tab.becomes(["completed"], OUTCOMES)
        await tab.becomes(0, "document.querySelectorAll('.away').length")
        told = await tab.measure("window.told")

    assert (counted, ["freeze", "resume"]) == (stood_still, told)


@requirement("ui.browser-chat", "ui.browser-back")
@pytest.mark.parametrize("how", COMES_BACK)
async def test_a_page_that_stood_still_is_current_when_it_is_looked_at_or_online(new_tab, server, up, api, stack, how):
    """What another browser tells its page instead. The debugger stops this one."""
    cable = await stack.enter_async_context(Cable(server.port))
    tab = await new_tab(None, url=cable.url)
    await tab.lingers()
    await tab.page.add_init_script(PHONE)
    await tab.open("/")
    up.enqueue(gated(how))
    await tab.say("Tell me of the tide")
    await tab.reads(HALF)
    run = (await api.session(tab.session_id))["active_run"]["id"]
    opened: list[str] = []
    tab.page.on("request", lambda request: opened.append(request.url) if "/api/events?" in request.url else None)
    cable.fall_silent()
    await tab.measure("window.ahead = 60_000")
    debugger = await tab.page.context.new_cdp_session(tab.page)
    await debugger.send("Debugger.enable")
    await debugger.send("Debugger.pause")
    up.open(how)
    await api.settled(run)
    cable.speak_again()
    await debugger.send("Debugger.disable")
    await tab.measure(COMES_BACK[how])

    await tab.sees_ending("completed", HALF + REST)
    await tab.transcript_is(["Tell me of the tide", HALF + REST])
    await expect(tab.away).to_have_count(0)
    assert opened


@requirement("ui.browser-chat")
async def test_seven_tabs_share_one_connection(new_tab, server, up, stack):
    """Over HTTP/1.1 a browser opens six connections to a host. With one stream for each tab the seventh would hang."""
    cable = await stack.enter_async_context(Cable(server.port))
    tabs = [await new_tab(url=cable.url)]
    up.enqueue(answer("Hello."), gated("seven"))
    await tabs[0].say("Hi")
    await tabs[0].sees_ending("completed", "Hello.")
    while len(tabs) < 7:
        tabs.append(await new_tab(f"/s/{tabs[0].session_id}", beside=tabs[0]))
        await tabs[-1].sees_ending("completed", "Hello.")
    await tabs[6].say("Tell me of the tide")
    for tab in tabs:
        await tab.reads(HALF)
    up.open("seven")

    for tab in tabs:
        await tab.sees_ending("completed", HALF + REST)


@requirement("ui.browser-chat")
async def test_an_answer_that_is_faster_than_the_page_is_there_once_and_is_told(tab, api, up):
    """On a slow line the session is loaded after its first answer has ended: nothing of it is news then."""

    started = asyncio.Event()
    tab.page.on("response", lambda response: started.set() if response.url.endswith("/runs") else None)

    async def late(route):
        await started.wait()
        runs = await api.get(f"/api/runs?session_id={route.request.url.rpartition('/')[2]}")
        await api.settled(runs["runs"][0]["id"])
        await route.continue_()

    await tab.page.route("**/api/sessions/ses_*", late)
    up.enqueue(answer("Quick.", finish="length"))
    await tab.say("Go")
    await tab.sees_ending("truncated", "Quick.")

    await expect(tab.page.locator(".message.user")).to_have_count(1)
    await expect(tab.page.locator(".is-sending")).to_have_count(0)
    await expect(tab.page.locator(".chat > [role=status]")).to_have_text("Stopped at the token limit.")


STEADY = """() => {
    window.seen = {twice: [], shrank: [], lengths: {}};
    new MutationObserver(() => {
        const all = [...document.querySelectorAll(".transcript [data-message]")];
        const ids = all.map((e) => e.dataset.message);
        if (new Set(ids).size < ids.length) window.seen.twice.push(ids);
        for (const one of all) {
            const {message} = one.dataset;
            const text = one.querySelector(".said, .markdown")?.textContent ?? "";
            if (text.length < (window.seen.lengths[message] ?? 0)) window.seen.shrank.push(text);
            window.seen.lengths[message] = text.length;
        }
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


@requirement("ui.browser-chat")
async def test_nothing_flickers(tab, api, up):
    """No message is drawn twice, not even for a moment, and no word that was shown is taken back."""
    session = await api.new_session(model="up/m")
    await tab.open(f"/s/{session}")
    await tab.measure(STEADY)
    for n in range(8):
        up.enqueue(answer(*[f"word{word} " for word in range(20)]))
        await api.settled(await api.start(session, f"Question {n}", "up/m"))
    await expect(tab.messages).to_have_count(16)
    await expect(tab.live).to_have_count(0)
    seen = await tab.measure("window.seen")

    assert ([], []) == (seen["twice"], seen["shrank"])
    assert 16 == len(seen["lengths"])
