"""The door of one process among several: a request is let in, or its connection handed over to the process whose it is.

The bytes of a request are looked at before they are parsed, one request at a time. So what is handed over has not been
touched: the other process goes on as if it had accepted the connection itself, and each request is executed once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from .board import Board
from .boxes import Handed, Outbox
from .serving import Protocol
from .whose import OWNER, Head, Whose

logger = logging.getLogger("holdfast")

LONGEST_HEAD = 64 * 1024
"""Bytes after which what has no end is no head."""
AHEAD = 64 * 1024
"""Bytes that a client may send ahead while it is answered."""
FLUSH, LONGEST_FLUSH = 0.002, 20.0
"""Seconds until the next look at an answer that a client is slow to take: twice as many each time."""
MOST_HELD = 32 * 1024 * 1024
"""Bytes of bodies that one process waits for to learn whose they are: nobody has looked at their senders' keys yet."""
UNEVEN = 2
"""Connections by which another process must have fewer for a new one to be passed on to it."""


class House:
    """What the doors of one process share."""

    def __init__(self, board: Board, whose: Whose, ways: list[Outbox]) -> None:
        self.board = board
        self.whose = whose
        self.ways = ways
        self.held = 0
        """Bytes of the bodies that are waited for."""

    def lightest(self) -> int:
        """Return the process that has clearly the least to do; this one where there is none."""
        board = self.board
        loads = {process: board.load(process) for process in range(board.size) if board.is_up(process)}
        least = min(loads, key=loads.__getitem__, default=board.me)
        return least if loads.get(board.me, 0) - loads.get(least, 0) >= UNEVEN else board.me


class Door(Protocol):
    """Reads the bytes of one request at a time, and then the next."""

    def __init__(self, *args: Any, house: House, handed: Handed | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._house = house
        self._handed = handed
        self._read = bytearray()  # what has come and was not let in
        self._needs = 0  # how much of it has to be there before anything can be said of it
        self._rest: int | None = 0  # bytes of a request that are still to come; None where nobody knows how many
        self._last = b""  # the last bytes of what was let in of such a request
        self._was_dealt = handed is not None and handed.was_dealt
        self._has_left = False
        self._moves_out = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection, with what another process has read of it."""
        super().connection_made(transport)
        self._house.board.connect(1)
        if self._handed is not None:
            handed, self._handed = self._handed, None
            self.data_received(handed.read)
            if self.flow.read_paused:
                self.loop.call_soon(self._pause_again)  # a loop begins to read after this, whatever was said

    def _pause_again(self) -> None:
        if self.flow.read_paused and not self.transport.is_closing():
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        if not self._has_left:
            self._house.board.connect(-1)
        self._hold_no_longer()
        self._read.clear()

    def data_received(self, data: bytes) -> None:
        """Take in what has come: the rest of a request that was let in, or something new."""
        self._unset_keepalive_if_required()
        if self._rest is None:
            data = self._let_in_unmeasured(data)
        elif self._rest:
            rest, data = data[: self._rest], data[self._rest :]
            self._rest -= len(rest)
            super().data_received(rest)
        self._read += data
        self._look()
        if len(self._read) > AHEAD and not self._is_free:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """End a request whose length was not known before."""
        super().on_message_complete()
        if self._rest is None:
            self._rest = 0

    def on_response_complete(self) -> None:
        """End an answer, and look at what was sent ahead."""
        super().on_response_complete()
        if self._moves_out:
            self.shutdown()
        elif self._read:
            self.loop.call_soon(self._look)

    def shutdown(self) -> None:
        """End with the process; but a worker's connection is given to the owner, which may go on, after its answer."""
        if self._house.board.me == OWNER:
            super().shutdown()
            return
        self._moves_out = True
        if self._is_free:
            self._hand_over(OWNER)

    @property
    def _is_free(self) -> bool:
        """Whether the next request can be looked at: the one before is over."""
        if self.is_lost or self._has_left or self.transport.is_closing():
            return False
        cycle: Any = self.cycle  # there is none before the first request
        return self._rest == 0 and (cycle is None or cycle.response_complete)

    def _look(self) -> None:
        """Let in, or hand over, what has come."""
        while self._read and len(self._read) >= self._needs and self._is_free:
            self._unset_keepalive_if_required()
            end = self._read.find(b"\r\n\r\n")
            if end < 0 and not _is_no_head(self._read):
                return
            head = self._house.whose.head(bytes(self._read[: end + 2])) if end >= 0 else Head(OWNER, None)
            upto = None if head.length is None else end + 4 + head.length
            process = head.process
            if process is None and upto is not None:
                process = self._dealt(end + 4, upto)
            if process is None:
                return  # more of it has to come
            if process != self._house.board.me:
                self._hand_over(process)
                return
            self._let_in(upto)

    def _dealt(self, start: int, upto: int) -> int | None:
        """Return who answers a request that may be anyone's; None where its body has not come yet."""
        house, me = self._house, self._house.board.me
        process = me if self._was_dealt else house.lightest()
        if process == me == OWNER:
            self._was_dealt = True
            return me
        if len(self._read) < upto:
            if house.held + upto > MOST_HELD:
                return OWNER
            self._needs = upto
            house.held += upto
            return None
        if not house.whose.is_anyones(self._read[start:upto]):
            return OWNER
        self._was_dealt = True
        return process

    def _let_in(self, upto: int | None) -> None:
        """Let a request in, as far as it has come."""
        self._hold_no_longer()
        read = bytes(self._read if upto is None else self._read[:upto])
        del self._read[: len(read)]
        if upto is None:
            self._rest, self._last = None, b""
            self._read += self._let_in_unmeasured(read)
        else:
            self._rest = upto - len(read)
            super().data_received(read)

    def _hold_no_longer(self) -> None:
        self._house.held -= self._needs
        self._needs = 0

    def _let_in_unmeasured(self, data: bytes) -> bytes:
        """Let in what belongs to a request of unknown length, and return what follows it: another's, maybe.

        Only the parser knows where it ends, and it does not say; but that is always the end of an empty line.
        """
        seen, before = self._last + data, len(self._last)
        end = 0
        while self._rest is None and end < len(data):
            start, at = end, seen.find(b"\r\n\r\n", max(0, before + end - 3))
            end = len(data) if at < 0 else at + 4 - before
            super().data_received(data[start:end])
            if self.transport.is_closing():
                return b""
        self._last = seen[-3:]
        return data[end:]

    def _hand_over(self, process: int) -> None:
        """Hand the connection over, with all that has come and was not let in."""
        self._has_left = True
        self._hold_no_longer()
        self.flow.pause_reading()
        self._house.board.connect(-1)
        self._house.board.send(process)
        self._send_off(process)

    def _send_off(self, process: int, pause: float = FLUSH) -> None:
        """Send the connection off as soon as the last answer is out of this process: answers keep their order."""
        if self.is_lost or self.transport.is_closing():
            self._house.board.send(process, -1)
        elif not self.transport.get_write_buffer_size():
            connection = self.transport.get_extra_info("socket").fileno()
            self._house.ways[process].send(connection, bytes(self._read), self._was_dealt)
            self.transport.abort()  # which closes it here, and not for the other process
        elif pause < LONGEST_FLUSH:
            self.loop.call_later(pause, self._send_off, process, pause * 2)
        else:
            self._house.board.send(process, -1)
            self.transport.abort()  # the client has not taken its last answer, and will not


def _is_no_head(read: bytes | bytearray) -> bool:
    """Tell whether what has no end yet is for the parser to refuse."""
    return len(read) > LONGEST_HEAD or read.count(b"\n") != read.count(b"\r\n")
