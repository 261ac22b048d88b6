"""Which callers may use which agent. For all others the agent does not exist."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...access import Access, names_agent
from ...errors import AccessEnded
from ..config.settings import Settings

EVERYONE = "*"
Users = tuple[str, ...]
"""The owners that may use an agent, besides admins and those whose groups grant it."""

Rights = Callable[[str], Awaitable[Access | None]]
"""Returns the current rights of an owner; None if it has neither an account nor an active key."""


class AgentUsers:
    """Decides who may use each agent: by its `users` in the settings, by groups, and by the limits of a key."""

    def __init__(self, users: Mapping[str, Users], rights: Rights, models: Mapping[str, str] | None = None) -> None:
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
        if caller.owner in users or names_agent(caller.granted, agent):
            return True
        model = self._models.get(agent)
        return (EVERYONE in users or caller.admin) and (model is None or caller.may_ask(model))

    async def owner_may_use(self, owner: str, agent: str) -> bool:
        """Return whether the owner of a run may use an agent now. For code without a request.

        `AccessEnded` if the owner has lost all access.
        """
        if (access := await self._rights(owner)) is None:
            raise AccessEnded
        return self.may_use(access, agent)


def published_users(settings: Settings, published: Iterable[str]) -> dict[str, Users]:
    """Return the users of each published agent: all, unless `agent_users` names some."""
    return {name: settings.agent_users.get(name, (EVERYONE,)) for name in published}


def models_of(settings: Settings) -> dict[str, str]:
    """Return the models of the agents in the settings."""
    return {agent.name: settings.aliases.get(agent.model, agent.model) for agent in settings.agents}
