"""Sessions: list, search, open, change, stop, delete."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, CHAT_SHARED, READ, READ_SHARED
from ....asks import OnBreak
from ....engine.core import Core
from ....errors import BadRequest, MessageNotFound, NotFound, RunNotFound, SessionNotFound, StaleView
from ....history import Message, Session, branch
from ....ids import new_id
from ....pricing import Prices
from ....runs.run import Run
from ....store import SearchHit, Store
from ....store.files import with_files
from ....store.filing import Filing, Filter, unfiled
from ....store.people.readers import Standing
from ....wires import native
from ....wires.shapes import ListedSessionJson, MessageJson, OpenSessionJson, SharedJson
from ...kit.caller import access_of, owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent, file_response, json_of
from ...kit.request import Bodies, System, check_size, decode, whole_number
from ...sources.agents import forget_grants
from ...sources.models import AllowedModels
from ...sources.thumbs import forget_thumbs
from ..accounts.people.people import People
from ..filing.names import chat_folder, tag_names
from ..presets.kinds import Preset
from ..presets.library import Library
from ..sharing.reach import Reach
from ..sharing.shares import Loan, Shares
from .branches import show_branch
from .run_json import RunViews, look
from .session_input import one_line


class NewSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a new session."""

    title: str = ""
    model: str | None = None
    system: System | None = None
    params: dict[str, Any] = {}
    preset: str | None = None
    """The id or the name of a preset. The other fields have precedence."""
    on_break: OnBreak | None = None
    """What is done if a response breaks off; null for what the settings say."""
    folder: str = ""
    tags: list[str] = []


class SessionChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a session that can be changed."""

    title: str | msgspec.UnsetType = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    folder: str | msgspec.UnsetType = msgspec.UNSET
    """The name of a folder; empty for none."""
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    system: System | msgspec.UnsetType | None = msgspec.UNSET
    params: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    preset: str | msgspec.UnsetType = msgspec.UNSET
    """The id or the name of a preset, which sets model, system prompt, parameters and `on_break`."""
    on_break: OnBreak | msgspec.UnsetType | None = msgspec.UNSET
    """What is done if a response breaks off; null for what the settings say."""
    head_id: str | msgspec.UnsetType = msgspec.UNSET

    def filing(self) -> Filing:
        """Return how it is filed from then on."""
        return Filing(
            folder=None if self.folder is msgspec.UNSET else chat_folder(self.folder),
            tags=None if self.tags is msgspec.UNSET else tag_names(self.tags),
            archived=None if self.archived is msgspec.UNSET else self.archived,
        )


class ListQuery(msgspec.Struct, frozen=True):
    """Which sessions a list has, and from where on."""

    query: str = ""
    prefix: str = ""
    before: str | None = None
    folder: str | None = None
    tag: str | None = None
    archived: Literal["true", "false", "any"] | None = None

    def filter(self) -> Filter:
        """Return how they are filed. What is looked for by words or by its id is found in the archive too."""
        archived = self.archived or ("any" if self.query or self.prefix else "false")
        return Filter(folder=self.folder, tag=self.tag, archived=None if archived == "any" else archived == "true")


_FILED = frozenset({"folder", "tags", "archived"})
_BAD = {404: "no such session"}


class SessionsApi(Feature):
    """Sessions of the caller, and those that are shared with the caller."""

    def __init__(
        self,
        bodies: Bodies,
        views: RunViews,
        reach: Reach,
        models: AllowedModels,
        people: People,
        shares: Shares,
        engine: Core,
        store: Store,
        prices: Prices,
        presets: Library[Preset],
    ) -> None:
        self._bodies, self._views, self._reach, self._models, self._people = bodies, views, reach, models, people
        self._shares, self._engine, self._store, self._prices = shares, engine, store, prices
        self._presets = presets

    @Endpoint("POST", "/api/sessions", who=CHAT, takes=NewSession, answers={201: "the session", **_BAD})
    async def create_session(self, request: Request) -> ASGIApp:
        """Start an empty session."""
        body = decode(await self._bodies.read(request) or b"{}", NewSession)
        preset = await self._presets.named(access_of(request), body.preset) if body.preset else Preset(name="")
        params, model = {**preset.params, **body.params}, body.model or preset.model
        check_size(params)
        if model:
            await self._models.providers(access_of(request)).find(model)
        now, title = self._engine.now(), one_line(body.title)
        session = Session(
            id=new_id("ses"),
            owner=owner_of(request),
            title=title,
            titled="person" if title else "",
            model=model,
            system=preset.system if body.system is None else body.system,
            params=params,
            preset=preset.name,
            on_break=body.on_break or preset.on_break,
            folder=chat_folder(body.folder),
            tags=tag_names(body.tags),
            created_at=now,
            updated_at=now,
        )
        session = await self._store.create_session(session)
        self._engine.touch(session.id, session.owner)
        return Json(native.session(session), status_code=201, headers={"location": f"/api/sessions/{session.id}"})

    @Endpoint(
        "GET",
        "/api/sessions",
        who=READ,
        query={
            "query": "words in titles and messages",
            "prefix": "the beginning of the id",
            "folder": "only those in this folder; empty for those in none",
            "tag": "only those with this tag",
            "archived": "true, false or any; without it a search has archived ones too, and a list has none",
            "limit": "1 to 200",
            "before": "the last id before",
        },
    )
    async def list_sessions(self, request: Request) -> ASGIApp:
        """List or search sessions: pinned ones first, then the ones changed last."""
        limit = whole_number(request, "limit", 50, 200)
        wanted = _wanted(request)
        text, owner = wanted.query, owner_of(request)
        feed = self._engine.changes.cursor(owner)  # before the list is read: changes in between are sent again
        sessions = await self._store.list_sessions(
            owner,
            query=text,
            prefix=wanted.prefix,
            limit=limit,
            before=wanted.before,
            filter=wanted.filter(),
        )
        hits = await self._store.find_messages([session.id for session in sessions], text) if text else {}
        running = await self._engine.running(owner)
        known = await self._store.standings(owner, [session.id for session in sessions])
        listed = [
            session_in_list(session, running.get(session.id), known.get(session.id), hits.get(session.id))
            for session in sessions
        ]
        return Json({"sessions": listed, "next": sessions[-1].id if len(sessions) == limit else None, "feed": feed})

    @Endpoint(
        "GET",
        "/api/sessions/{session_id}",
        who=READ_SHARED,
        query={"files": "references, or inline: files as data URLs"},
    )
    async def get_session(self, request: Request) -> ASGIApp:
        """Return a session with the current branch of its messages, its active run, and its queue."""
        session = await self._reach.session(request)
        opened = await self._store.open_session(session.id)
        if opened is None:
            raise SessionNotFound(session.id)
        active = await self._active_run(opened.running)
        if active is not None:
            await look(active)
        path = branch(opened.messages, opened.session.head_id)
        is_lent = isinstance(access_of(request), Loan)
        if _wants_files_inline(request):
            path = await with_files(self._store, session.id, path)
        view: OpenSessionJson = {
            **native.session(unfiled(opened.session) if is_lent else opened.session),
            "messages": _shown_with_siblings(path, opened.messages, self._prices),
            "active_run": self._views.json(active) if active else None,
            "queued": [native.queued(record) for record in opened.queued],
            "feed": str(opened.feed_end),
            "shared": await self._shared_json(request, session),
        }
        return json_of(view)

    async def _shared_json(self, request: Request, session: Session) -> SharedJson | None:
        """Return the owner of a session that is shared with the caller, and the rights; None for the caller's own."""
        access = access_of(request)
        if not isinstance(access, Loan):
            return None
        owner = await self._people.accounts.of_owner(session.owner)
        return {"owner": "" if owner is None else owner.body.name, "may": access.share.body.may}

    @Endpoint(
        "GET",
        "/api/sessions/{session_id}/files/{sha256}",
        who=READ_SHARED,
        answers={404: "no such session, or no such file in it"},
        files=True,
    )
    async def read_file(self, request: Request) -> ASGIApp:
        """Return a picture or an attached file of a session. Under its hash it never changes."""
        session = await self._reach.session(request)
        sha256 = request.path_params["sha256"]
        found = (await self._store.read_files(session.id, [sha256])).get(sha256)
        if found is None:
            raise NotFound(f"The chat has no file {sha256[:64]!r}.")
        return file_response(found)

    async def _active_run(self, run_id: str | None) -> Run | None:
        """Return the run that the snapshot shows as running. If it has ended since, the feed reports that."""
        if run_id is None:
            return None
        try:
            run = await self._engine.open(run_id)
        except RunNotFound:
            return None
        return run if run.status == "running" else None

    @Endpoint(
        "PATCH", "/api/sessions/{session_id}", who=CHAT, takes=SessionChanges, answers={409: "busy or gone", **_BAD}
    )
    async def change_session(self, request: Request) -> ASGIApp:
        """Rename, pin or file it, change the model or the system prompt, or show another branch."""
        session = await self._reach.session(request)
        body = decode(await self._bodies.read(request), SessionChanges)
        filing = body.filing()
        changes = {
            name: value
            for name, value in msgspec.structs.asdict(body).items()
            if value is not msgspec.UNSET and name not in _FILED
        }
        changes = await self._with_preset(request, body.preset, changes)
        check_size(changes.get("params", {}))
        if isinstance(changes.get("model"), str):
            await self._models.providers(access_of(request)).find(changes["model"])
        if "title" in changes:
            changes |= {"title": one_line(changes["title"]), "titled": "person"}
        if "head_id" in changes:
            leaf = await self._leaf(session, changes.pop("head_id"))
            session = await show_branch(self._store, self._engine, session, [], leaf)
        changed = await self._store.update_session(session.id, changes, self._engine.now()) if changes else session
        if filing != Filing():
            changed = next(iter(await self._store.file_sessions(session.owner, [session.id], filing)), None)
        if changed is None:
            raise StaleView("The session was deleted in the meantime.")
        self._engine.touch(session.id, session.owner)
        return Json(native.session(changed))

    async def _with_preset(self, request: Request, named: Any, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the changes with those of a preset. What else sets the prompt or parameters leaves the preset."""
        if named:
            preset = await self._presets.named(access_of(request), named)
            setup: dict[str, Any] = {"system": preset.system, "params": preset.params, "on_break": preset.on_break}
            return setup | ({"model": preset.model} if preset.model else {}) | changes | {"preset": preset.name}
        return {"preset": ""} | changes if {"system", "params", "on_break"} & changes.keys() else changes

    async def _leaf(self, session: Session, message_id: str) -> str:
        """Return the last message of the newest branch through a message."""
        messages = await self._store.messages(session.id)
        if all(message.id != message_id for message in messages):
            raise MessageNotFound(message_id)
        newest_child = {message.parent_id: message.id for message in messages}
        while message_id in newest_child:
            message_id = newest_child[message_id]
        return message_id

    @Endpoint(
        "DELETE",
        "/api/sessions/{session_id}",
        who=CHAT,
        audit="session.delete",
        answers={409: "other nodes keep starting runs in it"},
    )
    async def delete_session(self, request: Request) -> ASGIApp:
        """Stop a session's runs and delete it with everything that belongs to it."""
        session = await self._reach.session(request)
        await self.delete_with_grants(session.id, session.owner)
        return NoContent()

    async def delete_with_grants(self, session_id: str, owner: str) -> None:
        """Stop a session's runs, and delete it with everything that belongs to it."""
        await self._engine.delete_session(session_id)
        self._engine.touch(session_id, owner)
        await forget_grants(self._store, owner, session_id)
        await forget_thumbs(self._store, owner, session_id)
        await self._shares.forget_session(owner, session_id)

    @Endpoint("POST", "/api/sessions/{session_id}/stop", who=CHAT_SHARED, stores=False)
    async def stop_session(self, request: Request) -> ASGIApp:
        """Stop all of a session's runs, including queued ones."""
        session = await self._reach.session(request)
        stopped = await self._engine.stop_session(session.id)
        return json_of({"stopped": [self._views.json(run) for run in stopped]})


def session_in_list(
    session: Session, run: Run | None, known: Standing | None, hit: SearchHit | None = None
) -> ListedSessionJson:
    """Return a session as lists show it, with its active run, as its owner knows it."""
    return {
        **native.listed_session(session),
        "active_run": run.id if run else None,
        "needs_approval": run is not None and run.waits,
        "unread": None if known is None else known.unread,
        "hit": native.search_hit(hit) if hit else None,
    }


def _wanted(request: Request) -> ListQuery:
    """Return what a list is asked for."""
    try:
        return msgspec.convert(dict(request.query_params), ListQuery)
    except msgspec.ValidationError:
        raise BadRequest("archived is true, false or any.", param="archived") from None


def _wants_files_inline(request: Request) -> bool:
    """Return whether the query asks for files as data URLs, as an export has them."""
    form = request.query_params.get("files", "references")
    if form not in ("references", "inline"):
        raise BadRequest("files is references or inline.", param="files")
    return form == "inline"


def _shown_with_siblings(path: list[Message], messages: list[Message], prices: Prices) -> list[MessageJson]:
    """Return each message with the ids of its siblings, itself included: other answers, or other edits."""
    by_parent: dict[tuple[str | None, str], list[str]] = {}
    for message in messages:
        by_parent.setdefault((message.parent_id, message.role), []).append(message.id)
    return [
        {**native.message(message, prices), "siblings": by_parent[message.parent_id, message.role]} for message in path
    ]
