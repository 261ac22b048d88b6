"""A slow MCP server, made with the official SDK, that notes what it sees in a file. By stdio, or HTTP with a port."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field

SEEN = Path(sys.argv[1])
server = MCPServer("slow", log_level="INFO" if len(sys.argv) > 2 else "ERROR")


def note(what: str) -> None:
    with SEEN.open("a") as file:
        file.write(f"{what}\n")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    note("add")
    return a + b


@server.tool()
async def wait(ctx: Context) -> str:
    """Report progress once, then take for ever."""
    note("wait")
    await ctx.report_progress(1, 4, "a quarter")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "never"


@server.tool()
async def trace(ctx: Context) -> str:
    """Return the trace that the caller has sent with the call."""
    return str((ctx.request_context.meta or {}).get("traceparent"))


@server.tool()
async def die() -> str:
    """End the server in the middle of the call."""
    note("die")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
async def fail() -> str:
    """Fail, and quote a secret."""
    raise ToolError(f"no access with {os.environ.get('SLOW_SECRET', '')}")


class Sure(BaseModel):
    """What a person would have to say."""

    sure: bool


class Order(BaseModel):
    """What a person fills in, with a field of each kind."""

    size: Literal["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"] = Field(title="Size")
    pieces: int = Field(title="Pieces", ge=1, le=5)
    gift: bool = Field(False, title="Gift")
    note: str = Field("", title="Note", max_length=20)


def ask_for_order() -> Elicit[Order]:
    """Ask the person behind the client for an order."""
    return Elicit("What do you want?", Order)


@server.tool()
async def order(answer: Annotated[Order, Resolve(ask_for_order)]) -> str:
    """Say what was ordered."""
    return str(answer)


def ask_for_sure() -> Elicit[Sure]:
    """Ask the person behind the client."""
    return Elicit("Are you sure?", Sure)


@server.tool()
async def elicit(answer: Annotated[ElicitationResult[Sure], Resolve(ask_for_sure)]) -> str:
    """Say what the person behind the client has answered."""
    return repr(answer)


@server.tool(name="a.tool/with a name that no provider takes and that is far too long for any of them")
async def odd() -> str:
    """Have an odd name."""
    return "odd"


KEPT: list[str] = []


@server.tool()
async def remember(text: str) -> str:
    """Keep a text, and return all that were kept."""
    KEPT.append(text)
    return " ".join(KEPT)


@server.tool(structured_output=False)
async def large(size: int) -> str:
    """Return a text of so many characters."""
    note("large")
    return "." * size


@server.tool()
async def environment() -> str:
    """List the variables of this process."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@server.tool()
async def spawn() -> str:
    """Start a process of a session of its own, which ignores the polite signal."""
    ignoring = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", ignoring], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    return str(child.pid)


if __name__ == "__main__":
    note(f"pid {os.getpid()}")
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
