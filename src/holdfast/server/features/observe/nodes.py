"""`/api/nodes`: the nodes that share the store."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import ADMIN
from ....engine.core import Core
from ....nodes.lease import DRAINING
from ....store import Store
from ....store.records import NodeRecord
from ....wires import native
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from .metrics.activity import Activity, last_minute


class NodesApi(Feature):
    """The nodes of the cluster."""

    def __init__(self, activity: Activity, engine: Core, store: Store) -> None:
        self._activity, self._engine, self._store = activity, engine, store

    @Endpoint(
        "GET",
        "/api/nodes",
        who=ADMIN,
        audit=None,
        answers={403: "not an admin's key", 503: "the store cannot be reached"},
    )
    async def list_nodes(self, request: Request) -> ASGIApp:
        """List the nodes that share the store, in the order of their first start."""
        return Json({"nodes": [self._shown(node) for node in await self._store.nodes()]})

    def _shown(self, node: NodeRecord) -> dict[str, Any]:
        """Return a node from its last report; this node with its current values."""
        is_this = node.id == self._engine.node_id
        return {
            "id": node.id,
            "number": node.number,
            "this": is_this,
            "alive": node.lease_left > 0,
            "draining": bool(node.counts.get(DRAINING)),
            "since": native.moment(node.since),
            "version": node.version,
            "address": node.address or None,
            "runs": self._engine.held.get("runs", 0) if is_this else node.counts.get("runs", 0),
            "lease_left": round(node.lease_left, 1),
            "last_minute": last_minute(self._activity.counts() if is_this else node.counts),
        }
