"""`/api/nodes`: the nodes that share the store."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from ...access import ADMIN
from ...nodes.lease import DRAINING
from ...store.records import NodeRecord
from ...wires import native
from ..errors import Json
from ..metrics.activity import last_minute
from ..routing import Endpoint
from ..services import Parts


async def list_nodes(parts: Parts, request: Request) -> ASGIApp:
    """List the nodes that share the store, in the order of their first start."""
    return Json({"nodes": [_shown(node, parts) for node in await parts.store.nodes()]})


def _shown(node: NodeRecord, parts: Parts) -> dict[str, Any]:
    """Return a node from its last report; this node with its current values."""
    is_this = node.id == parts.engine.node_id
    return {
        "id": node.id,
        "number": node.number,
        "this": is_this,
        "alive": node.lease_left > 0,
        "draining": bool(node.counts.get(DRAINING)),
        "since": native.moment(node.since),
        "version": node.version,
        "address": node.address or None,
        "runs": parts.engine.held.get("runs", 0) if is_this else node.counts.get("runs", 0),
        "lease_left": round(node.lease_left, 1),
        "last_minute": last_minute(parts.activity.counts() if is_this else node.counts),
    }


ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/nodes",
        list_nodes,
        who=ADMIN,
        audit=None,
        answers={200: "the nodes", 403: "not an admin's key", 503: "the store cannot be reached"},
    )
]
