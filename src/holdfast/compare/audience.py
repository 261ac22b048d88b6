"""Readers of a round, which may have been begun by another request or on another node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

from starlette.types import ASGIApp

from ..asgi.client import RequestClient
from ..asgi.cursor import as_many_as_fit
from ..asgi.delayed_response import DelayedResponse
from ..errors import RunNotFound, StoreUnavailable
from ..events import StoppedBy
from ..runs.run import Run
from ..server.kit.http.errors import json_of
from ..watchers import Watchers
from . import wire as wire
from .model import Comparison, ComparisonNotFound
from .runs import Round, Rounds
from .shapes import ComparisonJson

LOOK_AGAIN = 0.25
"""Seconds between two reads of a round on another node."""


class Audience:
    """A reader of a round that another request began. Its disconnect stops nothing."""

    def __init__(self, rounds: Rounds, comparison: Comparison) -> None:
        self._rounds = rounds
        self._round = rounds.of(comparison.id)
        self._comparison = comparison
        self._runs: dict[int, Run] = {}
        self._watchers = Watchers()

    @property
    def comparison(self) -> Comparison:
        """The current comparison."""
        return self._comparison if self._round is None else self._round.comparison

    @property
    def runs(self) -> dict[int, Run]:
        """The runs in progress, by pane."""
        return self._runs if self._round is None else self._round.runs

    @property
    def is_over(self) -> bool:
        """True if the round is over."""
        return self._comparison.status == "settled" if self._round is None else self._round.is_over

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever there is more to read, until the returned function is called."""
        if self._round is not None:
            return self._round.watch(wake)
        unwatch = self._watchers.watch(wake)
        following = asyncio.create_task(self.over())

        def leave() -> None:
            unwatch()
            following.cancel()

        return leave

    async def over(self) -> None:
        """Wait until the round is over."""
        if self._round is not None:
            await self._round.over()
            return
        unwatches: list[Callable[[], None]] = []
        try:
            while not self.is_over:
                with contextlib.suppress(StoreUnavailable):
                    unwatches += await self._look()
                self._watchers.notify()
                await asyncio.sleep(LOOK_AGAIN)
        finally:
            for unwatch in unwatches:
                unwatch()

    async def _look(self) -> list[Callable[[], None]]:
        """Read the comparison, and watch the runs that have begun. Return the functions that stop that."""
        kept = self._comparison
        try:
            self._comparison = kept = await self._rounds.read(kept.id, kept.owner)
        except ComparisonNotFound:
            self._comparison = self._rounds.as_over(kept)
            return []
        unwatches = []
        for pane in kept.panes:
            if pane.pane not in self._runs and pane.latest.run_id is not None:
                with contextlib.suppress(RunNotFound):
                    run = self._runs[pane.pane] = await self._rounds.engine.open(pane.latest.run_id)
                    unwatches.append(run.log.watch(self._watchers.notify))
        return unwatches

    async def left(self, by: StoppedBy) -> None:
        """Do nothing: the panes are attached to another connection."""


class RoundFrames:
    """The event stream of a round: the events of all panes, each in its order."""

    def __init__(self, going_on: Round | Audience, show: Callable[[Comparison], Awaitable[ComparisonJson]]) -> None:
        self.is_over = False
        self.watch = going_on.watch
        self._round = going_on
        self._show = show
        self._n = 0
        self._seen: dict[int, int] = {}

    async def next(self) -> bytes:
        """Return the frames of the new events."""
        if not self._n:
            return await self._whole("comparison.started")
        was_over = self._round.is_over
        frames = [frame for pane, run in tuple(self._round.runs.items()) for frame in await self._pane(pane, run)]
        if frames or not was_over or self.is_over:
            return b"".join(frames)
        self.is_over = True
        return await self._whole("comparison.settled")

    async def _pane(self, pane: int, run: Run) -> list[bytes]:
        frames: list[bytes] = []
        for event in as_many_as_fit(await run.log.batch(self._seen.get(pane, 0))):
            self._seen[pane] = seq = self._seen.get(pane, 0) + 1
            self._n += 1
            frames.append(wire.pane_frame(self._n, pane, run.id, seq, event))
        return frames

    async def _whole(self, kind: Literal["comparison.started", "comparison.settled"]) -> bytes:
        self._n += 1
        return wire.whole_frame(self._n, kind, await self._show(self._round.comparison))


class RoundAnswer(DelayedResponse):
    """The JSON response of a round, sent at its end. A disconnect stops every pane."""

    def __init__(self, going_on: Round | Audience, show: Callable[[Comparison], Awaitable[ComparisonJson]]) -> None:
        self._round = going_on
        self._show = show

    async def ended(self, client: RequestClient) -> bool:
        """Wait for the end of the round."""
        return await client.wait_for(self._round.over())

    async def left(self, by: StoppedBy) -> None:
        """Stop the panes that are attached to this client."""
        await self._round.left(by)

    async def response(self) -> ASGIApp:
        """Return the whole comparison."""
        return json_of(await self._show(self._round.comparison))
