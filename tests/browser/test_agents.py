"""An agent on the page: its tools between its words, approvals, steering, and all of it again after a reload."""

import re
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.axe import findings, sideways
from tests.browser.tab import becomes
from tests.requirements import requirement
from tests.support import interrupted
from tests.support.server import Server
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

MCP_SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
AGENT = """
[[agents]]
name = "helper"
model = "scripted/steps"
tools = ["files", "shell"]
approvals = { files_write = "ask" }
folder = "."

[prices]
"scripted/steps" = { input = 2.0, output = 8.0 }
"""
WORK = """files_list {"path": "."}
files_read {"path": "missing.txt"}
files_write {"path": "new.txt", "content": "hi"}
All done."""


@pytest_asyncio.fixture(loop_scope="session")
async def agent(new_tab, tmp_path):
    async with Server(tmp_path, config=AGENT) as server, server.client() as client:
        made = await client.post("/api/sessions", {"model": "agent/helper"})
        yield await new_tab(f"/s/{(await made.json())['id']}", url=server.url)


@requirement("ui.browser-agents")
async def test_what_an_agent_did_is_there_in_its_place_while_it_works_and_after_a_reload(agent):
    """Who comes later sees what one who watched has seen: calls, how they went, who allowed them, what was put in."""
    await agent.say(WORK)
    await expect(agent.page.locator(".approval")).to_be_visible()
    await agent.box.fill("Mind the gap.")
    await agent.press("Send to agent")
    await expect(agent.live.locator(".steered")).to_have_text("Mind the gap.")
    await agent.press("Allow once")
    await agent.sees_ending("completed")
    await expect(agent.last_answer.locator(".figures")).to_contain_text("$0.0")
    watched = await agent.last_answer.inner_text()
    await agent.page.reload()
    await expect(agent.last_answer).to_have_attribute("data-outcome", "completed")
    tools = agent.last_answer.locator(".tool")

    await becomes(
        ["files_list", "files_read", "files_write"], lambda: tools.evaluate_all("all => all.map(e => e.dataset.tool)")
    )
    await expect(tools.nth(0)).to_contain_text("done")
    await expect(tools.nth(1)).to_contain_text("failed")
    await expect(tools.nth(2)).to_contain_text("approved, done")
    await expect(agent.last_answer.locator(".steered")).to_have_text("Mind the gap.")
    await expect(agent.last_answer.locator(".figures")).to_contain_text("first token")
    await expect(agent.last_answer.locator(".figures")).to_contain_text("$0.0")
    await becomes(watched, lambda: agent.last_answer.inner_text())


@requirement("safe.whole-call")
async def test_a_call_can_be_allowed_only_when_all_of_it_was_in_view(agent):
    """What is long is scrolled to its end first, by the keyboard too. Invisible characters are shown."""
    content = "\u202esafe\u200b\u3164" + "\\n# nothing to see here" * 60
    await agent.say(f'files_write {{"path": "n\u2066ew.txt", "content": "{content}"}}\nDone.')
    card = agent.page.locator(".approval")
    call, allow = card.locator(".call"), card.get_by_role("button", name="allow")
    await expect(call).to_contain_text("\\u202esafe\\u200b\\u3164")
    await expect(call).to_contain_text("n\\u2066ew.txt")
    await expect(allow).to_have_count(3)
    for button in await allow.all():
        await expect(button).to_be_disabled()
    await expect(card.get_by_role("button", name="Deny")).to_be_enabled()
    await call.focus()
    await agent.page.keyboard.press("End")
    for button in await allow.all():
        await expect(button).to_be_enabled()
    await card.get_by_role("button", name="Deny").click()
    await expect(agent.last_answer).to_have_attribute("data-outcome", "completed")


@requirement("safe.whole-call")
async def test_a_call_without_arguments_is_whole_too(new_tab, tmp_path):
    """Many tools of MCP servers take none. There was nothing to scroll to, and so no way to allow them."""
    async with Server(tmp_path, config=AGENT.replace("files_write", "files_list")) as server:
        async with server.client() as client:
            made = await (await client.post("/api/sessions", {"model": "agent/helper"})).json()
        tab = await new_tab(f"/s/{made['id']}", url=server.url)
        await tab.say("files_list {}\nDone.")
        await expect(tab.page.locator(".approval .call")).to_have_text("{}")
        await tab.press("Allow once")

        await tab.sees_ending("completed")


@requirement("safe.whole-call")
async def test_a_double_click_decides_one_call(agent):
    """The next question appears between the two clicks, at the same place, with a call that nobody has read."""
    write = 'files_write {{"path": "{}.txt", "content": "hi"}}\n'
    await agent.say(write.format("a") + write.format("b") + "Done.")
    card = agent.page.locator(".approval")
    allow = card.get_by_role("button", name="Allow once")
    await allow.click()
    await expect(card).to_contain_text("b.txt")
    await expect(allow).to_be_enabled()
    await allow.hover()
    await agent.page.mouse.down(click_count=2)
    await agent.page.mouse.up(click_count=2)
    await card.get_by_role("button", name="Deny").click()
    await agent.sees_ending("completed")

    tools = agent.last_answer.locator(".tool")
    await expect(tools).to_have_count(2)
    await expect(tools.first).to_have_attribute("data-state", "done")
    await expect(tools.last).to_have_attribute("data-state", "denied")


@requirement("ui.browser-approvals")
@pytest.mark.usefixtures("needs_axe")
async def test_a_command_is_shown_with_its_lines_and_a_write_as_a_diff(agent):
    """People allow what they can read. A denial takes a reason along, and the model is told."""
    script = r"#!/bin/sh\nset -e\necho \"hello\""
    await agent.say(
        'files_write {"path": "a.txt", "content": "one\\ntwo"}\n'
        'files_write {"path": "a.txt", "content": "one\\n2"}\n'
        f'shell {{"command": "{script}"}}\nDone.'
    )
    card = agent.page.locator(".approval")
    await expect(card.locator(".diff .added")).to_have_text(["+ one\n", "+ two\n"])
    assert [] == await findings(agent)
    await agent.press("Allow once")
    await expect(card.locator(".diff .removed")).to_have_text(["- two\n"])
    await expect(card.locator(".diff .added")).to_have_text(["+ 2\n"])
    await agent.press("Allow once")
    await expect(card.locator("pre")).to_have_text('#!/bin/sh\nset -e\necho "hello"', use_inner_text=True)
    await card.get_by_label("Reason (optional)").fill("Not on a Friday")
    await card.get_by_label("Reason (optional)").press("Enter")

    await expect(agent.last_answer).to_have_attribute("data-outcome", "completed")
    denied = agent.last_answer.locator(".tool[data-state=denied]")
    await denied.locator("summary").click()
    await expect(denied).to_contain_text("They say: Not on a Friday")


@requirement("ui.browser-approvals")
async def test_what_is_always_allowed_is_listed_in_the_settings_and_revoked_there(agent):
    """A permission that nobody can find again is a hole."""
    write = 'files_write {"path": "a.txt", "content": "one"}\nDone.'
    await agent.say(write)
    await agent.press("Always allow")
    await agent.sees_ending("completed")
    await agent.say(write)
    await expect(agent.answers).to_have_count(2)
    await agent.sees_ending("completed")
    session = agent.session_id
    await agent.open("/settings")
    await expect(agent.page.locator("[data-grant=files_write]")).to_contain_text("in all chats")
    await agent.press("Revoke files_write")
    await expect(agent.page.locator("[data-grant]")).to_have_count(0)
    await agent.open(f"/s/{session}")
    await agent.say(write)

    await expect(agent.page.locator(".approval")).to_be_visible()


@requirement("ui.browser-approvals", "agent.edited-calls")
@pytest.mark.usefixtures("needs_axe")
async def test_arguments_are_changed_before_a_call_is_allowed(agent):
    """By the keyboard. What ran stands beside what the model wrote, also after a reload."""
    await agent.say('shell {"command": "echo one\\necho two"}\nDone.')
    card = agent.page.locator(".approval")
    await agent.button("Edit arguments").focus()
    await agent.page.keyboard.press("Enter")
    await expect(card.get_by_label("command")).to_have_value("echo one\necho two")
    await card.get_by_label("command").fill("echo three")
    assert [] == await findings(agent)
    await agent.button("Allow with changes").focus()
    await agent.page.keyboard.press("Enter")
    await agent.sees_ending("completed")
    for _ in range(2):
        tool = agent.last_answer.locator(".tool")
        await tool.locator("summary").click()
        await expect(tool.locator(".call").first).to_contain_text("echo one")
        await expect(tool.locator("[data-edited]")).to_contain_text("echo three")
        await expect(tool.locator("pre").last).to_contain_text("three")
        await agent.page.reload()


ASK = """
[[agents]]
name = "helper"
model = "scripted/steps"
tools = ["ask_user"]
"""


@requirement("ui.browser-approvals", "agent.ask-user")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize("answer", ["choice", "words", "Decline"])
async def test_a_question_of_the_model_is_a_form(new_tab, tmp_path, answer):
    """A choice, one's own words, or none; by the keyboard. It is still there after a reload, with what was typed."""
    async with Server(tmp_path, config=ASK) as server:
        async with server.client() as client:
            made = await (await client.post("/api/sessions", {"model": "agent/helper"})).json()
        tab = await new_tab(f"/s/{made['id']}", url=server.url)
        await tab.say('ask_user {"question": "Which colour?", "choices": ["red", "<b>blue</b>"]}\nDone.')
        card = tab.page.locator(".question.input")
        await expect(card).to_contain_text("Which colour?")
        await card.get_by_label("In your own words").fill("half a word")
        await tab.page.reload()
        await expect(card.get_by_label("In your own words")).to_have_value("half a word")
        assert [] == await findings(tab)
        if answer == "choice":
            await card.get_by_label("In your own words").fill("")
            await card.get_by_role("radio", name="red").focus()
            await tab.page.keyboard.press("ArrowDown")
            await expect(card.get_by_role("radio", name="<b>blue</b>")).to_be_checked()
            await tab.page.keyboard.press("Enter")
        elif answer == "words":
            await card.get_by_label("In your own words").fill("green")
            await tab.page.keyboard.press("Enter")
        else:
            await card.get_by_role("button", name=answer).focus()
            await tab.page.keyboard.press("Enter")
        await expect(tab.box).to_be_focused()  # what had the focus has gone
        await tab.sees_ending("completed")
        tool = tab.last_answer.locator(".tool")
        await tool.locator("summary").click()
        said = {"choice": "<b>blue</b>", "words": "green", "Decline": "The user declined to answer."}[answer]
        await expect(tool.locator("pre").last).to_have_text(said)


PHONE = {"width": 360, "height": 740}


@requirement("ui.browser-compare", "cmp.agents", "agent.ask-user")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(
    ("locale", "scheme", "size"),
    [("en-US", "light", None), ("de-DE", "dark", PHONE), ("ar", "dark", PHONE)],
    ids=["wide", "phone in German", "phone in Arabic"],
)
async def test_an_agent_in_a_pane_asks_there_and_its_steps_stay(new_tab, tmp_path, locale, scheme, size):
    """Each pane asks for itself, by the keyboard. What was done stands between the words, after a reload too."""
    look = {
        "locale": locale,
        "color_scheme": scheme,
        "reduced_motion": "reduce",
        **({"viewport": size} if size else {}),
    }
    async with Server(tmp_path, config=ASK) as server:
        async with server.client() as client:
            prompt = 'ask_user {"question": "Which colour?", "choices": ["red", "blue"]}\nDone.'
            body = {"prompt": prompt, "models": ["agent/helper"] * 2, "lifetime": "detached"}
            response = await client.post("/api/comparisons", body, headers={"accept": "text/event-stream"})
            started = (await response.next_event()).json()["comparison"]
            tab = await new_tab(f"/compare/{started['id']}", url=server.url, **look)
            panes = tab.page.locator(".pane")
            cards = tab.page.locator(".question.input")
            await expect(cards).to_have_count(2)
            assert ([], 0) == (await findings(tab), await sideways(tab))
            for number, colour in enumerate(("red", "blue")):
                await cards.first.get_by_role("radio", name=colour).focus()
                await tab.page.keyboard.press("Space")
                await tab.page.keyboard.press("Enter")
                await expect(panes.nth(number)).to_have_attribute("data-outcome", "completed")
        for is_reloaded in (False, True):
            if is_reloaded:
                await tab.page.reload()
            for number, colour in enumerate(("red", "blue")):
                tool = panes.nth(number).locator(".tool[data-tool=ask_user][data-state=done]")
                await tool.locator("summary").press("Enter")
                await expect(tool.locator("pre").last).to_have_text(colour)
                await expect(panes.nth(number).locator(".segment").last).to_have_text("Done.")
            assert ([], 0) == (await findings(tab), await sideways(tab))


FORM = """
[[mcp]]
name = "form"
command = "python"
args = ["-P", "{server}", "{seen}"]
approval = "allow"

[[agents]]
name = "helper"
model = "scripted/steps"
tools = ["mcp:form"]
"""


@requirement("mcp.elicitation")
@pytest.mark.usefixtures("needs_axe")
async def test_what_an_mcp_server_asks_is_a_form_of_its_fields(new_tab, tmp_path):
    """Each by its kind, with its limits; what is sent is what the server takes."""
    config = FORM.format(server=MCP_SERVER, seen=tmp_path / "seen")
    async with Server(tmp_path / "data", config=config) as server:
        async with server.client() as client:
            made = await (await client.post("/api/sessions", {"model": "agent/helper"})).json()
        tab = await new_tab(f"/s/{made['id']}", url=server.url)
        await tab.say("form__order {}\nDone.")
        card = tab.page.locator(".question.input")
        await expect(card).to_contain_text("What do you want?")
        assert [] == await findings(tab)
        await card.get_by_label("Size").select_option("s9")
        await card.get_by_label("Pieces").fill("3")
        await card.get_by_role("checkbox", name="Gift").check()
        await card.get_by_label("Note").fill("quick")
        await card.get_by_role("button", name="Send answer").click()
        await tab.sees_ending("completed")
        tool = tab.last_answer.locator(".tool")
        await tool.locator("summary").click()
        await expect(tool.locator("pre").last).to_contain_text("size='s9' pieces=3 gift=True note='quick'")


@requirement("ui.browser-approvals", "crash.effects")
@pytest.mark.usefixtures("needs_axe")
@pytest.mark.parametrize(("answer", "times"), [("It ran", 1), ("Run it again", 2), ("Skip", 1)])
async def test_a_call_that_a_kill_has_interrupted_is_asked_about_with_the_evidence(new_tab, tmp_path, answer, times):
    """The page stays open meanwhile. What was asked and said is in the replay."""
    folder = tmp_path / "work"
    folder.mkdir()
    async with Server(tmp_path / "data", config=interrupted.AGENT.format(folder=folder)) as server:
        async with server.client() as client:
            made = await (await client.post("/api/sessions", {"model": "agent/lasting"})).json()
        tab = await new_tab(f"/s/{made['id']}", url=server.url)
        await tab.say(interrupted.ASKED)
        await expect(tab.live.locator(".streamed")).to_have_text("half\n")
        await server.kill9()
        await server.restart()
        card = tab.page.locator(".outcome")
        await expect(card).to_contain_text("The server ended while shell was running. It may have run.")
        await expect(card.locator(".call")).to_contain_text("echo ran >> ran")
        await expect(card.locator(".printed")).to_have_text("half\n")
        assert [] == await findings(tab)
        await tab.button(answer).focus()
        await tab.page.keyboard.press("Enter")
        await tab.sees_ending("completed")
        await expect(tab.last_answer.locator(".tool")).to_have_attribute(
            "data-state", "failed" if answer == "Skip" else "done"
        )
    assert "ran\n" * times == (folder / "ran").read_text()


@requirement("ui.browser-approvals", "agent.grants")
async def test_commands_are_allowed_by_their_beginning_and_listed_with_it(agent):
    """What is allowed is said before and after."""
    await agent.say('shell {"command": "echo one two"}\nDone.')
    card = agent.page.locator(".approval")
    await expect(card.locator(".always").first).to_contain_text("Always allow commands that begin with echo one")
    await card.get_by_role("button", name="commands that begin with").click()
    await agent.sees_ending("completed")
    await agent.say('shell {"command": "echo one three"}\nDone.')
    await expect(agent.answers).to_have_count(2)
    await agent.sees_ending("completed")
    await agent.open("/settings")
    await expect(agent.page.locator("[data-grant=shell]")).to_contain_text("echo one …")
    await agent.press("Revoke shell")
    await expect(agent.page.locator("[data-grant]")).to_have_count(0)


@requirement("agent.workspace")
@pytest.mark.usefixtures("needs_axe")
async def test_the_files_of_an_agent_are_browsed_previewed_and_saved(agent):
    """By the keyboard. A page among them is text; nothing of it is run."""
    await agent.say('files_write {"path": "out/page.html", "content": "<script>document.title = 1</script>"}\nDone.')
    await agent.press("Allow once")
    await agent.sees_ending("completed")
    await agent.press("Chat actions")
    await agent.page.get_by_role("menuitem", name="Files of the agent").click()
    dialog = agent.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="out").focus()
    assert [] == await findings(agent)
    await agent.page.keyboard.press("Enter")
    await dialog.get_by_role("button", name="page.html").focus()
    await agent.page.keyboard.press("Enter")
    await expect(dialog.locator("pre")).to_have_text("<script>document.title = 1</script>")
    assert [] == await findings(agent)
    async with agent.page.expect_download() as saved:
        await dialog.get_by_role("button", name="Save").click()
    assert "page.html" == (await saved.value).suggested_filename
    await agent.page.keyboard.press("Escape")
    await expect(dialog.get_by_role("button", name="page.html")).to_be_visible()


@requirement("ui.browser-approvals")
async def test_a_chat_that_waits_for_approval_says_so_elsewhere_too(agent, new_tab):
    """Its user looks at another chat, or at another tab: in the list it is not simply running."""
    await agent.say('files_write {"path": "a.txt", "content": "one"}\nDone.')
    await expect(agent.page.locator(".approval")).to_be_visible()
    elsewhere = await new_tab(agent.page.url.partition("/s/")[0] + "/runs", beside=agent)

    await expect(elsewhere.page.locator(".session .needs-you")).to_have_text("Waiting for you")
    await expect(elsewhere.page).to_have_title("(1) Runs · Holdfast")
    await expect(elsewhere.page.locator(".run-list .badge")).to_have_text("waiting for you")
    await agent.press("Allow once")
    await expect(elsewhere.page.locator(".session .needs-you")).to_have_count(0)
    await expect(elsewhere.page).to_have_title("Runs · Holdfast")


NOTIFIED = """
window.told = [];
window.Notification = class {
    static permission = "granted";
    constructor(title, {body}) { window.told.push([title, body]) }
};
Object.defineProperty(document, "hidden", {get: () => true});
PushManager.prototype.subscribe = () => Promise.reject(new Error("no push service"));
"""
"""A browser whose user allowed notifications, and looks at another window."""


@requirement("ui.browser-approvals")
async def test_who_wants_to_be_notified_of_an_approval_is(agent, new_tab):
    """Once for each time that a chat begins to wait, and only if its user asked for that."""
    elsewhere = await new_tab(None, beside=agent)
    await elsewhere.page.add_init_script(NOTIFIED)
    await elsewhere.open(agent.page.url.partition("/s/")[0] + "/settings")
    await elsewhere.page.get_by_label("Notify me in this browser").check()
    await agent.say('files_write {"path": "a.txt", "content": "one"}\nDone.')
    await expect(elsewhere.page.locator(".session .needs-you")).to_be_visible()

    await elsewhere.finds(
        [["Waiting for you", "files_write"]], "window.told.map(([title, body]) => [title, body.split(' ')[0]])"
    )


@requirement("ui.browser-approvals")
@pytest.mark.usefixtures("needs_axe")
async def test_a_tools_output_is_there_while_it_runs_and_after_a_stop(agent):
    """A stop is no failure and no promise that nothing ran, and what the command had printed is not lost."""
    await agent.say('shell {"command": "echo one; echo two; sleep 600"}\nDone.')
    await agent.press("Allow once")
    tool = agent.page.locator(".tool")
    await expect(tool.locator(".progress")).to_have_text("two")
    await tool.locator("summary").click()
    await expect(tool.locator(".streamed")).to_have_text("one\ntwo\n")
    await expect(tool.locator(".state")).to_contain_text("running · ")
    assert [] == await findings(agent)
    await agent.press("Stop")
    await agent.sees_ending("stopped")

    await expect(tool).to_have_attribute("data-state", "uncertain")
    await expect(tool.locator(".state")).to_contain_text("may have run")
    await expect(tool).not_to_have_class(re.compile("bad"))
    await expect(tool.locator("pre").last).to_contain_text("one\ntwo\n[The run was stopped before this call finished.")


@requirement("ui.browser-smooth")
async def test_the_words_of_an_answer_stay_where_they_are_when_it_ends(tab, up):
    """Nothing is drawn again, so that nothing flickers and no selection is lost."""
    up.enqueue([Headers(), Role(), Delta("First words.\n\n"), Gate("last"), Delta("Last words."), Finish(), Done()])
    await tab.say("Go")
    await tab.reads("First words.\n\n")
    await tab.measure("() => { window.first = document.querySelector('.is-live .markdown p') }")
    up.open("last")
    await tab.sees_ending("completed", "First words.\n\nLast words.")

    await tab.finds(True, "window.first.isConnected && window.first === document.querySelector('.answer p')")


@requirement("ui.browser-agents", "busy.steer")
async def test_why_an_agent_takes_nothing_more_is_said_where_one_types(agent):
    """It ended at that moment, or another node has it: what was typed is still there, with the reason above it."""
    await agent.say(WORK)
    await expect(agent.page.locator(".approval")).to_be_visible()
    refusal = {
        "error": {"message": "This run is finishing.", "type": "conflict", "code": "cannot_steer", "param": None}
    }
    await agent.page.route("**/steer", lambda route: route.fulfill(status=409, json=refusal))
    await agent.box.fill("Mind the gap.")
    await agent.press("Send to agent")

    told = agent.page.locator(".composer [role=alert]")
    await expect(told).to_have_text("Not sent to the agent: This run is finishing.")
    await expect(agent.box).to_have_value("Mind the gap.")
    await agent.box.fill("Mind the gap, please.")
    await expect(told).to_have_text("")


@requirement("ui.browser-approvals")
async def test_always_allow_stands_apart_and_says_what_it_covers(agent):
    """It is no third way to say yes: nobody is asked again, for anything that the tool can do."""
    await agent.say('files_write {"path": "new.txt", "content": "hi"}\nDone.')
    card = agent.page.locator(".approval")
    await expect(card.locator(".always")).to_contain_text("Every call of files_write by this agent")

    await expect(card.locator("footer")).not_to_contain_text("Always allow")
    await expect(agent.live.locator(".figures")).to_contain_text("waiting for you")
    await expect(agent.live.locator(".figures")).not_to_contain_text("tokens/s")
    await agent.press("Stop")
    await agent.sees_ending("stopped")
    await expect(agent.last_answer.locator(".tool .state")).to_contain_text("stopped")


@requirement("ui.browser-agents")
async def test_a_call_that_was_cut_off_says_that_it_may_have_run(agent):
    """It had begun: that it was stopped is not that nothing has happened."""
    await agent.say('shell {"command": "echo begun; sleep 60"}\nDone.')
    card = agent.page.locator(".approval")
    await card.get_by_role("button", name="Allow once").click()
    await expect(agent.live.locator(".tool .state")).to_contain_text("running")
    await agent.press("Stop")
    await agent.sees_ending("stopped")

    await expect(agent.last_answer.locator(".tool .state")).to_contain_text("may have run")


@requirement("ui.browser-approvals")
async def test_the_diff_of_a_new_file_has_its_lines_and_no_more(agent):
    """The line end of the last line is no line of its own."""
    await agent.say('files_write {"path": "new.txt", "content": "one\\ntwo\\n"}\nDone.')

    await expect(agent.page.locator(".approval .diff span")).to_have_text(["+ one", "+ two"])
    await agent.press("Stop")
    await agent.sees_ending("stopped")


SLOW_TOOLS = """
[[mcp]]
name = "slow"
command = "sh"
args = ["-c", "until [ -e '{gate}' ]; do sleep 0.05; done; exec '{python}' -P '{server}' '{seen}'"]

[[agents]]
name = "helper"
model = "scripted/steps"
tools = ["mcp:slow"]
"""


@requirement("ui.browser-agents")
async def test_an_agent_says_that_it_waits_for_its_tools(new_tab, tmp_path):
    """An MCP server takes seconds to start. Dots alone look like a model that does not answer."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    config = SLOW_TOOLS.format(gate=gate, seen=seen, python=sys.executable, server=MCP_SERVER)
    async with Server(tmp_path, config=config) as server, server.client() as client:
        made = await client.post("/api/sessions", {"model": "agent/helper"})
        tab = await new_tab(f"/s/{(await made.json())['id']}", url=server.url)
        await tab.say("All done.")
        await expect(tab.live.locator(".waiting")).to_have_text("Starting the tools of slow.")
        gate.touch()

        await tab.sees_ending("completed", "All done.")
        await expect(tab.last_answer).not_to_contain_text("Starting the tools")
