"""A temporary server for one command."""

from __future__ import annotations

import asyncio
import os
import pathlib
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import msgspec

from ..server.app import create_app
from ..server.config.settings import Settings, store_url
from ..server.features.accounts.keys import Keys
from ..server.kit.http.hardening import forbid_inspection
from ..server.kit.http.local_socket import bind
from ..server.kit.http.uvicorn_server import serve_in_background
from ..store.opening import open_store
from ..store.sqlite import StoreInUse
from .client import CallFailed

NO_KEYS = Keys(Settings(), {})
"""Only the owner of the socket's folder can connect, so no key is needed."""


@asynccontextmanager
async def own_server(settings: Settings, sources: Mapping[str, str]) -> AsyncGenerator[pathlib.Path]:
    """Run a server with these settings, and yield the folder of its socket, the only way to reach it.

    It has no port: any user of the machine could connect to one, and would be an admin without a key.
    """
    local = msgspec.structs.replace(settings, host="127.0.0.1", api_key="", keys=(), drain=0.0)
    try:
        store = await asyncio.to_thread(open_store, store_url(settings))
    except StoreInUse as error:
        raise CallFailed(f"{error} If that is a server, use it with --url.") from None
    forbid_inspection()
    app = await asyncio.to_thread(create_app, local, store, os.environ, keys=NO_KEYS, sources=sources)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as made:  # with mode 0700
        folder = pathlib.Path(made)
        async with serve_in_background(app, bind(folder)):
            yield folder
