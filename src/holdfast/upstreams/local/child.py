"""The built-in model's own process: llama.cpp's server on a loopback port, for as long as it has a parent.

llama.cpp ends the whole process if one of its assertions fails, so it gets a process of its own. The parent
writes one line to its stdin, the order, and reads one line from its stdout: the address, or an error. From then on
stdin is the lifeline: it closes when the parent ends, even if it is killed, and the model's process ends with it.

If the order has a `linger` and the lifeline closes without `END`, the parent was probably killed, and the next parent
may want the answers in progress. So the process writes a note with its address, and waits for a new parent that sends
its key, for `linger` seconds. The connection on which it was claimed is the lifeline from then on.
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
"""The line with which a parent ends the process."""
CLAIMED = b"yours\n"
"""The response to a new parent that sent the right key."""

_PR_SET_PDEATHSIG = 1
_KEY_TIMEOUT = 1.0  # seconds for a new parent to send the key


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The order of the parent: the model and its settings."""

    model: str
    context: int
    """Tokens of prompt and answer together, for each slot."""
    slots: int
    """Maximum number of concurrent answers."""
    threads: int
    batch: int
    """Tokens of a prompt that are processed at once. Processing can be stopped only between two batches."""
    key: str
    """The API key of the port: other users of this machine can connect to it too."""
    parent: int
    linger: float = 0.0
    """Seconds to wait for a new parent after one that ended without `END`."""
    notes: str = ""
    """The folder for the note by which a new parent finds the process."""


class Ready(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to the order: the address of the server, or an error."""

    address: str = ""
    error: str = ""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A file about a lingering process, for a new parent."""

    pid: int
    address: str
    port: int
    """The port on which to claim the process. It listens only after the parent has ended."""
    order: Order


def run_child() -> None:
    """Serve the model of the order on stdin, until the parent ends and no new one claims the process."""
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
        _reply(answer, Ready(error=str(error)))
        sys.exit(1)
    parent_wait = _ParentWait(order, server.listening_address) if order.linger else None
    _reply(answer, Ready(address=server.listening_address))
    if parent_wait is not None:
        parent_wait.wait()
    else:
        sys.stdin.buffer.read()
    exit_at_once(0)  # an orderly shutdown of the server takes a second, and there is nothing to save


def _take_over_stdout() -> BinaryIO:
    """Return stdout for the reply, and redirect the output of native code to stderr."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answer


def _reply(answer: BinaryIO, ready: Ready) -> None:
    answer.write(msgspec.json.encode(ready) + b"\n")
    answer.close()


def _leave_signals_to_the_parent() -> None:
    """Ignore signals to the whole process group: the parent may still be draining its runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends: stdin is not read while the model loads."""
    _ask_for_signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != parent:
        exit_at_once(0)


def _ask_for_signal_at_parents_end(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _serve(order: Order) -> Any:
    """Load the model and return the server, which has its own threads."""
    llama = import_module("xllamacpp")  # not at the top: the parent imports this module for its structs
    params = llama.CommonParams()
    params.model.path = order.model
    params.hostnames = [LOOPBACK]
    params.port = 0
    params.api_keys = [order.key]
    params.n_ctx = order.context * order.slots
    params.n_parallel = order.slots
    params.n_batch = params.n_ubatch = order.batch
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = order.threads
    params.cache_ram_mib = 0  # else the cache of earlier prompts may take 8 GB
    params.endpoint_slots = True
    params.ui = False
    params.verbosity = -1
    return llama.Server(params)


class _ParentWait:
    """The wait of a process for a new parent: a note, and a socket that listens once the parent has ended."""

    def __init__(self, order: Order, address: str) -> None:
        self._order = order
        self._socket = socket.socket()
        self._socket.bind((LOOPBACK, 0))
        self._note = _leave(Note(pid=os.getpid(), address=address, port=self._socket.getsockname()[1], order=order))
        _ask_for_signal_at_parents_end(0)

    def wait(self) -> None:
        """Return when a parent has sent `END`, or no new parent came in time."""
        try:
            lifeline: BinaryIO | None = sys.stdin.buffer
            while lifeline is not None and _last_line(lifeline) != END:
                lifeline = self._claimed()
        finally:
            self._note.unlink(missing_ok=True)

    def _claimed(self) -> BinaryIO | None:
        """Wait for a new parent with the key, and return its connection; None if none came in time."""
        deadline = time.monotonic() + self._order.linger
        self._socket.listen()
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                return None
            if lifeline := self._admitted(connection):
                return lifeline
        return None

    def _admitted(self, connection: socket.socket) -> BinaryIO | None:
        lifeline = connection.makefile("rb")
        try:
            connection.settimeout(_KEY_TIMEOUT)
            if lifeline.readline().strip() == self._order.key.encode():
                connection.settimeout(None)
                connection.sendall(CLAIMED)
                return lifeline
        except OSError:
            pass  # it has disconnected, or sent nothing in time
        lifeline.close()
        connection.close()
        return None


def _last_line(lifeline: BinaryIO) -> bytes:
    try:
        return lifeline.readline()
    except OSError:
        return b""  # a parent that was killed


def _leave(note: Note) -> Path:
    """Write the note atomically. Only the owner can read it, because it contains the key."""
    path = Path(note.order.notes) / f".process-{note.pid}.json"
    draft = path.with_suffix(".draft")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(note))
    os.replace(draft, path)
    return path


if __name__ == "__main__":
    run_child()
