"""Agents and MCP servers of a running server that are removed or changed in the middle of another request."""

import asyncio

import pytest

from holdfast.access import Access
from holdfast.asks import ChatAsk
from holdfast.errors import ModelNotFound, NotFound
from holdfast.ids import ModelName
from holdfast.pricing import Prices
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.features.agents.accounts import McpAccounts
from holdfast.server.features.agents.agents import AgentChange, AgentList
from holdfast.server.features.agents.servers import McpChange, Servers
from holdfast.server.live.live_settings import Configured
from holdfast.server.live.saved_settings import SavedFile
from holdfast.server.secrets.key_sources import SecretKeys
from holdfast.server.secrets.sealer import Sealer
from holdfast.server.sources.agent_users import AgentUsers
from holdfast.server.sources.agents import AgentSources
from holdfast.server.sources.chat import ChatSources
from holdfast.server.sources.equipment import Equipment
from holdfast.store import RunRecord
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement

WEB = McpChange(name="web", url="http://127.0.0.1:9/mcp", headers={"X-Key": "the first"})
KEPT = McpChange(name="web", url="http://127.0.0.1:9/mcp", headers={"X-Key": None}, approval="deny")
HELPER = AgentChange(name="helper", model="up/m", users=("*",))


class HeldFile(SavedFile):
    """Settings that last as long as the process. Saving them can be held."""

    def __init__(self):
        super().__init__(None)
        self.is_saving, self.may_save = asyncio.Event(), asyncio.Event()
        self.may_save.set()

    async def save(self, saved):
        self.is_saving.set()
        await self.may_save.wait()


class Site:
    """What a server makes of its settings, with an agent and an MCP server that were set up in the page."""

    def __init__(self):
        self.file, store = HeldFile(), MemoryStore()
        settings = Settings(providers=(ProviderSettings("up", base_url="http://127.0.0.1:9/v1", models=("m",)),))
        self.configured = Configured(settings, {}, {}, self.file)
        self.while_rights_are_read = None
        chats = ChatSources(store, self.configured.providers, 0.0)
        users = AgentUsers({}, self.rights)
        self.sources = AgentSources({}, chats, store, self.configured.providers, users=users)
        self.equipment = Equipment(self.configured, self.sources, Prices({}), self.rights, {})
        accounts = McpAccounts(store, Sealer(SecretKeys(Settings(), None)), {}, lambda: 0.0)
        self.servers = Servers(self.configured, self.equipment, accounts)
        self.agents = AgentList(self.configured, self.equipment)

    async def rights(self, owner, key=""):
        if self.while_rights_are_read is not None:
            await self.while_rights_are_read
        return Access(owner, role="admin")

    async def during(self, first, second):
        """Begin the second change while the first is being saved."""
        self.file.is_saving.clear()
        self.file.may_save.clear()
        changing = asyncio.create_task(first)
        await self.file.is_saving.wait()
        later = asyncio.create_task(second)
        await asyncio.sleep(0)  # so that it has looked at what is there
        self.file.may_save.set()
        return (await asyncio.gather(changing, later, return_exceptions=True))[1]


@pytest.fixture
async def site():
    site = Site()
    await site.servers.add(WEB)
    await site.agents.add(HELPER)
    yield site
    await site.configured.providers.close()


@requirement("mcp.managed")
async def test_a_change_of_what_is_removed_meanwhile_finds_nothing(site):
    """An answer that says it was changed would be about something that is not there."""
    changed = await site.during(site.servers.remove("web"), site.servers.replace("web", KEPT))
    again = await site.during(site.agents.remove("helper"), site.agents.replace("helper", HELPER))

    assert [NotFound, NotFound] == [type(changed), type(again)]
    assert ([], []) == ([*site.servers.all()], [*site.agents.all()])


@requirement("mcp.managed")
async def test_a_secret_that_stays_is_the_newest_one(site):
    """Of two admins one changes a header, and the other one something else: the old header does not come back."""
    newer = McpChange(name="web", url=WEB.url, headers={"X-Key": "the second"})
    await site.during(site.servers.replace("web", newer), site.servers.replace("web", KEPT))

    assert ({"X-Key": "the second"}, "deny") == ((web := site.servers.described("web")).headers, web.approval)


@requirement("mcp.managed")
async def test_a_server_that_was_removed_a_moment_ago_is_not_connected(site):
    """A list of servers is read one by one, and one of them may be gone by then."""
    await site.servers.remove("web")

    assert ("idle", None) == site.servers.standing("web", "local")


async def test_an_agent_that_is_removed_while_its_user_is_looked_up_is_unknown(site):
    """The answer is that of an agent that was never there, and no error of the server."""
    site.while_rights_are_read = site.agents.remove("helper")
    record = RunRecord(
        id="run_1", owner="local", model=ModelName("agent/helper"), kind="agent", ask=ChatAsk(messages=[])
    )

    with pytest.raises(ModelNotFound):
        await site.sources.check(record)
