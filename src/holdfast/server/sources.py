"""Makes the source of a chat run from what is stored of it, now or after a restart."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import msgspec

from ..errors import ModelNotFound, ProviderError
from ..events import Flow, Notice, Source, Text, Usage, Yielded
from ..history import Message, alternating, branch, for_model
from ..log import Log
from ..providers import Attaching, ChatRequest, Provider, Providers
from ..run import Run
from ..store import RunRecord, Store
from .chains import RESPONSE, conversation

QUICK = 1.0  # seconds of retries where a client waits that retries by itself


class ChatSources:
    """Asks the run's model with the run's history, and where it cannot answer the one that `fallbacks` name for it."""

    def __init__(
        self, store: Store, providers: Providers, patience: float, fallbacks: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self._store = store
        self._providers = providers
        self._patience = patience
        self._fallbacks = fallbacks

    def __call__(self, run: Run) -> Source:
        """Return the source of a run."""
        alone = run.record.kind == "batch"  # which asks how this model answers, and not who else could
        return self.answer(run.record, run.record.model, alone=alone, flows=True)

    def answer(
        self, record: RunRecord, name: str, *, alone: bool = False, flows: bool = False
    ) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        """Let a model answer for the sake of a run; `alone`, nobody answers in its place. `flows` is the request's."""
        return self._ask(name, partial(self._request, record, flows), alone=alone, notice=record.request.get("notice"))

    def ask(
        self, record: RunRecord, name: str, messages: list[dict[str, Any]], params: dict[str, Any]
    ) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        """Ask a model, or who stands in for it, what an agent has to ask for the sake of a run."""

        async def request(model: str) -> ChatRequest:
            return ChatRequest(model=model, messages=messages, params=params, patience=self._patience_of(record))

        return self._ask(name, request)

    async def _request(self, record: RunRecord, flows: bool, model: str) -> ChatRequest:
        return ChatRequest(
            model=model,
            messages=await self.messages(record),
            params=record.request.get("params", {}),
            name=record.id if _can_be_found_again(record) else "",
            goes_on=record.message_id is not None and record.message_id == record.parent_id,
            patience=self._patience_of(record),
            flows=flows,
        )

    def _patience_of(self, record: RunRecord) -> float:
        return self._patience if _has_time(record) else QUICK

    async def _ask(
        self,
        name: str,
        request_to: Callable[[str], Awaitable[ChatRequest]],
        *,
        alone: bool = False,
        notice: str | None = None,
    ) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        """Ask one model after the other until one speaks. Nobody else goes on with what it has said then."""
        provider, model = await self._providers.find(name)
        used, asked = self._providers.use(provider), [f"{provider.name}/{model}"]
        try:
            request = await request_to(model)
            if request.goes_on:  # its log begins with what is there
                yield Text(cast(str, request.messages[-1]["content"]))
            if notice:
                yield Notice("new_turn", notice)
            while True:
                has_spoken = request.goes_on
                stream = cast(AsyncGenerator[Yielded | Sequence[Yielded]], provider.stream(request))
                try:
                    async for events in stream:
                        yield events
                        has_spoken = has_spoken or _speaks(events)
                    return
                except ProviderError as error:
                    is_final = alone or has_spoken or _blames_the_request(error)
                    stand_in = None if is_final else await self._stand_in(asked)
                    if stand_in is None:
                        raise
                    why = str(error).rstrip(".")
                except BaseException:
                    await stream.aclose()
                    raise
                provider, model = stand_in
                used += self._providers.use(provider)
                asked.append(f"{provider.name}/{model}")
                request = msgspec.structs.replace(request, model=model)
                yield Notice(
                    "fallback", f"{asked[-2]} could not answer ({why}): {asked[-1]} answers instead.", asked[-1]
                )
        finally:
            self._providers.let_go(used)

    async def _stand_in(self, asked: Sequence[str]) -> tuple[Provider, str] | None:
        """Return who answers for the model that was asked last. A model that was asked before is not asked again."""
        named = self._fallbacks().get(asked[-1])
        if named is None or named in asked:
            return None
        try:
            return await self._providers.find(named)
        except ModelNotFound:
            return None

    async def again(self, record: RunRecord, log: Log) -> Source | None:
        """Return what goes on with a run whose server was killed, where its provider can attach to the answer."""
        if not _can_be_found_again(record):
            return None
        try:
            provider, _ = await self._providers.find(log.answered_by or record.model)
        except ModelNotFound:
            return None  # it was taken out of the settings
        if not isinstance(provider, Attaching) or not provider.attaches:
            return None
        return self._attached(provider, record, log)

    async def _attached(
        self, provider: Provider, record: RunRecord, log: Log
    ) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        assert isinstance(provider, Attaching)
        attached = provider.attach(record.id, text=log.text, reasoning=log.reasoning)
        used = self._providers.use(provider)
        try:
            async with aclosing(cast(AsyncGenerator[Yielded | Sequence[Yielded]], attached)) as answer:
                async for events in answer:
                    yield events
        finally:
            self._providers.let_go(used)

    async def messages(self, record: RunRecord) -> list[dict[str, Any]]:
        """Return what the model is shown: what the request itself brought, or the session up to the run's turn."""
        if RESPONSE in record.request:
            return await conversation(self._store, record)
        if record.session_id is None:
            return cast(list[dict[str, Any]], record.request["messages"])
        session = await self._store.get_session(record.session_id)
        messages: list[Message] = await self._store.messages(record.session_id)
        system = record.request.get("system") or (session.system if session else None)
        return alternating(for_model(branch(messages, record.parent_id), system))


def _has_time(record: RunRecord) -> bool:
    """Tell whether nobody waits for the answer who would retry by himself: a stream of a response has a client."""
    if record.lifetime != "detached":
        return False
    asked = record.request.get(RESPONSE)
    return asked is None or bool(asked.get("background"))


def _can_be_found_again(record: RunRecord) -> bool:
    """Tell whether a run is all text of one answer, so that what was seen can be told, and outlives its client."""
    if record.lifetime != "detached" or record.message_id == record.parent_id:
        return False
    params = record.request.get("params", {})
    return record.request.get("n", 1) == 1 and not params.get("tools") and not params.get("functions")


def _speaks(events: Yielded | Sequence[Yielded]) -> bool:
    """Tell whether this was part of an answer, and not only what is said on the way to one."""
    if hasattr(events, "pour"):
        return cast(Flow, events).has_said
    items = events if isinstance(events, (list, tuple)) else [events]
    return not all(
        isinstance(item, Notice) or (isinstance(item, Usage) and item.source == "estimated") for item in items
    )


def _blames_the_request(error: ProviderError) -> bool:
    """Tell whether another model would have to refuse it too: then the caller should know, and mend it."""
    return error.status < 500 and error.status != 429


async def default_model(providers: Providers, wanted: str) -> str:
    """Return the model of a session that names none: the one that is set, or the first of a provider that answers."""
    if wanted:
        return wanted
    if name := await providers.first():
        return name
    raise ModelNotFound("No model is there. Set one up in holdfast.toml, or set OPENAI_API_KEY.")
