"""Calls tools: side by side, each with permission, in its time, and with nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..events import ApprovalRequested, ToolCall, ToolProgress, ToolResult
from ..steps import Answered, cut
from .desk import Desk, Place, Scope
from .outbox import Outbox
from .processes import ProcessTable
from .tools import Approval, Tool, ToolContext, ToolError, ToolOutput

logger = logging.getLogger("holdfast")

MOST_KEPT = 1_000_000
"""Characters of an output that are kept for people; of a longer one the head and the tail."""
LAST_WORD = 0.5
"""Seconds that a cancelled tool may take to end before it is left behind and reported."""

NOT_JSON = "not_a_json_object"
"""Under which arguments stand that were none."""

_arguments = msgspec.json.Decoder(dict[str, Any]).decode


class Grants(Protocol):
    """What people have allowed for longer than once."""

    async def allows(self, tool: str) -> bool:
        """Tell whether a tool need not be asked for."""
        ...

    async def grant(self, tool: str, scope: Scope) -> None:
        """Keep that a tool is allowed, for the session or always."""
        ...


class NoGrants:
    """Every call is asked for."""

    async def allows(self, tool: str) -> bool:
        """Nothing is allowed for longer than once."""
        return False

    async def grant(self, tool: str, scope: Scope) -> None:
        """Keep nothing."""


class Calls:
    """Calls an agent's tools. Costs one task for each call, and one for the tool in it."""

    def __init__(
        self,
        tools: Sequence[Tool],
        approvals: Mapping[str, Approval],
        *,
        desk: Desk,
        outbox: Outbox,
        place: Place,
        grants: Grants,
        patience: float | None = None,
        table: ProcessTable | None = None,
        run_id: str = "",
        session_id: str | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._approvals = approvals
        self._desk = desk
        self._outbox = outbox
        self._place = place
        self._grants = grants
        self._patience = patience
        self._table = table or ProcessTable()
        self._run_id = run_id
        self._session_id = session_id
        self._left_behind: set[asyncio.Task[ToolOutput]] = set()

    async def all(
        self, calls: Sequence[ToolCall], asked: Mapping[str, ApprovalRequested] | None = None
    ) -> list[Answered]:
        """Call side by side, and return the answers in the order of the calls. A stop ends all of them."""
        tasks = [asyncio.create_task(self._one(call, (asked or {}).get(call.id))) for call in calls]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return [task.result() for task in tasks]

    async def _one(self, call: ToolCall, asked: ApprovalRequested | None) -> Answered:
        self._desk.begin()
        began = time.monotonic()
        try:
            given = await self._permitted(call, asked)
        finally:
            self._desk.done()
        output, is_cut = given.text, len(given.text) > MOST_KEPT
        if is_cut:
            output = cut(output, MOST_KEPT)
        if not is_internal(call.name):
            seconds = round(time.monotonic() - began, 3)
            content = given.content or msgspec.UNSET
            await self._outbox.say([ToolResult(call.id, output, given.is_error, seconds, is_cut, content)])
        return Answered(call.id, cut(output), given.is_error)

    async def _permitted(self, call: ToolCall, asked: ApprovalRequested | None) -> ToolOutput:
        """Call a tool if the settings, or a person, allow it."""
        tool = self._tools.get(call.name)
        if tool is None:
            there = ", ".join(self._tools) or "none"
            return ToolOutput(f"There is no tool {call.name!r}. There are: {there}.", is_error=True)
        arguments = parsed(call.arguments)
        if arguments is None:
            return ToolOutput("The arguments are not a JSON object.", is_error=True)
        approval = self._approvals.get(tool.name, tool.approval)
        if approval == "deny":
            return ToolOutput(f"{tool.name} may not be used here: the settings deny it.", is_error=True)
        must_ask = approval == "ask" and (asked is not None or not await self._grants.allows(tool.name))
        refusal = await self._asked(call, asked) if must_ask else None
        return refusal if refusal is not None else await self._call(tool, arguments, call)

    async def _asked(self, call: ToolCall, asked: ApprovalRequested | None) -> ToolOutput | None:
        """Ask a person; return what the model is told where the answer is no."""
        if asked is None:
            said = await self._desk.ask(call, self._patience)
        else:
            said = await self._desk.ask_again(asked, self._patience)
        note = f" They say: {said.note}" if said.note else ""
        if said.decision == "deny":
            return ToolOutput(f"The person denied this call, and it did not run.{note}", is_error=True)
        if said.scope != "once":
            await self._grants.grant(call.name, said.scope)
        return None

    async def _call(self, tool: Tool, arguments: dict[str, Any], call: ToolCall) -> ToolOutput:
        loop = asyncio.get_running_loop()

        def progress(message: str, fraction: float | None) -> None:
            if not is_internal(tool.name):
                loop.call_soon_threadsafe(self._outbox.report, ToolProgress(call.id, message, fraction))

        context = ToolContext(
            run_id=self._run_id, session_id=self._session_id, call_id=call.id, progress=progress, table=self._table
        )
        task = asyncio.create_task(tool.call(arguments, context))
        try:
            await asyncio.wait({task}, timeout=tool.timeout)
            timed_out = not task.done()
        finally:
            await _to_its_end(self._end(tool, task, context))
        if timed_out:
            return ToolOutput(f"{tool.name} took longer than its {tool.timeout:g} s and was stopped.", is_error=True)
        return _outcome(tool, task)

    async def _end(self, tool: Tool, task: asyncio.Task[ToolOutput], context: ToolContext) -> None:
        """See that nothing is left of a call: its task, its processes. What would not end is reported."""
        if not task.done():
            task.cancel()
            survivors, _ = await asyncio.gather(context.processes.end(), asyncio.wait({task}, timeout=LAST_WORD))
            self._place.refused += [f"{tool.name}: {survivor}" for survivor in survivors]
        else:
            await context.processes.end()
        if context.lingers:
            self._place.refused.append(context.lingers)
        if not task.done():
            self._place.refused.append(f"{tool.name} ignored the stop and goes on")
            self._left_behind.add(task)
            task.add_done_callback(self._left_behind.discard)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do work to its end although a stop may come meanwhile; the stop counts afterwards."""
    task, stopped = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            stopped = not task.cancelled()
    if stopped:
        raise asyncio.CancelledError
    task.result()


def _outcome(tool: Tool, task: asyncio.Task[ToolOutput]) -> ToolOutput:
    """Return what a call gave back, or what the model is told where it raised."""
    if task.cancelled():
        return ToolOutput(f"{tool.name} was cancelled before it finished. It may have run.", is_error=True)
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, ToolError):
        return ToolOutput(str(error), is_error=True)
    logger.warning("the tool %s raised", tool.name, exc_info=error)
    return ToolOutput(f"{tool.name} failed with {type(error).__name__}: {error}", is_error=True)


def is_internal(name: str) -> bool:
    """Tell whether a tool leaves no events: its name has a leading underscore."""
    return name.startswith("_")


def parsed(arguments: str) -> dict[str, Any] | None:
    """Return what a model wrote as arguments, or None where it is no JSON object."""
    try:
        written = _arguments(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if written.keys() == {NOT_JSON} else written


def as_object(arguments: str) -> str:
    """Return arguments that every provider takes back: those that are no JSON object inside of one."""
    written = arguments.strip() or "{}"
    return written if parsed(written) is not None else msgspec.json.encode({NOT_JSON: written}).decode()
