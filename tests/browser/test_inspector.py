"""What really happened in a run, as a person looks at it."""

import pytest
from playwright.async_api import expect

from tests.requirements import requirement
from tests.support.upstream import Delta, Hang, Headers, ReasoningDelta, Role, Status, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def drag(tab, to: str) -> None:
    """Move the replay to a moment: its start or its end."""
    slider = tab.page.get_by_role("slider", name="Time")
    await slider.focus()
    await slider.press(to)


@requirement("ui.browser-inspector")
async def test_a_stopped_run_shows_its_receipt_every_event_and_its_replay(new_tab, up, api):
    """All that is shown is the log: no event is missing, and the replay ends with exactly the text that was kept."""
    up.enqueue([Headers(), Role(), ReasoningDelta("Hm."), Delta("so "), Delta("far"), Hang()])
    session = await api.new_session(model="up/m")
    run = await api.start(session, "Go", "up/m")
    tab = await new_tab(f"/runs/{run}")
    await expect(tab.page.locator(".replay .screen > .markdown")).to_have_text("so far")
    await tab.press("Stop")
    await expect(tab.page.locator("[data-whole=true] .receipt li")).to_have_count(3)
    frames = await api.replay(run)

    await expect(tab.page.get_by_role("row")).to_have_count(len(frames))
    await expect(tab.page.locator(".run-title")).to_contain_text("stopped")
    await tab.finds(
        ["start", "thoughts", "words", "end"],
        "[...document.querySelectorAll('.story li')].map((each) => each.dataset.moment)",
    )
    await drag(tab, "Home")
    await expect(tab.page.locator(".replay .screen > .markdown")).to_be_empty()
    await tab.press("Play")
    await expect(tab.button("Play")).to_be_visible()
    await expect(tab.page.locator(".replay .screen > .markdown")).to_have_text("so far")


@requirement("ui.browser-inspector")
async def test_the_link_under_an_answer_leads_to_its_run(new_tab, up, api):
    """People find it where the question comes up, with the same figures. A run that is not there says so."""
    up.enqueue(answer("yes"))
    session = await api.new_session(model="up/m")
    run = await api.start(session, "Go", "up/m")
    await api.settled(run)
    tab = await new_tab(f"/s/{session}")
    told = tab.last_answer.locator(".figures span", has_text="first token")
    first = (await told.inner_text()).removeprefix("first token ")
    await tab.page.get_by_role("link", name="Run details").click()
    await expect(tab.page.locator(f"[data-run='{run}'][data-whole=true]")).to_be_visible()
    await expect(tab.page.locator(".facts div", has_text="First token").locator("dd")).to_have_text(first)
    await tab.open("/runs/run_nothing")

    await expect(tab.page.locator(".empty")).to_contain_text("could not be loaded")


@requirement("ui.browser-inspector")
async def test_the_list_shows_why_a_run_without_output_failed(new_tab, up, api):
    """Without the reason, "No output" alone would send people into each run to find out."""
    up.enqueue([Status(400, {"error": {"message": "Not this prompt."}})])
    session = await api.new_session(model="up/m")
    run = await api.start(session, "Go", "up/m")
    await api.settled(run)
    tab = await new_tab("/runs")

    await expect(tab.page.locator(f"a[href='/runs/{run}']")).to_contain_text("Not this prompt.")


@requirement("ui.browser-inspector", "hist.run-list")
async def test_the_list_shows_what_was_asked_and_where_and_is_filtered_by_outcome(new_tab, up, api):
    """Answers begin alike. Whoever looks for what failed wants nothing else."""
    up.enqueue(answer("Two."), [Status(400, {"error": {"message": "Not this prompt."}})])
    session = await api.new_session(title="About tides", model="up/m")
    fine = await api.start(session, "How many tides?", "up/m")
    await api.settled(fine)
    bad = await api.start(session, "How many moons?", "up/m")
    await api.settled(bad)
    tab = await new_tab("/runs")
    rows = [tab.page.locator(f"a[href='/runs/{run}']") for run in (fine, bad)]

    await expect(rows[0]).to_contain_text("How many tides?")
    await expect(rows[0]).to_contain_text("About tides · up/m")
    await tab.page.get_by_label("Outcome").select_option("failed")
    await expect(rows[0]).to_have_count(0)
    await expect(rows[1]).to_contain_text("How many moons?")
