"""How much a model reasons: chosen beside the model, where it can be; and how long it took."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Route, expect

from tests.browser.axe import beyond, findings, sideways
from tests.browser.tab import Tab, becomes
from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Headers, Pause, ReasoningDelta, Role, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def thinker(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    models = ["gpt-oss-20b", "plain"]
    async with Server(tmp_path_factory.mktemp("effort"), [provider(up.base_url, models=models)]) as server:
        yield server


@requirement("model.efforts")
async def test_an_effort_is_chosen_reaches_the_model_and_goes_with_it(
    thinker: Server, up: Upstream, profile: Callable[..., Awaitable[BrowserContext]]
):
    """It is a parameter of the chat; a model that does not know it would refuse it, and is not sent it."""
    tab = Tab(await (await profile(thinker.url)).new_page())
    await tab.open()
    effort = tab.page.get_by_label("Reasoning effort")
    await effort.select_option("Effort: high")
    up.enqueue(answer("Deep."))
    await tab.say("Think hard")
    await tab.sees_ending("completed", "Deep.")
    assert "high" == up.requests[-1].body["reasoning_effort"]
    await tab.page.reload()
    await expect(effort).to_have_value("high")
    await effort.select_option("Effort: default")
    up.enqueue(answer("Quick."))
    await tab.say("Do not")
    await tab.sees_ending("completed", "Quick.")
    assert "reasoning_effort" not in up.requests[-1].body
    await effort.select_option("Effort: low")
    await tab.page.locator(".model-button").click()
    await tab.page.get_by_role("option", name="plain").click()
    await expect(effort).to_have_count(0)
    up.enqueue(answer("Plain."))
    await tab.say("Now you")
    await tab.sees_ending("completed", "Plain.")
    assert ("plain", False) == (up.requests[-1].body["model"], "reasoning_effort" in up.requests[-1].body)
    assert [] == tab.problems


@requirement("model.efforts")
async def test_an_effort_that_is_not_confirmed_yet_does_not_stay_with_a_model_that_does_not_know_it(
    thinker: Server, up: Upstream, profile: Callable[..., Awaitable[BrowserContext]]
):
    """The two choices are made one after the other, and the second was made of what was there before the first."""
    tab = Tab(await (await profile(thinker.url)).new_page())
    await tab.open()
    up.enqueue(answer("One."))
    await tab.say("Go")
    await tab.sees_ending("completed", "One.")
    confirm = asyncio.Event()

    async def hold(route: Route) -> None:
        if "PATCH" == route.request.method:
            await confirm.wait()
        await route.continue_()

    await tab.page.route("**/api/sessions/*", hold)
    await tab.page.get_by_label("Reasoning effort").select_option("Effort: low")
    await tab.page.locator(".model-button").click()
    await tab.page.get_by_role("option", name="plain").click()
    confirm.set()
    await expect(tab.page.locator(".model-button .name")).to_have_text("up/plain")

    await expect(tab.page.get_by_label("Reasoning effort")).to_have_count(0)
    up.enqueue(answer("Two."))
    await tab.say("And you")
    await tab.sees_ending("completed", "Two.")
    assert "reasoning_effort" not in up.requests[-1].body
    assert [] == tab.problems


@requirement("sub.thought")
async def test_a_response_says_for_how_long_the_model_has_thought(tab: Tab, up: Upstream):
    """The same for who watched and for who comes later."""
    up.enqueue([Headers(), Role(), ReasoningDelta("Hm."), Pause(0.2), Delta("So."), Finish("stop"), Done()])
    await tab.say("Think")
    await tab.sees_ending("completed", "So.")
    line = tab.last_answer.locator(".reasoning summary")
    await expect(line).to_contain_text("Thought for")
    said = await line.text_content()
    await tab.page.reload()
    await expect(line).to_have_text(said or "?")


@requirement("model.efforts")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(("locale", "scheme"), [("de-DE", "dark"), ("ar", "light")])
async def test_the_choice_fits_a_phone_in_every_language(
    thinker: Server, profile: Callable[..., Awaitable[BrowserContext]], locale: str, scheme: str
):
    """Beside a model with a name of its own, in dark and light."""
    context = await profile(thinker.url, viewport=PHONE, locale=locale, color_scheme=scheme, reduced_motion="reduce")
    tab = Tab(await context.new_page())
    await tab.open()
    await expect(tab.page.locator("select.effort")).to_be_visible()
    assert ([], [], 0) == (await findings(tab), await beyond(tab), await sideways(tab))
    name = tab.page.locator(".model-button .name")
    await becomes(True, lambda: name.evaluate("(name) => name.scrollWidth <= name.clientWidth"))  # it is not cut
