"""`holdfast serve`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import click
from msgspec.structs import replace

from ..agents.published import CannotPublish, load_agents
from ..server.app import HoldfastServer, create_app
from ..server.config.loopback import is_loopback
from ..server.config.settings import (
    Settings,
    SettingsError,
    data_folder,
    load_with_sources,
    node_address,
    store_url,
)
from ..server.features.observe.metrics.port import metrics_socket
from ..server.features.settings.reload import NotReloaded, ReadSettings, Reloading
from ..server.kit.http.hardening import forbid_inspection
from ..server.kit.http.local_socket import listening_in
from ..server.kit.http.tls import tls_of
from ..server.kit.http.uvicorn_server import address, is_for_all, listen, serve_forever
from ..server.running.cluster import peers_socket
from ..store.folder import check_folder, make_folder
from ..store.opening import disconnect, open_store
from ..upstreams.local.provider import Local
from .commands import Port, one_line_errors, settings_file_in_use
from .log_format import ServerLog, check_loggers
from .supervisor import NodeLink, NodeMain, Supervisor

logger = logging.getLogger(__name__)

READY = "Holdfast is ready on {}"


@dataclass(frozen=True)
class Start:
    """The parameters of a server's start."""

    read: ReadSettings
    """Reads the settings, now and at each reload."""
    log: ServerLog
    agents: Sequence[str]


@click.command()
@click.option("--host", help="Address to listen on (127.0.0.1). Anything but loopback requires an API key or accounts.")
@click.option("--port", type=Port(0, 65535), help="Port to listen on (8787); 0 for any free port.")
@click.option("--tls-cert", type=click.Path(), help="PEM file with the certificate: serve HTTPS.")
@click.option("--tls-key", type=click.Path(), help="PEM file with the private key of the certificate.")
@click.option("--data", type=click.Path(), help="Data folder.")
@click.option("--store", help="PostgreSQL database that servers share: postgresql://user@host:port/dbname.")
@click.option("--local-model", type=click.Path(), help="GGUF file to use in place of the built-in demo model.")
@click.option("--agent", "agents", multiple=True, help="Publish a Python agent: [NAME=]MODULE:ATTRIBUTE. Repeatable.")
@click.option("--nodes", type=click.IntRange(1, 64), help="Number of server processes. Requires --store.")
@click.option("--config", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml).")
@one_line_errors
def serve(config: str | None, agents: tuple[str, ...], nodes: int | None, **flags: Any) -> None:
    """Start the server.

    The OpenAI-compatible API is under /v1, the native one under /api, the page at /.

    Every setting can also be set as HOLDFAST_<NAME> or in the settings file: --config, else
    ~/.config/holdfast/holdfast.toml, else holdfast.toml in the current folder if only you can write there.
    """
    forbid_inspection()
    choice = settings_file_in_use(config, here=True)

    def read() -> tuple[Settings, dict[str, str]]:
        return load_with_sources(flags, os.environ, config, here=True)

    settings, _ = read()
    if choice.path is not None:
        click.echo(f"Settings file: {choice.path.absolute()}", err=True)
    start = Start(read, ServerLog(settings), agents)
    _check_encryption(settings)
    if settings.store:
        _make_data_folder(settings)
    if nodes is None:
        sock = listen(settings)
        sys.exit(_serve_one(start, sock, lambda url: click.echo(_ready(url, sock, settings))))
    sys.exit(_serve_several(nodes, settings, start))


def _check_encryption(settings: Settings) -> None:
    """Raise if the certificate cannot be used. Log warnings about the encryption."""
    if tls_of(settings) is not None:
        certificates = importlib.import_module(".doctor.certificate", __package__)  # needed only with TLS
        for check in certificates.check_certificate(settings):
            if check.state != "ok":
                logger.warning("%s. %s", check.what, check.advice)
    elif not is_loopback(settings.host):
        logger.warning(
            "Listening on %s without TLS: anyone on the network path can read and change keys and chats. Set tls_cert "
            "and tls_key, or let a proxy with TLS on this machine reach the server at 127.0.0.1.",
            settings.host,
        )


def _make_data_folder(settings: Settings) -> None:
    """Make the folder for everything that is not in the store. A store in the folder does it by itself."""
    folder = data_folder(settings).absolute()
    make_folder(folder)
    check_folder(folder)


def _serve_one(
    start: Start,
    sock: socket.socket,
    on_ready: Callable[[str], object],
    local: Sequence[socket.socket] | None = None,
    link: NodeLink | None = None,
) -> int:
    """Serve until a signal, and return the exit code. `local` are the sockets in the data folder, if they exist.

    One of several nodes has a `link` to its supervisor.
    """
    settings, sources = start.read()
    published = _load(start.agents)
    store = open_store(store_url(settings))
    app = create_app(settings, store, os.environ, sources=sources, agents=published)
    server: HoldfastServer = app.state.server
    server.metrics_socket, server.peers_socket = metrics_socket(settings), peers_socket(settings)
    start.log.node = lambda: server.engine.node_id
    if server.observers.traces is not None:
        start.log.trace = server.observers.traces.ids
    server.settings.reloading = _reloading(server, start)
    if link is not None:
        server.settings.on_reload = link.reload_all
    # Before the start: a refusal is then one line and no traceback.
    asyncio.run(_check_access(server, settings.public_url or address(sock, settings)))

    def ready(url: str) -> None:
        _reload_on_signal(server)
        on_ready(url)
        if link is None or link.number == 0:  # one downloads for all
            _see_to_all_weights(server)

    with listening_in(data_folder(settings).absolute()) if local is None else nullcontext(local) as own:
        return 0 if serve_forever(app, sock, ready, own) else 1


def _serve_several(count: int, settings: Settings, start: Start) -> int:
    """Serve by several nodes on one port, and return the exit code."""
    if not settings.store:
        raise SettingsError(
            "--nodes needs a store on PostgreSQL: SQLite is for one process. Set HOLDFAST_STORE or --store, or leave "
            "--nodes out."
        )
    if not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("--nodes needs SO_REUSEPORT, which this system does not have.")
    with closing(listen(settings)) as alone:  # refused if another server has the port
        settings = replace(settings, port=alone.getsockname()[1], cluster_key=settings.cluster_key or token_hex(16))
    with (
        closing(listen(settings, shared=True)) as kept,  # keeps the port while no node listens
        listening_in(data_folder(settings).absolute()) as local,
    ):

        @one_line_errors
        def node(link: NodeLink) -> int:
            own, sock = _start_of_node(start, settings, link.number), listen(settings, shared=True)
            return _serve_one(own, sock, lambda _: link.ready(), local, link)

        url = address(kept, settings)
        ready = f"{_ready(url, kept, settings)}, by {count} nodes"
        return Supervisor(count, _showing(node), lambda: click.echo(ready)).run()


def _ready(url: str, sock: socket.socket, settings: Settings) -> str:
    """Return the line that names the addresses of the server, each of which can be opened."""
    elsewhere = settings.public_url or url.replace("127.0.0.1", socket.gethostname()).replace(
        "[::1]", socket.gethostname()
    )
    others = f", from other machines {elsewhere}" if is_for_all(sock) or settings.public_url else ""
    return READY.format(url) + others


def _start_of_node(start: Start, first: Settings, number: int) -> Start:
    """Return the parameters of a node. It reads the settings again, as they may have changed since the first start.

    The port and the cluster's key stay: the other nodes have them.
    """

    def read() -> tuple[Settings, dict[str, str]]:
        settings, sources = start.read()
        return node_settings(replace(settings, port=first.port, cluster_key=first.cluster_key), number), sources

    return Start(read, start.log, start.agents)


def node_settings(settings: Settings, number: int) -> Settings:
    """Return the settings of one of several nodes here: each has its own ports for the others and for metrics."""
    host, _, port = node_address(settings).rpartition(":")
    metrics_port = settings.metrics_port and settings.metrics_port + number
    return replace(settings, node_address=f"{host}:{int(port) + number}", metrics_port=metrics_port)


def _showing(node: NodeMain) -> NodeMain:
    """Print an error of a node as the command line does."""

    def wrapped(link: NodeLink) -> int:
        try:
            return node(link)
        except click.ClickException as error:
            error.show()
            return error.exit_code

    return wrapped


def _reloading(server: HoldfastServer, start: Start) -> Reloading:
    """Return the object that reloads the settings file."""

    def checked() -> tuple[Settings, dict[str, str]]:
        settings, sources = start.read()
        check_loggers(settings)
        return settings, sources

    def use(settings: Settings) -> None:
        server.current.now = settings
        start.log.change(settings)

    return Reloading(checked, server.configured, server.keys, os.environ, use)


def _reload_on_signal(server: HoldfastServer) -> None:
    """Reload the settings file at each SIGHUP. The result is logged.

    At a terminal SIGHUP means that the terminal was closed, and ends the server.
    """

    async def reload() -> None:
        with contextlib.suppress(NotReloaded):  # it is logged
            await server.settings.reload_here()

    is_at_terminal = sys.stdin is not None and sys.stdin.isatty()
    if hasattr(signal, "SIGHUP") and not is_at_terminal:  # Windows has none
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: server.tasks.start(reload()))


async def _check_access(server: HoldfastServer, url: str) -> None:
    """Check the settings of access, on an event loop that ends before the server's own begins."""
    try:
        await server.accounts.check_access(can_wait=True)
        if server.people.first_admin:
            where = f"{url.rstrip('/')}/first-admin"
            click.echo(
                f"No accounts yet. Create the first admin at {where} with this code: {server.people.first_admin}"
            )
    finally:
        await disconnect(server.store)


def _load(agents: Sequence[str]) -> dict[str, Any]:
    try:
        return dict(load_agents(agents))
    except CannotPublish as error:
        raise SettingsError(str(error)) from error


def _see_to_all_weights(server: HoldfastServer) -> None:
    providers = server.configured.providers
    for provider in providers.all:
        if isinstance(provider, Local) and not (provider.demo and providers.real):  # else its first run downloads it
            _see_to_weights(provider)


def _see_to_weights(model: Local) -> None:
    """Download the weights of the built-in model while the server already answers, or print how to get them."""
    if why_not := model.why_not():
        click.echo(why_not, err=True)
    elif model.lacks_weights():
        fetch = importlib.import_module(".fetching", __package__).fetch  # a fifth of the startup time, needed once
        threading.Thread(target=fetch, args=[model], name="holdfast-weights", daemon=True).start()
