"""The provider of OpenAI's Responses API: reasoning, custom tools, and answers in the background.

With `attaches`, the answer of a detached run is generated in the background: OpenAI stores it, and finishes it without
a reader. After a broken connection, a new one reads on after the last event. After a crash, the next process reads on
after the last text that was shown. So no token is generated twice. Closing the connection does not stop such an answer,
so it is cancelled if the run ends before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from ...concurrency.tasks import OwnedTasks
from ...errors import AnswerLost, ProviderBroke, ProviderError, ProviderRefused, StoreUnavailable
from ...events import LEFT_TO_OTHERS, Notice, Outlet, put
from .. import ChatRequest
from ..decoding import MAX_EVENT
from ..http.provider import HTTPProvider, upstream_of
from ..http.upstream import Asked, Refused, encode_body
from ..kinds import ProviderKind, ProviderSetup
from ..resume_check import SeenEvents, lost
from .decoder import ResponsesDecoder
from .request import body_in, wants_encrypted

__all__ = ["Responses"]

logger = logging.getLogger(__name__)

BASE_URL = "https://api.openai.com/v1"
MOST_RECONNECTS = 3
"""Maximum number of consecutive reconnects to a response without a new event in between."""

_Ask = Callable[[ChatRequest], Awaitable[Asked]]


class ResponsesOptions(msgspec.Struct, frozen=True):
    """The `options` of a provider of this dialect."""

    summary: Literal["auto", "concise", "detailed"] | None = None
    """Ask reasoning models for a summary of their reasoning. Others refuse it, so it is off by default."""


class Responses(HTTPProvider):
    """Speaks the Responses API to one upstream. `base_url` is what comes before `/responses`.

    Costs one HTTP session, for each stream one connection, and for each answer in the background one note: OpenAI
    chooses the id of a response, and cannot list them, so it is kept under the name of the run as soon as it is known.
    """

    def __init__(self, setup: ProviderSetup) -> None:
        super().__init__(
            upstream_of(setup, "Authorization"),
            models=setup.models,
            prefills=False,
            think=bool(setup.think),
            models_timeout=setup.models_timeout,
            models_fresh=setup.models_fresh,
            unlisted=setup.unlisted,
        )
        self._notes = setup.notes
        self.attaches = self.attaches_anywhere = bool(setup.attaches) and setup.notes is not None
        self.tools = setup.tools is not False
        self._options: ResponsesOptions = setup.options or ResponsesOptions()
        self._unencrypted: set[str] = set()  # models that refuse to encrypt reasoning
        self._tasks = OwnedTasks(f"the provider {self.name}")
        self._turn = asyncio.Lock()

    # answering

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Emit the events of each read together. Raise a `ProviderError` if the answer is incomplete."""
        if self.attaches and self._notes is not None and request.name:
            keep, note = self._notes.keep, self._note(request.name)
            decoder = self._decoder(keep=lambda id: self._in_turn(keep(note, id)))
            await self._follow(request, partial(self._ask, background=True), decoder, out)
        else:
            await self.upstream.answer(request, self._ask, self._decoder(), out)

    async def attach(self, name: str, out: Outlet, *, text: str = "", reasoning: str = "") -> None:
        """Emit the rest of a run's response, after the text and reasoning that were seen."""
        id = None if self._notes is None else await self._notes.find(self._note(name))
        if id is None:
            raise lost(self.name, "was asked by a process that did not keep the response's id")
        decoder = self._decoder(id)
        seen = SeenEvents(out, self.name, text, reasoning, think=self.think)
        request = ChatRequest(model="", messages=[], name=name)
        try:
            await self._follow(request, partial(self._ask_for, decoder), decoder, seen)
        except ProviderError:
            seen.cut_off()
            raise

    def _decoder(self, id: str = "", keep: Callable[[str], None] | None = None) -> ResponsesDecoder:
        return ResponsesDecoder(self.name, id=id, keep=keep, secrets=self.upstream.secrets)

    async def _follow(self, request: ChatRequest, ask: _Ask, decoder: ResponsesDecoder, out: Outlet) -> None:
        """Read a response in the background to its end. A broken connection is replaced."""
        tries, last, is_left = MOST_RECONNECTS, decoder.sequence, False
        try:
            while True:
                try:
                    await self.upstream.answer(request, ask, decoder, out)
                    return
                except AnswerLost:
                    if not await self._read_whole(decoder, out):
                        raise
                    return
                except ProviderBroke as error:
                    tries = MOST_RECONNECTS if decoder.sequence > last else tries - 1
                    if not (decoder.id and decoder.broke_off and tries):
                        raise
                    out.emit([Notice("retry", f"Reading on after the last event, because {error}")])
                last = decoder.sequence
                decoder.reopen()
                ask, request = partial(self._ask_for, decoder), msgspec.structs.replace(request, messages=[])
        except asyncio.CancelledError as cancelled:
            is_left = LEFT_TO_OTHERS in cancelled.args
            raise
        finally:
            if not is_left:
                self._let_go(request.name, decoder)

    async def _read_whole(self, decoder: ResponsesDecoder, out: Outlet) -> bool:
        """Emit a response that has ended and is no longer streamed, from its object. Return whether there is one."""
        if decoder.sequence >= 0:  # part of it was emitted by this process, and would be emitted twice
            return False
        events = decoder.whole(await self.upstream.get(self._path(decoder.id), MAX_EVENT))
        if events:
            await put(out, events)
        if decoder.error is not None:
            raise decoder.error
        return decoder.finished

    def _let_go(self, name: str, decoder: ResponsesDecoder) -> None:
        """Drop the id of a response, and cancel the response if it has not ended."""
        if decoder.id and not decoder.has_ended:
            self.upstream.drop(f"{self._path(decoder.id)}/cancel", method="POST")
        if self._notes is not None:
            self._in_turn(self._notes.drop(self._note(name)))

    def _note(self, run: str) -> str:
        return f"{self.name}\n{run}"

    def _in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        """Change a note after all earlier changes, in a task that the end of a run does not cancel."""
        self._tasks.start(self._changed(work))

    async def _changed(self, work: Coroutine[Any, Any, None]) -> None:
        async with self._turn:  # in the order of the requests: tasks start in it, and a lock is taken in it
            try:
                await work
            except StoreUnavailable as error:
                logger.warning("The id of a response was not kept: %s. After a crash it cannot be read on.", error)

    # requests

    async def _ask(self, request: ChatRequest, *, background: bool = False) -> Asked:
        """Send a request. If the model refuses encrypted reasoning, send it again, and later ones too, without that."""
        encrypted = wants_encrypted(request) and request.model not in self._unencrypted
        try:
            body = body_in(request, background=background, encrypted=encrypted, summary=self._options.summary)
        except ProviderRefused as refused:
            return refused
        reply = await self.upstream.ask("/responses", encode_body(body))
        if encrypted and isinstance(reply, Refused) and reply.is_about("ncrypted content"):
            self._unencrypted.add(request.model)
            return await self._ask(request, background=background)
        return reply

    async def _ask_for(self, decoder: ResponsesDecoder, request: ChatRequest) -> Asked:
        """Request the events of a response after the last one that was read."""
        after = f"&starting_after={decoder.sequence}" if decoder.sequence >= 0 else ""
        reply = await self.upstream.ask(self._path(decoder.id), query=f"stream=true{after}", method="GET")
        if isinstance(reply, Refused):
            raise lost(self.name, f"has no such response, or no longer tells it ({reply.answered})")
        if isinstance(reply, ProviderError):
            raise AnswerLost(str(reply)) from reply
        return reply

    def _path(self, id: str) -> str:
        return f"/responses/{quote(id, safe='')}"

    async def look_up(self) -> list[str] | None:
        """Ask the upstream for its models."""
        return self.listed(await self.upstream.get("/models", MAX_EVENT))

    async def close(self) -> None:
        """Close all streams and connections, and wait until the last note is changed."""
        await super().close()
        await self._tasks.wait()


KIND = ProviderKind(make=Responses, options=ResponsesOptions, base_url=BASE_URL, key_env="OPENAI_API_KEY")
