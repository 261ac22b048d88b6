"""Which callers may use which agent. For all others the agent does not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ..config.settings import Settings

EVERYONE = "*"
Users = tuple[str, ...]
"""The names of keys that may use an agent, besides those with admin rights."""


class Caller(Protocol):
    """The caller of a request, or the owner of a run that starts without one."""

    @property
    def owner(self) -> str:
        """The name of the key."""
        ...

    @property
    def admin(self) -> bool:
        """Whether the key has admin rights."""
        ...


Rights = Callable[[str], Caller | None]
"""Returns an owner with the rights that its keys have now; None if it has no key in force."""


class AgentUsers:
    """Decides who may use each agent, by its `users` in the settings."""

    def __init__(self, users: Mapping[str, Users], rights: Rights) -> None:
        self._users = users
        self._rights = rights

    def may_use(self, caller: Caller | None, agent: str) -> bool:
        """Return whether a caller may use an agent. An unknown agent is for no one."""
        users = self._users.get(agent)
        if users is None:
            return False
        return EVERYONE in users or (caller is not None and (caller.admin or caller.owner in users))

    def owner_may_use(self, owner: str, agent: str) -> bool:
        """Return whether the owner of a run may use an agent now, when there is no request to ask."""
        return self.may_use(self._rights(owner), agent)


def published_users(settings: Settings, published: Iterable[str]) -> dict[str, Users]:
    """Return the users of each published agent: all, unless `agent_users` names some."""
    return {name: settings.agent_users.get(name, (EVERYONE,)) for name in published}
