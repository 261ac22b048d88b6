"""One connection to an MCP server, by the official SDK.

The SDK holds cancel scopes open while it is connected, which only the task that entered them may leave. So one task
owns a connection from beginning to end; any task may make calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import httpx2
import jsonschema  # type: ignore[import-untyped]  # noqa: F401 - or the SDK loads it later, while others wait
import msgspec
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    AudioContent,
    CallToolResult,
    ContentBlock,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    RequestParamsMeta,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from ...environment import child_environment
from ...log.storable import storable
from ..processes import Processes, ProcessTable
from ..tools import ToolContext, ToolError, ToolOutput
from ..tools.forms import NotAForm, fields_of
from .described import Bearer, McpServer, ToolServerAway
from .limit import MOST_BYTES, limit_response
from .stdio import POLITE, ErrorOutput, stdio

logger = logging.getLogger(__name__)

IDEMPOTENCY_KEY = "idempotency-key"
"""The field of `_meta` with the effect id of a call."""
MOST_TOOLS = 1000
"""Maximum number of tools of one server, so that an endless list does not keep a run from starting."""
MOST_CONTENT = 2_000_000
"""Maximum size of the images and other content of one result, in characters."""
HTTP_TIMES = httpx2.Timeout(30.0, read=None)
"""No read timeout: a stream is quiet while a tool works, and the tool has its own timeout."""


_CALL: ContextVar[ToolContext | None] = ContextVar("holdfast_mcp_call", default=None)
"""The call of this task. What a server of an older protocol asks comes in no call's task."""


class _BearerAuth(httpx2.Auth):
    """Sends the owner's token with each request, and once more with a new one if it was refused.

    Without a token the request goes out as it is: an exception here would end the task of the SDK.
    """

    def __init__(self, bearer: Bearer) -> None:
        self._bearer = bearer

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with a token."""
        token = await self._token("")
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if token and response.status_code == HTTPStatus.UNAUTHORIZED and (newer := await self._token(token)):
            request.headers["Authorization"] = f"Bearer {newer}"
            yield request

    async def _token(self, refused: str) -> str:
        try:
            return await self._bearer(refused)
        except ToolServerAway:
            return ""


class McpConnection:
    """A connection, open until `close` or until the server is gone: then it `is_over`."""

    def __init__(self, described: McpServer, table: ProcessTable | None = None, bearer: Bearer | None = None) -> None:
        self.began = time.monotonic()
        self.is_over = False
        self._described = described
        self._auth = None if bearer is None else _BearerAuth(bearer)
        self._processes = Processes(f"mcp-{described.name}", table)
        self._errors = ErrorOutput(described)
        self._closing = asyncio.Event()
        self._why = ""
        self._abandoning: asyncio.Task[None] | None = None
        self._calls: list[ToolContext] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live())
        self._life.add_done_callback(self._note_end)

    # connecting and closing

    async def _live(self) -> None:
        async with self._opened() as client:
            self._client.set_result(client)
            logger.info("connected to MCP server %s, protocol %s", self._described.name, client.protocol_version)
            await self._closing.wait()

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Client]:
        described = self._described
        if described.url:
            made = partial(
                httpx2.AsyncClient,
                headers={"accept-encoding": "identity", **described.headers},
                timeout=HTTP_TIMES,
                auth=self._auth,
                event_hooks={"response": [limit_response]},
            )
            async with await asyncio.to_thread(made) as http:  # it reads certificates, which would block the event loop
                transport = streamable_http_client(described.url, http_client=http, max_sse_event_size=MOST_BYTES)
                async with Client(transport, cache=None, elicitation_callback=self._elicit) as client:
                    yield client
        else:
            env = self._processes.environment(child_environment(described.env))
            program = stdio(described, self._processes, env, self._errors, self._end)
            async with Client(program, cache=None, elicitation_callback=self._elicit) as client:
                yield client

    def _note_end(self, life: asyncio.Task[None]) -> None:
        self.is_over = True
        if not life.cancelled() and (error := life.exception()) is not None:
            message = self._described.redacted(_message(error))
            logger.warning("connection to MCP server %s ended: %s", self._described.name, message)

    async def is_ready(self, within: float) -> None:
        """Wait until it is connected, or raise the reason why it cannot be."""
        name = self._described.name
        either: set[asyncio.Future[Any]] = {self._life, self._client}
        await asyncio.wait(either, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        if self._client.done():
            return
        if not self._life.done():
            raise ToolServerAway(f"MCP server {name} did not answer within {within:g} s.")
        raise ToolServerAway(self._cannot_start())

    def _cannot_start(self) -> str:
        """Return why there is no connection, with the last error that the program printed."""
        described, printed = self._described, self._errors.reason()
        error = None if self._life.cancelled() else self._life.exception()
        if printed and not self._why:
            return f"MCP server {described.name} ended before it was ready. It printed: {described.redacted(printed)}"
        why = self._why or (described.redacted(_message(error)) if error else "it ended")
        return f"MCP server {described.name} cannot be reached: {why}"

    def _end(self, why: str) -> None:
        """Note why the program's output is no longer read: the next call needs a new connection."""
        self.is_over = True
        if why and not self._why:
            self._why = why
            self._abandoning = asyncio.create_task(self.close())

    async def retire(self) -> None:
        """Close it after the last call in progress has ended."""
        await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        """Close it, and end all of its processes, even those that ignore that their input was closed."""
        self.is_over = True
        self._closing.set()
        if not self._client.done():
            self._life.cancel()
        await asyncio.wait({self._life}, timeout=POLITE)
        survivors = await self._processes.end()
        for survivor in survivors:
            logger.warning("MCP server %s: %s", self._described.name, survivor)
        if not self._life.done():
            await asyncio.wait({self._life}, timeout=POLITE)
        self._life.cancel()

    # tools and calls

    async def tools(self) -> list[Tool]:
        """Return all tools of the server, page by page."""
        client = await asyncio.shield(self._client)
        tools: list[Tool] = await self._request(self._listed(client), "list its tools")
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

    async def _request(self, work: Any, what: str) -> Any:
        """Await a request to the server. Raises `ToolServerAway` with the reason if it fails."""
        try:
            return await work
        except (MCPError, OSError, httpx2.HTTPError, ValueError) as error:
            self._judge(error)
            why = self._described.redacted(str(error))
            raise ToolServerAway(f"MCP server {self._described.name} could not {what}: {why}") from error

    async def call(self, tool: str, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Call a tool. If cancelled, the SDK sends the protocol's cancel notification."""
        client = await asyncio.shield(self._client)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.progress(message or "", min(1.0, progress / total) if total else None)

        _CALL.set(context)
        self._calls.append(context)
        self._idle.clear()
        try:
            result = await client.call_tool(tool, arguments, progress_callback=on_progress, meta=_meta(context))
        except (MCPError, OSError, httpx2.HTTPError, ValueError) as error:
            self._judge(error)
            raise ToolError(self._failure(tool, error)) from error
        finally:
            self._calls.remove(context)
            if not self._calls:
                self._idle.set()
        output = rendered(result)
        if output.is_error:
            return msgspec.structs.replace(output, text=self._described.hidden(output.text))
        return output

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Ask the person what the server asks. It is declined if it is no form, or if it is not clear whose call asks.

        The SDK ends the connection if its own task is cancelled, so the question has a task of its own.
        """
        asking = {call.run_id: call for call in self._calls}
        call = _CALL.get() or (self._calls[-1] if len(asking) == 1 else None)
        if call is None or not isinstance(params, ElicitRequestFormParams):
            logger.info("declined what MCP server %s asks: no form, or calls of several runs", self._described.name)
            return ElicitResult(action="decline")
        try:
            fields = fields_of(params.requested_schema)
        except NotAForm as error:
            logger.info("declined what MCP server %s asks: %s", self._described.name, error)
            return ElicitResult(action="decline")
        task = asyncio.create_task(call.ask(storable(params.message), storable(fields)))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled() or task.exception() is not None:
            return ElicitResult(action="cancel")
        told = task.result()
        return ElicitResult(action=told.decision, content=told.content if told.decision == "accept" else None)

    def _judge(self, error: Exception) -> None:
        """Treat an error that is not the server's response as the end of the connection."""
        if not isinstance(error, MCPError):
            self.is_over = self.is_over or not isinstance(error, ValueError)
        elif error.code == CONNECTION_CLOSED or (self._described.url and error.code != INVALID_PARAMS):
            self.is_over = True  # a restarted server does not know the session: the next call connects again

    def _failure(self, tool: str, error: Exception) -> str:
        name, why = self._described.name, self._described.redacted(str(error))
        if self.is_over and getattr(error, "code", None) == CONNECTION_CLOSED:
            because = self._why or (why if self._described.url else "")
            ended = f"MCP server {name} ended while {tool} was running"
            return f"{ended}: {because}. It may have run." if because else f"{ended}. It may have run."
        return f"MCP server {name} answered with an error: {why}"


def _meta(context: ToolContext) -> RequestParamsMeta | None:
    """Return the effect id of a call, for a server that does not do the same thing twice."""
    return cast(RequestParamsMeta, {IDEMPOTENCY_KEY: context.effect_id}) if context.effect_id else None


def _message(error: BaseException) -> str:
    """Return the message of an error; of a group, that of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


# Results.


def rendered(result: CallToolResult) -> ToolOutput:
    """Return a result as text for the model. Content that is not text is kept unchanged, to be shown to people."""
    texts = [_as_text(block) for block in result.content]
    if result.structured_content is not None and not any(isinstance(block, TextContent) for block in result.content):
        texts.append(msgspec.json.encode(result.structured_content).decode())
    kept = [_as_sent(block) for block in result.content if not isinstance(block, TextContent)]
    size = sum(len(msgspec.json.encode(block)) for block in kept)
    content = tuple(kept) if size <= MOST_CONTENT else ()
    return ToolOutput("\n".join(texts), is_error=result.is_error, content=content)


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
