"""The page of docs/embedding.md in a real browser: EventSource resumes after a reload, a cut and a kill -9."""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.cable import Cable
from tests.requirements import requirement
from tests.support.uvicorn_app import UvicornApp
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLES = Path(__file__).parents[2] / "examples"
NUMBERS = [str(number) for number in range(1, 100_001)]


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path: Path) -> AsyncIterator[UvicornApp]:
    shutil.copy(EXAMPLES / "page.html", tmp_path)
    app = (EXAMPLES / "page_app.py").read_text()
    assert "range(1, 101)" in app
    (tmp_path / "page_app.py").write_text(app.replace("101", "100_001"))  # no machine is too slow to stop it
    async with UvicornApp(tmp_path, "page_app") as program:
        yield program


@pytest_asyncio.fixture(loop_scope="session")
async def cable(program: UvicornApp) -> AsyncIterator[Cable]:
    async with Cable(program.port) as cable:
        yield cable


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, cable: Cable, stack: AsyncExitStack) -> Page:
    context = await browser.new_context()
    stack.push_async_callback(context.close)
    page = await context.new_page()
    page.set_default_timeout(1000 * LONG)
    await page.goto(cable.url)
    await page.get_by_role("button", name="New story").click()
    await shown(page, "3")
    return page


async def numbers(page: Page) -> list[str]:
    return (await page.locator("#text").inner_text()).split()


async def shown(page: Page, number: str) -> None:
    """Wait until the page shows a number: not the number of a turn, since it goes on."""
    await page.wait_for_function(
        "number => document.getElementById('text').textContent.split(' ').includes(number)", arg=number
    )


async def settled(page: Page, outcome: str) -> list[str]:
    await expect(page.locator("#state")).to_have_text(outcome)
    return await numbers(page)


@requirement("embed.page", "sub.resume-exact")
async def test_a_story_goes_on_over_a_reload_and_is_stopped_by_its_button(page: Page) -> None:
    """The key stands in the address: a reload finds the same run, with all of its text, and no second one starts."""
    await page.reload()
    await shown(page, "8")
    before = await numbers(page)
    await page.get_by_role("button", name="Stop").click()
    text = await settled(page, "stopped")
    await page.reload()
    again = await settled(page, "stopped")

    assert NUMBERS[: len(text)] == text == again
    assert len(before) <= len(text)


@requirement("embed.page", "sub.resume-exact")
async def test_a_connection_that_was_cut_is_made_again_and_no_word_is_missing_or_twice(
    page: Page, cable: Cable
) -> None:
    """EventSource sends Last-Event-ID by itself: the frames carry the numbers."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for number in ("20", "50"):
        cable.cut()
        await expect(page.locator("#state")).to_have_text("connecting again")
        await cable.listen()
        await shown(page, number)
    await page.get_by_role("button", name="Stop").click()
    text = await settled(page, "stopped")

    assert NUMBERS[: len(text)] == text
    assert 2 <= sum(url.endswith("/events") for url in requests)


@requirement("embed.page", "crash.resume")
async def test_after_a_kill_9_the_page_has_every_word_it_showed_and_the_truth(page: Page, program: UvicornApp) -> None:
    """The page is not touched: it comes back to the new process and is told that the story was interrupted."""
    await program.kill()
    before = await numbers(page)
    await program.start()
    text = await settled(page, "interrupted")

    assert NUMBERS[: len(text)] == text
    assert len(before) <= len(text)
