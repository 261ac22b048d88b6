"""The limit of starts of runs for each owner in a minute."""

from __future__ import annotations

import time

from ..errors import HoldfastError


class TooManyStarts(HoldfastError):
    """An owner starts runs faster than the limit allows."""

    code = "rate_limited"
    status = 429
    type = "rate_limit_error"

    def __init__(self, limit: int, wait: float) -> None:
        super().__init__(f"At most {limit} runs may be started in a minute.")
        self.retry_after = wait


class StartRate:
    """A token bucket for each owner, which fills evenly over the minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, owner: str, starts: int = 1) -> None:
        """Take one token or more, or refuse, with the time until there are enough."""
        if not self._per_minute:
            return
        starts = min(starts, self._per_minute)  # a batch larger than the bucket takes a full one
        now, per_second = time.monotonic(), self._per_minute / 60
        left, at = self._buckets.get(owner, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - at) * per_second)
        if left < starts:
            raise TooManyStarts(self._per_minute, (starts - left) / per_second)
        self._buckets[owner] = (left - starts, now)
