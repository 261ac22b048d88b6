"""The truth table as a person sees it: every way in which an upstream can end, sent and read in a real browser."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.acceptance.surfaces import QUESTION
from tests.acceptance.test_truth import ROWS, SCRIPTS, Row
from tests.browser.tab import COPY, Tab
from tests.requirements import requirement
from tests.support.long import EVERYTHING
from tests.support.native import Native
from tests.support.server import UP_KEY, Server, provider
from tests.support.upstream import FALLBACK_KEY, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT_ONCE = 3
"""Tabs that are open at the same time."""
LIKE_ANOTHER = pytest.mark.long("the page is told the same of another ending; the acceptance tests tell them apart")
LABELS = {"truncated": "Truncated.", "failed": "Failed.", "completed": ""}
CONFIGS = {"long": "", "idle": "idle_limit = 2.5", "deadline": "deadline = 2.5"}


def kind(row: Row) -> tuple[object, ...]:
    """What the page can tell an ending by."""
    return row.outcome, row.finish, bool(row.text), bool(row.reasoning), row.code


def label(row: Row) -> str:
    return "Stopped at the token limit." if row.finish == "length" else LABELS[row.outcome]


FIRST_OF_ITS_KIND = {kind(row): row for row, _ in reversed(ROWS)}
SHOWN = [row for row, _ in ROWS if EVERYTHING or FIRST_OF_ITS_KIND[kind(row)] is row]


@dataclass
class Seen:
    """What one tab showed in the end."""

    outcome: str | None
    text: str | None
    note: str
    ways_on: list[str]
    page: str
    problems: list[str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """The rows, some at a time, each by hand in a tab of its own."""
    folder = tmp_path_factory.mktemp("truth")
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(Upstream())
        gone = await stack.enter_async_context(Upstream())
        up.models |= SCRIPTS
        gone.refuse()
        providers = [
            provider(up.base_url, models=None),
            provider(gone.base_url, name="gone"),
            {"name": "scripted", "dialect": "scripted"},
        ]
        servers = {
            name: Server(folder / name, providers, config=f"retry_patience = 0.05\n{config}")
            for name, config in CONFIGS.items()
        }
        await asyncio.gather(*(stack.enter_async_context(server) for server in servers.values()))
        limit = asyncio.Semaphore(AT_ONCE)
        seen = await asyncio.gather(*(see(browser, servers[row.patience], row, limit) for row in SHOWN))
    return {row.model: each for row, each in zip(SHOWN, seen, strict=True)}


async def see(browser: Browser, server: Server, row: Row, limit: asyncio.Semaphore) -> Seen:
    async with limit, server.client() as client:
        session = await Native(client).new_session(model=row.model)
        page = await browser.new_page(base_url=server.url)
        try:
            tab = Tab(page)
            await tab.open(f"/s/{session}")
            await tab.say(QUESTION)
            await ended(tab, row)
            return await told(tab)
        finally:
            await page.close()


async def ended(tab: Tab, row: Row) -> None:
    """The answer's last state, or, where a completed run said nothing at all, the end of waiting for one."""
    await expect(tab.messages.first.locator(".said")).to_have_text(QUESTION)
    await expect(tab.button("Send")).to_be_visible()
    await expect(tab.live).to_have_count(0)
    if row.text or row.outcome != "completed":
        await expect(tab.last_answer).to_have_attribute("data-outcome", row.outcome)
    if row.outcome != "completed":
        await expect(tab.last_answer.get_by_role("note")).to_contain_text(label(row))
    if row.text:
        await tab.copies([QUESTION, row.text])


async def told(tab: Tab) -> Seen:
    there = await tab.answers.count() > 0
    last = tab.last_answer
    notes = await last.get_by_role("note").all_text_contents() if there else []
    return Seen(
        outcome=await last.get_attribute("data-outcome") if there else None,
        text=str((await tab.messages.evaluate_all(COPY))[-1]) if there else None,
        note=" ".join(notes),
        ways_on=[text.strip() for text in await last.locator(".ways-on button").all_text_contents()] if there else [],
        page=await tab.page.content(),
        problems=tab.problems,
    )


@requirement("ui.browser-truth")
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.model.rpartition(":")[2], marks=[] if row in SHOWN else [LIKE_ANOTHER])
        for row, _ in ROWS
    ],
)
async def test_only_what_completed_looks_like_success(shown, row):
    """The text is what was sent, a failure says why and offers a way on, and no secret is anywhere in the page."""
    seen = shown[row.model]

    assert [] == seen.problems
    assert (row.outcome if row.text or row.outcome != "completed" else seen.outcome) == seen.outcome
    assert row.text == (seen.text or "")
    assert seen.note.startswith(label(row))
    assert (seen.note == "") is (row.outcome == "completed")
    assert len(seen.note) > len("Failed. ") or row.outcome != "failed"
    assert ("Continue" in seen.ways_on) is (bool(row.text) and row.outcome != "completed")
    assert ("Retry" in seen.ways_on) is (row.outcome != "completed")
    assert UP_KEY not in seen.page
    assert FALLBACK_KEY not in seen.page
