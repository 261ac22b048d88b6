"""Presets and prompts in the page: chosen where the model is, typed after a slash, kept on a page of their own."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Route, expect

from tests.browser.axe import beyond, findings, sideways
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}
WRITER = {"name": "Writer", "model": "up/other", "system": "Write plainly.", "params": {"temperature": 0.2}}


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def nothing_is_left(api: Native) -> AsyncIterator[None]:
    """Other tests begin their chats without a preset."""
    yield
    for kind in ("presets", "prompts"):
        for each in (await api.get(f"/api/{kind}"))[kind]:
            assert 204 == (await api.client.request("DELETE", f"/api/{kind}/{each['id']}")).status


async def add(api: Native, body: dict[str, object], kind: str = "presets") -> str:
    response = await api.client.post(f"/api/{kind}", body)
    assert 201 == response.status, await response.text()
    return str((await response.json())["id"])


async def default(api: Native, id: str) -> None:
    assert 200 == (await api.client.request("PUT", "/api/presets/default", json={"preset": id})).status


def name_of_model(tab: Tab) -> Locator:
    return tab.page.locator(".model-button .name")


@requirement("ui.presets")
async def test_a_preset_is_chosen_where_the_model_is_and_used_by_the_chat(tab, up, api):
    """By the keyboard: its model, words and numbers go to the upstream; without a preset nothing of it shows."""
    picker = tab.page.get_by_role("dialog", name="Model")
    await tab.page.locator(".model-button").click()
    await expect(picker.get_by_role("option").first).to_be_visible()
    await expect(picker.get_by_text("Presets")).to_have_count(0)
    await tab.page.keyboard.press("Escape")
    await add(api, WRITER)
    await tab.page.locator(".model-button").press("Enter")
    await expect(picker.get_by_role("group", name="Presets").get_by_role("option")).to_have_count(1)
    await tab.page.keyboard.type("wri")
    await tab.page.keyboard.press("Enter")
    await expect(name_of_model(tab)).to_have_text("Writer · up/other")
    up.enqueue(answer("Plain."))
    await tab.say("Hello")
    await tab.sees_ending("completed", "Plain.")
    sent = up.requests[-1].body
    assert ("Write plainly.", 0.2, "other") == (sent["messages"][0]["content"], sent["temperature"], sent["model"])
    await tab.page.reload()
    await expect(name_of_model(tab)).to_have_text("Writer · up/other")

    await tab.page.locator(".model-button").click()
    await picker.get_by_role("option", name="No preset").click()
    await expect(name_of_model(tab)).to_have_text("up/other")
    up.enqueue(answer("Free."))
    await tab.say("Again")
    await tab.sees_ending("completed", "Free.")
    assert "temperature" not in up.requests[-1].body


@requirement("ui.presets")
async def test_new_chats_begin_with_the_default_preset_even_if_it_comes_late(new_tab, up, api):
    """What is sent before the page knows of the preset waits for it, so that no chat begins without it."""
    await default(api, await add(api, WRITER))
    tab = await new_tab(None)
    may_come = asyncio.Event()

    async def later(route: Route) -> None:
        await may_come.wait()
        await route.continue_()

    await tab.page.route("**/api/presets", later)
    await tab.open("/")
    up.enqueue(answer("Plain."))
    await tab.say("Hello")
    await expect(tab.page.locator(".model-button")).to_be_visible()
    may_come.set()
    await tab.sees_ending("completed", "Plain.")
    assert "Write plainly." == up.requests[-1].body["messages"][0]["content"]
    await tab.press("New chat")
    await expect(name_of_model(tab)).to_have_text("Writer · up/other")
    await tab.open("/temporary")
    up.enqueue(answer("Unseen."))
    await tab.say("Hello")
    await tab.sees_ending("completed", "Unseen.")
    assert "Write plainly." == up.requests[-1].body["messages"][0]["content"]


@requirement("ui.presets")
async def test_the_settings_of_a_chat_become_a_preset(tab, up, api):
    """What was typed is what is kept, and the chat goes on with it under its name."""
    await expect(name_of_model(tab)).to_have_text("up/m")
    await tab.press("Chat settings")
    dialog = tab.page.get_by_role("dialog", name="Chat settings")
    await dialog.get_by_label("System prompt").fill("Answer in verse.")
    await dialog.get_by_label("Temperature").fill("0.9")
    await dialog.get_by_role("button", name="New preset…").click()
    form = tab.page.get_by_role("dialog", name="New preset")
    await expect(form.get_by_label("System prompt")).to_have_value("Answer in verse.")
    await form.get_by_label("Name", exact=True).fill("Poet")
    await form.get_by_label("Use for new chats").check()
    await form.get_by_role("button", name="Save", exact=True).click()
    await expect(tab.page.get_by_role("dialog")).to_have_count(0)
    await expect(name_of_model(tab)).to_have_text("Poet · up/m")
    kept = await api.get("/api/presets")
    [poet] = kept["presets"]
    assert ("Answer in verse.", {"temperature": 0.9}, "up/m") == (poet["system"], poet["params"], poet["model"])
    assert poet["id"] == kept["default"]

    await tab.press("Chat settings")
    await dialog.get_by_label("System prompt").fill("Answer in prose.")
    await dialog.get_by_role("button", name="Save", exact=True).click()
    await expect(name_of_model(tab)).to_have_text("up/m")


@requirement("ui.presets")
async def test_the_settings_of_a_new_chat_survive_a_reload_and_those_of_a_temporary_one_do_not(tab, up):
    """They were saved, as its message is that was typed. A temporary chat leaves nothing in the browser."""
    dialog = tab.page.get_by_role("dialog", name="Chat settings")
    for path, words in (("/temporary", "Answer in verse."), ("/", "Answer in prose.")):
        await tab.open(path)
        await tab.press("Chat settings")
        await dialog.get_by_label("System prompt").fill(words)
        await dialog.get_by_role("button", name="Save", exact=True).click()
        await expect(dialog).to_have_count(0)
        await tab.finds(path == "/", f"JSON.stringify(localStorage).includes('{words}')")
    await tab.page.reload()
    up.enqueue(answer("So be it."))
    await tab.say("Hello")
    await tab.sees_ending("completed", "So be it.")

    assert "Answer in prose." == up.requests[-1].body["messages"][0]["content"]
    await tab.finds(False, "JSON.stringify(localStorage).includes('Answer in prose.')")


@requirement("ui.presets")
async def test_a_prompt_is_typed_after_a_slash_and_asks_for_its_variables(tab, up, api):
    """By the keyboard alone; the box keeps the focus, and a screen reader is told which prompt is meant."""
    await add(api, {"name": "greet", "text": "Say hello."}, "prompts")
    await add(api, {"name": "summarize", "text": "Sum up {{ text }} in {{style}}; {{text}}!"}, "prompts")
    keys, listed = tab.page.keyboard, tab.page.get_by_role("listbox", name="Prompts")
    await tab.box.press_sequentially("/")
    await expect(listed.get_by_role("option")).to_have_count(2)
    await keys.press("ArrowDown")
    active = listed.get_by_role("option", selected=True)
    await expect(active).to_contain_text("/summarize")
    await expect(tab.box).to_have_attribute("aria-activedescendant", await active.get_attribute("id") or "?")
    await keys.press("Escape")
    await expect(listed).to_have_count(0)
    await expect(tab.box).to_be_focused()
    await expect(tab.box).to_have_value("/")
    await tab.box.fill("")
    await tab.box.press_sequentially("/sum")
    await expect(listed.get_by_role("option")).to_have_count(1)
    await keys.press("Enter")
    form = tab.page.get_by_role("dialog", name="Use prompt summarize")
    await expect(form.get_by_label("text", exact=True)).to_be_focused()
    await keys.type("this {{style}}")
    await keys.press("Escape")
    await expect(form.get_by_text("Discard the changes?")).to_be_visible()
    await keys.press("Tab")
    await keys.type("one line")
    await keys.press("Enter")
    await expect(tab.box).to_have_value("Sum up this {{style}} in one line; this {{style}}!")
    await expect(tab.box).to_be_focused()
    up.enqueue(answer("Done."))
    await keys.press("Enter")
    await tab.sees_ending("completed", "Done.")
    assert "Sum up this {{style}} in one line; this {{style}}!" == up.requests[-1].body["messages"][-1]["content"]


@requirement("ui.presets")
async def test_a_quick_typist_inserts_a_prompt_and_another_slash_is_sent_as_it_is(new_tab, up, api):
    """Enter comes before the list is there: the prompt is not sent as its name. `/etc` is no prompt, and is sent."""
    await add(api, {"name": "greet", "text": "Say hello."}, "prompts")
    tab = await new_tab()
    await tab.say("/Greet")
    await expect(tab.box).to_have_value("Say hello.")
    up.enqueue(answer("A folder."))
    await tab.say("/etc")
    await tab.sees_ending("completed", "A folder.")
    assert "/etc" == up.requests[-1].body["messages"][-1]["content"]


@requirement("ui.presets")
async def test_presets_and_prompts_are_made_changed_moved_and_deleted(new_tab, api, tmp_path: Path):
    """A page of their own; what is wrong is said at the field; a deletion is asked for first."""
    tab = await new_tab("/presets")
    await expect(tab.page.get_by_text("No presets yet.")).to_be_visible()
    await tab.press("New preset")
    form = tab.page.get_by_role("dialog", name="New preset")
    await form.get_by_label("Name", exact=True).fill("Judge")
    await form.get_by_label("Model").fill("nowhere/m")
    await form.get_by_role("button", name="Save").click()
    await expect(form.get_by_role("alert")).to_contain_text("nowhere/m")
    await form.get_by_label("Model").fill("")
    await form.get_by_role("button", name="Save").click()
    line = tab.page.locator("[data-preset=Judge]")
    await line.get_by_role("button", name="Use Judge for new chats").click()
    await expect(line.get_by_text("new chats", exact=True)).to_be_visible()
    await line.get_by_role("button", name="Edit preset Judge").click()
    await tab.page.get_by_role("dialog").get_by_label("System prompt").fill("Be fair.")
    await tab.page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(line).to_contain_text("Be fair.")
    await tab.press("New prompt")
    form = tab.page.get_by_role("dialog", name="New prompt")
    await form.get_by_label("Name (no spaces)").fill("two words")
    await form.get_by_label("Text").fill("Judge {{case}}.")
    await form.get_by_role("button", name="Save").click()
    await expect(form.get_by_role("alert")).to_contain_text("/name")
    await form.get_by_label("Name (no spaces)").fill("judge")
    await form.get_by_role("button", name="Save").click()
    await expect(tab.page.locator("[data-prompt=judge]")).to_contain_text("asks for: case")

    async with tab.page.expect_download() as saving:
        await tab.press("Export")
    saved = tmp_path / "presets.json"
    await (await saving.value).save_as(saved)
    assert ["Judge"] == [each["name"] for each in json.loads(saved.read_text())["presets"]]
    await line.get_by_role("button", name="Delete preset Judge?").click()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(line).to_have_count(0)
    assert [] == (await api.get("/api/presets"))["presets"]
    async with tab.page.expect_file_chooser() as choosing:
        await tab.press("Import")
    await (await choosing.value).set_files(saved)
    report = tab.page.get_by_role("dialog", name="Import")
    await expect(report.get_by_role("status")).to_have_text("Added 1 of 2")
    await expect(report.get_by_text("You have it already")).to_be_visible()
    await tab.page.keyboard.press("Escape")
    await expect(line).to_contain_text("Be fair.")


@requirement("ui.presets")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("locale", "scheme", "new"),
    [("en-US", "dark", "New preset"), ("de-DE", "light", "Neues Preset"), ("ar", "dark", "إعداد مسبق جديد")],
)
async def test_it_fits_a_phone_in_every_language_and_axe_finds_nothing(
    new_tab: NewTab, api: Native, locale: str, scheme: str, new: str
):
    """The page, its forms, the picker with presets, and the list of prompts."""
    await add(api, {**WRITER, "name": "A preset with quite a long name", "system": "Write plainly. " * 20})
    await add(api, {"name": "summarize-everything", "text": "Sum up {{text}} in {{style}}. " * 9}, "prompts")
    tab = await new_tab("/presets", viewport=PHONE, locale=locale, color_scheme=scheme, reduced_motion="reduce")
    await expect(tab.page.locator("[data-prompt]")).to_be_visible()
    seen = {"page": (await findings(tab), await beyond(tab), await sideways(tab))}
    await tab.page.get_by_role("button", name=new, exact=True).click()
    await expect(tab.page.locator("dialog[open] [name=name]")).to_be_visible()
    seen["form"] = (await findings(tab), await beyond(tab), await sideways(tab))
    await tab.open("/")
    await tab.page.locator(".model-button").click()
    await expect(tab.page.locator("dialog[open] [role=option]").first).to_be_visible()
    seen["picker"] = (await findings(tab), await beyond(tab), await sideways(tab))
    await tab.page.keyboard.press("Escape")
    await tab.box.press_sequentially("/")
    await expect(tab.page.locator(".prompt-list [role=option]")).to_be_visible()
    seen["list"] = (await findings(tab), await beyond(tab), await sideways(tab))
    assert {name: ([], [], 0) for name in seen} == seen
