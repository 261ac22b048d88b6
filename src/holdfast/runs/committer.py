"""Saves the new events of all runs, and then publishes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..errors import StoreFailed
from ..log.segment import NOTHING
from ..store import Append, LogEnd
from .pump import Pump
from .shared import Shared

logger = logging.getLogger(__name__)


class Committer:
    """Nothing is shown that is not saved.

    One write carries the new events of all runs. What arrives during a write is in the next one, so the cost of an
    event falls as the load rises. Its task is supervised by `Background`.
    """

    def __init__(self, shared: Shared, lose: Callable[[Pump], None]) -> None:
        # for the life of the engine
        self.shared, self._lose = shared, lose
        self._is_started = self._has_failed = False
        # while there is something to save
        self._unsaved: dict[Pump, None] = {}
        self._more = asyncio.Event()

    @property
    def unsaved(self) -> int:
        """Number of runs with unsaved events."""
        return len(self._unsaved)

    def changed(self, pump: Pump) -> None:
        """Schedule the new events of a run to be saved."""
        self._unsaved[pump] = None
        self._more.set()
        if not self._is_started:
            self._is_started = True
            self.shared.background.every("committer", 0.0, self._serve, longest_pause=1.0)

    def forget(self, pump: Pump) -> None:
        """Save no more events of a run: it has ended, or another node owns it."""
        self._unsaved.pop(pump, None)

    async def commit(self) -> None:
        """Save and publish new events. An unexpected error fails the runs that cannot be saved, and is raised."""
        pumps, self._unsaved, at = self._unsaved, {}, self.shared.clock()
        parts = [
            (pump, Append(pump.run.id, pump.run.record.epoch, pump.log.seq + 1, segment, at))
            for pump in pumps
            if (segment := pump.log.pending()) is not NOTHING
        ]
        try:
            ends = await self._append([entry for _, entry in parts])
        except Exception:
            self._has_failed = True
            await self._save_one_by_one(parts)
            raise
        for (pump, entry), end in zip(parts, ends, strict=True):
            await self._publish_saved(pump, entry, end)

    async def _append(self, entries: list[Append]) -> list[LogEnd]:
        """Save entries. A node that is fenced in the store renews its lease, and drops its runs if it cannot."""
        ends = await self.shared.retry(lambda: self.shared.store.append(self.shared.node_id, entries))
        if "fenced" in ends:
            await self.shared.retry(self.shared.this_node.renew)
        return ends

    async def _publish_saved(self, pump: Pump, entry: Append, end: LogEnd) -> None:
        """Publish saved events, after saving again what the store has lost. If that fails, only this run fails."""
        try:
            is_behind = isinstance(end, int) and end < entry.first - 1
            self.publish(pump, entry, await self.send_again(pump, end) if is_behind else end)
        except Exception:
            logger.exception("run %s: could not save events again", pump.run.id)
            pump.fail(StoreFailed())

    async def send_again(self, pump: Pump, end: LogEnd) -> LogEnd:
        """Save the events after `end` again: the store had them before it was rolled back."""
        logger.warning("run %s: the store was rolled back to event %s", pump.run.id, end)
        while isinstance(end, int) and (events := pump.log.between(end, pump.log.appended)):
            entry = Append(pump.run.id, pump.run.record.epoch, end + 1, events, self.shared.clock())
            (end,) = await self._append([entry])
        return end

    def publish(self, pump: Pump, entry: Append, end: LogEnd) -> None:
        """Show saved events to readers. If the store reports the run as lost, another node owns it."""
        log, upto = pump.log, entry.first + len(entry.events) - 1
        if end == "lost":
            self._lose(pump)
        elif not log.closed:  # otherwise it was lost during the write, and its unsaved events were dropped
            try:
                log.publish(log.seq if end == "fenced" else upto)
            except Exception:  # an error of a reader must not end this run or others
                logger.exception("run %s: a reader failed", pump.run.id)
            if log.appended > log.seq:
                self.changed(pump)

    async def _serve(self) -> None:
        """Commit until a write fails unexpectedly. After a failure, return at the first success, to report it."""
        if self._has_failed:
            await self.commit()
            self._has_failed = False
        else:
            await asyncio.create_task(self._commit_forever())  # a separate task wakes with fewer stack frames

    async def _commit_forever(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            await self.commit()

    async def _save_one_by_one(self, parts: list[tuple[Pump, Append]]) -> None:
        """Save entries one by one, so that an entry that cannot be saved fails only its own run."""
        for pump, entry in parts:
            try:
                (end,) = await self._append([entry])
            except Exception:
                logger.exception("run %s: could not save events", pump.run.id)
                pump.fail(StoreFailed())
            else:
                await self._publish_saved(pump, entry, end)
