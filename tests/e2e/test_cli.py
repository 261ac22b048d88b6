"""The command line as a person and a script use it: the real command in its own process, also on a terminal."""

import asyncio
import codecs
import fcntl
import json
import os
import pty
import re
import signal
import socket
import sys
import termios
import tomllib
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.exports import chatgpt
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import UP_KEY, Server, clean_environment, link_target, provider
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    ReasoningDelta,
    Role,
    Upstream,
    UsageChunk,
    answer,
    tokens,
)
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ESCAPE = "\x1b"
EDITOR_IS_OPEN = "\x1b[?2004h"
"""The chat's editor asks the terminal to mark what is pasted, each time it opens."""
EDITOR_IS_CLOSED = "\x1b[?2004l"
SCRIPTED = {"name": "scripted", "dialect": "scripted"}


class Ended(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


class Shell:
    """Runs `holdfast …` in a home of its own."""

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        self.home = home
        self.env = clean_environment() | {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
            "HOLDFAST_OFFLINE": "1",
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm",
            "COLUMNS": "80",
            **env,
        }

    def settings(self, text: str) -> Path:
        """Write the user's settings file."""
        file = self.home / "config" / "holdfast" / "holdfast.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    @asynccontextmanager
    async def start(
        self, *args: str, stdin: int = DEVNULL, folder: Path | None = None, **env: str
    ) -> AsyncGenerator[Process]:
        """The command, in a folder or at home, until the block is left."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", *args),
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
            env=self.env | env,
            cwd=folder or self.home,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def __call__(self, *args: str, stdin: str = "", folder: Path | None = None, **env: str) -> Ended:
        """The command to its end."""
        async with self.start(*args, stdin=PIPE, folder=folder, **env) as process:
            return await ended(process, stdin)


async def ended(process: Process, stdin: str = "") -> Ended:
    """Wait for the end of a command; nothing in it may have come as a surprise."""
    async with asyncio.timeout(LONG):
        out, err = await process.communicate(stdin.encode() if process.stdin else None)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Ended(process.returncode, out.decode(), err.decode())


async def whole_session(api: Native, screen: str) -> str:
    """The id of the session that was last named on a screen, where it is short."""
    short = re.findall(r"ses_\w+", screen)[-1]
    (found,) = (await api.get(f"/api/sessions?prefix={short}"))["sessions"]
    return str(found["id"])


async def printed(process: Process, text: str) -> None:
    """Wait until a command has printed exactly this."""
    assert process.stdout is not None
    async with asyncio.timeout(LONG):
        assert text == (await process.stdout.readexactly(len(text.encode()))).decode()


CONTROLLED = (
    "import ctypes, fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "sys.platform == 'linux' and ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A command on a terminal: what is on the screen, and a keyboard."""

    def __init__(self, shell: Shell, *args: str, **env: str) -> None:
        self._command = [sys.executable, "-I", "-S", "-c", CONTROLLED, sys.executable, "-m", "holdfast", *args]
        self._shell = shell
        self._env = shell.env | env
        self._seen = 0
        self._more = asyncio.Event()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.screen = ""

    async def __aenter__(self) -> "Terminal":
        self._keyboard, screen = pty.openpty()
        self.name = os.ttyname(screen)
        termios.tcsetwinsize(screen, (24, 80))
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env=self._env,
            cwd=self._shell.home,
            start_new_session=True,
        )
        os.close(screen)
        os.set_blocking(self._keyboard, False)
        asyncio.get_running_loop().add_reader(self._keyboard, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._keyboard)
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        os.close(self._keyboard)

    def _read(self) -> bool:
        """Take in what was printed, as much as a terminal gives at once. Return whether there was anything."""
        try:
            data = os.read(self._keyboard, 65536)
        except BlockingIOError:
            return False
        except OSError:  # the other side has closed it
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._keyboard)
        self.screen += self._decoder.decode(data)
        self._more.set()
        return bool(data)

    @property
    def pid(self) -> int:
        return self._process.pid

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    async def says(self, keys: str) -> None:
        """Type once the editor is open: what comes earlier is not read as a line is."""
        await self.shows(EDITOR_IS_OPEN)
        self.type(keys)

    @asynccontextmanager
    async def stuck(self, key: str) -> AsyncGenerator[None]:
        """A screen that shows nothing more: what answers to this key waits for it, until the block is left."""
        screen = os.open(self.name, os.O_RDWR | os.O_NOCTTY)
        try:
            termios.tcflow(screen, termios.TCOOFF)
            self.type(key)
            async with asyncio.timeout(LONG):
                while any(fcntl.ioctl(screen, termios.FIONREAD, bytes(4))):  # noqa: ASYNC110 - in another process
                    await asyncio.sleep(0.01)
            yield
        finally:
            termios.tcflow(screen, termios.TCOON)
            os.close(screen)

    async def interrupt(self) -> None:
        """Press Ctrl-C, and wait until its signal was taken: a second one before that would be taken for the same."""
        self.type("\x03")
        await self.shows("^C")  # a terminal shows it after it has sent the signal
        async with asyncio.timeout(LONG):
            while _is_pending(self.pid, signal.SIGINT):  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.01)

    async def shows(self, text: str) -> None:
        """Wait until this is on the screen, after what was last waited for."""
        try:
            async with asyncio.timeout(LONG):
                while (found := self.screen.find(text, self._seen)) < 0:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} did not come; the screen:\n{self.screen}") from None
        self._seen = found + len(text)

    async def ended(self) -> int:
        async with asyncio.timeout(LONG):
            code = await self._process.wait()
        while self._read():
            pass
        assert "Traceback" not in self.screen, self.screen
        return code


def _is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal was sent to a process that has not taken it."""
    pending = re.search(r"^ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return pending is not None and bool(int(pending[1], 16) & 1 << (number - 1))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    end = [Finish(), UsageChunk(), Done()]
    async with Upstream() as up:
        up.models |= {
            "gated": [Headers(), Role(), Delta("one "), Gate("cli"), Delta("two"), *end],
            "hanging": [Headers(), Role(), Delta("so far"), Hang()],
            "silent": [Hang()],
            "endless": tokens(100_000, 0.005),
            "thinking": [Headers(), Role(), ReasoningDelta("I [b]wonder[/b]."), Delta("The answer."), *end],
            "rude": answer("\x1b]0;owned\x07\x1b[31mred"),
            "wave": answer("Héllo 🌊"),
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    providers = [provider(up.base_url, models=None), SCRIPTED]
    config = 'default_model = "scripted/echo"'
    async with Server(tmp_path_factory.mktemp("server"), providers, config=config) as server:
        yield server


def here(server: Server) -> dict[str, str]:
    """The variables by which a command finds a server as its user's own."""
    return {"HOLDFAST_DATA": str(server.data), "HOLDFAST_PORT": str(server.port)}


@pytest.fixture
def shell(server, tmp_path):
    """A shell for which the server is the one on the data folder."""
    return Shell(tmp_path, here(server))


@pytest.fixture
def alone(tmp_path):
    """A shell on a machine without a server."""
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})


@pytest_asyncio.fixture(loop_scope="module")
async def api(server):
    async with server.client() as client:
        yield Native(client)


# help and completion


async def test_help_can_be_read_on_a_narrow_terminal(alone):
    """In two columns each line of a description had one word."""
    shown = await alone("run", "--help", COLUMNS="46")

    assert "  -s, --session TEXT\n    Continue this session (id or unique prefix).\n" in shown.out


@requirement("cli.drawn")
async def test_an_answer_on_a_terminal_is_wrapped_and_its_markdown_drawn(shell, up):
    """A pipe gets the answer as it is."""
    text = "A **hash join** reads both sides " + "of the tables " * 8 + "once."
    up.enqueue(answer(text), answer(text))
    async with Terminal(shell, "run", "Join", "-m", "up/m") as terminal:
        await terminal.shows("once.")
        assert 0 == await terminal.ended()
    piped = await shell("run", "Join", "-m", "up/m")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.screen)
    lines = plain.replace("\r", "").strip().splitlines()[:-1]  # the last one has the figures

    assert "\x1b[1mhash" in terminal.screen
    assert text.replace("**", "").split() == " ".join(lines).split()
    assert max(map(len, lines)) <= 80
    assert f"{text}\n" == piped.out


@requirement("cli.drawn")
async def test_figures_follow_a_response_on_a_terminal_and_plain_has_none(shell, up):
    """Tokens, seconds and the cost; with --plain and in a pipe there is the response alone, as it was written."""
    up.enqueue(*[answer("**Aye.**")] * 3)
    async with Terminal(shell, "run", "Join", "-m", "up/m") as terminal:
        await terminal.shows(" tokens")
        assert 0 == await terminal.ended()
    async with Terminal(shell, "run", "Join", "-m", "up/m", "--plain") as plain:
        await plain.shows("Aye.")
        assert 0 == await plain.ended()
    piped = await shell("run", "Join", "-m", "up/m")

    assert re.search(r"[\d,]+ tokens .*· .*[\d.]+ s", re.sub(r"\x1b\[[0-9;]*m", "", terminal.screen))
    assert "**Aye.**" == plain.screen.strip()
    assert ("**Aye.**\n", "") == (piped.out, piped.err)


async def test_without_arguments_it_shows_help_with_examples(alone):
    """The first thing that a newcomer types."""
    shown = await alone()

    assert 0 == shown.code
    assert "Examples:" in shown.out
    assert "holdfast runs tail RUN" in shown.out


async def test_the_shell_can_complete_commands(alone):
    """The line that the help gives for a shell's start-up file works."""
    code = "from holdfast.cli import main; main(prog_name='holdfast')"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), stdout=PIPE, env=alone.env | {"_HOLDFAST_COMPLETE": "bash_source"}
    )
    out, _ = await process.communicate()

    assert 0 == process.returncode
    assert b"_holdfast_completion()" in out


# run


async def test_run_prints_the_answer_and_nothing_else(shell):
    """Reasoning, notices and endings are not part of an answer that goes into a file."""
    assert Ended(0, "Why not?\n", "") == await shell("run", "Why", "not?", "-m", "scripted/think")


async def test_run_takes_a_pipe_after_the_prompt(shell):
    """`git diff | holdfast run "Review this"`."""
    assert Ended(0, "Review\n\n+ a\n- b\n", "") == await shell("run", "Review", stdin="+ a\n- b\n")


async def test_a_pipe_that_stays_open_is_waited_for_and_told_of(shell):
    """A program that starts another leaves its input open without meaning to, and saw nothing happen for ever."""
    async with shell.start("run", "Review", stdin=PIPE) as process:
        async with asyncio.timeout(LONG):
            told = await process.stderr.readline()
        shown = await ended(process, "+ a\n")

    assert b"Reading standard input until it ends. Use < /dev/null for none.\n" == told
    assert Ended(0, "Review\n\n+ a\n", "") == shown


@pytest.mark.parametrize(
    ("model", "code", "told"),
    [
        ("up/end:length", 3, "Truncated: token limit reached. The partial response was saved."),
        ("up/end:cut", 1, "Failed: "),
        ("up/end:empty", 1, "Failed: The model gave no response."),
        ("scripted/fail", 1, "Failed: This model fails on purpose. The partial response was saved."),
    ],
)
async def test_the_exit_code_tells_how_a_run_ended(shell, model, code, told):
    """A script must not take half an answer for a whole one."""
    shown = await shell("run", "one two", "-m", model)

    assert code == shown.code
    assert told in shown.err
    assert re.search(r"^See the run with: holdfast runs show run_\w{10}$", shown.err, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["run"], ["run", "x", "--nonsense"], ["runs", "ls", "-n", "0"], ["nonsense"]])
async def test_a_wrong_command_line_is_told_apart_from_a_failed_run(shell, arguments):
    """2, as everywhere."""
    shown = await shell(*arguments)

    assert (2, "") == (shown.code, shown.out)
    assert "Error: " in shown.err


async def test_run_can_print_the_whole_run_as_json(shell):
    """For scripts that want more than the text."""
    shown = await shell("run", "one two three", "-m", "scripted/length", "--json")

    run = json.loads(shown.out)
    assert (3, "") == (shown.code, shown.err)
    assert ("truncated", "one two ") == (run["settlement"]["outcome"], run["text"])


async def test_run_goes_on_with_a_session(shell, api):
    """`-s` names it, `-c` takes the latest."""
    session = json.loads((await shell("run", "first", "--json", "--keep", "--system", "Be brief.")).out)["session_id"]
    await shell("run", "-s", session[:14], "second")
    await shell("run", "-c", "third")

    assert "Be brief." == (await api.session(session))["system"]
    said = [text for role, text in await api.transcript(session) if role == "user"]
    assert ["first", "second", "third"] == said


async def test_an_unknown_model_leaves_no_session_behind(shell, api):
    """What could not be asked was not said."""
    before = await api.session_ids()
    shown = await shell("run", "hello", "-m", "nowhere/model")

    assert (1, "") == (shown.code, shown.out)
    assert "Error: Unknown model 'nowhere/model'" in shown.err
    assert before == await api.session_ids()


async def test_ctrl_c_stops_a_run_and_keeps_what_was_said(shell, api, up):
    """The run itself stops, not only the command; the session goes on from there."""
    async with shell.start("run", "go", "-m", "up/hanging", "--keep") as process:
        await printed(process, "so far")
        process.send_signal(signal.SIGINT)
        shown = await ended(process)

    assert (4, "\n") == (shown.code, shown.out)
    assert "Stopped. The partial response was saved.\nContinue with: holdfast chat -s ses_" in shown.err
    session = await whole_session(api, shown.err)
    assert [("user", "go"), ("partial", "so far")] == await api.transcript(session)
    await up.requests[-1].wait_closed()
    assert 0 == (await shell("run", "-s", session, "and on", "-m", "scripted/echo")).code


async def test_ctrl_c_before_the_first_word_stops_the_run_too(shell, up):
    """Nothing was printed yet, and the model already costs money."""
    up.forget()
    async with shell.start("run", "go", "-m", "up/silent") as process:
        request = await up.next_request(LONG)
        process.send_signal(signal.SIGINT)
        shown = await ended(process)

    assert (4, "") == (shown.code, shown.out)
    assert "Stopped." in shown.err
    await request.wait_closed()


async def test_a_reader_who_has_seen_enough_stops_the_run(shell, up):
    """`holdfast run … | head -1` neither prints a traceback nor goes on at the user's expense."""
    up.forget()
    async with shell.start("run", "go", "-m", "up/endless") as process:
        await printed(process, "t0 ")
        process._transport.get_pipe_transport(1).close()
        async with asyncio.timeout(LONG):
            err = await process.stderr.read()
            code = await process.wait()

    assert 4 == code
    assert re.fullmatch(rb"See the run with: holdfast runs show run_\w+\n", err)
    await up.requests[-1].wait_closed()


async def test_a_terminal_that_knows_no_unicode_shows_what_it_can(shell, api):
    """The prompt arrives whole, the answer is whole in the session."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = await shell("run", "grüße", "-m", "up/wave", "--keep", **ascii_only)

    assert Ended(0, "H?llo ?\n", "") == shown
    latest = (await api.get("/api/sessions?limit=1"))["sessions"][0]["id"]
    assert [("user", "grüße"), ("assistant", "Héllo 🌊")] == await api.transcript(latest)


async def test_bytes_that_are_no_text_are_replaced(shell):
    """A pipe can bring anything."""
    async with shell.start("run", "-m", "scripted/echo", stdin=PIPE) as process:
        out, err = await process.communicate(b"a\xffb")

    assert (0, "a\ufffdb\n", b"") == (process.returncode, out.decode(), err)


async def test_a_very_long_line_goes_in_and_out_whole(shell):
    """Nothing wraps, nothing cuts."""
    text = "x" * 200_000
    shown = await shell("run", stdin=text)

    assert (0, text + "\n") == (shown.code, shown.out)


# chat


async def test_chat_talks_and_does_what_its_commands_say(shell):
    """A first conversation, from the prompt to Ctrl-D."""
    async with Terminal(shell, "chat") as terminal:
        await terminal.shows("scripted/echo")
        await terminal.says("/retry\r")
        await terminal.shows("No messages in this session yet.")
        await terminal.says("Hello there\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}Hello there\r\n")
        await terminal.says("/help\r")
        await terminal.shows("/quit")
        await terminal.says("/nonsense\r")
        await terminal.shows("Unknown command or prompt /nonsense.")
        await terminal.says("/model nowhere/model\r")
        await terminal.shows("Unknown model 'nowhere/model'")
        await terminal.says("/model scripted/length\r")
        await terminal.shows("Model: scripted/length")
        await terminal.says("one two three four\r")
        await terminal.shows("Truncated")
        await terminal.says("/continue\r")
        await terminal.shows("asked to continue in a new")
        await terminal.shows("Truncated")
        await terminal.says("/retry\r")
        await terminal.shows("Truncated")
        await terminal.says("/sessions\r")
        await terminal.shows("ses_")
        await terminal.shows("Hello there")
        await terminal.says("/models\r")
        await terminal.shows("up/hanging")
        await terminal.says("/models all\r")
        await terminal.shows("scripted/hang  (demo)")
        await terminal.says("/new\r")
        await terminal.shows("/help for commands")
        await terminal.says("/compact\r")
        await terminal.shows("No messages in this session yet.")
        await terminal.says("/model nowhere/else\r")
        await terminal.shows("Unknown model 'nowhere/else'")
        await terminal.says("to the new one\r")
        await terminal.shows("Truncated")
        await terminal.says("\x04")
        await terminal.shows("Continue with: holdfast chat -s ses_")

        assert 0 == await terminal.ended()


async def test_chat_shows_reasoning_dimmed_and_as_it_is(shell):
    """Thoughts are told apart from the answer, and nothing in them is taken for markup."""
    async with Terminal(shell, "chat", "-m", "up/thinking") as terminal:
        await terminal.says("go\r")
        await terminal.shows("\x1b[2;3mI [b]wonder[/b].\x1b[0m")
        await terminal.shows("The answer.")


async def test_ctrl_c_in_chat_stops_the_answer_and_then_only_the_line(shell, api, up):
    """Nobody loses a conversation by one Ctrl-C too many; Ctrl-D leaves, and the session can be taken up again."""
    async with Terminal(shell, "chat", "-m", "up/hanging") as terminal:
        await terminal.says("go\r")
        await terminal.shows("so far")
        terminal.type("\x03")
        await terminal.shows("The partial response was saved.")
        await up.requests[-1].wait_closed()
        await terminal.says("half a li")
        await terminal.shows("half a li")
        terminal.type("\x03")
        await terminal.shows("Press Ctrl-D to quit.")
        await terminal.says("/model scripted/echo\r")
        await terminal.shows("Model: scripted/echo")
        await terminal.says("still here\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}still here\r\n")
        await terminal.says("\x04")
        await terminal.shows("Continue with: holdfast chat -s ses_")
        assert 0 == await terminal.ended()
        short = re.findall(r"ses_\w+", terminal.screen)[-1]

    session = await whole_session(api, short)
    said = await api.transcript(session)
    assert [("user", "go"), ("partial", "so far"), ("user", "still here"), ("assistant", "still here")] == said

    async with Terminal(shell, "chat", "-s", short) as terminal:
        await terminal.shows("4 messages")
        await terminal.says("\x1b[A")  # the arrow up
        await terminal.shows("still here")
        terminal.type("\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}still here\r\n")


@pytest.mark.skipif(sys.platform != "linux", reason="how a terminal is held up is its system's own")
async def test_ctrl_c_is_noticed_also_while_a_key_is_being_shown(shell):
    """The key is read when the terminal has shown the one before, and it is not lost."""
    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        await terminal.shows(EDITOR_IS_OPEN)
        async with terminal.stuck("h"):
            terminal.type("\x03")
        await terminal.shows("Press Ctrl-D to quit.")
        await terminal.says("still here\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}still here\r\n")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the server of another process in /proc")
async def test_a_server_of_its_own_goes_on_while_a_person_types(alone):
    """Other clients, leases and the end of runs must not wait for somebody who thinks about a question."""
    async with Terminal(alone, "chat", "-m", "scripted/echo") as terminal:
        await terminal.says("half a li")
        await terminal.shows("half a li")
        (path,) = await asyncio.to_thread(listening_sockets, terminal.pid)
        answered = await health(path)
        terminal.type("ne\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}half a line\r\n")
        await terminal.says("\x04")

        assert 0 == await terminal.ended()
    assert b"HTTP/1.1 200 OK" == answered


async def health(path: str) -> bytes:
    """The status line of a server that listens on a socket in a folder."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    answered = (await reader.read()).partition(b"\r\n")[0]
    writer.close()
    return answered


def listening_sockets(pid: int) -> set[str]:
    """The paths of the sockets in folders on which a process listens."""
    inodes = _sockets(pid)
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7 and row[5] == "01" and row[3] == "00010000" and row[6] in inodes}


def listening_ports(pid: int) -> set[int]:
    """The ports on which a process listens."""
    inodes = _sockets(pid)
    rows = [line.split() for file in ("tcp", "tcp6") for line in Path("/proc/net", file).read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def _sockets(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    links = [link_target(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}


@pytest.mark.skipif(sys.platform != "linux", reason="looks in /proc for the signals of another process")
async def test_a_second_ctrl_c_leaves_a_chat_whose_server_does_not_answer(shell, up, server):
    """Nobody is held by a server that has stopped listening."""
    async with Terminal(shell, "chat", "-m", "up/hanging") as terminal:
        await terminal.says("go\r")
        await terminal.shows("so far")
        server.send_signal(signal.SIGSTOP)
        try:
            await terminal.interrupt()
            terminal.type("\x03")
            assert 0 != await terminal.ended()
        finally:
            server.send_signal(signal.SIGCONT)
    await up.requests[-1].wait_closed()


async def test_a_chat_without_a_message_is_not_kept(shell, api):
    """Whoever looks in and leaves finds no empty chat in the list. A wrong model is refused at once all the same."""
    before = await api.session_ids()
    left = await shell("chat", "-m", "scripted/echo", stdin="/models\n/model scripted/length\n/quit\n")
    wrong = await shell("chat", "-m", "nowhere/model", stdin="")

    assert (0, 1) == (left.code, wrong.code)
    assert "Unknown model 'nowhere/model'" in wrong.err
    assert before == await api.session_ids()


async def test_chat_reads_a_pipe(shell):
    """Without a person there is no prompt, and the end of the input is the end."""
    shown = await shell("chat", stdin="one\ntwo\n")

    assert (0, "one\ntwo\n") == (shown.code, shown.out)


async def test_what_a_model_says_cannot_command_the_terminal(shell):
    """An answer with escape codes is shown without them on a screen, and kept as it is in a file."""
    async with Terminal(shell, "run", "go", "-m", "up/rude") as terminal:
        assert 0 == await terminal.ended()

    assert "]0;owned[31mred" == terminal.screen.partition("\r\n")[0]
    assert "\x1b]" not in terminal.screen
    assert "\x1b]0;owned\x07\x1b[31mred\n" == (await shell("run", "go", "-m", "up/rude")).out


# runs


async def test_a_run_that_was_started_elsewhere_is_listed_followed_and_left(shell, api, up):
    """`tail` only looks on: its Ctrl-C leaves the run alone."""
    up.shut("cli")
    run_id = await api.start(await api.new_session(), "go", "up/gated")
    assert run_id in (await shell("runs", "ls", "--status", "running")).out
    async with shell.start("runs", "tail", run_id) as leaving, shell.start("runs", "tail", run_id) as staying:
        await asyncio.gather(printed(leaving, "one "), printed(staying, "one "))
        leaving.send_signal(signal.SIGINT)
        left = await ended(leaving)
        up.open("cli")
        stayed = await ended(staying)

    assert 130 == left.code
    assert "The run continues." in left.err
    assert Ended(0, "two\n", "") == stayed
    assert "completed" == json.loads((await shell("runs", "show", run_id)).out)["settlement"]["outcome"]


async def test_a_run_can_be_stopped_from_another_terminal(shell, api):
    """And whoever follows it is told."""
    run_id = await api.start(await api.new_session(), "go", "up/hanging")
    async with shell.start("runs", "tail", run_id) as tail:
        await printed(tail, "so far")
        stopped = await shell("runs", "stop", run_id)
        followed = await ended(tail)

    assert Ended(0, f"{run_id} stopped by user\n", "") == stopped
    assert (4, "\n") == (followed.code, followed.out)
    assert "Stopped. The partial response was saved." in followed.err


@requirement("fork.exact", "fork.edited")
async def test_a_run_is_forked_with_another_text(shell, api, up):
    """What is printed is the whole new response; the first one stays."""
    up.models["told"] = lambda request: answer("Once upon a time." if len(request.body["messages"]) > 1 else "Hello.")
    session_id = await api.new_session()
    run_id = await api.start(session_id, "go", "up/told")
    said = (await api.settled(run_id))["text"]
    forked = await shell("runs", "fork", run_id, "--text", "Once upon ")
    shown = (await api.session(session_id))["messages"][-1]

    assert (0, "Once upon a time.\n") == (forked.code, forked.out)
    assert (True, "Once upon a time.") == (shown["edited"], shown["content"])
    assert "Hello." == said == (await api.run(run_id))["text"]


async def test_tail_survives_the_death_of_the_server(tmp_path):
    """It comes back by itself, repeats nothing, and tells that the run did not."""
    async with Server(tmp_path / "data", [SCRIPTED]) as server:
        async with server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "go", "scripted/lorem:100000:50")
        async with Shell(tmp_path, {"HOLDFAST_URL": server.url}).start("runs", "tail", run_id) as tail:
            await printed(tail, "Lorem ipsum ")
            await server.kill9()
            await server.restart()
            shown = await ended(tail)
        async with server.client() as client:
            run = await Native(client).run(run_id)

    assert (1, run["text"].rstrip()) == (shown.code, ("Lorem ipsum " + shown.out).rstrip())
    assert "Interrupted" in shown.err


async def test_an_unknown_run_is_one_clear_line(shell):
    """No traceback, no waiting."""
    for shown in await asyncio.gather(*(shell("runs", verb, "run_nowhere") for verb in ("show", "tail", "stop"))):
        assert (1, "") == (shown.code, shown.out)
        assert re.fullmatch(r"Error: .*run_nowhere.*\n", shown.err)


# sessions


async def test_a_session_can_be_taken_along(shell, api, tmp_path):
    """JSON goes out and comes in again; Markdown says where an answer was cut off."""
    session = await api.new_session(title="[red]Straße")
    await api.settled(await api.start(session, "one two three", "scripted/length"))
    listed = await shell("sessions", "ls", "-q", "Straße")
    assert re.search(rf"^{session}\t[^\t]+\t\[red\]Straße\t", listed.out, re.MULTILINE)

    assert 0 == (await shell("sessions", "export", session, "-o", "session.json")).code
    imported = (await shell("sessions", "import", "session.json")).out.split()[0]
    text = (await shell("sessions", "export", imported, "--format", "markdown")).out
    refused = await shell("sessions", "rm", imported)
    removed = await shell("sessions", "rm", "--yes", imported, session)

    assert "# [red]Straße" in text
    assert "one two \n\n*(truncated)*" in text
    assert [("user", "one two three"), ("partial", "one two ")] == [
        ("partial" if said["partial"] else said["role"], said["content"])
        for said in json.loads((tmp_path / "session.json").read_text())["messages"]
    ]
    assert 1 == refused.code
    assert f"{imported} deleted\n{session} deleted\n" == removed.out
    assert "No sessions found." in (await shell("sessions", "ls", "-q", "Straße")).err


@requirement("hist.filing")
async def test_sessions_are_filed_and_listed_by_folder_and_tag(shell, api):
    """A year of chats has an order in the terminal too."""
    first, second = await api.new_session(title="Tides"), await api.new_session(title="Soup")
    filed = await shell("sessions", "file", first, second, "--folder", "Of the sea", "--tag", "kept")
    put_away = await shell("sessions", "file", second, "--folder", "", "--archive")
    listed = await shell("sessions", "ls", "--folder", "Of the sea", "--tag", "kept")
    archived = await shell("sessions", "ls", "--archived")
    labels = await shell("sessions", "labels")
    nothing = await shell("sessions", "file", first)

    assert {f"{first} filed", f"{second} filed"} == set(filed.out.split("\n")) - {""}
    assert 0 == put_away.code
    assert [first] == [line.split("\t")[0] for line in listed.out.splitlines()[1:]]
    assert listed.out.endswith("\tOf the sea\tkept\t\n")
    assert [second] == [line.split("\t")[0] for line in archived.out.splitlines()[1:]]
    assert "folder\tOf the sea\t1\ntag\tkept\t1\narchive\t\t1\n" in labels.out
    assert (2, True) == (nothing.code, "--folder" in nothing.err)


@requirement("imports.report")
async def test_an_export_of_chatgpt_is_imported_with_a_report(shell, api, tmp_path):
    """What was refused is named, and the exit code says that something was."""
    (tmp_path / "export.json").write_text(
        json.dumps([chatgpt(), {"title": "Odd", "conversationId": "o", "messages": 1}])
    )
    (tmp_path / "other.json").write_text("{}")
    first = await shell("import", "export.json")
    again = json.loads((await shell("import", "export.json", "--json")).out)
    nothing = await shell("import", "other.json")

    assert "2 chats of ChatGPT: 1 added, 0 known already" in first.out
    assert "Odd: it has no list of messages" in first.out
    assert (1, 1, 1, "") == (first.code, again["known"], nothing.code, nothing.out)
    assert "The file has no chats of ChatGPT" in nothing.err


@requirement("people.export", "people.import")
async def test_all_chats_are_exported_to_a_file_that_another_server_imports(shell, api, tmp_path):
    """Also without accounts. A file that exists is not overwritten, and a second import adds nothing."""
    session = await api.new_session(title="Of the sea")
    await api.settled(await api.start(session, "Hello.", "scripted/echo"))
    mine = (await api.get("/api/sessions?archived=any&limit=200"))["sessions"]
    exported = await shell("export", "chats.zip")
    again = await shell("export", "chats.zip")
    known = await shell("import", "chats.zip")
    elsewhere = [await shell("import", "chats.zip", "--data", str(tmp_path / "other")) for _ in range(2)]
    there = ("sessions", "ls", "-n", "200", "--json", "--data", str(tmp_path / "other"))
    listed = [each for kind in ((), ("--archived",)) for each in json.loads((await shell(*there, *kind)).out)]

    assert ("Wrote chats.zip.\n", 0, 1) == (exported.out, exported.code, again.code)
    assert "chats.zip exists already" in again.err
    assert 0o600 == (tmp_path / "chats.zip").stat().st_mode & 0o777
    assert f"0 chats and 0 comparisons added, {len(mine)} known already\n" == known.out
    assert [f"{len(mine)} chats", "0 chats"] == [each.out.partition(" and ")[0] for each in elsewhere]
    assert sorted(each["title"] for each in mine) == sorted(each["title"] for each in listed)


@requirement("hist.search-hit")
async def test_a_search_prints_the_sentence_and_marks_its_words(shell, api):
    """For a program in columns and as JSON; for a person the words stand out."""
    session = await api.new_session(title="Of the sea")
    await api.settled(await api.start(session, "Hello. The barnacle holds fast to its rock.", "scripted/echo"))
    message = (await api.session(session))["messages"][0]["id"]
    piped = await shell("sessions", "search", "barnacle", "rock")
    (found,) = json.loads((await shell("sessions", "search", "--json", "barnacle")).out)
    nothing = await shell("sessions", "search", "barnaclex")

    header, line = (row.split("\t") for row in piped.out.splitlines())
    assert ["session", "message", "title", "updated_at", "excerpt"] == header
    assert [session, message, "Of the sea", "The barnacle holds fast to its rock."] == [*line[:3], line[4]]
    assert message == found["hit"]["message_id"]
    assert (0, "", "No matches.\n") == nothing
    async with Terminal(shell, "sessions", "search", "barnacle") as terminal:
        await terminal.shows(f"{session[:14]}\x1b")
        await terminal.shows("\x1b[1;33mbarnacle")


# how it looks


async def test_plain_text_where_no_colour_is_wanted_and_in_pipes(shell, api):
    """NO_COLOR means no escape code of any kind, and a pipe gets no table."""
    run_id = await api.start(await api.new_session(), "go", "scripted/fail")
    await api.settled(run_id)
    async with Terminal(shell, "run", "go", "-m", "up/thinking", NO_COLOR="1") as terminal:
        assert 0 == await terminal.ended()
    piped = await shell("runs", "ls", "-n", "2")

    assert re.fullmatch(
        r"\(thinking\) I \[b\]wonder\[/b\]\.\r\n\r\nThe answer\.\r\n.*\d tokens .*·.* s\r\n", terminal.screen
    )
    assert ESCAPE not in piped.out + piped.err
    assert re.search(rf"^{run_id}\tfailed\t[^\t]+\tscripted/fail\t", piped.out, re.MULTILINE)


# without a server, with another one, with a key


async def test_without_a_server_a_command_brings_its_own_and_leaves_nothing_running(alone):
    """`holdfast run` is useful before `holdfast serve` is."""
    assert Ended(0, "hello\n", "") == await alone("run", "hello", "-m", "scripted/echo")
    assert "\tscripted/echo\thello\t" in (await alone("runs", "ls")).out

    with (alone.home / "data" / "holdfast" / "holdfast.db.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where anybody still has it
    assert not (alone.home / "data" / "holdfast" / "holdfast.db-wal").exists()


async def test_ctrl_c_with_a_server_of_its_own_keeps_the_partial(alone):
    """The stop and its settlement are saved before that server goes away."""
    async with alone.start("run", "go", "-m", "scripted/hang", "--keep") as process:
        await printed(process, "…")
        process.send_signal(signal.SIGINT)
        shown = await ended(process)

    assert 4 == shown.code
    session = re.search(r"ses_\w+", shown.err)[0]
    assert "…\n\n*(stopped)*" in (await alone("sessions", "export", session, "--format", "markdown")).out


async def test_a_data_folder_that_a_server_holds_is_used_through_that_server(alone, server):
    """Two processes on one database would be the end of it. A server that cannot be reached is named in one line."""
    through_it = await alone("models", "--data", str(server.data))
    server.send_signal(signal.SIGSTOP)
    try:
        shown = await alone("runs", "ls", "--data", str(server.data))
    finally:
        server.send_signal(signal.SIGCONT)

    assert (0, True) == (through_it.code, "up/wave" in through_it.out)
    assert (1, "") == (shown.code, shown.out)
    assert re.fullmatch(rf"Error: .*in use by process {server.pid}\. .*--url.*\n", shown.err)


async def test_a_key_works_until_it_is_revoked_and_the_lack_of_one_is_explained(tmp_path):
    """Each within about a second, with the server running all the while."""
    async with Server(tmp_path / "data", [SCRIPTED]) as server:
        shell = Shell(tmp_path, here(server))
        data = ("--data", str(server.data))
        made = await shell("key", "new", "laptop", *data)
        key = made.out.strip()
        again = await shell("key", "new", "laptop", *data)
        listed = await shell("key", "ls", *data)
        assert 401 == await _status(server, None, until=401)
        without = await shell("chat", stdin="hello\n")
        with_it = await shell("run", "hello", "-m", "scripted/echo", HOLDFAST_CLIENT_KEY=key)
        other = (await shell("key", "new", "other", *data)).code
        revoked = await shell("key", "revoke", "laptop", *data)

        assert 401 == await _status(server, key, until=401)

    assert (0, 1, 0) == (made.code, again.code, other)
    assert "The key 'laptop' already exists" in again.err
    assert re.match(
        r"name\towner\tcreated\texpires\trights\tid\nlaptop\tsvc_\w{36}\t2[\dT:-]+Z\t\t\tkey_\w+\n", listed.out
    )
    assert key not in listed.out
    assert (1, "") == (without.code, without.out)
    assert "HOLDFAST_CLIENT_KEY" in without.err
    assert Ended(0, "hello\n", "") == with_it
    assert Ended(0, "Revoked laptop.\n", "") == revoked


async def _status(server: Server, key: str | None, *, until: int) -> int:
    """What a caller with that key gets, within three seconds of asking again and again."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with server.client() as client, asyncio.timeout(LONG):
        while (status := (await client.get("/api/me", headers=headers)).status) != until:
            pass
    return status


async def test_a_port_that_is_taken_is_one_clear_line(alone):
    """Also where it is taken by a stranger."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = await alone("serve", "--port", str(port))

    assert (1, "") == (shown.code, shown.out)
    assert re.fullmatch(
        rf"Error: Cannot listen on 127\.0\.0\.1:{port}: .*--port\. \(holdfast explain port_in_use\)\n", shown.err
    )


# doctor, config, db


async def test_doctor_finds_a_good_set_up_good(shell, server):
    """With the server running, and from its own settings."""
    shown = await shell("doctor", "--config", str(server.config))

    assert 0 == shown.code, shown.out
    assert f"ok    Holdfast is running on {server.url}" in shown.out
    assert "ok    provider up: " in shown.out
    assert ESCAPE not in shown.out


async def test_doctor_finds_a_server_that_was_started_on_another_port(alone):
    """`--port` is in no file: the server on the data folder is asked for its address."""
    async with alone.start("serve", "--port", "0") as process:
        assert process.stdout is not None
        async with asyncio.timeout(LONG):
            ready = (await process.stdout.readline()).decode()
        shown = await alone("doctor")

    url = ready.strip().removeprefix("Holdfast is ready on ")
    assert f"ok    Holdfast is running on {url}\n" in shown.out
    assert not re.search(r"port \d+ is free", shown.out)


async def test_doctor_names_everything_that_is_in_the_way(alone, up):
    """One visit shows all of it: database, port, a missing key, a refused one, an upstream that is not there."""
    folder = alone.home / "data" / "holdfast"
    folder.mkdir(parents=True)
    (folder / "holdfast.db").write_bytes(b"not a database" * 1000)
    gone = f"http://127.0.0.1:{free_port()}/v1"
    alone.settings(
        f'[[providers]]\nname = "gone"\nbase_url = "{gone}"\nmodels = ["m"]\n'
        f'[[providers]]\nname = "keyless"\nbase_url = "{up.base_url}"\napi_key_env = "NO_SUCH_KEY"\n'
        '[[providers]]\nname = "empty"\n'
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = await alone("doctor", HOLDFAST_PORT=str(port))
    damaged = await alone("db", "check")

    assert 1 == shown.code
    for what in (
        f"database {folder / 'holdfast.db'}: file is not a database",
        f"cannot listen on 127.0.0.1:{port}",
        f"provider gone: {gone} could not be reached: connection refused",
        "provider keyless: NO_SUCH_KEY is not set",
        "provider empty: ",
    ):
        assert f"bad   {what}" in shown.out
    assert (1, "") == (damaged.code, damaged.out)
    assert "is damaged: file is not a database" in damaged.err


async def test_doctor_says_what_is_wrong_with_the_settings(alone):
    """The file and the place in it."""
    file = alone.settings("prot = 8787\n")
    shown = await alone("doctor")

    assert 1 == shown.code
    assert f"bad   settings: Unknown setting 'prot' in {file}. Did you mean 'port'?" in shown.out


async def test_config_says_where_each_value_comes_from_and_shows_no_secret(alone):
    """A flag, the environment, the file, the default."""
    file = alone.settings(
        'grace = 2\ndrain = 3\n[[providers]]\nname = "up"\nbase_url = "http://127.0.0.1/v1"\napi_key = "s3cret"\n'
        '[[webhooks]]\nurl = "https://example.com/hook?key=s3cret"\nsecret_env = "HOOK"\n'
    )
    shown = await alone(
        "config", "show", "--sources", "--host", "::1", HOLDFAST_API_KEY="s3cret-too", HOLDFAST_DRAIN="4"
    )

    lines = shown.out.splitlines()
    assert 0 == shown.code
    assert 'host = "::1"  # flag' in lines
    assert "drain = 4.0  # environment" in lines
    assert f"grace = 2.0  # {file}" in lines
    assert "idle_limit = 120.0  # default" in lines
    assert f"[[webhooks]]  # {file}" in lines
    assert '# url = "(hidden) example.com"' in lines
    assert '# api_key = "(hidden)"  # environment' in lines
    assert "s3cret" not in shown.out + shown.err


@requirement("safe.secrets")
async def test_config_shows_agents_servers_of_tools_and_prices_without_their_secrets(alone):
    """It ended in a traceback with the five lines of docs/agents.md. A program's arguments may be keys."""
    alone.settings(
        '[[agents]]\nname = "helper"\nmodel = "up/m"\ntools = ["files", "mcp:t", "mcp:h"]\n'
        '[[mcp]]\nname = "t"\ncommand = "serve-tickets"\nargs = ["--token", "s3cret"]\nenv = { KEY = "s3cret" }\n'
        '[[mcp]]\nname = "h"\nurl = "https://u:s3cret@example.com/mcp?key=s3cret"\nheaders = { X = "s3cret" }\n'
        '[prices]\n"up/m" = { input = 0.5, output = 2 }\n'
    )
    shown = await alone("config", "show")

    lines, values = shown.out.splitlines(), tomllib.loads(shown.out)
    assert [("helper", ["files", "mcp:t", "mcp:h"])] == [(each["name"], each["tools"]) for each in values["agents"]]
    assert "serve-tickets" == values["mcp"][0]["command"]
    assert '# url = "(hidden) example.com"' in lines
    assert (0.5, 2) == (values["prices"]["up/m"]["input"], values["prices"]["up/m"]["output"])
    assert "s3cret" not in shown.out + shown.err


@requirement("safe.secrets")
async def test_doctor_shows_no_key_of_an_address_and_sends_none_elsewhere(alone):
    """A key may stand in a query or a header. Where an upstream redirects to is somebody else."""
    heard = {"up": b"", "elsewhere": b""}

    def answering(name: str, first: str):
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard[name] += await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {first}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
            writer.close()

        return answer

    async with await asyncio.start_server(answering("elsewhere", "200 OK"), "127.0.0.1", 0) as elsewhere:
        there = f"http://127.0.0.1:{elsewhere.sockets[0].getsockname()[1]}/"
        redirect = f"307 Temporary Redirect\r\nlocation: {there}"
        async with await asyncio.start_server(answering("up", redirect), "127.0.0.1", 0) as up:
            base = f"http://127.0.0.1:{up.sockets[0].getsockname()[1]}/v1?key=s3cret"
            gone = f"http://127.0.0.1:{free_port()}/v1?key=s3cret"
            alone.settings(
                f'[[providers]]\nname = "up"\nbase_url = "{base}"\nheaders = {{ x-goog-api-key = "s3cret" }}\n'
                f'[[providers]]\nname = "gone"\nbase_url = "{gone}"\n'
            )
            shown = await alone("doctor")

    assert f"redirects to {there.rstrip('/')} (307), which is not followed: set base_url" in shown.out
    assert f"bad   provider gone: {gone.replace('s3cret', 'hidden')} could not be reached" in shown.out
    assert "s3cret" not in shown.out + shown.err
    assert b"GET /v1/models?key=s3cret " in heard["up"]
    assert b"" == heard["elsewhere"]


async def test_what_was_set_while_the_server_ran_is_shown_and_looked_after(alone):
    """It holds keys, so that nobody else may read it; and whoever wonders where a value comes from is told."""
    saved = alone.home / "data" / "holdfast" / "settings.json"
    saved.parent.mkdir(parents=True)
    mine = {"name": "mine", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-canary-saved", "models": ["m"]}
    saved.write_text(json.dumps({"default_model": "mine/m", "providers": [mine]}))
    saved.chmod(0o644)
    readable = await alone("doctor")
    saved.chmod(0o600)
    private = await alone("doctor")
    shown = await alone("config", "show", "--sources")

    assert (1, True) == (readable.code, "other users can read" in readable.out)
    assert "set in the browser: mine" in private.out
    assert "provider mine: http://127.0.0.1:9/v1 could not be reached" in private.out
    assert "fix it in the page, under Settings, Providers" in " ".join(private.out.split())
    assert 'default_model = "mine/m"  # ui\n' in shown.out
    assert "# Provider mine (openai): set in the browser\n" in shown.out
    assert "sk-canary-saved" not in readable.out + private.out + shown.out


async def test_a_backup_made_while_the_server_runs_is_a_whole_database(shell, api, server, alone):
    """Restoring is copying it back. It can be written while answers are."""
    session = await api.new_session(title="kept")
    await api.settled(await api.start(session, "remember me", "scripted/echo"))
    checked = await shell("db", "check", "--data", str(server.data))
    copied = await shell("db", "backup", "backup.db", "--data", str(server.data))
    again = await shell("db", "backup", "backup.db", "--data", str(server.data))
    nowhere = await shell("db", "backup", "no/such/folder/backup.db", "--data", str(server.data))
    (alone.home / "restored").mkdir()
    (alone.home / "backup.db").rename(alone.home / "restored" / "holdfast.db")
    migrated = await alone("db", "migrate", "--data", "restored")
    restored = await alone("sessions", "export", session, "--data", "restored", "--format", "markdown")

    assert 0 == checked.code
    assert ": OK, " in checked.out
    assert 0 == copied.code
    assert (1, 1) == (again.code, nowhere.code)
    assert "already exists" in again.err
    assert "No such file or directory" in nowhere.err
    assert "is up to date" in migrated.out
    assert "# kept\n\n## user\n\nremember me\n\n## assistant\n\nremember me\n" == restored.out


async def test_no_upstream_key_was_ever_shown(server):
    """What the server printed during all of this."""
    assert UP_KEY not in server.log_text()
