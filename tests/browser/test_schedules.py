"""Schedules and triggers in the page: made with a preview, paused, run, looked back at."""

import datetime
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.axe import beyond, findings, sideways
from tests.browser.conftest import NewTab
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

PHONE = {"width": 360, "height": 740}


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def nothing_is_left(api: Native) -> AsyncIterator[None]:
    """Other tests see no chats of schedules."""
    yield
    for kind in ("schedules", "triggers"):
        for each in (await api.get(f"/api/{kind}"))[kind]:
            assert 204 == (await api.client.request("DELETE", f"/api/{kind}/{each['id']}")).status


@requirement("ui.schedules")
async def test_a_schedule_is_made_with_a_preview_and_run_paused_changed_and_deleted(new_tab, up, api):
    """What the plan means is said before it is saved; the history leads to the chat."""
    tab = await new_tab("/", timezone_id="Europe/Berlin")
    await tab.page.get_by_role("link", name="Schedules").click()
    await expect(tab.page.get_by_text("No schedules yet.")).to_be_visible()
    await tab.press("New schedule")
    form = tab.page.get_by_role("dialog", name="New schedule")
    await form.get_by_label("Name", exact=True).fill("Morning report")
    await form.get_by_label("Prompt").fill("Write the report.")
    await form.get_by_role("combobox", name="Repeat").select_option("Every weekday")
    await form.get_by_label("Time", exact=True).fill("07:30")
    preview = form.get_by_role("status")
    await expect(preview).to_contain_text("Every weekday at 7:30 AM (Europe/Berlin)")
    await expect(preview).to_contain_text("07:30")
    await form.get_by_role("combobox", name="Repeat").select_option("Cron expression")
    await form.get_by_role("textbox", name="Expression").fill("30 25 * * *")
    await expect(preview).to_contain_text("'25' is wrong for the hour")
    await form.get_by_role("textbox", name="Expression").fill("30 7 * * 1-5")
    await expect(preview).to_contain_text("Every weekday at 7:30 AM")
    await form.get_by_role("button", name="Save").click()
    line = tab.page.locator("[data-schedule='Morning report']")
    await expect(line).to_contain_text("Every weekday at 7:30 AM (Europe/Berlin) · next:")
    [kept] = (await api.get("/api/schedules"))["schedules"]
    assert {"kind": "cron", "expression": "30 7 * * 1-5", "time_zone": "Europe/Berlin"} == kept["when"]

    up.enqueue(answer("All is well."))
    await line.get_by_role("button", name="Run Morning report now").press("Enter")
    await tab.sees_ending("completed", "All is well.")
    await tab.page.get_by_role("link", name="Schedules").click()
    await expect(line.get_by_text("completed")).to_be_visible()
    await line.get_by_role("button", name="Pause Morning report").click()
    await expect(line.get_by_text("paused")).to_be_visible()
    await line.get_by_role("button", name="Go on with Morning report").click()
    await expect(line).to_contain_text("next:")
    await line.get_by_role("button", name="Edit schedule Morning report").click()
    form = tab.page.get_by_role("dialog", name="Edit schedule Morning report")
    await expect(form.get_by_role("combobox", name="Repeat")).to_have_value("weekdays")
    await form.get_by_label("Time", exact=True).fill("08:00")
    await form.get_by_role("button", name="Save").click()
    await expect(line).to_contain_text("Every weekday at 8:00 AM")
    await line.get_by_role("button", name="History of Morning report").click()
    history = tab.page.get_by_role("dialog", name="History of Morning report")
    await expect(history.get_by_text("run by hand")).to_be_visible()
    await history.get_by_role("link").first.click()
    await expect(tab.page.get_by_text("All is well.")).to_be_visible()
    await tab.page.get_by_role("link", name="Schedules").click()
    await line.get_by_role("button", name="Delete schedule Morning report?").click()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    await expect(line).to_have_count(0)


@requirement("ui.schedules")
async def test_a_trigger_shows_its_address_once_and_what_called_it(new_tab, up, api):
    """The address works as it is copied; a new one ends it. The page follows what calls it."""
    tab = await new_tab("/schedules")
    await tab.press("New trigger")
    form = tab.page.get_by_role("dialog", name="New trigger")
    await form.get_by_label("Name", exact=True).fill("Issues")
    await form.get_by_label("Prompt").fill("Sort: {{title}}")
    await form.get_by_role("button", name="Save").click()
    made = tab.page.get_by_role("dialog", name="Trigger Issues")
    address = await made.get_by_label("Address").input_value()
    await made.get_by_role("button", name="Done").click()
    up.enqueue(answer("Sorted."))
    path = address.partition("/api/")[2]
    called = await api.client.post(f"/api/{path}", {"title": "It breaks"})
    assert 202 == called.status, await called.text()
    run = (await called.json())["run_id"]
    await api.settled(run)
    line = tab.page.locator("[data-trigger=Issues]")
    await expect(line).to_contain_text("Last call:")
    await expect(line).not_to_contain_text(path)
    await line.get_by_role("button", name="Calls of Issues").click()
    await expect(tab.page.get_by_role("dialog").get_by_role("link")).to_have_attribute("href", f"/runs/{run}")
    await tab.page.keyboard.press("Escape")
    await line.get_by_role("button", name="Replace the secret of Issues?").click()
    await tab.page.get_by_role("dialog").get_by_role("button", name="Replace secret").click()
    await expect(tab.page.get_by_role("dialog", name="Trigger Issues").get_by_label("Address")).to_be_visible()
    assert 404 == (await api.client.post(f"/api/{path}", {"title": "It breaks"})).status


@requirement("ui.schedules")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("locale", "scheme", "new", "trigger"),
    [
        ("en-US", "dark", "New schedule", "New trigger"),
        ("de-DE", "light", "Neuer Zeitplan", "Neuer Auslöser"),
        ("ar", "dark", "جدول جديد", "مشغّل جديد"),
    ],
)
async def test_it_fits_a_phone_in_every_language_and_axe_finds_nothing(
    new_tab: NewTab, api: Native, locale: str, scheme: str, new: str, trigger: str
):
    """The lists, their forms and the history."""
    when = {"kind": "every", "seconds": 7200}
    asked = {"name": "A schedule with quite a long name", "prompt": "Write the report. " * 9, "model": "up/other"}
    made = await api.client.post("/api/schedules", {**asked, "when": when})
    assert 201 == made.status
    assert 201 == (await api.client.post("/api/triggers", {**asked, "signed": True})).status
    refused = {**asked, "when": {"kind": "once", "at": _later()}, "session": await api.new_session(title="Reports")}
    assert 201 == (await api.client.post("/api/schedules", {**refused, "name": "Other"})).status
    tab = await new_tab("/schedules", viewport=PHONE, locale=locale, color_scheme=scheme, reduced_motion="reduce")
    await expect(tab.page.locator("[data-trigger]")).to_be_visible()
    seen = {"page": (await findings(tab), await beyond(tab), await sideways(tab))}
    await _pictured(tab.page, f"page-{locale}")
    for name, button in (("form", new), ("trigger", trigger)):
        await tab.page.get_by_role("button", name=button, exact=True).click()
        await expect(tab.page.locator("dialog[open] [name=name]")).to_be_visible()
        if name == "form":
            await expect(tab.page.locator("dialog[open] .preview strong")).to_be_visible()
        seen[name] = (await findings(tab), await beyond(tab), await sideways(tab))
        await _pictured(tab.page, f"{name}-{locale}")
        await tab.page.keyboard.press("Escape")
    assert {name: ([], [], 0) for name in seen} == seen


def _later() -> str:
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=2)).isoformat()


async def _pictured(page, name: str) -> None:
    if folder := os.environ.get("PICTURES"):
        await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
