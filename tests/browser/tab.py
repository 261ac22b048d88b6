"""One tab of a browser, in the words of the person who sits in front of it."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from playwright.async_api import CDPSession, Locator, Page, expect

from tests.support.waiting import LONG

expect.set_options(timeout=1000 * LONG)

Button = Literal["Send", "Stop", "Interrupt", "Queue", "Continue", "Retry", "Regenerate", "Fork chat from here"]

THROTTLE = float(os.environ.get("HOLDFAST_TEST_THROTTLE", "1"))
"""How many times slower than this machine the processor of a page is."""

WORDS = "all => all.map(e => e.querySelector('.said, .markdown')?.textContent ?? '')"
COPY = """(messages) => {
    let copied;
    navigator.clipboard.writeText = async (text) => { copied = text };
    return messages.map((message) => {
        copied = "";
        message.querySelector(':scope > footer button[title^="Copy"]')?.click();
        return copied;
    });
}"""
LINGER = """
const real = window.setTimeout;
window.lingering = [];
window.setTimeout = (then, after, ...rest) => {
    if (after < 1500) return real(then, after, ...rest);
    window.lingering.push(then);
    return real(then, 1000 * after, ...rest);
};
"""


class Tab:
    """Waits by itself for whatever it asks for. `problems` gathers what no tab may ever say."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self._throttle: CDPSession | None = None
        page.set_default_timeout(1000 * LONG)
        page.on("pageerror", lambda error: self.problems.append(f"{error}"))
        page.on("console", self._hear)

    # -- what one sees

    @property
    def box(self) -> Locator:
        return self.page.locator("#composer")

    @property
    def messages(self) -> Locator:
        return self.page.locator(".transcript .message:not(.is-sending, .is-edited)")

    @property
    def answers(self) -> Locator:
        return self.page.locator(".message.answer")

    @property
    def last_answer(self) -> Locator:
        return self.answers.last

    @property
    def live(self) -> Locator:
        return self.page.locator(".message.answer.is-live")

    @property
    def queued(self) -> Locator:
        return self.page.locator(".queue li")

    @property
    def away(self) -> Locator:
        return self.page.locator(".away")

    @property
    def session_id(self) -> str:
        return self.page.url.rpartition("/s/")[2]

    def button(self, name: Button | str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    # -- what one does

    async def open(self, path: str = "/") -> None:
        """Go to a page and wait until it is drawn: no key is heard before."""
        if THROTTLE > 1 and not self._throttle:
            self._throttle = await self.page.context.new_cdp_session(self.page)
            await self._throttle.send("Emulation.setCPUThrottlingRate", {"rate": THROTTLE})
        await self.page.goto(path)
        await self.page.locator("#app > *, body:not(:has(#app))").first.wait_for(state="attached")

    async def say(self, text: str, key: str = "Enter") -> None:
        await self.box.fill(text)
        await self.box.press(key)

    async def press(self, name: Button | str) -> None:
        await self.button(name).last.click()

    async def lingers(self) -> None:
        """From the next page on let stay what goes by itself, a toast or a way back: no machine is too slow for it."""
        await self.page.add_init_script(LINGER)

    async def lets_go(self) -> None:
        """Let the time pass for all that `lingers`, also for what was called off."""
        await self.measure("window.lingering.splice(0).forEach((then) => then())")

    # -- what one waits for

    async def reads(self, text: str) -> None:
        """The answer that is being written, as far as it has come, is exactly this."""
        await expect(self.live.locator(".markdown")).to_have_text(text, use_inner_text=True)

    async def sees_ending(self, outcome: str, text: str | None = None) -> Locator:
        """The last answer has ended so, with exactly this text, if it is plain text."""
        await expect(self.live).to_have_count(0)
        await expect(self.last_answer).to_have_attribute("data-outcome", outcome)
        if text is not None:
            await expect(self.last_answer.locator(".markdown")).to_have_text(text, use_inner_text=True)
        return self.last_answer

    async def transcript_is(self, texts: list[str]) -> None:
        """The words of every message, as they are drawn, become these."""
        await becomes(texts, lambda: self.messages.evaluate_all(WORDS))

    async def copies(self, texts: list[str]) -> None:
        """The button below each message comes to copy its text as it was written, Markdown and all."""
        await becomes(texts, lambda: self.messages.evaluate_all(COPY))

    async def finds(self, expected: object, script: str, *arguments: Any) -> None:
        """What a script returns in the page becomes this."""
        await becomes(expected, lambda: self.measure(script, *arguments))

    async def measure(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page. What it returns is a measurement, or a value for later: `finds` waits for one."""
        return await self.page.evaluate(script, *arguments)

    def _hear(self, message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.problems.append(message.text)


async def becomes(expected: object, read: Callable[[], Awaitable[object]]) -> None:
    """What is read becomes this, however long a page or a process is still at work."""
    until = time.monotonic() + LONG
    while True:
        seen = await read()
        if seen == expected or time.monotonic() > until:
            break
        await asyncio.sleep(0.02)
    assert expected == seen, f"this is there: {seen!r}"
