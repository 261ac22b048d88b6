"""Compiles a caller's patterns and searches texts for them, in child processes that can be killed.

A regular expression can take exponential time, and Python's `re` holds the interpreter lock while it searches. The
library `regex` has a time limit and releases the lock, but only for the search: it compiles `(ab){4000000000}` for 26 s
with the lock held, and takes 3 GB. Python's compiler takes 25 ms for each `[Ā-\uffff]` after `(?i)`. So a pattern is
compiled and searched for in a child process with limits of time and memory. Patterns take turns; one that exceeds a
limit costs the child.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence

import msgspec

from ..environment import child_environment

TIME_LIMIT = 2.0
"""Timeout of one search, in seconds."""
LONGEST_PATTERN = 1000
"""Maximum length of a pattern, in characters."""

COMPILE_LIMIT = 5
"""Seconds of processor time for compiling all patterns of a batch."""

_LONGEST_WAIT = 60.0  # seconds for the same on a busy machine, or on one without limits of processor time
_LIMITED = """
import json, re, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    {more}
except (ImportError, ValueError, OSError):
    pass
"""
_SEARCHES = (
    _LIMITED.format(more="")
    + """
for line in sys.stdin:
    pattern, text = json.loads(line)
    print(int(re.search(pattern, text) is not None), flush=True)
"""
)
_COMPILES = (
    _LIMITED.format(more=f"resource.setrlimit(resource.RLIMIT_CPU, ({COMPILE_LIMIT}, {COMPILE_LIMIT}))")
    + """
fault = None
for number, pattern in enumerate(json.load(sys.stdin)):
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        fault = {"number": number, "message": f"This is not a valid pattern: {error}."}
        break
json.dump({"fault": fault}, sys.stdout)
"""
)


async def _start(program: str) -> asyncio.subprocess.Process:
    """Start a child. It needs no secret of the server, and /proc would show them to every tool."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=child_environment(),
    )


async def _kill(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


class PatternFault(msgspec.Struct, frozen=True):
    """The reason why patterns cannot be used. `number` is the index of the pattern; None if it is all of them."""

    message: str
    number: int | None = None


class _Compiled(msgspec.Struct, frozen=True):
    fault: PatternFault | None


class PatternCheck:
    """Compiles the patterns of one batch at a time, each time in a new process."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def fault(self, patterns: Sequence[str]) -> PatternFault | None:
        """Return the fault of the first pattern that cannot be compiled, or of all if they take too long."""
        async with self._turn:
            child = await _start(_COMPILES)
            try:
                async with asyncio.timeout(_LONGEST_WAIT):
                    output, _ = await child.communicate(msgspec.json.encode(patterns))
            except (TimeoutError, ConnectionError):
                output = b""
            finally:
                await _kill(child)
        if not output:
            return PatternFault("Compiling the patterns takes too much time or memory. Simplify them.")
        return msgspec.json.decode(output, type=_Compiled).fault


class Patterns:
    """Searches texts for patterns. Costs one small process from the first search on."""

    def __init__(self, time_limit: float = TIME_LIMIT) -> None:
        self._time_limit = time_limit
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def found(self, pattern: str, text: str) -> bool | None:
        """Return whether the pattern occurs in the text; None if the search exceeded its limits."""
        question = msgspec.json.encode([pattern, text]) + b"\n"
        async with self._turn:
            answer = await self._ask(question)
            if answer == b"":  # the child ended before or because of this search: try a new one once
                answer = await self._ask(question)
        return answer == b"1\n" if answer else None

    async def _ask(self, question: bytes) -> bytes | None:
        """Return the child's answer: None after the time limit, and empty if the child ended."""
        child, answer = await self._running(), None
        try:
            async with asyncio.timeout(self._time_limit):
                answer = await _answer(child, question)
        except TimeoutError:
            pass  # the answer stays None
        except ConnectionError:
            answer = b""
        finally:
            if not answer:  # a late answer would be taken for that of the next search
                await self.close()
        return answer

    async def _running(self) -> asyncio.subprocess.Process:
        if self._child is None or self._child.returncode is not None:
            self._child = await _start(_SEARCHES)
        return self._child

    async def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            await _kill(child)


async def _answer(child: asyncio.subprocess.Process, question: bytes) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(question)
    await child.stdin.drain()
    return await child.stdout.readline()
