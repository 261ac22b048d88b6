"""What a person has allowed an agent for longer than once: see it, and take it back."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import NotFound
from ..store import Document
from ..wire import native
from .agents import GRANT, grants_of
from .context import Endpoint, Parts, owner_of
from .errors import Json


async def list_grants(parts: Parts, request: Request) -> Response:
    """List what is allowed for longer than once, the newest first."""
    return Json({"grants": [_shown(grant) for grant in await grants_of(parts.store, owner_of(request))]})


async def delete_grant(parts: Parts, request: Request) -> Response:
    """Take an allowance back: the tool is asked for again."""
    grant = await parts.store.get_document(GRANT, request.path_params["grant_id"])
    if grant is None or grant.owner != owner_of(request):
        raise NotFound(f"There is no grant {request.path_params['grant_id']!r}.")
    await parts.store.delete_document(GRANT, grant.id)
    return Response(status_code=204)


def _shown(grant: Document) -> dict[str, Any]:
    named = {name: grant.body[name] for name in ("agent", "tool", "session_id")}
    return {"id": grant.id, **named, "created_at": native.moment(grant.created_at)}


ENDPOINTS = [
    Endpoint("GET", "/api/grants", list_grants, answers={200: "what is allowed for longer than once"}),
    Endpoint("DELETE", "/api/grants/{grant_id}", delete_grant, answers={204: "taken back", 404: "no such grant"}),
]
