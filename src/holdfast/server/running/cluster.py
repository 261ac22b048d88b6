"""This server as one of several nodes on a store: its address, its lease, and the port for the other nodes."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ... import __version__
from ...engine.core import Core
from ...peers import PeerServer
from ...store.records import NodeDetails
from ..config.settings import Settings, SettingsError, node_address

ALONE, SHARED = 15.0, 9.0  # seconds


def details_of(settings: Settings) -> NodeDetails:
    """Return the data that this server reports to the other nodes."""
    return NodeDetails(address=node_address(settings) if settings.cluster_key else "", version=__version__)


def lease_of(settings: Settings) -> float:
    """Return the seconds of a lease. It is shorter on a shared store, where others take over a dead node's runs."""
    return SHARED if settings.store else ALONE


def peers_socket(settings: Settings) -> socket.socket | None:
    """Return a socket that listens on the port for other nodes; None if they only read the store."""
    if not (settings.store and settings.cluster_key):
        return None
    host, port = settings.host, int(node_address(settings).rpartition(":")[2])
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SettingsError(
            f"Cannot listen on {host}:{port} for the other servers: {reason}. "
            "Set node_address to a host and a port that are free."
        ) from error


@asynccontextmanager
async def peers_served(engine: Core, settings: Settings, sock: socket.socket | None = None) -> AsyncGenerator[None]:
    """Serve the other nodes, which follow the logs of this one. Without a cluster key they read the store.

    `sock` listens already.
    """
    sock = sock or peers_socket(settings)
    if sock is None:
        yield
        return
    server = PeerServer(engine, settings.cluster_key)
    await server.start(sock)
    try:
        yield
    finally:
        await server.close()
