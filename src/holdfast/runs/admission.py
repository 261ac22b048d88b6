"""Limits on the number of runs that are active at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from ..errors import RunLimitReached, ShuttingDown
from ..store.nodes import RunsElsewhere
from .run import Limits

_NO_RUNS = RunsElsewhere()


class Places(msgspec.Struct):
    """Places reserved for runs that are about to start. A run takes over one of them, or returns one and takes its
    own."""

    _left: int
    _give_back: Callable[[], None]

    def transfer_one(self) -> None:
        """Transfer one place to a run, which gives it back when it ends."""
        self._left -= 1

    def __enter__(self) -> Places:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._left:
            self.give_back()

    def give_back(self) -> None:
        """Give one place back, if one is left."""
        if self._left:
            self._left -= 1
            self._give_back()

    def handed_over(self) -> Places:
        """Move the remaining places to a new object, which gives them back instead of this one."""
        left, self._left = self._left, 0
        return Places(left, self._give_back)


class Admission:
    """The places of an engine, in total and per owner. A run takes one before it starts, and gives it back once."""

    def __init__(self, limits: Limits) -> None:
        self.closed = False
        """True if no new runs are admitted."""
        self._limits = limits
        self._taken = 0
        self._of_owner: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """Number of places taken."""
        return self._taken

    def reserve(self, owner: str, runs: int, elsewhere: RunsElsewhere = _NO_RUNS) -> Places:
        """Take places for several runs that are about to start: all of them, or none if there is no room.

        Runs on other nodes count, too.
        """
        limits, taken = self._limits, self._of_owner.get(owner, 0) + elsewhere.of_owner
        if self.closed:
            raise ShuttingDown
        if self._taken + elsewhere.runs + runs > limits.runs:
            raise RunLimitReached(limits.runs)
        if limits.runs_per_owner is not None and taken + runs > limits.runs_per_owner:
            raise RunLimitReached(limits.runs_per_owner)
        self._taken += runs
        self._of_owner[owner] = self._of_owner.get(owner, 0) + runs
        return Places(runs, partial(self.give_back, owner))

    def take(self, owner: str) -> None:
        """Take a place."""
        self._taken += 1
        self._of_owner[owner] = self._of_owner.get(owner, 0) + 1

    def give_back(self, owner: str) -> None:
        """Give one place back."""
        self._taken -= 1
        self._of_owner[owner] -= 1
        if not self._of_owner[owner]:
            del self._of_owner[owner]
