"""The line editor of `holdfast chat`, key by key: several lines, paste, history, search."""

import json
import stat
import sys

import pytest
import pytest_asyncio

from tests.e2e.test_cli import EDITOR_IS_CLOSED, EDITOR_IS_OPEN, SCRIPTED, Shell, Terminal, here, whole_session
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Gate, Headers, Role, Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASTE = "\x1b[200~{}\x1b[201~"
"""What a terminal sends for a paste."""
ALT_ENTER, UP, SEARCH, LEAVE = "\x1b\r", "\x1b[A", "\x12", "\x04"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models["gated"] = [Headers(), Role(), Delta("so "), Gate("editor"), *answer("far")[2:]]
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    providers = [provider(up.base_url, models=None), SCRIPTED]
    async with Server(tmp_path_factory.mktemp("server"), providers) as server:
        yield server


@pytest.fixture
def shell(server, tmp_path):
    return Shell(tmp_path, here(server))


def history(shell):
    return shell.home / "state" / "holdfast" / "chat-history"


async def said(server, terminal) -> list[str]:
    """Leave a chat, and return what its user has said."""
    await terminal.says(LEAVE)
    await terminal.shows("Continue with: holdfast chat")
    assert 0 == await terminal.ended()
    async with server.client() as client:
        api = Native(client)
        session = await whole_session(api, terminal.screen)
        return [text for role, text in await api.transcript(session) if role == "user"]


async def test_a_paste_of_several_lines_is_one_message_and_is_shown_before_it_is_sent(shell, server):
    """Each line was a message of its own, sent before anybody had seen it."""
    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        await terminal.says(PASTE.format("one\ntwo\r\nthree"))
        await terminal.shows("three")
        assert EDITOR_IS_CLOSED not in terminal.screen
        terminal.type("!\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}one\r\ntwo\r\nthree!\r\n")

        assert ["one\ntwo\nthree!"] == await said(server, terminal)


async def test_alt_enter_begins_a_line_and_enter_sends(shell, server):
    """Most messages have one line; those with more need no paste."""
    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        await terminal.says(f"first{ALT_ENTER}second\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}first\r\nsecond\r\n")

        assert ["first\nsecond"] == await said(server, terminal)


async def test_earlier_messages_come_back_in_another_chat_by_arrow_and_by_search(shell, server):
    """Whole, with all of their lines. A message that begins with a space is not kept."""
    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        for keys in (f"a needle{ALT_ENTER}in hay\r", "straw\r", " secret\r"):
            await terminal.says(keys)
            await terminal.shows(EDITOR_IS_CLOSED)
        await said(server, terminal)

    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        await terminal.says(UP)
        await terminal.shows("straw")
        terminal.type("\r")
        await terminal.says(f"{SEARCH}NEEDL")
        await terminal.shows("I-search")
        terminal.type("\r")  # takes what was found
        terminal.type("\r")  # sends it
        await terminal.shows(f"{EDITOR_IS_CLOSED}a needle\r\nin hay\r\n")

        assert ["straw", "a needle\nin hay"] == await said(server, terminal)


@requirement("safe.history-file")
async def test_only_the_user_can_read_the_history_file(shell, server):
    """Also one that was made by another program, and readable, before. What is in it comes back without commands."""
    history(shell).parent.mkdir(parents=True)
    history(shell).write_text(json.dumps("evil\x1b]0;owned\x07") + "\nno JSON\n")
    history(shell).chmod(0o644)
    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        await terminal.says("hello\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}hello\r\n")
        await terminal.says(UP * 2 + "\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}evil]0;owned\r\n")
        await said(server, terminal)

    assert 0o600 == stat.S_IMODE(history(shell).stat().st_mode)
    assert "hello" == json.loads(history(shell).read_text().splitlines()[2])


@requirement("safe.history-file")
async def test_a_history_file_that_is_not_the_users_own_is_left_alone(shell, server, tmp_path):
    """A link would let another program choose what is written to. The chat goes without."""
    history(shell).parent.mkdir(parents=True)
    (tmp_path / "precious").write_text("as it was")
    history(shell).symlink_to(tmp_path / "precious")
    async with Terminal(shell, "chat", "-m", "scripted/echo") as terminal:
        await terminal.says("hello\r")
        await terminal.shows(f"{EDITOR_IS_CLOSED}hello\r\n")
        await said(server, terminal)

    assert "as it was" == (tmp_path / "precious").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal of Windows keeps no lines")
async def test_lines_that_came_while_an_answer_was_printed_are_shown_and_not_sent(shell, server, up):
    """They may be a paste. One line alone is the next message, as it was typed."""
    async with Terminal(shell, "chat", "-m", "up/gated") as terminal:
        await terminal.says("go\r")
        await terminal.shows("so")
        await up.reached("editor")
        terminal.type("one\rtwo\r")
        await terminal.shows("two")
        up.open("editor")
        await terminal.shows(EDITOR_IS_OPEN)
        await terminal.shows("two")
        terminal.type("\x03")
        await terminal.shows("Press Ctrl-D to quit.")

        assert ["go"] == await said(server, terminal)


async def test_a_pipe_gets_no_editor_and_no_history_file(shell):
    """A script's lines are nobody's history, and the output holds the answers and nothing else."""
    shown = await shell("chat", "-m", "scripted/echo", stdin="one\ntwo")

    assert (0, "one\ntwo\n") == (shown.code, shown.out)
    assert "\x1b" not in shown.err
    assert not history(shell).exists()
