"""What a run waits for while its model is silent, and for how long it may."""

from __future__ import annotations

import math

import msgspec

from ..errors import SourceStalled
from ..silence import ModelAsked, WaitsFor


class Wait(msgspec.Struct):
    """A model that was asked."""

    asked: ModelAsked
    since: float | None = None
    """When it was asked, by the clock of the loop; None until that is noted."""
    asked_at: float = 0.0
    """The same in Unix seconds."""
    has_begun: bool = False

    @property
    def limit(self) -> float | None:
        """Seconds that it may be silent now; None for no limit."""
        return self.asked.silence if self.has_begun else self.asked.first

    def next_look(self, touched: float, now: float) -> float:
        """Return when to look whether it is silent for too long: its first output may shorten the limit meanwhile."""
        limit, then = self.limit or math.inf, self.asked.silence or math.inf
        return min(touched + limit, now + then)

    def note(self, now: float, asked_at: float) -> None:
        """Note when it was asked."""
        self.since, self.asked_at = now, asked_at

    def seen(self, touched: float) -> WaitsFor | None:
        """Return what is waited for, the same until more comes. `touched` is when the last byte came."""
        if self.since is None:
            return None
        if self.has_begun:
            return WaitsFor(self.asked.model, "more", self.asked_at + touched - self.since)
        return WaitsFor(self.asked.model, "prompt" if self.asked.is_local else "first_token", self.asked_at)


def stalled(wait: Wait | None, seconds: float) -> SourceStalled:
    """Return the error of a run that was silent for too long."""
    if wait is None or not wait.asked.model:
        return SourceStalled(seconds)
    what = "sent nothing more" if wait.has_begun else "sent nothing before its first word,"
    return SourceStalled(seconds, what, wait.asked.model)
