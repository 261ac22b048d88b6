"""Files of messages in the form that the model of a run takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...attachments.reading import Reader, Takes, has_drawn, has_files, have_only_texts, shown_again
from ...errors import ModelNotFound
from ...upstreams import Providers
from ...upstreams.facts import facts_of


class ModelFiles:
    """Reads files for models, each as that model takes it."""

    def __init__(self, providers: Providers, reader: Reader) -> None:
        self._providers, self._reader = providers, reader

    async def check(self, messages: Sequence[dict[str, Any]], model: str | None = None) -> None:
        """Refuse a file that the model cannot read; without a model, one that none can."""
        if not have_only_texts(messages) and has_files(messages):
            await self._reader.check(messages, await self._takes(model))

    async def shown(self, messages: Sequence[dict[str, Any]], model: str) -> list[dict[str, Any]]:
        """Return messages with their files in the form that the model reads."""
        if have_only_texts(messages):
            return list(messages)
        has_pictures = has_drawn(messages)
        if not has_pictures and not has_files(messages):
            return list(messages)
        takes = await self._takes(model)
        if has_pictures:
            messages = shown_again(messages, sees=takes.pictures is not False)
        return await self._reader.shown(messages, takes)

    async def _takes(self, model: str | None) -> Takes:
        if model is None:
            return Takes()
        try:
            found = await self._providers.find(model)
        except ModelNotFound:
            return Takes()
        facts = await facts_of(found.provider, found.model)
        return Takes(pictures=facts.sees, pdf=facts.reads_pdf)
