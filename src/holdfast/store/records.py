"""Records of nodes, of requests to them, of API keys, of usage and of the end of a run; and what a search finds."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..access import NO_BUDGET, Budget, Payer, PayerKind
from ..events import AnySettlement
from ..ids import ModelName


class WalPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a database server's write-ahead log, in bytes. None if it is not known."""

    written: int | None = None
    slot_lag: int | None = None
    """Bytes that are kept for the replication slot that is furthest behind; None also without a slot."""


class NodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a node reports each time it renews its lease."""

    address: str = ""
    """`host:port`, for other nodes."""
    version: str = ""
    counts: dict[str, int] = {}


class NodeRecord(NodeDetails, frozen=True, kw_only=True):
    """A node as it is stored. Times are those of the store's clock."""

    number: int
    """A small number, from 1, unique for each id."""
    id: str
    since: float
    """The time since which it has always renewed its lease in time: before half of it had passed."""
    until: float
    seconds: float
    """The length of its lease in seconds."""
    lease_left: float = 0.0
    """Seconds until the end of its lease, as of the read of this record; negative if it had ended."""
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
    """The limits of a key, and the data that lists show."""

    scopes: tuple[str, ...] | None = None
    """None for all scopes that its person or its rights allow."""
    models: tuple[str, ...] | None = None
    """Patterns of model names; None for no limit."""
    agents: tuple[str, ...] | None = None
    expires_at: float | None = None
    prefix: str = ""
    """The first characters of the key, by which its owner recognises it."""
    made_by: str = ""
    """The name of the person or key that made it."""
    budget: Budget = NO_BUDGET


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An API key of the server as it is stored: its digest, never the key itself.

    A revoked key stays in the store, so that the same key cannot be added a second time.
    """

    id: str
    name: str
    sha256: str
    """The digest of the key, in hexadecimal."""
    created_at: float = 0.0
    admin: bool = False
    """True if the key may change the settings."""
    revoked_at: float | None = None
    owner: str = ""
    """The id of the owner whose sessions and runs the key opens. Empty only for a key that was forgotten."""
    account: str = ""
    """The id of the person whose key it is; empty for a service."""
    details: KeyDetails = KeyDetails()
    last_used_at: float | None = None
    """The time of its last use, to about a minute."""


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a run, or of a request that is passed through, until now, and its payer. Or a sum of ended ones."""

    id: str
    owner: str
    model: ModelName
    started_at: float
    payer: Payer = Payer()
    node_id: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """None if the model has no price, or its price is not shown."""
    runs: int = 1
    """The ended runs that it is the sum of."""

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def day(self) -> int:
        """The day on which it started, in days since the epoch. It counts for the budget of this day."""
        return int(self.started_at // 86400)


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """A budget for a period: the limits for all runs that count for it."""

    of: PayerKind
    id: str
    since: int
    """The first day of the period, in days since the epoch."""
    ends_at: float
    """The beginning of the next period, in Unix seconds."""
    tokens: int | None = None
    cost: float | None = None
    runs: int | None = None
    """Maximum number of concurrent runs."""
    requests: int | None = None
    """Maximum number of requests per minute."""


class Spent(msgspec.Struct, frozen=True):
    """The usage of all runs that count for a budget, and the amounts that they hold: usable without a new draw."""

    tokens: int = 0
    cost: float = 0.0
    held_tokens: int = 0
    """At least `tokens`."""
    held_cost: float = 0.0
    running: int = 0
    recent: int = 0
    """Requests of the last minute."""


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """A run's request for more of its budgets. `charge` is its usage until now."""

    charge: Charge
    caps: tuple[Cap, ...]
    opens: bool = False
    """True if the run is about to start. It may be refused, and holds `tokens` and `cost` until its next draw."""
    looks: bool = False
    """True if there is no run: the caller only reads what is left, and nothing is stored."""
    tokens: int = 0
    cost: float = 0.0


CapKind = Literal["tokens", "cost", "runs", "requests"]


class DrawResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a draw: the total that the run may use before its next draw, or why it gets nothing."""

    tokens: int | None = None
    """None for no limit."""
    cost: float | None = None
    refused: CapKind | None = None
    cap: Cap | None = None
    """The budget that is the reason of a refusal."""
    is_spent: bool = False
    """True if that budget is spent. If False, other runs hold the rest of it, and may give it back."""
    left_tokens: int | None = None
    """Tokens that are left of the tightest budget, by the usage until now."""
    left_cost: float | None = None


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a model by an owner on a day, with one key or without."""

    day: int
    owner: str
    key: str
    model: str
    runs: int
    input_tokens: int
    output_tokens: int
    cost: float


class RunEnd(msgspec.Struct, frozen=True):
    """The end of a run, as it is stored."""

    settlement: AnySettlement
    may_be_followed: bool = True
    """False if no run waits in its session. The next one starts at once then, and none has to be looked for."""


class SearchHit(msgspec.Struct, frozen=True):
    """The message of a session that a search has found, and the sentence in it."""

    message_id: str
    excerpt: tuple[tuple[str, bool], ...]
    """The sentence in pieces. The flag of a piece is True if it is a word of the query."""
    offset: int
    """The position of the first of these words in the text of the message, in characters (Unicode code points)."""
