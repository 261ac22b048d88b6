"""Agents in the terminal: what they do is seen, what they ask for is answered there, and a typed line reaches them."""

import json
import re

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, Terminal, here, whole_session
from tests.requirements import requirement
from tests.support import interrupted
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Gate, Headers, Recorded, Role, Upstream, answer, calling, tokens

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENTS = """
[[agents]]
name = "worker"
model = "up/worker"
tools = ["shell"]
folder = "{folder}"

[[agents]]
name = "pair"
model = "up/pair"
tools = ["shell"]
folder = "{folder}"

[[agents]]
name = "long"
model = "up/long"
tools = ["shell"]
folder = "{folder}"

[[agents]]
name = "free"
model = "up/free"
tools = ["shell"]
folder = "{folder}"
approvals = {{ shell = "allow" }}

[[agents]]
name = "plain"
model = "up/touches"
tools = ["shell"]
folder = "{folder}"

[[agents]]
name = "asker"
model = "up/asker"
tools = ["ask_user"]

[[agents]]
name = "poor"
model = "up/poor"
max_tokens = 40

[[agents]]
name = "brief"
model = "up/free"
tools = ["shell"]
folder = "{folder}"
approvals = {{ shell = "allow" }}
max_steps = 1
"""


LONG = (
    "echo \u202esafe\u200b"
    + " checking the project and its many files" * 80
    + "\necho ran >> ran\n# \x1b[8m"
    + "\n#" * 30
)
"""A call that is longer than a screen, with what it is about in its middle."""


def in_steps(*scripts):
    """Script by script, counted by the questions since a person began the turn with `Go`."""

    def script(request: Recorded):
        said = request.body["messages"]
        began = max(n for n, message in enumerate(said) if str(message["content"]).startswith("Go"))
        return scripts[sum(message["role"] == "assistant" for message in said[began:])]

    return script


def shell_call(*commands: str, text: str = "") -> list:
    return calling(*(("shell", {"command": command}) for command in commands), text=text)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= {
            "worker": in_steps(shell_call("echo ran >> ran", text="I will. "), answer("Done.")),
            "long": in_steps(shell_call(LONG), answer("Done.")),
            "pair": in_steps(shell_call("echo one", "echo two"), answer("Done.")),
            "free": in_steps(
                shell_call("exit 3"), [Headers(), Role(), Gate("free"), *answer("Over.")[2:]], answer("In m.")
            ),
            "touches": in_steps(shell_call("touch ran"), answer("Done.")),
            "asker": in_steps(
                calling(("ask_user", {"question": "Which colour?", "choices": ["red", "blue"]})), answer("Done.")
            ),
            "poor": tokens(2000, 0.002),
            "plain": [Headers(), Role(), Delta("so "), Gate("plain"), *answer("far")[2:]],
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    data = tmp_path_factory.mktemp("server")
    (data / "work").mkdir()
    config = AGENTS.format(folder=data / "work")
    async with Server(data, [provider(up.base_url, models=None)], config=config) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def api(server):
    async with server.client() as client:
        yield Native(client)


@pytest.fixture
def shell(server, tmp_path):
    return Shell(tmp_path, {**here(server), "NO_COLOR": "1"})


@pytest.fixture
def ran(server):
    """The file that tells how often the worker's command has run."""
    ran = server.data / "work" / "ran"
    ran.unlink(missing_ok=True)
    return ran


async def test_a_call_is_asked_for_in_the_terminal_and_runs_when_it_is_allowed(shell, ran):
    """Nothing has happened when the question stands there; what is not understood is asked again."""
    async with Terminal(shell, "chat", "--agent", "worker") as terminal:
        await terminal.says("Go\r")
        await terminal.shows("I will.")
        await terminal.shows('→ shell {"command": "echo ran >> ran"}')
        await terminal.shows("Allow shell?")
        await terminal.shows("o + reason: ")
        assert not ran.exists()
        terminal.type("what?\r")
        await terminal.shows("o + reason: ")
        assert not ran.exists()
        terminal.type("y\r")
        await terminal.shows("allowed")
        await terminal.shows("✓ shell ")
        await terminal.shows("Done.")
        await terminal.says("\x04")

        assert 0 == await terminal.ended()
    assert "ran\n" == ran.read_text()


@requirement("safe.whole-call")
async def test_a_call_can_be_allowed_only_when_all_of_it_was_on_the_screen(shell, ran):
    """A call was cut at 400 characters, and the rest ran unseen. Characters that hide or turn a text are shown."""
    async with Terminal(shell, "run", "Go", "--agent", "long") as terminal:
        for _ in range(2):
            await terminal.shows("more parts. ")
            await terminal.shows("o + reason: ")
            terminal.type("y\r")
        await terminal.shows("1 more part. ")
        await terminal.shows("o + reason: ")
        terminal.type("\r")
        await terminal.shows("[a]lways")
        assert not ran.exists()
        before = terminal.screen
        terminal.type("y\r")
        await terminal.shows("Done.")
        assert 0 == await terminal.ended()

    lines = [line.removeprefix("  │ ") for line in before.split("\r\n") if line.startswith("  │ ")]
    whole = "".join(line.removesuffix("\\n") + "\n" * line.endswith("\\n") for line in lines)
    assert "\u200b" not in before
    assert f'"command": {json.dumps(LONG, ensure_ascii=True)}'.replace("\\n", "\n") in whole
    assert "ran\n" == ran.read_text()


async def test_a_call_that_is_denied_does_not_run_and_the_model_is_told_why(shell, up, ran):
    """`n` and the reason, in one line."""
    async with Terminal(shell, "run", "Go", "-m", "agent/worker") as terminal:
        await terminal.shows("o + reason: ")
        terminal.type("n not on a Friday\r")
        await terminal.shows("denied: not on a Friday")
        await terminal.shows("✗ shell")
        await terminal.shows("Done.")

        assert 0 == await terminal.ended()
    assert not ran.exists()
    told = up.requests[-1].body["messages"][-1]
    assert ("tool", True) == (told["role"], "not on a Friday" in told["content"])


async def test_allowed_for_the_session_is_not_asked_again_in_it(shell, ran):
    """`s`: the second time it just runs."""
    async with Terminal(shell, "chat", "--agent", "worker") as terminal:
        await terminal.says("Go\r")
        await terminal.shows("o + reason: ")
        terminal.type("s\r")
        await terminal.shows("Done.")
        await terminal.says("Go on\r")
        await terminal.shows("Done.")
        await terminal.says("\x04")
        assert 0 == await terminal.ended()

    assert 1 == terminal.screen.count("Allow shell?")
    assert "ran\nran\n" == ran.read_text()


async def test_calls_side_by_side_are_asked_for_one_after_the_other(shell):
    """An answer is for the question that stands there, never for two."""
    async with Terminal(shell, "run", "Go", "--agent", "pair") as terminal:
        await terminal.shows("o + reason: ")
        assert 1 == terminal.screen.count("Allow shell?")
        terminal.type("y\r")
        await terminal.shows("Allow shell?")
        await terminal.shows("o + reason: ")
        terminal.type("n\r")
        await terminal.shows("Done.")
        assert 0 == await terminal.ended()

    assert (1, 1) == (terminal.screen.count("✓ shell"), terminal.screen.count("✗ shell"))


async def test_an_answer_from_elsewhere_takes_the_question_away(shell, api, ran):
    """The browser was quicker: the terminal says so and goes on."""
    async with Terminal(shell, "chat", "--agent", "worker") as terminal:
        await terminal.says("Go\r")
        await terminal.shows("o + reason: ")
        run = (await api.get("/api/runs?status=running"))["runs"][0]["id"]
        frames = await api.events(run)
        while (frame := await frames.next_event()).event != "approval.requested":
            pass
        frames.close()
        await api.client.post(f"/api/runs/{run}/approvals/{frame.json()['id']}", {"decision": "allow"})
        await terminal.shows("allowed")
        await terminal.shows("Done.")


async def test_ctrl_c_at_the_question_stops_the_run_and_nothing_runs(shell, api, ran):
    """The prompt comes back."""
    async with Terminal(shell, "chat", "--agent", "worker") as terminal:
        await terminal.says("Go\r")
        await terminal.shows("o + reason: ")
        terminal.type("\x03")
        await terminal.shows("Stopped.")
        await terminal.says("\x04")
        await terminal.shows("holdfast chat -s ")
        assert 0 == await terminal.ended()
    assert not ran.exists()


async def test_a_line_typed_while_the_agent_works_reaches_it(shell, up, api):
    """And it is on the screen, with the failed call before it and its duration."""
    async with Terminal(shell, "chat", "--agent", "free") as terminal:
        await terminal.says("Go\r")
        await terminal.shows("✗ shell ")
        await terminal.shows("s: [ended with status 3]")
        await up.reached("free")
        terminal.type("/models\r")
        await terminal.shows("Commands are not available while the agent is running.")
        terminal.type("Use metres.\r")
        await terminal.shows("» Use metres.")
        up.open("free")
        await terminal.shows("Over.")
        await terminal.shows("In m.")
        await terminal.says("\x04")
        await terminal.shows("Continue with: holdfast chat")
        assert 0 == await terminal.ended()

    assert re.search(r"✗ shell [\d.]+ m?s: \[ended with status 3\]", terminal.screen)
    assert {"role": "user", "content": "Use metres."} == up.requests[-1].body["messages"][-1]


async def test_a_line_typed_while_a_chat_answers_is_the_next_message(shell, up, api):
    """Only agents take messages while they run; nothing that was typed is lost."""
    async with Terminal(shell, "chat", "-m", "up/plain") as terminal:
        await terminal.says("Go\r")
        await terminal.shows("so")
        await up.reached("plain")
        terminal.type("And more\r")
        await terminal.shows("And more")  # the terminal has it
        up.open("plain")
        await terminal.shows("far")
        await terminal.shows("far")
        await terminal.says("\x04")
        await terminal.shows("Continue with: holdfast chat")
        assert 0 == await terminal.ended()

    said = await api.transcript(await whole_session(api, terminal.screen))
    assert ["Go", "And more"] == [text for role, text in said if role == "user"]


@requirement("agent.edited-calls")
async def test_a_call_runs_with_the_arguments_that_were_typed_for_it(shell, ran):
    """What is no JSON, or does not fit, costs nothing: the question stays."""
    async with Terminal(shell, "run", "Go", "--agent", "worker") as terminal:
        await terminal.shows("o + reason: ")
        terminal.type("e echo\r")
        await terminal.shows("o + reason: ")
        terminal.type('e {"line": "echo"}\r')
        await terminal.shows("do not fit")
        await terminal.shows("o + reason: ")
        assert not ran.exists()
        terminal.type('e {"command": "echo changed > ran"}\r')
        await terminal.shows("allowed")
        await terminal.shows("Done.")
        assert 0 == await terminal.ended()

    assert "changed\n" == ran.read_text()


@requirement("agent.grants")
async def test_a_beginning_is_allowed_in_the_terminal_listed_and_revoked(shell, ran):
    """The same command is not asked for again, until it is revoked."""
    async with Terminal(shell, "run", "Go", "--agent", "plain") as terminal:
        await terminal.shows('[b]egins with "touch ran"')
        terminal.type("b\r")
        await terminal.shows("Done.")
        assert 0 == await terminal.ended()
    again = await shell("run", "Go", "--agent", "plain")
    listed = await shell("grants", "ls", "--json")
    (grant,) = [each for each in json.loads(listed.out) if each["agent"] == "plain"]
    removed = await shell("grants", "rm", grant["id"][:14])
    last = await shell("run", "Go", "--agent", "plain")

    assert (0, 5) == (again.code, last.code)
    assert ("shell", "touch ran") == (grant["tool"], grant["beginning"])
    assert (0, 0) == (listed.code, removed.code)
    assert grant["id"] in removed.err


@requirement("agent.ask-user")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("2", "blue"),
        ("a dark green", "a dark green"),
        ("/decline Not now.", "The user declined to answer. Not now."),
        ("/dismiss", "The user has not answered."),
    ],
)
async def test_a_question_of_the_agent_is_answered_in_the_terminal(shell, up, line, told):
    """By its number, or in one's own words."""
    async with Terminal(shell, "run", "Go", "--agent", "asker") as terminal:
        await terminal.shows("ask_user asks: Which colour?")
        await terminal.shows("2. blue")
        await terminal.shows("/dismiss: ")
        terminal.type(f"{line}\r")
        await terminal.shows("Done.")
        assert 0 == await terminal.ended()

    assert told == up.requests[-1].body["messages"][-1]["content"]


@requirement("agent.ask-user")
async def test_a_question_of_the_agent_is_declined_where_nobody_can_answer(shell, up):
    """The run goes on: the model knows that nobody is there."""
    shown = await shell("run", "Go", "--agent", "asker")

    assert (0, "Done.\n") == (shown.code, shown.out)
    assert "nobody is there to ask" in up.requests[-1].body["messages"][-1]["content"]


@requirement("crash.effects")
@pytest.mark.parametrize(
    ("line", "said", "times"), [("r", "it ran", 1), ("a", "run again", 2), ("s no", "skipped: no", 1)]
)
async def test_a_call_that_a_kill_has_interrupted_is_asked_about_in_the_terminal(tmp_path, line, said, times):
    """With what it was, when it began and what it had printed."""
    folder = tmp_path / "work"
    folder.mkdir()
    async with Server(tmp_path / "data", config=interrupted.AGENT.format(folder=folder)) as server:
        async with server.client() as client:
            api = Native(client)
            session = await api.new_session()
            await interrupted.hangs(api, await api.start(session, interrupted.ASKED, "agent/lasting"))
        await server.kill9()
        await server.restart()
        shell = Shell(tmp_path, {**here(server), "NO_COLOR": "1"})
        async with Terminal(shell, "chat", "-s", session) as terminal:
            await terminal.shows("The server ended while shell was running. It may have run.")
            await terminal.shows("echo ran >> ran")
            await terminal.shows("Its output until then:")
            await terminal.shows("half")
            await terminal.shows("it [r]an, run it [a]gain, [s]kip + reason: ")
            terminal.type(f"{line}\r")
            await terminal.shows(said)
            await terminal.shows("Done.")
            await terminal.says("\x04")
            assert 0 == await terminal.ended()
    assert "ran\n" * times == (folder / "ran").read_text()


@pytest.mark.parametrize("stdin", ["", "Go\n"])
async def test_where_nobody_can_allow_a_call_the_run_ends_with_a_code_of_its_own(shell, ran, stdin):
    """A script neither hangs for a day nor takes what was not done for done."""
    shown = await (
        shell("chat", "--agent", "worker", stdin=stdin) if stdin else shell("run", "Go", "--agent", "worker")
    )

    assert (5, "I will. \n") == (shown.code, shown.out)
    assert "Stopped: shell needs approval, and this is not a terminal. Use --approve shell to allow it." in shown.err
    assert "--approve shell" in shown.err
    assert not ran.exists()


@pytest.mark.parametrize("tools", ["shell", "files_write,shell"])
async def test_what_is_approved_beforehand_runs_without_a_question(shell, ran, tools):
    """In a pipe the answer alone is on the output."""
    shown = await shell("run", "Go", "--agent", "worker", "--approve", tools)

    assert (0, "I will. Done.\n") == (shown.code, shown.out)
    assert "→ shell" in shown.err
    assert "✓ shell" in shown.err
    assert "ran\n" == ran.read_text()


async def test_a_budget_says_which_when_it_ends_a_run(shell):
    """And the exit code is that of a stopped run."""
    shown = await shell("run", "Go", "--agent", "poor")

    assert 4 == shown.code
    assert re.search(r"The run has used about \d+ tokens; it may use 40\.", shown.err)
    assert "Stopped: by budget. The partial response was saved." in shown.err


async def test_running_out_of_steps_says_so(shell):
    """It can be continued."""
    shown = await shell("run", "Go", "--agent", "brief")

    assert 3 == shown.code
    assert "The agent has used its 1 steps and is not done. It can be continued." in shown.err


async def test_an_agent_and_a_model_are_not_both_asked(shell):
    """A wrong command line, before anything is started."""
    shown = await shell("run", "Go", "--agent", "worker", "-m", "up/plain")

    assert 2 == shown.code
    assert "not both" in shown.err


async def test_an_agent_that_is_not_there_is_named(shell):
    """A wrong name is told at once."""
    shown = await shell("run", "Go", "--agent", "nobody")

    assert 1 == shown.code
    assert "agent/nobody" in shown.err
