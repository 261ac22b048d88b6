"""The owners of listening ports on this machine, and of the connections from it."""

from __future__ import annotations

import os
import pathlib
import pwd
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from ..config.loopback import is_loopback

TABLES = (pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6"))
"""The files in which Linux lists the TCP sockets of this network namespace. Other systems have none."""

_LISTENS, _IS_OPEN = "0A", "01"


def strangers_at(addresses: Iterable[str]) -> dict[str, int]:
    """Return the addresses of this machine at which a user listens who is not trusted, and that user's id.

    Addresses of other machines, and those without a listener, are left out. Every listener on a port counts, whichever
    address it is bound to: any of them might get a connection. Blocks on the kernel, whose list has every socket of the
    machine.
    """
    ports = {address: parts.port for address in addresses if is_loopback((parts := urlsplit(address)).hostname or "")}
    if not ports:
        return {}
    trusted = _trusted()
    listeners = [(port, uid) for table in TABLES for port, uid in owners(_lines(table)) if uid not in trusted]
    return {address: uid for address, port in ports.items() for taken, uid in listeners if taken == port}


def stranger_behind(port: int, to: int, tables: Iterable[pathlib.Path] = TABLES) -> int | None:
    """Return the user of this machine who has opened a connection from one port to another, if it is not trusted.

    None for a trusted user, and if nobody is found: of another machine, or on a system without these files. Blocks.
    """
    trusted = _trusted()
    found = [uid for table in tables for uid in _callers(_lines(table), port, to)]
    return next((uid for uid in found if uid not in trusted), None)


def _callers(lines: Iterable[str], port: int, to: int) -> Iterator[int]:
    """Yield the user id of each open connection from one port to another, from the lines of `/proc/net/tcp`."""
    for line in lines:
        fields = line.split(maxsplit=8)
        if len(fields) > 7 and fields[3] == _IS_OPEN and (_port(fields[1]), _port(fields[2])) == (port, to):
            yield int(fields[7])


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _trusted() -> set[int]:
    """Return the ids of root, of our user, and of the user that Ollama's installer creates."""
    trusted = {0, os.geteuid()}
    try:
        trusted.add(pwd.getpwnam("ollama").pw_uid)
    except KeyError:
        pass
    return trusted


def _lines(table: pathlib.Path) -> list[str]:
    try:
        return table.read_text().splitlines()
    except OSError:
        return []


def owners(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the port and the user id of each socket that listens, from the lines of `/proc/net/tcp`."""
    for line in lines:
        fields = line.split(maxsplit=8) if _LISTENS in line else ()
        if len(fields) > 7 and fields[3] == _LISTENS:
            yield _port(fields[1]), int(fields[7])
