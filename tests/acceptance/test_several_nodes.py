"""Two servers on one store: each is a node, and what one of them does besides runs, the other leaves alone."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holdfast.agents.shell import Shell
from holdfast.server.app import HoldfastServer, create_app
from holdfast.server.config.settings import ProviderSettings, Settings, SettingsError, WebhookSettings
from holdfast.server.features.accounts.made_keys import new_key
from holdfast.server.live.saved_settings import KeptSettings, Saved, to_keep
from holdfast.server.secrets.sealer import Sealer, SealingKey, sealing_key
from holdfast.server.sources.agents import StoredGrants
from holdfast.store import RunRecord
from holdfast.store.documents import Documents
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_webhooks import SECRET, Ears, begin
from tests.requirements import requirement
from tests.support.batches import World, asked_of
from tests.support.http import Client
from tests.support.ports import free_port
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Upstream, answer
from tests.support.waiting import LONG


class Node:
    """One of the servers: its client, and its parts."""

    def __init__(self, app: Any, client: Client) -> None:
        self.server: HoldfastServer = app.state.server
        self.client = client

    @property
    def id(self) -> str:
        return self.server.engine.node_id

    async def look(self) -> None:
        """Look for what others have left, as it does by itself every few seconds."""
        await self.server.engine.look()


@asynccontextmanager
async def nodes(
    up: Upstream, medium: MemoryStore | None = None, /, count: int = 2, **settings: Any
) -> AsyncIterator[list[Node]]:
    """Servers on one store, which know of each other."""
    medium = medium or MemoryStore()
    described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b", "c"))
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            address = {"node_address": f"127.0.0.1:{free_port()}"} if "cluster_key" in settings else {}
            given = Settings(providers=(described,), **settings, **address)
            app = create_app(given, medium, NO_HOME | {"HOOK": SECRET})
            served = await stack.enter_async_context(Served(app))
            made.append(Node(app, await stack.enter_async_context(served.client())))
        for node in made:
            await node.look()
        yield made


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONG):
        while not await is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def fence(node: Node, by: Node) -> None:
    """Let a node notice that it was taken for dead, as after a long pause; the other takes what it had."""
    await node.server.store.release(node.id)
    await node.server.engine.check_store()
    await by.look()


@requirement("nodes.work")
async def test_a_batch_is_worked_on_by_one_node_and_shown_by_all():
    """A server that starts later leaves it alone: each question is asked once."""
    async with Upstream([Gate("go"), *answer("42")]) as up, nodes(up) as (one, two):
        batch = await World(up, one.client).create(3)
        await two.server.evals.batches.jobs.take_up_all()  # as at its start
        await two.look()
        assert two.server.evals.batches.work(batch["id"]) is None
        up.gates.open("go")
        ended = await World(up, two.client).settled(batch)

        assert ("finished", 9) == (ended["status"], ended["progress"]["done"])
        assert {1} == set(asked_of(up).values())
        assert "" == await one.server.store.holder("batch", batch["id"])


@requirement("nodes.progress")
async def test_the_progress_of_a_batch_is_sent_by_every_node():
    """A client that was sent to another node saw nothing between the start and the end."""
    async with Upstream([Gate("go"), *answer("42")]) as up, nodes(up) as (one, two):
        batch = await World(up, one.client).create(3, ["up/a"], concurrency=2)
        events = await two.client.get(f"/api/batches/{batch['id']}/events")

        async def seen(done: int, running: int) -> None:
            async with asyncio.timeout(LONG):
                while (frame := await events.next_event()) is not None and frame.event == "batch.progress":
                    progress = frame.json()["progress"]
                    if (progress["done"], progress["running"]) == (done, running):
                        return
            raise AssertionError("it ended before")

        await seen(0, 2)
        shown = await World(up, two.client).get(batch)
        up.gates.open("go")
        last = [frame.event for frame in await events.all_events()][-1]

    assert {"total": 3, "done": 0, "failed": 0, "running": 2} == shown["progress"]
    assert "batch.settled" == last


@requirement("nodes.work")
async def test_a_batch_of_a_node_that_was_taken_for_dead_is_finished_by_another():
    """The first leaves its cells open, and does not disturb the second."""
    async with Upstream([Gate("go"), *answer("42")]) as up, nodes(up) as (one, two):
        batch = await World(up, one.client).create(3, ["up/a"])
        await until(lambda: _is(len(up.requests) > 0))
        await fence(one, two)
        up.gates.open("go")
        ended = await World(up, two.client).settled(batch)

        assert ("finished", 3, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
        assert one.server.evals.batches.work(batch["id"]) is None
        assert 3 == len(await World(up, one.client).cells(batch))


@requirement("nodes.work", "batch.stop")
async def test_a_batch_is_stopped_resumed_and_deleted_through_any_node():
    """The node that works on it learns of it, and the answer of a stop comes after the last run has ended."""
    async with Upstream([Gate("go"), *answer("42")]) as up, nodes(up) as (one, two):
        here, there = World(up, one.client), World(up, two.client)
        batch = await here.create(3, ["up/a"])
        await until(lambda: _is(len(up.requests) > 0))
        stopped = await there.post(batch, "stop")
        left = one.server.engine.live()
        resumed = await there.post(batch, "resume")
        await until(lambda: _is(two.server.evals.batches.work(batch["id"]) is not None))
        up.gates.open("go")
        ended = await here.settled(batch)
        other = await here.create(3, ["up/b"])
        deleted = await two.client.request("DELETE", f"/api/batches/{other['id']}")
        await until(lambda: _none(one.server.store.list_documents(f"cell:{other['id']}")))
        await until(lambda: _none(one.server.store.list_documents(f"prompts:{other['id']}")))

    assert ("stopped", []) == (stopped["status"], left)
    assert "running" == resumed["status"]
    assert ("finished", 3) == (ended["status"], ended["progress"]["done"])
    assert 204 == deleted.status


@requirement("nodes.work", "batch.once")
async def test_one_key_at_two_nodes_makes_one_batch():
    """A client whose first request got no answer repeats it, and a proxy sends that to another server."""
    async with Upstream(answer("42")) as up, nodes(up) as (one, two):
        asked = {"models": ["up/a"], "prompts": [{"prompt": "Hi"}]}
        made = await asyncio.gather(
            *(node.client.post("/api/batches", asked, headers={"idempotency-key": "k"}) for node in (one, two))
        )
        batches = [await response.json() for response in made]
        await World(up, one.client).settled(batches[0])

    assert [202, 202] == [response.status for response in made]
    assert 1 == len({batch["id"] for batch in batches})
    assert 1 == len(up.requests)


@requirement("nodes.work", "hook.told")
async def test_a_webhook_is_delivered_by_one_node_and_by_another_if_that_one_is_gone():
    """Both start with the same deliveries in the store: a listener hears of each end once."""
    ears = Ears(200)
    script = [Headers(), Role(), Delta("Hi"), Gate("go"), Finish(), Done()]
    async with Upstream(script) as up, Served(ears.app) as listener:
        hook = WebhookSettings(f"{listener.url}/hook", "HOOK")
        async with nodes(up, webhooks=(hook,)) as (one, two):
            first, second = [await begin(one.client, "up/a") for _ in range(2)]
            await two.server.notifications.deliveries.jobs.take_up_all()  # as at its start
            up.gates.open("go")
            heard = [await ears.next() for _ in range(2)]
            await until(lambda: _none(one.server.store.list_documents("webhook")))

            ears.statuses = [500]
            third = await begin(one.client, "up/b")
            failed = await ears.next()
            ears.statuses = [200]
            await fence(one, two)
            told = await ears.next()
            await until(lambda: _none(one.server.store.list_documents("webhook")))

    assert {first, second} == {_id(body) for _, _, body in heard}
    assert third == _id(failed[2]) == _id(told[2])
    assert failed[1]["webhook-id"] == told[1]["webhook-id"]
    assert ears.heard.empty()


async def compared(node: Node, **more: Any) -> Any:
    """Begin a detached comparison of two models."""
    asked = {"models": ["up/a", "up/b"], "prompt": "Hi", "lifetime": "detached", **more}
    response = await node.client.post("/api/comparisons", asked)
    assert 202 == response.status, await response.text()
    return await response.json()


@requirement("nodes.work", "cmp.detached")
async def test_a_comparison_is_read_watched_and_stopped_through_any_node():
    """One pane waits for the other, and no other node takes that for the trace of a crash."""
    script = [Headers(), Role(), Delta("Half "), Gate("never"), Finish(), Done()]
    async with Upstream(script) as up, nodes(up) as (one, two):
        made = await compared(one, order="sequential")
        path = f"/api/comparisons/{made['id']}"
        await two.server.compare.rounds.jobs.take_up_all()  # as at its start
        read = await (await two.client.get(path)).json()
        watched = await two.client.get(f"{path}/events")
        frames = [await watched.next_event() for _ in range(2)]
        refused = await two.client.post(f"{path}/vote", {"winner": "tie"})
        stopped = await two.client.post(f"{path}/stop")
        told = await stopped.json()
        rest = await watched.all_events()
        kept = await (await one.client.get(path)).json()

    assert ("running", "waiting") == (read["status"], read["panes"][1]["status"])
    assert "comparison.started" == frames[0].event
    assert 409 == refused.status
    assert (200, "settled") == (stopped.status, told["status"])
    assert {"stopped"} == {pane["settlement"]["outcome"] for pane in kept["panes"]}
    assert "comparison.settled" == rest[-1].event
    assert 1 == len(up.requests)


class SlowToAdd(MemoryStore):
    """The reply to a new comparison comes late."""

    def __init__(self) -> None:
        super().__init__()
        self.has_added, self.may_answer = asyncio.Event(), asyncio.Event()

    async def put_document(self, document: Any, expected_version: int | None = None) -> Any:
        stored = await super().put_document(document, expected_version)
        if document.kind == "comparison" and expected_version is None:
            self.has_added.set()
            await self.may_answer.wait()
        return stored


@requirement("nodes.work")
async def test_a_comparison_that_is_being_added_is_not_let_go():
    """A server that starts looks for what a dead one has left while it serves: its own new round is none of that."""
    store = SlowToAdd()
    async with Upstream([Gate("go"), *answer("42")]) as up, nodes(up, store) as (one, _):
        body = {"prompt": "Which?", "models": ["up/a", "up/b"], "lifetime": "detached"}
        adding = asyncio.create_task(one.client.post("/api/comparisons", body))
        async with asyncio.timeout(LONG):
            await store.has_added.wait()
            await one.server.compare.rounds.jobs.take_up_all()
            (added,) = await store.list_documents("comparison")
            holder = await store.holder("comparison", added.id)
            store.may_answer.set()
            up.gates.open("go")
            status = (await adding).status

    assert (one.id, 202) == (holder, status)


@requirement("nodes.work", "cmp.detached")
async def test_a_client_that_detached_its_comparison_through_another_node_may_leave():
    """The node with the round looks at what is stored before it stops the panes."""
    script = [Headers(), Role(), Delta("Half "), Gate("go"), Finish(), Done()]
    async with Upstream(script) as up, nodes(up) as (one, two):
        asked = {"models": ["up/a", "up/b"], "prompt": "Hi"}
        stream = await one.client.post("/api/comparisons", asked, headers={"accept": "text/event-stream"})
        started = await stream.next_event()
        path = f"/api/comparisons/{started.json()['comparison']['id']}"
        await until(lambda: _is(2 == len(up.requests)))
        await two.client.post(f"{path}/detach")
        stream.leave()
        up.gates.open("go")
        ended = await (await two.client.get(f"{path}/events")).all_events()
        kept = await (await two.client.get(path)).json()

    assert "comparison.settled" == ended[-1].event
    assert {"completed"} == {pane["settlement"]["outcome"] for pane in kept["panes"]}


@requirement("nodes.work")
async def test_the_comparison_of_a_node_that_is_gone_is_settled_by_another():
    """No pane stays running, and none is asked a second time by itself."""
    script = [Headers(), Role(), Delta("Half "), Gate("never"), Finish(), Done()]
    async with Upstream(script) as up, nodes(up) as (one, two):
        made = await compared(one)
        await until(lambda: _is(2 == len(up.requests)))
        await fence(one, two)

        async def is_settled() -> bool:
            stored = await one.server.store.get_document("comparison", made["id"])
            return stored is not None and stored.body["status"] == "settled"

        await until(is_settled)
        kept = await (await two.client.get(f"/api/comparisons/{made['id']}")).json()

    assert {"interrupted"} == {pane["settlement"]["outcome"] for pane in kept["panes"]}
    assert 2 == len(up.requests)


@requirement("nodes.work")
async def test_a_chore_is_done_by_one_node_until_it_is_gone():
    """Two nodes that trim logs at once would only be in each other's way."""
    async with Upstream(answer("42")) as up, nodes(up) as (one, two):
        holds = [node.server.engine.holds for node in (one, two)]
        taken = [await hold.take("chore", "log trimming") for hold in holds]
        await fence(one, two)
        later = [await hold.take("chore", "log trimming") for hold in reversed(holds)]

    assert [True, False] == taken
    assert [True, False] == later


SHARED = {"store": "postgresql://shared", "cluster_key": "k" * 32}
"""The settings of servers that share a store. The store itself is given."""
UPSTREAM_KEY = "sk-canary-shared-99ff"


async def put_settings(node: Node, body: Any) -> tuple[int, Any]:
    response = await node.client.request("PUT", "/api/settings", json=body)
    return response.status, await response.json()


async def has_provider(node: Node, name: str) -> bool:
    shown = await (await node.client.get("/api/settings")).json()
    return name in [provider["name"] for provider in shown["providers"]]


@requirement("nodes.settings", "set.secrets")
async def test_settings_of_the_page_count_on_every_node_within_a_second():
    """A provider that was added through one server answers through another, with its key, which the store hides."""
    store = MemoryStore()
    async with Upstream(answer("42")) as up, nodes(up, store, **SHARED) as (one, two):
        added = {"name": "new", "base_url": up.base_url, "api_key": UPSTREAM_KEY, "models": ["m"]}
        status, _ = await put_settings(one, {"providers": [added], "default_model": "new/m"})
        await until(lambda: has_provider(two, "new"))
        asked = {"model": "new/m", "messages": [{"role": "user", "content": "?"}]}
        said = await (await two.client.post("/v1/chat/completions", asked)).json()
        document = await store.get_document("settings", "ui")
        second, shown = await put_settings(two, {"default_model": "up/a"})
        removed, _ = await put_settings(two, {"providers": []})
        await until(lambda: _not(has_provider(one, "new")))

    assert (200, 200, 200) == (status, second, removed)
    assert "42" == said["choices"][0]["message"]["content"]
    assert f"Bearer {UPSTREAM_KEY}" == up.requests[-1].headers["authorization"]
    assert "up/a" == shown["default_model"]
    assert document is not None
    assert UPSTREAM_KEY not in str(document)


@requirement("nodes.settings")
async def test_of_two_changes_of_the_settings_at_once_none_is_lost():
    """One of them is refused, or builds on the other. It never overwrites what it has not seen."""
    async with Upstream(answer("42")) as up, nodes(up, **SHARED) as (one, two):
        added = {"name": "new", "base_url": up.base_url, "models": ["m"]}
        answers = await asyncio.gather(
            put_settings(one, {"providers": [added]}), put_settings(two, {"default_model": "up/b"})
        )
        await one.server.configured.catch_up()
        shown = await (await one.client.get("/api/settings")).json()

    taken = ["new" in str(shown["providers"]), shown["default_model"] == "up/b"]
    assert taken == [status == 200 for status, _ in answers]
    assert {200, 409} >= {status for status, _ in answers}


@requirement("nodes.settings", "set.secrets")
async def test_without_a_cluster_key_no_provider_is_saved_in_the_store():
    """Its key would be there for whoever reads the database. What holds no key is saved."""
    async with Upstream(answer("42")) as up, nodes(up, store=SHARED["store"]) as (one, two):
        added = {"name": "new", "base_url": up.base_url, "models": ["m"]}
        status, refused = await put_settings(one, {"providers": [added]})
        saved, _ = await put_settings(one, {"default_model": "up/b"})

        async def is_default() -> bool:
            return "up/b" == (await (await two.client.get("/api/settings")).json())["default_model"]

        await until(is_default)

    assert (503, "settings_not_saved") == (status, refused["error"]["code"])
    assert "cluster_key" in refused["error"]["message"]
    assert 200 == saved


@requirement("nodes.settings")
async def test_settings_that_were_sealed_with_another_key_stop_the_start():
    """A server must not go on with half of its settings as if they were all."""
    store = MemoryStore()
    async with Upstream(answer("42")) as up:
        async with nodes(up, store, **SHARED) as (one, _):
            await put_settings(one, {"providers": [{"name": "new", "base_url": up.base_url, "models": ["m"]}]})
        other = Settings(**SHARED | {"cluster_key": "x" * 32, "node_address": f"127.0.0.1:{free_port()}"})
        app = create_app(other, store, NO_HOME)
        with pytest.raises(SettingsError, match="secret key that this server does not have"):
            async with app.router.lifespan_context(app):
                pass
        with pytest.raises(
            SettingsError, match="secret key that this server does not have"
        ):  # and no later look takes it for settled
            await app.state.server.configured.catch_up()


FORGED = Saved(providers=(ProviderSettings("evil", base_url="http://127.0.0.1:9", api_key_env="SECRET"),))
VERSION_1 = "The document settings/ui of the store, version 1,"


class Forger:
    """A key that anyone has."""

    def first(self) -> SealingKey:
        return sealing_key("")

    def read(self) -> list[SealingKey]:
        return [self.first()]

    def advice(self) -> str:
        return ""


@requirement("nodes.settings", "set.secrets", "safe.sealed")
@pytest.mark.parametrize(
    ("document", "settings"),
    [
        (KeptSettings(providers=FORGED.providers), SHARED),
        (KeptSettings(providers=FORGED.providers), {"store": SHARED["store"]}),
        (to_keep(FORGED, Sealer(Forger()), VERSION_1), {"store": SHARED["store"]}),
    ],
    ids=["plain", "plain, without a cluster key", "sealed with no key"],
)
async def test_a_provider_that_only_a_writer_of_the_database_has_set_is_not_used(document, settings):
    """It could name a variable of the server's environment as its key, and so have it sent to any address."""
    store = MemoryStore()
    async with Upstream(answer("42")) as up, nodes(up, store, **settings) as (one, _):
        await Documents(store, "settings", KeptSettings).put("ui", document)
        with pytest.raises(SettingsError, match=r"not encrypted|secret key that this server does not have"):
            await one.server.configured.catch_up()

        assert not await has_provider(one, "evil")


@requirement("nodes.settings", "safe.sealed")
async def test_an_older_document_of_the_settings_that_is_put_back_is_not_used():
    """A writer of the database could bring back a provider that was removed. Its version is sealed with it."""
    store = MemoryStore()
    documents = Documents(store, "settings", KeptSettings)
    async with Upstream(answer("42")) as up, nodes(up, store, **SHARED) as (one, _):
        await put_settings(one, {"providers": [{"name": "old", "base_url": up.base_url, "models": ["m"]}]})
        first = await documents.get("ui")
        assert first is not None
        await put_settings(one, {"providers": [{"name": "new", "base_url": up.base_url, "models": ["m"]}]})
        await documents.put("ui", first.body, version=2)  # as the newest
        with pytest.raises(SettingsError, match="moved here"):
            await one.server.configured.catch_up()
        await documents.delete("ui")
        await documents.put("ui", first.body)  # under its own version
        with pytest.raises(SettingsError, match="put an older one back"):
            await one.server.configured.catch_up()

        assert await has_provider(one, "new")
        assert not await has_provider(one, "old")


@requirement("nodes.settings", "safe.sealed")
async def test_a_secret_key_takes_the_place_of_the_cluster_key():
    """Who may follow runs between servers need not be able to read the keys of providers."""
    store = MemoryStore()
    added = {"name": "new", "base_url": "http://127.0.0.1:9", "api_key": UPSTREAM_KEY, "models": ["m"]}
    async with Upstream(answer("42")) as up:
        async with nodes(up, store, **SHARED) as (one, _):
            await put_settings(one, {"providers": [added]})
        async with nodes(up, store, **SHARED, secret_key="s" * 32) as (one, _):
            opened = await has_provider(one, "new")
            await put_settings(one, {"default_model": "up/b"})
        async with nodes(up, store, **SHARED | {"cluster_key": "o" * 32}, secret_key="s" * 32) as (one, two):
            assert opened
            assert await has_provider(one, "new")
            assert await has_provider(two, "new")


@requirement("nodes.settings", "safe.revoked")
async def test_a_key_that_is_revoked_is_refused_on_every_node_and_its_streams_end():
    """The keys are in the store, and every node looks at them twice a second."""
    store = MemoryStore()
    made, admin = new_key("ann"), new_key("root", admin=True)
    for key in (made, admin):
        await store.add_key(key.record)
    script = [Headers(), Role(), Delta("Half "), Gate("never"), Finish(), Done()]
    async with Upstream(script) as up, nodes(up, store) as (_, two):
        headers = {"authorization": f"Bearer {made.key}"}
        asked = {"model": "up/a", "messages": [{"role": "user", "content": "?"}], "stream": True}
        stream = await two.client.post("/v1/chat/completions", asked, headers=headers)
        await stream.next_event()
        await store.revoke_key(made.record.id, 1.0)  # as another node, or a command, does
        async with asyncio.timeout(LONG):
            rest = await stream.all_events()
        refused = await two.client.get("/api/sessions", headers=headers)

    assert 401 == refused.status
    assert "[DONE]" != rest[-1].data


@requirement("nodes.settings")
async def test_a_grant_that_is_revoked_through_one_node_counts_on_the_other():
    """Grants are documents, which are read for each call of a tool."""
    store = MemoryStore()
    async with Upstream(answer("42")) as up, nodes(up, store) as (one, two):
        record = RunRecord(id="run_1", owner="local", session_id="ses_1")
        grants, shell = StoredGrants(store, record, "helper"), Shell(".")
        await grants.grant(shell.name, "always")
        listed = (await (await two.client.get("/api/grants")).json())["grants"]
        before = await grants.allows(shell, {"command": "ls"})
        revoked = await one.client.request("DELETE", f"/api/grants/{listed[0]['id']}")
        after = await grants.allows(shell, {"command": "ls"})

    assert (True, 204, False) == (before, revoked.status, after)


@requirement("nodes.unstored")
async def test_a_run_that_is_not_stored_shows_its_text_so_far_at_another_node():
    """The store, which other runs are read from, knows nothing of it."""
    script = [Headers(), Role(), Delta("Half "), Gate("never"), Finish(), Done()]
    async with Upstream(script) as up, nodes(up, **SHARED) as (one, two):
        asked = {"model": "up/a", "messages": [{"role": "user", "content": "?"}], "stream": True}
        stream = await one.client.post("/v1/chat/completions", asked)
        run_id = stream.headers["x-run-id"]
        await until(lambda: _is("Half " == one.server.engine.live()[0].text))
        here, there = [await (await node.client.get(f"/api/runs/{run_id}")).json() for node in (one, two)]
        stream.leave()

    assert "Half " == here["text"]
    assert (here["text"], here["status"]) == (there["text"], there["status"])


def _id(body: bytes) -> str:
    return str(json.loads(body)["data"]["id"])


async def _is(value: bool) -> bool:
    return value


async def _not(is_so: Awaitable[bool]) -> bool:
    return not await is_so


async def _none(found: Awaitable[list[Any]]) -> bool:
    return not await found


@requirement("managed.agents", "nodes.settings")
async def test_an_agent_that_is_set_up_through_one_node_answers_on_the_other():
    """Whichever node a client reaches, the agent is there, with the same tools; and gone when it was removed."""
    async with Upstream(answer("42")) as up, nodes(up, **SHARED) as (one, two):
        agent = {"name": "helper", "model": "up/a", "tools": ["files", "mcp:away"]}
        server = {"name": "away", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "secret-4b1d8c"}}
        added = [
            (await one.client.post(path, body)).status for path, body in (("/api/mcp", server), ("/api/agents", agent))
        ]

        async def is_there() -> bool:
            return "agent/helper" in await (await two.client.get("/v1/models")).text()

        await until(is_there)
        shown = await (await two.client.get("/api/mcp")).text()
        removed = (await two.client.request("DELETE", "/api/agents/helper")).status

        async def is_gone() -> bool:
            return "agent/helper" not in await (await one.client.get("/v1/models")).text()

        await until(is_gone)

    assert ([201, 201], 204) == (added, removed)
    assert "away" in shown
    assert "secret-4b1d8c" not in shown
