"""`holdfast serve`."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

import click

from ..agent.published import CannotPublish, load
from ..providers.local import Local
from ..server.app import create_app
from ..server.context import Parts
from ..server.serving import listen, serve_forever
from ..server.settings import MOST_WORKERS, SettingsError, data_folder, load_with_sources, processes_of
from ..store.opening import open_store
from .commands import telling


@click.command()
@click.option("--host", help="Address to listen on (127.0.0.1). Any other than loopback needs a key.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (8787); 0 picks a free one.")
@click.option("--data", type=click.Path(), help="Folder for everything that is kept.")
@click.option("--model", type=click.Path(exists=True, dir_okay=False), help="A GGUF file for the embedded model.")
@click.option(
    "--agent", "agents", multiple=True, help="Publish an agent of yours: [name=]module:attribute. Repeatable."
)
@click.option("--workers", type=click.IntRange(0, MOST_WORKERS), help="Processes to share the work (1); 0: one a core.")
@click.option("--config", type=click.Path(), help="Settings file (holdfast.toml).")
@telling
def serve(config: str | None, agents: tuple[str, ...], **flags: Any) -> None:
    """Start the server: the OpenAI API under /v1, our own under /api.

    Every setting can also be given as HOLDFAST_<NAME>, or in the settings file.
    """
    settings, sources = load_with_sources(flags, os.environ, config)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    processes = processes_of(settings)
    published = _load(agents)
    sock = listen(settings)
    store = open_store(f"sqlite:{data_folder(settings)}")
    app = create_app(settings, store, sources=sources, agents=published)
    sys.exit(0 if _serve(app, sock, processes, sources) else 1)


def _serve(app: Any, sock: socket.socket, processes: int, sources: Mapping[str, str]) -> bool:
    """Serve until a signal, with one process or several."""
    parts: Parts = app.state.parts
    if processes == 1:
        return serve_forever(app, sock, lambda url: _is_ready(url, parts))

    def is_ready(url: str) -> None:
        _is_ready(url, parts)
        click.echo(f"{processes} processes share the work: this one has the data folder.")

    crew = importlib.import_module("..server.crew", __package__)  # which one process has no use for
    return bool(crew.serve_together(app, sock, processes, is_ready, sources))


def _load(agents: tuple[str, ...]) -> dict[str, Any]:
    try:
        return dict(load(agents))
    except CannotPublish as error:
        raise SettingsError(str(error)) from error


def _is_ready(url: str, parts: Parts) -> None:
    click.echo(f"Holdfast is ready on {url}")
    for provider in parts.providers.all:
        if isinstance(provider, Local):
            _see_to_weights(provider)


def _see_to_weights(model: Local) -> None:
    """Fetch what the embedded model needs while the server already answers, or say how to get it."""
    if why_not := model.why_not():
        click.echo(why_not, err=True)
    elif model.lacks_weights():
        fetch = importlib.import_module(".fetching", __package__).fetch  # a fifth of the start, needed once
        threading.Thread(target=fetch, args=[model], name="holdfast-weights", daemon=True).start()
