"""Requests that count for a budget, and are left in the middle: by their client, or by the end of the server."""

import asyncio
import time

import pytest

from holdfast.access import Budget
from holdfast.asgi.client import CONNECTION
from holdfast.errors import SessionBusy, StoreUnavailable
from holdfast.pricing import NO_PRICES
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.features.accounts.keys import Keys
from holdfast.server.features.accounts.owners import Owners
from holdfast.server.features.accounts.people.callers import Callers
from holdfast.server.features.budgets.spending import Spending
from holdfast.store import Charge, Payer
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.served import NO_HOME
from tests.support.waiting import SOON

CHAT = b'{"model": "scripted/echo", "messages": [{"role": "user", "content": "Hi"}]}'


class Gone:
    """The connection of a client that has left."""

    is_lost, takes_more, is_read = True, False, False

    def __init__(self):
        self.loop = asyncio.get_running_loop()

    def watch_loss(self, wake):
        return lambda: None

    def abort(self):
        pass

    def whole_body(self, receive):
        return None

    def reply(self, *asked):
        return False

    def begin(self, *asked):
        return False


@requirement("budget.limits")
async def test_a_request_whose_client_has_left_takes_no_place():
    """Otherwise its owner could start nothing before the next day."""
    provider = ProviderSettings("up", dialect="openai", base_url=f"http://127.0.0.1:{free_port()}/v1", models=("m",))
    app = create_app(Settings(providers=(provider,), budget=Budget(runs_at_once=1)), MemoryStore(), NO_HOME)
    async with app.router.lifespan_context(app):
        left = await _ask(app, Gone())
        await app.state.server.running.spending.flush()
        status = await _ask(app)

    assert left is None
    assert status == 502


class NoDraws(MemoryStore):
    """A store that is away whenever a budget is asked for."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()

    async def draw(self, draws, now):
        self.asked.set()
        raise StoreUnavailable("the network is gone")


@requirement("crash.sigterm")
async def test_a_start_that_waits_for_its_budget_is_answered_when_the_server_ends():
    """It would wait for the store for ever, and so would its task."""
    settings = Settings(providers=(ProviderSettings("scripted", dialect="scripted"),), budget=Budget(runs_at_once=1))
    store = NoDraws()
    app = create_app(settings, store, NO_HOME)
    async with app.router.lifespan_context(app):
        asked = asyncio.create_task(_ask(app, path="/v1/chat/completions", body=CHAT))
        await store.asked.wait()
        await app.state.server.end(0.0)
        status = await asyncio.wait_for(asked, SOON)

    assert status == 503


async def _ask(app, connection=None, *, path="/v1/embeddings", body=b'{"model": "up/m", "input": "Hi"}'):
    statuses = []
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    scope |= {"scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "http_version": "1.1"}
    if connection is not None:
        scope[CONNECTION] = connection
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive():
        return next(messages, None) or await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0] if statuses else None


class LostReplies(MemoryStore):
    """A store whose first confirmation of charges is lost: they are stored, and the caller cannot know."""

    def __init__(self):
        super().__init__()
        self.charged = []

    async def charge(self, charges, now):
        await super().charge(charges, now)
        self.charged.append([*charges])
        if len(self.charged) == 1:
            raise StoreUnavailable("the reply is lost")


@requirement("budget.count")
async def test_runs_that_are_not_stored_are_charged_together_and_once():
    """A row for each of a thousand requests a second would cost more than the requests."""
    store = LostReplies()
    spending = Spending(store, Owners(Keys(Settings(), {}), Callers(store)), Budget(), NO_PRICES, "USD", time.time)
    for n in range(3):
        spending.note(_charge(f"run_{n}"))
    with pytest.raises(StoreUnavailable):
        await spending.flush()
    spending.note(_charge("run_3"))
    spending.note(_charge("run_4", limited=True))
    await spending.flush()
    await spending.flush()
    first, second = store.charged
    [usage] = await store.usage(0, 100_000)

    assert [3] == [charge.runs for charge in first]
    assert [3, 1, 1] == [charge.runs for charge in second]
    assert "run_4" == second[-1].id
    assert (5, 50, 10) == (usage.runs, usage.input_tokens, usage.output_tokens)


def _charge(id, *, limited=False):
    payer = Payer("local", limited=limited)
    return Charge(id=id, owner="local", model="up/m", started_at=1.0, payer=payer, input_tokens=10, output_tokens=2)


class SlowStarts(MemoryStore):
    """A store that takes its time to add a run."""

    def __init__(self):
        super().__init__()
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def create_run(self, record, **how):
        self.asked.set()
        await self.go_on.wait()
        return await super().create_run(record, **how)


LIMITS = {"budget": {"budget": Budget(requests_per_minute=1)}, "rate": {"starts_per_minute": 1}}


@requirement("budget.limits")
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_run_that_starts_after_its_client_has_left_still_takes_its_place(limit):
    """It costs money like any other: its charge must not be dropped with the request."""
    store, body = SlowStarts(), b'{"model": "scripted/hang", "input": "Hi", "background": true}'
    settings = Settings(providers=(ProviderSettings("scripted", dialect="scripted"),), **LIMITS[limit])
    app = create_app(settings, store, NO_HOME)
    async with app.router.lifespan_context(app):
        server = app.state.server
        asking = asyncio.create_task(_ask(app, path="/v1/responses", body=body))
        await asyncio.wait_for(store.asked.wait(), SOON)
        asking.cancel()
        await asyncio.wait({asking})
        store.go_on.set()
        async with asyncio.timeout(SOON):
            while not server.engine.live():  # noqa: ASYNC110 - each turn of the loop brings the start on
                await asyncio.sleep(0)
        [run] = server.engine.live()
        status = await _ask(app, path="/v1/chat/completions", body=CHAT)
        await run.stop()

    assert asking.cancelled()
    assert status == 429


class RefusedStart(SlowStarts):
    """A store that refuses the first run, after a time."""

    async def create_run(self, record, **how):
        if self.go_on.is_set():
            return await super().create_run(record, **how)
        self.asked.set()
        await self.go_on.wait()
        raise SessionBusy("another")


@requirement("budget.limits")
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_start_that_is_refused_after_its_client_has_left_gives_back_what_it_had_taken(limit):
    """Nobody waits for it any more, and its owner may start another one."""
    store, body = RefusedStart(), b'{"model": "scripted/echo", "input": "Hi", "background": true}'
    settings = Settings(providers=(ProviderSettings("scripted", dialect="scripted"),), **LIMITS[limit])
    app = create_app(settings, store, NO_HOME)
    async with app.router.lifespan_context(app):
        asking = asyncio.create_task(_ask(app, path="/v1/responses", body=body))
        await asyncio.wait_for(store.asked.wait(), SOON)
        taken = await _ask(app, path="/v1/chat/completions", body=CHAT)
        asking.cancel()
        await asyncio.wait({asking})
        store.go_on.set()
        async with asyncio.timeout(SOON):
            while (status := await _ask(app, path="/v1/chat/completions", body=CHAT)) == 429:
                pass  # each request brings the end of the first one on
        again = await _ask(app, path="/v1/chat/completions", body=CHAT)

    assert asking.cancelled()
    assert (taken, status) == (429, 200)
    assert again == 429  # it was given back once, and is used
