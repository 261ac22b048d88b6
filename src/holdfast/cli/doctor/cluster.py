"""Checks of a store on PostgreSQL, and of the servers that share it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from ... import __version__
from ...errors import HoldfastError
from ...peers import Peers
from ...server.config.settings import Settings
from ...store.place import without_password
from ...store.postgres import CONNECTIONS_OF_A_NODE
from ...store.postgres.inspection import Inspection, ServerSettings, inspect_postgres
from ...store.records import NodeRecord
from ..show import plural
from .check import Check

MOST_CLOCK_SECONDS = 2.0
"""Difference between two clocks above which times in the list of chats look wrong."""
PEER_SECONDS = 5.0
"""Time for another server to answer. Servers themselves wait less, and read the store then."""
POOLER = (
    "Connect to PostgreSQL directly, or set the pooler to session mode. pgbouncer: pool_mode = session, "
    "and ignore_startup_parameters = statement_timeout,idle_in_transaction_session_timeout."
)
_WORDS_OF_POOLERS = ("unsupported startup parameter", "prepared statement")


async def check_cluster(settings: Settings) -> list[Check]:
    """Look at PostgreSQL, and connect to each of the other servers."""
    place = without_password(settings.store)
    try:
        found = await inspect_postgres(settings.store)
    except HoldfastError as error:
        is_pooler = any(words in str(error) for words in _WORDS_OF_POOLERS)
        advice = POOLER if is_pooler else "Look at the address, the user and the network."
        return [Check("bad", f"store {place}: {error}", advice)]
    alive = [node for node in found.nodes if node.lease_left > 0]
    return [
        *_schema(found, place),
        *_pooler(found),
        *_safety(found.server),
        *_connections(found.server, len(alive)),
        *_clock(found.clock_difference),
        *_servers(found.nodes),
        *await asyncio.gather(*(_peer(node, settings.cluster_key) for node in alive)),
    ]


def _schema(found: Inspection, place: str) -> Iterator[Check]:
    what = f"store {place}: PostgreSQL {found.server.version}"
    if found.server.major < 14:
        yield Check("bad", what, "Holdfast needs PostgreSQL 14 or newer.")
    elif found.server.is_standby:
        yield Check(
            "bad",
            f"{what} is a standby, which cannot write",
            "Name the primary; with several hosts add ?target_session_attrs=read-write to the address.",
        )
    elif found.schema > found.known_schema:
        newer = f"{what}: schema {found.schema}, and this version knows {found.known_schema}"
        state = "bad" if found.needed_schema > found.known_schema else "note"
        yield Check(state, newer, "Install the newer Holdfast that the other servers have.")
    elif found.schema < found.known_schema:
        older = f"schema {found.schema} of {found.known_schema}" if found.schema else "no tables yet"
        yield Check("note", f"{what}: {older}", "The next server that starts makes it up to date.")
    else:
        yield Check("ok", f"{what}, schema {found.schema}, {plural(found.keys, 'key')}")


def _pooler(found: Inspection) -> Iterator[Check]:
    if found.is_pooled:
        yield Check("bad", "a pooler in transaction mode stands before PostgreSQL: it breaks LISTEN and leases", POOLER)
    else:
        yield Check("ok", "no transaction pooler: a connection keeps its session")


def _safety(server: ServerSettings) -> Iterator[Check]:
    if not server.flushes:
        yield Check("bad", "fsync is off: a power cut can destroy the database", "Set fsync = on in postgresql.conf.")
    if server.synchronous_commit == "off":
        yield Check("note", "synchronous_commit is off by default; connections of Holdfast turn it on")
    elif server.synchronous_commit == "local" and server.standby_names:
        advice = "Set it to on, so that a failover loses nothing that was acknowledged."
        yield Check("note", "synchronous_commit is local: commits do not wait for the standby", advice)
    if not server.standby_names:
        advice = "A failover to an asynchronous standby loses the last moments. See docs/cluster.md."
        yield Check("note", f"no synchronous standby (asynchronous ones: {server.standbys})", advice)
    elif server.synchronous_standbys:
        yield Check("ok", f"synchronous standbys: {server.synchronous_standbys}")
    elif server.hidden_standbys:
        yield Check("note", "the state of the standbys is hidden from this user", "Grant it the role pg_monitor.")
    else:
        advice = "Start the standby, or remove it from synchronous_standby_names."
        yield Check("bad", "no synchronous standby is connected: commits wait until one is", advice)


def _connections(server: ServerSettings, nodes: int) -> Iterator[Check]:
    needed = CONNECTIONS_OF_A_NODE * nodes
    what = f"{server.connections} connections allowed; {plural(nodes, 'server')} may need {needed}"
    advice = (
        f"A server opens up to {CONNECTIONS_OF_A_NODE}. Raise max_connections, or the limit of the user or database."
    )
    if server.connections < needed:
        yield Check("bad", what, advice)
    elif server.connections < needed + CONNECTIONS_OF_A_NODE:
        yield Check("note", f"{what}, and there is no room for one more", advice)
    else:
        yield Check("ok", what)


def _clock(difference: float) -> Iterator[Check]:
    what = f"the clock of this machine differs from PostgreSQL's by {abs(difference):.1f} s"
    if abs(difference) > MOST_CLOCK_SECONDS:
        advice = "Leases follow PostgreSQL's clock, times of chats this one. Synchronise both, with NTP for example."
        yield Check("note", what, advice)
    else:
        yield Check("ok", what)


def _servers(nodes: Sequence[NodeRecord]) -> Iterator[Check]:
    alive = [node for node in nodes if node.lease_left > 0]
    versions = sorted({node.version for node in alive} | {__version__})
    if len(versions) > 1:
        what = f"{plural(len(alive), 'server')}, of different versions: {', '.join(versions)} (here {__version__})"
        yield Check("note", what, "That is fine during an upgrade. Complete it.")
    else:
        yield Check("ok", f"{plural(len(alive), 'server')} running")
    for node in nodes:
        if node.lease_left <= 0:
            what = (
                f"server {node.number}{_at(node)} has not renewed its lease, which ended {-node.lease_left:.0f} s ago"
            )
            yield Check("note", what, "It has died, or cannot reach PostgreSQL. Another server takes over its runs.")


async def _peer(node: NodeRecord, key: str) -> Check:
    name = f"server {node.number}{_at(node)}"
    if not node.address:
        return Check(
            "note", f"{name} has no cluster key", "Readers of its runs elsewhere get them by way of the store."
        )
    if not key:
        return Check("note", f"{name} has a cluster key, and this one has none", "Set HOLDFAST_CLUSTER_KEY here too.")
    try:
        has_same_key = await Peers(key).has_same_key(node.address, seconds=PEER_SECONDS)
    except OSError as error:
        is_silent = isinstance(error, TimeoutError | ConnectionResetError)
        reason = "no answer" if is_silent else error.strerror or str(error)
        advice = (
            "Open its port for the other servers, or set HOLDFAST_NODE_ADDRESS there to an address that they reach. "
            "Until then readers elsewhere get its runs by way of the store, a little later."
        )
        return Check("bad", f"{name} cannot be reached from here: {reason}", advice)
    if not has_same_key:
        return Check("bad", f"{name} has another cluster key", "Give all servers the same HOLDFAST_CLUSTER_KEY.")
    return Check("ok", f"{name} answers, with the same cluster key")


def _at(node: NodeRecord) -> str:
    return f" at {node.address}" if node.address else ""
