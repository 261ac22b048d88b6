"""`holdfast serve`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
import threading
from typing import Any

import click

from ..agents.published import CannotPublish, load_agents
from ..server.app import check_access, create_app
from ..server.config.reload import NotReloaded, ReadSettings, Reloading
from ..server.config.settings import Settings, SettingsError, data_folder, load_with_sources, store_url
from ..server.http.hardening import forbid_inspection
from ..server.http.local_socket import listening_in
from ..server.http.uvicorn_server import listen, serve_forever
from ..server.metrics.port import metrics_socket
from ..server.services import Parts
from ..store.opening import disconnect, open_store
from ..upstreams.local.provider import Local
from .commands import tell_of_file, telling
from .log_format import ServerLog, check_loggers


@click.command()
@click.option("--host", help="Address to listen on (127.0.0.1). Any address but loopback needs an API key.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on (8787); 0 for any free port.")
@click.option("--data", type=click.Path(), help="Data folder.")
@click.option("--store", help="PostgreSQL database that servers share: postgresql://user@host:port/dbname.")
@click.option("--model", type=click.Path(exists=True, dir_okay=False), help="GGUF file for the embedded model.")
@click.option("--agent", "agents", multiple=True, help="Publish a Python agent: [NAME=]MODULE:ATTRIBUTE. Repeatable.")
@click.option("--config", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml).")
@telling
def serve(config: str | None, agents: tuple[str, ...], **flags: Any) -> None:
    """Start the server.

    The OpenAI-compatible API is under /v1, the native one under /api, the browser UI at /.

    Every setting can also be set as HOLDFAST_<NAME> or in the settings file: --config, else
    ~/.config/holdfast/holdfast.toml, else holdfast.toml in the current folder if only you can write there.
    """
    forbid_inspection()
    _name_file(config)
    settings, sources = load_with_sources(flags, os.environ, config, here=True)
    log = ServerLog(settings)
    published = _load(agents)
    sock = listen(settings)
    store = open_store(store_url(settings))
    app = create_app(settings, store, os.environ, sources=sources, agents=published)
    parts: Parts = app.state.parts
    parts.metrics_socket = metrics_socket(settings)
    log.node = lambda: parts.engine.keeper
    parts.reloading = _reloading(parts, log, lambda: load_with_sources(flags, os.environ, config, here=True))
    asyncio.run(_check_access(parts))  # before the start: a refusal is then one line and no traceback
    with listening_in(data_folder(settings).absolute()) as local:
        ended_well = serve_forever(app, sock, lambda url: _is_ready(url, parts), local)
    sys.exit(0 if ended_well else 1)


def _reloading(parts: Parts, log: ServerLog, read: ReadSettings) -> Reloading:
    """Return what takes in the settings file again."""

    def checked() -> tuple[Settings, dict[str, str]]:
        settings, sources = read()
        check_loggers(settings)
        return settings, sources

    def use(settings: Settings) -> None:
        parts.settings = settings
        log.change(settings)

    return Reloading(checked, parts.configured, parts.keys, os.environ, use)


def _reload_on_signal(parts: Parts) -> None:
    """Take in the settings file at each SIGHUP. The log has the result.

    At a terminal SIGHUP means that the terminal was closed, and ends the server.
    """

    async def reload() -> None:
        with contextlib.suppress(NotReloaded):  # it is logged
            await parts.reload()

    is_at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if hasattr(signal, "SIGHUP") and not is_at_terminal:  # Windows has none
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: parts.tasks.start(reload()))


async def _check_access(parts: Parts) -> None:
    """Check who may call, on a loop that ends before the server's own begins."""
    try:
        await check_access(parts)
    finally:
        await disconnect(parts.store)


def _name_file(config: str | None) -> None:
    """Print the settings file in use, before its settings take effect."""
    choice = tell_of_file(config, here=True)
    if choice.path is not None:
        click.echo(f"Settings file: {choice.path.absolute()}", err=True)


def _load(agents: tuple[str, ...]) -> dict[str, Any]:
    try:
        return dict(load_agents(agents))
    except CannotPublish as error:
        raise SettingsError(str(error)) from error


def _is_ready(url: str, parts: Parts) -> None:
    _reload_on_signal(parts)
    click.echo(f"Holdfast is ready on {url}")
    providers = parts.configured.providers
    for provider in providers.all:
        if isinstance(provider, Local) and not (provider.demo and providers.real):  # else its first run downloads it
            _see_to_weights(provider)


def _see_to_weights(model: Local) -> None:
    """Download the weights of the embedded model while the server already answers, or print how to get them."""
    if why_not := model.why_not():
        click.echo(why_not, err=True)
    elif model.lacks_weights():
        fetch = importlib.import_module(".fetching", __package__).fetch  # a fifth of the startup time, needed once
        threading.Thread(target=fetch, args=[model], name="holdfast-weights", daemon=True).start()
