"""The incidents of docs/incidents.md: each is made to happen, and shows every sign that the page promises."""

import asyncio
import re
import sys
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest

from tests.acceptance.test_metrics import Figures
from tests.faults.test_store_away import FileLimit
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import ROOT, Server, provider
from tests.support.tcp_proxy import TcpProxy
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream, answer
from tests.support.waiting import LONG

PAGE = (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8")
CONDITION = re.compile(r'(\w+)(?:\{(\w+)="(\w+)"\})? (==|>) (\d+)')
ADMIN, LEAKED = "a" * 32, "l" * 32


class Signs(NamedTuple):
    """What an incident shows, as its table says: words in backticks, by place."""

    metrics: list[str]
    ready: list[str]
    log: list[str]
    doctor: list[str]


def signs(incident: str) -> Signs:
    """Return the signs of an incident from its section of the page."""
    section = PAGE.partition(f"## {incident}\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+?) \| (.+) \|$", section, re.MULTILINE))
    found = [re.findall(r"`([^`]+)`", rows[place]) for place in ("metrics", "`/ready`", "log", "`holdfast doctor`")]
    assert all(found), f"{incident} promises nothing somewhere: {found}"
    return Signs(*found)


class Watched:
    """A server as its operator sees it."""

    def __init__(self, server: Server, metrics_port: int) -> None:
        self.server = server
        self._metrics_port = metrics_port

    async def shows(self, promised: Signs) -> None:
        """Wait until every sign is there. At the time limit, name those that are not."""
        missing: list[str] = []
        try:
            async with asyncio.timeout(LONG):
                while missing := await self._missing(promised):  # noqa: ASYNC110 - an operator looks again, too
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"not seen: {missing}; the log: {self.server.log_text()[-3000:]}") from None

    async def _missing(self, promised: Signs) -> list[str]:
        figures, ready = await self._figures(), await self._ready()
        missing = [sign for sign in promised.metrics if not holds(sign, figures)]
        missing += [sign for sign in promised.ready if sign not in ready]
        missing += [sign for sign in promised.log if sign not in self.server.log_text()]
        if not missing:
            said = await doctor(self.server)
            missing = [sign for sign in promised.doctor if sign not in said]
        return missing

    async def _figures(self) -> Figures:
        async with Client(f"http://127.0.0.1:{self._metrics_port}") as client:
            return Figures(await (await client.get("/metrics")).text())

    async def _ready(self) -> str:
        async with self.server.client() as client:
            response = await client.get("/ready")
            return f"{response.status} {await response.text()}"

    async def is_well(self) -> None:
        """Wait until it is ready again, by itself."""
        async with asyncio.timeout(LONG):
            while not (await self._ready()).startswith("200 "):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


def holds(condition: str, figures: Figures) -> bool:
    """Return whether a condition as alerts have it is true: `name{label="value"} > 0`."""
    match = CONDITION.fullmatch(condition)
    assert match is not None, f"{condition} cannot be checked"
    name, label, value, operator, number = match.groups()
    found = figures(name, **({label: value} if label else {}))
    return found == float(number) if operator == "==" else found > float(number)


async def doctor(server: Server) -> str:
    """Return what `holdfast doctor` prints with the settings of a server, each sentence on one line."""
    where = ["--config", str(server.config), "--data", str(server.data)]
    env = server.environment | {"COLUMNS": "1000", "HOLDFAST_PORT": str(server.port)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "doctor", *where), stdout=asyncio.subprocess.PIPE, env=env, cwd=server.data
    )
    return (await process.communicate())[0].decode()


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def up(stack):
    return await stack.enter_async_context(Upstream())


@pytest.fixture
def watched(stack, up, tmp_path):
    """`await watched(config, env, name)` is a server that measures itself."""

    async def start(config: str = "", env: dict[str, str] | None = None, name: str = "one") -> Watched:
        port = free_port()
        folder = tmp_path / name
        server = Server(folder, [provider(up.base_url)], config=f"metrics_port = {port}\n{config}", env=env)
        return Watched(await stack.enter_async_context(server), port)

    return start


async def begun(client: Any, up: Upstream) -> str:
    """Start a run that hangs after its first words, and return its id."""
    api = Native(client)
    up.enqueue([Headers(), Role(), Delta("half "), Hang()])
    run = await api.start(await api.new_session(), "Go on", "up/m")
    (await api.shown(run, "half ")).close()
    return run


@requirement("ops.incidents")
async def test_an_upstream_is_slow(watched, up):
    """The server itself is well: nothing has to be restarted."""
    one = await watched("idle_limit = 1.0\n")
    async with one.server.client() as client:
        run = await begun(client, up)
        await one.shows(signs("An upstream is slow or silent"))
        settlement = await Native(client).settled(run)

    assert ("failed", "half ") == (settlement["outcome"], settlement["text"])


@requirement("ops.incidents")
async def test_postgresql_is_away(watched, up, stack, postgres):
    """Runs wait, and settle when it is back."""
    way = await stack.enter_async_context(TcpProxy(postgres.port))
    one = await watched(env={"HOLDFAST_STORE": postgres.url(await postgres.new_database(), way.port)})
    async with one.server.client() as client:
        api = Native(client)
        run = await begun(client, up)
        way.cut()
        await one.shows(signs("PostgreSQL is away"))
        await way.listen()
        await one.is_well()
        stopped = await api.stop(run)

    assert ("stopped", "half ") == (stopped["settlement"]["outcome"], stopped["settlement"]["text"])


@requirement("ops.incidents")
async def test_a_disk_is_full(watched, up, tmp_path):
    """Nothing that was acknowledged is lost, and with space all goes on by itself."""
    one = await watched()
    disk = FileLimit(one.server.data)
    async with one.server.client() as client:
        run = await begun(client, up)
        disk.fill(one.server)
        await one.shows(signs("The disk is full"))
        disk.free(one.server)
        await one.is_well()
        stopped = await Native(client).stop(run)

    assert "half " == stopped["settlement"]["text"]


@requirement("ops.incidents")
async def test_a_node_is_dead(watched, up, postgres):
    """The other one settles its runs. The signs are those of the survivor."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database())}
    dead, survivor = await watched(env=env, name="dead"), await watched(env=env, name="survivor")
    async with dead.server.client() as client:
        run = await begun(client, up)
    await dead.server.kill9()
    await survivor.shows(signs("A node is dead"))
    async with survivor.server.client() as client:
        settlement = await Native(client).settled(run)

    assert ("interrupted", "half ") == (settlement["outcome"], settlement["text"])


@requirement("ops.incidents")
async def test_a_key_has_leaked(watched, up):
    """Once it is revoked, its streams end, and who still has it is seen."""
    config = '[[keys]]\nname = "boss"\nkey_env = "BOSS"\nadmin = true\n'
    one = await watched(config, {"BOSS": ADMIN})
    made = await command(one.server, "key", "new", "laptop")
    async with one.server.client(authorization=f"Bearer {made}") as thief:
        await answers(thief, "/v1/models", 200)
        up.enqueue([Headers(), Role(), Delta("half "), Hang()])
        reader = await thief.post("/v1/chat/completions", {**HI, "stream": True})
        await reader.next_event()
        await command(one.server, "key", "revoke", "laptop")
        await reader.all_events()
        refused = [(await thief.post("/v1/chat/completions", HI)).status for _ in range(2)]
    await one.shows(signs("A key has leaked"))
    up.enqueue(answer("Well."))
    async with one.server.client(authorization=f"Bearer {ADMIN}") as boss:
        served = (await boss.post("/v1/chat/completions", HI)).status

    assert ([401, 401], 200) == (refused, served)


async def answers(client: Client, path: str, status: int) -> None:
    """Wait until a call has a status: a new key works within a second."""
    async with asyncio.timeout(LONG):
        while status != (await client.get(path)).status:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


HI = {"model": "up/m", "messages": [{"role": "user", "content": "Hi"}]}


async def command(server: Server, *words: str) -> str:
    """Run a command of the operator beside a server, and return the last line that it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *words, "--data", str(server.data)),
        stdout=asyncio.subprocess.PIPE,
        env=server.environment,
        cwd=server.data,
    )
    out = (await process.communicate())[0].decode()
    assert 0 == process.returncode, out
    return out.strip().rpartition("\n")[2]
