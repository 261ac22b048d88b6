"""The command line: composition, nothing else."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from . import __version__
from .errors import HoldfastError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def main() -> None:
    """Runs that outlive the connection, stop when told, keep every word, and never call a failure a success.

    \b
    holdfast serve                 start the server on http://127.0.0.1:8787
    holdfast serve --port 9000     ... somewhere else
    """


@main.command()
@click.option("--host", help="Address to listen on (127.0.0.1). Any other than loopback needs a key.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (8787); 0 picks a free one.")
@click.option("--data", type=click.Path(), help="Folder for everything that is kept.")
@click.option("--config", type=click.Path(), help="Settings file (holdfast.toml).")
def serve(config: str | None, **flags: Any) -> None:
    """Start the server: the OpenAI API under /v1, our own under /api.

    Every setting can also be given as HOLDFAST_<NAME>, or in the settings file.
    """
    from .server.app import create_app
    from .server.serving import listen, serve
    from .server.settings import data_folder, load
    from .store.opening import open_store

    try:
        settings = load(flags, os.environ, config)
        logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
        folder = data_folder(settings)
        app = create_app(settings, open_store(str(folder)))
        sock = listen(settings)
    except HoldfastError as error:
        raise click.ClickException(str(error)) from None
    started = serve(app, sock, settings, lambda url: click.echo(f"Holdfast is ready on {url}"))
    sys.exit(0 if started else 1)
