"""A provider without an upstream: its models do what their names say.

For demos, for tests and for benchmarks. It is as truthful as a real one: every answer says how it ended.

| model | what it does |
| --- | --- |
| `echo` | repeats the last user message, word by word |
| `lorem:<tokens>:<tokens a second>` | that many words at that pace; 0 or nothing for the pace means all at once |
| `think` | reasons about the last user message, then repeats it |
| `tool` | calls the first tool on offer (`lookup` where there is none); answers once it has the result |
| `steps` | for agents: goes line by line through the last user message; `name {…}` calls that tool, others are said |
| `length` | half of what `echo` says, then stops at the limit |
| `fail` | half of what `echo` says, then fails |
| `hang` | says `…`, then nothing more until it is stopped |

`tool` passes the last user message as the arguments if it is a JSON object, and else as `{"query": …}`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import msgspec

from ..errors import ProviderError, ProviderRefused
from ..events import Finish, Reasoning, Text, ToolCall, ToolDelta, Usage, Yielded
from . import ChatRequest

__all__ = ["Scripted"]

Batches = AsyncGenerator[Sequence[Yielded]]

LOREM = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore. "

_CALL = re.compile(r"[\w-]+ +\{.*\}")
_MOST_TOKENS = 10_000_000
_HIGHEST_PACE = 1e6
_BATCH = 256  # tokens that are due together are yielded together, but not more, so that nobody else has to wait


class Scripted:
    """Answers by script. Costs nothing but the events."""

    models: tuple[str, ...] | None = None
    prefills = False

    def __init__(self, name: str = "scripted") -> None:
        self.name = name
        self._scripts: dict[str, Callable[[ChatRequest], Batches]] = {
            "echo": _echo,
            "think": _think,
            "tool": _tool,
            "steps": _steps,
            "length": _length,
            "fail": _fail,
            "hang": _hang,
            "lorem": _lorem,
        }

    async def stream(self, request: ChatRequest) -> Batches:
        """Play the script that the model's name asks for."""
        script = self._scripts.get(request.model.partition(":")[0])
        if script is None:
            raise ProviderRefused(
                f"{self.name} has no script {request.model!r}.", code="upstream_not_found", status=404
            )
        asked = sum(len(_text(message).split()) for message in request.messages)
        yield [Usage(asked, 0, "estimated")]
        said = 0
        batches = script(request)
        try:
            async for batch in batches:
                said += sum(1 for event in batch if isinstance(event, Text | Reasoning | ToolCall))
                yield [Usage(asked, said), *batch] if isinstance(batch[-1], Finish) else batch
        finally:
            await batches.aclose()

    async def list_models(self) -> list[str]:
        """Return a name for each script."""
        return [name if name != "lorem" else "lorem:200:50" for name in self._scripts]

    async def close(self) -> None:
        """There is nothing to let go of."""


async def _echo(request: ChatRequest) -> Batches:
    async for batch in _say(_words(_last_user_text(request))):
        yield batch
    yield [Finish("stop")]


async def _lorem(request: ChatRequest) -> Batches:
    tokens, pace = _numbers(request.model)
    words = map(Text, cycle(_words(LOREM)))
    started = asyncio.get_running_loop().time()
    said = 0
    while said < tokens:
        due = tokens if not pace else int((asyncio.get_running_loop().time() - started) * pace) + 1
        if batch := list(islice(words, min(due - said, tokens - said, _BATCH))):
            said += len(batch)
            yield batch
        await asyncio.sleep(max(0.0, started + said / pace - asyncio.get_running_loop().time()) if pace else 0)
    yield [Finish("stop")]


async def _think(request: ChatRequest) -> Batches:
    text = _last_user_text(request)
    yield [Reasoning(word) for word in _words(f"The user said {len(text.split())} words. I shall repeat them.")]
    async for batch in _echo(request):
        yield batch


async def _tool(request: ChatRequest) -> Batches:
    if request.messages and request.messages[-1].get("role") == "tool":
        async for batch in _say(_words(f"The tool says: {_text(request.messages[-1])}")):
            yield batch
        yield [Finish("stop")]
        return
    results = sum(message.get("role") == "tool" for message in request.messages)
    id, name, arguments = f"call_{results + 1}", _first_tool(request), _arguments(_last_user_text(request))
    yield [ToolDelta(0, id, name)]
    yield [ToolDelta(0, arguments=arguments), ToolCall(id, name, arguments)]
    yield [Finish("tool_calls")]


async def _steps(request: ChatRequest) -> Batches:
    """Say the lines up to the next call and make it. How many calls are answered tells where the script has come to."""
    lines = _last_user_text(request).splitlines(keepends=True)
    asked = max((n for n, message in enumerate(request.messages) if message.get("role") == "user"), default=0)
    done = sum(message.get("role") == "tool" for message in request.messages[asked:])
    calls = [n for n, line in enumerate(lines) if _CALL.fullmatch(line.strip())]
    first = calls[done - 1] + 1 if 0 < done <= len(calls) else 0
    last = calls[done] if done < len(calls) else len(lines)
    async for batch in _say(_words("".join(lines[first:last]))):
        yield batch
    if last == len(lines):
        yield [Finish("stop")]
        return
    name, arguments = lines[last].strip().split(maxsplit=1)
    id = f"call_{done + 1}"
    yield [ToolDelta(0, id, name, arguments), ToolCall(id, name, arguments)]
    yield [Finish("tool_calls")]


async def _length(request: ChatRequest) -> Batches:
    async for batch in _say(_first_half(request)):
        yield batch
    yield [Finish("length")]


async def _fail(request: ChatRequest) -> Batches:
    async for batch in _say(_first_half(request)):
        yield batch
    raise ProviderError("This model fails on purpose.")


async def _hang(request: ChatRequest) -> Batches:
    yield [Text("…")]
    await asyncio.Event().wait()


async def _say(words: Iterable[str]) -> Batches:
    for word in words:
        yield [Text(word)]
        await asyncio.sleep(0)  # an answer without a pause in it would keep the loop from everyone else


def _words(text: str) -> Iterator[str]:
    """Cut a text after each space: the pieces concatenate to exactly the text."""
    start = 0
    while start < len(text):
        end = text.find(" ", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _first_half(request: ChatRequest) -> list[str]:
    words = list(_words(_last_user_text(request)))
    return words[: (len(words) + 1) // 2]


def _numbers(model: str) -> tuple[int, float]:
    """Return how many tokens a `lorem` model says, and how many a second."""
    _, tokens, pace = [*model.split(":"), "", ""][:3]
    try:
        return min(int(tokens or 200), _MOST_TOKENS), float(pace or 0) if 0 < float(pace or 0) < _HIGHEST_PACE else 0
    except ValueError:
        raise ProviderRefused(
            f"{model!r} is not lorem:<tokens>:<tokens a second>.", code="upstream_not_found", status=404
        ) from None


def _last_user_text(request: ChatRequest) -> str:
    asked = [message for message in request.messages if message.get("role") == "user"]
    return _text(asked[-1]) if asked else ""


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _first_tool(request: ChatRequest) -> str:
    for tool in request.params.get("tools") or ():
        if isinstance(tool, dict) and isinstance(function := tool.get("function"), dict) and function.get("name"):
            return str(function["name"])
    return "lookup"


def _arguments(text: str) -> str:
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return msgspec.json.encode({"query": text}).decode()
    return text
