"""The kinds of functions that can be published as agents, each adapted to a coroutine function with an `emit`.

async def agent(request): yield "text"             an async generator function
async def agent(request, emit): await emit("text")  a coroutine function
def agent(request, emit): emit("text")             a blocking function, run in a thread
def agent(request): yield "text"                   a generator function, run in a thread

All but the generators may also return their text.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from ..errors import SourceFailed
from ..events import Yielded
from .approvals import Place
from .request import AgentRequest, AgentStopped

logger = logging.getLogger(__name__)

Emitted = Yielded | Sequence[Yielded]
Emit = Callable[[Emitted], Awaitable[None]]
AgentFunction = Callable[[AgentRequest, Emit, Place], Awaitable[Any]]
"""An agent: answers a request by emitting events and strings, or by returning its text."""

STOP_GRACE = 1.0
"""Seconds that a thread may take to end after a stop before it is reported."""


def as_agent(function: Any) -> AgentFunction | None:
    """Return an agent from a function of any of these kinds; None for anything else."""
    called = function if inspect.isroutine(function) or isinstance(function, partial) else _call_of(function)
    if inspect.isasyncgenfunction(called):
        return generated(function)
    if called is None or not (takes := _parameters(called)):
        return None
    if inspect.iscoroutinefunction(called):
        return _awaited(function, takes_emit=takes > 1)
    if inspect.isgeneratorfunction(called):
        return _in_thread(_generator(function))
    return _in_thread(_function(function, takes_emit=takes > 1))


def _call_of(agent: Any) -> Any:
    """Return the function that a call of the object runs; None for classes and objects that are not callable."""
    return None if isinstance(agent, type) else getattr(agent, "__call__", None)  # noqa: B004


def _parameters(function: Any) -> int:
    """Return how many positional arguments a function takes, up to two; 0 if it requires more."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return 2
    placed = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    return min(len(placed), 2) if len(needed) <= 2 else 0


def generated(function: Callable[[AgentRequest], Any]) -> AgentFunction:
    """Return an agent from an async generator function."""

    async def agent(request: AgentRequest, emit: Emit, place: Place) -> None:
        async with aclosing(cast(AsyncGenerator[Emitted], function(request))) as source:
            async for item in source:
                await emit(item)

    return agent


def _awaited(function: Callable[..., Awaitable[Any]], *, takes_emit: bool) -> AgentFunction:
    async def agent(request: AgentRequest, emit: Emit, place: Place) -> Any:
        return await (function(request, emit) if takes_emit else function(request))

    return agent


# In a thread.

ThreadEmit = Callable[[Emitted], None]
Blocking = Callable[[AgentRequest, ThreadEmit], Any]


def _function(function: Callable[..., Any], *, takes_emit: bool) -> Blocking:
    return lambda request, emit: function(request, emit) if takes_emit else function(request)


def _generator(function: Callable[..., Any]) -> Blocking:
    def run(request: AgentRequest, emit: ThreadEmit) -> Any:
        generator = function(request)
        try:
            while True:
                emit(next(generator))
        except StopIteration as end:
            return end.value
        finally:
            generator.close()  # after a stop its cleanup runs, in its thread

    return run


def _in_thread(run: Blocking) -> AgentFunction:
    """Return an agent from a blocking function. Each run has its own thread; `emit` blocks it while there is no room.

    A stop raises `AgentStopped` at the next emit. A thread that does not end then is reported in the run's receipt.
    """

    async def agent(request: AgentRequest, emit: Emit, place: Place) -> Any:
        bridge = _Bridge(emit)
        context = contextvars.copy_context()
        name = f"holdfast-agent-{request.run_id}"
        thread = threading.Thread(target=context.run, args=(bridge.run, run, request), name=name, daemon=True)
        thread.start()
        try:
            return await asyncio.shield(bridge.ended)
        finally:
            await bridge.stop(place)

    return agent


class _Bridge:
    """Passes the items that a thread emits to the event loop, one at a time."""

    def __init__(self, emit: Emit) -> None:
        self._loop = asyncio.get_running_loop()
        self._emit = emit
        self._lock = threading.Lock()
        self._is_stopped = False
        self._emitting: concurrent.futures.Future[None] | None = None
        self.ended: asyncio.Future[Any] = self._loop.create_future()

    # in the thread

    def run(self, run: Blocking, request: AgentRequest) -> None:
        """Run the agent, and pass its result or error to the loop."""
        returned, error = None, None
        try:
            returned = run(request, self.emit)
        except BaseException as raised:  # noqa: BLE001 - it ends this run, and nothing else
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._end, returned, error)
        except RuntimeError:
            logger.warning("thread of an agent ended after the server")

    def emit(self, item: Emitted) -> None:
        """Emit an item, and wait until there is room for more. Raises `AgentStopped` after a stop."""
        with self._lock:
            if self._is_stopped:
                raise AgentStopped
            self._emitting = emitting = asyncio.run_coroutine_threadsafe(self._emit_in_loop(item), self._loop)
        try:
            emitting.result()
        except concurrent.futures.CancelledError:
            raise AgentStopped from None

    # in the loop

    async def _emit_in_loop(self, item: Emitted) -> None:
        await self._emit(item)

    def _end(self, returned: Any, error: BaseException | None) -> None:
        if error is None or self._is_stopped:
            self.ended.set_result(returned)
        elif isinstance(error, (StopIteration, AgentStopped)):
            self.ended.set_exception(SourceFailed(f"The source ended with {error!r}."))
        else:
            self.ended.set_exception(error)

    async def stop(self, place: Place) -> None:
        """End the thread at its next emit, and report it if it does not end. Does nothing if it has ended."""
        with self._lock:
            self._is_stopped = True
        if self.ended.done():
            return
        if self._emitting is not None:
            self._emitting.cancel()
        await asyncio.wait({self.ended}, timeout=STOP_GRACE)
        if not self.ended.done():
            report = "the agent runs in a thread, which ignored the stop: it runs until it returns"
            logger.warning("%s", report)
            place.survivors.append(report)
            self.ended.add_done_callback(lambda _: place.survivors.remove(report))
