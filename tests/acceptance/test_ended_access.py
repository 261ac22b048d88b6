"""Work that starts later than its request: in a queue, a batch, a comparison, or an agent's next step.

The person who has asked for it may have lost the right to it meanwhile: then no upstream is called.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.server.app import create_app
from holdfast.server.config.settings import AgentSettings, ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.people import PASSWORD, cookie_of
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Delta, Gate, Hang, Headers, Role, Upstream, answer, calling
from tests.support.waiting import LONG

HELPER = AgentSettings("helper", model="up/tools", tools=("files",), approvals={"files_write": "deny"})


class World:
    """A server with an admin, and with Bob, who is in a group."""

    def __init__(self, up: Upstream, server: Any, client: Client) -> None:
        self.up = up
        self.server = server
        self.client = client
        self.root: dict[str, str] = {}
        self.bobs: dict[str, str] = {}
        self.bob = self.group = ""

    async def add_people(self) -> None:
        self.root = await self._signed_in("/api/first-admin", "root")
        self.group = (await self.post("/api/admin/groups", {"name": "team"}, self.root))["id"]
        person = {"name": "bob", "password": PASSWORD, "groups": [self.group]}
        self.bob = (await self.post("/api/admin/people", person, self.root))["id"]
        self.bobs = await self._signed_in("/api/sign-in", "bob")

    async def _signed_in(self, path: str, name: str) -> dict[str, str]:
        return {"cookie": cookie_of(await self.client.post(path, {"name": name, "password": PASSWORD}))}

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        response = await self.client.post(path, body, headers=self.bobs if headers is None else headers)
        assert response.status in (200, 201, 202), await response.text()
        return await response.json()

    async def change(self, path: str, **fields: Any) -> None:
        response = await self.client.request("PATCH", path, json=fields, headers=self.root)
        assert 200 == response.status, await response.text()

    async def disable(self) -> None:
        await self.change(f"/api/admin/people/{self.bob}", disabled=True)

    async def delete(self) -> None:
        path = f"/api/admin/people/{self.bob}?data=keep"
        assert 204 == (await self.client.request("DELETE", path, headers=self.root)).status

    async def lose_the_model(self) -> None:
        await self.change(f"/api/admin/groups/{self.group}", models=["up/other"])

    async def asked(self, count: int) -> None:
        """Wait until the upstream was asked so often."""
        await self.up.until(lambda: len(self.up.requests) >= count, LONG)

    async def ended(self, run_id: str) -> tuple[str, str]:
        """The outcome of a run, and the code of its error."""
        async with asyncio.timeout(LONG):
            settled = await (await self.server.engine.open(run_id)).settled()
        return settled.outcome, settled.error.code if settled.outcome == "failed" else ""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with Upstream() as up:
        up.models.update(gated=[Gate("go"), *answer("42")], other=answer("43"))
        models = ("gated", "tools", "other")
        settings = Settings(providers=(ProviderSettings("up", base_url=up.base_url, models=models),), agents=(HELPER,))
        app = create_app(settings, MemoryStore(), NO_HOME)
        async with Served(app) as served, Client(served.url, {"origin": served.url}) as client:
            world = World(up, app.state.server, client)
            await world.add_people()
            yield world


Loss = Callable[[World], Awaitable[None]]
LOSSES: dict[str, tuple[Loss, str]] = {
    "disabled": (World.disable, "access_ended"),
    "deleted": (World.delete, "access_ended"),
    "without the model": (World.lose_the_model, "model_not_found"),
}


@requirement("people.later-work")
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_queued_run_of_a_person_without_the_right_asks_no_model(world: World, loss: str):
    """It waits in its session; when its turn has come, the person may not use the model any more."""
    lose, code = LOSSES[loss]
    session = (await world.post("/api/sessions", {}))["id"]
    body = {"model": "up/gated", "if_busy": "queue"}
    runs = [await world.post(f"/api/sessions/{session}/runs", {"input": f"Q{n}", **body}) for n in range(2)]
    await world.asked(1)
    await lose(world)
    world.up.gates.open("go")

    assert ("completed", "") == await world.ended(runs[0]["id"])
    assert ("failed", code) == await world.ended(runs[1]["id"])
    assert 1 == len(world.up.requests)


@requirement("people.later-work")
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_batch_of_a_person_without_the_right_asks_no_model(world: World, loss: str):
    """Its other cells fail with the reason, so that they can be asked again later."""
    lose, code = LOSSES[loss]
    prompts = [{"prompt": f"Q{n}"} for n in range(3)]
    batch = await world.post("/api/batches", {"models": ["up/gated"], "prompts": prompts, "concurrency": 1})
    await world.asked(1)
    await lose(world)
    world.up.gates.open("go")
    async with asyncio.timeout(LONG):
        while (await world.server.evals.batches.documents.get(batch["id"])).body.state == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    cells = sorted([cell async for cell in world.server.evals.batches.cells(batch["id"])], key=lambda cell: cell.prompt)

    assert ["completed", "failed", "failed"] == [cell.outcome for cell in cells]
    assert [code, code] == [cell.error["code"] for cell in cells[1:]]
    assert 1 == len(world.up.requests)


@requirement("people.later-work", "budget.price", "budget.set")
@pytest.mark.parametrize("before", [{}, {"tokens_per_day": 1000}], ids=["no budget", "another budget"])
async def test_a_batch_whose_model_may_not_be_paid_any_more_fails_cell_by_cell(world: World, before: Any):
    """Its start is refused, before there is a run: the batch once went on for ever, and answered nothing. A budget that
    is set while a batch goes on counts for the rest of it."""
    await world.change(f"/api/admin/people/{world.bob}", budget=before)
    prompts = [{"prompt": f"Q{n}"} for n in range(3)]
    batch = await world.post("/api/batches", {"models": ["up/gated"], "prompts": prompts, "concurrency": 1})
    await world.asked(1)
    await world.change(f"/api/admin/people/{world.bob}", budget={"cost_per_day": 1})
    world.up.gates.open("go")
    ended = await _batch_when(world, batch["id"], "finished")
    cells = sorted([cell async for cell in world.server.evals.batches.cells(batch["id"])], key=lambda cell: cell.prompt)

    assert (3, 2) == (ended.done, ended.failed)
    assert [None, "no_price", "no_price"] == [cell.error and cell.error["code"] for cell in cells]
    assert 1 == len(world.up.requests)


@requirement("people.later-work")
@pytest.mark.parametrize("loss", ["disabled", "deleted"])
async def test_an_agent_of_a_person_without_the_right_takes_no_further_step(world: World, loss: str):
    """The model has called a tool; with its result it would be asked again."""
    lose, code = LOSSES[loss]
    world.up.models["tools"] = [Gate("go"), *calling(("files_list", {"path": "."}))]
    session = (await world.post("/api/sessions", {}))["id"]
    run = await world.post(f"/api/sessions/{session}/runs", {"input": "Look", "model": "agent/helper"})
    await world.asked(1)
    await lose(world)
    world.up.gates.open("go")

    assert ("failed", code) == await world.ended(run["id"])
    assert 1 == len(world.up.requests)


@requirement("people.later-work")
async def test_an_agent_that_a_person_has_lost_takes_no_further_step(world: World):
    """It asks a model that the person's groups allow no more, and the agent is open to those who may use it."""
    world.up.models["tools"] = [Gate("go"), *calling(("files_list", {"path": "."}))]
    session = (await world.post("/api/sessions", {}))["id"]
    run = await world.post(f"/api/sessions/{session}/runs", {"input": "Look", "model": "agent/helper"})
    await world.asked(1)
    await world.lose_the_model()
    world.up.gates.open("go")

    assert ("failed", "model_not_found") == await world.ended(run["id"])
    assert 1 == len(world.up.requests)


@requirement("people.later-work")
async def test_a_pane_that_waits_for_its_turn_asks_no_model(world: World):
    """The panes of a comparison that answers one after the other; the second one begins after the loss."""
    body = {"models": ["up/gated", "up/other"], "prompt": "Q", "order": "sequential", "lifetime": "detached"}
    await world.post("/api/comparisons", body)
    await world.asked(1)
    await world.disable()
    world.up.gates.open("go")
    async with asyncio.timeout(LONG):
        while not all(pane.outcome for pane in await _panes(world)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    answers = await _panes(world)

    assert ["completed", "failed"] == [it.outcome for it in answers]
    assert "access_ended" == answers[1].error.code
    assert 1 == len(world.up.requests)


async def _panes(world: World) -> list[Any]:
    """The panes of the only comparison."""
    [stored] = await world.server.compare.rounds.documents.page()
    return list(stored.body.panes)


@requirement("people.later-work")
async def test_what_a_person_has_left_to_run_goes_on_without_them(world: World):
    """Signed out everywhere is not disabled: a queued run still gets its answer."""
    session = (await world.post("/api/sessions", {}))["id"]
    body = {"model": "up/gated", "if_busy": "queue"}
    runs = [await world.post(f"/api/sessions/{session}/runs", {"input": f"Q{n}", **body}) for n in range(2)]
    await world.asked(1)
    assert 204 == (await world.client.post("/api/sign-out", {}, headers=world.bobs)).status
    world.up.gates.open("go")

    assert [("completed", "")] * 2 == [await world.ended(run["id"]) for run in runs]


# What a key has begun.


async def revoke(world: World, id: str) -> None:
    assert 204 == (await world.client.request("DELETE", f"/api/keys/{id}", headers=world.bobs)).status


async def let_expire(world: World, id: str) -> None:
    await world.post(f"/api/keys/{id}/rotate", {"overlap_hours": 0})


async def revoke_as_another_node_does(world: World, id: str) -> None:
    await world.server.store.revoke_key(id, 1.0)


KeyEnd = Callable[[World, str], Awaitable[None]]
KEY_ENDS: dict[str, KeyEnd] = {
    "revoked": revoke,
    "expired": let_expire,
    "revoked elsewhere": revoke_as_another_node_does,
}


async def with_key(world: World) -> tuple[str, dict[str, str]]:
    """Bob's new key: its id, and the headers of a program that uses it."""
    made = await world.post("/api/keys", {"name": "program"})
    return made["id"], {"authorization": f"Bearer {made['key']}", "cookie": ""}


@requirement("people.later-work", "safe.revoked")
@pytest.mark.parametrize("end", KEY_ENDS)
async def test_what_a_key_has_begun_ends_with_the_key(world: World, end: str):
    """Bob still has an account, but a key may have been limited in what it could use, and who had it may be anyone."""
    key, program = await with_key(world)
    session = (await world.post("/api/sessions", {}, program))["id"]
    body = {"model": "up/gated", "if_busy": "queue"}
    runs = [await world.post(f"/api/sessions/{session}/runs", {"input": f"Q{n}", **body}, program) for n in range(2)]
    own = (await world.post("/api/sessions", {}))["id"]
    bobs = await world.post(f"/api/sessions/{own}/runs", {"input": "Mine", **body})
    await world.asked(2)
    await KEY_ENDS[end](world, key)

    assert ("stopped", "") == await world.ended(runs[0]["id"])
    assert ("failed", "access_ended") == await world.ended(runs[1]["id"])
    world.up.gates.open("go")
    assert ("completed", "") == await world.ended(bobs["id"])
    assert 2 == len(world.up.requests)


async def narrow(world: World, id: str) -> None:
    await world.server.store.change_key(id, lambda details: replace(details, scopes=("read",)))


WORDS: dict[str, tuple[KeyEnd, str]] = {
    "revoked": (revoke, "The key of this request was revoked."),
    "expired": (let_expire, "The key of this request has expired."),
    "changed": (narrow, "The key of this request was changed. Send the request again."),
}


@requirement("safe.revoked")
@pytest.mark.parametrize("end", WORDS)
async def test_a_stream_says_how_its_key_ended(world: World, end: str):
    """Whoever reads "revoked" looks for a thief."""
    ends, words = WORDS[end]
    key, program = await with_key(world)
    body = {"model": "up/gated", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    world.up.models["gated"] = [Headers(), Role(), Delta("so far"), Hang()]
    stream = await world.client.post("/v1/chat/completions", body, headers=program)
    await stream.next_event()
    await ends(world, key)
    async with asyncio.timeout(LONG):
        last = [frame.data async for frame in stream.events(comments=False)][-1]

    assert ("unauthorized", words) == (json.loads(last)["error"]["code"], json.loads(last)["error"]["message"])


@requirement("people.later-work")
async def test_a_key_that_is_to_end_later_ends_nothing_before(world: World):
    """A key is rotated so that nothing breaks: both work for a while, and what the old one has begun goes on."""
    key, program = await with_key(world)
    body = {"model": "up/gated", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    stream = await world.client.post("/v1/chat/completions", body, headers=program)
    await world.asked(1)
    await world.post(f"/api/keys/{key}/rotate", {"overlap_hours": 1})
    await world.change(f"/api/admin/keys/{key}", expires_in_days=0.01)
    world.up.gates.open("go")
    last = [frame.data async for frame in stream.events(comments=False)][-1]
    shown = await (await world.client.get("/api/keys", headers=world.bobs)).json()
    await let_expire(world, key)

    assert "[DONE]" == last
    assert all(each["expires_at"] for each in shown["keys"] if each["id"] == key)
    assert 401 == (await world.client.get("/api/me", headers=program)).status


@requirement("people.later-work", "safe.revoked")
@pytest.mark.parametrize("end", KEY_ENDS)
async def test_a_batch_stops_with_the_key_that_has_begun_it(world: World, end: str):
    """Its person can go on with it, and pays for the rest."""
    key, program = await with_key(world)
    prompts = [{"prompt": f"Q{n}"} for n in range(3)]
    asked = {"models": ["up/gated"], "prompts": prompts, "concurrency": 1}
    batch = (await world.post("/api/batches", asked, program))["id"]
    await world.asked(1)
    await KEY_ENDS[end](world, key)
    stopped = await _batch_when(world, batch, "stopped")
    world.up.gates.open("go")
    await world.post(f"/api/batches/{batch}/resume", {})
    finished = await _batch_when(world, batch, "finished")
    cells = [cell async for cell in world.server.evals.batches.cells(batch)]

    assert (key, "") == (stopped.payer.key, finished.payer.key)
    assert ["completed"] * 3 == [cell.outcome for cell in cells]
    assert 4 == len(world.up.requests)


async def _batch_when(world: World, id: str, state: str) -> Any:
    async with asyncio.timeout(LONG):
        while (batch := (await world.server.evals.batches.documents.get(id)).body).state != state:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return batch


@requirement("people.later-work", "safe.revoked")
async def test_a_comparison_ends_with_the_key_that_has_begun_it(world: World):
    """The pane that answers is stopped, and the one that waits for its turn asks no model."""
    key, program = await with_key(world)
    body = {"models": ["up/gated", "up/other"], "prompt": "Q", "order": "sequential", "lifetime": "detached"}
    await world.post("/api/comparisons", body, program)
    await world.asked(1)
    await revoke(world, key)
    async with asyncio.timeout(LONG):
        while not all(pane.outcome for pane in await _panes(world)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    assert ["stopped", "failed"] == [pane.outcome for pane in await _panes(world)]
    assert 1 == len(world.up.requests)
