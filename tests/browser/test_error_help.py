"""A response that failed leads to the page about its error, which everyone can read."""

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings, sideways
from tests.requirements import requirement
from tests.support.upstream import Delta, Finish, Headers, Role

pytestmark = [pytest.mark.asyncio(loop_scope="session"), requirement("ops.error-help")]


async def test_a_response_that_failed_leads_to_the_page_about_its_error(tab, up):
    """Whoever sees the failure asks what to do."""
    up.enqueue([Headers(), Role(), Delta("so far"), Finish("error")])
    await tab.say("Hello")

    async with tab.page.context.expect_page() as opened:
        await tab.last_answer.get_by_role("link", name="What to do").click()

    await expect((await opened.value).get_by_role("heading", level=1)).to_have_text("upstream_error")


@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("path", "scheme"),
    [("/docs/errors", "dark"), ("/docs/errors/websocket_connection_limit_reached", "light")],
)
async def test_the_pages_about_errors_are_for_everyone(new_tab, path, scheme):
    """A person in trouble may be on a phone."""
    tab = await new_tab(path, color_scheme=scheme, viewport={"width": 320, "height": 640})

    assert [] == await findings(tab)
    assert 0 == max(0, await sideways(tab))
