"""The Unix socket by which the commands of a user reach the server on the same machine.

It is in a folder that only its user can access, so the file system authenticates both ends: no other user can listen
there or connect. A port proves neither, since any user of the machine can listen on a free one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pathlib
import socket
import stat
import sys
from collections.abc import Generator

from ....store.folder import who_else

logger = logging.getLogger(__name__)

NAME = "holdfast.sock"
LONGEST = 100
"""Maximum length of a socket path that every system accepts, in bytes."""


@contextlib.contextmanager
def listening_in(folder: pathlib.Path) -> Generator[list[socket.socket]]:
    """Listen in a data folder that this process has locked. Yield one socket, or none if there can be none here."""
    try:
        listener = bind(folder)
    except OSError as error:
        logger.warning("cannot create a socket in %s (%s): commands on this machine need --url", folder, error)
        yield []
        return
    mine = os.stat(folder / NAME).st_ino
    try:
        yield [listener]
    finally:
        listener.close()
        with contextlib.suppress(OSError):  # the next server on this folder may have created its socket by now
            if os.stat(folder / NAME).st_ino == mine:
                os.unlink(folder / NAME)


def bind(folder: pathlib.Path) -> socket.socket:
    """Return a socket bound in a folder, in place of one that a killed server left there."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(errno.EAFNOSUPPORT, "this system has no sockets in folders; name a server with --url")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / NAME)
        with short_path(folder) as path:
            listener.bind(path)
        os.chmod(folder / NAME, 0o600)  # before it listens, so that no other user can connect
    except OSError:
        listener.close()
        raise
    return listener


def is_private(folder: pathlib.Path) -> bool:
    """Return whether the folder has a socket that only this user, or root, can have created."""
    try:
        is_socket = stat.S_ISSOCK(os.lstat(folder / NAME).st_mode)
    except OSError:
        return False
    return is_socket and who_else(folder) is None and who_else(folder / NAME) is None


@contextlib.contextmanager
def short_path(folder: pathlib.Path) -> Generator[str]:
    """Yield a path to the folder's socket that is short enough for an address, valid within the block."""
    path = str(folder / NAME)
    if len(os.fsencode(path)) <= LONGEST or sys.platform != "linux":
        yield path
        return
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{NAME}"
    finally:
        os.close(opened)
