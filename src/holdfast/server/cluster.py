"""This server as one of several nodes on a store: its address, its lease, and the port for the other nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from .. import __version__
from ..engine.engine import Engine
from ..peers import PeerServer
from ..store.nodes import NodeDetails
from .config.settings import Settings, node_address

ALONE, SHARED = 15.0, 9.0  # seconds


def details_of(settings: Settings) -> NodeDetails:
    """Return what this server tells the other nodes of itself."""
    return NodeDetails(address=node_address(settings) if settings.cluster_key else "", version=__version__)


def lease_of(settings: Settings) -> float:
    """Return the seconds of a lease: if servers share a store, others take over the runs of one that is dead."""
    return SHARED if settings.store else ALONE


@asynccontextmanager
async def peers_served(engine: Engine, settings: Settings) -> AsyncGenerator[None]:
    """Listen for the other nodes, which follow the logs of this one. Without a cluster key they read the store."""
    if not (settings.store and settings.cluster_key):
        yield
        return
    server = PeerServer(engine, settings.cluster_key)
    await server.start(settings.host, int(node_address(settings).rpartition(":")[2]))
    try:
        yield
    finally:
        await server.close()
