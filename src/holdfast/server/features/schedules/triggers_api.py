"""`/api/triggers`: triggers of the caller, and their calls by whoever has the secret."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ANYONE, CHAT, READ
from ....errors import BadRequest
from ....store.documents import Stored
from ....wires import native
from ...kit.caller import owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode, header
from .api import AskedCheck, key_id_of
from .triggers import LARGEST_PAYLOAD, NewTrigger, Trigger, TriggerCalled, Triggers, shown_call

_ONE = "/api/triggers/{trigger_id}"
_BAD = {404: "no such trigger, chat, model or preset"}
_CALLED = {
    202: "the run",
    404: "no such trigger, or a wrong secret or signature",
    409: "paused, or the same id with another body",
    413: "too large",
    429: "too many calls, or no room",
    503: "try again later",
}


class TriggersApi(Feature):
    """Triggers of the caller, and their calls."""

    def __init__(self, bodies: Bodies, triggers: Triggers, check: AskedCheck) -> None:
        self._bodies, self._triggers, self._check = bodies, triggers, check

    @Endpoint("GET", "/api/triggers", who=READ)
    async def list_triggers(self, request: Request) -> ASGIApp:
        """List the caller's triggers, the newest first. Secrets are not shown again."""
        return Json({"triggers": [_shown(stored) for stored in await self._triggers.of(owner_of(request))]})

    @Endpoint(
        "POST",
        "/api/triggers",
        who=CHAT,
        takes=NewTrigger,
        audit="trigger.add",
        answers={201: "the trigger with its secret", 409: "too many triggers", **_BAD},
    )
    async def add_trigger(self, request: Request) -> ASGIApp:
        """Create a trigger. Its secret is shown now, and never again."""
        asked = decode(await self._bodies.read(request), NewTrigger)
        await self._check.check(request, asked)
        stored, secret = await self._triggers.add(owner_of(request), key_id_of(request), asked)
        shown = {**_shown(stored), **_told(stored, secret)}
        return Json(shown, status_code=201, headers={"location": f"/api/triggers/{stored.id}"})

    @Endpoint("GET", _ONE, who=READ)
    async def get_trigger(self, request: Request) -> ASGIApp:
        """Return a trigger of the caller, with its last calls."""
        stored = await self._triggers.get(owner_of(request), request.path_params["trigger_id"])
        return Json({**_shown(stored), "calls": [shown_call(call) for call in reversed(stored.body.calls)]})

    @Endpoint("PUT", _ONE, who=CHAT, takes=NewTrigger, audit="trigger.change", answers=_BAD)
    async def replace_trigger(self, request: Request) -> ASGIApp:
        """Replace what a trigger asks, or pause it. Its secret stays."""
        asked = decode(await self._bodies.read(request), NewTrigger)
        id = request.path_params["trigger_id"]
        await self._triggers.get(owner_of(request), id)
        await self._check.check(request, asked)
        return Json(_shown(await self._triggers.replace(owner_of(request), key_id_of(request), id, asked)))

    @Endpoint("DELETE", _ONE, who=CHAT, audit="trigger.delete")
    async def delete_trigger(self, request: Request) -> ASGIApp:
        """Delete a trigger. Its address answers no more; its chats stay."""
        await self._triggers.delete(owner_of(request), request.path_params["trigger_id"])
        return NoContent()

    @Endpoint("POST", f"{_ONE}/rotate", who=CHAT, stores=False, audit="trigger.rotate")
    async def rotate_trigger(self, request: Request) -> ASGIApp:
        """Replace the secret of a trigger. The old one ends at once."""
        stored, secret = await self._triggers.rotate(owner_of(request), request.path_params["trigger_id"])
        return Json({**_shown(stored), **_told(stored, secret)})

    @Endpoint("POST", f"{_ONE}/call/{{token}}", who=ANYONE, audit=None, answers=_CALLED)
    async def call_trigger(self, request: Request) -> ASGIApp:
        """Start a run with the secret in the address. An `Idempotency-Key` starts one, however often it is sent."""
        key = header(request, b"idempotency-key") or header(request, b"webhook-id") or ""
        token = request.path_params["token"]
        return await self._called(request, TriggerCalled(id="", body=b"", token=token, key=key))

    @Endpoint("POST", f"{_ONE}/call", who=ANYONE, audit=None, answers=_CALLED)
    async def call_signed_trigger(self, request: Request) -> ASGIApp:
        """Start a run with a signed call, as Standard Webhooks says. The same `webhook-id` starts one."""
        called = TriggerCalled(
            id="",
            body=b"",
            key=header(request, b"webhook-id") or "",
            timestamp=header(request, b"webhook-timestamp") or "",
            signatures=header(request, b"webhook-signature") or "",
        )
        return await self._called(request, called)

    async def _called(self, request: Request, called: TriggerCalled) -> ASGIApp:
        if len(called.key) > 256 or not called.key.isprintable():
            raise BadRequest("The id of a call has at most 256 printable characters.", param="Idempotency-Key")
        body = await self._bodies.read_bytes(request, LARGEST_PAYLOAD)
        id = request.path_params["trigger_id"]
        run = await self._triggers.call(msgspec.structs.replace(called, id=id, body=body))
        return Json({"run_id": run.id, "session_id": run.record.session_id}, status_code=202)


def _shown(stored: Stored[Trigger]) -> dict[str, Any]:
    calls = stored.body.calls
    return {
        "id": stored.id,
        **msgspec.to_builtins(stored.body.asked),
        "path": f"/api/triggers/{stored.id}/call" + ("" if stored.body.asked.signed else "/…"),
        "last": shown_call(calls[-1]) if calls else None,
        "created_at": native.moment(stored.created_at),
    }


def _told(stored: Stored[Trigger], secret: str) -> dict[str, str]:
    """Return the secret, and the address that is called, once."""
    path = f"/api/triggers/{stored.id}/call"
    return {"secret": secret, "path": path if stored.body.asked.signed else f"{path}/{secret}"}
