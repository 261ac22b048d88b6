"""An event loop without threads, sockets or a real clock, whose every choice comes from a seed."""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""The simulated process that a task, a timer or a callback belongs to. None is the world outside of all servers."""


class Livelock(Exception):
    """The schedule goes on and on."""


class Process:
    """Tasks and timers that live, sleep and die together: what `kill -9` and SIGSTOP act on.

    Membership is inherited through the context, as environment variables are by child processes: whatever a task of
    the process creates belongs to it too.
    """

    def __init__(self) -> None:
        self.alive = True
        self.paused = False
        self.runs = True
        self._asleep: list[Handle] = []

    def kill(self) -> None:
        """Nothing of the process ever runs again: no `finally`, no callback, no timer."""
        self.alive = self.runs = False
        self._asleep.clear()

    def pause(self) -> None:
        """Stop it in mid-flight; what comes due in the meantime waits."""
        self.paused = True
        self.runs = False

    def resume(self, loop: SeededLoop) -> None:
        """Go on where it was, late."""
        self.paused = False
        self.runs = self.alive
        if self.alive:
            loop.ready.extend(self._asleep)
        self._asleep.clear()

    def put_off(self, handle: Handle) -> None:
        """Keep what a paused process would do now; a dead one does nothing."""
        if self.alive:
            self._asleep.append(handle)


class Handle:
    """A callback that will run once, unless it is cancelled."""

    __slots__ = ("_when", "args", "callback", "context", "is_cancelled")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, when: float) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False
        self._when = when

    def cancel(self) -> None:
        """Do not run it."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the time at which it is due."""
        return self._when


class SeededLoop(asyncio.AbstractEventLoop):
    """Runs tasks in virtual time: where nothing is ready, the clock jumps to the next timer.

    What may be reordered. asyncio promises that callbacks run in the order in which they were registered, and code may
    rely on it: so plain callbacks keep their place in a turn. But which of several *tasks* wakes first is in life
    decided by networks, disks and kernels, and no code may rely on it: in each turn, with a probability that the seed
    has drawn, the tasks that are ready swap places among themselves.
    """

    def __init__(self, rng: Random, disorder: float, most_steps: int = 200_000) -> None:
        self.ready: list[Handle] = []
        self.steps = 0
        self.trace: list[float] = []
        self.tasks: dict[asyncio.Task[Any], int] = {}
        self.processes: dict[asyncio.Task[Any], Process | None] = {}
        self.alarm: tuple[int, Callable[[], None]] | None = None
        """What to do once so many steps are done: in the middle of a turn, as a crash comes."""
        self.errors: list[dict[str, Any]] = []
        self.most_steps = most_steps
        self._timers: list[tuple[float, int, Handle]] = []
        self._timed = 0
        self._now = 0.0
        self._random = rng.random
        self._below = rng.randrange
        self._disorder = disorder

    # what asyncio asks of a loop

    def time(self) -> float:
        """Return the virtual time, in seconds since the beginning."""
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        """Run a callback in the next turn."""
        handle = Handle(callback, args, copy_context() if context is None else context, self._now)
        self.ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        """Run a callback at a virtual time."""
        return self.call_later(when - self._now, callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        """Run a callback after some virtual seconds."""
        when = self._now + delay
        handle = Handle(callback, args, copy_context() if context is None else context, when)
        self._timed += 1
        heapq.heappush(self._timers, (when, self._timed, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Task[Any]:
        """Start a task; it belongs to the process of whoever starts it."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **kwargs)
        self.tasks[task] = len(self.tasks) + 1
        self.processes[task] = PROCESS.get() if "context" not in kwargs else kwargs["context"].get(PROCESS)
        return task

    def spawn(self, process: Process | None, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task in a process."""
        return self.create_task(coro, context=context_of(process))

    def run_in_executor(self, executor: None, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do the work of a thread between two turns."""
        done = self.create_future()
        self.call_soon(lambda: done.cancelled() or done.set_result(work(*args)))
        return done

    def get_debug(self) -> bool:
        """Debug mode would only slow the simulation."""
        return False

    def is_running(self) -> bool:
        """Tell whether it runs."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """It holds nothing that could be closed."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody caught: the checker asks for it."""
        self.errors.append(context)

    def _timer_handle_cancelled(self, handle: Handle) -> None:
        pass

    # running

    def run(self, coro: Coroutine[Any, Any, Any]) -> None:
        """Run until the coroutine, which is the world itself, has ended."""
        with self._installed():
            main = self.spawn(None, coro)
            while not main.done():
                if not self.ready:
                    self._advance()
                self._turn()
        main.result()

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """Be the running loop. An async generator that nobody closes stays open, so that the checker can see it."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=lambda generator: None)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _advance(self) -> None:
        """Jump to the next timer, and take everything that is due by then."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        if not timers:
            raise Livelock("every task waits for something that never comes")
        together = timers[0][0] + 1e-7  # sums of the same delays differ in their last digits
        while timers and timers[0][0] <= together:
            self._now, _, handle = heapq.heappop(timers)
            self.ready.append(handle)
        self.trace.append(self._now)

    def _turn(self) -> None:
        """Run what is ready now; what becomes ready meanwhile waits for the next turn, as in asyncio."""
        batch, self.ready = self.ready, []
        if len(batch) > 1 and self._random() < self._disorder:
            self._disarrange(batch)
        for handle in batch:
            if handle.is_cancelled:
                continue
            context = handle.context
            process = context.get(PROCESS)
            if process is not None and not process.runs:
                process.put_off(handle)
                continue
            self.steps += 1
            owner = getattr(handle.callback, "__self__", None)
            self.trace.append(self.tasks[owner] if isinstance(owner, asyncio.Task) else 0)
            if self.alarm is not None and self.steps >= self.alarm[0]:
                self._ring()
            try:
                context.run(handle.callback, *handle.args)
            except Exception as error:  # noqa: BLE001 - as every loop does; the checker asks for it
                self.call_exception_handler({"message": f"exception in {handle.callback!r}", "exception": error})
        if self.steps > self.most_steps:
            raise Livelock(f"{self.steps} steps, and no end")

    def _ring(self) -> None:
        assert self.alarm is not None
        (_, ring), self.alarm = self.alarm, None
        ring()

    def _disarrange(self, batch: list[Handle]) -> None:
        places = [at for at, handle in enumerate(batch) if _is_task_step(handle)]
        for last in range(len(places) - 1, 0, -1):
            one, other = places[last], places[self._below(last + 1)]
            batch[one], batch[other] = batch[other], batch[one]

    def discard(self) -> None:
        """Let go of every task that has not ended, in silence, and of what they start on their way out."""
        gone = 0
        with self._installed():
            while gone < len(self.tasks):
                left = list(self.tasks)[gone:]
                gone += len(left)
                for task in left:
                    _discard(task)
        self.ready.clear()
        self._timers.clear()


def context_of(process: Process | None) -> Context:
    """Return a context in which what is started belongs to a process."""
    context = copy_context()
    context.run(PROCESS.set, process)
    return context


def _discard(task: asyncio.Task[Any]) -> None:
    if task.done():
        if not task.cancelled():
            task.exception()
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    with suppress(Exception):
        task.get_coro().close()  # type: ignore[union-attr]


def _is_task_step(handle: Handle) -> bool:
    return isinstance(getattr(handle.callback, "__self__", None), asyncio.Task)
