"""Ports for the servers of tests: no other test and no outgoing connection takes them while a server restarts."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _COUNT = 12_000, 18_000
_held: dict[int, int] = {}
"""The locked file of each port that this process has handed out. The kernel unlocks it when the process ends."""


def free_port(count: int = 1) -> int:
    """Return a port that stays ours until this process ends, also while nothing listens on it; or the first of a row.

    The kernel gives outgoing connections ports of its ephemeral range. A server that restarts on such a port can find
    it taken, so ours are below that range. A locked file for each port keeps other test processes away from it.
    """
    ports = range(_FIRST, min(_FIRST + _COUNT, _ephemeral_start()))
    for first in random.sample(ports, len(ports)):
        if _take(range(first, first + count)):
            return first
    raise RuntimeError(f"every port from {ports.start} to {ports.stop} is taken")


def _take(ports: range) -> bool:
    """Lock a row of ports; none of them, if one is taken."""
    for port in ports:
        if port in _held or not _lock(port):
            break
        if not _can_listen(port):
            os.close(_held.pop(port))
            break
    else:
        return True
    for locked in range(ports.start, port):
        os.close(_held.pop(locked))
    return False


def _ephemeral_start() -> int:
    try:
        return int(_RANGE.read_text().split()[0])
    except OSError:  # not Linux: the range that IANA proposes begins here
        return 49_152


def _lock(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"holdfast-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _held[port] = file
    return True


def _can_listen(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
