"""One connection to an MCP server, by the official SDK.

The SDK holds scopes open for as long as it is connected, which only the task that entered them may leave. So a
connection lives in a task of its own from beginning to end; calls come from any task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx2
import jsonschema  # type: ignore[import-untyped]  # noqa: F401 - or the SDK loads it later, while others wait
import msgspec
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from .mcp_described import McpServer, ToolServerAway
from .processes import Processes, ProcessTable
from .tools import ToolContext, ToolError, ToolOutput

logger = logging.getLogger("holdfast")

POLITE = 1.0
"""Seconds in which a server may end by itself when its input is closed."""
MOST_TOOLS = 1000
"""Tools of one server: a list that never ends must not keep a run from starting."""
MOST_CONTENT = 2_000_000
"""Characters of pictures and the like that are kept of one result."""
HTTP_TIMES = httpx2.Timeout(30.0, read=None)
"""A stream may be quiet for as long as a tool works: the tool's own time-out counts."""


class Connection:
    """Connected from the start to `close`, or until the server is gone: then it `is_over`."""

    def __init__(self, described: McpServer, table: ProcessTable | None = None) -> None:
        self.began = time.monotonic()
        self.is_over = False
        self._described = described
        self._processes = Processes(f"mcp-{described.name}", table)
        self._closing = asyncio.Event()
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live())
        self._life.add_done_callback(self._note_end)

    # its life

    async def _live(self) -> None:
        async with self._opened() as client:
            self._client.set_result(client)
            logger.info("connected to the MCP server %s, protocol %s", self._described.name, client.protocol_version)
            await self._closing.wait()

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Client]:
        described = self._described
        if described.url:
            made = partial(httpx2.AsyncClient, headers=described.headers, timeout=HTTP_TIMES)
            async with await asyncio.to_thread(made) as http:  # it reads certificates, while others would wait
                transport = streamable_http_client(described.url, http_client=http)
                async with Client(transport, cache=None) as client:
                    yield client
        else:
            async with Client(self._started(), cache=None) as client:
                yield client

    @asynccontextmanager
    async def _started(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Start the server's process, and notice when its output ends."""
        described = self._described
        parameters = StdioServerParameters(
            command=described.command,
            args=list(described.args),
            env=self._processes.environment({**get_default_environment(), **described.env}),
            cwd=described.cwd or None,
        )
        async with stdio_client(parameters) as (read, write):
            yield _Watched(read, self._end), write

    def _note_end(self, life: asyncio.Task[None]) -> None:
        self.is_over = True
        if not life.cancelled() and (error := life.exception()) is not None:
            words = self._described.said(_words(error))
            logger.warning("the connection to the MCP server %s ended: %s", self._described.name, words)

    async def is_ready(self, within: float) -> None:
        """Wait until it is connected, or say why it cannot be."""
        name = self._described.name
        either: set[asyncio.Future[Any]] = {self._life, self._client}
        await asyncio.wait(either, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        if self._client.done():
            return
        if not self._life.done():
            raise ToolServerAway(f"The MCP server {name} did not answer within {within:g} s.")
        error = None if self._life.cancelled() else self._life.exception()
        why = self._described.said(_words(error)) if error else "it ended"
        raise ToolServerAway(f"The MCP server {name} cannot be reached: {why}")

    def _end(self) -> None:
        """Say that it is over: the next call needs another."""
        self.is_over = True

    async def retire(self) -> None:
        """Close it when the last call that is going on has ended."""
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        """End it, and all of its processes, also those that ignore that their input was closed."""
        self.is_over = True
        self._closing.set()
        if not self._client.done():
            self._life.cancel()
        await asyncio.wait({self._life}, timeout=POLITE)
        survivors = await self._processes.end()
        for survivor in survivors:
            logger.warning("the MCP server %s: %s", self._described.name, survivor)
        if not self._life.done():
            await asyncio.wait({self._life}, timeout=POLITE)
        self._life.cancel()

    # what it is for

    async def tools(self) -> list[Tool]:
        """Return all tools of the server, page by page."""
        client = await asyncio.shield(self._client)
        tools: list[Tool] = await self._told(self._listed(client), "list its tools")
        return tools

    async def _listed(self, client: Client) -> list[Tool]:
        tools: list[Tool] = []
        cursor: str | None = None
        while len(tools) < MOST_TOOLS:
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            if not page.next_cursor or page.next_cursor == cursor:
                break
            cursor = page.next_cursor
        return tools[:MOST_TOOLS]

    async def _told(self, work: Any, what: str) -> Any:
        """Do what the server is asked for, or say that it cannot."""
        try:
            return await work
        except (MCPError, OSError, httpx2.HTTPError, ValueError) as error:
            self._judge(error)
            why = self._described.said(str(error))
            raise ToolServerAway(f"The MCP server {self._described.name} could not {what}: {why}") from error

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Call a tool. Cancelled, the SDK tells the server so with the protocol's own notification."""
        client = await asyncio.shield(self._client)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.progress(message or "", min(1.0, progress / total) if total else None)

        self._calls += 1
        self._idle.clear()
        try:
            result = await client.call_tool(tool, arguments, progress_callback=on_progress)
        except (MCPError, OSError, httpx2.HTTPError, ValueError) as error:
            self._judge(error)
            raise ToolError(self._failure(tool, error)) from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()
        output = rendered(result)
        if output.is_error:
            return msgspec.structs.replace(output, text=self._described.hidden(output.text))
        return output

    def _judge(self, error: Exception) -> None:
        """Take an error that is not the server's own answer for the end of the connection."""
        if not isinstance(error, MCPError):
            self.is_over = self.is_over or not isinstance(error, ValueError)
        elif error.code == CONNECTION_CLOSED or (self._described.url and error.code != INVALID_PARAMS):
            self.is_over = True  # a server that was started anew knows nothing of us: the next call begins anew too

    def _failure(self, tool: str, error: Exception) -> str:
        name, why = self._described.name, self._described.said(str(error))
        if self.is_over and getattr(error, "code", None) == CONNECTION_CLOSED:
            return f"The MCP server {name} ended while {tool} was going on. It may have run."
        return f"The MCP server {name} answered with an error: {why}"


class _Watched:
    """A stream of messages that says when it has ended."""

    def __init__(self, stream: Any, on_end: Any) -> None:
        self._stream = stream
        self._on_end = on_end

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        left: bool | None = await self._stream.__aexit__(kind, error, trace)
        return left


def _words(error: BaseException) -> str:
    """Return the words of an error: of a group, those of its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


# What a tool gave back.


def rendered(result: CallToolResult) -> ToolOutput:
    """Return a result as text for the model; what is no text is kept for people as the server sent it."""
    said = [_as_text(block) for block in result.content]
    if result.structured_content is not None and not any(isinstance(block, TextContent) for block in result.content):
        said.append(msgspec.json.encode(result.structured_content).decode())
    kept = [_as_sent(block) for block in result.content if not isinstance(block, TextContent)]
    size = sum(len(msgspec.json.encode(block)) for block in kept)
    content = tuple(kept) if size <= MOST_CONTENT else ()
    return ToolOutput("\n".join(said), is_error=result.is_error, content=content)


def _as_sent(block: ContentBlock) -> dict[str, Any]:
    sent: dict[str, Any] = block.model_dump(mode="json", by_alias=True, exclude_none=True)
    return sent


def _as_text(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, (ImageContent, AudioContent)):
        return f"[{block.type}: {block.mime_type}, {len(block.data) * 3 // 4} bytes, which only the person can see]"
    if isinstance(block, ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block, EmbeddedResource):
        if isinstance(block.resource, TextResourceContents):
            return block.resource.text
        return f"[resource {block.resource.uri}: {block.resource.mime_type or 'binary'}, which only the person can see]"
    return f"[{block.type}]"
