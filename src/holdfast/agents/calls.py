"""Tool calls: concurrent, each with its approval and timeout, and with all of its processes ended afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from ..concurrency.tasks import OwnedTasks
from ..errors import RunSettled
from ..events import (
    ApprovalDecided,
    ApprovalRequested,
    FormField,
    InputDecided,
    Outlet,
    Replay,
    ToolCall,
    ToolProgress,
    ToolResult,
    put,
)
from ..log.steps import CallProgress, CallResult, cut
from ..log.storable import storable
from ..task_context.tracing import TRACER
from .approvals import Decision, Desk, DeskReply, Grants, Place
from .effects import Effects
from .processes import ProcessTable
from .time_limit import TimeLimit
from .tools import Approval, HasBeginnings, Previewing, Tool, ToolContext, ToolError, ToolOutput, misfit

logger = logging.getLogger(__name__)

MOST_KEPT = 1_000_000
"""Maximum length of a stored output, in characters. Of a longer one the head and the tail are kept."""
PROGRESS_EVERY = 0.1
"""Minimum seconds between two progress events of one call. The next event has the last message, and all new output."""
MOST_STREAMED = 200_000
"""Maximum length of one call's output, in characters, that is reported while it runs. The result has all of it."""
CANCEL_GRACE = 0.5
"""Seconds that a cancelled tool may take to end before it is left behind and reported."""

NOT_JSON = "not_a_json_object"
"""The field for arguments that were not a JSON object."""

_arguments = msgspec.json.Decoder(dict[str, Any]).decode


class Calls:
    """Calls an agent's tools. Costs one task for each call, and one for the tool in it."""

    def __init__(
        self,
        tools: Sequence[Tool],
        approvals: Mapping[str, Approval],
        *,
        desk: Desk,
        out: Outlet,
        place: Place,
        grants: Grants,
        patience: float | None = None,
        replays: Mapping[str, Replay] = MappingProxyType({}),
        table: ProcessTable | None = None,
        environ: Mapping[str, str] | None = None,
        run_id: str = "",
        session_id: str | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._approvals = approvals
        self._desk = desk
        self._out = out
        self._progress = _Progress(out)
        self._place = place
        self._grants = grants
        self._patience = patience
        self._effects = Effects(out, place, desk, replays, patience)
        self._table = table or ProcessTable()
        self._environ = environ
        self._run_id = run_id
        self._session_id = session_id
        self._left_behind = OwnedTasks("a tool call that was stopped")

    async def all(
        self, calls: Sequence[ToolCall], before: Mapping[str, CallProgress] = MappingProxyType({})
    ) -> list[CallResult]:
        """Make the calls concurrently, and return the results in their order. A stop ends all of them.

        `before` has what happened to some of them before a restart.
        """
        tasks = [asyncio.create_task(self._one(call, before.get(call.id, CallProgress()))) for call in calls]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await _to_its_end(_all_ended(tasks))
            errors = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
        if errors:
            raise errors[0]
        return [task.result() for task in tasks]

    async def _one(self, call: ToolCall, before: CallProgress) -> CallResult:
        self._desk.begin()
        watch = _Watch()
        try:
            output = await self._permitted(call, before, watch)
        finally:
            self._desk.done()
        result = _result(call, output, watch)
        if not is_internal(call.name):
            await put(self._out, [result])
        return CallResult(call.id, cut(result.output), output.is_error)

    async def _permitted(self, call: ToolCall, before: CallProgress, watch: _Watch) -> ToolOutput:
        """Call a tool if the settings or a person allow it, or settle what became of it before a restart.

        An invalid call is refused before an approval is requested.
        """
        call = _as_edited(call, before.approved)
        checked = self._checked(call)
        if isinstance(checked, ToolOutput):
            may_have_run = " The call before the restart of the server may have run." if before.started else ""
            return msgspec.structs.replace(checked, text=checked.text + may_have_run)
        tool, arguments = checked
        if before.started is not None:
            found = await self._effects.settle(tool, arguments, call, before, before.started)
            watch.begin(has_waited=False)
            output = found if found is not None else await self._traced(tool, arguments, call, before)
            return _noted(output, before.approved)
        must_ask = await self._must_ask(tool, arguments, before)
        decision = await self._decided(call, before, tool, arguments) if must_ask else None
        watch.begin(has_waited=decision is not None)
        if decision is not None and decision.decision == "deny":
            note = f" They say: {decision.note}" if decision.note else ""
            return ToolOutput(f"The person denied this call, and it did not run.{note}", is_error=True)
        call = _as_edited(call, decision)
        output = await self._traced(tool, parsed(call.arguments) or {}, call, before)
        return _noted(output, decision)

    def _checked(self, call: ToolCall) -> tuple[Tool, dict[str, Any]] | ToolOutput:
        """Return the tool and the arguments of a call, or the error for the model if it cannot be made."""
        tool = self._tools.get(call.name)
        if tool is None:
            there = ", ".join(self._tools) or "none"
            return ToolOutput(f"There is no tool {call.name!r}. The tools are: {there}.", is_error=True)
        arguments = parsed(call.arguments)
        if arguments is None:
            return ToolOutput("The arguments are not a JSON object.", is_error=True)
        if self._approvals.get(tool.name, tool.approval) == "deny":
            return ToolOutput(f"{tool.name} may not be used here: the settings deny it.", is_error=True)
        if wrong := misfit(tool, arguments):
            return ToolOutput(wrong, is_error=True)
        return tool, arguments

    async def _must_ask(self, tool: Tool, arguments: dict[str, Any], before: CallProgress) -> bool:
        if before.requested is not None or before.approved is not None:
            return True
        return self._approvals.get(tool.name, tool.approval) == "ask" and not await self._grants.allows(tool, arguments)

    async def _decided(
        self, call: ToolCall, before: CallProgress, tool: Tool, arguments: dict[str, Any]
    ) -> Decision | ApprovalDecided:
        """Return what a person has decided about a call, or request an approval."""
        if before.approved is not None:
            return before.approved

        def check(reply: DeskReply) -> str:
            decision = reply if isinstance(reply, Decision) else None
            checked = self._checked(_as_edited(call, decision))
            if isinstance(checked, ToolOutput):
                return checked.text
            beginning = decision.beginning if decision is not None else ""
            is_so = not beginning or (isinstance(tool, HasBeginnings) and tool.begins(checked[1], beginning))
            return "" if is_so else f"This call does not begin with {beginning!r}, or it is more than one command."

        if isinstance(before.requested, ApprovalRequested):
            return await self._desk.ask_again(before.requested, self._patience, check)
        beginning = tool.beginning(arguments) if isinstance(tool, HasBeginnings) else ""
        preview = await _preview(tool, arguments)
        approval = ApprovalRequested("", call.name, call.arguments, call.id, preview=preview, beginning=beginning)
        return await self._desk.ask(approval, self._patience, check)

    async def _traced(self, tool: Tool, arguments: dict[str, Any], call: ToolCall, before: CallProgress) -> ToolOutput:
        """Save that a call begins, and make it, within a span if traces are on."""
        effect_id = "" if is_internal(tool.name) else await self._effects.begin(tool, call, before.started)
        tracer = TRACER.get()
        if tracer is None:
            return await self._call(tool, arguments, call, effect_id, before)
        with tracer.tool_call(tool.name, call.id, call.arguments) as span:
            output = await self._call(tool, arguments, call, effect_id, before)
            span.returned(output.text, is_error=output.is_error)
            return output

    async def _call(
        self, tool: Tool, arguments: dict[str, Any], call: ToolCall, effect_id: str, before: CallProgress
    ) -> ToolOutput:
        loop, limit = asyncio.get_running_loop(), TimeLimit(tool.timeout)

        def progress(message: str, fraction: float | None, output: str) -> None:
            if not is_internal(tool.name):
                loop.call_soon_threadsafe(self._progress.report, ToolProgress(call.id, message, fraction, output))

        async def ask(message: str, fields: tuple[FormField, ...]) -> InputDecided:
            with limit.paused():
                return await self._desk.ask_input(call, message, fields, self._patience, before)

        context = ToolContext(
            run_id=self._run_id,
            session_id=self._session_id,
            call_id=call.id,
            effect_id=effect_id,
            progress=progress,
            ask=ask,
            table=self._table,
            environ=self._environ,
        )
        task = asyncio.create_task(_contained(tool, arguments, context))
        try:
            with contextlib.suppress(TimeoutError):
                async with limit:
                    await asyncio.wait({task})
            timed_out = not task.done()
        finally:
            await _to_its_end(self._end(tool, task, context))
            self._progress.finish(call.id)
        if timed_out:
            what = "cannot be stopped: it may still be running" if context.lingers or not task.done() else "was stopped"
            return ToolOutput(f"{tool.name} took longer than its {tool.timeout:g} s and {what}.", is_error=True)
        return _outcome(tool, task)

    async def _end(self, tool: Tool, task: asyncio.Task[ToolOutput], context: ToolContext) -> None:
        """End the task and the processes of a call. Report those that do not end."""
        context.end()
        if not task.done():
            task.cancel()
            survivors, _ = await asyncio.gather(context.processes.end(), asyncio.wait({task}, timeout=CANCEL_GRACE))
            self._place.survivors += [f"{tool.name}: {survivor}" for survivor in survivors]
        else:
            await context.processes.end()
        if context.lingers:
            context.on_return = self._reported(context.lingers)
        if not task.done():
            ended = self._reported(f"{tool.name} ignored the stop and is still running")
            self._left_behind.hold(task)
            task.add_done_callback(lambda _: ended())

    def _reported(self, report: str) -> Callable[[], None]:
        """Add a report of something that did not end, and return the function that withdraws it."""
        self._place.survivors.append(report)

        def withdraw() -> None:
            if report in self._place.survivors:
                self._place.survivors.remove(report)

        return withdraw


class _Progress:
    """Emits the progress of calls: at most one event for each call in `PROGRESS_EVERY` seconds."""

    def __init__(self, out: Outlet) -> None:
        self._out = out
        self._reported: dict[str, float] = {}
        self._streamed: dict[str, int] = {}
        self._pending: dict[str, ToolProgress] = {}

    def report(self, progress: ToolProgress) -> None:
        """Emit progress now, or together with later progress when the next event of this call is due."""
        earlier = self._pending.get(progress.id)
        self._pending[progress.id] = self._joined(earlier, progress)
        if earlier is not None:
            return
        due = self._reported.get(progress.id, 0.0) + PROGRESS_EVERY - time.monotonic()
        if due <= 0:
            self.finish(progress.id)
        else:
            asyncio.get_running_loop().call_later(due, self.finish, progress.id)

    def finish(self, call: str) -> None:
        """Emit the pending progress, unless the run has ended."""
        if (progress := self._pending.pop(call, None)) is not None:
            self._reported[call] = time.monotonic()
            with contextlib.suppress(RunSettled):
                self._out.emit([progress])

    def _joined(self, earlier: ToolProgress | None, progress: ToolProgress) -> ToolProgress:
        streamed = self._streamed.get(progress.id, 0)
        output = progress.output[: MOST_STREAMED - streamed]
        self._streamed[progress.id] = streamed + len(output)
        before = earlier.output if earlier is not None else ""
        return ToolProgress(progress.id, progress.message, progress.fraction, before + output)


class _Watch:
    """The time of an approval, and the time of the tool."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._waited: float | None = None

    def begin(self, *, has_waited: bool) -> None:
        """Note that the approval was decided."""
        now = time.monotonic()
        self._waited, self._began = (now - self._began if has_waited else None), now

    @property
    def worked(self) -> float:
        """Seconds that the tool took."""
        return round(time.monotonic() - self._began, 3)

    @property
    def waited(self) -> float | msgspec.UnsetType:
        """Seconds until a person decided; unset if no approval was needed."""
        return msgspec.UNSET if self._waited is None else round(self._waited, 3)


def _result(call: ToolCall, output: ToolOutput, watch: _Watch) -> ToolResult:
    """Return the result of a call as an event. Lone surrogates are replaced: they can be neither stored nor sent."""
    is_cut = len(output.text) > MOST_KEPT
    text = cut(output.text, MOST_KEPT) if is_cut else output.text
    result: ToolResult = storable(
        ToolResult(call.id, text, output.is_error, watch.worked, is_cut, output.content or msgspec.UNSET, watch.waited)
    )
    return result


async def _preview(tool: Tool, arguments: dict[str, Any]) -> str:
    """Return the preview of a call; empty if there is none or it fails. Then the arguments are shown instead."""
    if not isinstance(tool, Previewing):
        return ""
    try:
        preview: str = storable(await tool.preview(arguments))
    except Exception:
        logger.warning("the preview of a call of %s failed", tool.name, exc_info=True)
        return ""
    return preview


async def _contained(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
    """Call a tool. A `SystemExit` ends the call only: asyncio would end the server."""
    try:
        return await tool.call(arguments, context)
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolError(f"{tool.name} ended with {error!r}.") from None


async def _all_ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if the caller is cancelled meanwhile; raise the cancel afterwards."""
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
    """Return the output of a call, or the error for the model if it raised."""
    if task.cancelled():
        return ToolOutput(f"{tool.name} was cancelled before it finished. It may have run.", is_error=True)
    error = task.exception()
    if error is None:
        returned: Any = task.result()
        if isinstance(returned, ToolOutput) and isinstance(returned.text, str):
            return returned
        logger.warning("the tool %s returned a %s, not a ToolOutput", tool.name, type(returned).__name__)
        return ToolOutput(f"{tool.name} returned nothing that can be shown. It has run.", is_error=True)
    if isinstance(error, ToolError):
        return ToolOutput(str(error), is_error=True)
    logger.warning("tool %s raised an exception", tool.name, exc_info=error)
    return ToolOutput(f"{tool.name} failed with {type(error).__name__}: {error}", is_error=True)


def _as_edited(call: ToolCall, decision: Decision | ApprovalDecided | None) -> ToolCall:
    """Return a call with the arguments that a person has given it."""
    edited = decision.arguments if decision is not None else ""
    return msgspec.structs.replace(call, arguments=edited) if edited else call


def _noted(output: ToolOutput, decision: Decision | ApprovalDecided | None) -> ToolOutput:
    """Return an output that tells the model with which arguments the call ran, if a person has changed them."""
    if decision is None or not decision.arguments:
        return output
    note = f"[The person changed the arguments of this call to {decision.arguments}]\n"
    return msgspec.structs.replace(output, text=note + output.text)


def is_internal(name: str) -> bool:
    """Return whether a tool is internal and has no events: its name has a leading underscore."""
    return name.startswith("_")


def parsed(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call, or None if they are not a JSON object."""
    try:
        written = _arguments(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if written.keys() == {NOT_JSON} else written


def as_object(arguments: str) -> str:
    """Return arguments that every provider accepts: a JSON object, or one that contains the invalid text."""
    written = arguments.strip() or "{}"
    return written if parsed(written) is not None else msgspec.json.encode({NOT_JSON: written}).decode()
