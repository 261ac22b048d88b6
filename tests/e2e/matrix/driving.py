"""A client of the matrix as a process, driven by a line for each task."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.installs import node as node_itself
from tests.e2e.matrix import installs
from tests.e2e.matrix.table import MATRIX, Client
from tests.support.server import LAUNCHER
from tests.support.waiting import LONG

LARGEST_LINE = 2**20
QUIET = {
    **dict.fromkeys(["OTEL_SDK_DISABLED", "DO_NOT_TRACK", "LITELLM_LOCAL_MODEL_COST_MAP", "HF_HUB_OFFLINE"], "true"),
    **dict.fromkeys(["CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_TRACKING", "MASTRA_TELEMETRY_DISABLED"], "true"),
    **dict.fromkeys(
        ["AGNO_TELEMETRY", "ANONYMIZED_TELEMETRY", "GRADIO_ANALYTICS_ENABLED", "VOLTAGENT_TELEMETRY"], "false"
    ),
    **dict.fromkeys(["OPENAI_AGENTS_DISABLE_TRACING", "PYTHONUNBUFFERED", "NO_COLOR"], "1"),
}
"""What keeps clients from calling home: the tests speak to this machine only."""


@dataclass
class Learnt:
    """What a program that uses the client has learnt: the text in pieces, and then an answer or an error."""

    pieces: list[str] = field(default_factory=list)
    answer: Any = None
    raised: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Driver:
    """A process with one client in it. It does one task at a time."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def do(
        self,
        do: str,
        model: str,
        *,
        stream: bool = False,
        leave: bool = False,
        picture: str = "",
        on_piece: Callable[[], None] = lambda: None,
    ) -> Learnt:
        """Send a task, and read what comes of it."""
        task = {"do": do, "model": model, "stream": stream, "leave": leave, "picture": picture}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
        learnt = Learnt()
        async with asyncio.timeout(LONG):
            while "piece" in (said := await self._next()):
                learnt.pieces.append(said["piece"])
                on_piece()
        learnt.answer, learnt.raised = said.get("answer"), said.get("raised", "")
        return learnt

    async def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, f"the client's process has ended: {self._log.read_text(errors='replace')[-4000:]}"
        said: dict[str, Any] = json.loads(line)
        return said


def command(client: Client) -> list[str]:
    """How a client's driver is started. What is not installed is named."""
    driver = MATRIX / client.driver
    if driver.suffix == ".py":
        return [str(installs.python_of(client.environment)), str(MATRIX / "python" / "run.py"), str(driver)]
    if not (MATRIX.parent / "node_modules" / client.package).exists():
        raise installs.NotInstalledError(f"npm install, in {MATRIX.parent}")
    node = node_itself()
    if node is None:
        raise installs.NotInstalledError("node, which `make setup-dev` installs")
    return [node, str(driver.parent / "run.mjs"), str(driver)]


@asynccontextmanager
async def driven(client: Client, folder: Path, url: str, key: str) -> AsyncIterator[Driver]:
    """Start a client's driver, with a home of its own, and end it with the block."""
    log = folder / "client.log"
    home = {"HOME": str(folder), "HOLDFAST_URL": url, "HOLDFAST_KEY": key, "PATH": os.environ["PATH"]}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *LAUNCHER,
            *command(client),
            client.variant,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=home | QUIET | client.env,
            limit=LARGEST_LINE,
        )
    try:
        yield Driver(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
