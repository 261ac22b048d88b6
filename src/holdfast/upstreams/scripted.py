"""A provider without an upstream: its models do what their names say.

For demos, tests and benchmarks.

| model | what it does |
| --- | --- |
| `echo` | repeats the last user message, word by word |
| `lorem:<tokens>:<tokens a second>` | that many words at that pace, at most a million; 0 or no pace means all at once |
| `think` | reasons about the last user message, then repeats it |
| `tool` | calls the first tool on offer (`lookup` if there is none); answers once it has the result |
| `steps` | for agents: goes line by line through the last user message; `name {…}` calls that tool, others are text |
| `length` | half of the text of `echo`, then stops at the limit |
| `fail` | half of the text of `echo`, then fails |
| `hang` | `…`, then nothing more until it is stopped |

`tool` passes the last user message as the arguments if it is a JSON object, and else as `{"query": …}`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import msgspec

from ..errors import ProviderError, ProviderRefused
from ..events import Finish, Outlet, Reasoning, ToolCall, ToolDelta, Usage, Yielded, put
from ..prompt import ResultTurn, ToolSpec, text_in
from ..prompt.openai_shape import newest_question, prompt_of, role_of, turns_of
from . import ChatRequest
from .kinds import ProviderKind

__all__ = ["Scripted"]

Script = Callable[[ChatRequest, Outlet], Awaitable[None]]

LOREM = "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore. "

_CALL = re.compile(r"[\w-]+ +\{.*\}")
_MOST_TOKENS = 1_000_000
_HIGHEST_PACE = 1e6
_BATCH = 256  # maximum number of tokens that are emitted together if they are due at the same time


class Scripted:
    """Answers by a script for each model."""

    models: tuple[str, ...] | None = None
    prefills = False
    think = True
    demo = True

    def __init__(self, name: str = "scripted") -> None:
        self.name = name
        self._scripts: dict[str, Script] = {
            "echo": _echo,
            "think": _think,
            "tool": _tool,
            "steps": _steps,
            "length": _length,
            "fail": _fail,
            "hang": _hang,
            "lorem": _lorem,
        }

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Play the script with the model's name."""
        script = self._scripts.get(request.model.partition(":")[0])
        if script is None:
            raise ProviderRefused(f"{self.name} has no script {request.model!r}.", code="model_not_found", status=404)
        input_tokens = sum(len(text_in(turn.content).split()) for turn in turns_of(request.messages))
        out.emit([Usage(input_tokens, 0, "estimated")])
        await script(request, _Counting(out, input_tokens))

    async def has(self, model: str) -> bool | None:
        """Return whether there is a script of that name."""
        return model.partition(":")[0] in self._scripts

    async def list_models(self) -> list[str]:
        """Return a name for each script."""
        return [name if name != "lorem" else "lorem:200:50" for name in self._scripts]

    async def close(self) -> None:
        """Do nothing."""


class _Counting:
    """An outlet that counts the tokens of an answer, and emits the usage before the `Finish`."""

    def __init__(self, out: Outlet, input_tokens: int) -> None:
        self._out = out
        self._input_tokens = input_tokens
        self._output_tokens = 0
        self.room = out.room

    def emit(self, events: Sequence[Yielded]) -> bool:
        self._output_tokens += sum(1 for event in events if isinstance(event, str | Reasoning | ToolCall))
        is_end = isinstance(events[-1], Finish)
        return self._out.emit([Usage(self._input_tokens, self._output_tokens), *events] if is_end else events)


async def _echo(request: ChatRequest, out: Outlet) -> None:
    await _emit_words(_words(newest_question(request.messages)), out)
    await put(out, [Finish("stop")])


async def _lorem(request: ChatRequest, out: Outlet) -> None:
    tokens, pace = _numbers(request.model)
    words = cycle(_words(LOREM))
    started = asyncio.get_running_loop().time()
    count = 0
    while count < tokens:
        due = tokens if not pace else int((asyncio.get_running_loop().time() - started) * pace) + 1
        if batch := list(islice(words, min(due - count, tokens - count, _BATCH))):
            count += len(batch)
            await put(out, batch)
        await asyncio.sleep(max(0.0, started + count / pace - asyncio.get_running_loop().time()) if pace else 0)
    await put(out, [Finish("stop")])


async def _think(request: ChatRequest, out: Outlet) -> None:
    text = newest_question(request.messages)
    await put(
        out, [Reasoning(word) for word in _words(f"The user said {len(text.split())} words. I shall repeat them.")]
    )
    await _echo(request, out)


async def _tool(request: ChatRequest, out: Outlet) -> None:
    turns = list(turns_of(request.messages))
    if turns and isinstance(turns[-1], ResultTurn):
        await _emit_words(_words(f"The tool says: {text_in(turns[-1].content)}"), out)
        await put(out, [Finish("stop")])
        return
    results = sum(isinstance(turn, ResultTurn) for turn in turns)
    id, name, arguments = f"call_{results + 1}", _first_tool(request), _arguments(newest_question(request.messages))
    await put(out, [ToolDelta(0, id, name)])
    await put(out, [ToolDelta(0, arguments=arguments), ToolCall(id, name, arguments)])
    await put(out, [Finish("tool_calls")])


async def _steps(request: ChatRequest, out: Outlet) -> None:
    """Emit the lines up to the next call, and make it. The number of results is the position in the script."""
    lines = newest_question(request.messages).splitlines(keepends=True)
    turns = list(turns_of(request.messages))
    question = max((n for n, turn in enumerate(turns) if role_of(turn) == "user"), default=0)
    done = sum(isinstance(turn, ResultTurn) for turn in turns[question:])
    calls = [n for n, line in enumerate(lines) if _CALL.fullmatch(line.strip())]
    first = calls[done - 1] + 1 if 0 < done <= len(calls) else 0
    last = calls[done] if done < len(calls) else len(lines)
    await _emit_words(_words("".join(lines[first:last])), out)
    if last == len(lines):
        await put(out, [Finish("stop")])
        return
    name, arguments = lines[last].strip().split(maxsplit=1)
    id = f"call_{done + 1}"
    await put(out, [ToolDelta(0, id, name, arguments), ToolCall(id, name, arguments)])
    await put(out, [Finish("tool_calls")])


async def _length(request: ChatRequest, out: Outlet) -> None:
    await _emit_words(_first_half(request), out)
    await put(out, [Finish("length")])


async def _fail(request: ChatRequest, out: Outlet) -> None:
    await _emit_words(_first_half(request), out)
    raise ProviderError("This model fails on purpose.")


async def _hang(request: ChatRequest, out: Outlet) -> None:
    await put(out, ["…"])
    await asyncio.Event().wait()


async def _emit_words(words: Iterable[str], out: Outlet) -> None:
    for word in words:
        await put(out, [word])
        await asyncio.sleep(0)  # an answer without a pause would block the event loop


def _words(text: str) -> Iterator[str]:
    """Cut a text after each space: the pieces concatenate to exactly the text."""
    start = 0
    while start < len(text):
        end = text.find(" ", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _first_half(request: ChatRequest) -> list[str]:
    words = list(_words(newest_question(request.messages)))
    return words[: (len(words) + 1) // 2]


def _numbers(model: str) -> tuple[int, float]:
    """Return the tokens of a `lorem` model, and its tokens per second."""
    _, tokens, pace = [*model.split(":"), "", ""][:3]
    try:
        return min(int(tokens or 200), _MOST_TOKENS), float(pace or 0) if 0 < float(pace or 0) < _HIGHEST_PACE else 0
    except ValueError:
        raise ProviderRefused(
            f"{model!r} is not lorem:<tokens>:<tokens a second>.", code="model_not_found", status=404
        ) from None


def _first_tool(request: ChatRequest) -> str:
    tools = prompt_of((), request.params).tools
    return next((tool.name for tool in tools if isinstance(tool, ToolSpec) and tool.name), "lookup")


def _arguments(text: str) -> str:
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return msgspec.json.encode({"query": text}).decode()
    return text


KIND = ProviderKind(make=lambda setup: Scripted(setup.name), by_http=False)
