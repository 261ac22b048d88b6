"""The embedded model's own process: llama.cpp's server on a loopback port, for as long as it has a parent.

llama.cpp ends the whole process if one of its assertions fails, so it gets a process that may end. The parent
writes one line to its stdin, the order, and reads one line from its stdout: the address, or what went wrong. From then
on stdin is the lifeline: it closes when the parent ends, however it ends, and the model's process ends with it.

Where the order says to linger, a parent that ended without a word may have been killed, and its successor may want the
answers that are being written. So the process leaves a note on how to be found, and waits that long for someone who
knows its key; the connection on which it was claimed is the lifeline then.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from importlib import import_module
from os import _exit as exit_at_once
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

__all__ = ["CLAIMED", "END", "LOOPBACK", "Note", "Order", "Ready", "run_child"]

LOOPBACK = "127.0.0.1"
END = b"end\n"
"""The parent says goodbye."""
CLAIMED = b"yours\n"
"""What a new parent hears that said the right key."""

_PR_SET_PDEATHSIG = 1
_HEARING = 1.0  # seconds in which a new parent must say the key


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent wants."""

    model: str
    context: int
    """Tokens of prompt and answer together, for each slot."""
    slots: int
    """Runs that are answered at once."""
    threads: int
    batch: int
    """Tokens of a prompt that are read in one piece, between which the reading can be stopped."""
    key: str
    """Without it the port answers nobody: other people may be on this machine."""
    parent: int
    linger: float = 0.0
    """Seconds to wait for a new parent after one that ended without a word."""
    notes: str = ""
    """The folder for the note by which it finds us."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the parent gets."""

    address: str = ""
    error: str = ""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a new parent needs to know."""

    pid: int
    address: str
    port: int
    """Where to claim the process once its parent has ended; nobody listens there before."""
    order: Order


def run_child() -> None:
    """Serve the model that stdin names until nobody needs it any more."""
    answer = _take_over_stdout()
    line = sys.stdin.buffer.readline()
    if not line:
        return
    order = msgspec.json.decode(line, type=Order)
    _leave_signals_to_the_parent()
    _end_with(order.parent)
    try:
        server = _serve(order)
    except (RuntimeError, ImportError) as error:
        _say(answer, Ready(error=str(error)))
        sys.exit(1)
    doorstep = _Doorstep(order, server.listening_address) if order.linger else None
    _say(answer, Ready(address=server.listening_address))
    if doorstep is not None:
        doorstep.wait()
    else:
        sys.stdin.buffer.read()
    exit_at_once(0)  # an orderly end of the server takes a second and is of use to nobody


def _take_over_stdout() -> BinaryIO:
    """Return stdout for our own line; what native code prints there goes to stderr instead."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answer


def _say(answer: BinaryIO, ready: Ready) -> None:
    answer.write(msgspec.json.encode(ready) + b"\n")
    answer.close()


def _leave_signals_to_the_parent() -> None:
    """Ignore what a terminal or a service sends to the whole group: the parent may still be draining its runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _end_with(parent: int) -> None:
    """Have the kernel end this process with its parent: while the model loads nobody here can look at stdin."""
    _ask_for_signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != parent:
        exit_at_once(0)


def _ask_for_signal_at_parents_end(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _serve(order: Order) -> Any:
    """Load the model and return the server, which has its own threads."""
    llama = import_module("xllamacpp")  # not at the top: the parent imports this module too, for what they say
    params = llama.CommonParams()
    params.model.path = order.model
    params.hostnames = [LOOPBACK]
    params.port = 0
    params.api_keys = [order.key]
    params.n_ctx = order.context * order.slots
    params.n_parallel = order.slots
    params.n_batch = params.n_ubatch = order.batch
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = order.threads
    params.cache_ram_mib = 0  # else it may take 8 GB for prompts of the past
    params.endpoint_slots = True
    params.ui = False
    params.verbosity = -1
    return llama.Server(params)


class _Doorstep:
    """Where a process that outlives its parent waits to be found: a note, and a door that opens when it is left."""

    def __init__(self, order: Order, address: str) -> None:
        self._order = order
        self._door = socket.socket()
        self._door.bind((LOOPBACK, 0))
        self._note = _leave(Note(pid=os.getpid(), address=address, port=self._door.getsockname()[1], order=order))
        _ask_for_signal_at_parents_end(0)

    def wait(self) -> None:
        """Return when a parent has said goodbye, or none has come in time."""
        try:
            lifeline: BinaryIO | None = sys.stdin.buffer
            while lifeline is not None and _last_line(lifeline) != END:
                lifeline = self._claimed()
        finally:
            self._note.unlink(missing_ok=True)

    def _claimed(self) -> BinaryIO | None:
        """Wait for someone with the key and return the connection; None if nobody came."""
        deadline = time.monotonic() + self._order.linger
        self._door.listen()
        while (left := deadline - time.monotonic()) > 0:
            self._door.settimeout(left)
            try:
                visitor, _ = self._door.accept()
            except TimeoutError:
                return None
            if lifeline := self._admitted(visitor):
                return lifeline
        return None

    def _admitted(self, visitor: socket.socket) -> BinaryIO | None:
        lifeline = visitor.makefile("rb")
        try:
            visitor.settimeout(_HEARING)
            if lifeline.readline().strip() == self._order.key.encode():
                visitor.settimeout(None)
                visitor.sendall(CLAIMED)
                return lifeline
        except OSError:
            pass  # it has gone again, or it has nothing to say
        lifeline.close()
        visitor.close()
        return None


def _last_line(lifeline: BinaryIO) -> bytes:
    try:
        return lifeline.readline()
    except OSError:
        return b""  # a parent that was killed, not one that said goodbye


def _leave(note: Note) -> Path:
    """Write the note, whole or not at all, and readable for nobody else: it has the key in it."""
    path = Path(note.order.notes) / f".process-{note.pid}.json"
    draft = path.with_suffix(".draft")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(note))
    os.replace(draft, path)
    return path


if __name__ == "__main__":
    run_child()
