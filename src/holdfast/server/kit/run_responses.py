"""A run as a response on any wire: as a stream, from the start or after the seen frames, or as a whole at its end.

A wire renders (`wires/*`); this module handles clients: disconnects, resumes, and the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeGuard, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp

from ...asgi.client import Header, RequestClient
from ...asgi.cursor import RunFrames
from ...asgi.delayed_response import DelayedResponse
from ...asgi.event_stream import EventStream
from ...asks import chat_ask
from ...errors import BadRequest, ResumeGap
from ...events import (
    AnySettlement,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Settled,
    StoppedBy,
)
from ...history import left_of
from ...log.log import WORDLESS, Log
from ...log.segment import Segment
from ...runs.run import Run
from ...wires import sse
from .http.errors import json_of
from .streams import Streams

HOLD = 4.5
"""Seconds for which the status line waits for the first output: until then a failure can have an error status.

A client or a proxy that gets no head gives up; one that reads a stream waits."""

RUN_ANSWERS = {
    400: "bad input",
    404: "no such model",
    406: "the upstream failed after output",
    413: "too large",
    429: "too many runs",
    502: "the upstream failed",
    503: "the server is ending",
    504: "the upstream was silent",
}
"""The statuses of calls that start a run, besides those of success. A call replaces and adds what it has of its own."""

Refuse = Callable[[Run, "Failed | Interrupted"], ASGIApp]


class RendersSegments(Protocol):
    """A rendering with a faster way: all frames of a segment at once."""

    def render(self, first: int, segment: Segment) -> bytes:
        """Return the frames of a segment, whose first event has the number that is given."""
        ...


class EndsInPieces(Protocol):
    """A rendering that repeats a long text in its last frames: they are made one by one."""

    def ending(self, event: Settled) -> Iterator[bytes]:
        """Yield the last frames."""
        ...


class Rendering(Protocol):
    """A wire's rendering of one run, from its first event on: the same events always give the same frames."""

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        ...

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        ...


def _frames_of(run: Run, rendering: Rendering, skip: int, *, attached: bool) -> RunFrames:
    """Return all frames, or those after the first."""
    if not skip and renders_segments(rendering):
        return RunFrames(run, rendering.render, attached=attached)
    skipping = Skipping(rendering, skip)
    pieces = partial(skipping.ending, rendering) if ends_in_pieces(rendering) else None
    return RunFrames(run, skipping.render, pieces=pieces, attached=attached)


def renders_segments(rendering: Rendering) -> TypeGuard[RendersSegments]:
    """Return whether a rendering has the faster way. An `isinstance` with a protocol costs as much as a token."""
    return hasattr(rendering, "render")


def ends_in_pieces(rendering: Rendering) -> TypeGuard[EndsInPieces]:
    """Return whether the last frames of a rendering are made one by one."""
    return hasattr(rendering, "ending")


def answer_headers(run: Run) -> dict[str, str]:
    """Return the headers of every response about a run, with its id as the request id."""
    return {"x-run-id": run.id, "x-request-id": run.id}


def _encoded(headers: dict[str, str]) -> list[Header]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def frames_seen(request: Request, name: str = "starting_after") -> int:
    """Return the number of data frames that the client has seen."""
    seen = request.query_params.get(name, "0")
    if not (seen.isascii() and seen.isdigit() and len(seen) < 16):
        raise BadRequest(f"{name} is the number of data frames seen.", param=name)
    return int(seen)


class Skipping:
    """Renders from the start, and skips the first frames."""

    def __init__(self, rendering: Rendering, skip: int) -> None:
        self._rendering = rendering
        self._skip = skip

    def render(self, first: int, segment: Segment) -> bytes:
        frames = self._rendering.frames(segment)
        if not self._skip:
            return b"".join(frames)
        rest = frames[self._skip :]
        self._skip = max(0, self._skip - len(frames))
        return b"".join(rest)

    def ending(self, rendering: EndsInPieces, seq: int, event: Settled) -> Iterator[bytes]:
        """Yield the last frames one by one."""
        for frame in rendering.ending(event):
            if self._skip:
                self._skip -= 1
            else:
                yield frame


def _hold(run: Run, refuse: Refuse) -> Callable[[RequestClient], Awaitable[ASGIApp | None]]:
    async def hold(client: RequestClient) -> ASGIApp | None:
        failed = await FirstWord(run).failure(client)
        return None if failed is None else refuse(run, failed)

    return hold


class FirstWord:
    """Waits for the first output, so that an early failure can be told from one in the middle of an answer."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._looked_at = 0

    async def failure(self, client: RequestClient) -> Failed | Interrupted | None:
        """Wait for the first output. Return the settlement of a run that failed without any."""
        log = self._run.log
        if isinstance(log, Log):
            await client.wait_until(self._has_spoken, log.watch, timeout=HOLD)
        else:
            await client.wait_for(self._read_first_word(), timeout=HOLD)
        settled = self._run.settlement
        return settled if isinstance(settled, (Failed, Interrupted)) and await is_bare(self._run) else None

    def _has_spoken(self) -> bool:
        log = self._run.log
        assert isinstance(log, Log)
        while not log.closed and log.oldest <= self._looked_at + 1 <= log.seq:
            segment = log.slice(self._looked_at)
            if segment.kind is not None or not WORDLESS.issuperset(map(type, segment.others)):
                return True
            self._looked_at += len(segment)
        return log.closed or log.oldest > 1

    async def _read_first_word(self) -> None:
        async for _, event in self._run.read():
            if type(event) not in WORDLESS:
                return


async def is_bare(run: Run) -> bool:
    """Return whether a settled run has no output."""
    if run.log.oldest > 1:
        return not run.text
    async for _, event in run.read():
        if type(event) not in WORDLESS:
            return False
    return True


# A run as a whole.


class Gathering(Protocol):
    """The object that a wire builds from a run's events."""

    def add(self, events: Sequence[Event]) -> None:
        """Add the next events."""
        ...


G = TypeVar("G", bound=Gathering)
Show = Callable[[Run, AnySettlement], Awaitable[dict[str, Any]]]


async def so_far(run: Run) -> AsyncGenerator[Segment]:
    """Yield the events of a run, some at a time, and yield to the event loop in between."""
    after = 0
    while events := await run.log.batch(after):
        if after:
            await asyncio.sleep(0)
        yield events
        after += len(events)


async def gathered(run: Run, fresh: Callable[[Run], G], *, without_calls: bool = False) -> G:
    """Return the object of a run so far, built by what `fresh` returns.

    Of a trimmed log the text is left. If there were tool calls, it is returned only `without_calls`.
    """
    gathering, after, log = fresh(run), 0, run.log
    try:
        while not (log.closed and after >= log.seq) and (events := await log.batch(after)):
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
    return chat_ask(run.record.ask).n == 1 and reason not in ("tool_calls", "function_call")


class Answers:
    """Answers with runs."""

    def __init__(self, streams: Streams, failed_status: int) -> None:
        self._streams, self.failed_status = streams, failed_status

    def stream(
        self,
        run: Run,
        rendering: Rendering,
        *,
        skip: int = 0,
        attached: bool = False,
        on_leave: Callable[[StoppedBy], Awaitable[None]] | None = None,
        refuse: Refuse | None = None,
        headers: dict[str, str] | None = None,
        sign_of_life: bytes | Callable[[], bytes] = sse.HEARTBEAT,
    ) -> EventStream:
        """Return a run as an event stream, from the first frame or after `skip` of them.

        With `attached`, a disconnect stops the run; else it calls `on_leave`. With `refuse`, the status waits for the
        first output, and an earlier failure has an error status. A wire renders from the first event on: if that was
        trimmed there is nothing to begin with.
        """
        if run.log.oldest > 1:
            raise ResumeGap(run.log.oldest)
        return self._streams.stream(
            _frames_of(run, rendering, skip, attached=attached),
            headers=_encoded(answer_headers(run) if headers is None else headers),
            broken=rendering.broken,
            on_leave=run.leave if attached else on_leave,
            hold=_hold(run, refuse) if refuse is not None and not skip else None,
            sign_of_life=sign_of_life,
        )

    async def whole(self, run: Run, show: Show, refuse: Refuse) -> ASGIApp:
        """Return a settled run as the finished object, with a status that is an error unless it completed.

        A failure after output has a status that few clients retry: a model has answered, and some clients repeat every
        5xx whatever the headers say.
        """
        settled = run.settlement or await run.settled()
        if not isinstance(settled, (Failed, Interrupted)):
            return json_of(await show(run, settled), settled.text, headers=answer_headers(run))
        if await is_bare(run):
            return refuse(run, settled)
        told = error_first(await show(run, settled))
        return json_of(told, settled.text, status_code=self.failed_status, headers=failed_after_output(run))


def error_first(told: dict[str, Any]) -> dict[str, Any]:
    """Return a failed object as an error, with the object in its `holdfast`: many clients print the body as it is.

    A message of Anthropic's API is one already.
    """
    if told.get("type") == "error":
        return told
    partial = {name: value for name, value in told.items() if name not in ("error", "holdfast")}
    return {"error": told["error"], "holdfast": {**told["holdfast"], "partial": partial}}


async def unfinished_answer(
    run: Run, show: Callable[[Run, AnySettlement | None], Awaitable[dict[str, Any]]]
) -> ASGIApp:
    """Return a run as its object so far, with its status, to a client that asks for it again later."""
    body = {**await show(run, run.settlement), "status": run.status}
    return json_of(body, status_code=202, headers=answer_headers(run))


class WholeAnswer(DelayedResponse):
    """The response `show(run)`, sent when the run has settled. A disconnect stops an attached run."""

    def __init__(self, run: Run, show: Callable[[Run], Awaitable[ASGIApp]], *, attached: bool) -> None:
        self._run = run
        self._show = show
        self._attached = attached

    async def ended(self, client: RequestClient) -> bool:
        """Wait for the settlement."""
        run, log = self._run, self._run.log
        if isinstance(log, Log) and not await client.wait_until(partial(getattr, log, "closed"), log.watch):
            return False
        return run.settlement is not None or await client.wait_for(run.settled())  # it runs in another process

    async def left(self, by: StoppedBy) -> None:
        """Stop an attached run."""
        if self._attached:
            await self._run.leave(by)

    def response(self) -> Awaitable[ASGIApp]:
        """Return the finished object."""
        return self._show(self._run)


def not_again(run: Run) -> dict[str, str]:
    """Return headers that keep SDKs from retrying: a model has answered, and a second run costs twice."""
    return {**answer_headers(run), "x-should-retry": "false"}


def failed_after_output(run: Run) -> dict[str, str]:
    """Return headers of an answer that failed after output. The access log has the outcome, whatever the status is."""
    assert run.settlement is not None
    return {**not_again(run), "x-run-outcome": run.settlement.outcome}


def failed_headers(run: Run, settled: Failed | Interrupted) -> dict[str, str]:
    """Return headers that let SDKs retry a failure before any output, if it did not reach a model."""
    return {**answer_headers(run), "x-should-retry": "true"} if settled.error.may_pass else not_again(run)
