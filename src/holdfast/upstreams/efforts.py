"""The reasoning efforts that models take, by their names: what the documents of their makers say."""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from . import Provider

__all__ = ["TakesEfforts", "anthropic_efforts", "efforts_of", "gemini_efforts", "ollama_efforts", "openai_efforts"]

Efforts = tuple[str, ...]

_USUAL = ("low", "medium", "high")
_OF_OPENAI: tuple[tuple[re.Pattern[str], Efforts], ...] = (
    (re.compile(r"gpt-5-chat|gpt-5\.\d+-chat"), ()),
    (re.compile(r"gpt-(5\.\d|[6-9])"), ("none", *_USUAL)),
    (re.compile(r"gpt-5"), ("minimal", *_USUAL)),
    (re.compile(r"gpt-oss|o1-pro|o1$|o1-20|o[34]"), _USUAL),
)
_EFFORT_OF_CLAUDE = re.compile(r"claude-(opus-4-[5-9]|(sonnet|haiku)-4-[6-9]|[a-z]+-[5-9])")
_THINKS_IN_OLLAMA = re.compile(r"qwen3|deepseek-r1|deepseek-v3\.1|magistral|smallthinker")
_GEMINI = re.compile(r"gemini-(\d+)(?:\.(\d+))?-(pro|flash)")


@runtime_checkable
class TakesEfforts(Protocol):
    """A provider with models whose reasoning takes an effort."""

    def efforts(self, model: str) -> tuple[str, ...]:
        """Return the values of `reasoning_effort` that a model takes; none if it takes none, or nobody knows."""
        ...


def efforts_of(provider: Provider, model: str) -> Efforts:
    """Return the efforts that a model of a provider takes."""
    return provider.efforts(model) if isinstance(provider, TakesEfforts) else ()


def openai_efforts(model: str) -> Efforts:
    """Return the efforts of a model of OpenAI's, also behind another service that has the maker in the name."""
    name = model.rpartition("/")[2]
    return next((efforts for pattern, efforts in _OF_OPENAI if pattern.match(name)), ())


def anthropic_efforts(model: str) -> Efforts:
    """Return the efforts of a Claude."""
    return ("none", *_USUAL) if _EFFORT_OF_CLAUDE.match(model.rpartition("/")[2]) else ()


def gemini_efforts(model: str) -> Efforts:
    """Return the efforts of a Gemini: a level since Gemini 3, a budget before."""
    match _GEMINI.match(model.removeprefix("models/")):
        case re.Match() as found if found[1] == "2" and found[2] == "5":
            return ("none", *_USUAL) if found[3] == "flash" else _USUAL
        case re.Match() as found if int(found[1]) >= 3:
            return ("minimal", *_USUAL) if found[3] == "flash" else ("low", "high")
    return ()


def ollama_efforts(model: str) -> Efforts:
    """Return the efforts of a model of Ollama's: most that think can only be told not to."""
    name = model.rpartition("/")[2]
    return _USUAL if name.startswith("gpt-oss") else ("none",) if _THINKS_IN_OLLAMA.match(name) else ()
