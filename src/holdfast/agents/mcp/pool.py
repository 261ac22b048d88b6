"""MCP servers: connected when first needed, shared by all runs, and reconnected after a failure.

The official SDK is loaded only when the first server is needed: see `connection`.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ...concurrency.retry import Backoff
from ...concurrency.tasks import OwnedTasks
from ...errors import how_to_install
from ...events import Replay
from ..processes import ProcessTable
from ..tools import ToolContext, ToolError, ToolOutput
from .described import Bearer, Bearers, McpServer, ToolServerAway, ToolServerNotConnected

if TYPE_CHECKING:
    from .connection import McpConnection

logger = logging.getLogger(__name__)

CONNECT = 30.0
"""Timeout of connecting, in seconds."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""First and longest pause, in seconds, before a server that failed is tried again."""
YOUNG = 10.0
"""Seconds: if a connection ended earlier than this, the next one is delayed."""
LAST = 5.0
"""Timeout of closing, in seconds."""
IDLE = 600.0
"""Seconds after which an owner's unused connection is closed, once another owner needs one."""
LONGEST_NAME = 64
"""Maximum length of a tool's name that every provider accepts."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class McpTool:
    """One tool of a server."""

    def __init__(self, server: ToolServer, offered: Any, name: str) -> None:
        self.name = name
        self.description: str = offered.description or offered.title or ""
        self.parameters: dict[str, Any] = {"type": "object", "properties": {}, **offered.input_schema}
        self.replay = _replay(offered.annotations)
        self.approval = server.described.approval
        self.timeout = server.described.timeout
        self._server = server
        self._own_name: str = offered.name

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Call it. A stop sends the protocol's cancel notification."""
        return await self._server.call(self._own_name, arguments, context)


class ToolServers:
    """One MCP server: a connection for each owner, or one that all share.

    A server may keep state in its process or in the session of a connection. The state of one owner is not for another.
    """

    def __init__(
        self,
        described: McpServer,
        table: ProcessTable | None = None,
        *,
        idle: float = IDLE,
        bearers: Bearers | None = None,
    ) -> None:
        self.described = described
        self._table = table
        self._bearers = bearers or _nobody_is_connected
        self._idle = idle
        self._servers: dict[str, ToolServer] = {}

    def of(self, owner: str) -> ToolServer:
        """Return the server of an owner. The connections of others that were not used for long are ended."""
        key = "" if self.described.shared else owner
        for other, server in self._servers.items():
            if other != key:
                server.rest(self._idle)
        bearer = partial(self._bearers, self.described, key) if self.described.oauth else None
        return self._servers.setdefault(key, ToolServer(self.described, self._table, bearer))

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))


async def _nobody_is_connected(server: McpServer, owner: str, refused: str) -> str:
    raise ToolServerNotConnected(server.name)


class ToolServer:
    """One MCP server for all runs that share it. While it is connected it costs a task, and as a command a process."""

    def __init__(self, described: McpServer, table: ProcessTable | None = None, bearer: Bearer | None = None) -> None:
        self.described = described
        self._table = table
        self._bearer = bearer
        self._connection: McpConnection | None = None
        self._connecting = asyncio.Lock()
        self._ending = OwnedTasks(f"the MCP server {described.name}")
        self._backoff = Backoff(FIRST_WAIT, LONGEST_WAIT)
        self._not_before = 0.0
        self._is_closed = False
        self._busy = 0
        self._used_at = time.monotonic()
        self.failure = ""
        """Why the last attempt to connect has failed; empty if it has not."""

    @property
    def is_connected(self) -> bool:
        """True if the next call need not connect."""
        return self._connection is not None and not self._connection.is_over

    async def tools(self) -> list[McpTool]:
        """Return the allowed tools of the server, under names that every provider accepts."""
        offered = await self.offered()
        allowed = self.described.tools
        if missing := set(allowed or ()) - {tool.name for tool in offered}:
            logger.warning("MCP server %s has no tool %s", self.described.name, ", ".join(sorted(missing)))
        tools = [tool for tool in offered if allowed is None or tool.name in allowed]
        names = tool_names(self.described.name, [tool.name for tool in tools])
        return [McpTool(self, tool, name) for tool, name in zip(tools, names, strict=True)]

    async def offered(self) -> list[Any]:
        """Request the list of tools. Each run does so at its start, and notices a dead server before its first call."""
        with self._in_use():
            connection = await self._connected()
            try:
                return await connection.tools()
            except ToolServerAway:
                if not connection.is_over:
                    raise
            return await (await self._connected()).tools()

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Call a tool. After a connection error there is no retry, as it may have run: the model gets the error."""
        with self._in_use():
            try:
                connection = await self._connected()
            except ToolServerAway as away:
                raise ToolError(f"{away} The call did not run.") from away
            try:
                return await connection.call(tool, arguments, context)
            except ToolError:
                await self._require_account()
                raise

    async def _require_account(self) -> None:
        """Raise `ToolError` if the owner's account is not connected any more: that is the reason of a failure."""
        try:
            if self._bearer is not None:
                await self._bearer("")
        except ToolServerAway as away:
            raise ToolError(str(away)) from away

    def rest(self, idle: float) -> None:
        """End the connection if it was not used for so many seconds. The next call makes a new one."""
        if self._connection is not None and not self._busy and time.monotonic() - self._used_at >= idle:
            self._retire(self._connection)
            self._connection = None

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._used_at = time.monotonic()

    async def close(self) -> None:
        """End the connection, and the server's processes if it is a command."""
        self._is_closed = True
        if self._connection is not None:
            self._retire(self._connection)
            self._connection = None
        await self._ending.wait(timeout=LAST)

    # connecting

    async def _connected(self) -> McpConnection:
        """Return the connection; connect if there is none. Concurrent callers wait for the same one."""
        if self._bearer is not None:
            await self._bearer("")
        async with self._connecting:
            if self._connection is not None and self._connection.is_over:
                self._drop(self._connection)
            if self._connection is None:
                await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
                self._connection = await self._connect()
            return self._connection

    def _drop(self, connection: McpConnection) -> None:
        """Drop a connection that is over. After a short-lived one the next is delayed."""
        self._retire(connection)
        self._connection = None
        if time.monotonic() - connection.began < YOUNG:
            self._wait_longer()
        else:
            self._backoff.reset()

    def _wait_longer(self) -> None:
        self._not_before = time.monotonic() + self._backoff.next()

    async def _connect(self) -> McpConnection:
        if self._is_closed:
            raise self._closed()
        try:  # loading the SDK takes a second, which would block the event loop
            kind = await asyncio.to_thread(importlib.import_module, "holdfast.agents.mcp.connection")
        except ImportError as error:
            raise ToolServerAway(
                f"MCP servers need the official SDK: {how_to_install('mcp')}. ({error.name} is missing.)"
            ) from error
        connection: McpConnection = kind.McpConnection(self.described, self._table, self._bearer)
        try:
            await connection.is_ready(CONNECT)
            if self._is_closed:  # meanwhile: nobody would close the connection
                raise self._closed()
        except BaseException as error:
            self.failure = str(error)
            self._wait_longer()
            self._retire(connection)
            raise
        self.failure = ""
        return connection

    def _closed(self) -> ToolServerAway:
        return ToolServerAway(f"MCP server {self.described.name} is closed: it was removed, or Holdfast is ending.")

    def _retire(self, connection: McpConnection) -> None:
        """Close a connection after its calls have ended, in a background task."""
        self._ending.start(connection.retire())


def _replay(annotations: Any) -> Replay:
    """Return whether a call may be made again, by what the server says about the tool."""
    if annotations is None:
        return "never"
    return "safe" if annotations.read_only_hint else "keyed" if annotations.idempotent_hint else "never"


def tool_names(server: str, tools: Sequence[str]) -> list[str]:
    """Return the names of a server's tools for the model: valid for every provider, and unique."""
    names: list[str] = []
    for tool in tools:
        name = _NOT_IN_NAMES.sub("_", f"{server}__{tool}")
        if len(name) > LONGEST_NAME or name in names:
            name = f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"
        names.append(name)
    return names
