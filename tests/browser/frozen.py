"""A tab that the browser freezes by its own lifecycle command.

It freezes only what may be hidden, and Playwright lets the browser take each of its tabs for one that is looked at. So
this one is driven by the browser's protocol, in a profile that Playwright does not know.
"""

import asyncio
import json
from types import TracebackType
from typing import Any, Self

from playwright.async_api import Browser, CDPSession

from tests.support.waiting import LONG

TELLS = """
window.ticks = 0;
window.told = [];
setInterval(() => window.ticks++, 20);
for (const event of ["freeze", "resume"]) document.addEventListener(event, () => window.told.push(event));
"""
"""Counts while timers run, and notes what the browser tells its page."""


class FreezableTab:
    """`async with FreezableTab(browser, url, script) as tab:`; the script runs before those of the page."""

    def __init__(self, browser: Browser, url: str, script: str) -> None:
        self._browser, self._url, self._script = browser, url, script
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._protocol: CDPSession
        self._target = self._session = ""

    async def __aenter__(self) -> Self:
        self._protocol = await self._browser.new_browser_cdp_session()
        self._protocol.on("Target.receivedMessageFromTarget", self._hear)
        created = await self._protocol.send("Target.createTarget", {"url": "about:blank"})
        self._target = created["targetId"]
        attached = await self._protocol.send("Target.attachToTarget", {"targetId": self._target, "flatten": False})
        self._session = attached["sessionId"]
        await self._send("Page.enable")
        await self._send("Page.addScriptToEvaluateOnNewDocument", source=TELLS + self._script)
        await self._send("Page.navigate", url=self._url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._protocol.send("Target.closeTarget", {"targetId": self._target})
        await self._protocol.detach()

    async def freeze(self) -> int:
        """Let the page stand still. Returns how far it had counted."""
        await self._send("Page.setWebLifecycleState", state="frozen")
        await self.becomes(["freeze"], "window.told")
        return int(await self.measure("window.ticks"))

    async def thaw(self) -> None:
        await self._send("Page.setWebLifecycleState", state="active")

    async def measure(self, expression: str) -> Any:
        answer = await self._send("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    async def becomes(self, expected: Any, expression: str) -> None:
        """Wait until an expression has a value."""
        value = None
        try:
            async with asyncio.timeout(LONG):
                while (value := await self.measure(expression)) != expected:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{expression} is {value!r}") from None

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        id = len(self._answers) + 1
        self._answers[id] = asyncio.get_running_loop().create_future()
        message = json.dumps({"id": id, "method": method, "params": params})
        await self._protocol.send("Target.sendMessageToTarget", {"sessionId": self._session, "message": message})
        answer = await asyncio.wait_for(self._answers[id], LONG)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _hear(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        if event["sessionId"] == self._session and "id" in message:
            self._answers[message["id"]].set_result(message)
