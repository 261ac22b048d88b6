"""Keys that are made and revoked while the server runs, and what happens if nobody can tell which of them count."""

import asyncio
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from holdfast.access import NO_BUDGET, Budget
from holdfast.errors import StoreUnavailable
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.accounts.keys import Keys
from holdfast.server.features.accounts.made_keys import new_key
from holdfast.store import KeyDetails, KeyRecord, Store
from holdfast.store.memory import MemoryStore
from holdfast.store.opening import open_store
from holdfast.store.sqlite.beside import SqliteBeside
from tests.requirements import requirement
from tests.support.http import Client, Incomplete, Response
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import STORES, Server, StartFailed, clean_environment, provider
from tests.support.upstream import Delta, Hang, Headers, Role, Upstream
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOBODY = 65534
PIECES = 500
"""Pieces of an answer of 10 MB: more than fits on the way to a client that does not read."""


class Shown(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


async def holdfast(command: str, *args: str, data: Path, **env: str) -> Shown:
    """Run a command of the command line to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *command.split(), "--data", str(data), *args),
        stdout=PIPE,
        stderr=PIPE,
        env=clean_environment() | _own_environment(data) | env,
        cwd=data.parent,
    )
    async with asyncio.timeout(LONG):
        out, err = await process.communicate()
    assert b"Traceback" not in err, err.decode()
    assert process.returncode is not None
    return Shown(process.returncode, out.decode(), err.decode())


def _own_environment(data: Path) -> dict[str, str]:
    store = {"HOLDFAST_STORE": STORES[data]} if data in STORES else {}
    return {"HOME": str(data), "XDG_CONFIG_HOME": str(data), "COLUMNS": "200"} | store


class StoreBeside:
    """The keys of a store that several servers share. Each call opens it, and waits for it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def list(self) -> list[KeyRecord]:
        return self._do(lambda store: store.list_keys())

    def add(self, key: KeyRecord) -> object:
        return self._do(lambda store: store.add_key(key))

    def revoke(self, id: str, now: float) -> KeyRecord | None:
        return self._do(lambda store: store.revoke_key(id, now))

    def _do(self, work: Callable[[Store], Awaitable[Any]]) -> Any:
        store = open_store(self._url)

        async def done() -> Any:
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(done())


def keys_of(data: Path) -> SqliteBeside | StoreBeside:
    """The keys of the server with a data folder, as the command line changes them. It waits for the disk."""
    return StoreBeside(STORES[data]) if data in STORES else SqliteBeside(data)


async def make(data: Path, name: str, *, admin: bool = False, budget: Budget = NO_BUDGET) -> str:
    """Put a key into the database beside the server, as `holdfast key new` does: another key of a service of that name,
    if there was one."""

    def add() -> str:
        database = keys_of(data)
        known = [key.owner for key in database.list() if key.name == name]
        details = KeyDetails(budget=budget)
        made = new_key(name, admin=admin, owner=known[-1] if known else "", details=details)
        database.add(made.record)
        return made.key

    return await asyncio.to_thread(add)


async def revoke(data: Path, name: str) -> None:
    """Revoke a key beside the server, as `holdfast key revoke` does."""

    def revoke_it() -> KeyRecord | None:
        database = keys_of(data)
        (found,) = [key for key in database.list() if key.name == name and key.revoked_at is None]
        return database.revoke(found.id, time.time())

    assert await asyncio.to_thread(revoke_it) is not None


def bearer(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


async def status(server: Server | Served, key: str | None = None, path: str = "/api/me") -> int:
    async with server.client() as client:
        return (await client.get(path, headers=bearer(key))).status


async def becomes(server: Server | Served, expected: int, key: str | None = None, path: str = "/api/me") -> None:
    """Wait until a caller gets that status."""
    async with asyncio.timeout(SOON):
        while await status(server, key, path) != expected:
            pass


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up() -> AsyncIterator[Upstream]:
    async with Upstream() as up:
        up.models["hanging"] = [Headers(), Role(), Delta("so far"), Hang()]
        up.models["long"] = [Headers(), Role(), *[Delta("x" * 20_000)] * PIECES, Hang()]
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up: Upstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server with a key in its settings, beside which the tests make others."""
    env = {"HOLDFAST_API_KEY": SETTINGS_KEY, "ADA": ADA_KEY}
    config = '[[keys]]\nname = "ada"\nkey_env = "ADA"\nadmin = true'
    providers = [provider(up.base_url, models=None)]
    async with Server(tmp_path_factory.mktemp("keys"), providers, config=config, env=env) as server:
        yield server


SETTINGS_KEY, ADA_KEY = "the-key-of-the-settings", "the-key-of-ada-lovelace"


@asynccontextmanager
async def caller(server: Server, name: str, *, budget: Budget = NO_BUDGET, **options: Any) -> AsyncIterator[Client]:
    """Somebody with a new key of that name, which counts already."""
    key = await make(server.data, name, budget=budget)
    await becomes(server, 200, key)
    async with server.client(**bearer(key), **options) as client:
        yield client


# A key that is needed stays needed.


@requirement("safe.key-needed")
@pytest.mark.one_server("it makes a key before the server has a store")
async def test_when_the_last_key_is_revoked_nobody_gets_in(tmp_path):
    """ "Revoke it, then make another" would open the server to everyone in between, as an admin."""
    data = tmp_path / "data"
    data.mkdir(0o700)
    key = (await holdfast("key new", "alice", data=data)).out.strip()
    async with Server(data) as server:
        assert (200, 401) == (await status(server, key), await status(server))
        shown = await holdfast("key revoke", "alice", data=data)
        await becomes(server, 401, key)
        without = await status(server)
        again = (await holdfast("key new", "alice", data=data)).out.strip()
        await becomes(server, 200, again)

        assert 401 == without
        assert 401 == await status(server, key)

    assert (0, "Revoked alice.\n") == (shown.code, shown.out)
    assert "that was the last key" in shown.err


@requirement("safe.key-needed")
async def test_the_first_key_ends_what_was_opened_without_one(tmp_path):
    """From then on everyone needs a key: who came before it must not go on reading."""
    async with Server(tmp_path / "data") as server, server.client() as client:
        feed = await client.get(f"/api/sessions/{await Native(client).new_session()}/events")
        key = await make(server.data, "alice")

        assert await is_ended(feed)
        await becomes(server, 401)
        assert 200 == await status(server, key)


# Revoking.


async def is_ended(response: Response) -> bool:
    """Wait until the server has ended an answer, with a last frame or by cutting the connection."""
    async with asyncio.timeout(SOON):
        try:
            while await response.next_event() is not None:
                pass
        except Incomplete:
            pass
    return True


async def until(stream: Response, text: str) -> Response:
    """Read a stream until it has told a text."""
    async with asyncio.timeout(LONG):
        while text not in ((await stream.next_event()) or pytest.fail(f"it ended without {text!r}")).data:
            pass
    return stream


EVENTS = {"accept": "text/event-stream"}
MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = {"model": "up/hanging", "messages": MESSAGES}
ATTACHED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat completions": ("/v1/chat/completions", CHAT | {"stream": True}),
    "messages": ("/v1/messages", CHAT | {"stream": True, "max_tokens": 100}),
    "AG-UI": (
        "/ag-ui",
        {
            "threadId": "t",
            "runId": "r",
            "messages": [{"id": "1", **MESSAGES[0]}],
            "forwardedProps": {"model": "up/hanging"},
        },
    ),
    "the native API": ("/api/sessions/{session}/runs", {"model": "up/hanging", "input": "Hi", "lifetime": "attached"}),
}
"""Answers that live by their client, on each wire that has such."""


@requirement("people.keys")
async def test_a_key_is_listed_with_the_scopes_that_it_has(server):
    """An admin looks there for the keys that may change settings. How a key was made makes no difference."""
    ways = {"plain": "", "root": "--admin", "monitor": "--scope admin", "reader": "--scope read"}
    for name, options in ways.items():
        assert 0 == (await holdfast("key new", name, *options.split(), data=server.data)).code
    async with server.client(**bearer(SETTINGS_KEY)) as client:
        listed = (await (await client.get("/api/admin/keys")).json())["keys"]
    for name in ways:
        await revoke(server.data, name)

    assert {
        "plain": ["batch", "chat", "read"],
        "root": ["admin", "batch", "chat", "read"],
        "monitor": ["admin"],
        "reader": ["read"],
    } == {key["name"]: sorted(key["scopes"]) for key in listed if key["name"] in ways}


@requirement("safe.revoked")
@pytest.mark.parametrize(("path", "body"), ATTACHED.values(), ids=ATTACHED)
async def test_revoking_a_key_stops_the_runs_that_live_by_its_connections(server, path, body):
    """An answer that takes an hour would be told to a stranger for an hour, and paid for."""
    async with caller(server, "mallory") as client:
        path = path.format(session=await Native(client).new_session())
        stream = await until(await client.post(path, body, headers=EVENTS), "so far")
        await revoke(server.data, "mallory")

        assert await is_ended(stream)
    async with caller(server, "mallory") as client:
        settled = await Native(client).settled(stream.headers["x-run-id"])
        assert ("stopped", "revoked", "so far") == (settled["outcome"], settled["by"], settled["text"])
        await revoke(server.data, "mallory")


@requirement("safe.revoked")
async def test_revoking_a_key_ends_what_it_watches_and_the_detached_runs_that_it_has_started(server):
    """Whoever had the key would go on spending. Another key of the same owner reads what there is."""
    async with caller(server, "trent") as client:
        api = Native(client)
        session = await api.new_session()
        run = await api.start(session, "Hi", "up/hanging")
        named = await client.post("/v1/chat/completions", CHAT | {"stream": True}, headers={"x-conversation-id": "c"})
        streams = [
            await api.shown(run, "so far"),
            await until(named, "so far"),
            await client.get(f"/api/sessions/{session}/events"),
            await client.get(f"/api/events?session={session}"),
            await client.get("/v1/stream?conv_id=c"),
            await client.get(f"/v1/responses/{run.replace('run_', 'resp_')}?stream=true"),
            await client.get(f"/v1/messages/msg_{run}?stream=true"),
            await client.get(f"/ag-ui/{run}?protocolVersion=1.0"),
            await client.get(f"/api/chat/{run}/stream"),
        ]
        assert [200] * len(streams) == [stream.status for stream in streams]
        await revoke(server.data, "trent")

        assert all([await is_ended(stream) for stream in streams])
    async with caller(server, "trent") as client:
        settled = await Native(client).settled(run)
        await revoke(server.data, "trent")

    assert ("stopped", "revoked", "so far") == (settled["outcome"], settled["by"], settled["text"])


@requirement("safe.revoked")
@pytest.mark.parametrize("budget", [NO_BUDGET, Budget(tokens_per_day=10**6)], ids=["no budget", "a budget"])
async def test_a_stream_ends_in_the_words_of_its_wire(server, budget):
    """A client that was cut off would try again in silence, and one that saw [DONE] would take it for the end. The
    responses to a key with a budget, which have more headers, were cut off."""
    async with caller(server, "oscar", budget=budget) as client:
        stream = await until(await client.post("/v1/chat/completions", CHAT | {"stream": True}), "so far")
        await revoke(server.data, "oscar")
        last = [frame.data async for frame in stream.events(comments=False)]

    assert "unauthorized" == json.loads(last[0])["error"]["code"]


@requirement("safe.revoked")
async def test_who_waits_for_a_whole_answer_is_refused(server):
    """The answer would come long after the key was revoked."""
    async with caller(server, "walter") as client:
        waiting = await client.send("POST", "/v1/chat/completions", json=CHAT)
        await until(await client.post("/v1/chat/completions", CHAT | {"stream": True}), "so far")
        await revoke(server.data, "walter")
        await waiting.head()

        assert (401, "unauthorized") == (waiting.status, (await waiting.json())["error"]["code"])


@requirement("safe.revoked")
@pytest.mark.one_server("each node learns of a revoked key by itself, within a second")
async def test_a_request_that_is_sent_slowly_begins_nothing_after_its_key_was_revoked(server, up):
    """The key was right when the head came, which may be long ago."""
    async with caller(server, "sybil") as client:
        body = json.dumps({"model": "up/echo:never", "messages": MESSAGES}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        key = "\r\n".join(f"{name}: {value}" for name, value in client._headers.items())
        asked = len(up.requests)
        slow = await client.send_raw(f"{head}{key}\r\n\r\n".encode() + body[:-1], method="POST")
        await revoke(server.data, "sybil")
        async with asyncio.timeout(SOON):
            while (await client.get("/api/me")).status != 401:
                pass
        await slow.write(body[-1:])
        await slow.head()

        assert (401, "unauthorized") == (slow.status, (await slow.json())["error"]["code"])
        assert asked == len(up.requests)


@requirement("safe.revoked")
async def test_a_client_that_does_not_read_holds_nothing_up(server):
    """Its run stops at once all the same: the server does not wait for room to tell it so."""
    async with caller(server, "peggy") as client:
        body = CHAT | {"stream": True, "model": "up/long"}
        stalled = await client.post("/v1/chat/completions", body, receive_buffer=2048)
        stalled.stop_reading()
        run = stalled.headers["x-run-id"]
        async with asyncio.timeout(LONG):
            while (await Native(client).run(run))["seq"] < PIECES:
                pass
        await revoke(server.data, "peggy")
        async with caller(server, "peggy") as another, asyncio.timeout(SOON):
            while (told := await Native(another).run(run))["status"] != "settled":
                pass

        settled = told["settlement"]
        assert ("stopped", "revoked") == (settled["outcome"], settled["by"])
        await revoke(server.data, "peggy")


# Keys are made by other processes, at any time.


@requirement("safe.keys-made")
async def test_of_many_keys_that_are_made_at_once_none_is_lost(tmp_path):
    """Each is printed once, so one that is not kept is a key that never works. Here each also makes the database."""
    data = tmp_path / "data"
    made = await asyncio.gather(*(holdfast("key new", f"k{n}", data=data) for n in range(6)))
    listed = await holdfast("key ls", data=data)

    assert [0] * 6 == [shown.code for shown in made], made
    assert {f"k{n}" for n in range(6)} == {line.split("\t")[0] for line in listed.out.splitlines()[1:]}
    async with Server(data) as server:
        assert [200] * 6 == [await status(server, shown.out.strip()) for shown in made]


@requirement("safe.keys-made")
async def test_keys_are_made_and_revoked_while_the_server_writes(server):
    """The database has one writer beside this one: neither may lose a change or be told to come again."""
    async with caller(server, "writer") as client:
        api = Native(client)
        session = await api.new_session()
        names = [f"busy-{n}" for n in range(20)]

        async def talk() -> None:
            for n in range(20):
                await api.settled(await api.start(session, f"Hi {n}", "up/echo:hello"))

        await asyncio.gather(talk(), *(make(server.data, name) for name in names))
        await asyncio.gather(*(revoke(server.data, name) for name in names[:10]))

        kept = {
            key.name for key in await asyncio.to_thread(lambda: keys_of(server.data).list()) if key.revoked_at is None
        }
        assert set(names[10:]) == kept & set(names)
        assert 40 == len((await api.session(session))["messages"])


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    """A data folder of another user. Not under pytest's own, which only its user can enter."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        data = Path(made) / "data"
        data.mkdir(0o700)
        os.chown(data, NOBODY, NOBODY)
        yield data


def as_nobody(*command: str) -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]


def is_for_nobody() -> bool:
    """Tell whether another user could run these tests' Python at all."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return False
    tried = subprocess.run(
        as_nobody(sys.executable, "-c", "import holdfast.server.app"),
        env=clean_environment(),
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


@requirement("safe.keys-made")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.one_server("it looks at the owner of the SQLite file")
async def test_keys_that_root_makes_and_revokes_count_for_a_server_of_another_user(folder_of_nobody):
    """So a service is looked after: it runs as a user of its own, and its administrator is root."""
    if not await asyncio.to_thread(is_for_nobody):
        pytest.skip("another user cannot run this Python")
    data = folder_of_nobody
    server = Server(data, program=as_nobody(sys.executable, "-m", "holdfast"), env={"HOME": str(data)})
    early = await holdfast("key new", "early", data=data)
    async with server:
        assert (200, 401) == (await status(server, early.out.strip()), await status(server))
        late = await holdfast("key new", "late", data=data)
        await becomes(server, 200, late.out.strip())
        revoked = await holdfast("key revoke", "early", data=data)
        await becomes(server, 401, early.out.strip())
        checked = await holdfast("doctor", data=data)
        owners = {file.stat().st_uid for file in data.glob("holdfast.db*")}
        await server.restart()
        again = await status(server, late.out.strip()), await status(server, early.out.strip())

    assert (0, 0, 0) == (early.code, late.code, revoked.code)
    assert {NOBODY} == owners
    assert (200, 401) == again
    assert "ok    1 key\n" in checked.out
    assert f"data folder {data} belongs to nobody" in checked.out


# Rights and names.


@requirement("safe.key-rights")
@pytest.mark.parametrize("name", ["local", "ada", "a b"])
async def test_no_key_is_made_under_a_name_that_is_none_or_is_taken(server, name):
    """A key called `local` was the owner of everything that was ever done without a key, and an admin."""

    async def made() -> set[str]:
        return {key.id for key in await asyncio.to_thread(lambda: keys_of(server.data).list())}

    before = await made()
    shown = await holdfast(
        "key new", "--config", str(server.config), name, data=server.data, HOLDFAST_API_KEY="", ADA=ADA_KEY
    )

    assert (1, "") == (shown.code, shown.out)
    assert re.search(r"name", shown.err)
    assert before == await made()


@requirement("safe.key-rights")
async def test_rights_belong_to_a_key_and_not_to_its_name(server):
    """The settings have an admin ada. Whoever else is called that is none by it."""
    key = await make(server.data, "ada")
    boss = await make(server.data, "boss", admin=True)
    await becomes(server, 200, boss)

    async def is_admin(key: str) -> bool:
        async with server.client(**bearer(key)) as client:
            return bool((await Native(client).get("/api/me"))["admin"])

    assert [True, False, True, True] == [await is_admin(each) for each in (ADA_KEY, key, boss, SETTINGS_KEY)]


# Keys that cannot be read.


@requirement("safe.keys-unreadable")
async def test_keys_that_cannot_be_read_open_nothing(tmp_path, caplog):
    """Nobody knows whether they were revoked. Those of the settings need no store, and count on."""
    store = await asyncio.to_thread(open_store, f"sqlite:{tmp_path}")
    made = new_key("alice")
    await store.add_key(made.record)
    settings = Settings(api_key=SETTINGS_KEY)
    app = create_app(settings, store, NO_HOME, keys=Keys(settings, NO_HOME, store, patience=0.5))
    database = tmp_path / "holdfast.db"
    async with Served(app) as served:
        assert (200, 200) == (await status(served, made.key), await status(served, path="/ready"))
        await asyncio.to_thread(database.rename, tmp_path / "away.db")
        await becomes(served, 503, made.key)
        async with served.client() as client:
            refused = await client.get("/api/me", headers=bearer(made.key))
            not_ready = await client.get("/ready")
            codes = [(await answer.json())["error"]["code"] for answer in (refused, not_ready)]
        others = [await status(served, key) for key in (SETTINGS_KEY, "wrong", None)]
        await asyncio.to_thread((tmp_path / "away.db").rename, database)
        await becomes(served, 200, made.key)
        await becomes(served, 200, path="/ready")

    assert [503, 503] == [refused.status, not_ready.status]
    assert "keys_unavailable" == codes[0]
    assert codes[1] in ("keys_unavailable", "store_unavailable")
    assert [200, 503, 401] == others
    assert "was moved, deleted or replaced" in caplog.text


@requirement("safe.keys-unreadable")
async def test_a_server_without_keys_lets_nobody_in_while_it_cannot_tell_whether_there_is_one_now():
    """The first key may have been made by a command that can write where the server cannot read."""

    class Unreadable(MemoryStore):
        is_away = False

        async def key_changes(self) -> int:
            if self.is_away:
                raise StoreUnavailable("away")
            return await super().key_changes()

    store, settings = Unreadable(), Settings()
    app = create_app(settings, store, NO_HOME, keys=Keys(settings, NO_HOME, store, patience=0.5))
    async with Served(app) as served:
        before = await status(served)
        store.is_away = True
        await becomes(served, 503)
        still = await status(served, path="/health")
        store.is_away = False
        await becomes(served, 200)

    assert (200, 200) == (before, still)


@requirement("safe.revoked", "safe.background")
@pytest.mark.one_server("it takes the descriptors of one process")
async def test_a_key_is_revoked_also_after_the_server_ran_out_of_descriptors(tmp_path):
    """Anyone who can connect can bring that about. One failed look at the keys must not be the last."""
    data = tmp_path / "data"
    data.mkdir(0o700)
    key = await make(data, "mallory")
    async with Server(data) as server:
        await becomes(server, 200, key)
        many = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (server.open_files() + 4, many[1]))
        async with server.client() as crowd:
            held = [await crowd.send_raw(b"GET / HTTP/1.1\r\n") for _ in range(30)]
            await revoke(data, "mallory")
            for one in held:
                one.leave()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, many)

        await becomes(server, 401, key)
        await becomes(server, 200, path="/ready")


# Wrong keys.


@requirement("safe.wrong-keys")
@pytest.mark.one_server("each node slows down the wrong keys that it has seen")
async def test_wrong_keys_are_logged_and_slowed_and_right_ones_are_not(tmp_path):
    """Behind a proxy all come from one address: a guesser must not keep the others out."""
    env = {"HOLDFAST_API_KEY": SETTINGS_KEY}
    async with Server(tmp_path, env=env) as server, server.client() as client:
        for n in range(10):
            assert 401 == (await client.get("/api/me", headers=bearer(f"a-wrong-guess-{n}"))).status
        began = time.monotonic()
        slow = await client.get("/api/me", headers={"x-api-key": "a-wrong-guess-10"})
        slowed = time.monotonic() - began
        right = [await seconds(client, SETTINGS_KEY) for _ in range(5)]
        without = await client.get("/api/me")
        log = server.log_text()

        assert (401, 401) == (slow.status, without.status)
        assert "retry-after" not in slow.headers
        assert min(right) < 0.9 < slowed

    assert ["1", "10"] == re.findall(r"wrong keys from 127\.0\.0\.1: (\d+) within a minute", log)
    assert "a-wrong-guess" not in log


async def seconds(client: Client, key: str) -> float:
    """How long a call takes that must succeed."""
    began = time.monotonic()
    assert 200 == (await client.get("/api/me", headers=bearer(key))).status
    return time.monotonic() - began


@requirement("safe.wrong-keys")
@pytest.mark.parametrize("way", ["api_key", "keys"])
async def test_beyond_loopback_a_key_that_can_be_guessed_is_refused(tmp_path, way):
    """A computer tries a short one in a day."""
    env = {"HOLDFAST_API_KEY": "hunter2"} if way == "api_key" else {"ADA": "hunter2"}
    config = "" if way == "api_key" else '[[keys]]\nname = "ada"\nkey_env = "ADA"'
    with pytest.raises(StartFailed) as refused:
        await Server(tmp_path / "open", args=["--host", "0.0.0.0"], env=env, config=config).__aenter__()
    async with Server(tmp_path / "local", env=env, config=config) as server:
        assert 200 == await status(server, "hunter2")

    assert "fewer than 16 characters" in str(refused.value)
    assert "hunter2" not in str(refused.value)
