"""Published agents: any function of the kinds in `kinds`, as a model.

async def agent(request: AgentRequest):
    yield f"You said: {request.text}"
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ...errors import SourceFailed
from ...events import (
    AnswerBegins,
    Finish,
    Outlet,
    Reasoning,
    StepFinished,
    StepStarted,
    Text,
    ToolCall,
    ToolResult,
    Yielded,
    put,
)
from ..approvals import Nowhere, Place
from ..calls import as_object
from ..kinds import AgentFunction, Emit, as_agent, generated
from ..modules import CannotImport, import_named
from ..request import AgentRequest
from .adapters import adapted

Published: TypeAlias = AgentFunction
"""An agent that can be published: it gets a request, and emits events and strings."""


_IN_A_ROW = 64  # emits after which an agent that never waits yields to the event loop


class CannotPublish(Exception):
    """The named object is not an agent, or cannot be loaded."""


class StepMarks:
    """Adds step events to the output of an agent that has none, so that history has its calls in order.

    A new step begins with the first text or call after the last result. The agent makes its calls itself.
    """

    def __init__(self) -> None:
        self._number = 0
        self._is_open = False
        self._began = 0.0
        self._open: set[str] = set()
        self._has_results = False
        self._counts_itself = False

    @property
    def is_calling(self) -> bool:
        """Whether a call has no result yet: then the idle limit is suspended."""
        return bool(self._open)

    def marked(self, items: Yielded | Sequence[Yielded]) -> list[Yielded]:
        """Return events with the step events around them."""
        marked: list[Yielded] = []
        for item in items if isinstance(items, (list, tuple)) else (items,):
            marked += [*self._before(item), self._owned(item)]
        return marked

    def end(self) -> list[Yielded]:
        """Return the events that end the last step."""
        if self._counts_itself or not self._is_open:
            return []
        self._is_open = False
        return [StepFinished(self._number, round(time.monotonic() - self._began, 3))]

    def _before(self, item: Yielded) -> list[Yielded]:
        if isinstance(item, StepStarted):
            self._counts_itself = True
        if self._counts_itself or isinstance(item, AnswerBegins):
            return []
        if isinstance(item, Finish):
            return self.end()
        is_next = self._has_results and not self._open and isinstance(item, (str, Text, Reasoning, ToolCall))
        if self._number and not is_next:
            return []
        ended, self._has_results, self._began = self.end(), False, time.monotonic()
        self._number += 1
        self._is_open = True
        return [*ended, StepStarted(self._number)]

    def _owned(self, item: Yielded) -> Yielded:
        if isinstance(item, ToolCall):
            self._open.add(item.id)
            return msgspec.structs.replace(item, arguments=as_object(item.arguments), own=True)
        if isinstance(item, ToolResult):
            self._open.discard(item.id)
            self._has_results = True
        return item


async def publish(agent: AgentFunction, request: AgentRequest, out: Outlet, *, place: Place | None = None) -> None:
    """Run an agent in the task of its run, from beginning to end: a stop cancels that task.

    Frameworks hold cancel scopes open while they yield, which only the task that entered them may leave.
    """
    emit, place = _Emit(out), place or Nowhere()
    place.quiet = lambda: emit.is_calling
    try:
        returned = await agent(request, emit, place)
    except (SystemExit, KeyboardInterrupt) as error:  # asyncio would end the server
        raise SourceFailed(f"The source ended with {error!r}.") from error
    finally:
        place.quiet = None
    if returned is not None and not isinstance(returned, str):
        raise TypeError(f"an agent must return its text, or nothing, not a {type(returned).__name__}")
    await emit.end(returned or "")


class _Emit:
    """The `emit` of an agent: `await emit("text")`. Without `await` nothing is lost, and there is no backpressure."""

    def __init__(self, out: Outlet) -> None:
        self._out = out
        self._marks = StepMarks()
        self._is_over = self._has_text = False
        self._in_a_row = 0

    @property
    def is_calling(self) -> bool:
        """Whether a call has no result yet: then the idle limit is suspended."""
        return self._marks.is_calling

    def __call__(self, items: Yielded | Sequence[Yielded]) -> Awaitable[None]:
        """Emit an item now, and return an awaitable that waits until there is room for more."""
        marked = self._marks.marked(items)
        self._is_over = self._is_over or any(isinstance(item, Finish) for item in marked)
        self._has_text = self._has_text or any(isinstance(item, (str, Text)) for item in marked)
        self._in_a_row += 1
        return _Room(self._out, has_room=self._out.emit(marked), is_turn=self._in_a_row % _IN_A_ROW == 0)

    async def end(self, text: str) -> None:
        """Emit the text that the agent has returned, if it has emitted none, and the finish."""
        if text and not self._has_text:
            await self(text)
        if not self._is_over:
            await put(self._out, [*self._marks.end(), Finish("stop")])


class _Room:
    """Waits for room in a full outlet, and at intervals yields to the event loop. Only an `await` waits."""

    def __init__(self, out: Outlet, *, has_room: bool, is_turn: bool) -> None:
        self._out = out
        self._has_room = has_room
        self._is_turn = is_turn

    def __await__(self) -> Generator[Any, None, None]:
        if not self._has_room:
            yield from self._out.room().__await__()
        elif self._is_turn:
            yield from asyncio.sleep(0).__await__()


# Loading agents.


def load_agents(named: Sequence[str]) -> dict[str, Any]:
    """Return the agents that a command line names: `module:attribute`, or `name=module:attribute`."""
    found: dict[str, Any] = {}
    for each in named:
        name, _, place = each.rpartition("=")
        module, colon, attribute = place.partition(":")
        if not colon or not module or not attribute:
            raise CannotPublish(f"{each!r} is not an agent: use module:attribute, or name=module:attribute.")
        name = name or attribute.rpartition(".")[2]
        if name in found:
            raise CannotPublish(f"Two agents are called {name!r}. Use name=module:attribute.")
        found[name] = _imported(module, attribute)
        publishable(found[name], name)  # raises if it is not an agent
    return found


def _imported(module: str, attribute: str) -> Any:
    """Import the named object. The current folder is searched, as for `python -m`."""
    try:
        return import_named(module, attribute, os.getcwd())
    except CannotImport as error:
        raise CannotPublish(str(error)) from error


def published(agents: Mapping[str, Any], think: Mapping[str, bool] | None = None) -> dict[str, Published]:
    """Return agents by name, each as a function that emits events; raise if one is not an agent.

    `think` has, by name, whether a leading `<think>…</think>` is reasoning. Default: True.
    """
    made = {name: publishable(agent, name) for name, agent in agents.items()}
    return {name: agent if (think or {}).get(name, True) else _meaning_tags(agent) for name, agent in made.items()}


def _meaning_tags(agent: Published) -> Published:
    """Return an agent whose `<think>` tags are text, even if its framework cannot express that."""

    async def tagged(request: AgentRequest, emit: Emit, place: Place) -> Any:
        await emit(AnswerBegins(think=False))
        return await agent(request, emit, place)

    return tagged


def publishable(agent: Any, name: str) -> Published:
    """Return an agent of any supported kind as a function that emits events. Raises `CannotPublish` for others."""
    if not name or "/" in name or not name.isprintable():
        raise CannotPublish(f"{name!r} is not a valid agent name. It must not be empty or have a slash.")
    if (found := adapted(agent)) is not None:
        return generated(found)
    if (function := as_agent(agent)) is not None:
        return function
    raise CannotPublish(
        f"{name!r} is a {type(agent).__name__}, which cannot be published. Give an async generator function, "
        "async def agent(request): yield ..., a function of (request, emit), or an agent of pydantic-ai, OpenAI's "
        "Agents SDK or LangGraph."
    )
