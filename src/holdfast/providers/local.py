"""The embedded model: a real answer with no key and no service, from llama.cpp in a process of its own.

The process (see `local_child`) starts when it is first needed, serves all runs, and is started again after it has
ended; it ends with ours, or a few seconds later where it was told to linger. What a run waits for before its first
word it is told in notices: the weights while they are fetched, the model while it is loaded, its turn while others are
answered, the prompt while it is read.

llama.cpp looks for a client that has left between two batches of a prompt only if it has progress to tell, and between
two tokens only if it streams. So it is always asked for both, and batches are small.

Cost: one process of about 350 MB with the small model, and for each run one connection.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ProviderError, ProviderRefused
from ..events import Notice, Usage, Yielded
from . import ChatRequest
from .connections import Broken, Reply
from .local_child import Order
from .local_process import WHO, ModelProcess, ProcessGone, claim, is_any_left, start
from .openai_stream import AnswerDecoder
from .seen import Seen, lost
from .weights import SMOLLM2, fetch, weights_in

__all__ = ["Local"]

MODEL = "smollm2"

_BATCH = 64  # as fast as 128 on a processor, and twice as quick to stop
_PATIENCE = 0.5  # seconds of waiting that need no word
_REMINDER = 20.0  # seconds after which a wait is told again: the engine takes silence for a stall

_PROGRESS = re.compile(rb'"prompt_progress":\{"total":(\d+),"cache":(\d+),"processed":(\d+)')


_Ask = Callable[[ModelProcess], Awaitable[Reply]]


class Local:
    """Answers with a model in a process of its own.

    Without a `model_path` it is SmolLM2-135M, a tiny demo model, whose weights are fetched into `data` when they are
    first needed, unless `offline`. `context` is the most tokens of a prompt and its answer, `slots` the number of runs
    that are answered at once; the others wait their turn. `linger` is how many seconds the process outlives ours when
    ours is killed, so that a successor with the same `data` can attach to the answers that have a name.
    """

    prefills = True
    attaches = True
    tools = False  # so small a model cannot choose one

    def __init__(
        self,
        name: str = "local",
        *,
        data: Path,
        model_path: Path | None = None,
        threads: int | None = None,
        context: int = 4096,
        slots: int = 2,
        linger: float = 0.0,
        offline: bool = False,
    ) -> None:
        self.name = name
        self.models: tuple[str, ...] | None = (model_path.stem if model_path else MODEL,)
        self._model_path = model_path
        self.folder = data / "models"
        self._linger = linger
        self._offline = offline
        self._context = context
        self._slots = slots
        self._threads = threads or max(1, _cores() - 1)
        self._turns = asyncio.Semaphore(slots)
        self._starting: asyncio.Task[ModelProcess] | None = None
        self._stage: Callable[[], Notice] = _loading("")
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_installed = importlib.util.find_spec("xllamacpp") is not None

    def why_not(self) -> str | None:
        """Return one line on how to get the embedded model where it cannot be had; None where it can."""
        if self._is_installed:
            return None
        return "The embedded model is not installed. Install it with: pip install 'holdfast[local]'"

    def lacks_weights(self) -> bool:
        """Tell whether the weights have to be fetched, and may be. This waits for the disk."""
        return self._model_path is None and not self._offline and weights_in(self.folder) is None

    async def list_models(self) -> list[str]:
        """Return the model, or nothing where it is not installed."""
        return list(self.models or ()) if self._is_installed else []

    async def warm(self) -> None:
        """Fetch and load the model now, so that the first run need not wait."""
        await asyncio.wait({starting := self._start()})
        _result(starting)

    @property
    def pid(self) -> int | None:
        """The model's process, if it is there."""
        return None if self._starting is None or not _is_up(self._starting) else self._starting.result().pid

    async def working(self) -> int:
        """Return how many answers the model is working on, as its process says."""
        return 0 if self._starting is None or not _is_up(self._starting) else await self._starting.result().working()

    async def close(self) -> None:
        """End the process, or its start."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
            if _is_up(starting):
                await starting.result().end()

    # answering

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Yielded]]:
        """Yield notices, then the answer; raise a `ProviderError` unless the model said how it ended.

        An answer with a name can be attached to by a successor of this process, if that was killed.
        """
        self._refuse_tools(request)
        body, name = _body(request), request.name
        async with aclosing(self._answer(lambda process: process.ask(body, name), name, _choices(request))) as answer:
            async for events in answer:
                yield events

    async def attach(self, name: str, *, text: str = "", reasoning: str = "") -> AsyncGenerator[list[Yielded]]:
        """Yield what follows in a named answer after the text and reasoning that have been seen."""
        if self._starting is None and not (self._linger and await asyncio.to_thread(is_any_left, self.folder)):
            raise lost(WHO, "has not been left behind by another server")
        seen = Seen(WHO, text, reasoning)
        async with aclosing(self._answer(lambda process: process.attach(name), name)) as answer:
            async for events in answer:
                if unseen := seen.taken_off(events):
                    yield unseen

    async def _answer(self, ask: _Ask, name: str, choices: int = 1) -> AsyncGenerator[list[Yielded]]:
        with self._turn() as turn:
            waiting = _Waiting(turn, self._busy)
            while notice := await waiting.next():
                yield [notice]
            for is_last_try in (False, True):
                starting = self._start()
                waiting = _Waiting(starting, lambda: self._stage())
                while notice := await waiting.next():
                    yield [notice]
                try:
                    async with aclosing(self._read(_result(starting), ask, name, choices)) as answer:
                        async for events in answer:
                            yield events
                    return
                except ProcessGone:  # before it could answer: most likely it had ended long ago
                    if is_last_try:
                        raise

    async def _read(self, process: ModelProcess, ask: _Ask, name: str, choices: int) -> AsyncGenerator[list[Yielded]]:
        answer, prompt, response = AnswerDecoder(WHO, choices=choices), _Prompt(), None
        try:
            response = await ask(process)
            while not answer.over:
                if events := await _next_of(response, answer, prompt):
                    yield events
            if answer.error is not None:
                raise await process.explain(answer.error)
        finally:
            if response is not None:
                response.close()
            if name and not answer.finished:
                self._spawn(process.drop(name))

    @contextmanager
    def _turn(self) -> Iterator[asyncio.Task[bool]]:
        turn = asyncio.create_task(self._turns.acquire())
        try:
            yield turn
        finally:
            if not turn.cancel():
                self._turns.release()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for, and that the end of a run must not interrupt."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse_tools(self, request: ChatRequest) -> None:
        if request.params.get("tools") or request.params.get("functions"):
            raise ProviderRefused(
                f"{WHO} cannot choose tools. Send the request without tools, or to another model.",
                code="tools_unsupported",
                status=400,
            )

    def _busy(self) -> Notice:
        return Notice("model_busy", f"Waiting for a turn: the embedded model answers {self._slots} at a time.")

    # starting

    def _start(self) -> asyncio.Task[ModelProcess]:
        """Return the start of the process, a new one where that has failed or its process has ended."""
        if self._starting is None or (self._starting.done() and not _is_up(self._starting)):
            self._starting = asyncio.create_task(self._make())
            self._starting.add_done_callback(lambda done: done.cancelled() or done.exception())  # warm() may be alone
        return self._starting

    async def _make(self) -> ModelProcess:
        if why_not := self.why_not():
            raise ProviderError(why_not, code="model_not_installed")
        model = await self._weights()
        self._stage = _loading(model.stem)
        order = self._order(model)
        claimed = await claim(order) if order.linger else None
        return claimed or await start(order)

    def _order(self, model: Path) -> Order:
        return Order(
            model=str(model),
            context=self._context,
            slots=self._slots,
            threads=self._threads,
            batch=_BATCH,
            key=secrets.token_urlsafe(32),
            parent=os.getpid(),
            linger=self._linger,
            notes=str(self.folder),
        )

    async def _weights(self) -> Path:
        """Return the model's file, and fetch it first if need be."""
        if self._model_path is not None:
            if not await asyncio.to_thread(self._model_path.is_file):
                raise ProviderError(f"There is no model file {self._model_path}.", code="weights_missing")
            return self._model_path
        if there := await asyncio.to_thread(weights_in, self.folder):
            return there
        if self._offline:
            raise ProviderError(
                f"The weights of the embedded model are not in {self.folder}, and nothing is fetched offline. Start "
                "once without offline, or run any GGUF file with --model PATH.",
                code="weights_missing",
            )
        progress = _Fetching()
        self._stage = progress.notice
        return await fetch(self.folder, progress.tell)


def _is_up(starting: asyncio.Task[ModelProcess]) -> bool:
    """Tell whether the process has started and not ended."""
    if not starting.done() or starting.cancelled() or starting.exception() is not None:
        return False
    return not starting.result().is_gone


def _result(starting: asyncio.Task[ModelProcess]) -> ModelProcess:
    if starting.cancelled():
        raise ProviderError(f"{WHO} is being shut down.")
    return starting.result()


def _cores() -> int:
    """Return the cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# what a run waits for


class _Waiting:
    """A wait that says what it is for: not at once, again when that changes, and again after a while."""

    def __init__(self, until: asyncio.Task[Any], tell: Callable[[], Notice]) -> None:
        self._until = until
        self._tell = tell
        self._told: Notice | None = None
        self._told_at = 0.0

    async def next(self) -> Notice | None:
        """Return the next thing to say; None when the wait is over."""
        while not self._until.done():
            await asyncio.wait({self._until}, timeout=_PATIENCE)
            if not self._until.done() and self._is_due(notice := self._tell()):
                return notice
        return None

    def _is_due(self, notice: Notice) -> bool:
        now = time.monotonic()
        if notice == self._told and now < self._told_at + _REMINDER:
            return False
        self._told, self._told_at = notice, now
        return True


def _loading(name: str) -> Callable[[], Notice]:
    notice = Notice("loading_model", f"Loading {name}." if name else "Looking for the model.")
    return lambda: notice


class _Fetching:
    """How far a fetch is, written by its thread."""

    def __init__(self) -> None:
        self._percent = 0

    def tell(self, done: int, total: int) -> None:
        self._percent = 100 * done // total

    def notice(self) -> Notice:
        size = SMOLLM2.download // 1_000_000
        return Notice("fetching_weights", f"Fetching the embedded model ({size} MB, once): {self._percent}%")


class _Prompt:
    """How far the model is with reading the prompt: told a few times in a second, if it takes longer than a moment."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()
        self._is_counted = False

    def read(self, data: bytes) -> list[Yielded]:
        """Return what one read says of the prompt: first its tokens, then notices."""
        found = _PROGRESS.findall(data)
        if not found:
            return []
        total, cached, processed = map(int, found[-1])
        events: list[Yielded] = []
        if not self._is_counted:
            self._is_counted = True
            events.append(Usage(total, 0, "estimated"))
        if processed < total and time.monotonic() >= self._told_at + _PATIENCE:
            self._told_at = time.monotonic()
            percent = 100 * (processed - cached) // (total - cached)
            events.append(Notice("prompt_progress", f"Reading the prompt: {percent}%"))
        return events


async def _next_of(response: Reply, answer: AnswerDecoder, prompt: _Prompt) -> list[Yielded]:
    """Return the events of the next read, or of the end."""
    try:
        data = await response.read()
    except Broken:
        return answer.end(cut=True)
    return [*prompt.read(data), *chain.from_iterable(answer.feed(data))] if data else answer.end()


def _body(request: ChatRequest) -> bytes:
    ours = {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
    body = {**request.params, "messages": request.messages, **ours}
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half an emoji: JSON can escape it, UTF-8 cannot hold it
        return json.dumps(body).encode()


def _choices(request: ChatRequest) -> int:
    choices = request.params.get("n")
    return choices if isinstance(choices, int) else 1
