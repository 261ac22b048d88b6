"""Protection of the server process from other processes of its user."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

logger = logging.getLogger(__name__)

_SET_DUMPABLE = 4  # PR_SET_DUMPABLE


def forbid_inspection() -> None:
    """Close this process's environment and memory to the other processes of its user, on Linux.

    The environment holds the keys of upstreams, and `/proc/PID/environ` shows it to every process of the same user: to
    the commands of a tool, too. Child processes are readable again. Root can always read it.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0):
        logger.warning("other processes can read the environment of this one: %s", os.strerror(ctypes.get_errno()))
