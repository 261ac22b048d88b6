"""A server of our own, for as long as a command needs one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import msgspec

from ..server.app import create_app
from ..server.keys import Keys
from ..server.serving import address, listen, serve_in_background
from ..server.settings import Settings, data_folder
from ..store.opening import open_store
from ..store.sqlite import StoreInUse
from .client import CallFailed

NO_KEYS = Keys(Settings(), {})
"""For a port that nobody else knows."""


@asynccontextmanager
async def own_server(settings: Settings, sources: Mapping[str, str]) -> AsyncGenerator[str]:
    """Run a server with these settings on a free port, and yield its address."""
    local = msgspec.structs.replace(settings, host="127.0.0.1", port=0, api_key="", keys=(), drain=0.0)
    try:
        store = await asyncio.to_thread(open_store, f"sqlite:{data_folder(settings)}")
    except StoreInUse as error:
        raise CallFailed(f"{error} If it is a server, name it with --url instead of --data.") from None
    sock = listen(local)
    app = await asyncio.to_thread(create_app, local, store, keys=NO_KEYS, sources=sources)
    async with serve_in_background(app, sock):
        yield address(sock)
