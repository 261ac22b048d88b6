"""Looks for a caller's pattern in a text, in a process of its own that can be killed.

Python's patterns can take longer than the universe lasts, and hold every other request meanwhile. So they are tried
elsewhere, one after the other, and one that takes too long costs its process.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

PATIENCE = 2.0
"""Seconds that a pattern may take."""

_CHILD = """
import json, re, sys
for line in sys.stdin:
    pattern, text = json.loads(line)
    print(int(re.search(pattern, text) is not None), flush=True)
"""


class Patterns:
    """Costs nothing until the first pattern is looked for, and one small process from then on."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def found(self, pattern: str, text: str) -> bool:
        """Tell whether a pattern is somewhere in a text. One that takes too long, or is none, is not."""
        asked = msgspec.json.encode([pattern, text]) + b"\n"
        async with self._turn:
            answer = await self._answer(asked)
            if answer == b"":  # the process had ended before: that says nothing of this pattern
                answer = await self._answer(asked)
            return answer == b"1\n"

    async def _answer(self, asked: bytes) -> bytes | None:
        """Return the child's answer: None where it took too long, and nothing where there is no child any more."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._ask(asked)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""
        finally:
            self._end_unless_idle()

    async def _ask(self, asked: bytes) -> bytes:
        self._is_busy = True
        child = self._child
        if child is None or child.returncode is not None:
            child = self._child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                "-X",
                "utf8",
                "-c",
                _CHILD,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(asked)
        await child.stdin.drain()
        answer = await child.stdout.readline()
        self._is_busy = not answer
        return answer

    def _end_unless_idle(self) -> None:
        """Kill a child that still looks: its answer would be taken for that to the next question."""
        if self._is_busy and self._child is not None:
            if self._child.returncode is None:
                self._child.kill()
            self._child = None
        self._is_busy = False

    async def close(self) -> None:
        """Let go of the process."""
        if self._child is not None and self._child.returncode is None:
            self._child.kill()
            await self._child.wait()
        self._child = None

    _is_busy = False
