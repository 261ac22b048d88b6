"""Numbers that all processes of one server see: who is up, who has how much to do, and how many runs each owner has.

A page of memory that they share. Each number has one writer, so nobody waits for anybody; reading those of another
process costs no message.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from functools import lru_cache

from .settings import MOST_WORKERS

OWNERS = 1024
"""Owners whose runs are counted one by one in each process. Those beyond are counted together."""

_PAGE, _ENDING, _ROWS = 0, 1, 2
_UP, _CONNECTIONS, _RUNS, _GOT, _SENT = 0, 1, 2, 3, 4
_OWNERS = _SENT + MOST_WORKERS
_ROW = _OWNERS + 2 * OWNERS
_BYTES = 8 * (_ROWS + MOST_WORKERS * _ROW)


def new_board() -> int:
    """Return the file of an empty board. It has no name, and is gone with the last process that has it."""
    file = os.memfd_create("holdfast-board")
    os.ftruncate(file, _BYTES)
    return file


class Board:
    """The numbers as the process number `me` of `size` sees them and writes its own."""

    def __init__(self, file: int, me: int, size: int) -> None:
        self.me = me
        self.size = size
        self._cells = memoryview(mmap.mmap(file, _BYTES)).cast("q")
        self._others = [process for process in range(size) if process != me]
        self._slots: dict[tuple[int, str], int] = {}

    def clear(self, process: int) -> None:
        """Forget what a process that has ended had written about itself."""
        row = _row(process)
        for cell in (row + _UP, row + _CONNECTIONS, row + _RUNS, *range(row + _OWNERS, row + _ROW)):
            if self._cells[cell]:
                self._cells[cell] = 0

    # who is there

    def come_up(self) -> None:
        """Say that this process takes connections."""
        self._cells[_row(self.me) + _UP] = 1

    def go_down(self) -> None:
        """Say that this process is about to end: it takes only connections that want one of its runs."""
        self._cells[_row(self.me) + _UP] = 2

    def is_up(self, process: int) -> bool:
        """Tell whether a process takes any connection."""
        return self._cells[_row(process) + _UP] == 1

    def is_there(self, process: int) -> bool:
        """Tell whether a process has the runs that bear its mark."""
        return process < self.size and self._cells[_row(process) + _UP] != 0

    @property
    def up(self) -> int:
        """How many processes take connections."""
        return sum(map(self.is_up, range(self.size)))

    # connections

    def connect(self, change: int) -> None:
        """Say that this process has so many connections more."""
        self._cells[_row(self.me) + _CONNECTIONS] += change

    def send(self, process: int, change: int = 1) -> None:
        """Say that a connection is on its way to a process."""
        self._cells[_row(self.me) + _SENT + process] += change

    def get(self, process: int) -> None:
        """Say that a connection to a process has arrived."""
        self._cells[_row(process) + _GOT] += 1

    def load(self, process: int) -> int:
        """Return how many connections a process has, with those on their way to it."""
        cells, row = self._cells, _row(process)
        sent = sum(cells[_row(other) + _SENT + process] for other in range(self.size))
        return cells[row + _CONNECTIONS] + max(0, sent - cells[row + _GOT])

    # runs

    def count(self, owner: str, change: int) -> None:
        """Say that so many runs more go on in this process."""
        row = _row(self.me)
        self._cells[row + _RUNS] += change
        self._cells[self._count_of(self.me, owner, adds=True)] += change

    def elsewhere(self, owner: str) -> tuple[int, int]:
        """Return how many runs go on in the other processes, and how many of them are this owner's."""
        cells = self._cells
        runs = sum(cells[_row(process) + _RUNS] for process in self._others)
        return runs, sum(cells[self._count_of(process, owner)] for process in self._others) if runs else 0

    @property
    def runs(self) -> int:
        """How many runs go on in all processes."""
        return sum(self._cells[_row(process) + _RUNS] for process in range(self.size))

    def _count_of(self, process: int, owner: str, *, adds: bool = False) -> int:
        """Return where a process counts an owner's runs: the first place is for all who have none of their own."""
        name, start = _digest(owner), _row(process) + _OWNERS
        known = self._slots.get((process, owner))
        if known is not None and self._cells[known - 1] == name:
            return known
        for cell in range(start + 2, start + 2 * OWNERS, 2):
            found = self._cells[cell]
            if not found and adds:
                self._cells[cell] = found = name
            if found == name:
                self._slots[process, owner] = cell + 1
                return cell + 1
            if not found:
                break
        return start + 1

    # what the owner says to all

    @property
    def is_ending(self) -> bool:
        """Whether the server has begun to end."""
        return self._cells[_ENDING] == 1

    def begin_to_end(self) -> None:
        """Say that the server has begun to end: from now on the owner refuses whoever wants to start a run."""
        self._cells[_ENDING] = 1

    @property
    def page(self) -> int:
        """How often the settings were changed."""
        return self._cells[_PAGE]

    def turn_page(self) -> None:
        """Say that the settings were changed. Only one process changes them."""
        self._cells[_PAGE] += 1


def _row(process: int) -> int:
    return _ROWS + process * _ROW


@lru_cache(1024)
def _digest(owner: str) -> int:
    """Return a number for an owner: never 0, which stands for none."""
    return int.from_bytes(hashlib.sha256(owner.encode()).digest()[:7], "big") + 1
