"""One Chromium, one server and one U for all tests of the page. Each test has a profile of its own."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright

from tests.browser.axe import AXE
from tests.browser.cable import Elsewhere
from tests.browser.tab import Tab
from tests.support.native import Native
from tests.support.programs import CHROMIUM
from tests.support.server import Server, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

NewTab = Callable[..., Awaitable[Tab]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def elsewhere() -> AsyncIterator[Elsewhere]:
    async with Elsewhere() as elsewhere:
        yield elsewhere


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(elsewhere: Elsewhere) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        path = CHROMIUM.find_or_skip(Path(playwright.chromium.executable_path))
        # Names for examples lead to a watched place, others nowhere: what Chromium asks for by itself does not count.
        rules = f"MAP *.example 127.0.0.1:{elsewhere.port}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
        browser = await playwright.chromium.launch(
            executable_path=path, args=[f"--host-resolver-rules={rules}", "--disable-dev-shm-usage"]
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def up() -> AsyncIterator[Upstream]:
    async with Upstream() as up:
        yield up


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def every_script_is_asked_for(up: Upstream) -> AsyncIterator[None]:
    """One that is left over would be the answer to another test's question. A run asks when it gets to it."""
    yield
    await up.until(lambda: not up.waiting, LONG)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    models = ["m", "other", "hostile", "paced", "end:cut"]
    async with Server(tmp_path_factory.mktemp("browser"), [provider(up.base_url, models=models)]) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def api(server: Server) -> AsyncIterator[Native]:
    async with server.client() as client:
        yield Native(client)


@pytest_asyncio.fixture(loop_scope="session")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="session")
async def profile(browser: Browser, server: Server, stack: AsyncExitStack) -> Callable[..., Awaitable[BrowserContext]]:
    """`await profile()` is a browser that has never been here; tabs of one profile share their connection.

    It has no service worker, unless `service_workers="allow"` is given: one takes a page over at any time after it was
    loaded, and Chromium does not tell of the requests of a page that begins to be routed at that moment.
    """

    async def make(url: str = "", **options: Any) -> BrowserContext:
        usual: dict[str, Any] = {"locale": "en-US", "service_workers": "block"}
        context = await browser.new_context(base_url=url or server.url, **(usual | options))
        stack.push_async_callback(context.close)
        return context

    return make


@pytest_asyncio.fixture(loop_scope="session")
async def new_tab(profile: Callable[..., Awaitable[BrowserContext]]) -> AsyncIterator[NewTab]:
    """`await new_tab()`; `await new_tab(beside=tab)` in the same profile. At the end none may have had an error."""
    tabs: list[Tab] = []

    async def make(path: str | None = "/", *, beside: Tab | None = None, **options: Any) -> Tab:
        context = beside.page.context if beside else await profile(**options)
        tab = Tab(await context.new_page())
        tabs.append(tab)
        if path is not None:
            await tab.open(path)
        return tab

    yield make
    assert [] == [problem for tab in tabs for problem in tab.problems]


@pytest_asyncio.fixture(loop_scope="session")
async def tab(new_tab: NewTab) -> Tab:
    return await new_tab()


@pytest.fixture(scope="session")
def needs_axe() -> None:
    if not AXE.exists():
        pytest.skip("axe-core is installed by `make setup-dev`")
