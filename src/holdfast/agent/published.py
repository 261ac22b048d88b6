"""Agents that somebody else wrote: any async generator function, published as a model.

async def agent(request: AgentRequest):
    yield f"You said: {request.text}"
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, cast

import msgspec

from ..errors import SourceFailed
from ..events import Finish, Reasoning, Source, StepFinished, StepStarted, Text, ToolCall, ToolResult, Yielded
from ..judgement import heard
from .adapters import adapted
from .calls import as_object
from .outbox import Outbox
from .request import AgentRequest

Published: TypeAlias = Callable[["AgentRequest"], Source]
"""What can be published: it is given what was asked, and yields events and strings."""


class CannotPublish(Exception):
    """What was named is no agent, or cannot be loaded."""


class StepMarks:
    """Puts steps around what an agent says that counts none itself, so that history can tell its calls in order.

    A new step begins with the first word or call after the last result. Its calls are its own: no client answers them.
    """

    def __init__(self) -> None:
        self._number = 0
        self._began = 0.0
        self._open: set[str] = set()
        self._has_results = False
        self._counts_itself = False

    @property
    def is_calling(self) -> bool:
        """Whether a call has no result yet: then silence is no sign of trouble."""
        return bool(self._open)

    def marked(self, said: Yielded | Sequence[Yielded]) -> list[Yielded]:
        """Return what was said with the steps around it."""
        marked: list[Yielded] = []
        for item in said if isinstance(said, (list, tuple)) else (said,):
            marked += [*self._before(item), self._owned(item)]
        return marked

    def end(self) -> list[Yielded]:
        """Return what closes the last step."""
        if self._counts_itself or not self._number:
            return []
        return [StepFinished(self._number, round(time.monotonic() - self._began, 3))]

    def _before(self, item: Yielded) -> list[Yielded]:
        if isinstance(item, StepStarted):
            self._counts_itself = True
        if self._counts_itself:
            return []
        if isinstance(item, Finish):
            return self.end()
        is_next = self._has_results and not self._open and isinstance(item, (str, Text, Reasoning, ToolCall))
        if self._number and not is_next:
            return []
        ended, self._has_results, self._began = self.end(), False, time.monotonic()
        self._number += 1
        return [*ended, StepStarted(self._number)]

    def _owned(self, item: Yielded) -> Yielded:
        if isinstance(item, ToolCall):
            self._open.add(item.id)
            return msgspec.structs.replace(item, arguments=as_object(item.arguments), own=True)
        if isinstance(item, ToolResult):
            self._open.discard(item.id)
            self._has_results = True
        return item


async def publishing(agent: Published, request: AgentRequest, *, beat: float = 5.0) -> AsyncGenerator[list[Yielded]]:
    """Let an agent answer. It lives in one task from its first step to its end, which a stop cancels.

    Frameworks hold scopes open while they yield, which only the task that entered them may leave. While a tool runs an
    empty saying tells, every `beat` seconds, that the work goes on.
    """
    outbox, marks = Outbox(request.run_id), StepMarks()
    worker = asyncio.create_task(_read(agent, request, outbox, marks))
    worker.add_done_callback(lambda _: outbox.end())
    try:
        while (said := await outbox.next(beat)) is not None:
            if said or marks.is_calling:
                yield said
        worker.result()
    finally:
        if worker.cancel():
            await asyncio.wait({worker})
        outbox.close()
        _ = worker.cancelled() or worker.exception()


async def _read(agent: Published, request: AgentRequest, outbox: Outbox, marks: StepMarks) -> None:
    try:
        await _read_all(agent, request, outbox, marks)
    except (SystemExit, KeyboardInterrupt) as error:  # asyncio would end the server, with every other run
        raise SourceFailed(f"The source ended with {error!r}.") from error


async def _read_all(agent: Published, request: AgentRequest, outbox: Outbox, marks: StepMarks) -> None:
    is_over = False
    async with aclosing(cast(AsyncGenerator[Yielded | Sequence[Yielded]], agent(request))) as source:
        async for said in source:
            marked = marks.marked(said)
            heard(marked)  # raises here, so that what was said before does not go down with it
            is_over = is_over or any(isinstance(item, Finish) for item in marked)
            await outbox.say(marked)
    if not is_over:
        await outbox.say([*marks.end(), Finish("stop")])


# Which agent.


def load(named: Sequence[str]) -> dict[str, Published]:
    """Return the agents that a command line names: `module:attribute`, or `name=module:attribute`."""
    found: dict[str, Published] = {}
    for each in named:
        name, _, place = each.rpartition("=")
        module, colon, attribute = place.partition(":")
        if not colon or not module or not attribute:
            raise CannotPublish(f"{each!r} names no agent: say module:attribute, or name=module:attribute.")
        name = name or attribute.rpartition(".")[2]
        if name in found:
            raise CannotPublish(f"Two agents are called {name!r}. Say name=module:attribute.")
        found[name] = publishable(_imported(module, attribute), name)
    return found


def _imported(module: str, attribute: str) -> Any:
    """Import what is named. The folder where the server is started counts, as it does for `python -m`."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise CannotPublish(f"{module}:{attribute} cannot be loaded: {type(error).__name__}: {error}") from error
    return found


def published(agents: Mapping[str, Any]) -> dict[str, Published]:
    """Return agents under their names, each as a function that yields events; raise for what is none."""
    return {name: publishable(agent, name) for name, agent in agents.items()}


def publishable(agent: Any, name: str) -> Published:
    """Return an agent as a function that yields events, whatever it was made with."""
    if not name or "/" in name or not name.isprintable():
        raise CannotPublish(f"{name!r} is no name for an agent: it must be there, and without a slash.")
    if inspect.isasyncgenfunction(agent) or inspect.isasyncgenfunction(getattr(agent, "__call__", None)):  # noqa: B004
        return cast(Published, agent)
    if (found := adapted(agent)) is not None:
        return found
    raise CannotPublish(
        f"{name!r} is a {type(agent).__name__}, which cannot be published. Give an async generator function, "
        "async def agent(request): yield ..., or an agent of pydantic-ai, OpenAI's Agents SDK or LangGraph."
    )
