"""From settings to what the features stand on: the store, the people, the live settings and the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.published import CannotPublish, Published, published
from ..concurrency.signals import heard_at_signals
from ..store import Store
from ..store.opening import open_store
from .config.current import CurrentSettings
from .config.settings import AGENT, Settings, SettingsError, data_folder
from .features.accounts.keys import Keys
from .features.accounts.owners import Owners
from .features.accounts.people.client_addresses import TrustedProxies
from .features.accounts.people.people import People
from .features.observe.metrics.observers import Observers, observers_of
from .live.live_settings import Configured
from .live.notes import StoredNotes
from .live.provider_factory import NEAR
from .live.saved_settings import SavedFile
from .live.shared_settings import SavedDocument
from .running.running import Running
from .secrets.key_sources import SecretKeys
from .secrets.sealer import Sealer


class Opened(NamedTuple):
    """What the features of a server stand on. Each gets only what it needs of it."""

    current: CurrentSettings
    environ: Mapping[str, str]
    configured: Configured
    keys: Keys
    people: People
    sealer: Sealer
    observers: Observers
    running: Running


def open_server(
    settings: Settings,
    store: Store | str | None = None,
    environ: Mapping[str, str] | None = None,
    keys: Keys | None = None,
    sources: Mapping[str, str] | None = None,
    look_every: float = NEAR,
    agents: Mapping[str, Any] | None = None,
) -> Opened:
    """Open a server, as `create_app` says."""
    folder = None if environ is None and not settings.data else data_folder(settings, environ or {})
    store = _store_of(store, folder)
    environ = environ or {}
    if keys is None:
        keys = Keys(settings, environ, store)
    observers = observers_of(settings)
    store = observers.store(store)
    sealer = Sealer(SecretKeys(settings, folder, cluster_key=_lasting_cluster_key(settings, sources)))
    saved = SavedDocument(store, sealer) if settings.store else SavedFile(folder, sealer)
    configured = Configured(
        settings,
        sources or {},
        environ,
        saved,
        look_every=look_every,
        has_keys=lambda: keys.is_needed,
        notes=StoredNotes(store),
    )
    proxies = TrustedProxies(settings.proxy.addresses)
    people = People(store, on_first=keys.need, proxies=proxies, factor_for=settings.second_factor)
    owners, publish = Owners(keys, people.callers), _published(agents or {}, settings)
    running = Running(settings, store, configured, owners, observers, publish=publish, environ=environ)
    return Opened(CurrentSettings(settings), environ, configured, keys, people, sealer, observers, running)


def _store_of(store: Store | str | None, folder: Path | None) -> Store:
    """Return the store. One that is named by a URL is opened, which blocks on the disk."""
    if store is None:
        store = "memory:" if folder is None else f"sqlite:{folder}"
    return open_store(store) if isinstance(store, str) else store


def _lasting_cluster_key(settings: Settings, sources: Mapping[str, str] | None) -> str:
    """Return the cluster key if it may seal secrets. A key that was generated for this start does not last."""
    return settings.cluster_key if sources is None or "cluster_key" in sources else ""


def _published(agents: Mapping[str, Any], settings: Settings) -> dict[str, Published]:
    """Return the agents to publish. Raise an error if one is invalid."""
    if agents and any(provider.name == AGENT for provider in settings.providers):
        raise SettingsError(f"The provider name {AGENT!r} is reserved for agents.")
    for table, named in (("agent_users", settings.agent_users), ("agent_think", settings.agent_think)):
        if unknown := sorted(named.keys() - agents.keys()):
            raise SettingsError(
                f"{table} names {unknown[0]!r}, which is not a published agent. "
                "An agent of [[agents]] is described in its own table."
            )
    try:
        return published(agents, settings.agent_think)
    except CannotPublish as error:
        raise SettingsError(str(error)) from None


@asynccontextmanager
async def until_end(end: Callable[[], Coroutine[None, None, None]], *, hears_signals: bool) -> AsyncGenerator[None]:
    """End a server after the block, or at a signal: another ASGI server than ours would wait for open streams."""
    ending: list[asyncio.Task[None]] = []

    def begin() -> None:
        if not ending:
            ending.append(asyncio.create_task(end()))

    with heard_at_signals(begin) if hears_signals else nullcontext():
        yield
    begin()
    await ending[0]
