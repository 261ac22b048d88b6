"""Budgets of people, keys and groups: what is left, what is refused, what is stopped, and what is counted."""

import asyncio
import csv
import hashlib
import io
import json
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.pricing import Price
from holdfast.server.app import create_app
from holdfast.server.config.settings import KeySettings, ProviderSettings, Settings
from holdfast.store import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import SqliteStore
from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.native import Native
from tests.support.people import PASSWORD, browser, cookie_of, first_admin
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, clean_environment, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Upstream, UsageChunk, answer
from tests.support.waiting import LONG as LONG_WAIT

ADMIN = "admin-key-4f1c9d77aa0142"
PIECE = "x" * 40
"""Ten tokens, by the estimate of four characters to a token."""
LONG = [Headers(), Role(), *[Delta(PIECE)] * 200, Finish("stop"), Done()]
"""An answer of 2000 tokens whose upstream counts nothing."""

ASK = [{"role": "user", "content": "Hi"}]

PRICES = {
    "up/short": Price(),
    "up/long": Price(output=1000.0),
    "up/counted": Price(input=1000.0, output=2000.0),
    "up/gated": Price(),
}


@dataclass
class World:
    """A server with an admin, and clients for the keys and people that a test makes."""

    url: str
    up: Upstream
    admin: Client
    clients: AsyncExitStack

    async def client(self, key: str) -> Native:
        return Native(await self.clients.enter_async_context(Client(self.url, {"authorization": f"Bearer {key}"})))

    async def key(self, name: str, **limits: Any) -> tuple[Native, str]:
        """A client with a new key of a service, and the key's id."""
        made = await posted(self.admin, "/api/admin/keys", {"name": name, "budget": limits})
        return await self.client(made["key"]), made["id"]

    async def person(self, name: str, **fields: Any) -> tuple[Native, dict[str, Any]]:
        """A client that is signed in as a new person, and the account."""
        account = await posted(self.admin, "/api/admin/people", {"name": name, "password": PASSWORD, **fields})
        async with Client(self.url, {"origin": self.url}) as client:
            signed_in = await client.post("/api/sign-in", {"name": name, "password": PASSWORD})
            assert 200 == signed_in.status
        headers = {"origin": self.url, "cookie": cookie_of(signed_in)}
        return Native(await self.clients.enter_async_context(Client(self.url, headers))), account


async def posted(client: Client, path: str, body: Any) -> dict[str, Any]:
    response = await client.post(path, body)
    assert 201 == response.status, await response.text()
    made: dict[str, Any] = await response.json()
    return made


@asynccontextmanager
async def serving(store: Store | None = None, **more: Any) -> AsyncIterator[World]:
    async with Upstream() as up, AsyncExitStack() as clients:
        up.models.update(short=answer("Hello."), long=LONG)
        settings = Settings(
            providers=(ProviderSettings("up", base_url=up.base_url, models=("short", "long", "counted", "gated")),),
            keys=(KeySettings("admin", sha256=hashlib.sha256(ADMIN.encode()).hexdigest(), admin=True),),
            prices={
                "up/short": Price(),
                "up/long": Price(output=1000.0),
                "up/counted": Price(input=1000.0, output=2000.0),
            },
            currency="EUR",
            **more,
        )
        async with Served(create_app(settings, store or MemoryStore(), NO_HOME)) as served:
            admin = await clients.enter_async_context(Client(served.url, {"authorization": f"Bearer {ADMIN}"}))
            yield World(served.url, up, admin, clients)


@pytest.fixture
async def world():
    async with serving() as world:
        yield world


async def chat(api: Native, model: str = "up/short", **more: Any) -> Response:
    body = {"model": model, "messages": ASK, **more}
    return await api.client.post("/v1/chat/completions", body)


async def run_once(api: Native, model: str) -> dict[str, Any]:
    return await api.settled(await api.start(await api.new_session(), "Go", model))


async def refused(response: Response) -> str:
    assert 429 == response.status, await response.text()
    return str((await response.json())["error"]["code"])


@requirement("budget.stop")
@pytest.mark.parametrize("limits", [{"tokens_per_day": 300}, {"tokens_per_month": 300}, {"cost_per_day": 0.3}])
async def test_a_run_that_crosses_its_budget_is_stopped_and_its_text_is_kept(world, limits):
    """In the middle of the answer, with the reason, and no more than a segment after the budget."""
    api, _ = await world.key("ci", **limits)
    session = await api.new_session()
    run_id = await api.start(session, "Go", "up/long")
    frames = await api.replay(run_id)
    settled = frames[-1].json()["settlement"]
    notices = [frame.json() for frame in frames if frame.event == "notice"]
    [said] = [message for message in await messages(api, session) if message["role"] == "assistant"]

    assert ("stopped", "budget") == (settled["outcome"], settled["by"])
    assert 300 <= settled["usage"]["output_tokens"] + settled["usage"]["input_tokens"] <= 400
    assert settled["text"] == said["content"]
    assert "budget" == notices[-1]["code"]
    assert "is spent" in notices[-1]["message"]


async def messages(api: Native, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get(f"/api/sessions/{session}"))["messages"]
    return found


@requirement("budget.refuse")
async def test_after_a_spent_budget_the_next_run_is_refused_on_every_wire(world):
    """429 with the time until the next day, and with nothing left in the headers."""
    api, _ = await world.key("ci", tokens_per_day=300)
    await run_once(api, "up/long")
    session, hello = await api.new_session(), [{"role": "user", "content": "Hi"}]
    calls = {
        "/v1/chat/completions": {"model": "up/short", "messages": hello},
        "/v1/completions": {"model": "up/short", "prompt": "Hi"},
        "/v1/responses": {"model": "up/short", "input": "Hi"},
        "/v1/messages": {"model": "up/short", "messages": hello, "max_tokens": 9},
        "/v1/embeddings": {"model": "up/short", "input": "Hi"},
        "/api/chat": {"model": "up/short", "messages": hello},
        f"/api/sessions/{session}/runs": {"input": "Hi", "model": "up/short"},
        "/api/comparisons": {"prompt": "Hi", "models": ["up/short", "up/long"]},
    }
    answers = {path: await api.client.post(path, body) for path, body in calls.items()}

    assert dict.fromkeys(calls, 429) == {path: each.status for path, each in answers.items()}
    for path, each in answers.items():
        assert "retry-after" in each.headers, (path, await each.text())
        assert "0" == each.headers["x-budget-remaining-tokens"]
        assert 0 < int(each.headers["retry-after"]) <= 86400
    assert "budget_exceeded" == await refused(answers["/v1/chat/completions"])
    assert [] == await messages(api, session)


@requirement("budget.refuse")
async def test_an_allowed_request_tells_what_is_left(world):
    """In headers, of the tightest budget; a caller without limits gets none."""
    api, _ = await world.key("ci", tokens_per_day=500, tokens_per_month=5000, cost_per_day=2.5)
    free, _ = await world.key("free")
    first = await chat(api)
    await first.json()
    second = await chat(api)

    assert ("500", "2.5") == tuple(first.headers[f"x-budget-remaining-{kind}"] for kind in ("tokens", "cost"))
    assert int(second.headers["x-budget-remaining-tokens"]) < 500
    assert not [name for name in (await chat(free)).headers if name.startswith("x-budget")]


@requirement("budget.refuse")
async def test_each_limit_is_told_with_what_is_left_and_when_it_is_renewed(world):
    """Whoever is stopped by a limit wants to know which one it was, and how long to wait."""
    budget = {"tokens_per_day": 30_000, "tokens_per_month": 50_000, "runs_at_once": 5}
    ann, _ = await world.person("ann", budget=budget)
    await run_once(ann, "up/long")
    told = await ann.get("/api/budget")
    now = datetime.now(UTC)

    daily, monthly = told["limits"]
    assert [("owner", "day"), ("owner", "month")] == [(limit["of"], limit["per"]) for limit in (daily, monthly)]
    assert daily["tokens"]["used"] == monthly["tokens"]["used"] > 0
    for limit, whole in ((daily, 30_000), (monthly, 50_000)):
        assert whole == limit["tokens"]["limit"] == limit["tokens"]["used"] + limit["tokens"]["left"]
        assert limit["cost"] is None
        assert now < datetime.fromisoformat(limit["renews_at"]) <= now + timedelta(days=32)
    assert told["remaining_tokens"] == daily["tokens"]["left"]


@requirement("budget.count")
async def test_a_budget_of_a_group_is_for_its_people_together_and_each_has_their_own(world):
    """What one of them uses the other has not; who is in no group has all."""
    group = await posted(
        world.admin, "/api/admin/groups", {"name": "g", "budget": {"tokens_per_day": 300}, "each": {"runs_at_once": 5}}
    )
    (ann, _), (bob, _) = [await world.person(name, groups=[group["id"]]) for name in ("ann", "bob")]
    eve, _ = await world.person("eve")
    await run_once(ann, "up/long")
    budget = await bob.get("/api/budget")

    assert "budget_exceeded" == await refused(await chat(bob))
    assert 200 == (await chat(eve)).status
    assert {"owner": {"runs_at_once": 5}, "group": {"tokens_per_day": 300}} == {
        each["of"]: each["budget"] for each in budget["budgets"]
    }
    assert 0 == budget["remaining_tokens"]


@requirement("budget.refuse")
async def test_in_a_chat_that_others_share_a_person_spends_their_own_budget(world):
    """Else a colleague's chat would be a way past every budget."""
    group = (await posted(world.admin, "/api/admin/groups", {"name": "team"}))["id"]
    ada, _ = await world.person("ada", groups=[group])
    bob, _ = await world.person("bob", groups=[group], budget={"tokens_per_day": 0})
    session = (await posted(ada.client, "/api/sessions", {}))["id"]
    await posted(ada.client, f"/api/sessions/{session}/shares", {"group": group, "may": "write"})

    assert "budget_exceeded" == await refused(await bob.send(session, "Hi", "up/short"))
    assert (await ada.send(session, "Hi", "up/short")).status < 300


@requirement("budget.set")
async def test_a_changed_budget_counts_for_the_next_run(world):
    """Of a person, of a key, and of the settings, which are for those who have no budget of their own."""
    api, account = await world.person("ann", budget={"tokens_per_day": 0})
    key, id = await world.key("ci", tokens_per_day=0)
    before = [await refused(await chat(each)) for each in (api, key)]
    more = {"budget": {"tokens_per_day": 10_000}}
    changed = [
        await world.admin.request("PATCH", path, json=more)
        for path in (f"/api/admin/people/{account['id']}", f"/api/admin/keys/{id}")
    ]

    assert ["budget_exceeded"] * 2 == before
    assert [200, 200] == [each.status for each in changed]
    assert [200, 200] == [(await chat(each)).status for each in (api, key)]


@requirement("budget.set")
async def test_a_changed_budget_of_a_key_ends_nothing_that_runs(world):
    """Whoever raises a limit, because much runs, must not cut off what runs. It counts for what starts afterwards."""
    world.up.models["gated"] = [Gate("go"), *answer("Hello.")]
    service, id = await world.key("ci", tokens_per_day=1000)
    bob, _ = await world.person("bob")
    made = await posted(bob.client, "/api/keys", {"name": "program"})
    program = await world.client(made["key"])
    run = await service.start(await service.new_session(), "Hi", "up/gated")
    streams = [await chat(each, "up/gated", stream=True) for each in (service, program, service)]
    waiting = await service.client.send("POST", "/v1/chat/completions", json={"model": "up/gated", "messages": ASK})
    await world.up.until(lambda: len(world.up.requests) >= 5, LONG_WAIT)
    for limit in (10_000, 20_000):
        body = {"budget": {"tokens_per_day": limit}}
        paths = [f"/api/admin/keys/{key}" for key in (id, made["id"])]
        assert [200, 200] == [(await world.admin.request("PATCH", path, json=body)).status for path in paths]
    world.up.gates.open("go")
    told = [[frame.data async for frame in stream.events(comments=False)] for stream in streams]
    await waiting.head()
    shown = [await (await each.client.get("/api/budget")).json() for each in (service, program)]

    assert ["[DONE]"] * 3 == [each[-1] for each in told]
    assert "completed" == (await service.settled(run))["outcome"]
    assert 200 == waiting.status
    assert [[{"tokens_per_day": 20_000}]] * 2 == [[each["budget"] for each in it["budgets"]] for it in shown]


@requirement("budget.set")
async def test_the_budget_of_the_settings_is_for_everyone_without_an_own_one():
    """An own limit takes its place, and a limit that is not set stays."""
    async with serving(budget=Settings().budget.__class__(tokens_per_day=0, runs_at_once=3)) as world:
        free, _ = await world.key("free")
        ann, _ = await world.person("ann", budget={"tokens_per_day": 1000})

        assert "budget_exceeded" == await refused(await chat(free))
        assert 200 == (await chat(ann)).status
        [own] = (await ann.get("/api/budget"))["budgets"]
        assert {"tokens_per_day": 1000, "runs_at_once": 3} == own["budget"]


@requirement("budget.limits")
async def test_runs_at_once_and_requests_a_minute_are_limited(world):
    """A run that has ended makes room; a request of the last minute still counts."""
    world.up.models["gated"] = [Headers(), Role(), Delta("so far"), Gate(), Finish("stop"), Done()]
    few, _ = await world.key("few", runs_at_once=1)
    slow, _ = await world.key("slow", requests_per_minute=2)
    run_id = await few.start(await few.new_session(), "Go", "up/gated")
    await few.shown(run_id, "so far")
    busy = await refused(await chat(few))
    world.up.open("gate")
    await few.settled(run_id)

    assert "run_limit" == busy
    assert 200 == (await chat(few)).status
    assert [200, 200] == [(await chat(slow)).status for _ in range(2)]
    assert "rate_limited" == await refused(await chat(slow))


@requirement("budget.limits")
async def test_who_has_stored_enough_can_store_no_more(world):
    """Until something is deleted."""
    api, _ = await world.key("ci", bytes_stored=1000)
    session = await api.new_session()
    await api.settled(await api.start(session, "x" * 1000, "up/short"))
    full = await refused(await api.send(session, "more", "up/short"))
    await api.client.request("DELETE", f"/api/sessions/{session}")

    assert "storage_full" == full
    assert 200 == (await chat(api)).status


@requirement("budget.limits")
async def test_copies_and_imports_need_room_too(world):
    """A limit on runs alone would be none for who brings the words along."""
    api, _ = await world.key("ci", bytes_stored=1000)
    brought = {"messages": [{"role": "user", "content": "x" * 1000}]}
    session = await posted(api.client, "/api/sessions/import", brought)
    last = (await api.session(session["id"]))["messages"][-1]["id"]
    fork = await api.client.post(f"/api/sessions/{session['id']}/fork", {"message_id": last})
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("holdfast.json", json.dumps({"format": "holdfast-person", "version": 1}))
        archive.writestr("sessions/a.json", json.dumps({"messages": [{"id": "a", "role": "user", "content": "Hi"}]}))
    whole = await api.client.request("POST", "/api/account/import", body=file.getvalue())

    assert "storage_full" == await refused(fork)
    assert "storage_full" == await refused(await api.client.post("/api/sessions/import", brought))
    assert "storage_full" == await refused(whole)


@requirement("budget.count")
async def test_what_the_provider_counts_replaces_the_estimate(world):
    """Once for each run, whether it is stored or not, and in the currency of the settings."""
    world.up.models["counted"] = [Headers(), Role(), Delta("Hi."), Finish("stop"), UsageChunk(100, 50), Done()]
    api, id = await world.key("ci", tokens_per_day=1000)
    await run_once(api, "up/counted")
    assert 200 == (await chat(api, "up/counted")).status
    rows = await api.get("/api/usage")

    assert "EUR" == rows["currency"]
    [row] = rows["usage"]
    assert (2, 200, 100, id, "ci", "up/counted") == tuple(
        row[name] for name in ("runs", "input_tokens", "output_tokens", "key", "key_name", "model")
    )
    assert pytest.approx(2 * (100 * 1000 + 50 * 2000) / 1e6) == row["cost"]


@requirement("budget.usage")
async def test_usage_is_shown_to_its_owner_and_all_of_it_to_an_admin(world):
    """By what the caller asks for, as JSON and as CSV; a bad query is refused."""
    ann, _ = await world.person("ann")
    ci, _ = await world.key("ci")
    for api in (ann, ann, ci):
        await run_once(api, "up/short")
    own = await ann.get("/api/usage?by=model")
    everyone = await (await world.admin.get("/api/admin/usage?by=owner")).json()
    table = await (await world.admin.get("/api/admin/usage?format=csv")).text()
    rows = list(csv.DictReader(io.StringIO(table)))

    assert [("up/short", 2)] == [(row["model"], row["runs"]) for row in own["usage"]]
    assert {("ann", 2), ("ci", 1)} == {(row["person"], row["runs"]) for row in everyone["usage"]}
    assert {"ann", "ci"} == {row["person"] for row in rows}
    assert {"EUR"} == {row["currency"] for row in rows}
    assert 403 == (await ann.client.get("/api/admin/usage")).status
    for bad in ("by=sin", "since=yesterday", "since=2027-01-01&until=2026-01-01", "format=xml"):
        assert 400 == (await ann.client.get(f"/api/usage?{bad}")).status


@requirement("budget.count")
async def test_what_was_used_is_still_counted_after_a_restart(tmp_path: Path):
    """In SQLite: the sums of the day are those of the runs, however often the server starts."""
    for n in range(2):
        async with serving(await asyncio.to_thread(SqliteStore, tmp_path)) as world:
            if n == 0:
                ann, _ = await world.person("ann")
                await run_once(ann, "up/long")
            everyone = await (await world.admin.get("/api/admin/usage?by=owner")).json()

            assert [("ann", 1)] == [(row["person"], row["runs"]) for row in everyone["usage"]]
            assert everyone["usage"][0]["output_tokens"] >= 2000


@requirement("budget.count")
async def test_kill_9_neither_loses_nor_doubles_what_was_used(tmp_path: Path):
    """A stored run is settled with what it had said; one that is not stored counts for what it held, and has ended."""
    config = "[budget]\ntokens_per_day = 5000\nruns_at_once = 2\n"
    async with Upstream() as up:
        up.models["hanging"] = [Headers(), Role(), *[Delta(PIECE)] * 10, Hang()]
        up.models["short"] = answer("Hello.")
        models = ("hanging", "short")
        async with Server(tmp_path, [provider(up.base_url, models=models)], config=config, nodes=1) as server:
            async with server.client() as client:
                api = Native(client)
                run_id = await api.start(await api.new_session(), "Go", "up/hanging")
                await api.shown(run_id, PIECE * 10)
                unstored = await chat(api, "up/hanging", stream=True)
                seen = ""
                while PIECE * 10 not in seen:
                    frame = await unstored.next_event()
                    seen += frame.json()["choices"][0]["delta"].get("content") or ""
                assert "run_limit" == await refused(await chat(api))
                await server.kill9()
            await server.restart()
            async with server.client() as client:
                api = Native(client)
                settled = await api.settled(run_id)
                await until_allowed(api)
                rows = (await api.get("/api/usage?by=model"))["usage"]

    counted = {row["model"]: (row["runs"], row["output_tokens"]) for row in rows}
    assert "interrupted" == settled["outcome"]
    assert 1 == counted["up/short"][0]
    assert 2 == counted["up/hanging"][0]
    assert 200 <= counted["up/hanging"][1] <= 5000


async def until_allowed(api: Native) -> None:
    """Start a run as soon as those of the dead process no longer count: its node is looked for once a minute."""
    async with asyncio.timeout(LONG_WAIT):
        while (await chat(api)).status == 429:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.1)


@requirement("budget.set", "people.audit")
async def test_the_command_line_sets_budgets_beside_the_server(tmp_path: Path):
    """Of a person and of a key. Without options it prints the budget: whoever looks at it must not take it away. The
    audit log has every change, as one by HTTP, and no look."""
    async with Upstream() as up:
        up.models["short"] = answer("Hello.")
        async with Server(tmp_path, [provider(up.base_url, models=("short",))], nodes=1) as server:
            ann = await first_admin(server, "ann")
            made = await command(tmp_path, "key new ci")
            said = [
                await command(tmp_path, "user budget ann --tokens-per-day 1000 --cost-per-month 2.5"),
                await command(tmp_path, "key budget ci --requests-per-minute 1000000"),
                await command(tmp_path, "user budget ann"),
                await command(tmp_path, "key budget ci"),
            ]
            logged = [json.loads(line) for line in (await command(tmp_path, "audit export")).splitlines()]
            async with browser(server, ann) as client:
                own = await until_budgets(Native(client), 1)
            async with server.client(authorization=f"Bearer {made}") as client:
                keys = await until_budgets(Native(client), 1)
                said.append(await command(tmp_path, "key budget ci --none"))
                said.append(await command(tmp_path, "user budget ann --none"))
                none = await until_budgets(Native(client), 0)

    shown = ["ann: tokens per day 1000, cost per month 2.5", "ci: requests per minute 1000000"]
    changes = [it for it in logged if it["action"] in ("person.change", "key.change")]
    assert [*shown, *shown, "ci: no budget", "ann: no budget"] == said
    assert [("person.change", "command", "budget"), ("key.change", "command", "budget")] == [
        (it["action"], it["via"], it["details"]["changed"]) for it in changes if it["result"] == "done"
    ]
    assert [{"tokens_per_day": 1000, "cost_per_month": 2.5}] == own
    assert [{"requests_per_minute": 1_000_000}] == keys
    assert [] == none


async def command(data: Path, words: str) -> str:
    """Run a command of the command line, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", *words.split(), "--data", str(data)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=clean_environment() | {"HOME": str(data), "XDG_CONFIG_HOME": str(data)},
        cwd=data,
    )
    out, err = await process.communicate()
    assert 0 == process.returncode, err.decode()
    return out.decode().strip()


async def until_budgets(api: Native, number: int) -> list[dict[str, Any]]:
    """The caller's budgets, as soon as there are so many: a change counts within a second. A changed key is new."""
    async with asyncio.timeout(LONG_WAIT):
        while True:
            response = await api.client.get("/api/budget")
            if response.status == 200:
                budgets = [each["budget"] for each in (await response.json())["budgets"]]
                if len(budgets) == number:
                    return budgets
            await asyncio.sleep(0.05)


@requirement("budget.limits")
@pytest.mark.parametrize(
    "call",
    [
        ("/v1/responses", {"model": "up/short", "input": "x" * 50_000, "background": True}),
        ("/api/batches", {"models": ["up/short"], "prompts": [{"prompt": "x" * 50_000}]}),
        ("/api/comparisons", {"prompt": "x" * 50_000, "models": ["up/short", "up/gated"], "blind": True}),
        ("/v1/conversations", {"items": [{"type": "message", "role": "user", "content": "x" * 50_000}]}),
        ("/api/sessions/import", {"messages": [{"role": "user", "content": "x" * 50_000}]}),
    ],
    ids=lambda call: call[0],
)
async def test_whatever_stores_is_refused_when_all_room_is_used(tmp_path, call):
    """One call may exceed the limit; the next ones may not, whichever they are. A stop is still taken."""
    async with serving(await asyncio.to_thread(SqliteStore, tmp_path)) as world:
        world.up.models["gated"] = answer("Hi.")
        api, _ = await world.key("ci", bytes_stored=40_000)
        first = await api.client.post(*call)
        await first.body()
        again = await api.client.post(*call)
        chats = await api.client.post("/api/sessions", {})
        stop = await api.client.post("/api/runs/run_none/stop", {})

    assert first.status < 300, await first.text()
    assert "storage_full" == await refused(again)
    assert "storage_full" == await refused(chats)
    assert 404 == stop.status
