"""`holdfast compare` as a person and a script use it: side by side on a terminal, in a pipe, and over a set."""

import asyncio
import csv
import io
import json
import re
import signal

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, Terminal, ended, here
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server, config_text, provider
from tests.support.upstream import Delta, Gate, Hang, Headers, Role, Status, Upstream, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTED = '[[providers]]\nname = "scripted"\ndialect = "scripted"\n'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream(answer("It is 42.")) as up:
        up.models |= {
            "a": answer("It is 42."),
            "b": answer("I think it is 41."),
            "held": [Gate("held"), *answer("It is 42.")],
            "refusing": [Status(400)],
            "slow": [Gate("slow"), *answer("late")],
            "cut": answer("and so on", finish="length"),
            "hanging": [Headers(), Role(), Delta("so far"), Hang()],
            "rude": answer("\x1b]0;owned\x07red"),
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    async with Server(tmp_path_factory.mktemp("server"), [provider(up.base_url, models=None)]) as server:
        yield server


@pytest.fixture
def shell(server, tmp_path):
    """A shell for which the server is the one on this machine."""
    return Shell(tmp_path, here(server))


@pytest.fixture
def alone(tmp_path, up):
    """A shell on a machine without a server."""
    (tmp_path / "holdfast.toml").write_text(config_text(SCRIPTED, [provider(up.base_url, models=["held"])]))
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port()), "HOLDFAST_CONFIG": str(tmp_path / "holdfast.toml")})


@pytest_asyncio.fixture(loop_scope="module")
async def api(server):
    async with server.client() as client:
        yield Native(client)


def write_set(shell, prompts, name="prompts.jsonl"):
    lines = [prompt if isinstance(prompt, str) else json.dumps(prompt) for prompt in prompts]
    (shell.home / name).write_text("\n".join(lines) + "\n")
    return name


def questions(count):
    return [{"prompt": f"Question {number}?", "expected": "42", "id": f"q{number}"} for number in range(count)]


# a set


async def test_a_set_is_asked_and_reported(shell):
    """The table of a script: one line for each model, and a page, and every answer."""
    file = write_set(shell, questions(5))
    command = ["compare", "--set", file, "-m", "up/a", "-m", "up/b", "--report", "r.html", "--responses", "a.jsonl"]
    told = await shell(*command)

    assert 0 == told.code, told.err
    rows = [line.split("\t") for line in told.out.splitlines()]
    assert [["up/a", "5", "0", "0", "5/5"], ["up/b", "5", "0", "0", "0/5"]] == [row[:5] for row in rows[1:]]
    assert "10 of 10 answered" in told.err
    answers = [json.loads(line) for line in (shell.home / "a.jsonl").read_text().splitlines()]
    assert [(1, "up/a", True), (1, "up/b", False)] == [(a["number"], a["model"], a["right"]) for a in answers[:2]]
    assert 10 == len(answers)
    assert "80%" not in (page := (shell.home / "r.html").read_text())
    assert "100%" in page


async def test_a_set_with_failures_is_no_success(shell):
    """A script that only looks at the exit code must learn of it; CSV goes to the output, and nothing else does."""
    file = write_set(shell, questions(2))
    told = await shell("compare", "--set", file, "-m", "up/a", "-m", "up/refusing", "--csv")

    assert 1 == told.code
    rows = list(csv.DictReader(io.StringIO(told.out)))
    shown = [(row["model"], row["outcomes_failed"], row["agreement_right"]) for row in rows]
    assert [("up/a", "0", "2"), ("up/refusing", "2", "0")] == shown


async def test_ctrl_c_stops_a_set_and_the_same_command_goes_on_with_it(shell, up, api):
    """What was answered is not asked again, and the report of what there is is written all the same."""
    up.shut("held")
    file = write_set(shell, questions(4))
    command = ["compare", "--set", file, "-m", "up/held", "-m", "up/a", "--concurrency", "8", "--report", "r.html"]
    async with shell.start(*command) as process:
        await up.reached("held")
        async with asyncio.timeout(LONG):
            while not (listed := (await api.get("/api/batches"))["data"]) or listed[0]["progress"]["done"] < 4:  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stopped = await ended(process)
    batch_id = listed[0]["id"]

    assert 4 == stopped.code
    assert f"holdfast compare --resume {batch_id}" in stopped.err
    assert (shell.home / "r.html").exists()
    asked = len([request for request in up.requests if request.model == "a"])
    up.open("held")

    again = await shell(*command)

    assert 0 == again.code, again.err
    assert f"Continuing {batch_id}: 4 responses so far." in again.err
    assert "up/held\t4\t0\t0\t4/4" in again.out
    assert asked == len([request for request in up.requests if request.model == "a"])
    resumed = await shell("compare", "--resume", batch_id)
    assert again.out == resumed.out


async def test_a_killed_command_with_a_server_of_its_own_goes_on_where_it_was(alone, up):
    """`kill -9` of the only process there is: the data folder has what was answered."""
    up.shut("held")
    file = write_set(alone, [f'{{"prompt": "{"word " * 40}{number}"}}' for number in range(40)])
    command = ["compare", "--set", file, "-m", "scripted/echo", "-m", "up/held", "--concurrency", "8", "--json"]
    async with alone.start(*command) as process:
        assert process.stderr is not None
        async with asyncio.timeout(LONG):
            while b" of 80 answered" not in (line := await process.stderr.readline()) or line.startswith(b"0 of"):
                assert line
        process.kill()
        await process.wait()
    up.open("held")

    told = await alone(*command)

    assert 0 == told.code, told.err
    report = json.loads(told.out)
    assert [40, 40] == [model["outcomes"]["completed"] for model in report["models"]]
    assert int(re.search(r": (\d+) responses so far", told.err)[1]) > 0


async def test_a_person_sees_a_bar(shell):
    """On a terminal a bar, and the numbers as a table."""
    file = write_set(shell, questions(3))
    async with Terminal(shell, "compare", "--set", file, "-m", "up/a") as terminal:
        await terminal.shows("3/3")
        assert 0 == await terminal.ended()
    assert "model" in terminal.screen


# one prompt


async def test_answers_come_one_after_the_other_in_a_pipe(shell, up, api):
    """Each whole, under its name, in the order in which the models were named; the numbers stand aside."""
    up.shut("slow")
    async with shell.start("compare", "What", "is", "it?", "-m", "up/slow", "-m", "up/a") as process:
        await up.reached("slow")
        async with asyncio.timeout(LONG):
            while "settled" != (await api.get("/api/comparisons"))["data"][0]["panes"][1]["status"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        up.open("slow")
        told = await ended(process)

    assert (0, "== A  up/slow\n\nlate\n\n== B  up/a\n\nIt is 42.\n\n") == (told.code, told.out)
    assert re.search(r"B +up/a +completed .*\(fastest\)", told.err)


async def test_the_worst_pane_is_the_exit_code(shell):
    """A failure beside three answers is a failure, and it says which."""
    told = await shell("compare", "?", "-m", "up/a", "-m", "up/refusing", "-m", "up/cut", "--sequential", "--json")
    comparison = json.loads(told.out)

    assert 1 == told.code
    outcomes = [pane["settlement"]["outcome"] for pane in comparison["panes"]]
    assert ["completed", "failed", "truncated"] == outcomes
    assert "sequential" == comparison["order"]


async def test_panes_are_side_by_side_and_a_blind_vote_reveals(shell):
    """No name is on the screen before the vote; then both are, and the vote counts."""
    async with Terminal(shell, "compare", "--blind", "What is it?", "-m", "up/a", "-m", "up/b") as terminal:
        await terminal.shows("Which is best?")
        before = terminal.screen
        terminal.type("x\n")
        await terminal.shows("Unknown choice")
        terminal.type("B\n")
        await terminal.shows("best")
        assert 0 == await terminal.ended()

    assert "It is 42." in before
    assert "I think it is 41." in before
    assert "up/" not in before
    assert "up/a" in terminal.screen
    assert "up/b" in terminal.screen


async def test_ctrl_c_at_the_vote_reveals_without_one(shell):
    """Who would rather not say is not held, and sees who it was."""
    async with Terminal(shell, "compare", "--blind", "What is it?", "-m", "up/a") as terminal:
        await terminal.shows("without a vote: ")
        terminal.type("\x03")
        await terminal.shows("up/a")
        assert 0 == await terminal.ended()

    # From the last of them on: what is asked may be drawn twice where the key comes while it is being drawn.
    assert "best" not in terminal.screen.rpartition("without a vote: ")[2]


async def test_ctrl_c_stops_every_pane_and_keeps_what_there_is(shell, up):
    """One key for all of them; what was said stays on the screen, and the upstreams are closed."""
    before = len(up.requests)
    async with Terminal(shell, "compare", "?", "-m", "up/a", "-m", "up/hanging") as terminal:
        await terminal.shows("so far")
        await terminal.shows("completed")
        terminal.type("\x03")
        assert 4 == await terminal.ended()

    assert "stopped" in terminal.screen
    [hanging] = [request for request in up.requests[before:] if request.model == "hanging"]
    await hanging.wait_closed()


async def test_what_a_model_says_does_not_command_the_terminal(shell):
    """Escape codes are taken out where a person looks."""
    async with Terminal(shell, "compare", "?", "-m", "up/rude") as terminal:
        assert 0 == await terminal.ended()

    assert "]0;owned" in terminal.screen
    assert "\x1b]0;owned" not in terminal.screen
