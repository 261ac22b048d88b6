"""Makes the source of a chat run from its record, new or after a restart."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from ...asks import Ask, Beginning, ProgramAsk, ResponseAsk, SessionAsk, beginning_of, chat_ask, model_ask
from ...asks.own import OwnPrompt
from ...attachments.reading import Reader
from ...concurrency.retry import Retry
from ...errors import ModelNotFound, NoPrice, ProviderBroke, ProviderError, SessionNotFound
from ...events import AnswerBegins, Finish, Interrupted, Notice, Outlet, Source, Text, Usage, Yielded
from ...history import alternating, branch, for_model
from ...history.compaction import compacted
from ...ids import ModelName
from ...log.log import Log
from ...log.settlement import usage_so_far
from ...runs.run import Run
from ...store import RunRecord, Store
from ...store.files import with_files
from ...upstreams import Attaching, ChatRequest, FoundModel, Provider, Providers, has_tools
from ...upstreams.facts import facts_of
from ..config.settings import AGENT
from ..features.observe.traces import AnswerChat, Traces
from .breaks.legs import FORKED, MOST_LEGS, Legs, Written
from .breaks.on_break import OnBreaks
from .compacting import Conversation, is_compaction, summarised
from .model_files import ModelFiles
from .patience import Patience
from .response_chains import conversation

logger = logging.getLogger(__name__)

RequireModel = Callable[[RunRecord, ModelName], Awaitable[None]]
"""Raises if the owner of a run, or the key that started it, may not use a model any more."""
QUICK = 1.0  # seconds of retries for a client that retries itself


async def _anybody(record: RunRecord, model: ModelName) -> None:
    """Refuse nobody."""


class ChatSources:
    """Asks the run's model with the run's history, and its fallback if it cannot answer."""

    def __init__(
        self,
        store: Store,
        providers: Providers,
        patience: float,
        fallbacks: Callable[[], Mapping[str, str]] = dict,
        traces: Traces | None = None,
        require: RequireModel = _anybody,
        breaks: OnBreaks | None = None,
        patience_with: Patience | None = None,
        files: ModelFiles | None = None,
        legs: type[Legs] = Legs,
    ) -> None:
        """`require` is asked before each call of an upstream, however long after the start of its run that is.

        `breaks` says what is done if an answer breaks off. `patience_with` says how long a model may be
        silent. `files` reads the files of messages.
        """
        self._store = store
        self._providers = providers
        self._patience = patience
        self._fallbacks = fallbacks
        self._check = require
        self._traces = traces
        self._breaks = breaks or OnBreaks({}, fallbacks)
        self._patience_with = patience_with or Patience({}, None)
        self._files = files or ModelFiles(providers, Reader())
        self._make_legs = legs
        self._retry = Retry()

    def __call__(self, run: Run) -> Source:
        """Return the source of a run."""
        alone = run.record.kind == "batch"  # which is about this model: no fallback
        return partial(self.answer, run.record, run.record.model, alone=alone)

    def answer(self, record: RunRecord, name: str, out: Outlet, *, alone: bool = False) -> Awaitable[None]:
        """Answer a run by its model. If `alone`, without fallbacks."""
        ask, notice = record.ask, None
        if isinstance(ask, SessionAsk):
            if ask.beginning is not None:
                return self._go_on_from(record, ask.beginning, out)
            if ask.compacts:
                return self.summarise(record, name, out)
            notice = ask.notice
        return self._ask(record, name, partial(self._request, record), out, alone=alone, notice=notice)

    async def summarise(self, record: RunRecord, name: str, out: Outlet, *, by_grant: bool = False) -> None:
        """Let a model sum up the conversation of a run. `by_grant`: the right to an agent includes its model."""

        async def ask(messages: Sequence[dict[str, Any]]) -> None:
            async def request(model: str) -> ChatRequest:
                asked = await self._request(record, model)
                return msgspec.structs.replace(asked, messages=alternating(messages))

            await self._ask(record, name, request, out, alone=True, by_grant=by_grant)

        await summarised(ask, partial(self._conversation, record, name))

    async def _conversation(self, record: RunRecord, name: str) -> Conversation:
        found = await self._providers.find(name)
        return Conversation(await self.messages(record), (await facts_of(found.provider, found.model)).window)

    async def _go_on_from(self, record: RunRecord, beginning: Beginning, out: Outlet) -> None:
        """Answer with the beginning of an earlier answer, and let the run's model go on with it."""
        found = await self._providers.find(record.model)
        request = await self._request(record, found.model)
        out.emit([AnswerBegins(think=False), *beginning.events])
        written = Written(model=beginning.model, text=beginning.text, legs=beginning.legs)
        legs = self._legs(record, out, written, is_owed=_asks(request), most=self._most_legs(record, found))
        await legs.resume(found, request, FORKED)

    def _most_legs(self, record: RunRecord, found: FoundModel) -> int:
        """Return how many legs an answer may have. Those that have written its beginning are not counted."""
        beginning = beginning_of(record.ask)
        before = 0 if beginning is None else beginning.legs
        return before + (MOST_LEGS if self._continues(record, found) else 1)

    async def ask(
        self,
        record: RunRecord,
        name: str,
        messages: list[dict[str, Any]],
        params: dict[str, Any],
        out: Outlet,
        *,
        by_grant: bool,
    ) -> None:
        """Ask a model, or its fallback, for a run's agent. `by_grant`: the right to the agent includes its model."""

        async def request(model: str) -> ChatRequest:
            has_time = _has_time(record)
            patience = self._patience if has_time else QUICK
            return ChatRequest(
                model=model, messages=messages, params=params, patience=patience, client_repeats=not has_time
            )

        alone = record.kind in ("batch", "pane")  # which are about this agent: no fallback of its model
        await self._ask(record, name, request, out, alone=alone, by_grant=by_grant)

    async def _request(self, record: RunRecord, model: str) -> ChatRequest:
        ask, has_time = model_ask(record.ask), _has_time(record)
        return ChatRequest(
            model=model,
            messages=await self.messages(record),
            params=ask.params,
            own=ask.own,
            name=record.id if _can_be_found_again(record) else "",
            goes_on=record.message_id is not None and record.message_id == record.parent_id,
            patience=self._patience if has_time else QUICK,
            client_repeats=not has_time,
        )

    async def _ask(
        self,
        record: RunRecord,
        name: str,
        request_to: Callable[[str], Awaitable[ChatRequest]],
        out: Outlet,
        *,
        alone: bool = False,
        notice: str | None = None,
        by_grant: bool = False,
    ) -> None:
        """Ask one model after the other until one begins to answer. No other continues its answer."""
        found = await self._providers.find(name)
        used, asked = self._providers.use(found.provider), [found.name]
        try:
            if not by_grant:
                await self._check(record, asked[0])
            request, provider = await request_to(found.model), found.provider
            if request.goes_on:  # its log begins with the existing text
                out.emit([AnswerBegins(think=False), Text(_begun_text(request), earlier=True)])
            if notice:
                out.emit([Notice("new_turn", notice)])
            if not alone and self._continues(record, found):
                written = Written(model=found.name, text=_begun_text(request))
                legs = self._legs(record, out, written, is_owed=_asks(request), most=MOST_LEGS, by_grant=by_grant)
                await legs.begin(found, request)
                return
            while True:
                limits = self._patience_with.with_request(found, request)
                out.emit([AnswerBegins(think=provider.think, is_owed=_asks(request)), limits])
                if alone or asked[-1] not in self._fallbacks():
                    await self._asking(provider)(request, out)
                    return
                why = await self._tried(provider, request, out, record, asked)
                if why is None:
                    return
                found, words = why
                provider = found.provider
                used += self._providers.use(provider)
                asked.append(found.name)
                request = msgspec.structs.replace(request, model=found.model)
                instead = f"{asked[-2]} could not answer ({words}): {asked[-1]} answers instead."
                out.emit([Notice("fallback", instead, asked[-1])])
        finally:
            self._providers.let_go(used)

    def _continues(self, record: RunRecord, found: FoundModel) -> bool:
        """Return whether another call goes on with an answer of a model that breaks off."""
        ask = record.ask
        if isinstance(ask, ProgramAsk) or chat_ask(ask).n > 1 or record.kind not in ("chat", AGENT):
            return False
        is_chat = isinstance(ask, SessionAsk) and record.lifetime == "detached"
        chosen = ask.on_break or (self._breaks.in_chats(found) if is_chat else self._breaks.of(found))
        return chosen == "continue"

    def _legs(
        self,
        record: RunRecord,
        out: Outlet,
        written: Written,
        *,
        is_owed: bool,
        most: int,
        by_grant: bool = False,
    ) -> Legs:
        """Return what lets models answer a run one after the other, in at most so many legs."""
        begun_by = written.model

        async def answer(found: FoundModel, request: ChatRequest, out: Outlet) -> None:
            is_granted = by_grant and found.name == begun_by
            if written.legs > 1 and not is_granted:  # the first call was checked by who asks for it
                await self._check(record, found.name)
            used = self._providers.use(found.provider)
            try:
                await self._asking(found.provider)(request, out)
            finally:
                self._providers.let_go(used)

        return self._make_legs(
            answer,
            partial(self._stand_in, record),
            out,
            written,
            patience=self._patience_with.with_request,
            is_owed=is_owed,
            most=most,
            holds_calls=record.kind == AGENT,
            has_stand_in=lambda model: model in self._fallbacks(),
        )

    def _asking(self, provider: Provider) -> AnswerChat:
        """Return how a provider is asked: within the span of an upstream call, if traces are on."""
        traces = self._traces
        return provider.answer if traces is None else partial(traces.answer, provider.answer, provider.name)

    async def _tried(
        self, provider: Provider, request: ChatRequest, out: Outlet, record: RunRecord, asked: Sequence[ModelName]
    ) -> tuple[FoundModel, str] | None:
        """Let a provider answer. If it fails before its first output, return the fallback and the error."""
        attempt = _Attempt(out, has_spoken=request.goes_on)
        try:
            await self._asking(provider)(request, attempt)
        except ProviderError as error:
            is_final = attempt.has_spoken or _blames_the_request(error)
            stand_in = None if is_final else await self._stand_in(record, asked)
            if stand_in is None:
                raise
            return stand_in, str(error).rstrip(".")
        finally:
            attempt.emit = out.emit  # break the reference cycle, so that reference counting frees it
        return None

    async def _stand_in(self, record: RunRecord, asked: Sequence[ModelName]) -> FoundModel | None:
        """Return the fallback of the last model, if it may be used. A model is not asked twice."""
        named = self._fallbacks().get(asked[-1])
        if named is None or named in asked:
            return None
        try:
            found = await self._providers.find(named)
            await self._check(record, found.name)
        except (ModelNotFound, NoPrice):
            return None
        return found

    async def again(self, record: RunRecord, log: Log) -> Source | None:
        """Return the source that resumes a run after a crash.

        Its provider attaches to the answer, or another call goes on with it.
        """
        try:
            found = await self._providers.find(log.answered_by or record.model)
        except ModelNotFound:
            return None  # removed from the settings
        provider = found.provider
        is_kept = _can_be_found_again(record) and not log.legs  # only the first leg is kept under the run's id
        if is_kept and isinstance(provider, Attaching) and provider.attaches:
            return partial(self._attach, found, record, log)
        return partial(self._resume, found, record, log) if self._can_resume(record, log, found) else None

    def _can_resume(self, record: RunRecord, log: Log, found: FoundModel) -> bool:
        """Return whether another call can go on with the answer of a run that has lost its process."""
        if record.kind != "chat" or record.lifetime != "detached" or not self._continues(record, found):
            return False
        has_tools = {"tools", "functions"} & model_ask(record.ask).params.keys()  # half a call may be in the log
        return not has_tools and not log.pictures and _last_leg(log) < self._most_legs(record, found)

    async def _resume(self, found: FoundModel, record: RunRecord, log: Log, out: Outlet) -> None:
        """Go on with an answer after a crash."""
        beginning = beginning_of(record.ask)
        if beginning is not None and not log.has_output:
            return await self._go_on_from(record, beginning, out)
        await self._check(record, found.name)
        writer = log.legs[-1].model if log.legs else found.name if beginning is None else beginning.model
        written = Written(model=writer, text=log.text, legs=_last_leg(log), used=usage_so_far(log))
        request = await self._request(record, found.model)
        legs = self._legs(record, out, written, is_owed=_asks(request), most=self._most_legs(record, found))
        await legs.resume(found, request, Interrupted().error.code)

    async def elsewhere(self, record: RunRecord, log: Log) -> bool:
        """Return whether any node could go on with a run: its upstream keeps the answer, or another call goes on."""
        if record.kind != "chat":
            return False
        found = await self._providers.find(log.answered_by or record.model)
        is_kept = _can_be_found_again(record) and not log.legs and getattr(found.provider, "attaches_anywhere", False)
        return bool(is_kept) or self._can_resume(record, log, found)

    async def _attach(self, found: FoundModel, record: RunRecord, log: Log, out: Outlet) -> None:
        """Read on in an answer that its upstream keeps. If that is lost too, let another call go on with it."""
        provider = found.provider
        assert isinstance(provider, Attaching)
        used, attached = self._providers.use(provider), _Attached(out)
        try:
            limits = self._patience_with.with_request(found, ChatRequest(model=found.model, messages=[]))
            out.emit([AnswerBegins(think=False, is_owed=True), limits])  # the stored reasoning is split already
            await self._attaching(provider, record, log)(attached)
        except ProviderBroke as error:
            if attached.has_ended or not self._can_resume(record, log, found):
                raise
            logger.info("run %s: %s Another call goes on with its answer.", record.id, error)
            await self._resume(found, record, log, out)
        finally:
            self._providers.let_go(used)

    def _attaching(self, provider: Attaching, record: RunRecord, log: Log) -> Callable[[Outlet], Awaitable[None]]:
        """Return how a provider sends the rest of an answer: within the span of an upstream call, if traces are on."""
        attach = partial(provider.attach, record.id, text=log.text, reasoning=log.reasoning)
        if self._traces is None:
            return attach
        name, _, model = (log.answered_by or record.model).partition("/")
        request = ChatRequest(model=model, messages=[])
        return partial(self._traces.answer, lambda _, out: attach(out), name, request)

    async def messages(self, record: RunRecord) -> list[dict[str, Any]]:
        """Return the messages for the model: those of the request, or the session up to the run's turn."""
        ask = record.ask
        if record.session_id is None and not isinstance(ask, ResponseAsk):
            said = chat_ask(ask).messages
        else:  # an absent store fails no run that it has accepted
            said = await self._retry(partial(self._stored, record, ask))
        return await self._files.shown(said, record.model)

    async def _stored(self, record: RunRecord, ask: Ask) -> list[dict[str, Any]]:
        if isinstance(ask, ResponseAsk):
            return await conversation(self._store, record.owner, ask)
        assert record.session_id is not None
        if (found := await self._store.conversation(record.session_id)) is None:
            raise SessionNotFound(record.session_id)
        session, messages = found
        path = compacted(branch(messages, record.parent_id))
        shown = await with_files(self._store, record.session_id, path)
        said = for_model(shown, chat_ask(ask).system or session.system)
        return said if is_compaction(record) else alternating(said)


def _last_leg(log: Log) -> int:
    """Return the number of the last leg that has said something. One that said nothing has a number, and no event."""
    return log.legs[-1].leg if log.legs else 1


def _begun_text(request: ChatRequest) -> str:
    """Return the text that the answer continues; empty if it begins."""
    return cast(str, request.messages[-1]["content"]) if request.goes_on else ""


def _asks(request: ChatRequest) -> bool:
    """Return whether silence is no answer: unless a tool's result, a begun answer or a stop sequence allows for it.

    After its tools a model may have nothing to add, and editors ask for completions of which there may be none.
    """
    asked = request.messages[-1]["role"] not in ("tool", "function", "assistant") if request.messages else False
    return asked and not request.params.get("stop") and not isinstance(request.own, OwnPrompt)


def _has_time(record: RunRecord) -> bool:
    """Return whether the run may spend time on retries: no client waits that would retry itself."""
    if record.lifetime != "detached":
        return False
    return not isinstance(record.ask, ResponseAsk) or record.ask.background


def _can_be_found_again(record: RunRecord) -> bool:
    """Return whether a run can be resumed: it has only text of one choice, and outlives its client."""
    ask = record.ask
    if isinstance(ask, ProgramAsk) or record.lifetime != "detached" or record.message_id == record.parent_id:
        return False
    if beginning_of(ask) is not None:
        return False  # the upstream knows only the rest
    return chat_ask(ask).n == 1 and not has_tools(ask.params)


def notice_of(record: RunRecord) -> str | None:
    """Return the text of the notice that begins a run's answer."""
    return record.ask.notice if isinstance(record.ask, SessionAsk) else None


class _Attached:
    """The outlet of an answer that is read on. It notes whether the model has ended it."""

    def __init__(self, out: Outlet) -> None:
        self._out, self.room = out, out.room
        self.has_ended = False

    def emit(self, events: Sequence[Yielded]) -> bool:
        self.has_ended = self.has_ended or any(isinstance(event, Finish) for event in events)
        return self._out.emit(events)


class _Attempt:
    """An outlet that notes whether a model has begun to answer. From then on it adds no cost."""

    __slots__ = ("_out", "emit", "has_spoken", "room")

    def __init__(self, out: Outlet, *, has_spoken: bool) -> None:
        self._out = out
        self.has_spoken = has_spoken
        self.room = out.room
        self.emit: Callable[[Sequence[Yielded]], bool] = out.emit if has_spoken else self._first

    def _first(self, events: Sequence[Yielded]) -> bool:
        if not all(map(_is_before_the_answer, events)):
            self.has_spoken, self.emit = True, self._out.emit
        return self._out.emit(events)


def _is_before_the_answer(event: Yielded) -> bool:
    return isinstance(event, (Notice, Usage))


def _blames_the_request(error: ProviderError) -> bool:
    """Return whether the request is at fault: then another model would refuse it too."""
    return error.type == "invalid_request_error"
