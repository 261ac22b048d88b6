"""`holdfast serve`."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from typing import Any

import click

from ..agent.published import CannotPublish, load
from ..providers.local import Local
from ..server.app import create_app
from ..server.context import Parts
from ..server.serving import listen, serve_forever
from ..server.settings import SettingsError, data_folder, load_with_sources
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
@click.option("--config", type=click.Path(), help="Settings file (holdfast.toml).")
@telling
def serve(config: str | None, agents: tuple[str, ...], **flags: Any) -> None:
    """Start the server: the OpenAI API under /v1, our own under /api.

    Every setting can also be given as HOLDFAST_<NAME>, or in the settings file.
    """
    settings, sources = load_with_sources(flags, os.environ, config)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    published = _load(agents)
    sock = listen(settings)
    store = open_store(f"sqlite:{data_folder(settings)}")
    app = create_app(settings, store, sources=sources, agents=published)
    has_started = serve_forever(app, sock, lambda url: _is_ready(url, app.state.parts))
    sys.exit(0 if has_started else 1)


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
