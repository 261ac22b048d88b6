"""A run as an answer on any wire: streamed, from the start or after what was seen, or waited for and then shown.

A wire renders (`wire/*`); what is here knows clients: who leaves, who comes back, who waits for a status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..asgi import Client, EventStream, Header, RunFrames, finish
from ..errors import BadRequest, ResumeGap
from ..events import (
    AnySettlement,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Notice,
    RunStarted,
    Settled,
    StepStarted,
)
from ..history import left_of
from ..log import Log
from ..run import Run
from ..wire import openai_chat, openai_responses, sse
from .context import Parts
from .errors import json_of

HOLD = 10.0
"""Seconds for which the status line waits for the first word: until then a failure can still be a real status."""

BEFORE_WORDS = (RunStarted, Notice, StepStarted)
"""What a run shows before there is anything of an answer."""

Refuse = Callable[[Run, "Failed | Interrupted"], Response]


class Rendering(Protocol):
    """A wire's rendering of one run, from its first event on: the same events always give the same frames."""

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        ...

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that says that the stream, not its run, ends here, and why."""
        ...


def stream(
    parts: Parts,
    run: Run,
    rendering: Rendering,
    *,
    skip: int = 0,
    attached: bool = False,
    on_leave: Callable[[], Awaitable[None]] | None = None,
    refuse: Refuse | None = None,
    headers: dict[str, str] | None = None,
    sign_of_life: bytes = sse.HEARTBEAT,
) -> EventStream:
    """Return a run as an event stream, from the first frame or after `skip` of them.

    Where `attached`, the client's leaving stops the run; else it does what `on_leave` does. With `refuse`, the status
    waits for the first word, and what failed before it is answered for with a real status. A wire renders from the
    first event on: where that was trimmed there is nothing to begin with.
    """
    if run.log.oldest > 1:
        raise ResumeGap(run.log.oldest)
    return EventStream(
        _frames_of(run, rendering, skip, attached=attached),
        parts.closing,
        headers=_encoded(answer_headers(run) if headers is None else headers),
        broken=rendering.broken,
        on_leave=run.leave if attached else on_leave,
        hold=_Hold(run, refuse) if refuse is not None and not skip else None,
        heartbeat=parts.settings.heartbeat,
        sign_of_life=sign_of_life,
        send_timeout=parts.settings.send_timeout,
    )


def _frames_of(run: Run, rendering: Rendering, skip: int, *, attached: bool) -> RunFrames:
    """Return all frames, or those after the first: the wire that most clients speak has a shorter way."""
    if isinstance(rendering, openai_chat.Chunks) and not skip:
        return RunFrames(run.log, rendering.render, attached=attached)
    skipping = Skipping(rendering, skip)
    return RunFrames(
        run.log,
        skipping.render,
        pieces=skipping.ending if isinstance(rendering, openai_responses.Frames) else None,
        attached=attached,
    )


def answer_headers(run: Run) -> dict[str, str]:
    """Return what every answer about a run carries where clients expect a request id."""
    return {"x-run-id": run.id, "x-request-id": run.id}


def _encoded(headers: dict[str, str]) -> list[Header]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def frames_seen(request: Request, name: str = "starting_after") -> int:
    """Return how many data frames of a stream the client has seen."""
    seen = request.query_params.get(name, "0")
    if not (seen.isascii() and seen.isdigit() and len(seen) < 16):
        raise BadRequest(f"{name} is the number of data frames seen.", param=name)
    return int(seen)


class Skipping:
    """Renders from the start, as it must, and leaves out the first frames."""

    def __init__(self, rendering: Rendering, skip: int) -> None:
        self._rendering = rendering
        self._skip = skip

    def render(self, first: int, events: Sequence[Event]) -> bytes:
        frames = self._rendering.frames(events)
        if not self._skip:
            return b"".join(frames)
        rest = frames[self._skip :]
        self._skip = max(0, self._skip - len(frames))
        return b"".join(rest)

    def ending(self, seq: int, event: Settled) -> Iterator[bytes]:
        """Yield the last frames as they are made, where a wire repeats a long text in them."""
        for frame in cast(openai_responses.Frames, self._rendering).ending(event):
            if self._skip:
                self._skip -= 1
            else:
                yield frame


class _Hold:
    """Waits for the first word, so that an early failure can be a real status."""

    def __init__(self, run: Run, refuse: Refuse) -> None:
        self._run = run
        self._refuse = refuse
        self._looked_at = 0

    async def __call__(self, client: Client) -> Response | None:
        await self._first_word(client)
        settled = self._run.settlement
        if isinstance(settled, (Failed, Interrupted)) and await is_bare(self._run):
            return self._refuse(self._run, settled)
        return None

    async def _first_word(self, client: Client) -> None:
        log = self._run.log
        if isinstance(log, Log):
            await client.wait_until(self._has_spoken, log.watch, timeout=HOLD)
        else:
            await client.wait_for(self._read_first_word(), timeout=HOLD)

    def _has_spoken(self) -> bool:
        log = self._run.log
        assert isinstance(log, Log)
        while not log.closed and log.oldest <= self._looked_at + 1 <= log.seq:
            for event in log.slice(self._looked_at):
                if not isinstance(event, BEFORE_WORDS):
                    return True
                self._looked_at += 1
        return log.closed or log.oldest > 1

    async def _read_first_word(self) -> None:
        async for _, event in self._run.read():
            if not isinstance(event, BEFORE_WORDS):
                return


async def is_bare(run: Run) -> bool:
    """Tell whether a settled run has shown nothing but its failure."""
    if run.log.oldest > 1:
        return not run.text
    async for _, event in run.read():
        if not isinstance(event, BEFORE_WORDS):
            return isinstance(event, Settled)
    return True


# A run as a whole.


class Gathering(Protocol):
    """What a wire puts together of a run's events."""

    def add(self, events: Sequence[Event]) -> None:
        """Take in the next events."""
        ...


G = TypeVar("G", bound=Gathering)
Show = Callable[[Run, AnySettlement], Awaitable[dict[str, Any]]]


async def so_far(run: Run) -> AsyncGenerator[Sequence[Event]]:
    """Yield what there is of a run, some events at a time, and leave the loop to others in between."""
    after = 0
    while events := await run.log.batch(after):
        if after:
            await asyncio.sleep(0)
        yield events
        after += len(events)


async def gathered(run: Run, fresh: Callable[[Run], G], *, without_calls: bool = False) -> G:
    """Return a run as a whole, as far as it has come, put together by what `fresh` returns.

    Of one whose log was trimmed the text is left. Where there was more that matters, it is only shown `without_calls`.
    """
    gathering, after = fresh(run), 0
    try:
        while events := await run.log.batch(after):
            if after:
                await asyncio.sleep(0)
            gathering.add(events)
            after += len(events)
    except ResumeGap:
        if not without_calls and not _is_all_text(run):
            raise
        gathering = fresh(run)
        gathering.add(left_of(run.settlement, run.text))
    return gathering


def _is_all_text(run: Run) -> bool:
    reason = run.settlement.finish_reason if run.settlement is not None else None
    return run.record.request.get("n", 1) == 1 and reason not in ("tool_calls", "function_call")


async def whole(run: Run, show: Show, refuse: Refuse) -> Response:
    """Return a settled run as the finished object, under a status that tells failure from success."""
    settled = run.settlement or await run.settled()
    if not isinstance(settled, (Failed, Interrupted)):
        return json_of(await show(run, settled), settled.text, headers=answer_headers(run))
    if await is_bare(run):
        return refuse(run, settled)
    told = await show(run, settled)
    return json_of(told, settled.text, status_code=status_of(settled), headers=not_again(run))


class WholeAnswer(Response):
    """Waits for a run's settlement and answers with `show(run)`; the client's leaving stops an attached run."""

    def __init__(self, run: Run, show: Callable[[Run], Awaitable[Response]], *, attached: bool) -> None:
        self.background = None
        self._run = run
        self._show = show
        self._attached = attached

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        with Client(scope, receive) as client:
            stayed = False
            try:
                stayed = await _ended(self._run, client)
            finally:
                if not stayed and self._attached:
                    await finish(self._run.leave())
            if stayed:
                response = await self._show(self._run)
                await response(scope, receive, send)


async def _ended(run: Run, client: Client) -> bool:
    """Wait for the settlement. False where the client left before it."""
    log = run.log
    if isinstance(log, Log) and not await client.wait_until(lambda: log.closed, log.watch):
        return False
    return run.settlement is not None or await client.wait_for(run.settled())  # then it goes on elsewhere


def status_of(settled: Failed | Interrupted) -> int:
    """Return the status of an answer that failed in its middle: never one that blames the request."""
    return settled.error.status if settled.error.status >= 500 else 502


def not_again(run: Run) -> dict[str, str]:
    """Keep the SDKs from trying again: a model has answered, and a second run of it costs twice."""
    return {**answer_headers(run), "x-should-retry": "false"}


def failed_headers(run: Run, settled: Failed | Interrupted) -> dict[str, str]:
    """Let the SDKs try again what failed before any output, where it did not reach a model."""
    again = settled.error.status in (429, 503) and not settled.text
    return {**answer_headers(run), "x-should-retry": "true"} if again else not_again(run)
