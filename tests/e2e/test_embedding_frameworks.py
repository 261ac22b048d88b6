"""The examples for each framework in a uvicorn of their own: whose run it is, and what Ctrl-C ends."""

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.uvicorn_app import UvicornApp
from tests.support.waiting import LONG, SOON

EXAMPLES = Path(__file__).parents[2] / "examples"
USERS = """
from django.contrib.auth.models import User
for name in ("ann", "bob"):
    User.objects.create_user(name, password="pw")
"""


@dataclass(frozen=True)
class Example:
    """How a run is started in an example. Its run lasts for some seconds at least."""

    name: str
    start: str
    other: str = "/nowhere"
    """A path of the app that has nothing to do with runs, and its status."""
    other_status: int = 404

    def prepare(self, folder: Path) -> None:
        shutil.copy(EXAMPLES / f"{self.name}.py", folder)
        if self.name == "django_app":
            for arguments in (["migrate", "-v0"], ["shell", "-v0", "-c", USERS]):
                subprocess.run([sys.executable, "django_app.py", *arguments], cwd=folder, check=True, timeout=LONG)

    async def headers(self, app: UvicornApp, user: str) -> dict[str, str]:
        """Sign in, and return the headers of this user's requests."""
        if self.name != "django_app":
            return {"Authorization": f"Bearer token-of-{user}"}
        async with app.client() as client:
            form = urlencode({"username": user, "password": "pw"}).encode()
            sent = {"Content-Type": "application/x-www-form-urlencoded"}
            signed_in = await client.post("/sign-in", body=form, headers=sent)
        return {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}


FASTAPI = Example("fastapi_app", "/runs?subject=a%20wave&pause=5")
STARLETTE = Example("starlette_app", "/runs?to=600")
ALL = [
    FASTAPI,
    STARLETTE,
    Example("asgi_app", "/runs?to=600", "/", 200),
    Example("litestar_app", "/counts?to=600"),
    Example("django_app", "/counts?to=600"),
]


async def started(client: Client, example: Example) -> str:
    response = await client.post(example.start)
    assert 202 == response.status
    return str((await response.json())["id"])


async def codes(client: Client, run_id: str) -> list[tuple[int, str]]:
    """The status and the error of each call about a run."""
    calls = [("GET", ""), ("GET", "/events"), ("POST", "/stop")]
    answers = [await client.request(method, f"/runs/{run_id}{path}") for method, path in calls]
    return [(answer.status, (await answer.json())["error"]["code"]) for answer in answers]


@requirement("embed.owner", "sub.unknown-404")
@pytest.mark.parametrize("example", ALL, ids=lambda example: example.name)
async def test_the_run_of_another_does_not_exist(example, tmp_path):
    """Whoever guesses an id, or is sent one, learns nothing and stops nothing."""
    example.prepare(tmp_path)
    async with UvicornApp(tmp_path, example.name) as app:
        ann, bob = [app.client(headers=await example.headers(app, user)) for user in ("ann", "bob")]
        async with app.client() as nobody, ann, bob:
            run_id = await started(ann, example)
            unsigned = [(await nobody.get("/runs")).status, (await nobody.get(f"/runs/{run_id}/events")).status]
            of_bob = await codes(bob, run_id)
            unknown = await codes(bob, "run_x")
            lists = [(await (await client.get("/runs")).json())["runs"] for client in (ann, bob)]
            stopped = await (await ann.post(f"/runs/{run_id}/stop")).json()
            other = (await ann.get(example.other)).status

    assert [401, 401] == unsigned
    assert [(404, "run_not_found")] * 3 == of_bob == unknown
    assert [[run_id], []] == [[run["id"] for run in runs] for runs in lists]
    assert ("stopped", True) == (stopped["settlement"]["outcome"], stopped["stopped_now"])
    assert example.other_status == other


@requirement("embed.shutdown", "embed.kept")
@pytest.mark.parametrize(
    ("example", "number", "arguments"),
    [
        (FASTAPI, signal.SIGINT, []),
        (STARLETTE, signal.SIGTERM, ["--loop", "uvloop"]),
        *((example, signal.SIGINT, []) for example in ALL[2:]),
    ],
    ids=lambda value: getattr(value, "name", None),
)
async def test_open_streams_end_at_a_signal_with_the_settlement_of_their_run(example, number, arguments, tmp_path):
    """A server waits for open responses, and a run may last for an hour. The run was not completed, and says so."""
    example.prepare(tmp_path)
    async with UvicornApp(tmp_path, example.name, *arguments) as app:
        headers = await example.headers(app, "ann")
        async with app.client(headers=headers) as client:
            run_id = await started(client, example)
            reader = await client.get(f"/runs/{run_id}/events")
            before = [await reader.next_event() for _ in range(2)]
            began = time.monotonic()
            app.send(number)
            frames = [*before, *await reader.all_events()]
            logged = await app.ended()
            seconds = time.monotonic() - began
        await app.start()
        async with app.client(headers=headers) as client:
            later = await (await client.get(f"/runs/{run_id}")).json()

    settlement = frames[-1].json()["settlement"]
    assert ("run.settled", "stopped", "shutdown") == (frames[-1].event, settlement["outcome"], settlement["by"])
    assert settlement == later["settlement"]
    assert settlement["text"] == "".join(frame.json()["text"] for frame in frames if frame.event == "text.delta")
    assert seconds < SOON
    assert "" == logged


@requirement("embed.shutdown")
async def test_a_signal_leaves_runs_the_time_to_end_that_the_engine_was_given(tmp_path):
    """An answer that needs two more seconds is worth them."""
    app_file = """
import asyncio
from starlette.applications import Starlette
from holdfast import Engine
from holdfast.starlette import starlette_routes

async def story():
    yield "Once "
    await asyncio.sleep(1)
    yield "upon a time."

engine = Engine(drain=60)
routes = starlette_routes(engine, owner=lambda request: "me", start=lambda request: story())
app = Starlette(routes=routes, lifespan=engine.lifespan)
"""
    (tmp_path / "draining.py").write_text(app_file)
    async with UvicornApp(tmp_path, "draining") as app, app.client() as client:
        run_id = (await (await client.post("/runs")).json())["id"]
        reader = await client.get(f"/runs/{run_id}/events")
        await reader.next_event()
        app.send(signal.SIGINT)
        frames = await reader.all_events()
        await app.ended()

    settlement = frames[-1].json()["settlement"]
    assert ("completed", "Once upon a time.") == (settlement["outcome"], settlement["text"])


@requirement("embed.owner", "embed.shutdown")
async def test_several_processes_share_the_runs_of_a_postgresql(tmp_path, postgres):
    """A load balancer sends readers and stops to any of them. One that ends tells its readers to come back."""
    url = postgres.url(await postgres.new_database())
    source = (EXAMPLES / "starlette_app.py").read_text().replace("sqlite:./data", url)
    (tmp_path / "shared_app.py").write_text(source)
    headers = await STARLETTE.headers(UvicornApp(tmp_path, "shared_app"), "ann")
    async with UvicornApp(tmp_path, "shared_app") as one, UvicornApp(tmp_path, "shared_app") as two:
        async with one.client(headers=headers) as here, two.client(headers=headers) as there:
            run_id = await started(here, STARLETTE)
            reader = await there.get(f"/runs/{run_id}/events")
            before = [await reader.next_event() for _ in range(3)]
            foreign = await codes(two.client(headers=await STARLETTE.headers(two, "bob")), run_id)
            listed = (await (await there.get("/runs")).json())["runs"]
            stopped = await (await there.post(f"/runs/{run_id}/stop")).json()
            frames = [*before, *await reader.all_events()]
            going_on = await started(here, STARLETTE)
            reader = await there.get(f"/runs/{going_on}/events")
            await reader.next_event()
            two.send(signal.SIGINT)
            rest = await reader.all_events()
            await two.ended()
            status = (await (await here.get(f"/runs/{going_on}")).json())["status"]

    assert [(404, "run_not_found")] * 3 == foreign
    assert [run_id] == [run["id"] for run in listed]
    assert ("stopped", True) == (stopped["settlement"]["outcome"], stopped["stopped_now"])
    assert stopped["settlement"] == frames[-1].json()["settlement"]
    assert [str(number) for number in range(1, len(frames) + 1)] == [frame.id for frame in frames]
    assert "run.settled" not in [frame.event for frame in rest], "it goes on in the other process"
    assert "running" == status


@requirement("start.own-key")
async def test_a_request_that_is_sent_twice_starts_one_run(tmp_path):
    """A client that lost the answer sends its Idempotency-Key again."""
    STARLETTE.prepare(tmp_path)
    async with UvicornApp(tmp_path, "starlette_app") as app:
        async with app.client(headers=await STARLETTE.headers(app, "ann")) as client:
            sent = [client.post("/runs", headers={"Idempotency-Key": "one"}) for _ in range(5)]
            ids = {(await response.json())["id"] for response in await asyncio.gather(*sent)}
            refused = await client.post("/runs", headers={"Idempotency-Key": "x" * 257})
            error = (await refused.json())["error"]

    assert 1 == len(ids)
    assert (400, "invalid_request") == (refused.status, error["code"])


TWO_WAYS = """
from fastapi import Body, FastAPI, Form
from starlette.applications import Starlette
from starlette.routing import Mount
from holdfast import Engine
from holdfast.fastapi import run_routes
from holdfast.starlette import starlette_routes

async def say(text):
    yield text

def story(text: str = Body(embed=True), loud: bool = False):
    return say(text)

def letter(text: str = Form()):
    return say(text)

async def typed(request):
    async with request.form() as form:
        return say(form["text"])

def ann():
    return "ann"

engine = Engine("sqlite:./data")
app = FastAPI(lifespan=engine.lifespan)
app.include_router(run_routes(engine, owner=ann, start=story))
app.include_router(run_routes(engine, owner=ann, start=letter, prefix="/letters"))
app.mount("/plain", Starlette(routes=starlette_routes(engine, owner=lambda request: "ann", start=typed)))
"""
JSON, TYPED = "application/json", "application/x-www-form-urlencoded"


@requirement("start.own-key", "start.idempotent")
@pytest.mark.parametrize(
    ("path", "type", "body", "other"),
    [
        ("/runs", JSON, b'{"text": "one"}', b'{"text": "two"}'),
        ("/letters", TYPED, b"text=one", b"text=two"),
        ("/plain/runs", TYPED, b"text=one", b"text=two"),
    ],
    ids=["fastapi", "fastapi form", "starlette"],
)
async def test_a_key_that_was_used_for_another_request_starts_nothing(tmp_path, path, type, body, other):
    """As in the server: a client that reuses a key by mistake is told so, and does not get the old run silently."""
    (tmp_path / "two_ways.py").write_text(TWO_WAYS)
    async with (
        UvicornApp(tmp_path, "two_ways") as app,
        app.client(headers={"Idempotency-Key": "one", "Content-Type": type}) as client,
    ):
        first = await (await client.post(path, body=body)).json()
        again = await (await client.post(path, body=body)).json()
        refused = [await client.post(path, body=other), await client.post(f"{path}?loud=true", body=body)]
        codes = [(each.status, (await each.json())["error"]["code"]) for each in refused]
        runs = (await (await client.get(path)).json())["runs"]

    assert [first["id"]] == [again["id"]] == [run["id"] for run in runs]
    assert [(409, "idempotency_conflict")] * 2 == codes
