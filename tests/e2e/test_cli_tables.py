"""Lists of the command line: on a wide and a narrow terminal, in a pipe, as JSON; and ids that a person shortened."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, Terminal, here
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTED = {"name": "scripted", "dialect": "scripted"}
LONG = "What is the meaning of all this, and of everything else? Tell me at length."
KEYS = '[[keys]]\nname = "ada"\nkey_env = "ADA"\nadmin = true\n[[keys]]\nname = "bob"\nkey_env = "BOB"\n'
ADA, BOB = "key-of-ada-0123456789", "key-of-bob-9876543210"
ISO = r"2\d{3}-\d\d-\d\dT[\d:.]+Z"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    env = {"ADA": ADA, "BOB": BOB}
    async with Server(tmp_path_factory.mktemp("tables"), [SCRIPTED], config=KEYS, env=env) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(server):
    async with server.client(authorization=f"Bearer {ADA}") as client:
        yield Native(client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(ada) -> dict[str, str]:
    """Three runs of Ada's in two sessions: one completed, one failed, one cut off."""
    first, second = await ada.new_session(title=LONG), await ada.new_session(title="Short")
    runs = [
        await ada.start(first, LONG, "scripted/echo"),
        await ada.start(second, "one two three", "scripted/fail"),
    ]
    for run in runs:
        await ada.settled(run)
    runs.append(await ada.start(second, "one two three", "scripted/length"))
    await ada.settled(runs[-1])
    return {"first": first, "second": second, "completed": runs[0], "failed": runs[1], "truncated": runs[2]}


@pytest.fixture
def shell(server, tmp_path):
    return Shell(tmp_path, {**here(server), "HOLDFAST_CLIENT_KEY": ADA})


def of_bob(shell: Shell) -> Shell:
    return Shell(shell.home, {**shell.env, "HOLDFAST_CLIENT_KEY": BOB})


async def screen(shell: Shell, width: int, *command: str) -> list[str]:
    """What a command shows on a terminal of that width, line by line, without colours."""
    async with Terminal(shell, *command, COLUMNS=str(width)) as terminal:
        assert 0 == await terminal.ended()
    return [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", terminal.screen).split("\r\n")][:-1]


SHORT = 20
"""Characters of an id that a person types. The first 14 are its type and its time: ids of the same 4 ms share them."""


def row_of(run: str, lines: Sequence[str]) -> int:
    """Return the line that shows a run, under the beginning of its id: at least 14 characters, and unique."""
    return next(at for at, line in enumerate(lines) if line[:14] == run[:14] and run.startswith(line.split("  ")[0]))


def columns(lines: Sequence[str]) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in lines]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("command", [["runs", "ls"], ["sessions", "ls"], ["models"]])
@pytest.mark.parametrize("width", [80, 44])
async def test_no_line_of_a_list_is_wider_than_the_terminal(shell, command, width):
    """A line that wraps is read as two."""
    lines = await screen(shell, width, *command)

    assert len(lines) > 2
    assert [] == [line for line in lines if len(line) > width]


async def test_at_80_columns_a_run_is_one_line_with_its_outcome_and_reason(shell, made):
    """The states were cut to three letters, and each run took eight lines."""
    lines = await screen(shell, 80, "runs", "ls")
    rows = columns(lines)
    shown = {outcome: rows[row_of(made[outcome], lines)] for outcome in ("truncated", "failed", "completed")}

    assert ["RUN", "STATE", "STARTED", "MODEL", "TEXT"] == rows[0]
    assert {outcome: outcome for outcome in shown} == {outcome: row[1] for outcome, row in shown.items()}
    assert ["scripted/length", "token limit reached · o"] == [shown["truncated"][3], shown["truncated"][4][:23]]
    assert "scripted/fail" == shown["failed"][3]
    assert LONG.startswith(shown["completed"][4].removesuffix("…").rstrip())


async def test_at_44_columns_a_run_is_two_lines_and_nothing_of_its_state_is_cut(shell, made):
    """A phone, or a pane beside an editor."""
    lines = await screen(shell, 44, "runs", "ls")

    at = row_of(made["failed"], lines)
    assert ["RUN", "STATE", "STARTED"] == columns(lines)[0]
    assert re.fullmatch(r"run_\w{10,}  failed     \d+ (s|min) ago", lines[at])
    assert lines[at + 1].startswith("    scripted/fail · This model fails")


async def test_a_pipe_gets_a_header_whole_ids_and_iso_times(shell, made):
    """For cut, awk and sort."""
    runs = await shell("runs", "ls")
    sessions = await shell("sessions", "ls")

    assert "run\tstate\tstarted\tmodel\ttext\treason\tquestion\tchat" == runs.out.split("\n")[0]
    reason = r"This model fails on purpose\.\tone two three\t[^\t]+"
    failed = rf"^{made['failed']}\tfailed\t{ISO}\tscripted/fail\tone( two)?\t{reason}$"
    assert re.search(failed, runs.out, re.MULTILINE)
    assert "session\tchanged\ttitle\tstate\tfolder\ttags\tarchived" == sessions.out.split("\n")[0]
    assert re.search(rf"^{made['first']}\t{ISO}\tWhat is the meaning.*\t\t\t\t$", sessions.out, re.MULTILINE)
    assert "model\tdefault\tdemo" == (await shell("models")).out.split("\n")[0]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (["runs", "ls"], {"id", "settlement", "created_at"}),
        (["sessions", "ls"], {"id", "title", "updated_at"}),
        (["models"], {"id", "default", "demo"}),
        (["config", "show"], {"setting", "value", "source"}),
    ],
)
async def test_every_list_can_be_had_as_json(shell, command, fields):
    """On a terminal too: it is for a program."""
    listed = json.loads((await shell(*command, "--json")).out)

    assert isinstance(listed, list)
    assert fields <= listed[0].keys()


async def test_keys_are_listed_as_json_without_the_keys(shell, server):
    """The digest of a key is nobody's business either."""
    key = (await shell("key", "new", "laptop", "--data", str(server.data))).out.strip()
    listed = await shell("key", "ls", "--json", "--data", str(server.data))

    assert [("laptop", False)] == [(each["name"], each["admin"]) for each in json.loads(listed.out)]
    assert re.fullmatch(ISO, json.loads(listed.out)[0]["created_at"])
    assert key not in listed.out


@pytest.mark.parametrize("command", [[], ["run", "--help"], ["runs", "--help"], ["backup", "--help"]])
async def test_help_fits_80_columns(shell, command):
    """The examples wrapped in the middle of words."""
    lines = await screen(shell, 80, *command)

    assert [] == [line for line in lines if len(line) > 80]


# ids


@requirement("cli.short-ids")
async def test_every_command_takes_the_beginning_of_an_id(shell, made, ada):
    """As git does: forty characters are for programs. The type may be left out."""
    run, session = made["completed"], made["first"]
    for given in (run[:SHORT], run[4:SHORT], run):
        assert run == json.loads((await shell("runs", "show", given)).out)["id"]
    tailed = await shell("runs", "tail", run[:SHORT])
    stopped = await shell("runs", "stop", run[:SHORT])
    exported = await shell("sessions", "export", session[:SHORT])
    said = await shell("run", "-s", session[:SHORT], "again", "--json")
    chatted = await shell("chat", "-s", session[:SHORT], stdin="")
    removed = await shell("sessions", "rm", "-y", (await ada.new_session())[:SHORT])

    assert (0, f"{LONG}\n") == (tailed.code, tailed.out)
    assert stopped.out.startswith(run)
    assert session == json.loads(exported.out)["id"] == json.loads(said.out)["session_id"]
    assert 0 == chatted.code
    assert re.fullmatch(r"ses_\w{36} deleted\n", removed.out)


@requirement("cli.short-ids")
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "command", [["runs", "show", "run_"], ["runs", "stop", "0"], ["sessions", "rm", "-y", "ses_0"]]
)
async def test_an_ambiguous_id_is_refused_with_the_candidates(shell, ada, command):
    """Nothing is done to any of them."""
    before = await ada.get("/api/sessions")
    shown = await shell(*command)

    assert (1, "") == (shown.code, shown.out)
    assert re.match(r"Error: The (run|session) id '\w+' is ambiguous\. The candidates are:\n", shown.err)
    assert 2 <= len(re.findall(r"^  (?:run|ses)_\w{10,}  \d+ (?:s|min) ago  \S", shown.err, re.MULTILINE))
    assert before == await ada.get("/api/sessions")


@requirement("cli.short-ids")
async def test_the_beginning_of_anothers_id_leads_nowhere(shell, made):
    """Else anybody could find out ids, character by character."""
    bob = of_bob(shell)
    shown = [
        await bob("runs", "show", made["completed"][:SHORT]),
        await bob("runs", "stop", "run_"),
        await bob("sessions", "rm", "-y", made["first"][:SHORT]),
        await bob("chat", "-s", made["first"][:SHORT], stdin=""),
    ]

    assert [(1, "")] * 4 == [(each.code, each.out) for each in shown]
    no_run = f"Error: No run '{made['completed'][:SHORT]}'. See `holdfast runs ls`."
    no_session = f"Error: No session '{made['first'][:SHORT]}'. See `holdfast sessions ls`."
    assert f"{no_run} (holdfast explain run_not_found)\n" == shown[0].err
    assert f"{no_session} (holdfast explain session_not_found)\n" == shown[2].err


# completion


async def completed(shell: Shell, words: str) -> list[str]:
    """What bash is offered after these words."""
    code = "from holdfast.cli import main; main(prog_name='holdfast')"
    env = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), stdout=PIPE, env=shell.env | env, cwd=shell.home
    )
    out, _ = await process.communicate()
    return [line.partition(",")[2] for line in out.decode().splitlines() if line]


async def test_the_shell_completes_models_runs_and_sessions(shell, made, tmp_path):
    """Of the server that runs; of the settings without one. Another's runs are not offered."""
    models = await completed(shell, "holdfast chat -m scripted/le")
    runs = await completed(shell, f"holdfast runs tail {made['failed'][:12]}")
    sessions = await completed(shell, "holdfast chat -s ")
    of_others = await completed(of_bob(shell), "holdfast runs stop ")
    alone = Shell(tmp_path, {"HOLDFAST_PORT": "1"})
    without_server = await completed(alone, "holdfast run --model scripted/f")

    assert ["scripted/length"] == models
    assert any(made["failed"].startswith(offered) for offered in runs)
    assert all(any(made[name].startswith(offered) for offered in sessions) for name in ("first", "second"))
    assert [] == of_others
    assert ["scripted/fail"] == without_server
    assert not (tmp_path / "data").exists(), "a key press must leave nothing behind"


@pytest.mark.parametrize("flag", ["-V", "--version"])
async def test_the_version_is_printed(shell, flag):
    """`-V`, as Python has it."""
    assert re.fullmatch(r"holdfast, version [\d.]+\n", (await shell(flag)).out)
