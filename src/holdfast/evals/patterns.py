"""Compiles a caller's patterns and searches texts for them, in child processes that can be killed.

A regular expression can take exponential time, and Python's `re` holds the interpreter lock while it searches. The
library `regex` has a time limit and releases the lock, but only for the search: it compiles `(ab){4000000000}` for 26 s
with the lock held, and takes 3 GB. Python's compiler takes 25 ms for each `[Ā-\uffff]` after `(?i)`. So a pattern is
compiled and searched for in a child process with limits of time and memory. Patterns take turns; one that exceeds a
limit costs the child.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ..concurrency.limited_child import kill_child, limited, start_limited

TIME_LIMIT = 2.0
"""Timeout of one search, in seconds."""
LONGEST_PATTERN = 1000
"""Maximum length of a pattern, in characters."""

COMPILE_LIMIT = 5
"""Seconds of processor time for compiling all patterns of a batch."""

_LONGEST_WAIT = 60.0  # seconds for the same, or for a start, on a busy machine or one without limits of processor time
_MEMORY = 1 << 30
_SEARCHES = limited(
    """
import json, re, sys
print(flush=True)
for line in sys.stdin:
    pattern, text = json.loads(line)
    print(int(re.search(pattern, text) is not None), flush=True)
""",
    memory=_MEMORY,
)
_COMPILES = limited(
    """
import json, re, sys
fault = None
for number, pattern in enumerate(json.load(sys.stdin)):
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        fault = {"number": number, "message": f"This is not a valid pattern: {error}."}
        break
json.dump({"fault": fault}, sys.stdout)
""",
    memory=_MEMORY,
    seconds=COMPILE_LIMIT,
)


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
            child = await start_limited(_COMPILES)
            try:
                async with asyncio.timeout(_LONGEST_WAIT):
                    output, _ = await child.communicate(msgspec.json.encode(patterns))
            except (TimeoutError, ConnectionError):
                output = b""
            finally:
                await kill_child(child)
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
        answer = None
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                child = await self._running()
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
            self._child = await start_limited(_SEARCHES)
            await _answer(self._child, b"")  # its start is no part of a search
        return self._child

    async def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            await kill_child(child)


async def _answer(child: asyncio.subprocess.Process, question: bytes) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(question)
    await child.stdin.drain()
    return await child.stdout.readline()
