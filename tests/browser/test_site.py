"""The site of the documents in a browser: it asks no other host, can be searched, and fits a phone."""

import pytest
import pytest_asyncio
from playwright.async_api import expect
from starlette.staticfiles import StaticFiles

from holdfast import __version__
from scripts import docs_site
from tests.browser.axe import findings, sideways
from tests.support.long import count
from tests.support.served import Served

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = [
    "index.html",
    "start.html",
    "tutorials/chat.html",
    "embedding.html",
    "settings.html",
    "reference/errors.html",
    "reference/commands.html",
    "protocol.html",
]
"""Pages of every kind: prose, long tables, code, pictures."""
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory):
    if not (docs_site.ROOT / ".git").exists():
        pytest.skip("not a git checkout: a source distribution has only some of the documents")
    folder = tmp_path_factory.mktemp("site")
    docs_site.build(folder)
    async with Served(StaticFiles(directory=folder, html=True), lifespan="off") as served:
        yield served


def at(name: str) -> str:
    return f"/{__version__}/{name}"


async def test_no_page_asks_another_host_or_hangs_over_the_edge_of_a_phone(new_tab, site):
    """A reader behind a firewall sees the whole page. A wide table or a long line of code scrolls by itself."""
    tab = await new_tab(None, url=site.url, viewport=PHONE)
    asked: list[str] = []
    beside: dict[str, int] = {}
    tab.page.on("request", lambda request: asked.append(request.url))

    seen = PAGES[:: count(3, 1)]
    for name in seen:
        await tab.page.goto(at(name), wait_until="networkidle")
        beside[name] = max(0, await sideways(tab))

    assert len(asked) > len(seen)
    assert [] == [url for url in asked if not url.startswith((f"{site.url}/", "data:", "blob:"))]
    assert dict.fromkeys(seen, 0) == beside


async def test_the_search_finds_an_error_code(new_tab, site):
    """Somebody has a code from a log, and nothing else."""
    tab = await new_tab(at("index.html"), url=site.url)

    await tab.page.get_by_role("button", name="Search").first.click()
    await tab.page.get_by_role("combobox").fill("resume_gap")

    found = tab.page.locator("a[href*='errors.html']").filter(has_text="resume_gap")
    await expect(found.first).to_be_visible()


async def test_the_reader_sees_which_version_the_site_is_about(new_tab, site):
    """Two versions differ, and a search engine finds the older one."""
    tab = await new_tab(at("index.html"), url=site.url)

    await expect(tab.page.locator(".md-version__current")).to_have_text(__version__)


async def test_the_first_page_leads_to_the_newest_version(new_tab, site):
    """The address without a version is the one that people share."""
    tab = await new_tab("/", url=site.url)

    await expect(tab.page).to_have_url(f"{site.url}{at('index.html')}")


@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("name", "scheme", "size"), [("index.html", "light", DESKTOP), ("tutorials/agent.html", "dark", PHONE)]
)
async def test_axe_finds_nothing(new_tab, site, name, scheme, size):
    """Documents are for everyone."""
    tab = await new_tab(None, url=site.url, color_scheme=scheme, viewport=size, reduced_motion="reduce")
    await tab.page.goto(at(name), wait_until="networkidle")

    assert [] == await findings(tab)
