"""The limit of starts of runs for each owner in a minute."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress

from ...concurrency.tasks import OwnedTasks
from ...engine.core import Core
from ...errors import HoldfastError, StoreUnavailable
from ...store import Store
from ...store.semantics import starts_left

_MINUTE = 60.0


class TooManyStarts(HoldfastError):
    """An owner starts runs faster than the limit allows."""

    code = "rate_limited"
    status = 429
    type = "rate_limit_error"

    def __init__(self, limit: int, wait: float) -> None:
        runs = "1 run" if limit == 1 else f"{limit} runs"
        super().__init__(f"At most {runs} may be started in a minute.")
        self.retry_after = wait


class StartRate:
    """A token bucket for each owner, which fills evenly over the minute.

    It is in memory if there is one server, and in the store if several share it.
    """

    def __init__(
        self, per_minute: int, engine: Core, store: Store, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self.per_minute = per_minute
        """0 for no limit."""
        self._engine = engine
        self._store = store
        self._tasks = OwnedTasks("the limit of starts")
        self._buckets: dict[str, tuple[float, float]] = {}
        """The rest of each owner's starts, and its time, ordered by the last use."""

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.per_minute > 0

    def __len__(self) -> int:
        """Return the number of owners that have started runs on this server in the last minute."""
        return len(self._buckets)

    async def take(self, owner: str, starts: int = 1) -> None:
        """Take one token or more, or refuse, with the time until there are enough."""
        if self.is_set and (wait := await self._taken(owner, starts)):
            raise TooManyStarts(self.per_minute, wait)

    async def give_back(self, owner: str, starts: int = 1) -> None:
        """Give tokens back with which nothing was started. If the store is away, they come back within the minute."""
        if self.is_set:
            with suppress(StoreUnavailable):
                await self._tasks.run(self._taken(owner, -starts))

    async def _taken(self, owner: str, starts: int) -> float:
        if self._engine.is_alone:
            return self._take_here(owner, starts)
        return await self._store.take_starts(owner, starts, self.per_minute)

    def _take_here(self, owner: str, starts: int) -> float:
        now = self._clock()
        rest, at = self._buckets.get(owner, (float(self.per_minute), now))
        rest, wait = starts_left(rest, now - at, starts, self.per_minute)
        if not wait:
            self._buckets.pop(owner, None)
            self._buckets[owner] = rest, now
            self._forget_full(now)
        return wait

    def _forget_full(self, now: float) -> None:
        """Drop buckets that have not been used for a minute: they are full, like new ones."""
        old = itertools.takewhile(lambda it: now - it[1][1] > _MINUTE, self._buckets.items())
        for owner, _ in list(old):
            del self._buckets[owner]
