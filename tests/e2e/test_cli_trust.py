"""What the command line believes: whose settings file, which server gets the key, and who can use what it starts."""

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.test_cli import (
    EDITOR_IS_CLOSED,
    SCRIPTED,
    Ended,
    Shell,
    Terminal,
    ended,
    listening_ports,
    listening_sockets,
    printed,
)
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER_KEY = "hf-canary-server-key-0123456789"
CLIENT_KEY = "hf-canary-client-key-0123456789"
PROVIDER_KEY = "sk-canary-provider-key-0123456789"
SOMEONE_ELSE = 54321
"""The uid of a user that this machine does not have."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Canary:
    """A server of a stranger: it answers everything as a Holdfast server would, and keeps what it was sent."""

    def __init__(self) -> None:
        self.heard = b""
        self.redirects_to = ""
        self.seconds = 0.0
        """How long each answer takes."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.heard += data
            await asyncio.sleep(self.seconds)
            body = b'{"status": "ok", "data": [{"id": "m"}], "models": [], "default": "m", "sessions": [], "runs": []}'
            first = f"307 Temporary Redirect\r\nlocation: {self.redirects_to}" if self.redirects_to else "200 OK"
            head = f"HTTP/1.1 {first}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
        writer.close()


@asynccontextmanager
async def canary(port: int = 0) -> AsyncGenerator[tuple[Canary, int]]:
    """A stranger on a port of this machine."""
    stranger = Canary()
    async with await asyncio.start_server(stranger.answer, "127.0.0.1", port) as server:
        yield stranger, server.sockets[0].getsockname()[1]


@pytest.fixture
def shell(tmp_path):
    """A shell on a machine without a server. Its user has two keys in the environment."""
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    keys = {
        "HOLDFAST_API_KEY": SERVER_KEY,
        "HOLDFAST_CLIENT_KEY": CLIENT_KEY,
        "OPENAI_API_KEY": PROVIDER_KEY,
        "OPENAI_BASE_URL": nobody,
    }
    return Shell(tmp_path, {**keys, "HOLDFAST_RETRY_PATIENCE": "0.1"})


def strangers_file(port: int, ran: Path) -> str:
    """Settings that send every key to a stranger's port, and run a stranger's command."""
    return f"""
port = {port}
default_model = "agent/helper"
[[providers]]
name = "theirs"
base_url = "http://127.0.0.1:{port}/v1"
api_key_env = "OPENAI_API_KEY"
[[mcp]]
name = "tool"
command = "touch"
args = ["{ran}"]
[[agents]]
name = "helper"
model = "theirs/m"
tools = ["mcp:tool"]
"""


# the settings file


@requirement("safe.settings-file")
@pytest.mark.parametrize("command", [["models"], ["doctor"], ["sessions", "ls"], ["run", "hello"], ["config", "show"]])
async def test_a_file_in_the_current_folder_gives_no_command_an_order(shell, command, tmp_path):
    """A stranger's repository took every key of the environment and ran its commands, by `cd` and `holdfast models`."""
    async with canary() as (stranger, port):
        (shell.home / "holdfast.toml").write_text(strangers_file(port, tmp_path / "ran"))
        await shell(*command)

    assert b"" == stranger.heard
    assert not (tmp_path / "ran").exists()


@requirement("safe.settings-file")
@pytest.mark.parametrize("command", [["doctor"], ["key", "ls"]])
async def test_who_would_expect_the_file_of_the_folder_to_count_is_told_that_it_does_not(shell, command):
    """These commands are for looking after a server that was started here, perhaps with that file."""
    (shell.home / "holdfast.toml").write_text("port = 9\n")
    shown = await shell(*command)

    told = f"{shell.home / 'holdfast.toml'} is not used: only `holdfast serve` and `holdfast config` read it."
    assert told in shown.out + shown.err


@requirement("safe.settings-file", "ops.config-show")
async def test_config_checks_and_shows_the_file_that_serve_would_use_and_does_not_call_it_unused(shell):
    """Two commands that read different files would contradict each other, and a note would contradict both."""
    here = shell.home / "holdfast.toml"
    here.write_text("grace = 11\n")
    checked, shown = await shell("config", "check"), await shell("config", "show", "--sources")
    own = shell.settings("grace = 12\n")
    here.unlink()
    at_home = [await shell(*command, folder=own.parent) for command in (["config", "check"], ["doctor"])]

    assert (0, "", True) == (checked.code, checked.err, str(here) in checked.out.replace("\n", ""))
    assert (0, "") == (shown.code, shown.err)
    assert "grace = 11.0  # " in shown.out
    assert not [each for each in at_home if "is not used" in each.out + each.err]


@requirement("safe.settings-file")
async def test_every_command_reads_the_users_own_file_and_the_one_that_is_named(shell, tmp_path):
    """`~/.config/holdfast/holdfast.toml` by default; `--config` or `HOLDFAST_CONFIG` in its place."""
    shell.settings("grace = 11\n")
    named = tmp_path / "named.toml"
    named.write_text('grace = 22\ndata = "beside"\n')
    by_default = await shell("config", "show", "--sources")
    by_flag = await shell("config", "show", "--config", "named.toml")
    by_variable = await shell("config", "show", HOLDFAST_CONFIG=str(named))
    relative = await shell("config", "show", HOLDFAST_CONFIG="named.toml")

    assert "grace = 11.0  # " in by_default.out
    assert "grace = 22.0\n" in by_flag.out
    assert by_flag.out == by_variable.out
    assert str(tmp_path / "beside") in by_flag.out
    assert (1, "") == (relative.code, relative.out)
    assert "HOLDFAST_CONFIG" in relative.err


async def first_line(shell: Shell, *args: str) -> str:
    """The first line that `holdfast serve` prints in the shell's folder."""
    async with shell.start("serve", "--port", "0", *args) as process:
        assert process.stderr is not None
        async with asyncio.timeout(LONG):
            return (await process.stderr.readline()).decode().strip()


@requirement("safe.settings-file")
async def test_serve_names_the_settings_file_first(shell):
    """Also where it is that of the current folder: nobody serves somebody's settings without knowing it."""
    here = shell.home / "holdfast.toml"
    here.write_text("grace = 2\n")
    with_mine_alone = await first_line(shell)
    own = shell.settings("grace = 3\n")
    with_both = await first_line(shell)
    named = await first_line(shell, "--config", "holdfast.toml")

    assert f"Settings file: {here}" == with_mine_alone
    assert f"Note: {here} is not used: {own} is the settings file. Use it with --config holdfast.toml." == with_both
    assert f"Settings file: {here}" == named


OTHERS = "other users can write to"
WRITABLE = [
    pytest.param(lambda file: file.chmod(0o666), OTHERS, id="everyone-writes-the-file"),
    pytest.param(lambda file: file.parent.chmod(0o777), OTHERS, id="everyone-writes-the-folder"),
    pytest.param(lambda file: file.parent.chmod(0o1777), OTHERS, id="sticky"),
    pytest.param(lambda file: os.chown(file, SOMEONE_ELSE, -1), "another user", marks=as_root, id="others-file"),
    pytest.param(
        lambda file: os.chown(file.parent, SOMEONE_ELSE, -1), "another user", marks=as_root, id="others-folder"
    ),
    pytest.param(
        lambda file: (os.chown(file, -1, SOMEONE_ELSE), file.chmod(0o664)),
        OTHERS,
        marks=as_root,
        id="group",
    ),
]


@requirement("safe.settings-file")
@pytest.mark.parametrize(("spoil", "why"), WRITABLE)
async def test_a_file_that_others_can_write_is_refused(shell, spoil, why, tmp_path):
    """For the user's own file and that of the folder; nothing starts, and the line says what to change."""
    async with canary() as (stranger, port):
        work = tmp_path / "work"
        work.mkdir()
        text = strangers_file(port, tmp_path / "ran")
        (work / "holdfast.toml").write_text(text)
        spoil(work / "holdfast.toml")
        here = await shell("serve", "--port", "0", folder=work)
        spoil(shell.settings(text))
        own = await shell("models")

    for refused in (here, own):
        assert (1, "") == (refused.code, refused.out)
        assert "Error: Refusing to read the settings file" in refused.err
        assert why in refused.err
    assert b"" == stranger.heard
    assert not (tmp_path / "ran").exists()


@requirement("safe.settings-file")
async def test_a_named_file_that_others_can_write_counts_with_a_warning(shell):
    """Whoever names a file may know better: a volume that is mounted into a container has any owner and mode."""
    file = shell.home / "shared.toml"
    file.write_text("grace = 2\n")
    file.chmod(0o666)
    shown = await shell("config", "show", "--config", "shared.toml")

    assert 0 == shown.code
    assert (
        "Warning: other users can write to shared.toml (mode 666, chmod go-w); its settings can run commands as you."
        in shown.err
    )


@requirement("safe.settings-file")
async def test_a_relative_base_folder_is_no_folder(shell):
    """`XDG_CONFIG_HOME=.` would make every repository's `holdfast/holdfast.toml` count; XDG says to ignore it."""
    theirs = shell.home / "holdfast"
    theirs.mkdir()
    (theirs / "holdfast.toml").write_text("grace = 77\n")
    shown = await shell("config", "show", XDG_CONFIG_HOME=".", XDG_DATA_HOME=".")

    assert 0 == shown.code
    assert "grace = 1.0\n" in shown.out
    assert str(shell.home / ".local" / "share" / "holdfast") in shown.out


async def test_the_group_of_ones_own_may_write(shell, tmp_path):
    """umask 002 is usual where every user has a group alone: such a file is as private as any."""
    file = shell.settings("grace = 33\n")
    file.chmod(0o664)
    file.parent.chmod(0o775)
    shown = await shell("config", "show")

    assert "grace = 33.0\n" in shown.out


# the key


@requirement("safe.key-address")
@pytest.mark.parametrize(
    "command", [["models"], ["run", "my secret question", "-m", "scripted/echo"], ["sessions", "ls"], ["doctor"]]
)
async def test_whoever_listens_on_the_port_is_sent_neither_the_key_nor_the_question(shell, command):
    """Any user of a machine can listen on a port that is free. It is looked at, and used only if it is named."""
    async with canary() as (stranger, port):
        shown = await shell(*command, HOLDFAST_PORT=str(port))

    assert f"http://127.0.0.1:{port}" in shown.out + shown.err
    assert stranger.heard.startswith(b"GET /health ")
    assert 1 == stranger.heard.count(b" HTTP/1.1\r\n")
    for secret in (SERVER_KEY, CLIENT_KEY, PROVIDER_KEY, "question"):
        assert secret.encode() not in stranger.heard
    assert b"authorization" not in stranger.heard.lower()


@requirement("safe.key-address")
async def test_an_address_that_is_named_gets_the_key_and_no_other_does(shell):
    """`--url` and `HOLDFAST_URL` name it. Where it redirects to is not followed."""
    async with canary() as (named, port), canary() as (elsewhere, other):
        by_flag = await shell("models", "--url", f"http://127.0.0.1:{port}")
        by_variable = await shell("models", HOLDFAST_URL=f"http://127.0.0.1:{port}")
        heard, named.redirects_to = named.heard, f"http://127.0.0.1:{other}/api/models"
        redirected = await shell("models", "--url", f"http://127.0.0.1:{port}")

    assert (0, 0, 1) == (by_flag.code, by_variable.code, redirected.code)
    assert (2, 0) == (heard.count(CLIENT_KEY.encode()), heard.count(SERVER_KEY.encode()))
    assert "redirect" in redirected.err
    assert b"" == elsewhere.heard


@requirement("safe.key-address")
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda sock: sock.parent.chmod(0o777), id="everyone-writes-the-folder"),
        pytest.param(lambda sock: os.chown(sock, SOMEONE_ELSE, -1), marks=as_root, id="others-socket"),
        pytest.param(lambda sock: os.chown(sock.parent, SOMEONE_ELSE, -1), marks=as_root, id="others-folder"),
        pytest.param(lambda sock: sock.chmod(0o666), id="everyone-may-connect"),
    ],
)
async def test_a_socket_that_somebody_else_can_have_made_is_passed_over(shell, spoil):
    """A data folder may be anywhere, and a server of another user's is one that has to be named."""
    data = shell.home / "data" / "holdfast"
    data.mkdir(parents=True)
    stranger = Canary()
    async with await asyncio.start_unix_server(stranger.answer, data / "holdfast.sock"):
        spoil(data / "holdfast.sock")
        await shell("run", "my secret question", "-m", "scripted/echo")

    assert b"" == stranger.heard


async def test_a_server_that_is_only_busy_is_not_passed_over(shell):
    """The command took it for gone after a second, and then refused the data folder because a server holds it."""
    data = shell.home / "data" / "holdfast"
    data.mkdir(parents=True, mode=0o700)
    busy = Canary()
    busy.seconds = 1.5
    async with await asyncio.start_unix_server(busy.answer, data / "holdfast.sock"):
        shown = await shell("models")

    assert 0 == shown.code, shown.err
    assert b"GET /api/models" in busy.heard


@requirement("safe.key-address")
async def test_a_server_that_comes_back_elsewhere_is_found_there(tmp_path):
    """A command that was following it goes on, and whoever took its old port meanwhile hears nothing."""
    data = tmp_path / "data"
    shell = Shell(tmp_path, {"HOLDFAST_DATA": str(data), "HOLDFAST_API_KEY": SERVER_KEY})
    env = {"HOLDFAST_API_KEY": SERVER_KEY}
    async with Server(data, [SCRIPTED], env=env) as server:
        async with server.client(authorization=f"Bearer {SERVER_KEY}") as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "go", "scripted/lorem:100000:50")
        async with shell.start("runs", "tail", run_id) as tail:
            await printed(tail, "Lorem ipsum ")
            await server.kill9()
            async with canary(server.port) as (stranger, _), Server(data, [SCRIPTED], env=env):
                shown = await ended(tail)

    assert 1 == shown.code
    assert "Interrupted" in shown.err
    assert b"" == stranger.heard


async def test_a_folder_with_a_long_path_has_its_socket_too(tmp_path):
    """An address of a socket has room for some hundred bytes; a path may be longer."""
    deep = tmp_path / ("a-folder-with-a-long-name-" * 4) / ("and-another-one-inside-it-" * 4)
    async with Server(deep, [SCRIPTED]):
        shown = await Shell(tmp_path, {"HOLDFAST_DATA": str(deep)})("run", "hello", "-m", "scripted/echo")

    assert Ended(0, "hello\n", "") == shown


async def test_a_server_leaves_no_socket_behind_when_it_ends(tmp_path):
    """While it runs, only its user may connect."""
    async with Server(tmp_path / "data", [SCRIPTED]) as server:
        mode = (server.data / "holdfast.sock").stat().st_mode
        await server.terminate()

    assert 0o600 == stat.S_IMODE(mode)
    assert not (server.data / "holdfast.sock").exists()


# a server that a command brings along


@requirement("safe.own-server")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at another process in /proc")
async def test_a_server_that_a_command_brings_along_has_no_port(tmp_path):
    """It asks for no key, and whoever connects to it is an admin: so only its own user may be able to."""
    shell = Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})
    assert 0 == (await shell("key", "new", "alice")).code
    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        await terminal.says("hello\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}hello\r\n")
        ports = await asyncio.to_thread(listening_ports, terminal.pid)
        (path,) = await asyncio.to_thread(listening_sockets, terminal.pid)
        modes = [stat.S_IMODE(os.stat(place).st_mode) for place in (path, os.path.dirname(path))]
        await terminal.says("\x04")
        assert 0 == await terminal.ended()

    assert set() == ports
    assert [0o600, 0o700] == modes
    assert not os.path.exists(os.path.dirname(path))
