"""What others say cannot command the terminal: a server, a model, an upstream, a settings file, a title, an error."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, Terminal
from tests.requirements import requirement
from tests.support.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVIL = "one\x1b]0;owned\x07two\x1b[35mthree\x9b31mfour\u202efive\u2066six\rseven\x08\x7f\x00[/x]\x85eight"
"""Sets the title, changes colours in both ways, turns the text around, goes back over it, and is bad markup."""
OWN = re.compile(r"\r+\n|>\x08\x1b\[2C|\r?\x1b\[(\?(1|7|12|25|2004)[hl]|[\d;]*[A-HJKP@]|(?!35m)[\d;]*m)\r?")
"""What we and the line editor write: line ends, the prompt, colours, where the cursor goes. None of it is in EVIL."""
WHEN = "2026-01-01T00:00:00Z"
RUN_ID, SESSION_ID = f"run_{'x' * 36}", f"ses_{'x' * 36}"

SETTLEMENT = {
    "outcome": "failed",
    "partial": True,
    "error": {"message": EVIL, "code": EVIL},
    "finish_reason": EVIL,
    "by": EVIL,
}
RUN = {
    "id": EVIL,
    "status": "settled",
    "settlement": SETTLEMENT,
    "model": EVIL,
    "created_at": WHEN,
    "text": EVIL,
    "question": EVIL,
    "session_title": EVIL,
    "kind": "agent",
    "session_id": EVIL,
}
ASKED = {**RUN, "settlement": {**SETTLEMENT, "outcome": "completed", "error": None}}
"""A list shows what this run was asked; of the other, why it failed comes first and fills the line."""
MESSAGE = {"id": EVIL, "role": EVIL, "content": EVIL, "partial": True, "outcome": EVIL}
FILED = {"folder": EVIL, "tags": [EVIL], "archived": True}
SESSION = {
    "id": EVIL,
    "title": EVIL,
    "updated_at": WHEN,
    "active_run": RUN,
    "model": EVIL,
    "messages": [MESSAGE],
    **FILED,
}
PANE = {"pane": 0, "label": EVIL, "model": EVIL, "settlement": SETTLEMENT, "metrics": None}
COMPARISON = {"id": EVIL, "panes": [PANE], "revealed": True, "vote": None, "synthesis": None}
PROGRESS = {"done": 1, "total": 1, "failed": 1}
BATCH = {"id": EVIL, "name": EVIL, "models": [EVIL], "prompts": 1, "progress": PROGRESS, "status": "stopped"}
SCORED = {
    "model": EVIL,
    "outcomes": {"completed": 0, "failed": 1},
    "agreement": {"asked": 0, "right": 0},
    "ttft_ms_p50": None,
    "tokens_per_second_p50": None,
    "output_tokens": 0,
    "cost": None,
}
LISTS = {"models": [{"id": EVIL, "demo": False}], "runs": [RUN, ASKED], "sessions": [SESSION]}
ANSWER = {**RUN, **SESSION, **LISTS, "default": EVIL, "holdfast": {"run_id": EVIL}}
EVENTS = [
    {"type": "notice", "code": EVIL, "message": EVIL},
    {"type": "reasoning.delta", "text": EVIL},
    {"type": "text.delta", "text": EVIL},
    {"type": "tool.call", "id": "1", "own": True, "name": EVIL, "arguments": EVIL},
    {"type": "tool.progress", "id": "1", "message": EVIL},
    {"type": "tool.result", "id": "1", "is_error": True, "output": EVIL},
    {"type": "run.steered", "text": EVIL},
    {"type": "approval.decided", "id": "1", "decision": "deny", "note": EVIL},
    {"type": "text.delta", "text": EVIL},
    {"type": "run.settled", "settlement": SETTLEMENT},
]
PANES = [
    ("comparison.started", {"comparison": COMPARISON}),
    *(("pane", {"pane": 0, **event}) for event in EVENTS if not event["type"].startswith(("tool", "approval"))),
    ("comparison.settled", {"comparison": COMPARISON}),
]


def answer_to(method: str, path: str) -> bytes:
    """All that a command asks a server for, in words that no good server has."""
    if path.startswith("/error"):
        return _head("400 Bad Request") + json.dumps({"error": {"message": EVIL, "code": EVIL}}).encode()
    if path.startswith("/api/batches") and path.endswith("/events"):
        return _stream([("batch.settled", {"batch": BATCH})])
    if path.partition("?")[0].endswith("/events"):
        return _stream([("event", event) for event in EVENTS])
    if method == "POST" and path == "/api/comparisons":
        return _stream(PANES)
    if path.endswith("/report"):
        return _head() + json.dumps({"batch": BATCH, "models": [SCORED]}).encode()
    if path.startswith("/api/batches"):
        return _head() + json.dumps({**BATCH, "data": []}).encode()
    if path.startswith("/v1/models"):
        return _head() + json.dumps({"data": [{"id": EVIL}]}).encode()
    return _head() + json.dumps(ANSWER).encode()


def _head(status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\n".encode()


def _stream(events: list[tuple[str, dict]]) -> bytes:
    return _head() + b"".join(f"event: {name}\ndata: {json.dumps(event)}\n\n".encode() for name, event in events)


@asynccontextmanager
async def hostile_server() -> AsyncGenerator[str]:
    """The address of a server that means harm."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if found := re.search(r"content-length: (\d+)", head, re.IGNORECASE):
            await reader.readexactly(int(found[1]))
        method, path, _ = head.split(" ", 2)
        writer.write(answer_to(method, path))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostile():
    async with hostile_server() as url:
        yield url


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "set.txt").write_text("hello\n")
    (tmp_path / "session.json").write_text(json.dumps(SESSION))
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})


def leaks(screen: str) -> list[str]:
    """The characters on a screen that we did not put there to draw it."""
    return [c for c in OWN.sub("", screen) if c not in "\n\t" and not c.isprintable()]


async def seen(shell: Shell, *args: str, **env: str) -> str:
    """All that a command wrote to a terminal."""
    async with Terminal(shell, *args, **env) as terminal:
        await terminal.ended()
    return terminal.screen


LISTING = [
    ["models"],
    ["runs", "ls"],
    ["runs", "show", RUN_ID],
    ["runs", "tail", RUN_ID],
    ["runs", "stop", RUN_ID],
    ["sessions", "ls"],
    ["sessions", "export", SESSION_ID],
    ["sessions", "export", SESSION_ID, "--format", "markdown"],
    ["sessions", "import", "session.json"],
    ["sessions", "rm", "-y", SESSION_ID],
    ["run", "hello"],
    ["run", "hello", "--json"],
    ["compare", "hello", "-m", "x"],
    ["compare", "hello", "-m", "x", "--json"],
    ["compare", "--set", "set.txt", "-m", "x"],
    ["compare", "--set", "set.txt", "-m", "x", "--csv"],
]


@requirement("safe.terminal")
@pytest.mark.parametrize("command", LISTING, ids=" ".join)
async def test_nothing_that_a_server_says_commands_the_terminal(shell, hostile, command):
    """Escape codes in a name, a title or an error set titles, hid lines and typed for the user."""
    screen = await seen(shell, *command, HOLDFAST_URL=hostile)
    refused = await seen(shell, *command, HOLDFAST_URL=f"{hostile}/error", NO_COLOR="1")

    assert "one" in screen or "rm" in command
    assert "one" in refused
    assert [] == leaks(screen), repr(screen)
    assert [] == leaks(refused), repr(refused)


@requirement("safe.terminal")
async def test_nothing_that_is_said_in_a_chat_commands_the_terminal(shell, hostile):
    """Its title, its messages, the run that is going on, lists, and refusals. Not by the arrow key either."""
    async with Terminal(shell, "chat", "-s", SESSION_ID, HOLDFAST_URL=hostile, NO_COLOR="1") as terminal:
        for said in ("/models\r", "/sessions\r", "/model x\r", "hello\r", "\x1b[A\x1b[A\r", "\x04"):
            await terminal.says(said)
        await terminal.ended()

    assert [] == leaks(terminal.screen), repr(terminal.screen)


@requirement("safe.terminal")
async def test_nothing_that_an_upstream_or_a_setting_says_commands_the_terminal(shell, hostile):
    """`doctor` and `models` show the names that an upstream has. A setting can hold anything, and its errors too."""
    shell.settings(
        f'default_model = {json.dumps(EVIL)}\n[[providers]]\nname = "up"\nbase_url = "{hostile}/v1"\n'
        f'[[providers]]\nname = "bad"\nbase_url = "{hostile}/error"\n'
    )
    for command in (["doctor"], ["models"], ["config", "show", "--sources"]):
        screen = await seen(shell, *command)
        assert "one" in screen
        assert [] == leaks(screen), repr(screen)
    wrong = await seen(shell, "models", HOLDFAST_GRACE=EVIL.replace("\x00", ""))
    missing = await seen(shell, "models", "--config", EVIL.replace("\x00", "").replace("/", ""))

    assert [] == leaks(wrong + missing), repr(wrong + missing)


@requirement("safe.terminal")
@pytest.mark.parametrize(
    "command", [["run", "hello", "--json"], ["runs", "show", RUN_ID], ["sessions", "export", SESSION_ID]]
)
async def test_json_says_exactly_what_there_is_and_commands_nothing(shell, hostile, command):
    """A program reads every character; a person who looks at it sees them escaped."""
    shown = await shell(*command, HOLDFAST_URL=hostile)

    assert EVIL == json.loads(shown.out)["id"]
    assert [] == [c for c in shown.out if c != "\n" and not c.isprintable()]
