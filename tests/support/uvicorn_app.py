"""An app in a uvicorn of its own, as its first line tells to start it: a real process, with real signals."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.http import Client
from tests.support.ports import free_port
from tests.support.waiting import LONG


class UvicornApp:
    """`async with UvicornApp(folder, "fastapi_app") as app: app.client()`. It has the same port after a restart."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "uvicorn", "--log-level", "warning", *arguments, f"{module}:app"]
        self._folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        paths = [str(self._folder), os.environ.get("PYTHONPATH", "")]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._process = await asyncio.create_subprocess_exec(
            *self._command, "--port", str(self.port), cwd=self._folder, env=environ, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(LONG):
            while self._process.returncode is None:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return
        raise RuntimeError(f"the app did not start: {await self.ended()}")

    async def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.communicate()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> str:
        """Wait for its end, and return what it has logged."""
        assert self._process is not None
        async with asyncio.timeout(LONG):
            return (await self._process.communicate())[1].decode()

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)
