"""Records of nodes, of requests to them, and of API keys, as they are stored."""

from __future__ import annotations

from typing import Any

import msgspec


class NodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a node tells of itself each time it renews its lease."""

    address: str = ""
    """`host:port`, for other nodes."""
    version: str = ""
    counts: dict[str, int] = {}


class NodeRecord(NodeDetails, frozen=True, kw_only=True):
    """A node as it is stored. Times are those of the store's clock."""

    number: int
    """Small, from 1, unique for each id."""
    id: str
    since: float
    """From when on it has renewed its lease in time: each time before half of it had passed."""
    until: float
    seconds: float
    """The length of its lease."""
    lease_left: float = 0.0
    """Seconds until its lease ended, when the record was read; below zero if it had ended."""
    fenced: bool = False


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A durable request to the node that owns a run: to stop it, to steer it, to decide on a tool call."""

    id: str
    run_id: str
    kind: str
    body: dict[str, Any] = {}
    asked_by: str = ""
    """The node that waits for the answer."""
    asked_at: float = 0.0
    taken: int = 0
    """The epoch of the owner that has taken it; 0 if none has."""
    answer: dict[str, Any] | None = None


class KeyDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is limited to, and what lists show of it."""

    scopes: tuple[str, ...] | None = None
    """None for all that its person or its rights allow."""
    models: tuple[str, ...] | None = None
    """Patterns of model names; None for no limit."""
    agents: tuple[str, ...] | None = None
    expires_at: float | None = None
    prefix: str = ""
    """The first characters of the key, by which its owner recognises it."""
    made_by: str = ""
    """The name of the person or key that made it."""


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key of the server as it is stored: its digest, never the key itself.

    A revoked key stays in the store, so that nothing can add the same key a second time.
    """

    id: str
    name: str
    sha256: str
    """The digest of the key, in hexadecimal."""
    created_at: float = 0.0
    admin: bool = False
    """The key may change the settings."""
    revoked_at: float | None = None
    owner: str = ""
    """The owner whose sessions and runs the key opens. Empty: the key's name is the owner."""
    account: str = ""
    """The id of the person whose key it is; empty for a service."""
    details: KeyDetails = KeyDetails()
    last_used_at: float | None = None
    """When it was used last, to the minute or so."""
