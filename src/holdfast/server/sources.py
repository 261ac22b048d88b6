"""Makes the source of a chat run from what is stored of it, now or after a restart."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from ..engine import Run
from ..errors import ModelNotFound
from ..events import Notice, Source, Text, Yielded
from ..history import Message, branch, for_model
from ..log import Log
from ..providers import ChatRequest, Providers
from ..store import RunRecord, Store

QUICK = 1.0  # seconds of retries where a client waits that retries by itself


class ChatSources:
    """Asks the run's model with the run's history."""

    def __init__(self, store: Store, providers: Providers, patience: float) -> None:
        self._store = store
        self._providers = providers
        self._patience = patience

    def __call__(self, run: Run) -> Source:
        """Return the source of a run."""
        return self._chat(run)

    async def _chat(self, run: Run) -> AsyncGenerator[Yielded | Sequence[Yielded]]:
        record = run.record
        provider, model = await self._providers.find(record.model)
        request = ChatRequest(
            model=model,
            messages=await self._messages(record),
            params=record.request.get("params", {}),
            name=record.id if _can_be_found_again(record) else "",
            patience=self._patience if record.lifetime == "detached" else QUICK,
        )
        if record.message_id == record.parent_id:  # the run goes on with a message: its log begins with what is there
            yield Text(cast(str, request.messages[-1]["content"]))
        if told := record.request.get("notice"):
            yield Notice("new_turn", told)
        stream = cast(AsyncGenerator[Yielded | Sequence[Yielded]], provider.stream(request))
        async with aclosing(stream):
            async for events in stream:
                yield events

    async def again(self, record: RunRecord, log: Log) -> Source | None:
        """Return what goes on with a run whose server was killed, where its provider can attach to the answer."""
        if not _can_be_found_again(record):
            return None
        try:
            provider, _ = await self._providers.find(record.model)
        except ModelNotFound:
            return None  # it was taken out of the settings
        attach = getattr(provider, "attach", None)
        return cast(Source, attach(record.id, text=log.text, reasoning=log.reasoning)) if attach is not None else None

    async def _messages(self, record: RunRecord) -> list[dict[str, Any]]:
        """Return what the model is shown: what the request itself brought, or the session up to the run's turn."""
        if record.session_id is None:
            return cast(list[dict[str, Any]], record.request["messages"])
        session = await self._store.get_session(record.session_id)
        messages: list[Message] = await self._store.messages(record.session_id)
        system = record.request.get("system") or (session.system if session else None)
        return for_model(branch(messages, record.parent_id), system)


def _can_be_found_again(record: RunRecord) -> bool:
    """Tell whether all of a run's text comes from one answer, and the run outlives its client."""
    return record.lifetime == "detached" and record.message_id != record.parent_id and record.request.get("n", 1) == 1


async def default_model(providers: Providers, wanted: str) -> str:
    """Return the model of a session that names none."""
    if wanted:
        return wanted
    names = await providers.names()
    if not names:
        raise ModelNotFound("No model is there. Set one up in holdfast.toml, or set OPENAI_API_KEY.")
    return names[0]
