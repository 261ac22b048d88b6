"""`/api/schedules`."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....engine.core import Core
from ....errors import OwnerRefused, RunNotFound, SessionNotFound
from ....ids import new_id
from ....store import Store
from ....store.documents import Stored
from ....wires import native
from ...kit.caller import access_of, owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode, idempotency
from ...sources.models import AllowedModels
from ..presets.kinds import Preset
from ..presets.library import Library
from .model import Occurrence, Plan, Schedule, ScheduledAsk
from .schedules import Schedules
from .times import BadTime, EveryInterval, When, check_when, times_after, zone_of

PREVIEWED = 5
"""Number of times in a preview."""


class NewSchedule(Plan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new schedule."""

    paused: bool = False


class PreviewedTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times to be previewed."""

    when: When


class AskedCheck:
    """Checks what a schedule or a trigger asks, with the rights of the caller who writes it."""

    def __init__(self, models: AllowedModels, presets: Library[Preset], store: Store) -> None:
        self._models, self._presets, self._store = models, presets, store

    async def check(self, request: Request, asked: ScheduledAsk) -> None:
        """Refuse what the caller may not use, or what does not exist."""
        asked.check()
        access = access_of(request)
        if asked.model:
            await self._models.providers(access).find(asked.model)
        if asked.preset:
            await self._presets.named(access, asked.preset)
        if asked.session:
            session = await self._store.get_session(asked.session)
            if session is None or session.owner != access.owner or session.kind != "chat":
                raise SessionNotFound(asked.session)


_ONE = "/api/schedules/{schedule_id}"
_BAD = {404: "no such schedule, chat, model or preset", 409: "too many"}


class SchedulesApi(Feature):
    """Schedules of the caller."""

    def __init__(self, bodies: Bodies, schedules: Schedules, check: AskedCheck, engine: Core) -> None:
        self._bodies, self._schedules, self._check, self._engine = bodies, schedules, check, engine

    @Endpoint("GET", "/api/schedules", who=READ)
    async def list_schedules(self, request: Request) -> ASGIApp:
        """List the caller's schedules, the newest first, each with its next time and its last occurrence."""
        found = await self._schedules.of(owner_of(request))
        return Json({"schedules": await asyncio.gather(*map(self._shown, found))})

    @Endpoint("POST", "/api/schedules", who=CHAT, takes=NewSchedule, audit="schedule.add", answers={201: "it", **_BAD})
    async def add_schedule(self, request: Request) -> ASGIApp:
        """Create a schedule. Its runs have the rights and the budget that the caller has when they start."""
        new = decode(await self._bodies.read(request), NewSchedule)
        plan = Plan(**{name: value for name, value in asdict(new).items() if name != "paused"})
        await self._checked(request, plan)
        stored = await self._schedules.add(owner_of(request), key_id_of(request), plan, is_paused=new.paused)
        shown = await self._shown(stored)
        return Json(shown, status_code=201, headers={"location": f"/api/schedules/{stored.id}"})

    @Endpoint("GET", _ONE, who=READ)
    async def get_schedule(self, request: Request) -> ASGIApp:
        """Return a schedule of the caller."""
        return Json(await self._shown(await self._stored(request)))

    @Endpoint("PUT", _ONE, who=CHAT, takes=Plan, audit="schedule.change", answers=_BAD)
    async def replace_schedule(self, request: Request) -> ASGIApp:
        """Replace a schedule. It stays paused if it was. With other times it begins anew from now."""
        await self._stored(request)
        plan = decode(await self._bodies.read(request), Plan)
        await self._checked(request, plan)
        owner, id = owner_of(request), request.path_params["schedule_id"]
        return Json(await self._shown(await self._schedules.replace(owner, key_id_of(request), id, plan)))

    @Endpoint("DELETE", _ONE, who=CHAT, audit="schedule.delete")
    async def delete_schedule(self, request: Request) -> ASGIApp:
        """Delete a schedule. Its chats stay, and what runs goes on."""
        await self._schedules.delete(owner_of(request), request.path_params["schedule_id"])
        return NoContent()

    @Endpoint("POST", f"{_ONE}/pause", who=CHAT, audit="schedule.pause", stores=False)
    async def pause_schedule(self, request: Request) -> ASGIApp:
        """Pause a schedule. Once this has answered nothing of it starts, unless an occurrence is shown as `begun`."""
        return Json(
            await self._shown(await self._schedules.pause(owner_of(request), request.path_params["schedule_id"]))
        )

    @Endpoint("POST", f"{_ONE}/resume", who=CHAT, audit="schedule.resume", stores=False)
    async def resume_schedule(self, request: Request) -> ASGIApp:
        """Go on after a pause, with the next time after now. What fell into the pause is left out."""
        return Json(
            await self._shown(await self._schedules.resume(owner_of(request), request.path_params["schedule_id"]))
        )

    @Endpoint("POST", f"{_ONE}/run", who=CHAT, answers={202: "it", 409: "the run was refused", 429: "no room"})
    async def run_schedule(self, request: Request) -> ASGIApp:
        """Start a run of a schedule now, paused or not. A repeated Idempotency-Key starts nothing more."""
        key = idempotency(request, await self._bodies.read(request))
        asked = new_id("now") if key is None else key.key
        owner, id = owner_of(request), request.path_params["schedule_id"]
        _, one = await self._schedules.run_now(owner, id, asked, key_id_of(request))
        if one.error is not None:
            raise OwnerRefused(one.error)
        return Json(await self._occurrence(one), status_code=202)

    @Endpoint("GET", f"{_ONE}/history", who=READ)
    async def schedule_history(self, request: Request) -> ASGIApp:
        """Return the last 100 occurrences of a schedule, the newest first, each with its run or why there is none."""
        stored = await self._stored(request)
        return Json({"occurrences": await asyncio.gather(*map(self._occurrence, reversed(stored.body.history)))})

    @Endpoint(
        "POST", "/api/schedule-preview", who=READ, takes=PreviewedTimes, stores=False, answers={400: "no such time"}
    )
    async def preview_schedule(self, request: Request) -> ASGIApp:
        """Return the next five times of a plan; or what is wrong with it."""
        when = decode(await self._bodies.read(request), PreviewedTimes).when
        await self._schedules.load(when)
        check_when(when, is_admin=access_of(request).admin)
        now = self._schedules.now()
        return Json({"times": _shown_times(when, list(islice(times_after(when, now, now), PREVIEWED)))})

    async def _stored(self, request: Request) -> Stored[Schedule]:
        return await self._schedules.get(owner_of(request), request.path_params["schedule_id"])

    async def _checked(self, request: Request, plan: Plan) -> None:
        await self._check.check(request, plan)
        await self._schedules.load(plan.when)
        check_when(plan.when, is_admin=access_of(request).admin)
        now = self._schedules.now()
        if next(times_after(plan.when, now, now), None) is None:
            raise BadTime("This time has passed already, or never comes.", param="when")

    async def _shown(self, stored: Stored[Schedule]) -> dict[str, Any]:
        schedule = stored.body
        last = schedule.history[-1] if schedule.history else None
        next_at = schedule.next_at()
        return {
            "id": stored.id,
            **msgspec.to_builtins(schedule.plan),
            "paused": schedule.is_paused,
            "next": None if next_at is None else _shown_times(schedule.plan.when, [next_at])[0],
            "last": None if last is None else await self._occurrence(last),
            "created_at": native.moment(stored.created_at),
        }

    async def _occurrence(self, one: Occurrence) -> dict[str, Any]:
        """Return an occurrence as JSON, with what became of its run."""
        status, outcome, session_id = "", None, one.session_id
        if one.run_id:
            try:
                run = await self._engine.open(one.run_id)
                status, session_id = run.status, run.record.session_id or ""
                outcome = None if run.settlement is None else run.settlement.outcome
            except RunNotFound:
                status = "deleted"
        return {
            "at": native.moment(one.at),
            "how": one.how,
            "state": one.state,
            "run": {"id": one.run_id, "status": status, "outcome": outcome} if one.run_id else None,
            "session_id": session_id if status not in ("", "deleted") else None,
            "error": None if one.error is None else {"code": one.error.code, "message": one.error.message},
            "why": one.why or None,
            "others": one.others,
        }


def key_id_of(request: Request) -> str:
    """Return the id of the API key of a request; empty for a person."""
    access = access_of(request)
    return access.credential if access.via == "key" else ""


def _shown_times(when: When, times: Sequence[float]) -> list[dict[str, str]]:
    """Return times as JSON: in UTC, and by the clock of the plan's zone."""
    zone = datetime.UTC if isinstance(when, EveryInterval) else zone_of(when.time_zone)
    return [
        {"at": native.moment(at), "local": datetime.datetime.fromtimestamp(at, zone).isoformat(timespec="seconds")}
        for at in times
    ]
