"""Calls tools: side by side, each with permission, in its time, and with nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..events import ApprovalRequested, ToolCall, ToolProgress, ToolResult
from ..judgement import storable
from ..steps import Answered, cut
from .desk import Desk, Place, Scope
from .outbox import Outbox
from .processes import ProcessTable
from .tools import Approval, Tool, ToolContext, ToolError, ToolOutput, misfit

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
            await _to_its_end(_all_ended(tasks))
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return [task.result() for task in tasks]

    async def _one(self, call: ToolCall, asked: ApprovalRequested | None) -> Answered:
        self._desk.begin()
        watch = _Watch()
        try:
            given = await self._permitted(call, asked, watch)
        finally:
            self._desk.done()
        result = _result(call, given, watch)
        if not is_internal(call.name):
            await self._outbox.say([result])
        return Answered(call.id, cut(result.output), given.is_error)

    async def _permitted(self, call: ToolCall, asked: ApprovalRequested | None, watch: _Watch) -> ToolOutput:
        """Call a tool if the settings, or a person, allow it. What was asked for before a restart is waited for still.

        What cannot be called is refused before anybody is asked.
        """
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
        if wrong := misfit(tool, arguments):
            return ToolOutput(wrong, is_error=True)
        must_ask = asked is not None or (approval == "ask" and not await self._grants.allows(tool.name))
        refusal = await self._asked(call, asked) if must_ask else None
        watch.begin(has_waited=must_ask)
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
        task = asyncio.create_task(_contained(tool, arguments, context))
        try:
            await asyncio.wait({task}, timeout=tool.timeout)
            timed_out = not task.done()
        finally:
            await _to_its_end(self._end(tool, task, context))
        if timed_out:
            what = "cannot be stopped: it may go on" if context.lingers or not task.done() else "was stopped"
            return ToolOutput(f"{tool.name} took longer than its {tool.timeout:g} s and {what}.", is_error=True)
        return _outcome(tool, task)

    async def _end(self, tool: Tool, task: asyncio.Task[ToolOutput], context: ToolContext) -> None:
        """See that nothing is left of a call: its task, its processes. What goes on all the same is reported."""
        context.end()
        if not task.done():
            task.cancel()
            survivors, _ = await asyncio.gather(context.processes.end(), asyncio.wait({task}, timeout=LAST_WORD))
            self._place.refused += [f"{tool.name}: {survivor}" for survivor in survivors]
        else:
            await context.processes.end()
        if context.lingers:
            context.on_return = self._reported(context.lingers)
        if not task.done():
            ended = self._reported(f"{tool.name} ignored the stop and goes on")
            self._left_behind.add(task)
            task.add_done_callback(self._left_behind.discard)
            task.add_done_callback(lambda _: ended())

    def _reported(self, words: str) -> Callable[[], None]:
        """Report what goes on, and return what takes that back."""
        self._place.refused.append(words)

        def take_back() -> None:
            if words in self._place.refused:
                self._place.refused.remove(words)

        return take_back


class _Watch:
    """How long a person was waited for, and how long a tool worked."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._waited: float | None = None

    def begin(self, *, has_waited: bool) -> None:
        """Say that nobody is waited for any more."""
        now = time.monotonic()
        self._waited, self._began = (now - self._began if has_waited else None), now

    @property
    def worked(self) -> float:
        """Seconds that the tool took."""
        return round(time.monotonic() - self._began, 3)

    @property
    def waited(self) -> float | msgspec.UnsetType:
        """Seconds that a person took, where one was asked."""
        return msgspec.UNSET if self._waited is None else round(self._waited, 3)


def _result(call: ToolCall, given: ToolOutput, watch: _Watch) -> ToolResult:
    """Return a call's result as people are shown it. Half an emoji can be neither stored nor shown to a model."""
    is_cut = len(given.text) > MOST_KEPT
    output = cut(given.text, MOST_KEPT) if is_cut else given.text
    result: ToolResult = storable(
        ToolResult(call.id, output, given.is_error, watch.worked, is_cut, given.content or msgspec.UNSET, watch.waited)
    )
    return result


async def _contained(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    """Call a tool. One that wants to end the program ends only its own call; asyncio would end the server."""
    try:
        return await tool.call(arguments, context)
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolError(f"{tool.name} ended with {error!r}.") from None


async def _all_ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


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
        returned: Any = task.result()
        if isinstance(returned, ToolOutput) and isinstance(returned.text, str):
            return returned
        logger.warning("the tool %s returned a %s, which is no ToolOutput", tool.name, type(returned).__name__)
        return ToolOutput(f"{tool.name} gave back nothing that can be shown. It has run.", is_error=True)
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
