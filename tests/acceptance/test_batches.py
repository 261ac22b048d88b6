"""A set of prompts over several models: asked in the background, each cell once, kept through crashes, reported."""

import asyncio
import csv
import datetime
import io
import statistics
import time

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import KeySettings, ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.batches import MODELS, World, asked_of, place
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    Pause,
    ReasoningDelta,
    Role,
    Status,
    Upstream,
    UsageChunk,
    answer,
)
from tests.support.waiting import SOON

KEYS = (KeySettings("ann", key_env="ANN"), KeySettings("bob", key_env="BOB"))


@pytest.fixture
def settings():
    return {}


@pytest.fixture
async def world(settings):
    async with Upstream(answer("It is 42.")) as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b", "c"))
        app = create_app(Settings(providers=(described,), **settings), MemoryStore(), NO_HOME)
        async with Served(app) as served, served.client() as client:
            yield World(up, client)


@requirement("batch.once")
async def test_every_prompt_is_asked_of_every_model_once(world):
    """The whole of it in one look: accepted at once, finished, each cell with its answer and its figures."""
    batch = await world.create(name="first", system="Be brief.", params={"temperature": 0})
    assert ("running", "first", 9) == (batch["status"], batch["name"], batch["progress"]["total"])

    ended = await world.settled(batch)

    assert ("finished", {"total": 9, "done": 9, "failed": 0, "running": 0}) == (ended["status"], ended["progress"])
    assert ended == await world.get(batch)
    assert {1} == set(world.asked().values())
    assert 9 == len(world.asked())
    assert [{"role": "system", "content": "Be brief."}] == world.up.requests[0].body["messages"][:1]
    assert 0 == world.up.requests[0].body["temperature"]
    cells = await world.cells(batch)
    assert 9 == len({(cell["model"], cell["number"]) for cell in cells})
    for cell in cells:
        assert ("completed", "It is 42.", "provider") == (cell["outcome"], cell["text"], cell["usage_source"])
        assert 0 < cell["ttft_ms"] <= cell["duration_ms"]
        assert (3, 1) == (cell["input_tokens"], cell["output_tokens"])


@requirement("batch.crash")
async def test_kill_9_half_way_loses_repeats_and_double_counts_nothing(tmp_path):
    """Two hundred prompts, three models. What was kept is never asked again; only what was in the air is."""
    paced = [Headers(), Role(), Pause(0.005), Delta("It is "), Delta("42."), Finish(), UsageChunk(3, 2), Done()]
    prompts = [{"prompt": f"Question {number}", "expected": "42", "id": f"q{number}"} for number in range(200)]
    async with Upstream(paced) as up, Server(tmp_path, [provider(up.base_url, models=("a", "b", "c"))]) as server:
        async with server.client() as client:
            world = World(up, client)
            batch = await world.create(prompts, concurrency=8)
            await world.progressed(batch, 300)
            await server.kill9()
        killed_at = datetime.datetime.now(datetime.UTC).isoformat()

        await server.restart()
        async with server.client() as client:
            world = World(up, client)
            ended = await world.settled(batch)
            cells = await world.cells(batch)
            report = await world.report(batch)

    asked = asked_of(up)
    assert {"total": 600, "done": 600, "failed": 0, "running": 0} == ended["progress"]
    assert 600 == len(cells) == len({place(cell) for cell in cells})
    assert {200} == {model["answered"] for model in report.values()}
    assert {200} == {model["agreement"]["right"] for model in report.values()}
    assert 600 == len(asked)
    assert sum(asked.values()) - 600 <= 8, "only what was being asked is asked again"
    assert {1} == {asked[place(cell)] for cell in cells if cell["settled_at"] < killed_at}, "and never what was kept"
    assert 300 <= len([cell for cell in cells if cell["settled_at"] < killed_at]) < 600


@requirement("batch.stop")
async def test_stop_keeps_what_is_answered_and_resume_asks_only_the_rest(world):
    """Stopping is no failure: what was in the air stays open, and is answered later."""
    world.up.models["b"] = [Gate("b"), *answer("late")]
    batch = await world.create(4, concurrency=4)
    await world.progressed(batch, 2)

    stopped = await world.post(batch, "stop")

    assert "stopped" == stopped["status"]
    assert 0 == stopped["progress"]["running"]
    kept = await world.cells(batch)
    assert len(kept) == stopped["progress"]["done"] < 12
    assert {"completed"} == {cell["outcome"] for cell in kept}
    assert stopped == await world.post(batch, "stop")
    assert stopped == await world.settled(batch)

    world.up.open("b")
    asked_before = world.asked()
    await world.post(batch, "resume")
    ended = await world.settled(batch)

    assert ("finished", 12, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
    for cell in kept:
        assert 1 == asked_before[place(cell)] == world.asked()[place(cell)]


async def test_what_failed_is_counted_as_failed_and_can_be_asked_again(world):
    """An upstream that was down for an hour must not cost the whole batch."""
    world.up.models["b"] = [Status(400)]
    batch = await world.create(3)
    ended = await world.settled(batch)

    assert ("finished", 9, 3) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
    report = await world.report(batch)
    assert {"completed": 0, "truncated": 0, "stopped": 0, "failed": 3, "interrupted": 0} == report["up/b"]["outcomes"]
    assert [3] == list(report["up/b"]["errors"].values())
    assert None is report["up/b"]["ttft_ms_p50"] is report["up/b"]["tokens_per_second_p50"]

    assert ended == await world.post(batch, "resume"), "nothing is open, so nothing is asked"
    world.up.models.clear()
    await world.post(batch, "resume", {"failed": True})
    ended = await world.settled(batch)

    assert ("finished", 9, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])
    assert 9 == len(await world.cells(batch))
    assert {("b", 2), ("a", 1), ("c", 1)} == {(model, times) for (model, _), times in world.asked().items()}


async def test_a_cell_that_takes_too_long_has_failed_and_its_words_are_kept(world):
    """Its upstream is closed, and it is never fast."""
    world.up.models["b"] = [Headers(), Role(), Delta("So "), Hang()]
    batch = await world.create(1, timeout=6.0)
    await world.settled(batch)

    [cell] = [cell for cell in await world.cells(batch) if cell["model"] == "up/b"]
    assert ("failed", "deadline_exceeded", "So ") == (cell["outcome"], cell["error"]["code"], cell["text"])
    [asked] = [request for request in world.up.requests if request.model == "b"]
    await asked.wait_closed()


@pytest.mark.parametrize(
    ("match", "expected", "said", "right"),
    [
        ("contains", "New York", "It is new  york, of course.", True),
        ("contains", "42", "It is 41.", False),
        ("exact", "42", " 42\n", True),
        ("exact", "42", "It is 42", False),
        ("number", 1234.5, "In all: 1,234.5.", True),
        ("number", "7", "7 apples and 8 pears", False),
        ("number", 7, "none", False),
        ("regex", r"^It is \d+\.$", "It is 42.", True),
        ("regex", r"^\d+$", "It is 42.", False),
    ],
)
@requirement("batch.agreement")
async def test_agreement_is_judged_as_the_batch_says(world, match, expected, said, right):
    """Right, wrong, and no answer: three things."""
    world.up.script = answer(said)
    world.up.models["b"] = [Headers(), Role(), Delta(said), Finish("length"), Done()]
    batch = await world.create([{"prompt": "?", "expected": expected}, {"prompt": "nothing is expected"}], match=match)
    await world.settled(batch)

    report = await world.report(batch)
    assert (1, int(right), int(not right), 0) == counted(report["up/a"])
    assert (1, 0, 0, 1) == counted(report["up/b"]), "an answer that was cut off is none"
    low, high = report["up/a"]["agreement"]["low"], report["up/a"]["agreement"]["high"]
    assert 0 <= low <= float(right) <= high <= 1


def counted(model):
    told = model["agreement"]
    return told["asked"], told["right"], told["wrong"], told["no_answer"]


@requirement("batch.agreement")
async def test_a_pattern_without_end_holds_nobody_up_and_its_answers_are_not_judged(world):
    """That the search was given up says nothing of the model: it is neither right nor wrong, and the cell says why."""
    world.up.script = answer("a" * 40 + "!")
    prompts = [{"prompt": "?", "expected": "(a+)+$"}, {"prompt": "!", "expected": "!$"}]
    batch = await world.create(prompts, ["up/a"], match="regex")
    slowest = 0.0
    ended = asyncio.create_task(world.settled(batch))
    while not ended.done():
        began = time.monotonic()
        await world.client.get("/health")
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.sleep(0.05)

    assert slowest < SOON
    assert "finished" == (await ended)["status"]
    report = await world.report(batch)
    assert {(1, 1, 0, 0)} == {counted(model) for model in report.values()}
    assert {1} == {model["agreement"]["not_judged"] for model in report.values()}
    told = {cell["number"]: (cell["right"], cell.get("not_judged", "")) for cell in await world.cells(batch)}
    assert (True, "") == told[2]
    assert told[1][0] is None
    assert "took longer than 2 s" in told[1][1]


async def test_a_report_says_what_each_model_did(world):
    """Speed over completed answers only, as its answers had it; kinds can be looked at alone; CSV has the same."""
    world.up.models["b"] = [Pause(0.05), *answer("It ", "is ", "42.")]
    world.up.models["c"] = [Headers(), Role(), ReasoningDelta("Hm. "), Delta("42"), Finish(), UsageChunk(3, 9), Done()]
    prompts = [{"prompt": f"{n}", "expected": "42", "kind": "easy" if n % 2 else "hard"} for n in range(4)]
    batch = await world.create(prompts, concurrency=1)
    await world.settled(batch)

    report = await world.report(batch)
    cells = await world.cells(batch)
    took = {model: [cell["ttft_ms"] for cell in cells if cell["model"] == model] for model in MODELS}
    medians = {model: pytest.approx(statistics.median(each)) for model, each in took.items()}
    assert medians == {model: each["ttft_ms_p50"] for model, each in report.items()}
    assert report["up/b"]["ttft_ms_p50"] > 50
    assert report["up/b"]["ttft_ms_p95"] >= report["up/b"]["ttft_ms_p50"]
    assert (12, 36, 0) == tuple(report["up/c"][name] for name in ("input_tokens", "output_tokens", "estimated"))
    assert "Hm. " == next(cell["reasoning"] for cell in cells if cell["model"] == "up/c")
    assert {2} == {model["answered"] for model in (await world.report(batch, kind="easy")).values()}
    response = await world.client.get(f"/api/batches/{batch['id']}/report?format=csv")
    rows = list(csv.DictReader(io.StringIO(await response.text())))
    assert MODELS == [row["model"] for row in rows]
    assert ["4"] * 3 == [row["outcomes_completed"] for row in rows]
    assert "text/csv" in response.headers["content-type"]


async def test_no_other_model_answers_for_the_one_that_is_measured():
    """A fallback would put another model's words under this one's name."""
    async with Upstream(answer("from the other")) as up:
        up.models["a"] = [Status(503)]
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b"))
        settings = Settings(providers=(described,), fallbacks={"up/a": "up/b"}, retry_patience=0.01)
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            world = World(up, client)
            batch = await world.create(1, ["up/a"])
            await world.settled(batch)
            [cell] = await world.cells(batch)

    assert ("failed", "") == (cell["outcome"], cell["text"])
    assert {"a"} == {request.model for request in up.requests}


@pytest.mark.parametrize("settings", [{"max_runs_per_owner": 1}, {"starts_per_minute": 600}])
async def test_a_batch_waits_where_there_is_no_room_for_its_runs(world):
    """A limit delays it; it is no failure of a model."""
    ended = await world.settled(await world.create(1, concurrency=3))

    assert ("finished", 3, 0) == (ended["status"], ended["progress"]["done"], ended["progress"]["failed"])


async def test_a_deleted_batch_leaves_nothing(world):
    """Its runs are stopped, its upstreams closed, its answers gone, its id unknown."""
    world.up.models["b"] = [Gate("b"), Hang()]
    batch = await world.create(150, concurrency=4)
    await world.progressed(batch, 3)
    await world.up.reached("b")

    response = await world.client.request("DELETE", f"/api/batches/{batch['id']}")

    assert 204 == response.status
    for path in ("", "/events", "/report", "/cells"):
        assert 404 == (await world.client.get(f"/api/batches/{batch['id']}{path}")).status
    assert {"data": [], "has_more": False} == await world.api.get("/api/batches")
    for request in world.up.requests:
        if request.model == "b":
            await request.wait_closed()


@requirement("batch.once")
async def test_the_same_key_begins_one_batch(world):
    """A client that did not hear the answer asks again: also twice at once, and never for something else."""
    body = {"models": ["up/a"], "prompts": [{"prompt": "?"}]}
    headers = {"idempotency-key": "k"}

    responses = await asyncio.gather(*(world.client.post("/api/batches", body, headers=headers) for _ in range(3)))
    [batch_id] = {(await response.json())["id"] for response in responses}
    await world.settled({"id": batch_id})
    other = await world.client.post("/api/batches", {**body, "name": "other"}, headers=headers)

    assert 1 == len(world.up.requests)
    assert 1 == len((await world.api.get("/api/batches"))["data"])
    assert (409, "idempotency_conflict") == (other.status, (await other.json())["error"]["code"])
    await world.client.request("DELETE", f"/api/batches/{batch_id}")


async def test_batches_are_listed_the_newest_first_page_by_page(world):
    """As every list here."""
    made = [(await world.create(1, ["up/a"], name=f"b{number}"))["id"] for number in range(5)]

    first = await world.api.get("/api/batches?limit=3")
    second = await world.api.get(f"/api/batches?limit=3&before={first['data'][-1]['id']}")

    assert [True, False] == [first["has_more"], second["has_more"]]
    assert made[::-1] == [batch["id"] for batch in first["data"] + second["data"]]


BAD = {
    "no models": {"models": []},
    "too many models": {"models": [f"up/{n}" for n in range(17)]},
    "a model twice": {"models": ["up/a", "a"]},
    "no prompts": {"prompts": []},
    "an empty prompt": {"prompts": [{"prompt": " "}]},
    "a prompt that is none": {"prompts": ["?"]},
    "too many at once": {"concurrency": 33},
    "none at once": {"concurrency": 0},
    "no time": {"timeout": 0},
    "an unknown match": {"match": "vibes"},
    "an unknown field": {"promts": []},
    "no pattern": {"match": "regex", "prompts": [{"prompt": "?", "expected": "("}]},
    "a part without a type": {"prompts": [{"prompt": [{"text": "?"}]}]},
    "what every answer contains": {"prompts": [{"prompt": "?", "expected": " "}]},
    "a number that is none": {"match": "number", "prompts": [{"prompt": "?", "expected": "many"}]},
    "a model among the params": {"params": {"model": "b"}},
    "several answers": {"params": {"n": 2}},
    "a long kind": {"prompts": [{"prompt": "?", "kind": "k" * 65}]},
}


@pytest.mark.parametrize("wrong", BAD.values(), ids=BAD)
async def test_a_bad_batch_is_refused_and_leaves_nothing(world, wrong):
    """Before the first call to an upstream."""
    body = {"models": ["up/a"], "prompts": [{"prompt": "?"}], **wrong}
    response = await world.client.post("/api/batches", body)

    assert 400 == response.status
    assert {"message", "type", "code", "param", "help"} == (await response.json())["error"].keys()
    assert [] == (await world.api.get("/api/batches"))["data"]
    assert [] == world.up.requests


async def test_an_unknown_model_is_404_and_too_many_prompts_are_400(world):
    """The same codes as elsewhere."""
    unknown = await world.client.post("/api/batches", {"models": ["nowhere/m"], "prompts": [{"prompt": "?"}]})
    many = await world.client.post("/api/batches", {"models": ["up/a"], "prompts": [{"prompt": "?"}] * 10_001})

    assert (404, "model_not_found") == (unknown.status, (await unknown.json())["error"]["code"])
    assert (400, "prompts") == (many.status, (await many.json())["error"]["param"])
    assert [] == world.up.requests


async def test_another_owners_batch_is_not_there():
    """404, as for everything that belongs to someone else."""
    async with Upstream() as up:
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a",))
        settings = Settings(providers=(described,), keys=KEYS)
        app = create_app(settings, MemoryStore(), {**NO_HOME, "ANN": "a" * 32, "BOB": "b" * 32})
        async with Served(app) as served:
            ann, bob = (served.client(headers={"authorization": f"Bearer {key * 32}"}) for key in "ab")
            async with ann, bob:
                batch = await World(up, ann).create(1, ["up/a"])
                await World(up, ann).settled(batch)
                path = f"/api/batches/{batch['id']}"
                asked = [("GET", ""), ("GET", "/events"), ("GET", "/report"), ("GET", "/cells")]
                asked += [("POST", "/stop"), ("POST", "/resume"), ("DELETE", "")]
                seen = [(await bob.request(method, path + rest)).status for method, rest in asked]

                assert [404] * 7 == seen
                assert [] == (await Native(bob).get("/api/batches"))["data"]
                assert "finished" == (await World(up, ann).get(batch))["status"]


@pytest.mark.one_server("it measures the SQLite file")
async def test_ten_thousand_prompts_over_sixteen_models_are_accepted_and_their_progress_is_cheap(tmp_path):
    """Nothing that is kept for one answer grows with the batch."""
    models = [f"up/m{number}" for number in range(16)]
    prompts = [{"prompt": f"Question {number} " + "x" * 200} for number in range(10_000)]
    names = [name.removeprefix("up/") for name in models]
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=names)]) as server:
        async with server.client() as client:
            world = World(up, client)
            batch = await world.create(prompts, models, concurrency=8)
            await world.progressed(batch, 100)
            began = time.monotonic()
            for _ in range(10):
                assert 160_000 == (await world.get(batch))["progress"]["total"]
            assert time.monotonic() - began < SOON
            stopped = await world.post(batch, "stop")
            size = (tmp_path / "holdfast.db").stat().st_size + (tmp_path / "holdfast.db-wal").stat().st_size

    assert 100 <= stopped["progress"]["done"] < 160_000
    assert size < 30_000_000 + 5_000 * stopped["progress"]["done"]


async def test_a_server_that_is_asked_to_end_leaves_a_batch_for_the_next(tmp_path):
    """SIGTERM is no failure of a model: what was in the air is asked again."""
    script, soon = [Gate("go"), *answer("42")], "drain = 0.1"
    async with Upstream(script) as up, Server(tmp_path, [provider(up.base_url, models=("a",))], config=soon) as server:
        async with server.client() as client:
            batch = await World(up, client).create(3, ["up/a"], concurrency=3)
            await up.reached("go")
            ended = await server.terminate()
        assert 0 == ended.code
        up.open("go")
        await server.restart()
        async with server.client() as client:
            world = World(up, client)
            settled = await world.settled(batch)
            cells = await world.cells(batch)

    assert ("finished", 3, 0) == (settled["status"], settled["progress"]["done"], settled["progress"]["failed"])
    assert {"completed"} == {cell["outcome"] for cell in cells}
