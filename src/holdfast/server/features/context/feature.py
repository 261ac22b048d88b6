"""`/api/sessions/{session_id}/context` and `/compact`: how full a model's window is, and a summary to make room."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT_SHARED, READ_SHARED
from ....engine.core import Core
from ....errors import Conflict, MessageNotFound
from ....history import Message, Session, alternating, branch, estimate_tokens, for_model
from ....history.compaction import COMPACT, compacted, is_summary, with_compaction
from ....ids import new_id
from ....runs.run import Run
from ....store import Store
from ....upstreams.facts import facts_of
from ....wires import native
from ...kit.caller import access_of, owner_of
from ...kit.calls import Http
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...kit.request import Bodies, decode, idempotency
from ...running.running import Running
from ...sources.models import AllowedModels
from ...starting.starting import Starting
from ..sessions.branches import branch_from, show_branch
from ..sessions.run_json import RunViews
from ..sessions.session_input import check_agent, session_ask, user_message
from ..sharing.reach import Reach
from ..versions.edits import copied_after


class NothingToCompact(Conflict):
    """There is no message that a summary could stand for."""

    code = "nothing_to_compact"
    message = "There is nothing to summarise: no response comes before this place, or a summary stands there."


class Compact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Summarise the branch up to a message; without one, all of it."""

    message_id: str | None = None
    model: str | None = None
    """The model that summarises; without it, the session's."""


class UndoCompaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Go back to the messages themselves. `message_id` is that of the request for the summary, or of the summary."""

    message_id: str


_BAD = {404: "no such session or message"}


class ContextApi(Feature):
    """The gauge of a session, and its compaction."""

    def __init__(
        self,
        bodies: Bodies,
        views: RunViews,
        reach: Reach,
        starting: Starting,
        models: AllowedModels,
        engine: Core,
        store: Store,
    ) -> None:
        self._bodies, self._views, self._reach, self._starting = bodies, views, reach, starting
        self._models, self._engine, self._store = models, engine, store

    @Endpoint("GET", "/api/sessions/{session_id}/context", who=READ_SHARED)
    async def get_context(self, request: Request) -> ASGIApp:
        """Return about how many tokens the model of a session is asked next, and how many it can hold."""
        session = await self._reach.session(request)
        messages = branch(await self._store.messages(session.id), session.head_id)
        tokens, is_reported = _tokens(compacted(messages), session.system)
        found = (await self._models.find(access_of(request), session.model)).found
        window = (await facts_of(found.provider, found.model)).window
        source = "provider" if is_reported else "estimated"
        return Json({"tokens": tokens, "source": source, "window": window, "model": found.name})

    @Endpoint(
        "POST",
        "/api/sessions/{session_id}/compact",
        who=CHAT_SHARED,
        takes=Compact,
        answers={
            202: "the run that summarises",
            409: "busy, a stale view, or nothing to compact",
            429: "too many runs",
            503: "the server is ending",
            **_BAD,
        },
    )
    async def compact(self, request: Request) -> ASGIApp:
        """Let a model summarise the branch. From then on models are asked with the summary; every message stays."""
        session = await self._reach.session(request)
        raw = await self._bodies.read(request)
        body = decode(raw or b"{}", Compact)
        allowed = await self._starting.allow(request, body.model or session.model, idempotency(request, raw))
        if isinstance(allowed, Run):
            return self._views.started(allowed)
        last = await self._last(session, body.message_id)
        ask = session_ask(session, compacts=True)
        record = allowed.record(ask, owner=session.owner, session_id=session.id, message_id=new_id("msg"))
        check_agent(record, owner_of(request))
        run = await allowed.start(
            record, [with_compaction(user_message(COMPACT))], parent=last.id, expect_head=session.head_id
        )
        return self._views.started(run)

    async def _last(self, session: Session, message_id: str | None) -> Message:
        """Return the last message that the summary stands for."""
        if message_id is None:
            path = branch(await self._store.messages(session.id), session.head_id)
        else:
            before, (message, *_) = await branch_from(self._store, session, message_id)
            path = [*before, message]
        is_fresh = len(path) > 1 and is_summary(path[-2], path[-1])
        if is_fresh or not any(each.role == "assistant" for each in path):
            raise NothingToCompact
        return path[-1]

    @Endpoint(
        "POST",
        "/api/sessions/{session_id}/compact/undo",
        who=CHAT_SHARED,
        takes=UndoCompaction,
        answers={409: "busy, or a stale view", **_BAD},
    )
    async def undo_compaction(self, request: Request) -> ASGIApp:
        """Take a summary out. What follows it is copied behind the messages that it stood for."""
        session = await self._reach.session(request)
        body = decode(await self._bodies.read(request), UndoCompaction)
        path = branch(await self._store.messages(session.id), session.head_id)
        for place, message in enumerate(path):
            if message.compacts and body.message_id in [each.id for each in path[place : place + 2]]:
                after = copied_after(path[place + 2 :], message)
                changed = await show_branch(self._store, self._engine, session, after, message.parent_id)
                return Json(native.session(changed))
        raise MessageNotFound(body.message_id)


def _tokens(messages: list[Message], system: str | None) -> tuple[int, bool]:
    """Return about how many tokens a model is asked, and whether an upstream has counted most of them."""
    for place in range(len(messages) - 1, -1, -1):
        figures: Any = messages[place].figures
        if figures is not None and figures.usage_source == "provider" and figures.input_tokens:
            rest = estimate_tokens(for_model(messages[place + 1 :]))
            return figures.input_tokens + (figures.output_tokens or 0) + rest, True
    return estimate_tokens(alternating(for_model(messages, system))), False


class ContextFeature(Feature):
    """How full the window of a session's model is, and summaries that make room."""

    def __init__(self, http: Http, running: Running, reach: Reach, views: RunViews) -> None:
        engine, store = running.engine, running.store
        self.inner = (ContextApi(http.bodies, views, reach, running.starting, running.models, engine, store),)
