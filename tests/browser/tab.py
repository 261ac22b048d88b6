"""One tab of a browser, in the words of the person who sits in front of it."""

from typing import Any, Literal

from playwright.async_api import Locator, Page, expect

from tests.support.waiting import LONG

expect.set_options(timeout=1000 * LONG)

Button = Literal["Send", "Stop", "Interrupt", "Queue", "Continue", "Retry", "Regenerate", "Fork chat from here"]

COPY = """(messages) => {
    let copied;
    navigator.clipboard.writeText = async (text) => { copied = text };
    return messages.map((message) => {
        copied = "";
        message.querySelector(':scope > footer button[title^="Copy"]')?.click();
        return copied;
    });
}"""


class Tab:
    """Waits by itself for whatever it asks for. `problems` gathers what no tab may ever say."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
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
        await self.page.goto(path)

    async def say(self, text: str, key: str = "Enter") -> None:
        await self.box.fill(text)
        await self.box.press(key)

    async def press(self, name: Button | str) -> None:
        await self.button(name).last.click()

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

    async def transcript(self) -> list[str]:
        """The words of every message, as they are drawn."""
        script = "all => all.map(e => e.querySelector('.said, .markdown')?.textContent ?? '')"
        return [str(text) for text in await self.messages.evaluate_all(script)]

    async def copied(self) -> list[str]:
        """What the button below each message copies: its text as it was written, Markdown and all."""
        return [str(text) for text in await self.messages.evaluate_all(COPY)]

    async def measure(self, script: str, *arguments: Any) -> Any:
        return await self.page.evaluate(script, *arguments)

    def _hear(self, message: Any) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.problems.append(message.text)
