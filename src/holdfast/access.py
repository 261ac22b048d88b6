"""Access: who a caller is, what it may do, and the rule of each endpoint. Nothing is allowed that no rule names."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from .errors import KeyEnd, KeyRevoked
from .ids import ModelName
from .watchers import Wake, Watchers

ACCESS = "holdfast.access"
"""The key of a request's `Access` in its scope."""
RULE = "holdfast.rule"
"""The key of the endpoint's `AccessRule` in the scope of a request."""

LOCAL = "local"
"""The owner of requests without a key, or with `api_key`. The first account takes it over."""
_OF_SETTINGS = "conf_"

AccountRole = Literal["guest", "member", "admin"]
"""What a person is: a guest reads what is shared with them, a member chats, an admin runs the server."""
KeyScope = Literal["read", "chat", "batch", "admin"]
"""What a key is for. `chat` and `batch` include `read`."""
KEY_SCOPES: frozenset[KeyScope] = frozenset(("read", "chat", "batch", "admin"))
MEMBER_SCOPES: frozenset[KeyScope] = frozenset(("read", "chat", "batch"))
Whose = Literal["own", "readable", "writable", "all"]
"""Whose things an endpoint reaches: the caller's own; also those shared for reading, or for writing; or everyone's."""
FactorFor = Literal["nobody", "admins", "all"]
"""Who must have a second factor to sign in with a password."""
FRESH = 600.0
"""Seconds for which a proof counts: a sign-in, or the password again."""
Via = Literal["local", "key", "sign_in"]
"""How a caller was recognised: as the only user of this machine, by an API key, or by a person's sign-in."""

Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=10**12)]

_RANK: dict[AccountRole, int] = {"guest": 0, "member": 1, "admin": 2}


def settings_owner(name: str) -> str:
    """Return the owner of a key of the settings file. No account and no key of the store can have such an owner."""
    return _OF_SETTINGS + name


def is_of_settings(owner: str) -> bool:
    """Return whether an owner is that of a key of the settings file."""
    return owner.startswith(_OF_SETTINGS)


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a person, a key or a group may use. None: no limit of its own. Days and months are those of UTC."""

    tokens_per_day: Count | None = None
    tokens_per_month: Count | None = None
    cost_per_day: Amount | None = None
    """In the currency of the settings."""
    cost_per_month: Amount | None = None
    runs_at_once: Count | None = None
    requests_per_minute: Count | None = None
    """Requests to models: runs that start, and what is passed on to an upstream."""
    bytes_stored: Count | None = None
    """Of all that is stored: messages and pictures, runs with their requests and logs, comparisons, batches."""

    @property
    def counts_money(self) -> bool:
        """Whether it limits costs, so that every model needs a price."""
        return self.cost_per_day is not None or self.cost_per_month is not None

    def over(self, other: Budget) -> Budget:
        """Return this budget, with the limits of another one that it does not set itself."""
        return Budget(
            **{
                name: other_one if (own := getattr(self, name)) is None else own
                for name in self.__struct_fields__
                for other_one in (getattr(other, name),)
            }
        )


NO_BUDGET = Budget()
PayerKind = Literal["owner", "key", "group"]


class Budgeted(msgspec.Struct, frozen=True):
    """A budget, and what it is for: an owner, a key or a group, by its id."""

    of: PayerKind
    id: str
    budget: Budget


class Payer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who pays for a run."""

    owner: str = ""
    """The owner who started it; empty for the run's own."""
    key: str = ""
    """The id of the API key that started it; empty if a person did, or a key of the settings."""
    groups: tuple[str, ...] = ()
    """The ids of the person's groups when it started."""
    limited: bool = False
    """Whether it counts for a budget, so that it is measured while it runs."""


class AccessRule(msgspec.Struct, frozen=True):
    """Who may call an endpoint, and on whose things. All others get 401 or 403; things of others are 404."""

    name: str
    role: AccountRole | None = None
    """The lowest role that may call it; None for anyone, without a credential."""
    scope: KeyScope | None = None
    """The scope that a key must have."""
    whose: Whose = "own"
    person: bool = False
    """Only a signed-in person may call it: no key can."""
    fresh: bool = False
    """With a sign-in only within ten minutes after it, or after the person has entered the password again."""
    before_factor: bool = False
    """Also for a person who has yet to set up the second factor that the server requires."""

    def admits(self, access: Access) -> bool:
        """Return whether a caller may call the endpoint."""
        if self.role is None:
            return True
        if access.role is None or _RANK[access.role] < _RANK[self.role]:
            return False
        if self.person and access.via != "sign_in":
            return False
        if access.lacks_factor and not self.before_factor:
            return False
        return self.scope is None or self.scope in access.scopes


ANYONE = AccessRule("anyone")
LINK = AccessRule("link")
"""For anyone who has a link. The token in the path decides what is shown, and a link may ask for a sign-in too."""
READ = AccessRule("read", "guest", "read")
READ_FRESH = AccessRule("read_fresh", "guest", "read", fresh=True)
"""To read much at once: a key is enough, and a sign-in only for as long as it is fresh."""
READ_SHARED = AccessRule("read_shared", "guest", "read", "readable")
CHAT = AccessRule("chat", "member", "chat")
CHAT_SHARED = AccessRule("chat_shared", "member", "chat", "writable")
BATCHES = AccessRule("batch", "member", "batch")
ADMIN = AccessRule("admin", "admin", "admin", "all")
PERSON = AccessRule("person", "guest", None, "own", person=True)
PERSON_FRESH = AccessRule("person_fresh", "guest", None, "own", person=True, fresh=True)
"""For what a stolen cookie must not be enough for: keys, e-mail, export, deletion, passkeys, the end of sign-ins."""
ME = AccessRule("me", "guest", "read", before_factor=True)
SIGN_IN = AccessRule("sign_in", "guest", None, "own", person=True, before_factor=True)
"""For a person's own sign-in and second factor."""
RULES = (
    *(ANYONE, LINK, READ, READ_FRESH, READ_SHARED, CHAT, CHAT_SHARED, BATCHES),
    *(ADMIN, PERSON, PERSON_FRESH, ME, SIGN_IN),
)


class Access:
    """The access of a caller: owner, rights, and whether it was revoked. All requests with one key share one.

    An open stream watches it, so that revoking a key or ending a sign-in ends the stream too. That costs a dict entry
    for each stream.
    """

    __slots__ = (
        "_ended",
        "_watchers",
        "account",
        "admin",
        "agents",
        "allowed",
        "budgets",
        "credential",
        "expires_at",
        "granted",
        "groups",
        "is_revoked",
        "lacks_factor",
        "models",
        "name",
        "owner",
        "proven_at",
        "role",
        "rules",
        "scopes",
        "via",
    )

    def __init__(
        self,
        owner: str,
        *,
        role: AccountRole | None = "member",
        scopes: frozenset[KeyScope] = KEY_SCOPES,
        via: Via = "key",
        name: str = "",
        account: str = "",
        credential: str = "",
        expires_at: float | None = None,
        allowed: Allowed | None = None,
    ) -> None:
        self.owner = owner
        """Whose things the caller reaches."""
        self.via = via
        self.account = account
        """The id of the person; empty for the key of a service, and without accounts."""
        self.credential = credential
        """The id of the key or of the sign-in."""
        self.expires_at = expires_at
        self.allowed = allowed or Allowed()
        """What the key itself is limited to, besides the limits of its person."""
        self.name = name or owner
        """The name that others see. It is only a label."""
        self.proven_at = 0.0
        """When the person has proved last who it is; infinite if each request is a proof."""
        self.is_revoked = False
        self._ended: KeyEnd = "revoked"
        self._watchers = Watchers()
        self.give(role, scopes)

    def give(
        self,
        role: AccountRole | None,
        scopes: frozenset[KeyScope],
        *,
        groups: tuple[str, ...] = (),
        of_groups: Allowed | None = None,
        budgets: tuple[Budgeted, ...] = (),
        lacks_factor: bool = False,
    ) -> None:
        """Set the rights. An admin's scope is worth nothing to a key whose person is no admin."""
        self.lacks_factor = lacks_factor
        """Whether the person has yet to set up a second factor, and may do nothing else."""
        self.role = role
        """None until the rights of a person's key are read."""
        self.scopes: frozenset[KeyScope] = scopes | {"read"} if scopes & {"chat", "batch"} else scopes
        self.groups = groups
        self.admin = role == "admin" and "admin" in scopes
        """Whether the caller may change the settings."""
        self.models = _both(self.allowed.models, of_groups.models if of_groups else None)
        """Patterns of which a model's name must match one in each set."""
        self.agents = _both(self.allowed.agents)
        self.granted = of_groups.agents or () if of_groups else ()
        """Patterns of agents whose tools write or run that the person's groups have."""
        self._count_for(budgets)
        self.rules = frozenset(rule.name for rule in RULES if rule.admits(self))
        """The names of the rules that admit the caller."""

    def _count_for(self, others: tuple[Budgeted, ...]) -> None:
        own = Budgeted("key", self.credential, self.allowed.budget)
        self.budgets = others if own.budget == NO_BUDGET else (*others, own)
        """All budgets that a run of the caller counts for, besides that of the settings."""

    def may_ask(self, model: ModelName) -> bool:
        """Return whether the caller may use a model."""
        return not self.models or all(names_model(limit, model) for limit in self.models)

    @property
    def is_watched(self) -> bool:
        """Whether an open response depends on it."""
        return bool(len(self._watchers))

    def limit(self, budget: Budget, expires_at: float | None) -> None:
        """Set another budget and another end of the key. What runs goes on."""
        self.allowed = replace(self.allowed, budget=budget)
        self.expires_at = expires_at
        self._count_for(tuple(each for each in self.budgets if each.of != "key"))

    def revoke(self, how: KeyEnd = "revoked") -> int:
        """Revoke it, and end the open responses. Returns how many there were."""
        self.is_revoked, self._ended = True, how
        watching = len(self._watchers)
        self._watchers.notify()
        return watching

    def end_error(self) -> KeyRevoked:
        """Return the error for a request that its end has ended."""
        return KeyRevoked(self._ended)

    def restore(self) -> None:
        """Accept it again: the person of a key may do something again."""
        self.is_revoked = False

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` at its revocation, until the returned function is called."""
        return self._watchers.watch(wake)


class Allowed(msgspec.Struct, frozen=True):
    """The models and agents that a key or a group is limited to, as patterns such as `openai/*`. None for no limit."""

    models: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    budget: Budget = NO_BUDGET


def names_model(patterns: Iterable[str], model: ModelName) -> bool:
    """Return whether a pattern names a model. One without a slash is for models of any provider."""
    own = model.partition("/")[2]
    return any(fnmatchcase(model if "/" in pattern else own, pattern) for pattern in patterns)


def names_agent(patterns: Iterable[str], agent: str) -> bool:
    """Return whether a pattern names an agent, with or without `agent/` before its name."""
    return any(fnmatchcase(agent, pattern.removeprefix("agent/")) for pattern in patterns)


def _both(*limits: tuple[str, ...] | None) -> tuple[tuple[str, ...], ...]:
    return tuple(limit for limit in limits if limit is not None)
