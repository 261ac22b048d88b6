"""`/api/grants`: list and revoke approvals for longer than one call."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import CHAT, READ
from ...errors import NotFound
from ...store.documents import Stored
from ...wires import native
from ..caller import owner_of
from ..errors import Json, NoContent
from ..routing import Endpoint
from ..services import Parts
from ..sources.agents import Grant, grants_in


async def list_grants(parts: Parts, request: Request) -> ASGIApp:
    """List grants, the newest first."""
    grants = grants_in(parts.store).all(owner=owner_of(request))
    return Json({"grants": [_shown(grant) async for grant in grants]})


async def delete_grant(parts: Parts, request: Request) -> ASGIApp:
    """Revoke a grant: the tool needs an approval again."""
    grants, grant_id = grants_in(parts.store), request.path_params["grant_id"]
    if await grants.get(grant_id, owner=owner_of(request)) is None:
        raise NotFound(f"There is no grant {grant_id!r}.")
    await grants.delete(grant_id)
    return NoContent()


def _shown(grant: Stored[Grant]) -> dict[str, Any]:
    return {"id": grant.id, **msgspec.structs.asdict(grant.body), "created_at": native.moment(grant.created_at)}


ENDPOINTS = [
    Endpoint("GET", "/api/grants", list_grants, who=READ, answers={200: "grants"}),
    Endpoint(
        "DELETE",
        "/api/grants/{grant_id}",
        delete_grant,
        who=CHAT,
        audit="grant.delete",
        answers={204: "taken back", 404: "no such grant"},
    ),
]
