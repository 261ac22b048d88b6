"""Which callers may use which agent. For all others the agent does not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Protocol

from ...access import Access, names_agent, settings_owner
from ...errors import AccessEnded
from ...ids import ModelName
from ...store import RunRecord
from ..config.settings import Settings

EVERYONE = "*"
Users = tuple[str, ...]
"""The owners and groups that may use an agent, besides admins and those whose groups grant it. A name stands for the
key of the settings file with that name."""


class Rights(Protocol):
    """Returns the current rights of an owner, or of one of its keys; None if it may do nothing any more."""

    def __call__(self, owner: str, key: str = "", /) -> Awaitable[Access | None]:
        """Return the rights."""
        ...


class AgentUsers:
    """Decides who may use each agent: by its `users` in the settings, by groups, and by the limits of a key."""

    def __init__(
        self, users: Mapping[str, Users], rights: Rights, models: Mapping[str, ModelName] | None = None
    ) -> None:
        """`models` are the models of the agents, by the names of the agents."""
        self._users = users
        self._rights = rights
        self._models = models or {}

    def may_use(self, caller: Access, agent: str) -> bool:
        """Return whether a caller may use an agent. False for an unknown agent.

        An agent that is open to all still requires that the caller may use its model.
        """
        users = self._users.get(agent)
        if users is None:
            return False
        if not all(names_agent(limit, agent) for limit in caller.agents):
            return False
        named = (caller.owner, *caller.groups)
        if any(user in named or caller.owner == settings_owner(user) for user in users):
            return True
        if names_agent(caller.granted, agent):
            return True
        model = self._models.get(agent)
        return (EVERYONE in users or caller.admin) and (model is None or caller.may_ask(model))

    async def owner_may_use(self, record: RunRecord, agent: str) -> bool:
        """Return whether the owner of a run may use an agent now. For code without a request."""
        return self.may_use(await self.require_access(record), agent)

    async def require_access(self, record: RunRecord) -> Access:
        """Return the rights of the owner of a run. `AccessEnded` if it, or the key of the run, has lost all access."""
        payer, access = record.payer, await self._rights(record.owner)
        if access is None or (payer.key and await self._rights(payer.owner or record.owner, payer.key) is None):
            raise AccessEnded
        return access


def published_users(settings: Settings, published: Iterable[str]) -> dict[str, Users]:
    """Return the users of each published agent: all, unless `agent_users` names some."""
    return {name: settings.agent_users.get(name, (EVERYONE,)) for name in published}


def models_of(settings: Settings) -> dict[str, ModelName]:
    """Return the models of the agents in the settings, which name them in full, or by an alias."""
    return {agent.name: ModelName(settings.aliases.get(agent.model, agent.model)) for agent in settings.agents}
