"""Agents for tests: a server with one, tools that do as they are told, and what strict providers accept."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast.agents import ToolContext, ToolError, tool
from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, ProviderSettings, Settings
from holdfast.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.anthropic.request import body_of
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Upstream

# Tools. What a test must reach is in `STATE`, which `serving` makes anew.


class State:
    """What the tools have done, and what holds them."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended = asyncio.Event()
        self.thread = threading.Event()
        self.loop = asyncio.get_running_loop()


STATE = State.__new__(State)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    STATE.called.append("add")
    return a + b


@tool
async def wait(label: str = "") -> str:
    """Wait until the test says so."""
    STATE.called.append(f"wait{label}")
    STATE.begun.set()
    try:
        await STATE.go_on.wait()
    finally:
        STATE.ended.set()
    return "waited"


@tool(approval="ask")
async def publish(text: str) -> str:
    """Publish something, which a person has to allow."""
    STATE.called.append(f"publish {text}")
    return f"published {text}"


@tool
async def fail(how: str = "raise") -> str:
    """Fail."""
    if how == "say":
        raise ToolError("The printer is on fire.")
    raise RuntimeError("broken")


@tool(timeout=0.2)
async def slow() -> str:
    """Take longer than it may."""
    await asyncio.Event().wait()
    return "never"


@tool
async def stubborn() -> str:
    """Ignore the stop."""
    STATE.begun.set()
    while not STATE.go_on.is_set():
        try:
            await STATE.go_on.wait()
        except asyncio.CancelledError:
            continue
    return "at last"


@tool
def blocking() -> str:
    """Hold a thread."""
    STATE.loop.call_soon_threadsafe(STATE.begun.set)
    STATE.thread.wait(20)
    return "done"


@tool
async def report(context: ToolContext) -> str:
    """Tell how far it is."""
    context.progress("halfway", 0.5)
    return "done"


@tool
async def large(size: int) -> str:
    """Return much."""
    return "a" + "." * (size - 2) + "z"


@tool
async def environment(context: ToolContext) -> str:
    """List the variables of a process that a tool starts."""
    said: list[bytes] = []
    child = await context.processes.start("/usr/bin/env", on_output=said.append)
    await child.wait()
    await child.drained(5)
    return b"".join(said).decode()


@tool
async def _remember(fact: str) -> str:
    """Note something that nobody needs to see."""
    STATE.called.append(f"remember {fact}")
    return "noted"


TOOLS = [add, wait, publish, fail, slow, stubborn, blocking, report, large, environment, _remember]


class World(NamedTuple):
    up: Upstream
    api: Native
    state: State
    app: Any

    async def start(self, input: str = "Go", **more: Any) -> tuple[str, str]:
        """A new session with a message to the agent; the ids of session and run."""
        session_id = await self.api.new_session()
        return session_id, await self.api.start(session_id, input, "agent/helper", **more)

    async def until(self, run_id: str, event: str) -> dict[str, Any]:
        """Wait for the first event of a type."""
        reader = await self.api.events(run_id)
        try:
            while (frame := await reader.next_event()) is not None:
                if frame.event == event:
                    found: dict[str, Any] = frame.json()
                    return found
        finally:
            reader.close()
        raise AssertionError(f"the run ended without {event}")

    async def next_turn(self, session_id: str) -> list[dict[str, Any]]:
        """Send one more message, to a plain model, and return what the upstream was shown."""
        asked = f"And now, {session_id}?"
        await self.api.settled(await self.api.start(session_id, asked, "up/next"))
        histories = (request.body["messages"] for request in reversed(self.up.requests))
        return next(messages for messages in histories if messages[-1]["content"].endswith(asked))


@asynccontextmanager
async def serving(
    up: Upstream,
    data: Path,
    store: Store | None = None,
    *,
    settings: dict[str, Any] | None = None,
    dialect: Literal["openai", "anthropic"] = "openai",
    environ: dict[str, str] = NO_HOME,
    **agent: Any,
) -> AsyncIterator[World]:
    """A server whose agent `helper` has the tools above, unless told otherwise."""
    STATE.__init__()  # type: ignore[misc]
    described = {"tools": (f"{__name__}:TOOLS",), **agent}
    base_url = up.base_url if dialect == "openai" else f"http://{up.host}:{up.port}"
    providers = (ProviderSettings("up", dialect, base_url=base_url, models=("m", "next")),)
    configured = Settings(
        data=str(data),
        agents=(AgentSettings("helper", model="up/m", **described),),
        **{"providers": providers, **(settings or {})},
    )
    app = create_app(configured, store or MemoryStore(), environ)
    async with Served(app) as served, served.client() as client:
        try:
            yield World(up, Native(client), STATE, app)
        finally:
            STATE.go_on.set()
            STATE.thread.set()


# What the machine shows.


def living(folder: Path) -> list[str]:
    """The processes whose working directory is the folder, or below it."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd").startswith(str(folder)):
                found.append(f"{entry} {Path(f'/proc/{entry}/cmdline').read_text()}")
        except OSError:
            continue
    return found


# What strict providers accept.


def check_openai(messages: list[dict[str, Any]]) -> None:
    """Fail where OpenAI would: every call answered right after it and once, no result without its call."""
    waiting: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        assert message["role"] in ("system", "user", "assistant", "tool"), message
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, f"{place}: a result that no call waits for"
            assert isinstance(message["content"], str), f"{place}: a result without content"
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, f"{place}: calls without results: {waiting}"
        for call in message.get("tool_calls", ()):
            assert call["id"] not in seen, f"{place}: two calls have the id {call['id']}"
            assert call["type"] == "function", call
            assert call["function"]["name"], call
            assert isinstance(call["function"]["arguments"], str), call
            seen.add(call["id"])
            waiting.append(call["id"])
        assert message["content"] or message.get("tool_calls"), f"{place}: an empty message"
    assert not waiting, f"calls without results at the end: {waiting}"


def check_anthropic(messages: list[dict[str, Any]]) -> None:
    """Fail where Anthropic would: turns alternate from the user on, results stand first and right after their calls."""
    turns = body_of(ChatRequest(model="m", messages=messages), max_tokens=100)["messages"]
    calls: list[str] = []
    for place, turn in enumerate(turns):
        assert turn["role"] == ("user", "assistant")[place % 2], f"{place}: it is not the turn of {turn['role']}"
        assert turn["content"], f"{place}: an empty turn"
        kinds = [block["type"] for block in turn["content"]]
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        assert kinds[: len(results)] == ["tool_result"] * len(results), f"{place}: results do not stand first"
        assert sorted(results) == sorted(calls), f"{place}: {results} answer {calls}"
        calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        assert all(isinstance(block["input"], dict) for block in turn["content"] if block["type"] == "tool_use")
        assert all(block["text"].strip() for block in turn["content"] if block["type"] == "text"), place
    assert not calls, f"calls without results at the end: {calls}"
    assert turns[-1]["role"] == "user", "nothing is left to answer"
