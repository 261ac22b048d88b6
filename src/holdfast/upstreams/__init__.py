"""Providers: the Protocol, and the lookup of a provider by a model's name."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from ..asks.own import Own
from ..concurrency.tasks import OwnedTasks
from ..errors import ModelNotFound
from ..events import Outlet
from ..ids import ModelName, full_name

MODELS_HINT = "GET /v1/models lists the models."
"""The end of an error about an unknown model."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request to a provider: OpenAI's messages and parameters, with the upstream's name of the model."""

    model: str
    messages: list[dict[str, Any]]
    params: dict[str, Any] = {}
    """The other parameters of the caller (temperature, tools, ...), passed on unchanged."""
    name: str = ""
    """A name by which the next process can attach to the answer, if the provider can do that."""
    own: Own | None = None
    """What a provider that speaks the client's dialect gets as the client sent it."""
    goes_on: bool = False
    """True if the last message is the assistant's, and the answer continues it."""
    patience: float = 1.0
    """Seconds for retries before the first event."""
    client_repeats: bool = False
    """True if a client waits that sends its request again if the upstream is too busy: then nobody else does."""

    @property
    def choices(self) -> int:
        """The number of answers that are wanted."""
        return choices if isinstance(choices := self.params.get("n"), int) else 1

    @property
    def has_tools(self) -> bool:
        """Whether the model may call tools."""
        return has_tools(self.params)


def has_tools(params: Mapping[str, Any]) -> bool:
    """Return whether the parameters of a request have tools, or functions in the older form."""
    return any(params.get(name) for name in ("tools", "functions"))


class Provider(Protocol):
    """Speaks one dialect to one upstream."""

    name: str
    models: tuple[str, ...] | None
    """The models it offers by configuration; None if the upstream has to be asked."""
    prefills: bool
    """True if it continues a last message of the assistant."""
    think: bool
    """True if a leading `<think>…</think>` of an answer is reasoning. The reader of the answer splits it."""
    demo: bool
    """True for a demo. Bare names leave demos out beside a real provider, and lists once one of these lists a model."""

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Emit the answer's events, with a `Finish` at the end. Raise a `ProviderError` if the answer is incomplete."""
        ...

    async def list_models(self) -> list[str]:
        """Return the models that it offers; empty if the upstream cannot be asked now."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """A provider that knows whether its upstream can be reached."""

    async def answers(self) -> bool:
        """Return whether the upstream responded to the last request. This may send one now."""
        ...

    @property
    def is_away(self) -> bool:
        """True if the last request had no response; False if there was no request yet."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A provider that knows why it cannot be used."""

    def why_not(self) -> str | None:
        """Return the reason in a sentence, without secrets; None if there is none, or none is known yet."""
        ...


@runtime_checkable
class Attaching(Protocol):
    """A provider whose upstream finishes a named answer without a reader, and can send it again."""

    attaches: bool
    """True if this upstream can do that."""

    async def attach(self, name: str, out: Outlet, *, text: str = "", reasoning: str = "") -> None:
        """Emit the rest of a named answer after what was seen. Raise `AnswerLost` if it is gone."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A provider that knows whether its upstream has a model."""

    async def has(self, model: str) -> bool | None:
        """Return whether the upstream lists a model; None if its list cannot tell.

        A list that lacks the model is read again, at most every few seconds.
        """
        ...


async def has_model(provider: Provider, model: str) -> bool | None:
    """Return whether a provider has a model; None if it cannot tell."""
    if provider.models is not None:
        return model in provider.models
    return await provider.has(model) if isinstance(provider, Listing) else None


class Forwarded(msgspec.Struct, frozen=True):
    """A response of an upstream that is passed on unchanged."""

    content_type: str
    body: bytes


@runtime_checkable
class Forwarding(Protocol):
    """A provider whose upstream has more of OpenAI's API than chat: embeddings, images, speech."""

    async def forward(self, path: str, body: bytes, content_type: str, limit: int) -> Forwarded:
        """Send a request unchanged, and return the response of at most `limit` bytes, or raise a `ProviderError`."""
        ...


class ProviderState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a provider's upstream can be used, and the models that it offers."""

    name: str
    ok: bool
    pending: bool = False
    """True while its upstream has not answered yet for the first time."""
    why: str | None = None
    """The reason if it cannot be used, in a sentence without secrets; None if it can, or the reason is unknown."""
    models: list[str]
    demo: bool = False


async def provider_state(provider: Provider) -> ProviderState:
    """Return the state of a provider. One that is not `Reporting` is available if it offers a model."""
    if isinstance(provider, Reporting):
        models, ok = await asyncio.gather(provider.list_models(), provider.answers())
        pending = not ok and not provider.is_away
    else:
        models = await provider.list_models()
        ok, pending = bool(models), False
    why = provider.why_not() if isinstance(provider, Explaining) and not pending else None
    return ProviderState(name=provider.name, ok=ok, pending=pending, why=why, models=models, demo=provider.demo)


async def judged_state(provider: Provider) -> ProviderState:
    """Return the state of a provider once its upstream has answered, or did not in time."""
    state = await provider_state(provider)
    for _ in range(_MOST_LOOKS):
        if not state.pending:
            break
        state = await provider_state(provider)
    return state


_MOST_LOOKS = 10


class FoundModel(NamedTuple):
    """A model that was looked up: its provider, and its upstream's name of it."""

    provider: Provider
    model: str
    name: ModelName
    """The full name, by which everything but the upstream knows the model."""


def _is_full(name: str, providers: Mapping[str, Provider]) -> bool:
    """Return whether a name begins with that of a provider."""
    prefix, slash, rest = name.partition("/")
    return bool(slash and rest) and prefix in providers


def _found(provider: Provider, model: str) -> FoundModel:
    return FoundModel(provider, model, full_name(provider.name, model))


class Providers:
    """Finds the provider of a model: by `provider/model`, or by the bare name if it is unambiguous.

    A bare name is looked for among the real providers, then among those that were added (the agents), and among the
    demo providers only if there is no real one.
    """

    is_whole = True
    """True if every model can be found; False if only those that a caller may use."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.all: tuple[Provider, ...] = ()
        self._added: tuple[Provider, ...] = ()
        self._by_name: dict[str, Provider] = {}
        self._configured: dict[str, FoundModel] = {}
        """The models that are found without a question to an upstream, by their full names and their bare ones."""
        self.aliases: Mapping[str, str] = {}
        """Names of models by their aliases."""
        self._users: dict[int, int] = {}
        self._closing = OwnedTasks("the providers")
        self.change(providers)

    def change(self, providers: Sequence[Provider]) -> None:
        """Replace the providers. One that is left out is closed when the last run that uses it has ended."""
        before = self.all
        self._set((*providers, *self._added))
        for provider in before:
            self._close_unused(provider)

    def _set(self, providers: tuple[Provider, ...]) -> None:
        self.all = providers
        self._by_name = {provider.name: provider for provider in self.all}
        self._configured = self._bare_names() | self._full_names()

    def set_added(self, added: Sequence[Provider]) -> None:
        """Set the providers after all others, which stay when the others are replaced. They have nothing to close."""
        others = self.own
        self._added = tuple(added)
        self._set((*others, *self._added))

    def with_added(self, added: Sequence[Provider]) -> Providers:
        """Return the same providers with others that were added."""
        view = Providers(self.own)
        view.aliases = self.aliases
        view.set_added(added)
        return view

    @property
    def own(self) -> tuple[Provider, ...]:
        """The providers without those that were added."""
        return self.all[: len(self.all) - len(self._added)]

    @property
    def real(self) -> tuple[Provider, ...]:
        """The providers that were not added, without demos."""
        return tuple(provider for provider in self.own if not provider.demo)

    @property
    def added(self) -> tuple[Provider, ...]:
        """The providers that were added: the agents."""
        return self._added

    def use(self, provider: Provider) -> list[Provider]:
        """Keep a provider open for a run, even if it is replaced meanwhile. Return what must be released."""
        self._users[id(provider)] = self._users.get(id(provider), 0) + 1
        return [provider]

    def let_go(self, used: Sequence[Provider]) -> None:
        """Release providers."""
        for provider in used:
            self._users[id(provider)] -= 1
            if provider not in self.all:
                self._close_unused(provider)

    def _close_unused(self, provider: Provider) -> None:
        if provider not in self.all and not self._users.get(id(provider)):
            self._users.pop(id(provider), None)
            self._closing.start(provider.close())

    async def find(self, model: str) -> FoundModel:
        """Return the model of a name: `provider/model`, a bare name, or an alias."""
        model = self.aliases.get(model, model)
        if (configured := self._configured.get(model)) is not None:
            return configured
        if _is_full(model, self._by_name):
            prefix, _, rest = model.partition("/")
            return await self._checked(self._by_name[prefix], rest, asked=model)
        for tier in (self.real, self._added):
            if offering := await _offering(model, tier):
                return _found(self._only(model, offering), model)
        real = self.real
        known = [await has_model(provider, model) for provider in real]  # their lists are read again
        if offering := [provider for provider, has in zip(real, known, strict=True) if has]:
            return _found(self._only(model, offering), model)
        if known == [None] and ("/" not in model or len(self.own) == 1):
            return _found(real[0], model)  # its list does not tell
        if not real and (offering := await _offering(model, self.own)):
            return _found(self._only(model, offering), model)
        raise ModelNotFound(await self._unknown(model))

    def _only(self, model: str, offering: Sequence[Provider]) -> Provider:
        if len(offering) > 1:
            names = ", ".join(f"{provider.name}/{model}" for provider in offering)
            raise ModelNotFound(f"Several providers offer {model!r}. Say which one: {names}.")
        return offering[0]

    def _full_names(self) -> dict[str, FoundModel]:
        """Return the configured models by their full names."""
        found = [_found(provider, model) for provider in self.own for model in provider.models or ()]
        return {each.name: each for each in found}

    def _bare_names(self) -> dict[str, FoundModel]:
        """Return the models by their bare names; none if the models of an upstream are not configured."""
        if not self.real or any(provider.models is None for provider in self.real):
            return {}
        names: dict[str, Provider] = {}
        for tier in (self._added, self.real):
            times = Counter(model for provider in tier for model in dict.fromkeys(provider.models or ()))
            for provider in tier:
                names |= dict.fromkeys(provider.models or (), provider)
            for model in [model for model, count in times.items() if count > 1]:
                del names[model]
        return {
            name: _found(provider, name)
            for name, provider in names.items()
            if not _is_full(name, self._by_name)  # then its beginning names the provider
        }

    async def _checked(self, provider: Provider, model: str, *, asked: str) -> FoundModel:
        """Refuse a model that the provider has not."""
        if await has_model(provider, model) is False:
            raise ModelNotFound(await self._unknown(asked))
        return _found(provider, model)

    async def _unknown(self, model: str) -> str:
        near = _near(model, await self.names(is_all=False)) or _near(model, await self.names(is_all=True))
        if near:
            return f"Unknown model {model!r}. Did you mean {', '.join(near)}?"
        return f"Unknown model {model!r}. {self._missing(model)}{MODELS_HINT}"

    def _missing(self, model: str) -> str:
        """Return a sentence about the provider of an unknown model, if there is no such provider."""
        prefix, slash, _ = model.partition("/")
        if not slash or prefix in self._by_name:
            return ""
        if prefix == "agent":
            return "This server has no agents. After adding one to the settings file, restart the server. "
        return f"No provider {prefix!r} is set up. "

    async def names(self, *, is_all: bool = True) -> list[str]:
        """Return every model as `provider/model`; without those that lists leave out if `is_all` is False."""
        providers = self.all  # they may be replaced meanwhile
        lists = await asyncio.gather(*(provider.list_models() for provider in providers))
        models = {provider.name: listed for provider, listed in zip(providers, lists, strict=True)}
        hides = not is_all and self.hides_demo(models)
        shown = [provider.name for provider in providers if not (hides and provider.demo)]
        return [f"{name}/{model}" for name in shown for model in models[name]]

    def hides_demo(self, models: Mapping[str, Sequence[str]]) -> bool:
        """Return whether lists leave out demo models: a real provider lists a model. `models` are by provider."""
        return any(models.get(provider.name) for provider in self.real)

    async def states(self) -> list[ProviderState]:
        """Return the state of each provider. They are asked concurrently."""
        return await asyncio.gather(*map(provider_state, self.all))

    async def close(self) -> None:
        """Close all connections."""
        for provider in self.all:
            await provider.close()
        await self._closing.wait()


async def first_of(providers: Sequence[Provider]) -> str | None:
    """Return the first model of a provider that is not away, or else the first model of any provider."""
    reachable = [provider for provider in providers if not is_away(provider)]
    for provider in (*reachable, *providers):
        if models := await provider.list_models():
            return f"{provider.name}/{models[0]}"
    return None


def is_away(provider: Provider) -> bool:
    """Return whether the last request to a provider's upstream had no response."""
    return isinstance(provider, Reporting) and provider.is_away


async def _offering(model: str, providers: Sequence[Provider]) -> list[Provider]:
    """Return the providers that list a model. No request is sent if all have configured models."""
    configured = [provider.models for provider in providers if provider.models is not None]
    if len(configured) < len(providers):
        lists: Sequence[Sequence[str]] = await asyncio.gather(*(provider.list_models() for provider in providers))
    else:
        lists = configured
    return [provider for provider, models in zip(providers, lists, strict=True) if model in models]


def _near(model: str, known: Sequence[str]) -> list[str]:
    """Return similar names: nearly the same, or with the same beginning."""
    own = _own_name(model)
    alike = [(difflib.SequenceMatcher(None, own, _own_name(name)).ratio(), name) for name in known]
    near = [(ratio, name) for ratio, name in alike if ratio >= _ALIKE or (own and _own_name(name).startswith(own))]
    return [name for _, name in sorted(near, key=lambda each: -each[0])[:_MOST_HINTS]]


def _own_name(model: str) -> str:
    return model.rpartition("/")[2].lower()


_ALIKE = 0.75
_MOST_HINTS = 3
