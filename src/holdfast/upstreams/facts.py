"""What is known of a model: how much it can hold, and what it takes beside text. None: nobody has said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

from . import Provider

__all__ = ["Describing", "ModelFacts", "facts_in", "facts_of"]

_WINDOWS = (
    "context_length",  # OpenRouter, Together
    "max_model_len",  # vLLM
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "inputTokenLimit",  # Gemini
    "max_input_tokens",  # Anthropic
)


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model."""

    window: int | None = None
    """Tokens of a prompt and its answer together."""
    sees: bool | None = None
    """Whether it takes pictures."""
    reads_pdf: bool = False
    """Whether its API takes a PDF itself."""
    efforts: tuple[str, ...] = ()
    """The reasoning efforts that the upstream's list promises."""
    files: bool = False
    """Whether it has a folder of files that its owner can look at."""


@runtime_checkable
class Describing(Protocol):
    """A provider that knows something of its models."""

    async def facts(self, model: str) -> ModelFacts:
        """Return what is known of a model."""
        ...


async def facts_of(provider: Provider, model: str) -> ModelFacts:
    """Return what a provider knows of a model."""
    return await provider.facts(model) if isinstance(provider, Describing) else ModelFacts()


def facts_in(page: Any) -> dict[str, ModelFacts]:
    """Return what a list of models says of each, by its id."""
    return {name: found for name, found in _facts_in(page) if found != ModelFacts()}


def _facts_in(page: Any) -> Iterator[tuple[str, ModelFacts]]:
    match page:
        case {"data": list(listed)} | {"models": list(listed)}:
            pass
        case _:
            return
    for entry in listed:
        match entry:
            case {"id": str(name)} | {"name": str(name)}:
                yield name, ModelFacts(window=_window(entry), sees=_sees(entry), efforts=_efforts(entry))


def _efforts(entry: Mapping[str, Any]) -> tuple[str, ...]:
    match entry:
        case {"supported_parameters": list(names)} if "reasoning" in names:  # OpenRouter
            return ("low", "medium", "high")
    return ()


def _window(entry: Mapping[str, Any]) -> int | None:
    match entry:
        case {"top_provider": {"context_length": int(tokens)}} if tokens > 0:
            return tokens
    found = (entry.get(name) for name in _WINDOWS)
    return next((tokens for tokens in found if type(tokens) is int and tokens > 0), None)


def _sees(entry: Mapping[str, Any]) -> bool | None:
    match entry:
        case {"architecture": {"input_modalities": list(kinds)}}:
            return "image" in kinds
        case {"capabilities": {"vision": bool(sees)}}:
            return sees
        case {"capabilities": list(kinds)}:
            return "vision" in kinds or "multimodal" in kinds
    return None
