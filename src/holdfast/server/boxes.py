"""Passes connections between the processes of one server, each with the bytes that were read and not answered."""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .board import Board

logger = logging.getLogger("holdfast")

_IN_ONE = 16 * 1024  # bytes that go with the connection; more of them go in a memory of their own
_AT_ONCE = 32  # connections that are taken in one turn of the loop
_DEALT, _ALSO_MEMORY = 1, 2  # what the first byte says


class Handed(NamedTuple):
    """A connection that comes from another process."""

    connection: socket.socket
    read: bytes
    """What the client has said and nobody has answered."""
    was_dealt: bool
    """It was given to whoever had the least to do: it is not passed on for that reason again."""


class Box(NamedTuple):
    """What is put in at one end comes out at the other: connections for one process."""

    put: socket.socket
    take: socket.socket


def new_boxes(processes: int) -> list[Box]:
    """Return a box for each process. Whoever has both ends keeps what is in it when the process dies."""
    boxes = [Box(*socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(processes)]
    for end in (end for box in boxes for end in box):
        end.setblocking(False)
    return boxes


class Outbox:
    """The way to another process. What its box has no room for waits here, in order."""

    def __init__(self, put: socket.socket) -> None:
        self._put = put
        self._waiting: deque[tuple[int, bytes, bool]] = deque()
        self.is_empty = asyncio.Event()
        """Nothing waits here."""
        self.is_empty.set()

    def send(self, connection: int, read: bytes, was_dealt: bool) -> None:
        """Send a connection. From then on it is out of the sender's hands, who may close it at once."""
        if not self._waiting and _put(self._put, connection, read, was_dealt):
            return
        if not self._waiting:
            asyncio.get_running_loop().add_writer(self._put.fileno(), self._go_on)
        try:
            self._waiting.append((os.dup(connection), read, was_dealt))
            self.is_empty.clear()
        except OSError as error:
            _log_lost(error)

    def _go_on(self) -> None:
        while self._waiting:
            if not _put(self._put, *self._waiting[0]):
                return
            os.close(self._waiting.popleft()[0])
        asyncio.get_running_loop().remove_writer(self._put.fileno())
        self.is_empty.set()


def _put(put: socket.socket, connection: int, read: bytes, was_dealt: bool) -> bool:
    """Put a connection into a box. False where there is no room."""
    dealt = _DEALT if was_dealt else 0
    try:
        if len(read) <= _IN_ONE:
            socket.send_fds(put, [bytes([dealt]), read], [connection])
            return True
        memory = _in_memory(read)
        try:
            socket.send_fds(put, [bytes([dealt | _ALSO_MEMORY])], [connection, memory])
            return True
        finally:
            os.close(memory)
    except (BlockingIOError, InterruptedError):
        return False
    except OSError as error:
        if error.errno == errno.ETOOMANYREFS:
            return False  # as many are on their way as may be
        _log_lost(error)
        return True


def _log_lost(why: object) -> None:
    logger.error("a connection could not be handed over, and is closed: %s", why)


class Inbox:
    """Takes the connections that other processes put into a box, until it is closed."""

    def __init__(self, take: socket.socket, board: Board, process: int, welcome: Callable[[Handed], None]) -> None:
        self._take = take
        self._board = board
        self._process = process
        self._welcome = welcome
        asyncio.get_running_loop().add_reader(take.fileno(), self._receive)

    def close(self) -> None:
        """Leave what comes from now on to the next who looks."""
        asyncio.get_running_loop().remove_reader(self._take.fileno())

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                handed = _taken(self._take)
            except (BlockingIOError, InterruptedError):
                return
            self._board.get(self._process)
            if handed is not None:
                self._welcome(handed)


def _taken(take: socket.socket) -> Handed | None:
    said, files, _, _ = socket.recv_fds(take, _IN_ONE + 1, 2, socket.MSG_CMSG_CLOEXEC)
    if len(files) != (2 if said[0] & _ALSO_MEMORY else 1):
        _log_lost("too many files are open")
        for file in files:
            os.close(file)
        return None
    read = _content(files[1]) if said[0] & _ALSO_MEMORY else said[1:]
    return Handed(socket.socket(fileno=files[0]), read, bool(said[0] & _DEALT))


def _in_memory(read: bytes) -> int:
    """Return a file that is only in memory."""
    file = os.memfd_create("holdfast-request")
    os.ftruncate(file, len(read))
    with mmap.mmap(file, len(read)) as memory:
        memory[:] = read
    return file


def _content(file: int) -> bytes:
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as memory:
        os.close(file)
        return memory[:]
