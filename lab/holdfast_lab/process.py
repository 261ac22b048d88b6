"""The judged server as a process that the lab starts, kills and starts again."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from holdfast import HoldfastError

__all__ = ["Judged", "NotStarted"]


class NotStarted(HoldfastError):
    """The server that the lab started does not listen."""


class Judged:
    """`async with Judged(command, url) as judged:` runs a server until the block is left, with all that it starts."""

    def __init__(self, command: str, url: str, *, timeout: float = 60.0, log: Path | None = None) -> None:
        self._command, self._timeout, self._log = shlex.split(command), timeout, log
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end(signal.SIGTERM)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        output = await asyncio.to_thread(self._open_log)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        finally:
            os.close(output)
        try:
            await self._listening()
        except BaseException:
            await self.end(signal.SIGKILL)
            raise

    async def kill(self) -> None:
        """End it without mercy, and all that it started."""
        await self.end(signal.SIGKILL)

    async def end(self, how: signal.Signals) -> None:
        """End it, and wait for that; what does not end within 10 s is killed."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            pass  # killed below
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._process = None

    async def memory(self) -> float:
        """Return the resident bytes of the process and its children, as far as the system tells."""
        assert self._process is not None
        return await asyncio.to_thread(_resident_of_all, self._process.pid)

    def _open_log(self) -> int:
        return os.open(self._log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def _listening(self) -> None:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            if self._process is None or self._process.returncode is not None:
                raise NotStarted(f"It ended before it listened: {shlex.join(self._command)}")
            try:
                _, writer = await asyncio.open_connection(*self._address)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
        raise NotStarted(f"It did not listen on port {self._address[1]} within {self._timeout:g} s.")


def _resident_of_all(pid: int) -> float:
    return sum(_resident(each) for each in [pid, *_descendants(pid)])


def _resident(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [found for child in children for found in (child, *_descendants(child))]
