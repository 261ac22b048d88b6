"""`holdfast serve`."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from ..server.app import create_app
from ..server.serving import listen, serve_forever
from ..server.settings import data_folder, load
from ..store.opening import open_store
from .commands import telling


@click.command()
@click.option("--host", help="Address to listen on (127.0.0.1). Any other than loopback needs a key.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (8787); 0 picks a free one.")
@click.option("--data", type=click.Path(), help="Folder for everything that is kept.")
@click.option("--config", type=click.Path(), help="Settings file (holdfast.toml).")
@telling
def serve(config: str | None, **flags: Any) -> None:
    """Start the server: the OpenAI API under /v1, our own under /api.

    Every setting can also be given as HOLDFAST_<NAME>, or in the settings file.
    """
    settings = load(flags, os.environ, config)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    sock = listen(settings)
    store = open_store(f"sqlite:{data_folder(settings)}")
    app = create_app(settings, store)
    has_started = serve_forever(app, sock, lambda url: click.echo(f"Holdfast is ready on {url}"))
    sys.exit(0 if has_started else 1)
