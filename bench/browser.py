"""`python -m bench.browser`: how smoothly the page draws a long answer and a long session.

The browser itself measures: frames with requestAnimationFrame, tasks over 50 ms with a PerformanceObserver.
Nothing here fails; the suite in tests/browser has the bounds.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from playwright.async_api import async_playwright, expect

from tests.browser.tab import Tab
from tests.support.native import Native
from tests.support.programs import CHROMIUM
from tests.support.server import Server, provider
from tests.support.upstream import Done, Exchange, Finish, Headers, Role, Step, Upstream, UsageChunk

MEASURE = """() => {
    window.measured = {frames: [], tasks: []};
    let before = performance.now();
    const tick = (now) => { window.measured.frames.push(now - before); before = now; requestAnimationFrame(tick) };
    requestAnimationFrame(tick);
    new PerformanceObserver((list) => window.measured.tasks.push(...list.getEntries().map((task) => task.duration)))
        .observe({type: "longtask", buffered: true});
}"""
# From the end to the first message, one view with each frame: faster than one can read.
SCROLL = """async () => {
    const box = document.querySelector(".transcript");
    let most = 0;
    while (box.scrollTop > 0) {
        box.scrollBy(0, -box.clientHeight);
        await new Promise((done) => requestAnimationFrame(done));
        most = Math.max(most, box.querySelectorAll(".message").length);
    }
    return most;
}"""
PARAGRAPH = (
    "The tide comes in and goes out, **twice a day**, and nobody has to do anything for it. What the moon pulls on the "
    "near side it leaves behind on the far one; `two bulges`, and the earth turns beneath them.\n\n"
)
CODE = "```python\ndef tide(hour):\n    return 2.1 * math.cos(hour / 6.2 * math.pi)  # metres\n```\n\n"
TABLE = "| moon | tide |\n| --- | ---: |\n| full | 4.2 m |\n| half | 2.9 m |\n\n- one thing\n- another\n\n"


@dataclass
class Figures:
    """Milliseconds."""

    frames: int
    frame_median: float
    frame_p95: float
    frame_longest: float
    long_tasks: int
    task_median: float
    longest_task: float
    blocked: float

    @classmethod
    def of(cls, measured: dict[str, list[float]]) -> Self:
        frames, tasks = sorted(measured["frames"][1:]) or [0.0], measured["tasks"]
        return cls(
            frames=len(frames),
            frame_median=round(statistics.median(frames), 1),
            frame_p95=round(frames[int(len(frames) * 0.95)], 1),
            frame_longest=round(frames[-1], 1),
            long_tasks=len(tasks),
            task_median=round(statistics.median(tasks), 1) if tasks else 0.0,
            longest_task=round(max(tasks, default=0.0), 1),
            blocked=round(sum(task - 50 for task in tasks), 1),
        )


@dataclass(frozen=True)
class Prose(Step):
    """Tokens at a pace. Those that are late come together, as they do from a model."""

    tokens: tuple[str, ...]
    per_second: float

    async def play(self, out: Exchange) -> None:
        began, sent = time.monotonic(), 0
        while sent < len(self.tokens):
            due = min(len(self.tokens), int((time.monotonic() - began) * self.per_second) + 1)
            for token in self.tokens[sent:due]:
                await out.text(token)
            sent = due
            await asyncio.sleep(1 / self.per_second)


def prose(n: int) -> list[str]:
    """n tokens of four characters: paragraphs, with code and tables between them."""
    text = ""
    while len(text) < 4 * n:
        text += PARAGRAPH * 3 + CODE + TABLE
    return [text[start : start + 4] for start in range(0, 4 * n, 4)]


async def long_answer(tab: Tab, up: Upstream, tokens: int, per_second: float) -> Figures:
    said = prose(tokens)
    up.enqueue([Headers(), Role(), Prose(tuple(said), per_second), Finish(), UsageChunk(), Done()])
    await tab.open("/")
    await tab.measure(MEASURE)
    await tab.say("Write at length")
    await tab.page.wait_for_selector(".answer[data-outcome=completed]", timeout=300_000)
    return Figures.of(await tab.measure("window.measured"))


async def imported(api: Native, messages: int) -> str:
    """A session of so many messages, half of them answers with a paragraph and code."""
    told = [
        {"role": "assistant", "content": PARAGRAPH + CODE, "outcome": "completed"}
        if n % 2
        else {"role": "user", "content": f"Question {n // 2}"}
        for n in range(messages)
    ]
    made = await api.client.post("/api/sessions/import", {"title": "Long", "model": "up/m", "messages": told})
    return str((await made.json())["id"])


async def long_session(tab: Tab, api: Native, messages: int) -> dict[str, Any]:
    """Open it, and scroll from its end to its very first message."""
    session = await imported(api, messages)
    await tab.page.add_init_script(f"({MEASURE})()")
    began = time.monotonic()
    await tab.open(f"/s/{session}")
    await tab.page.wait_for_selector(".message.answer")
    opened = time.monotonic() - began
    opening = Figures.of(await tab.measure("window.measured"))
    await tab.measure("window.measured.frames.length = window.measured.tasks.length = 0")
    began = time.monotonic()
    most = await tab.measure(SCROLL)
    scrolled = time.monotonic() - began
    scrolling = Figures.of(await tab.measure("window.measured"))
    await expect(tab.messages.first).to_contain_text("Question 0")
    return {
        "most_drawn": most,
        "opened_ms": round(opened * 1000),
        "opening": asdict(opening),
        "scrolled_ms": round(scrolled * 1000),
        "scrolling": asdict(scrolling),
    }


async def measured(tokens: int, per_second: float, messages: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        async with Upstream() as up, Server(Path(folder), [provider(up.base_url)]) as server, server.client() as client:
            async with async_playwright() as playwright:
                path = CHROMIUM.find(Path(playwright.chromium.executable_path))
                browser = await playwright.chromium.launch(executable_path=path)
                answered = Tab(await browser.new_page(base_url=server.url))
                figures = await long_answer(answered, up, tokens, per_second)
                await answered.page.close()
                session = await long_session(Tab(await browser.new_page(base_url=server.url)), Native(client), messages)
                version = browser.version
                await browser.close()
    return {
        "chromium": version,
        "load_average": os.getloadavg()[0],
        "answer": {"tokens": tokens, "per_second": per_second, **asdict(figures)},
        "session": {"messages": messages, **session},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.browser", description=__doc__)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--per-second", type=float, default=500)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    asked = parser.parse_args()
    figures = json.dumps(asyncio.run(measured(asked.tokens, asked.per_second, asked.messages)), indent=2)
    print(figures)
    if asked.json:
        asked.json.write_text(figures + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
