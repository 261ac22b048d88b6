"""Who is told that an answer is ready, that it failed, or that it waits; and who is not."""

import asyncio
import io
import json
import zipfile
from contextlib import asynccontextmanager

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_webhooks import Ears, told_to, unwrap
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.people import add_person, browser, first_admin
from tests.support.push import PushService
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Cut, Delta, Done, Finish, Gate, Hang, Headers, Role, Upstream, answer, calling
from tests.support.waiting import LONG

ASKS = calling(("shell", {"command": "true"}))
CONFIG = "notify_private = true"
AGENT = '\n[[agents]]\nname = "asks"\nmodel = "up/m"\ntools = ["shell"]\napprovals = { shell = "ask" }\n'


class World:
    """A server, a push service, and a person with two browsers that take push messages."""

    def __init__(self, server, up, push, url, ada):
        self.server, self.up, self.push, self.url, self.ada = server, up, push, url, ada

    async def subscribe(self, client, *names):
        for name in names:
            response = await client.post("/api/notifications/devices", self.push.subscription(self.url, name))
            assert 201 == response.status, await response.text()

    async def all_delivered(self):
        """Wait until nothing is left to be told."""
        async with asyncio.timeout(LONG):
            while any("webhook" in row for row in self.server.stored()["documents"]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@asynccontextmanager
async def world_of(tmp_path, config=CONFIG, **options):
    push = PushService()
    async with Upstream() as up, Served(push.app) as service:
        async with Server(tmp_path, [provider(up.base_url)], config=config, **options) as server:
            yield World(server, up, push, service.url, await first_admin(server))


@pytest.fixture
async def world(tmp_path):
    async with world_of(tmp_path) as world:
        yield world


def gated(name="go", text="Ready."):
    return [Headers(), Role(), Gate(name), Delta(text), Finish(), Done()]


async def waiting(api, run_id):
    """Wait until a run waits for its person."""
    async with asyncio.timeout(LONG):
        while not (await api.run(run_id))["needs_approval"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def run(api, text="Go", model="up/m", session=""):
    session = session or await api.new_session()
    return session, await api.settled(await api.start(session, text, model))


@requirement("push.once", "push.private")
async def test_every_browser_is_told_once_that_an_answer_is_ready(world):
    """In words that only it can read, and without those of the chat; signed with the key that the page was given."""
    async with browser(world.server, world.ada) as client:
        key = (await (await client.request("PUT", "/api/notifications", json={})).json())["key"]
        await world.subscribe(client, "laptop", "phone", "phone")
        world.up.enqueue(answer("A secret."))
        session, _ = await run(Native(client), "Another secret")
        told = {pushed.device: pushed for pushed in [await world.push.next() for _ in range(2)]}
        kept = [row for row in world.server.stored()["documents"] if "push_key" in row]

    assert {"laptop", "phone"} == set(told)
    assert told["phone"].message.pop("id") == told["laptop"].message["id"]
    assert {"type": "run.completed", "session": session, "language": "en"} == told["phone"].message
    assert "aes128gcm" == told["phone"].headers["content-encoding"]
    assert told["phone"].headers["topic"] == told["laptop"].headers["topic"]
    assert len(told["phone"].headers["topic"]) <= 32
    assert (key, world.url) == (told["phone"].claims["key"], told["phone"].claims["aud"])
    assert world.push.arrived.empty()
    assert [{"sealed"}] == [set(json.loads(cell)) for row in kept for cell in row if "sealed" in str(cell)]


@requirement("push.private")
async def test_the_words_of_a_chat_are_in_a_notification_if_its_person_chose_that(world):
    """They are on a screen that is locked then."""
    async with browser(world.server, world.ada) as client:
        await client.request("PUT", "/api/notifications", json={"shows_text": True})
        await world.subscribe(client, "phone")
        world.up.enqueue(answer("Long. " * 200))
        await run(Native(client), "What is a tide?")
        message = (await world.push.next()).message

        exported = await (await client.get("/api/account/export")).body()

    assert ("What is a tide?", ("Long. " * 200)[:200]) == (message["title"], message["text"])
    names = zipfile.ZipFile(io.BytesIO(exported)).namelist()
    assert "sessions/" in "".join(names)
    assert "notified" not in "".join(names)


@requirement("push.wanted")
async def test_nobody_is_told_of_what_was_seen_stopped_or_muted(world):
    """The page marks what it shows; a stop is no news to who has pressed it. Only a failure comes, last."""
    async with browser(world.server, world.ada) as client:
        api = Native(client)
        await world.subscribe(client, "phone")
        muted, seen, stopped = [await api.new_session() for _ in range(3)]
        await client.request("PUT", f"/api/sessions/{muted}/seen", json={"notify": "none"})
        for each in (muted, seen):
            world.up.enqueue(answer("Done."))
            await run(api, session=each)
            if each == seen:
                await client.request("PUT", f"/api/sessions/{each}/seen", json={"seen": 2**40})
        world.up.enqueue([Headers(), Role(), Delta("Half"), Hang()])
        hanging = await api.start(stopped, "Go", "up/m")
        (await api.shown(hanging, "Half")).close()
        await api.stop(hanging)
        await client.request("PUT", "/api/notifications", json={"notify": "needs_you"})
        world.up.enqueue(answer("Not wanted in general."), [Headers(), Role(), Delta("Half"), Cut()])
        await run(api)
        failed, _ = await run(api)
        pushed = await world.push.next()
        await world.all_delivered()

    assert ("run.failed", failed) == (pushed.message["type"], pushed.message["session"])
    assert world.push.arrived.empty()


@requirement("push.gone")
async def test_a_browser_that_is_gone_is_forgotten_and_one_that_fails_is_told_again(world):
    """The other one gets its message once."""
    async with browser(world.server, world.ada) as client:
        api = Native(client)
        world.push.statuses = {"gone": [410], "busy": [503, 429, 201]}
        await world.subscribe(client, "gone", "busy", "well")
        world.up.enqueue(answer("Done."))
        await run(api)
        told = [(await world.push.next()).device for _ in range(5)]
        kept = [each["name"] for each in (await api.get("/api/notifications"))["devices"]]

    assert sorted(["gone", "busy", "busy", "busy", "well"]) == sorted(told)
    assert ["busy", "well"] == kept


@requirement("push.once")
async def test_a_run_that_goes_on_when_a_browser_is_added_is_told_of_after_a_crash_too(world):
    """Who asks to be told is waiting for something, and a deploy must not forget it."""
    async with browser(world.server, world.ada) as client:
        api = Native(client)
        world.up.enqueue(gated())
        session = await api.new_session()
        await api.start(session, "Go", "up/m")
        await world.up.next_request()
        await world.subscribe(client, "phone")
    await world.server.kill9()
    await world.server.restart()
    pushed = await world.push.next()

    assert ("run.interrupted", session) == (pushed.message["type"], pushed.message["session"])


@requirement("push.once")
async def test_a_message_that_is_repeated_after_a_crash_replaces_the_first(world):
    """The server dies when the push service has the message, and before it knows that. A browser shows it once."""
    async with browser(world.server, world.ada) as client:
        await world.subscribe(client, "phone")
        world.push.answers.clear()
        world.up.enqueue(answer("Ready."))
        await run(Native(client))
        first = await world.push.next()
    await world.server.kill9()
    world.push.answers.set()
    await world.server.restart()
    repeated = await world.push.next()
    await world.all_delivered()

    assert (first.message, first.headers["topic"]) == (repeated.message, repeated.headers["topic"])
    assert first.message["id"]
    assert world.push.arrived.empty()


@requirement("push.once", "nodes.work")
async def test_of_two_nodes_one_tells_and_the_other_one_if_that_is_killed(tmp_path, postgres):
    """The browser was added at one, and the run was started at the other, which dies before its end."""
    env = {"HOLDFAST_STORE": postgres.url(await postgres.new_database()), "HOLDFAST_CLUSTER_KEY": "k" * 32}
    push = PushService()
    async with Upstream() as up, Served(push.app) as service:
        one, two = [Server(tmp_path / name, [provider(up.base_url)], config=CONFIG, env=env) for name in ("one", "two")]
        async with one, two:
            world = World(two, up, push, service.url, await first_admin(one))
            async with browser(two) as nobody, asyncio.timeout(LONG):
                while (await nobody.get("/api/sessions")).status == 200:  # noqa: ASYNC110 - it ends open streams
                    await asyncio.sleep(0.02)
            async with browser(two, world.ada) as client:
                await world.subscribe(client, "phone")
                up.enqueue(answer("Done."))
                ended, _ = await run(Native(client))
                first = await push.next()
                async with browser(one, world.ada) as other:
                    up.enqueue([Headers(), Role(), Delta("Half"), Hang()])
                    died = await Native(other).new_session()
                    (await Native(other).shown(await Native(other).start(died, "Go", "up/m"), "Half")).close()
                await one.kill9()
                second = await push.next()
                await world.all_delivered()

    assert ("run.completed", ended) == (first.message["type"], first.message["session"])
    assert ("run.interrupted", died) == (second.message["type"], second.message["session"])
    assert push.arrived.empty()


@requirement("push.once", "push.wanted")
async def test_a_question_is_told_once_unless_a_page_has_shown_it(tmp_path):
    """A page that is looked at says so, and the phone stays quiet."""
    async with world_of(tmp_path, CONFIG + AGENT) as world, browser(world.server, world.ada) as client:
        api = Native(client)
        await world.subscribe(client, "phone")
        await client.request("PUT", "/api/notifications", json={"notify": "needs_you"})
        world.up.enqueue(ASKS, ASKS)
        session, looked_at = [await api.new_session() for _ in range(2)]
        for each in (session, looked_at):
            await waiting(api, await api.start(each, "Go", "agent/asks"))
            if each == looked_at:
                await client.request("PUT", f"/api/sessions/{each}/seen", json={"told": 2**40})
        pushed = await world.push.next()
        for each in (session, looked_at):
            await api.stop((await api.session(each))["active_run"]["id"])
        await world.all_delivered()

    assert ("run.waiting", session) == (pushed.message["type"], pushed.message["session"])
    assert world.push.arrived.empty()


@requirement("push.addresses")
@pytest.mark.parametrize(
    "url", ["http://example.com/push", "https://127.0.0.1/push", "https://localhost/", "https://a@example.com/", "push"]
)
async def test_an_address_inside_is_refused(tmp_path, url):
    """Else everybody with an account could call what only the server can reach."""
    async with world_of(tmp_path, "") as world, browser(world.server, world.ada) as client:
        device = {**world.push.subscription("https://push", "x"), "endpoint": url}
        answers = [
            await client.post("/api/notifications/devices", device),
            await client.post("/api/notifications/webhooks", {"url": url}),
        ]
        codes = {(await each.json())["error"]["code"] for each in answers}
        chosen = await Native(client).get("/api/notifications")

    assert [400, 400] == [each.status for each in answers]
    assert codes <= {"address_refused", "invalid_request"}
    assert ([], []) == (chosen["devices"], chosen["webhooks"])


@requirement("hook.runs")
async def test_webhooks_of_a_person_and_of_the_operator_are_told_how_runs_end(tmp_path):
    """A person hears of their own runs, the operator of all; neither reads what was said."""
    ears = Ears(200)
    async with Served(ears.app) as listener:
        config = CONFIG + "\n" + told_to(f"{listener.url}/all", events=["run.completed", "run.failed"])
        env = {"HOOK": "whsec_aG9sZGZhc3QtaG9sZGZhc3QtaG9sZGZhc3Q="}
        async with world_of(tmp_path, config, env=env) as world, browser(world.server, world.ada) as client:
            added = await client.post("/api/notifications/webhooks", {"url": f"{listener.url}/mine"})
            hook = await added.json()
            bob = await add_person(world.server, world.ada, "bob")
            async with browser(world.server, bob) as his:
                world.up.enqueue(answer("His secret."))
                await run(Native(his))
            his_heard = await ears.next()
            world.up.enqueue([Headers(), Role(), Delta("My secret"), Cut()])
            session, _ = await run(Native(client))
            heard = {path: (headers, body) for path, headers, body in [await ears.next(), await ears.next()]}
            listed = (await Native(client).get("/api/notifications"))["webhooks"]
            removed = await client.request("DELETE", f"/api/notifications/webhooks/{hook['id']}")
            again = await client.request("DELETE", f"/api/notifications/webhooks/{hook['id']}")

    mine, all_ = json.loads(heard["/mine"][1]), json.loads(heard["/all"][1])
    assert ("/all", "run.completed") == (his_heard[0], json.loads(his_heard[2])["type"])
    assert mine == all_
    assert "run.failed" == mine["type"]
    assert (session, "upstream_broke") == (mine["data"]["session_id"], mine["data"]["error"])
    assert "run.failed" == unwrap(*heard["/mine"], hook["secret"]).type
    assert b"secret" not in his_heard[2] + heard["/mine"][1] + heard["/all"][1]
    assert [{name: value for name, value in hook.items() if name != "secret"}] == listed
    assert (204, 404) == (removed.status, again.status)


class BothLook(MemoryStore):
    """A store whose first two readers of deliveries both have their answer before either goes on."""

    def __init__(self):
        super().__init__()
        self.both = asyncio.Barrier(2)
        self.readers = 0

    async def get_document(self, kind, id):
        found = await super().get_document(kind, id)
        if kind == "webhook" and self.readers < 2:
            self.readers += 1
            await self.both.wait()
        return found


@requirement("push.once")
async def test_two_browsers_that_are_turned_on_at_once_are_told_of_a_run_that_goes_on(tmp_path):
    """Both look for what is to be told, and find nothing yet. Neither is refused, and each is told once."""
    push = PushService()
    async with Upstream() as up, Served(push.app) as service:
        providers = (ProviderSettings("up", base_url=up.base_url, models=("m",)),)
        settings = Settings(providers=providers, notify_private=True, secret_key="k" * 40)
        async with Served(create_app(settings, BothLook(), NO_HOME)) as served, served.client() as client:
            api = Native(client)
            up.enqueue(gated())
            await api.start(await api.new_session(), "Go", "up/m")
            devices = [push.subscription(service.url, name) for name in ("laptop", "phone")]
            added = await asyncio.gather(*(client.post("/api/notifications/devices", each) for each in devices))
            up.open("go")
            told = {(await push.next()).device for _ in devices}

    assert [201, 201] == [each.status for each in added]
    assert {"laptop", "phone"} == told


@requirement("hook.runs")
async def test_a_webhook_that_was_removed_is_not_told_of_a_run_that_goes_on(world):
    """Whoever removes an address wants nothing sent there any more: not the end of what began before, either."""
    ears = Ears(200)
    async with Served(ears.app) as listener, browser(world.server, world.ada) as client:
        api = Native(client)
        kept, gone = [
            await (await client.post("/api/notifications/webhooks", {"url": f"{listener.url}/{path}"})).json()
            for path in ("kept", "gone")
        ]
        world.up.enqueue(gated())
        run_id = await api.start(await api.new_session(), "Go", "up/m")
        removed = await client.request("DELETE", f"/api/notifications/webhooks/{gone['id']}")
        world.up.open("go")
        await api.settled(run_id)
        await world.all_delivered()
        heard = [(await ears.next())[0] for _ in range(ears.heard.qsize())]
        listed = (await api.get("/api/notifications"))["webhooks"]

    assert 204 == removed.status
    assert [kept["id"]] == [each["id"] for each in listed]
    assert ["/kept"] == heard
