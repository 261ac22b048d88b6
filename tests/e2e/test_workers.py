"""`holdfast serve --workers 2`: one server of two processes. One has the data folder, and both carry what nobody keeps.

A connection is in one process at a time. A test knows in which by the id of a run that was started on it: the run of a
worker has its mark at the end.
"""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.requirements import requirement
from tests.support.http import ChunkDecoder, Client, HeaderMap, Incomplete
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import TEXT, Delta, Done, Finish, Gate, Headers, Role, Step, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER, WORKER = "", "1"
PATIENCE = 30.0
PLAIN = len("run_") + 36
"""Characters of the id of a run in the process with the data folder."""


class Answer(NamedTuple):
    status: int
    headers: HeaderMap
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def place(self) -> str:
        """The mark of the process in which the run of this answer was."""
        return mark(self.headers["x-run-id"])


def mark(run_id: str) -> str:
    return run_id[PLAIN:]


class Line:
    """One connection that is kept: requests go out in order, and so do the answers come."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = b""

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._writer.transport.abort()

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(PATIENCE):
            await self._writer.drain()

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        await self.write(request(method, path, body, **headers))
        return await self.answer()

    async def answer(self) -> Answer:
        """Read one whole answer; what follows it is the next one's."""
        async with asyncio.timeout(PATIENCE):
            while b"\r\n\r\n" not in self._buffer:
                await self._more()
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            status, *lines = head.split(b"\r\n")
            headers = HeaderMap.parse(lines)
            return Answer(int(status.split()[1]), headers, await self._body(headers))

    async def _body(self, headers: HeaderMap) -> bytes:
        if "content-length" in headers:
            length = int(headers["content-length"])
            while len(self._buffer) < length:
                await self._more()
            body, self._buffer = self._buffer[:length], self._buffer[length:]
            return body
        chunks, body = ChunkDecoder(), b""
        while True:
            body += chunks.feed(self._buffer)
            if chunks.done:
                self._buffer = chunks.rest
                return body
            self._buffer = b""
            await self._more()

    async def _more(self) -> None:
        data = await self._reader.read(65536)
        if not data:
            raise Incomplete(f"the connection ended after {self._buffer[:200]!r}")
        self._buffer += data


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    raw = b"" if body is None else json.dumps(body).encode()
    named = {"host": "127.0.0.1", "content-length": str(len(raw))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + raw


def chat(model: str = "up/m", content: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


class World(NamedTuple):
    server: Server
    up: Upstream
    client: Client
    api: Native

    @asynccontextmanager
    async def line(self, place: str) -> AsyncIterator[Line]:
        """A connection that is in that process: new ones go where there are fewer, so there soon is one."""
        lines: list[Line] = []
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    lines.append(await Line(self.server).__aenter__())
                    if (await lines[-1].ask("POST", "/v1/chat/completions", chat())).place == place:
                        break
            yield lines[-1]
        finally:
            for line in lines:
                await line.__aexit__()

    async def stream(self, place: str, model: str) -> tuple[str, Any]:
        """Start a run in that process that waits at its gate; its id, and the answer that its client reads."""
        self.up.models[model] = gated(model)
        elsewhere = []
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self.client.post("/v1/chat/completions", chat(f"up/{model}", stream=True))
                run_id = answer.headers["x-run-id"]
                if mark(run_id) == place:
                    break
                elsewhere.append(answer)
        for other in elsewhere:
            other.leave()
        return run_id, answer

    def calls(self, model: str) -> int:
        return sum(asked.model == model for asked in self.up.requests)


def gated(gate: str) -> list[Step]:
    return [Headers(), Role(), Delta("so far"), Gate(gate), Delta(", and on"), Finish(), Done()]


@asynccontextmanager
async def serving(folder: Path, config: str = "", models: list[str] | None = None) -> AsyncIterator[World]:
    async with Upstream() as up:
        server = Server(folder, [provider(up.base_url, models=models)], config=config, args=["--workers", "2"])
        async with server, server.client(timeout=PATIENCE) as client:
            await all_up(client)
            yield World(server, up, client, Native(client))


async def all_up(client: Client) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await (await client.get("/ready")).json())["workers"] < 2:  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server for all tests that neither kill it nor change what it may: each has models of its own."""
    async with serving(tmp_path_factory.mktemp("workers")) as world:
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bounded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One server with limits, a fallback and a list of models."""
    config = 'max_runs = 40\nmax_runs_per_owner = 30\nfallbacks = { "up/frail" = "up/m" }'
    async with serving(tmp_path_factory.mktemp("bounded"), config, models=["m", "frail", "held"]) as world:
        yield world


def children(pid: int) -> list[int]:
    """The processes that it has started and that have not ended."""
    everyone = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [each for each in everyone if parent(each) == pid and is_alive(each)]


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


async def gone(*pids: int) -> None:
    """Wait until processes have ended."""
    async with asyncio.timeout(PATIENCE):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# Any of them.


@requirement("workers.any")
async def test_runs_that_nobody_keeps_go_on_in_all_processes(world):
    """Or a second core would have nothing to do."""
    world.up.models["many"] = gated("many")
    answers = [await world.client.post("/v1/chat/completions", chat("up/many", stream=True)) for _ in range(12)]
    places = [mark(answer.headers["x-run-id"]) for answer in answers]
    ready = await world.api.get("/ready")

    world.up.open("many")
    texts = ["".join(said(await answer.text())) for answer in answers]

    assert min(places.count(OWNER), places.count(WORKER)) >= 3
    assert ready == {"status": "ready", "runs": 12, "workers": 2}
    assert ["so far, and on"] * 12 == texts


def said(stream: str) -> Iterator[str]:
    for line in stream.splitlines():
        if line.startswith("data: {"):
            yield from (choice["delta"].get("content") or "" for choice in json.loads(line[6:])["choices"])


@requirement("workers.any")
@pytest.mark.parametrize("at", [OWNER, WORKER], ids=["of the owner", "of a worker"])
@pytest.mark.parametrize("through", [OWNER, WORKER], ids=["through the owner", "through a worker"])
async def test_a_run_is_seen_resumed_and_stopped_through_any_process(world, at, through):
    """A client knows an address and an id, and nothing of processes."""
    model = f"any {at} {through}"
    run_id, answer = await world.stream(at, model)
    completion_id = run_id.replace("run_", "chatcmpl-")
    async with world.line(through) as line:
        shown = await line.ask("GET", f"/api/runs/{run_id}")
        polled = await line.ask("GET", f"/v1/chat/completions/{completion_id}")
    reader = await world.client.get(f"/api/runs/{run_id}/events", headers={"Last-Event-ID": "1"})
    first = await reader.next_event()
    async with world.line(through) as line:
        stopped = await line.ask("POST", f"/api/runs/{run_id}/stop")
        again = await line.ask("GET", f"/v1/chat/completions/{completion_id}?stream=true&starting_after=1")

    assert (200, "running", "so far") == (shown.status, shown.json()["status"], shown.json()["text"])
    assert (202, "running") == (polled.status, polled.json()["status"])
    assert ("2", "so far") == (first.id, first.json()["text"])
    assert (200, "stopped", "user") == (stopped.status, *ending(stopped.json()))
    assert "run.settled" == (await reader.all_events())[-1].event
    assert ["so far"] == [text for text in said(again.body.decode()) if text]
    assert b"[DONE]" in again.body
    assert "so far" == "".join(said(await answer.text()))
    await closed(world.up, model)


async def closed(up: Upstream, model: str) -> None:
    """Wait until nothing is asked of a model any more."""
    for asked in up.requests:
        if asked.model == model:
            await asked.wait_closed(PATIENCE)


def ending(run: dict[str, Any]) -> tuple[str, str]:
    return run["settlement"]["outcome"], run["settlement"]["by"]


@requirement("workers.any")
@pytest.mark.parametrize("through", [OWNER, WORKER], ids=["through the owner", "through a worker"])
async def test_what_is_stored_is_there_through_any_process(world, through):
    """Sessions, their runs, idempotency and the page: one process has them, and every connection finds it."""
    async with world.line(through) as line:
        session = (await line.ask("POST", "/api/sessions", {})).json()["id"]
    async with world.line(through) as line:
        asked = chat(content="Remember me", session_id=session)
        first = await line.ask("POST", "/v1/chat/completions", asked, idempotency_key=f"once {through}")
    async with world.line(through) as line:
        again = await line.ask("POST", "/v1/chat/completions", asked, idempotency_key=f"once {through}")
    async with world.line(through) as line:
        background = await line.ask("POST", "/v1/chat/completions", chat(background=True))
        page = await line.ask("GET", "/")

    transcript = await world.api.transcript(session)

    assert (200, OWNER) == (first.status, first.place)
    assert first.headers["x-run-id"] == again.headers["x-run-id"]
    assert [("user", "Remember me"), ("assistant", TEXT)] == transcript
    assert (202, OWNER) == (background.status, background.place)
    assert (200, True) == (page.status, b"<!doctype html>" in page.body.lower())


@requirement("workers.any")
async def test_openai_python_does_not_notice(world):
    """Its connections are kept and used again, by requests of all kinds."""
    async with AsyncOpenAI(base_url=f"{world.server.url}/v1", api_key="none", timeout=PATIENCE) as client:

        async def ask() -> str:
            messages: Any = [{"role": "user", "content": "Hello"}]
            chunks = await client.chat.completions.create(model="up/m", messages=messages, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])
            models = await client.models.list()
            whole = await client.chat.completions.create(model="up/m", messages=messages)
            assert models.data
            assert whole.choices[0].message.content == text
            return text

        texts = await asyncio.gather(*(ask() for _ in range(16)))

    assert [TEXT] * 16 == texts


# Handing over.


@requirement("workers.hand-over")
async def test_one_connection_may_want_something_else_each_time(world):
    """It goes to and fro between the processes, and each request is executed once."""
    world.up.models["to and fro"] = [Headers(), Role(), Delta("here"), Finish(), Done()]
    run_id, answer = await world.stream(WORKER, "stays")
    async with world.line(WORKER) as line:
        for _ in range(10):
            health = await line.ask("GET", "/health")
            one = await line.ask("POST", "/v1/chat/completions", chat("up/to and fro"))
            stays = await line.ask("GET", f"/api/runs/{run_id}")
            two = await line.ask("POST", "/v1/chat/completions", chat("up/to and fro"))

            assert (200, 200, 200, 200) == (health.status, one.status, stays.status, two.status)
            assert (WORKER, "running") == (two.place, stays.json()["status"])
    answer.leave()

    assert 20 == world.calls("to and fro")


@requirement("workers.hand-over")
async def test_requests_that_are_sent_ahead_are_answered_in_their_order(world):
    """Each of them may be another process's: none overtakes the answer before it."""
    run_id, answer = await world.stream(WORKER, "ahead")
    wanted = [
        request("POST", "/v1/chat/completions", chat(stream=True)),
        request("GET", "/health"),
        request("GET", f"/api/runs/{run_id}"),
        request("POST", "/v1/chat/completions", chat()),
        request("GET", "/api/sessions?limit=1"),
        request("GET", f"/api/runs/{run_id}"),
    ]
    for place in (OWNER, WORKER):
        async with world.line(place) as line:
            await line.write(b"".join(wanted))
            stream, health, run, completion, sessions, again = [await line.answer() for _ in wanted]

        assert b"[DONE]" in stream.body
        assert {"status": "ok"} == health.json()
        assert TEXT == completion.json()["choices"][0]["message"]["content"]
        assert "sessions" in sessions.json()
        assert run_id == run.json()["id"] == again.json()["id"]
    answer.leave()


@requirement("workers.hand-over")
async def test_an_answer_that_is_still_on_its_way_out_is_not_overtaken(world):
    """Its client is slow to take it, and has asked for something that another process has."""
    texts = [letter * 1_000_000 for letter in "abcdefgh"]
    world.up.models["long"] = [Headers(), Role(), *map(Delta, texts), Finish(), Done()]
    for place, path in ((OWNER, f"/api/runs/{'run_' + '0' * 36 + '1'}"), (WORKER, "/api/runs/unknown")):
        async with world.line(place) as line:
            await line.write(request("POST", "/v1/chat/completions", chat("up/long")) + request("GET", path))
            long, after = await line.answer(), await line.answer()

        assert place == long.place
        assert "".join(texts) == long.json()["choices"][0]["message"]["content"]
        assert 404 == after.status


@requirement("workers.hand-over")
@pytest.mark.parametrize("size", [200_000, 900_000, 3_000_000])
@pytest.mark.parametrize("kept", [True, False], ids=["stored", "not kept"])
async def test_a_large_request_arrives_whole(world, size, kept):
    """What was read of it goes with the connection, and the rest is read where that has gone."""
    content = f"{size} {kept} " + "x" * size
    named = {"session_id": f"large {size}"} if kept else {}
    sent = request("POST", "/v1/chat/completions", {**chat(content=content), **named})
    for place in (OWNER, WORKER):
        async with world.line(place) as line:
            for start in range(0, len(sent), 150_000):
                await line.write(sent[start : start + 150_000])
            answer = await line.answer()

        assert 200 == answer.status
        assert content in [said["content"] for said in world.up.requests[-1].body["messages"]]


@requirement("workers.hand-over")
async def test_a_request_whose_length_is_not_told_is_answered(world):
    """Nobody knows where it ends before it has come: it is the owner's, and the connection goes on after it."""
    body = json.dumps(chat(content="in chunks")).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:9], body[9:])]
    for place in (OWNER, WORKER):
        async with world.line(place) as line:
            for piece in (head, *pieces, b"0\r\n\r\n"):
                await line.write(piece)
            answer = await line.answer()
            after = await line.ask("GET", "/health")

        assert (200, OWNER, 200) == (answer.status, answer.place, after.status)


@requirement("workers.hand-over")
@pytest.mark.parametrize("ahead", [10_000, 40, -7], ids=["all of it", "half a head", "half a body"])
async def test_what_follows_a_request_whose_length_is_not_told_is_looked_at_too(world, ahead):
    """It may be another process's: a session that is made by a process without the store would be lost."""
    model = f"ahead {ahead}"
    for place in (OWNER, WORKER):
        run_id, answer = await world.stream(WORKER, model)
        head = f"POST /api/runs/{run_id}/stop HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
        named = request("POST", "/api/sessions", {"title": model})
        async with world.line(place) as line:
            await line.write(head.encode() + b"6\r\n{\r\n\r\n}\r\n0\r\n\r\n" + named[:ahead])
            stopped = await line.answer()
            await line.write(named[ahead:])
            session = await line.answer()
            run = await line.ask("GET", f"/api/runs/{run_id}")

        assert (200, 201, 200) == (stopped.status, session.status, run.status)
        assert model == (await world.api.get(f"/api/sessions/{session.json()['id']}"))["title"]
        await answer.body()


@requirement("workers.hand-over")
@pytest.mark.parametrize("sent", [b"GET /health HTTP/1.1\nhost: x\n\n", b"\0\1\2\r\n\r\n", b"x" * 100_000])
async def test_what_is_no_request_is_refused_and_not_waited_for(world, sent):
    """Whoever reads it first."""
    for place in (OWNER, WORKER):
        async with world.line(place) as line:
            await line.write(sent)
            answer = await line.answer()

        assert 400 == answer.status


@requirement("workers.hand-over")
async def test_a_client_that_sends_ahead_without_end_is_not_read_without_end(world):
    """What it sends while it is answered waits at its own side, also after a hand-over: nobody's memory is filled."""
    run_id, answer = await world.stream(WORKER, "goes on")
    world.up.models["flood"] = gated("flood")
    wanted = [
        request("POST", "/v1/chat/completions", chat("up/flood", stream=True)),
        request("GET", f"/api/runs/{run_id}/events"),
    ]
    async with world.line(OWNER) as line:
        await line.write(b"".join(wanted) + request("GET", "/health") * 4000)
        async with asyncio.timeout(PATIENCE):
            while not world.calls("flood"):  # noqa: ASYNC110 - asked by another process
                await asyncio.sleep(0.02)
        world.up.open("flood")
        await line.answer()
        flood = asyncio.create_task(line.write(b" " * 64 * 1024 * 1024))
        was_read, _ = await asyncio.wait({flood}, timeout=1.0)
        flood.cancel()
    answer.leave()

    assert not was_read


@requirement("workers.hand-over")
@pytest.mark.parametrize("whole", [True, False], ids=["the whole request", "half a request"])
async def test_a_client_that_leaves_at_once_leaves_nothing_behind(world, whole):
    """Be it in the middle of the hand-over: an attached run ends with it, and half a request begins none."""
    model = f"leaves {whole}"
    world.up.models[model] = gated(model)
    sent = request("POST", "/v1/chat/completions", chat(f"up/{model}", stream=True, session_id="leaves"))
    for _ in range(10):
        async with Line(world.server) as line:
            await line.write(sent if whole else sent[:-5])
    async with asyncio.timeout(PATIENCE):
        while (await world.api.get("/ready"))["runs"]:  # noqa: ASYNC110 - in other processes
            await asyncio.sleep(0.02)

    await closed(world.up, model)

    assert whole or not world.calls(model)


@requirement("workers.hand-over")
async def test_the_run_of_a_worker_stops_when_its_client_leaves(world):
    """In silence too: the connection is the worker's, and so is the news that it is gone."""
    run_id, answer = await world.stream(WORKER, "left")

    answer.leave()
    await closed(world.up, "left")
    async with asyncio.timeout(PATIENCE):
        while (run := await world.api.run(run_id))["status"] != "settled":  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.02)

    assert ("stopped", "disconnect") == ending(run)


# What counts for all of them.


@requirement("workers.limits")
async def test_limits_count_over_all_processes(bounded):
    """Twice the processes are not twice the runs, and none is refused while there is room."""
    bounded.up.models["held"] = gated("held")
    going_on = [await bounded.client.post("/v1/chat/completions", chat("up/held", stream=True)) for _ in range(30)]
    too_many = [await bounded.client.post("/v1/chat/completions", chat("up/held")) for _ in range(6)]
    places = {mark(answer.headers["x-run-id"]) for answer in going_on}
    bounded.up.open("held")
    for answer in going_on:
        await answer.body()
    after = await bounded.client.post("/v1/chat/completions", chat("up/m"))

    assert ({OWNER, WORKER}, {200}) == (places, {answer.status for answer in going_on})
    assert {429} == {answer.status for answer in too_many}
    assert 200 == after.status


@requirement("workers.limits")
async def test_a_provider_that_answers_few_at_a_time_and_a_model_with_a_stand_in_are_the_owners(bounded):
    """Only one process can count the turns, or knows who stands in."""
    change = {"name": "slow", "base_url": bounded.up.base_url, "models": ["m"], "max_runs": 1}
    await bounded.client.request("PUT", "/api/settings", json={"providers": [change]})
    for model in ("slow/m", "up/frail", "frail"):
        async with bounded.line(WORKER) as line:
            answer = await line.ask("POST", "/v1/chat/completions", chat(model))

        assert (200, OWNER) == (answer.status, answer.place)


@requirement("workers.limits")
async def test_what_is_set_counts_in_every_process_at_once(bounded):
    """Settings that took effect in one of two processes would work every other time."""
    described = {"name": "new", "base_url": bounded.up.base_url, "models": ["m"]}

    async def both() -> list[Answer]:
        async with bounded.line(WORKER) as line, bounded.line(OWNER) as other:
            return [await each.ask("POST", "/v1/chat/completions", chat("new/m")) for each in (line, other)]

    before = await both()
    await bounded.client.request("PUT", "/api/settings", json={"providers": [described]})
    after = await both()
    await bounded.client.request("PUT", "/api/settings", json={"providers": []})
    gone_again = await both()

    assert [404, 404] == [answer.status for answer in before]
    assert [(200, WORKER), (200, OWNER)] == [(answer.status, answer.place) for answer in after]
    assert [404, 404] == [answer.status for answer in gone_again]


@requirement("workers.limits")
async def test_every_process_asks_for_the_key(tmp_path):
    """A key that only one of two processes asks for keeps nobody out."""
    key = {"authorization": "Bearer hf-of-workers"}
    async with serving(tmp_path, 'api_key = "hf-of-workers"') as world:
        places: set[str] = set()
        async with asyncio.timeout(PATIENCE):
            lines: list[Line] = []
            while places != {OWNER, WORKER}:
                lines.append(await Line(world.server).__aenter__())
                places.add((await lines[-1].ask("POST", "/v1/chat/completions", chat(), **key)).place)
                refused = await lines[-1].ask("POST", "/v1/chat/completions", chat())

                assert 401 == refused.status
            for line in lines:
                await line.__aexit__()


@requirement("workers.limits")
async def test_few_wait_for_their_body_before_they_are_asked_for_the_key(tmp_path):
    """Whose a request is may be told by its body; but what strangers send is not kept in memory without end."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1048576\r\n\r\n{"
    async with serving(tmp_path, 'api_key = "hf-of-workers"') as world:
        lines = [await Line(world.server).__aenter__() for _ in range(100)]
        for line in lines:
            await line.write(head)
        answers = [asyncio.create_task(line.answer()) for line in lines]
        async with asyncio.timeout(PATIENCE):
            while sum(answer.done() for answer in answers) < 100 - 2 * 32:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
        statuses = {answer.result().status for answer in answers if answer.done()}
        for answer, line in zip(answers, lines, strict=True):
            answer.cancel()
            await line.__aexit__()

        assert {401} == statuses


# Life and death.


@requirement("workers.killed")
async def test_a_killed_worker_takes_only_its_own_runs_along_and_comes_back(tmp_path):
    """A run that nobody keeps is lost with its process: its client sees that, and nobody waits for it in vain."""
    async with serving(tmp_path) as world:
        lost_id, lost = await world.stream(WORKER, "lost")
        _, kept = await world.stream(OWNER, "kept")
        session = await world.api.new_session()
        world.up.models["stored"] = gated("stored")
        stored = await world.api.start(session, "Hello", "up/stored")
        (worker,) = children(world.server.pid)
        os.kill(worker, signal.SIGKILL)

        with pytest.raises(ConnectionError):
            await lost.body()
        async with asyncio.timeout(PATIENCE):
            while (unknown := await world.client.get(f"/api/runs/{lost_id}")).status != 404:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        world.up.open("kept")
        world.up.open("stored")
        rest, settled = await kept.text(), await world.api.settled(stored)
        await all_up(world.client)
        async with asyncio.timeout(PATIENCE):
            while (await world.api.get("/ready"))["runs"]:  # noqa: ASYNC110 - in other processes
                await asyncio.sleep(0.02)
        async with world.line(WORKER) as line:
            again = await line.ask("POST", "/v1/chat/completions", chat())

        assert "run_not_found" == (await unknown.json())["error"]["code"]
        assert ("so far, and on", "completed") == ("".join(said(rest)), settled["outcome"])
        assert (200, WORKER) == (again.status, again.place)
        assert [worker] != children(world.server.pid)
        assert "worker 1 has ended (-9)" in world.server.log_text()


@requirement("workers.killed")
async def test_workers_end_with_a_killed_owner(tmp_path):
    """Or they would hold the port, and whoever starts the server again could not."""
    async with serving(tmp_path) as world:
        _, answer = await world.stream(WORKER, "orphan")
        workers = children(world.server.pid)
        await world.server.kill9(group=False)
        with pytest.raises(ConnectionError):
            await answer.body()
        await gone(*workers)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", world.server.port))
            sock.listen()


@requirement("workers.killed")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_all_processes_end_together_and_well(tmp_path, number):
    """What goes on in a worker is settled and told, as in the owner. Ctrl-C reaches both at once."""
    async with serving(tmp_path, "drain = 0.2") as world:
        _, of_worker = await world.stream(WORKER, "worker")
        _, of_owner = await world.stream(OWNER, "owner")
        workers = children(world.server.pid)
        if number == signal.SIGINT:
            os.killpg(world.server.pid, number)
        else:
            os.kill(world.server.pid, number)
        texts = [await of_worker.text(), await of_owner.text()]
        ended = await world.server._ended(time.monotonic(), PATIENCE)
        await gone(*workers)

        assert all('"finish_reason":"cancelled"' in text and "so far" in text for text in texts)
        assert 0 == ended.code
        assert "Traceback" not in world.server.log_text()


@requirement("workers.killed")
async def test_a_signal_to_all_processes_leaves_runs_their_time_and_a_second_one_takes_it(tmp_path):
    """Some who end a server tell each of its processes: a worker hears of it twice, and that is no hurry."""
    async with serving(tmp_path, "drain = 60.0") as world:
        _, answer = await world.stream(WORKER, "drains")
        os.killpg(world.server.pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while (await world.client.get("/ready")).status != 503:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        reading = asyncio.create_task(answer.text())
        ended_early, _ = await asyncio.wait({reading}, timeout=0.5)
        os.killpg(world.server.pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            text = await reading
        ended = await world.server._ended(time.monotonic(), PATIENCE)

        assert not ended_early
        assert '"finish_reason":"cancelled"' in text
        assert 0 == ended.code
        assert "Traceback" not in world.server.log_text()


@requirement("workers.killed")
async def test_a_worker_that_is_asked_to_end_takes_no_idle_connection_along(tmp_path):
    """Its owner goes on: a client that has kept its connection finds it answered."""
    async with serving(tmp_path) as world, world.line(WORKER) as line:
        (worker,) = children(world.server.pid)
        os.kill(worker, signal.SIGTERM)
        await gone(worker)
        answer = await line.ask("POST", "/v1/chat/completions", chat())

        assert 200 == answer.status
