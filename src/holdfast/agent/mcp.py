"""MCP servers, whose tools an agent can have: connected when first needed, shared by all runs, and again after a death.

The official SDK is loaded only when the first server is needed: see `mcp_connection`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .mcp_described import McpServer, ToolServerAway
from .processes import ProcessTable
from .tools import ToolContext, ToolError, ToolOutput

if TYPE_CHECKING:
    from .mcp_connection import Connection

logger = logging.getLogger("holdfast")

CONNECT = 30.0
"""Seconds in which a server has to be there."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before a server is tried again that could not be reached, or died young: each time twice as long."""
YOUNG = 10.0
LAST = 5.0
"""Seconds in which a server has to be gone."""
LONGEST_NAME = 64
"""Characters that every provider takes in a tool's name."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class McpTool:
    """One tool of a server."""

    def __init__(self, server: ToolServer, own_name: str, name: str, description: str, parameters: dict[str, Any]):
        self.name = name
        self.description = description
        self.parameters = {"type": "object", "properties": {}, **parameters}
        self.approval = server.described.approval
        self.timeout = server.described.timeout
        self._server = server
        self._own_name = own_name

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Call it. A stop tells the server so, in the protocol's own words."""
        return await self._server.call(self._own_name, arguments, context)


class ToolServer:
    """One MCP server for all runs. Costs a task and, where it is a command, a process while it is connected."""

    def __init__(self, described: McpServer, table: ProcessTable | None = None) -> None:
        self.described = described
        self._table = table
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._not_before = 0.0
        self._is_closed = False

    async def tools(self) -> list[McpTool]:
        """Return the server's tools, those that are allowed, under names that every provider takes."""
        offered = await self._offered()
        allowed = self.described.tools
        if missing := set(allowed or ()) - {tool.name for tool in offered}:
            logger.warning("the MCP server %s has no tool %s", self.described.name, ", ".join(sorted(missing)))
        wanted = [tool for tool in offered if allowed is None or tool.name in allowed]
        names = tool_names(self.described.name, [tool.name for tool in wanted])
        return [
            McpTool(self, tool.name, name, tool.description or tool.title or "", tool.input_schema)
            for tool, name in zip(wanted, names, strict=True)
        ]

    async def _offered(self) -> list[Any]:
        """Ask for the tools: each run does, and so finds out that a server has died before anything is lost by it."""
        connection = await self._connected()
        try:
            return await connection.tools()
        except ToolServerAway:
            if not connection.is_over:
                raise
        return await (await self._connected()).tools()

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Call a tool. What goes wrong on the way is told to the model as it is: it may have run."""
        try:
            connection = await self._connected()
        except ToolServerAway as away:
            raise ToolError(f"{away} The call did not run.") from away
        return await connection.call(tool, arguments, context)

    async def close(self) -> None:
        """End the connection, and the server's processes where it is a command."""
        self._is_closed = True
        if self._connection is not None:
            self._let_go(self._connection)
            self._connection = None
        if self._ending:
            await asyncio.wait(self._ending, timeout=LAST)

    # connecting

    async def _connected(self) -> Connection:
        """Return the connection, made anew where there is none any more. Others who need it wait for the same one."""
        async with self._connecting:
            if self._connection is not None and self._connection.is_over:
                self._mourn(self._connection)
            if self._connection is None:
                await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
                self._connection = await self._connect()
            return self._connection

    def _mourn(self, connection: Connection) -> None:
        """Let go of a connection that is over. One that died young is not followed by the next at once."""
        self._let_go(connection)
        self._connection = None
        if time.monotonic() - connection.began < YOUNG:
            self._wait_longer()
        else:
            self._failures = 0

    def _wait_longer(self) -> None:
        self._not_before = time.monotonic() + min(LONGEST_WAIT, FIRST_WAIT * 2**self._failures)
        self._failures = min(self._failures + 1, 10)

    async def _connect(self) -> Connection:
        name = self.described.name
        if self._is_closed:
            raise ToolServerAway(f"The MCP server {name} is closed: Holdfast is ending.")
        try:  # loading the SDK takes a second, in which nobody else should wait
            kind = await asyncio.to_thread(importlib.import_module, "holdfast.agent.mcp_connection")
        except ImportError as error:
            raise ToolServerAway(
                f"MCP servers need the official SDK: pip install 'holdfast[mcp]'. ({error.name} is missing.)"
            ) from error
        connection: Connection = kind.Connection(self.described, self._table)
        try:
            await connection.is_ready(CONNECT)
        except BaseException:
            self._wait_longer()
            self._let_go(connection)
            raise
        return connection

    def _let_go(self, connection: Connection) -> None:
        """End a connection when its calls have ended, while others go on."""
        task = asyncio.create_task(connection.retire())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def tool_names(server: str, tools: Sequence[str]) -> list[str]:
    """Return the names under which a model knows a server's tools: valid for every provider, and no two the same."""
    names: list[str] = []
    for tool in tools:
        name = _NOT_IN_NAMES.sub("_", f"{server}__{tool}")
        if len(name) > LONGEST_NAME or name in names:
            name = f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"
        names.append(name)
    return names
