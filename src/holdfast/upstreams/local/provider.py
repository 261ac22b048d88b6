"""The built-in model: answers without a key or a service, from llama.cpp in a child process.

The process (see `child`) starts when it is first needed, serves all runs, and is restarted after it has ended; it ends
with its parent, or a few seconds later with `linger`. Before the first token, notices report what a run waits for: the
download of the weights, the loading of the model, its turn, the prompt.

llama.cpp notices a disconnect between two batches of a prompt only if it reports progress, and between two tokens only
if it streams. So both are always requested, and batches are small.

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
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from ...concurrency.tasks import OwnedTasks
from ...errors import ProviderError, ProviderRefused, how_to_install
from ...events import Notice, Outlet, Usage, Yielded, put
from ...http_client.connection import Reply
from ...http_client.errors import Broken
from .. import ChatRequest
from ..http.upstream import pour
from ..kinds import ProviderKind, ProviderSetup
from ..limit import turn_of
from ..openai.decoder import AnswerDecoder
from ..resume_check import SeenEvents, lost
from .child import Order
from .process import WHO, ModelProcess, ProcessGone, claim, is_any_left, start_model
from .weights import SMOLLM2, fetch_weights, weights_in

__all__ = ["Local"]

MODEL = "smollm2"
SLOTS = 2
"""Default number of concurrent answers of the built-in model."""

_BATCH = 64  # as fast as 128 on a CPU, and stops twice as fast
_PATIENCE = 0.5  # seconds of waiting without a notice
_REMINDER = 20.0  # seconds between two notices of a wait: without them the idle timeout would end the run

_PROGRESS = re.compile(rb'"prompt_progress":\{"total":(\d+),"cache":(\d+),"processed":(\d+)')


_Ask = Callable[[ModelProcess], Awaitable[Reply]]


class Local:
    """Answers with a model in a child process.

    Without a `model_path` it is SmolLM2-135M, a tiny demo model, whose weights are fetched into `data` when they are
    first needed, unless `offline`. `context` is the limit of tokens of a prompt and its answer, `slots` the number of
    concurrent answers; further runs wait. `linger` is how many seconds the process outlives a killed parent, so that
    the next one with the same `data` can attach to named answers.
    """

    prefills = True
    think = True
    attaches = True
    is_local = True
    tools = False  # the model is too small to choose tools

    def __init__(
        self,
        name: str = "local",
        *,
        data: Path,
        model_path: Path | None = None,
        threads: int | None = None,
        context: int = 4096,
        slots: int = SLOTS,
        linger: float = 0.0,
        offline: bool = False,
    ) -> None:
        self.name = name
        self.models: tuple[str, ...] | None = (model_path.stem if model_path else MODEL,)
        self.demo = model_path is None
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
        self._tasks = OwnedTasks("the built-in model")
        self._is_installed = importlib.util.find_spec("xllamacpp") is not None

    def why_not(self) -> str | None:
        """Return how to install the built-in model, in one line; None if it is installed."""
        if self._is_installed:
            return None
        return f"The built-in model is not installed. Install it: {how_to_install('local')}."

    def lacks_weights(self) -> bool:
        """Return whether the weights are missing and may be downloaded. Blocks on the disk."""
        return self._model_path is None and not self._offline and weights_in(self.folder) is None

    async def list_models(self) -> list[str]:
        """Return the model; empty if it is not installed."""
        return list(self.models or ()) if self._is_installed else []

    async def warm(self) -> None:
        """Download and load the model now, so that the first run need not wait."""
        await asyncio.wait({starting := self._start()})
        _result(starting)

    @property
    def pid(self) -> int | None:
        """The process id of the model; None if it does not run."""
        return None if self._starting is None or not _is_up(self._starting) else self._starting.result().pid

    async def working(self) -> int:
        """Return the number of answers in progress, from the process."""
        return 0 if self._starting is None or not _is_up(self._starting) else await self._starting.result().working()

    async def close(self) -> None:
        """End the process, or its start."""
        await self._tasks.wait()
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
            if _is_up(starting):
                await starting.result().end()

    # answering

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Emit notices, then the answer. Raise a `ProviderError` if the answer is incomplete.

        The next process can attach to a named answer after a crash.
        """
        self._refuse_tools(request)
        body, name = _body(request), request.name
        await self._answer(lambda process: process.ask(body, name), name, out, request.choices)

    async def attach(self, name: str, out: Outlet, *, text: str = "", reasoning: str = "") -> None:
        """Emit the rest of a named answer, after the text and reasoning that were seen."""
        if self._starting is None and not (self._linger and await asyncio.to_thread(is_any_left, self.folder)):
            raise lost(WHO, "has not been left behind by another server")
        seen = SeenEvents(out, WHO, text, reasoning, think=self.think)
        try:
            await self._answer(lambda process: process.attach(name), name, seen)
        except ProviderError:
            seen.cut_off()
            raise

    async def _answer(self, ask: _Ask, name: str, out: Outlet, choices: int = 1) -> None:
        with turn_of(self._turns) as turn:
            await _wait(turn, self._busy, out)
            for is_last_try in (False, True):
                starting = self._start()
                await _wait(starting, lambda: self._stage(), out)
                try:
                    return await self._read(_result(starting), ask, name, choices, out)
                except ProcessGone:  # the request was not read
                    if is_last_try:
                        raise

    async def _read(self, process: ModelProcess, ask: _Ask, name: str, choices: int, out: Outlet) -> None:
        decoder, response = _Decoder(choices), None
        try:
            response = await ask(process)
            await pour(response, decoder, out)
            while not decoder.over:
                if events := await _rest(response, decoder):
                    await put(out, events)
            if decoder.error is not None:
                raise await process.explain(decoder.error)
        finally:
            if response is not None:
                response.close()
            if name and not decoder.finished:
                self._tasks.start(process.drop(name))  # the end of a run must not interrupt it

    def _refuse_tools(self, request: ChatRequest) -> None:
        if request.has_tools:
            raise ProviderRefused(
                f"{WHO} cannot choose tools. Send the request without tools, or to another model.",
                code="tools_unsupported",
                status=400,
            )

    def _busy(self) -> Notice:
        return Notice("model_busy", f"Waiting for a turn: the built-in model answers {self._slots} at a time.")

    # starting

    def _start(self) -> asyncio.Task[ModelProcess]:
        """Return the task that starts the process; a new one if the last start failed or its process has ended."""
        if self._starting is None or (self._starting.done() and not _is_up(self._starting)):
            self._starting = asyncio.create_task(self._make())
            # Retrieve the error, which a cancelled run or `warm()` does not do.
            self._starting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._starting

    async def _make(self) -> ModelProcess:
        if why_not := self.why_not():
            raise ProviderError(why_not, code="model_not_installed")
        model = await self._weights()
        self._stage = _loading(model.stem)
        order = self._order(model)
        claimed = await claim(order) if order.linger else None
        return claimed or await start_model(order)

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
        """Return the model's file. It is downloaded first if necessary."""
        if self._model_path is not None:
            if not await asyncio.to_thread(self._model_path.is_file):
                raise ProviderError(f"There is no model file {self._model_path}.", code="weights_missing")
            return self._model_path
        if weights := await asyncio.to_thread(weights_in, self.folder):
            return weights
        if self._offline:
            raise ProviderError(
                f"The weights of the built-in model are not in {self.folder}, and nothing is fetched offline. Start "
                "once without offline, or run any GGUF file with --model PATH.",
                code="weights_missing",
            )
        progress = _Fetching()
        self._stage = progress.notice
        return await fetch_weights(self.folder, progress.update)


def _is_up(starting: asyncio.Task[ModelProcess]) -> bool:
    """Return whether the process has started and not ended."""
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


# waiting


async def _wait(until: asyncio.Task[Any], make_notice: Callable[[], Notice], out: Outlet) -> None:
    """Wait for a task. A notice is emitted after `_PATIENCE`, again if it changes, and again after `_REMINDER`."""
    last, last_at = None, 0.0
    while not until.done():
        await asyncio.wait({until}, timeout=_PATIENCE)
        notice, now = make_notice(), time.monotonic()
        if not until.done() and (notice != last or now >= last_at + _REMINDER):
            out.emit([notice])
            last, last_at = notice, now


def _loading(name: str) -> Callable[[], Notice]:
    notice = Notice("loading_model", f"Loading {name}." if name else "Looking for the model.")
    return lambda: notice


class _Fetching:
    """The progress of a download, written by its thread."""

    def __init__(self) -> None:
        self._percent = 0

    def update(self, done: int, total: int) -> None:
        self._percent = 100 * done // total

    def notice(self) -> Notice:
        size = SMOLLM2.download // 1_000_000
        return Notice("fetching_weights", f"Fetching the built-in model ({size} MB, once): {self._percent}%")


class _Prompt:
    """The progress of the prompt: at most one notice in `_PATIENCE` seconds."""

    def __init__(self) -> None:
        self._noticed_at = time.monotonic()
        self._is_counted = False

    def read(self, data: bytes) -> list[Yielded]:
        """Return the events about the prompt in one read: its tokens the first time, and a notice."""
        reports = _PROGRESS.findall(data)
        if not reports:
            return []
        total, cached, processed = map(int, reports[-1])
        events: list[Yielded] = []
        if not self._is_counted:
            self._is_counted = True
            events.append(Usage(total, 0, "estimated"))
        if processed < total and time.monotonic() >= self._noticed_at + _PATIENCE:
            self._noticed_at = time.monotonic()
            percent = 100 * (processed - cached) // (total - cached)
            events.append(Notice("prompt_progress", f"Reading the prompt: {percent}%"))
        return events


class _Decoder(AnswerDecoder):
    """Decodes the answer of the built-in model, and the progress of its prompt."""

    def __init__(self, choices: int) -> None:
        super().__init__(WHO, choices=choices)
        self._prompt = _Prompt()

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        return [self._prompt.read(data), *super().feed(data)]


async def _rest(response: Reply, decoder: AnswerDecoder) -> list[Yielded]:
    """Return the events of the next read, or of the end of the response."""
    try:
        data = await response.read()
    except Broken:
        return decoder.end(cut=True)
    return [*chain.from_iterable(decoder.feed(data))] if data else decoder.end()


def _body(request: ChatRequest) -> bytes:
    ours = {"stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
    body = {**request.params, "messages": request.messages, **ours}
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # a lone surrogate: JSON can escape it, UTF-8 cannot encode it
        return json.dumps(body).encode()


class LocalOptions(msgspec.Struct, frozen=True):
    """The settings of the built-in model."""

    model: str = ""
    """The path of a GGUF file to use instead of the small model."""
    offline: bool = False
    linger: float = 0.0
    """Seconds that the model's process outlives a killed server."""


def _made(setup: ProviderSetup) -> Local:
    options: LocalOptions = setup.options
    if setup.data is None:
        raise ValueError("the built-in model needs a data folder")
    return Local(
        setup.name,
        data=setup.data,
        model_path=Path(options.model).expanduser() if options.model else None,
        offline=options.offline,
        linger=options.linger,
        slots=setup.max_runs or SLOTS,
    )


KIND = ProviderKind(make=_made, options=LocalOptions, by_http=False, limits_itself=True)
