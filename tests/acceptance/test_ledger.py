"""One name for a model and one ledger: whatever a client writes, its tokens cost what they cost."""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from holdfast.access import Payer
from holdfast.ids import ModelName
from holdfast.pricing import Price
from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, KeySettings, ProviderSettings, Settings
from holdfast.store import Charge
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.served import NO_HOME, Served
from tests.support.upstream import (
    Chunk,
    Delta,
    Done,
    Eof,
    Finish,
    Gate,
    Hang,
    Headers,
    Pause,
    Recorded,
    Role,
    Status,
    Step,
    ToolDelta,
    Upstream,
    UsageChunk,
)
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMIN = "admin-key-4f1c9d77aa0142"
SHA256 = hashlib.sha256(ADMIN.encode()).hexdigest()
PRICE = Price(input=1e6, output=1e7)
"""A token of input costs 1, a token of output 10."""
PRICES = {"up/dear": PRICE, "up/dear:latest": PRICE}
COUNTED = [Headers(), Role(), Delta("Hi."), Finish("stop"), UsageChunk(7, 5), Done()]
COST = 7 + 5 * 10
HELLO = [{"role": "user", "content": "Hi"}]
UI = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]

WIRES: dict[str, Any] = {
    "/v1/chat/completions": lambda named: {**named, "messages": HELLO},
    "/v1/chat/completions (session)": lambda named: {**named, "messages": HELLO, "session_id": "c"},
    "/v1/completions": lambda named: {**named, "prompt": "Hi"},
    "/v1/responses": lambda named: {**named, "input": "Hi"},
    "/v1/responses/compact": lambda named: {**named, "input": "Hi"},
    "/v1/messages": lambda named: {**named, "messages": HELLO, "max_tokens": 9},
    "/api/chat": lambda named: {**named, "messages": HELLO, "stream": False},
    "/api/generate": lambda named: {**named, "prompt": "Hi", "stream": False},
    "/api/chat (AI SDK)": lambda named: {**named, "messages": UI},
    "/ag-ui": lambda named: {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "u", **HELLO[0]}],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": named,
    },
    "/api/sessions/{session}/runs": lambda named: {**named, "input": "Hi"},
    "/api/comparisons": lambda named: {"models": [*named.values()], "prompt": "Hi"},
    "/api/batches": lambda named: {"models": [*named.values()], "prompts": [{"prompt": "Hi"}]},
}
NAMES = ["dear", "up/dear", "gpt-dear", "dear:latest", "agent/helper", "helper", None]
"""The ways to name one model; None names none, and gets the default."""
AGENTS = {"agent/helper", "helper"}
OF_MODELS = {"/api/comparisons", "/api/batches"}
"""Where models are compared: an agent is none."""
NEED_A_NAME = {"/api/chat", "/api/generate", "/v1/responses/compact", *OF_MODELS}


class World:
    """A server with one dear model, and clients with keys of their own."""

    def __init__(self, url: str, up: Upstream, admin: Client, clients: AsyncExitStack) -> None:
        self.url, self.up, self._admin, self._clients = url, up, admin, clients
        self._made = 0

    async def key(self, budget: dict[str, Any], **limits: Any) -> Client:
        """A client with a new key."""
        self._made += 1
        body = {"name": f"key{self._made}", "budget": budget, **limits}
        made = await (await self._admin.post("/api/admin/keys", body)).json()
        return await self._clients.enter_async_context(Client(self.url, {"authorization": f"Bearer {made['key']}"}))


@asynccontextmanager
async def serving(prices: dict[str, Price] = PRICES, store: MemoryStore | None = None) -> AsyncIterator[World]:
    async with Upstream() as up, AsyncExitStack() as clients:
        up.models |= dict.fromkeys(("dear", "dear:latest", "unpriced", "waves"), COUNTED)
        up.models |= {"choices": choices, "arguments": arguments, "embeds": [Gate("embeds"), Status(200, EMBEDDED)]}
        up.models |= dict.fromkeys(("paints", "own"), PICTURE)
        settings = Settings(
            providers=(ProviderSettings("up", base_url=up.base_url),),
            keys=(KeySettings("admin", sha256=SHA256, admin=True),),
            agents=(AgentSettings("helper", model="up/dear"),),
            aliases={"gpt-dear": "up/dear"},
            default_model="up/dear",
            prices=prices,
        )
        async with Served(create_app(settings, store or MemoryStore(), NO_HOME)) as served:
            admin = await clients.enter_async_context(Client(served.url, {"authorization": f"Bearer {ADMIN}"}))
            yield World(served.url, up, admin, clients)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world():
    async with serving() as world:
        yield world


async def ask(client: Client, wire: str, name: str | None) -> Response:
    """Ask for an answer, and wait for all of it."""
    session = ""
    if "{session}" in wire:
        session = (await (await client.post("/api/sessions", {})).json())["id"]
    path = wire.split()[0].format(session=session)
    response = await client.post(path, WIRES[wire]({} if name is None else {"model": name}))
    if session and response.status < 300:
        run = (await response.json())["id"]
        await (await client.get(f"/api/runs/{run}/events")).all_events()
    if wire == "/api/batches" and response.status < 300:
        await (await client.get(f"/api/batches/{(await response.json())['id']}/events")).all_events()
    await response.body()
    return response


def named_on(wire: str) -> list[str | None]:
    left_out = {None if wire in NEED_A_NAME else "", *(AGENTS if wire in OF_MODELS else ())}
    return [name for name in NAMES if name not in left_out]


@requirement("budget.price")
@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_costs_the_same_by_whatever_name_and_on_every_wire(world, wire):
    """A name without its provider once cost nothing, and a budget was no limit to it."""
    for name in named_on(wire):
        client = await world.key({"cost_per_day": 1000})
        answer = await ask(client, wire, name)
        usage = (await (await client.get("/api/usage?by=model")).json())["usage"]
        left = (await (await client.get("/api/budget")).json())["remaining_cost"]

        assert answer.status < 300, (name, await answer.text())
        assert [COST] == [row["cost"] for row in usage], name
        assert {row["model"] for row in usage} <= {"up/dear", "up/dear:latest", "agent/helper"}, name
        assert 1000 - COST == left, name


@requirement("budget.refuse")
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "/api/batches"])  # it waits for the next budget
async def test_a_spent_budget_stops_a_model_by_whatever_name(world, wire):
    """The first answer uses it up."""
    client = await world.key({"cost_per_day": COST})
    assert (await ask(client, wire, "dear")).status < 300

    for name in named_on(wire):
        assert 429 == (await ask(client, wire, name)).status, name


@requirement("budget.price")
@pytest.mark.parametrize("wire", WIRES)
async def test_the_rights_to_a_model_are_the_same_by_whatever_name(world, wire):
    """For a key that may not use it, it is not there."""
    client = await world.key({}, models=["up/unpriced"])

    for name in named_on(wire):
        if name is not None:
            assert 404 == (await ask(client, wire, name)).status, name


@requirement("budget.price")
@pytest.mark.parametrize("wire", WIRES)
async def test_under_a_budget_of_money_a_model_without_a_price_is_refused(world, wire):
    """It would cost nothing in any budget; other budgets do not mind."""
    asked = len(world.up.requests)
    money, tokens = await world.key({"cost_per_month": 1000}), await world.key({"tokens_per_day": 1000})
    refusals = [await ask(money, wire, name) for name in ("unpriced", "up/unpriced")]

    assert [403, 403] == [each.status for each in refusals]
    assert "no_price" in await refusals[0].text() or "has no price" in await refusals[0].text()
    assert asked == len(world.up.requests)
    assert (await ask(tokens, wire, "unpriced")).status < 300


@requirement("budget.price")
async def test_a_price_of_nothing_is_free_and_may_be_that_of_all_models_of_a_provider():
    """A model of one's own costs no money, and has no end under a budget of money."""
    async with serving({"up/*": Price(), "up/dear": PRICE}) as world:
        client = await world.key({"cost_per_day": COST})
        names = ("unpriced", "unpriced", "dear")
        answers = [(await ask(client, "/v1/chat/completions", name)).status for name in names]
        left = (await (await client.get("/api/budget")).json())["remaining_cost"]

    assert ([200, 200, 200], 0) == (answers, left)


async def used(client: Client) -> list[dict[str, Any]]:
    """The usage by model, as soon as there is some: without a budget it is written a moment later."""
    async with asyncio.timeout(LONG):
        while True:
            if rows := (await (await client.get("/api/usage?by=model")).json())["usage"]:
                return list(rows)
            await asyncio.sleep(0.02)


@requirement("budget.price")
async def test_what_a_comparison_has_cost_is_in_the_usage_without_a_budget_too(world):
    """It was counted with its tokens and no cost: the bill of whoever compares had no money in it."""
    client = await world.key({})
    await ask(client, "/api/comparisons", "dear")
    usage = await used(client)

    assert [("up/dear", COST)] == [(row["model"], row["cost"]) for row in usage]


@requirement("budget.price", "cmp.blind")
@pytest.mark.parametrize("budget", [{"cost_per_day": 1000}, {}], ids=["budget", "no budget"])
@pytest.mark.parametrize("order", ["parallel", "sequential"])
async def test_a_blind_comparison_costs_what_its_models_count_and_does_not_tell_which_is_which(order, budget):
    """Its runs show an estimate only, which has no word of what a model has thought: the rest was free. The usage has
    one sum, because a cost names its model."""
    half = Price(input=5e5, output=5e6)
    async with serving({"up/dear": PRICE, "up/dear:latest": half}) as world:
        client = await world.key(budget)
        body = {"models": ["up/dear", "up/dear:latest"], "prompt": "Hi", "blind": True, "order": order}
        compared = await client.post("/api/comparisons", body)
        panes = (await compared.json())["panes"]
        left = (await (await client.get("/api/budget")).json())["remaining_cost"]
        usage = await used(client)

    assert [None, None] == [pane["model"] for pane in panes]
    assert left == (1000 - COST * 1.5 if budget else None)
    assert [{"model": "blind", "runs": 2, "input_tokens": 14, "output_tokens": 10, "cost": COST * 1.5}] == usage


@requirement("budget.count", "cmp.blind")
async def test_a_blind_pane_that_failed_costs_what_was_counted_before():
    """The reason is hidden, and the count too."""
    async with serving() as world:
        world.up.models["dear"] = [*COUNTED[:3], UsageChunk(7, 5), Eof()]
        client = await world.key({"cost_per_day": 1000})
        body = {"models": ["up/dear"], "prompt": "Hi", "blind": True}
        compared = await (await client.post("/api/comparisons", body)).json()
        left = (await (await client.get("/api/budget")).json())["remaining_cost"]

    assert "pane_failed" == compared["panes"][0]["settlement"]["error"]["code"]
    assert 1000 - COST == left


@requirement("budget.count")
@pytest.mark.parametrize("blind", [False, True])
async def test_what_was_used_yesterday_stops_no_comparison_of_today(blind):
    """A pane was measured before its run had a time: its budget had the usage of all days."""
    store = MemoryStore()
    async with serving(store=store) as world:
        world.up.models["dear"] = [*COUNTED[:2], Delta("One "), Pause(0.1), Delta("two "), Pause(0.1), *COUNTED[2:]]
        client = await world.key({"tokens_per_day": 1000})
        (key,) = await store.list_keys()
        payer, at = Payer(key.owner, key.id), time.time() - 2 * 86400
        use = {"owner": key.owner, "model": ModelName("up/dear"), "started_at": at, "output_tokens": 5000}
        await store.charge([Charge(id="use_1", payer=payer, **use)], at)
        body = {"models": ["up/dear"], "prompt": "Hi", "blind": blind}
        compared = await (await client.post("/api/comparisons", body)).json()

    assert "completed" == compared["panes"][0]["settlement"]["outcome"]


# What is left in the middle, and what is passed on.

PIECE = "x" * 40
"""Ten tokens, by the estimate of four characters to a token."""


def choices(request: Recorded) -> list[Step]:
    """Twenty pieces for each choice, in turn, and no count: the client may leave after any of them."""
    pieces = [
        Chunk({"choices": [{"index": index, "delta": {"content": PIECE}}]})
        for _ in range(20)
        for index in range(request.body.get("n", 1))
    ]
    return [Headers(), Role(), *pieces, Hang()]


def arguments(request: Recorded) -> list[Step]:
    """A call of a tool that has no end."""
    return [Headers(), Role(), ToolDelta(id="c", name="f"), *[ToolDelta(arguments=PIECE)] * 20, Hang()]


async def said(client: Client, path: str, body: dict[str, Any], pieces: int) -> int:
    """Read an answer until it has said so much or ends, and leave."""
    response = await client.post(path, {**body, "stream": True})
    seen = 0
    while response.status == 200 and seen < pieces and (frame := await response.next_event()) is not None:
        seen += frame.data.count(PIECE)
    response.leave()
    return response.status


async def ledger(client: Client, at_least: int) -> int:
    """What the ledger has, as soon as it has so much: what was left is counted in a moment."""
    async with asyncio.timeout(LONG):
        while True:
            rows = (await (await client.get("/api/usage?by=day")).json())["usage"]
            total = sum(row["input_tokens"] + row["output_tokens"] for row in rows)
            if total >= at_least:
                return total
            await asyncio.sleep(0.02)


@requirement("budget.count")
@pytest.mark.parametrize("n", [1, 20])
async def test_a_run_that_is_left_costs_what_all_of_its_choices_have_said(world, n):
    """Its client had them all; only the first was once counted."""
    client = await world.key({"tokens_per_day": 100_000})
    await said(client, "/v1/chat/completions", {"model": "choices", "messages": HELLO, "n": n}, 10 * n)

    assert 10 * n * 10 <= await ledger(client, 10 * n * 10)


@requirement("budget.count")
async def test_the_arguments_of_tool_calls_cost_too(world):
    """A model may write pages of them."""
    client = await world.key({"tokens_per_day": 100_000})
    await said(client, "/v1/chat/completions", {"model": "arguments", "messages": HELLO}, 10)

    assert 100 <= await ledger(client, 100)


@requirement("budget.stop")
async def test_a_budget_ends_a_run_with_many_choices_at_what_they_have_said_together(world):
    """And what it stops is spent."""
    client = await world.key({"tokens_per_day": 1000})
    body = {"model": "choices", "messages": HELLO, "n": 20, "stream": True}
    frames = await (await client.post("/v1/chat/completions", body)).all_events()
    given = sum(frame.data.count(PIECE) for frame in frames) * 10

    assert 1000 <= given <= 2000
    assert given <= await ledger(client, given)
    assert 429 == (await client.post("/v1/chat/completions", body)).status


@requirement("budget.count")
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_clients_do_they_get_no_more_than_their_budget_and_one_answer(world, seed):
    """Random calls on several wires, of which some are left in the middle: the ledger has all that was given out."""
    draw, budget, given, most = random.Random(seed), 5000, 0, 0
    client = await world.key({"tokens_per_day": budget})
    for _ in range(100):
        n, pieces = draw.choice([1, 2, 8]), draw.randrange(1, 20)
        path, body = draw.choice(
            [
                ("/v1/chat/completions", {"messages": HELLO, "n": n}),
                ("/v1/responses", {"input": "Hi"}),
                ("/v1/messages", {"messages": HELLO, "max_tokens": 9}),
            ]
        )
        pieces *= body.get("n", 1)
        if 429 == await said(client, path, {"model": "choices", **body}, pieces):
            break
        given, most = given + pieces * 10, max(most, 200 * body.get("n", 1))
        assert given <= await ledger(client, given)
    else:
        pytest.fail("no call was refused")

    assert given <= budget + most


PICTURE = [Status(200, {"created": 1, "data": [{"b64_json": "AAAA"}]})]
EMBEDDED = {"object": "list", "data": [], "model": "m", "usage": {"prompt_tokens": 500, "total_tokens": 500}}


@requirement("budget.count")
async def test_calls_that_are_passed_on_hold_what_they_will_use(world):
    """Sixty at once were once all answered, under a budget for two."""
    client = await world.key({"tokens_per_day": 1000})
    body = {"model": "embeds", "input": "x" * 2000}
    calls = waiting = {asyncio.ensure_future(client.post("/v1/embeddings", body)) for _ in range(20)}
    async with asyncio.timeout(LONG):
        while len(waiting) > 2:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    refused = [call.result() for call in calls - waiting]
    world.up.open("embeds")
    answered = [await call for call in waiting]

    assert {429} == {each.status for each in refused}
    assert [200, 200] == [each.status for each in answered]
    assert "1" == refused[0].headers["retry-after"]
    assert 1000 == await ledger(client, 1000)


@requirement("budget.price")
async def test_a_call_without_tokens_costs_its_price_and_needs_one_under_a_budget_of_money():
    """A picture has no count of tokens: it was free for ever."""
    prices = {"up/paints": Price(call=2.0), "up/dear": PRICE, "up/own": Price()}
    async with serving(prices) as world:
        world.up.models["dear"] = PICTURE
        client = await world.key({"cost_per_day": 3})
        calls = [
            await client.post("/v1/images/generations", {"model": model, "prompt": "A sea"})
            for model in ("dear", "own", "paints", "paints", "paints")
        ]
        left = (await (await client.get("/api/budget")).json())["remaining_cost"]

    assert [403, 200, 200, 200, 429] == [call.status for call in calls]
    assert "price of a call" in await calls[0].text()
    assert 0 == left


# Several calls at once.

SEGMENTS, PIECES = 30, 4


def in_segments(wave: str) -> Any:
    """An answer in segments, each of which waits until the test lets all calls of the wave go on."""

    def steps(request: Recorded) -> list[Step]:
        choices = range(request.body.get("n", 1))
        said = [Chunk({"choices": [{"index": n, "delta": {"content": PIECE}}]}) for n in choices] * PIECES
        gated = [step for k in range(SEGMENTS) for step in (Gate(f"{wave} {k}"), *said)]
        return [Headers(), Role(), *gated, Finish("stop"), Done()]

    return steps


class Call:
    """A streamed call. `tokens` is what its client has got by now; it leaves after some segments, or stays."""

    def __init__(self, draw: random.Random) -> None:
        self.leaves_after = draw.choice([3, 12, SEGMENTS, SEGMENTS])
        self._path, self._body = draw.choice(
            [
                ("/v1/chat/completions", {"messages": HELLO, "n": draw.choice([1, 2, 4])}),
                ("/v1/responses", {"input": "Hi"}),
                ("/v1/messages", {"messages": HELLO, "max_tokens": 9}),
            ]
        )
        self.n = self._body.get("n", 1)
        self.status, self.tokens, self._response = 0, 0, None

    async def start(self, client: Client) -> None:
        self._response = await client.post(self._path, {"model": "waves", "stream": True, **self._body})
        self.status = self._response.status

    async def hear(self, segment: int) -> None:
        """Read until a segment is there, or the end of the answer."""
        if self._response is None or self.status != 200:
            return
        while self.tokens < (segment + 1) * PIECES * self.n * 10:
            if (frame := await self._response.next_event()) is None:
                return
            self.tokens += 10 * frame.data.count(PIECE) * ('"delta"' in frame.data)
        if segment + 1 == self.leaves_after:
            self._response.leave()
            self._response = None


@requirement("budget.count")
@pytest.mark.parametrize("seed", range(3))
async def test_calls_at_once_get_no_more_than_their_budget_and_a_prompt_and_a_segment_each(world, seed):
    """Waves of random calls of one payer on several wires, some of which are left: a call holds a part of the budget
    before it uses it, so that what all have left is not given out to each of them."""
    draw, budget, given, over = random.Random(seed), 6000, 0, 0
    client = await world.key({"tokens_per_day": budget})
    for wave in range(20):
        world.up.models["waves"] = in_segments(f"{seed} {wave}")
        calls = [Call(draw) for _ in range(draw.randrange(3, 9))]
        await asyncio.gather(*(call.start(client) for call in calls))
        for segment in range(SEGMENTS):
            world.up.open(f"{seed} {wave} {segment}")
            await asyncio.gather(*(call.hear(segment) for call in calls))
        given += sum(call.tokens for call in calls)
        over = max(over, sum(PIECES * call.n * 10 + 10 for call in calls if call.status == 200))
        assert {call.status for call in calls} <= {200, 429}
        assert given <= await ledger(client, given)
        if all(call.status == 429 for call in calls):
            break
    else:
        pytest.fail("no call was refused")

    assert given <= budget + over
    assert 0 == (await (await client.get("/api/budget")).json())["remaining_tokens"]
