"""Child processes with limits for work on bytes of strangers: what exceeds a limit costs the child, not the server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import IO

from ..environment import child_environment

LIMITS = """
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if {seconds}:
        resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
except (ImportError, ValueError, OSError):
    pass
"""
"""The beginning of a program for a child: its limits, where the system has them."""


def limited(program: str, *, memory: int, seconds: int = 0) -> str:
    """Return a program with limits of memory in bytes and of processor time. 0 seconds are no limit."""
    return LIMITS.format(memory=memory, seconds=seconds) + program


async def start_limited(
    program: str, *arguments: str, line_limit: int = 64 * 1024, input: int | IO[bytes] = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    """Start a child. It needs no secret of the server, and /proc would show them to every tool."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", program, *arguments),
        stdin=input,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=child_environment(),
        limit=line_limit,
    )


async def kill_child(child: asyncio.subprocess.Process) -> None:
    """Kill a child that has not ended, and wait for its end."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
