"""Tools of agents, and tools from Python functions.

@tool
async def weather(city: str, days: int = 1) -> str:
    \"\"\"Look up the weather.

    Args:
        city: the city's name
        days: how many days ahead
    \"\"\"
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Literal, Protocol, get_args, get_type_hints, overload, runtime_checkable

import msgspec

from ...events import FormField, InputDecided, Replay
from ..processes import Processes, ProcessTable
from .effects import Effect, NotRun

Approval = Literal["allow", "ask", "deny"]
AskPerson = Callable[[str, tuple[FormField, ...]], Awaitable[InputDecided]]
"""Asks the person of a run: with words, and the fields of a form."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names of tools that upstreams accept."""


class ToolError(Exception):
    """The failure of a tool, with a message for the model."""


class ToolOutput(msgspec.Struct, frozen=True):
    """The result of a tool. With `is_error` the call has failed; the run continues."""

    text: str
    is_error: bool = False
    content: tuple[dict[str, Any], ...] = ()
    """Content that is not text, for people: images and others, in MCP's shape."""


class ToolContext:
    """The context of a call, besides its arguments. A stop cancels the task of the call."""

    def __init__(
        self,
        *,
        run_id: str = "",
        session_id: str | None = None,
        call_id: str = "",
        effect_id: str = "",
        progress: Callable[[str, float | None, str], None] | None = None,
        ask: AskPerson | None = None,
        table: ProcessTable | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.run_id = run_id
        self.session_id = session_id
        self.call_id = call_id
        self.effect_id = effect_id
        """The idempotency key of the call: saved before it runs, and the same if the call is made again."""
        self.processes = Processes(call_id, table, environ, effect_id)
        """Child processes, which are ended with all of their descendants when the call is over."""
        self.lingers = ""
        """Description, for the receipt, of work that a stop cannot end: a thread, a remote call. Empty if none."""
        self.on_return: Callable[[], None] = lambda: None
        """Called when that work has ended after all."""
        self._progress = progress
        self._ask = ask

    async def ask(self, message: str, fields: Sequence[FormField] = ()) -> InputDecided:
        """AskPerson the person something, and wait for the answer: meanwhile no time limit counts."""
        if self._ask is None:
            return InputDecided("", "decline", note="Nobody is there to ask.")
        return await self._ask(message, tuple(fields))

    def progress(self, message: str = "", fraction: float | None = None, output: str = "") -> None:
        """Report progress and new output. It is shown at once, and resets the idle limit."""
        if self._progress is not None:
            self._progress(message, fraction, output)

    def end(self) -> None:
        """Note that the call is over: later progress is dropped, and nobody is asked any more."""
        self._progress = self._ask = None


@runtime_checkable
class Tool(Protocol):
    """A tool.

    A name with a leading underscore makes a tool internal: the model can call it, and its calls have no events.
    """

    @property
    def name(self) -> str:
        """Its name for the model: letters, digits, `_` and `-`, at most 64."""
        ...

    @property
    def description(self) -> str:
        """Its description for the model."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments: an object."""
        ...

    @property
    def approval(self) -> Approval:
        """Whether it may be called: `ask` asks a person each time."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take; None for as long as the run."""
        ...

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run it. An exception is a failed call for the model."""
        ...


@runtime_checkable
class Previewing(Protocol):
    """A tool that can show the changes of a call before it is allowed."""

    async def preview(self, arguments: dict[str, Any]) -> str:
        """Return the change as a unified diff; nothing if it cannot be shown."""
        ...


@runtime_checkable
class HasBeginnings(Protocol):
    """A tool whose calls a person may allow by what they begin with."""

    def beginning(self, arguments: dict[str, Any]) -> str:
        """Return the beginning of a call; empty if it has none that could be allowed."""
        ...

    def begins(self, arguments: dict[str, Any], beginning: str) -> bool:
        """Return whether a call begins so, and does nothing else."""
        ...


@runtime_checkable
class Particular(Protocol):
    """A tool that checks its arguments itself. Those of other tools are checked by their schema."""

    def misfit(self, arguments: dict[str, Any]) -> str:
        """Return the error in the arguments, as text for the model; empty if they are valid."""
        ...


@runtime_checkable
class SaysReplay(Protocol):
    """A tool that says whether a call may be made again if nobody knows whether it has run. Others may not."""

    @property
    def replay(self) -> Replay:
        """`safe` if a call changes nothing, `keyed` if the effect id keeps it from happening twice, else `never`."""
        ...


@runtime_checkable
class Reconciling(Protocol):
    """A tool that can find out what became of a call that a crash has interrupted."""

    async def reconcile(self, effect: Effect) -> ToolOutput | NotRun | None:
        """Return the result of a call that has run, `NotRun()` if it certainly has not, or None if that is unknown."""
        ...


class FunctionTool:
    """A Python function as a tool: its types are the schema, its docstring is the description for the model.

    A function that is not async runs in a thread, which cannot be stopped: the receipt of a stopped run says so.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        approval: Approval = "allow",
        timeout: float | None = 60.0,
        replay: Replay = "never",
        reconcile: Reconcile | None = None,
    ) -> None:
        self.name = name or function.__name__
        if not NAME.fullmatch(self.name):
            raise TypeError(f"{self.name!r} is not a valid tool name: use letters, digits, _ and -, at most 64")
        summary, described = _docstring(inspect.getdoc(function) or "")
        self.description = description or summary
        self.approval = approval
        self.timeout = timeout
        if replay not in get_args(Replay):
            raise TypeError(f"{replay!r} is no value of replay: use one of {', '.join(get_args(Replay))}")
        self.replay: Replay = replay
        self._function = function
        self._reconcile = reconcile
        self._takes_context, self._arguments = _arguments_of(function)
        self.parameters = _schema(self._arguments, described)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function."""
        return self._function(*args, **kwargs)

    def misfit(self, arguments: dict[str, Any]) -> str:
        """Return the error in the arguments. A number in quotes is accepted, because models write them."""
        try:
            msgspec.convert(arguments, self._arguments, strict=False)
        except msgspec.ValidationError as error:
            return f"The arguments do not fit: {error}"
        return ""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Check the arguments, call the function, and convert its result to text."""
        if misfit := self.misfit(arguments):
            return ToolOutput(misfit, is_error=True)
        checked = msgspec.convert(arguments, self._arguments, strict=False)
        given = {name: getattr(checked, name) for name in self._arguments.__struct_fields__}
        if self._takes_context:
            given[self._takes_context] = context
        if inspect.iscoroutinefunction(self._function):
            return _output(await self._function(**given))
        return _output(await self._in_thread(given, context))

    async def reconcile(self, effect: Effect) -> ToolOutput | NotRun | None:
        """AskPerson the tool's own `reconcile` about an effect id; without one it is unknown."""
        if self._reconcile is None:
            return None
        if inspect.iscoroutinefunction(self._reconcile):
            found = await self._reconcile(effect.id)
        else:
            found = await asyncio.to_thread(self._reconcile, effect.id)
        return found if found is None or isinstance(found, NotRun) else _output(found)

    async def _in_thread(self, given: dict[str, Any], context: ToolContext) -> Any:
        context.lingers = f"{self.name} runs in a thread, which cannot be stopped: it runs until it returns"

        def has_returned() -> None:
            context.lingers = ""
            context.on_return()

        result = await _threaded(partial(self._function, **given), has_returned)
        return await result if inspect.isawaitable(result) else result


async def _threaded(function: Callable[[], Any], has_returned: Callable[[], None]) -> Any:
    """Call a function in a daemon thread, which delays neither other tools nor the end of the server.

    `has_returned` is called at its end in any case, even if the call was cancelled.
    """
    loop, current = asyncio.get_running_loop(), contextvars.copy_context()
    returned: asyncio.Future[Any] = loop.create_future()

    def give(result: Any, error: BaseException | None) -> None:
        has_returned()
        if returned.done():
            return  # the call was cancelled
        if error is None:
            returned.set_result(result)
        else:
            returned.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = current.run(function)
        except BaseException as raised:  # noqa: BLE001 - the caller handles it
            error = raised if not isinstance(raised, StopIteration) else RuntimeError(repr(raised))
        with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(give, result, error)

    threading.Thread(target=run, name="tool", daemon=True).start()
    return await returned


Reconcile = Callable[[str], Any]
"""Returns the result of the call with an effect id, `NotRun()`, or None if it is unknown. It may be async."""


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    approval: Approval = "allow",
    timeout: float | None = 60.0,
    replay: Replay = "never",
    reconcile: Reconcile | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    approval: Approval = "allow",
    timeout: float | None = 60.0,
    replay: Replay = "never",
    reconcile: Reconcile | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function: `@tool`, or `@tool(approval="ask", timeout=5)`."""

    def wrap(wrapped: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            wrapped,
            name=name,
            description=description,
            approval=approval,
            timeout=timeout,
            replay=replay,
            reconcile=reconcile,
        )

    return wrap(function) if function is not None else wrap


def _arguments_of(function: Callable[..., Any]) -> tuple[str, type[msgspec.Struct]]:
    """Return the parameter for the context, if there is one, and a struct of all others."""
    hints = get_type_hints(function, include_extras=True)
    takes_context = ""
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__name__}: a tool's parameters need names, so *args, ** and / are not possible")
        kind = hints.get(parameter.name, Any)
        if kind is ToolContext or ToolContext in get_args(kind):
            takes_context = parameter.name
        elif parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, _default(parameter.default)))
    return takes_context, msgspec.defstruct(
        f"{function.__name__}_arguments", fields, kw_only=True, forbid_unknown_fields=True
    )


def _default(value: Any) -> Any:
    """Return a default that is not shared between calls."""
    return msgspec.field(default_factory=lambda: deepcopy(value)) if isinstance(value, (list, dict, set)) else value


def _schema(arguments: type[msgspec.Struct], described: dict[str, str]) -> dict[str, Any]:
    """Return the schema of a function's arguments, with their descriptions from the docstring."""
    (_,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema = dict(components.pop(arguments.__name__))
    schema.pop("title", None)
    schema["properties"] = {
        name: {**field, **({"description": described[name]} if name in described else {})}
        for name, field in schema["properties"].items()
    }
    return {**schema, **({"$defs": components} if components else {})}


_SECTION = re.compile(r"\n\s*(?:Args|Arguments|Parameters):\s*\n", re.IGNORECASE)
_HEADING = re.compile(r"\n\s*(?:Returns|Raises|Yields|Examples?|Notes?):\s*\n", re.IGNORECASE)
_ITEM = re.compile(r"^[ \t]+(\w+)(?:[ \t]*\([^)]*\))?:[ \t]*(.+(?:\n[ \t]{8,}\S.*)*)", re.MULTILINE)


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description of a function from its docstring, and of each parameter from `Args:`."""
    summary, *rest = _SECTION.split(f"{text}\n", maxsplit=1)
    items = _HEADING.split(rest[0] + "\n", maxsplit=1)[0] if rest else ""
    parameters = {found[1]: " ".join(found[2].split()) for found in _ITEM.finditer(items)}
    return _HEADING.split(summary + "\n", maxsplit=1)[0].strip(), parameters


def _output(returned: Any) -> ToolOutput:
    """Return the value of a function as text: a string as it is, None as empty, the rest as JSON."""
    if isinstance(returned, ToolOutput):
        return returned
    if returned is None:
        return ToolOutput("")
    return ToolOutput(returned if isinstance(returned, str) else msgspec.json.encode(returned, enc_hook=str).decode())


_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
    "string": (str,),
    "null": (type(None),),
}


class _Arguments(msgspec.Struct, frozen=True, rename="camel"):
    """The schema of a tool's arguments, as far as it is read here. That of an MCP server may be anything."""

    properties: Any = None
    required: Any = None
    additional_properties: Any = None


def misfit(tool: Tool, arguments: dict[str, Any]) -> str:
    """Return an error in the arguments of a call that is certain by the schema, before an approval is requested.

    The tool checks the rest: a string may be valid for any type that can be parsed from one.
    """
    if isinstance(tool, Particular):
        return tool.misfit(arguments)
    schema = msgspec.convert(tool.parameters, _Arguments)
    properties = schema.properties or {}
    if missing := [name for name in schema.required or () if name not in arguments]:
        return f"The arguments do not fit: {missing[0]} is missing."
    unknown = [name for name in arguments if name not in properties]
    if unknown and schema.additional_properties is False:
        return f"The arguments do not fit: there is no {unknown[0]}."
    wrong = [name for name, value in arguments.items() if not _may_be(value, properties.get(name))]
    return f"The arguments do not fit: {wrong[0]} does not match the schema." if wrong else ""


def _may_be(value: Any, schema: Any) -> bool:
    match schema:
        case {"type": str(kind)}:
            kinds = [kind]
        case {"type": list(kinds)}:
            pass
        case _:
            return True
    if isinstance(value, str) or not all(kind in _KINDS for kind in kinds):
        return True
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, _KINDS[kind]) for kind in kinds)


def described(tools: list[Tool]) -> list[dict[str, Any]]:
    """Return the tools for a model, in OpenAI's shape."""
    return [
        {
            "type": "function",
            "function": {"name": each.name, "description": each.description, "parameters": each.parameters},
        }
        for each in tools
    ]
