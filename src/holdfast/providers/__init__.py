"""What speaks one dialect to one upstream, and which of them answers for a model's name."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from ..errors import ModelNotFound
from ..events import Source


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider is asked: OpenAI's messages and parameters, with the model's name as the upstream knows it."""

    model: str
    messages: list[dict[str, Any]]
    params: dict[str, Any] = {}
    """Everything else that the caller said (temperature, tools, ...), passed on as it is."""
    name: str = ""
    """Under which the answer can be found again by a successor of this process, where the provider can do that."""
    goes_on: bool = False
    """The last message is the assistant's own, and the answer is what follows in it."""
    patience: float = 1.0
    """Seconds that may go by with retries before the first event."""
    flows: bool = False
    """Whoever reads the answer takes a `Flow` too."""


class Provider(Protocol):
    """Speaks one dialect to one upstream."""

    name: str
    models: tuple[str, ...] | None
    """The models it offers by configuration; None where the upstream has to be asked."""
    prefills: bool
    """Goes on with the last message where that is the assistant's, instead of answering it."""

    def stream(self, request: ChatRequest) -> Source:
        """Answer with events, then say how it ended with `Finish`. Anything less raises a `ProviderError`."""
        ...

    async def list_models(self) -> list[str]:
        """Return the models that it offers; empty where the upstream cannot be asked now."""
        ...

    async def close(self) -> None:
        """Let go of its connections."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A provider that can tell whether its upstream is there."""

    async def answers(self) -> bool:
        """Tell whether the upstream answered when it was last asked, which may be now."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether it gave no answer when it was last asked. One that was never asked is not away."""
        ...


@runtime_checkable
class Attaching(Protocol):
    """A provider whose upstream writes a named answer to its end, whoever reads it, and can tell it again."""

    attaches: bool
    """Whether this upstream does."""

    def attach(self, name: str, *, text: str = "", reasoning: str = "") -> Source:
        """Tell what follows in a named answer after what was seen; raise `AnswerLost` where that cannot be had."""
        ...


class ProviderState(msgspec.Struct, frozen=True):
    """Whether a provider's upstream answers, and the models that it offers."""

    name: str
    ok: bool
    models: list[str]


async def state_of(provider: Provider) -> ProviderState:
    """Return how a provider is. One that cannot tell is there if it offers anything."""
    models = await provider.list_models()
    ok = await provider.answers() if isinstance(provider, Telling) else bool(models)
    return ProviderState(provider.name, ok, models)


class Providers:
    """Finds who answers for a model: `provider/model`, or the bare name where only one can be meant."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.all: tuple[Provider, ...] = ()
        self._added: tuple[Provider, ...] = ()
        self._by_name: dict[str, Provider] = {}
        self._offering: dict[str, Provider] | None = None
        self._users: dict[int, int] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.change(providers)

    def change(self, providers: Sequence[Provider]) -> None:
        """Let these answer from now on. One that is left out is closed when the last run that uses it has ended."""
        before, self.all = self.all, (*providers, *self._added)
        self._by_name = {provider.name: provider for provider in self.all}
        self._offering = _offering(self.all)
        for provider in before:
            self._close_unused(provider)

    def add(self, provider: Provider) -> None:
        """Let one more answer, after all others, whatever changes among them."""
        others = self.all[: len(self.all) - len(self._added)]
        self._added = (*self._added, provider)
        self.change(others)

    def use(self, provider: Provider) -> list[Provider]:
        """Keep a provider open for a run, also where it is left out meanwhile. Return what is to be let go of."""
        self._users[id(provider)] = self._users.get(id(provider), 0) + 1
        return [provider]

    def let_go(self, used: Sequence[Provider]) -> None:
        """Let go of providers."""
        for provider in used:
            self._users[id(provider)] -= 1
            self._close_unused(provider)

    def _close_unused(self, provider: Provider) -> None:
        if provider not in self.all and not self._users.get(id(provider)):
            self._users.pop(id(provider), None)
            task = asyncio.create_task(provider.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def find(self, model: str) -> tuple[Provider, str]:
        """Return the provider and the model's name as its upstream knows it."""
        prefix, slash, rest = model.partition("/")
        if slash and rest and (provider := self._by_name.get(prefix)):
            return await self._checked(provider, rest, asked=model)
        if self._offering is not None and (known := self._offering.get(model)):
            return known, model
        offering = [provider for provider, models in zip(self.all, await self._lists(), strict=True) if model in models]
        if not offering and (open_ended := [provider for provider in self.all if provider.models is None]):
            offering = open_ended if len(open_ended) == len(self.all) - len(self._added) == 1 else []
        if len(offering) == 1:
            return offering[0], model
        raise ModelNotFound(self._ambiguous(model, offering) if offering else await self._unknown(model))

    def at_once(self, model: str) -> tuple[Provider, str] | None:
        """Return what `find` returns where nobody has to be asked, and there is nothing to refuse."""
        prefix, slash, rest = model.partition("/")
        if slash and rest and (provider := self._by_name.get(prefix)):
            return (provider, rest) if provider.models is None or rest in provider.models else None
        known = self._offering.get(model) if self._offering is not None else None
        return (known, model) if known is not None else None

    async def _checked(self, provider: Provider, model: str, *, asked: str) -> tuple[Provider, str]:
        """Refuse a name that the configuration rules out; an upstream that has to be asked may know better."""
        if provider.models is not None and model not in provider.models:
            raise ModelNotFound(await self._unknown(asked))
        return provider, model

    def _ambiguous(self, model: str, offering: Sequence[Provider]) -> str:
        names = ", ".join(f"{provider.name}/{model}" for provider in offering)
        return f"Several providers offer {model!r}. Say which one: {names}."

    async def _unknown(self, model: str) -> str:
        known = await self.names()
        near = _near(model, known)
        hint = f"Did you mean {', '.join(near)}?" if near else "GET /v1/models lists the models that are there."
        return f"There is no model {model!r}. {hint}"

    async def _lists(self) -> Sequence[Sequence[str]]:
        """Return the models of each provider. Where all are configured nobody has to be asked, nor waited for."""
        known = [provider.models for provider in self.all if provider.models is not None]
        if len(known) == len(self.all):
            return known
        return await asyncio.gather(*(provider.list_models() for provider in self.all))

    async def names(self) -> list[str]:
        """Return every model as `provider/model`."""
        lists = await asyncio.gather(*(provider.list_models() for provider in self.all))
        return [
            f"{provider.name}/{model}" for provider, models in zip(self.all, lists, strict=True) for model in models
        ]

    async def first(self) -> str | None:
        """Return the first model of a provider that answers, as far as is known, or else the first of all."""
        here = [provider for provider in self.all if not (isinstance(provider, Telling) and provider.is_away)]
        for provider in (*here, *self.all):
            if models := await provider.list_models():
                return f"{provider.name}/{models[0]}"
        return None

    async def states(self) -> list[ProviderState]:
        """Return how each provider is. They are asked at once, so that a dead one delays nobody but the answer."""
        return await asyncio.gather(*map(state_of, self.all))

    async def close(self) -> None:
        """Let go of all connections."""
        for provider in self.all:
            await provider.close()
        if self._closing:
            await asyncio.wait(self._closing)


def _offering(providers: Sequence[Provider]) -> dict[str, Provider] | None:
    """Return who answers for each bare name that only one offers; None where some upstream has to be asked first."""
    offered = [(model, provider) for provider in providers for model in dict.fromkeys(provider.models or ())]
    if any(provider.models is None for provider in providers):
        return None
    times = Counter(model for model, _ in offered)
    return {model: provider for model, provider in offered if times[model] == 1}


def _near(model: str, known: Sequence[str]) -> list[str]:
    """Return names that may have been meant: those alike, and those that begin with the model's own name."""
    by_lower = {name.lower(): name for name in known}
    alike = difflib.get_close_matches(model.lower(), by_lower, n=3, cutoff=0.5)
    own = model.rpartition("/")[2].lower()
    longer = [lower for lower in by_lower if own and lower.rpartition("/")[2].startswith(own)]
    return [by_lower[lower] for lower in dict.fromkeys([*alike, *longer[:3]])]
