"""The settings as a person changes them."""

import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import Status, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "sk-typed-by-hand-93c1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(up, tmp_path_factory):
    """A server of its own: what is set here counts for all of it."""
    async with Server(tmp_path_factory.mktemp("settings"), [provider(up.base_url)]) as server:
        yield server


@requirement("ui.browser-settings", "set.secrets")
async def test_a_key_is_written_kept_and_never_shown_again(new_tab, up, api):
    """A provider is added, changed without its key, and the key goes to the upstream and nowhere else."""
    tab = await new_tab("/settings")
    await tab.press("Add a provider")
    await tab.page.get_by_label("Name", exact=True).fill("mine")
    await tab.page.get_by_label("Base URL").fill(up.base_url.removeprefix("http://"))  # as people copy addresses
    await tab.page.get_by_label("API key", exact=True).fill(KEY)
    await tab.press("Test connection")
    await expect(tab.page.get_by_role("dialog").get_by_role("status")).to_contain_text("Connected: ")
    await tab.press("Save")
    card = tab.page.locator("[data-provider=mine]")
    await expect(card).to_contain_text("API key set")
    await tab.press("Edit mine")
    await expect(tab.page.get_by_label("API key", exact=True)).to_have_value("")
    await tab.page.get_by_text("More options").click()
    await tab.page.get_by_label("Max concurrent requests").fill("3")
    await tab.press("Save")
    await expect(card).to_contain_text("max 3 concurrent requests")
    session = await api.new_session()
    await api.settled(await api.start(session, "Go", "mine/m"))

    assert f"Bearer {KEY}" == up.requests[-1].headers["authorization"]
    await tab.page.reload()
    await expect(card).to_contain_text("API key set")
    assert KEY not in await tab.page.content()


@requirement("ui.browser-settings", "set.test")
async def test_what_is_wrong_with_a_provider_is_told_where_it_is_looked_for(new_tab, up):
    """A refused key is no wrong address: the dialog, the list and the model picker give the provider's own sentence."""
    refusal = "beta refuses the key (401): Your organization was closed. Check the API key."
    up.models_script = [Status(401, {"error": {"message": "Your organization was closed."}})]
    tab = await new_tab("/settings")
    await tab.press("Add a provider")
    dialog = tab.page.get_by_role("dialog")
    await tab.page.get_by_label("Name", exact=True).fill("beta")
    await tab.page.get_by_label("Base URL").fill("http://127.0.0.1:9/v1")
    await tab.press("Test connection")
    await expect(dialog.get_by_role("alert")).to_contain_text("connection refused. Check the address and its port.")
    await tab.page.get_by_label("Base URL").fill(up.base_url)
    await tab.press("Test connection")
    await expect(dialog.get_by_role("alert")).to_have_text(refusal)
    await tab.press("Save")
    card = tab.page.locator("[data-provider=beta]")
    await expect(card.locator(".problem")).to_have_text(refusal)
    await expect(card).to_contain_text("Not working")
    await tab.page.get_by_role("heading", name="Default model").locator("..").get_by_role("button").first.click()

    await expect(tab.page.get_by_role("dialog").get_by_text(refusal)).to_be_visible()
    up.models_script = None
    await tab.page.keyboard.press("Escape")
    await tab.press("Test connection to beta")
    await expect(tab.page.get_by_text("Connected: ")).to_be_visible()
    await removed(tab, "beta")


async def removed(tab, name):
    await tab.press(f"Remove {name}")
    await tab.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(tab.page.locator(f"[data-provider={name}]")).to_have_count(0)


@requirement("ui.browser-settings")
async def test_a_provider_is_removed_after_a_question(new_tab, up):
    """Its key is gone with it, and perhaps written down nowhere else."""
    tab = await new_tab("/settings")
    await tab.press("Add a provider")
    await tab.page.get_by_label("Name", exact=True).fill("gamma")
    await tab.page.get_by_label("Base URL").fill(up.base_url)
    await tab.page.get_by_label("API key", exact=True).fill(KEY)
    await tab.press("Save")
    card = tab.page.locator("[data-provider=gamma]")
    await expect(card).to_contain_text("API key set")
    await tab.press("Remove gamma")
    await expect(tab.page.get_by_role("dialog", name="Remove gamma")).to_contain_text("API key is deleted")
    await tab.press("Cancel")
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await tab.page.reload()
    await expect(card).to_contain_text("API key set")

    await removed(tab, "gamma")


@requirement("ui.browser-settings")
async def test_a_provider_without_models_is_marked_and_an_empty_picker_says_where_to_look(new_tab, tmp_path):
    """It can be reached, so nothing else is wrong with it: an Ollama without a pulled model is such a one."""
    async with Upstream() as empty:
        empty.listed = []
        of_it = [provider(empty.base_url, models=None)]
        async with Server(tmp_path, of_it, config="default_providers = false") as server:
            tab = await new_tab("/settings", url=server.url)
            await expect(tab.page.locator("[data-provider=up] .badge.warning")).to_have_text("No models")
            await tab.open("/")
            await tab.page.locator(".model-button").click()
            dialog = tab.page.get_by_role("dialog")
            await expect(dialog).to_contain_text("No provider lists a model. Check Settings, Providers.")
            await tab.page.get_by_role("combobox").fill("llama")
            await expect(dialog).to_contain_text("No matching models")


@requirement("ui.browser-settings", "set.change")
async def test_the_options_of_a_dialect_are_typed_checked_and_kept(new_tab, api):
    """Ollama's own settings need no file. What is no JSON, or no option of the dialect, is refused at once."""
    tab = await new_tab("/settings")
    await tab.press("Add a provider")
    dialog, options = tab.page.get_by_role("dialog"), tab.page.get_by_label("Provider options (JSON)")
    await tab.page.get_by_label("Type").select_option("Ollama /api")
    await expect(tab.page.get_by_label("Name", exact=True)).to_have_value("ollama-api")
    await expect(tab.page.get_by_label("Base URL")).to_have_attribute("placeholder", "Leave blank for the default")
    await tab.page.get_by_label("Name", exact=True).fill("own")
    await tab.page.get_by_label("Type").select_option("OpenAI-compatible")
    await expect(tab.page.get_by_label("Name", exact=True)).to_have_value("own")
    await expect(tab.page.get_by_label("Base URL")).to_have_attribute("placeholder", "https://example.org/v1")
    await tab.page.get_by_label("Type").select_option("Ollama /api")
    await expect(options).to_be_hidden()
    await tab.page.get_by_text("More options").click()
    await tab.page.get_by_label("Base URL").fill("http://127.0.0.1:9")
    await options.fill("{keep_alive")
    await tab.press("Save")
    await expect(dialog.get_by_role("alert")).to_have_text(
        'Provider options (JSON) must be a JSON object, such as {"top_k": 40}.'
    )
    await options.fill('{"keepalive": "5m"}')
    await tab.press("Save")
    await expect(dialog.get_by_role("alert")).to_contain_text("there is no option 'keepalive'")
    await options.fill('{"keep_alive": "5m", "think": true}')
    await tab.press("Save")
    await expect(dialog).to_have_count(0)
    await tab.press("Edit own")
    await tab.press("Save")
    await expect(dialog).to_have_count(0)
    (kept,) = [each for each in (await api.get("/api/settings"))["providers"] if each["name"] == "own"]

    assert {"keep_alive": "5m", "think": True} == kept["options"]


@requirement("ui.browser-settings", "set.pinned")
async def test_what_the_file_sets_is_shown_with_its_place_and_cannot_be_changed(new_tab):
    """Nobody wonders why a change does nothing: there is none to make."""
    tab = await new_tab("/settings")
    card = tab.page.locator("[data-provider=up]")

    await expect(card).to_contain_text("settings file")
    await expect(card.get_by_role("button")).to_have_count(0)


@requirement("ui.browser-settings")
async def test_the_default_model_and_the_theme_are_chosen(new_tab, api):
    """The one counts for the server, the other for this browser; both are still there after a reload."""
    tab = await new_tab("/settings")
    section = tab.page.get_by_role("heading", name="Default model").locator("..")
    await section.get_by_role("button", name="Change").click()
    await tab.page.get_by_role("dialog").get_by_role("combobox").fill("up/m")
    await tab.page.get_by_role("dialog").get_by_role("combobox").press("Enter")
    await expect(tab.button("Reset")).to_be_visible()
    await tab.page.get_by_label("Dark").check()
    await tab.page.get_by_label("Compact").check()
    await tab.page.reload()

    assert "up/m" == (await api.get("/api/settings"))["default_model"]
    await expect(tab.page.get_by_label("Compact")).to_be_checked()
    await tab.finds(
        ["dark", "dense"], "[document.documentElement.dataset.theme, document.documentElement.dataset.density]"
    )


@requirement("ui.browser-settings", "hist.titles")
async def test_a_model_that_titles_chats_is_chosen_and_turned_off(new_tab, up, api):
    """The title of an open chat changes by itself, in the list and above the chat."""
    tab = await new_tab("/settings", viewport={"width": 390, "height": 800})
    section = tab.page.get_by_role("heading", name="Chat titles").locator("..")
    await expect(section).to_contain_text("The beginning of the first message")
    await section.get_by_role("button", name="Change").click()
    await tab.page.get_by_role("dialog", name="Chat titles").get_by_role("combobox").fill("up/m")
    await tab.page.get_by_role("dialog", name="Chat titles").get_by_role("combobox").press("Enter")
    await expect(section.locator("strong")).to_have_text("up/m")
    up.enqueue(answer("Because."), answer("Of the hold of barnacles"))
    session = await api.new_session()
    chat = await new_tab(f"/s/{session}")
    await api.settled(await api.start(session, "Why do they hold fast?", "up/m"))
    await expect(chat.page).to_have_title(re.compile("Of the hold of barnacles"))
    await section.get_by_role("button", name="Turn off").click()

    await expect(section).to_contain_text("The beginning of the first message")
    assert (await api.get("/api/settings"))["title_model"] is None


@requirement("ui.browser-settings")
async def test_a_fallback_is_chosen_in_two_steps_and_removed(new_tab, api):
    """The second list stays open, though it takes the place of the first."""
    tab = await new_tab("/settings")
    await tab.press("Add fallback")
    first = tab.page.get_by_role("dialog", name="Fallback for which model?")
    await first.get_by_role("combobox").fill("up/hostile")
    await first.get_by_role("combobox").press("Enter")
    second = tab.page.get_by_role("dialog", name="Fallback for up/hostile")
    await second.get_by_role("combobox").fill("up/other")
    await second.get_by_role("combobox").press("Enter")
    remove = tab.button("Remove fallback for up/hostile")
    await expect(remove).to_be_visible()
    await expect(tab.button("Add fallback")).to_be_focused()
    assert {"up/hostile": "up/other"} == (await api.get("/api/settings"))["fallbacks"]
    await remove.click()

    await expect(remove).to_have_count(0)
    assert {} == (await api.get("/api/settings"))["fallbacks"]
