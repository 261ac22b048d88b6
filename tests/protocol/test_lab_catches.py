"""The lab catches what it is for: small servers with one lie each, and the check that must find it.

A lab that has never been seen to find anything proves nothing by finding nothing.
"""

import asyncio
import json
import shlex
import sys
from collections import defaultdict
from dataclasses import dataclass, field

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast_lab import CHECKS, SERVERS, WIRES, Finding, Http, Lab, Upstream, judge, trouble
from holdfast_lab.checks.readers import difference
from holdfast_lab.process import Judged, NotStarted
from tests.support.served import Served

# A relay that can lie.


@dataclass
class Relay:
    """Passes chat completions on, in its own words; `lie` is what it does wrong."""

    upstream: str
    lie: str = ""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        if self.lie == "answers by itself":
            return JSONResponse(_completion("Hello", "stop"))
        if self.lie == "never answers":
            await self._closing.wait()
        if self.lie == "out of order":
            return JSONResponse({"error": {"message": "No more."}}, status_code=503)
        if self.lie == "one at a time":
            async with self._turn:
                return await self._answer(body)
        return await self._answer(body)

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()
        self._http = httpx2.AsyncClient(timeout=None, trust_env=False)

    async def close(self) -> None:
        self._closing.set()
        for task in list(self.tasks):
            task.cancel()
        await self._http.aclose()

    async def _answer(self, body: dict[str, object]) -> Response:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        reading = asyncio.create_task(self._read(body | {"stream": True}, lines, status))
        self.tasks.add(reading)
        reading.add_done_callback(self.tasks.discard)
        if (code := await status) != 200:
            if self.lie == "errors are answers":
                return JSONResponse(_completion(f"Error: {code}", "stop"))
            return JSONResponse({"error": {"message": "upstream"}}, status_code=502)
        frames = self._frames(lines, reading)
        if body.get("stream"):
            return StreamingResponse(frames, media_type="text/event-stream")
        return await _folded(frames)

    async def _read(self, body: object, lines: asyncio.Queue[bytes | None], status: asyncio.Future[int]) -> None:
        """Read the upstream in a task of its own, which a client's leaving does not end by itself."""
        try:
            async with self._http.stream("POST", f"{self.upstream}/chat/completions", json=body) as response:
                is_stream = response.headers["Content-Type"].startswith("text/event-stream")
                status.set_result(response.status_code if is_stream else 502)
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        lines.put_nowait(line[6:].strip().encode())
        except httpx2.HTTPError:
            pass  # told below
        finally:
            if not status.done():
                status.set_result(502)
            lines.put_nowait(None)

    async def _frames(self, lines, reading):
        finish = None
        try:
            while (line := await lines.get()) is not None and line != b"[DONE]":
                try:
                    chunk = json.loads(line)
                except ValueError:
                    break
                if "error" in chunk:
                    break
                finish = chunk["choices"][0]["finish_reason"] or finish
                if finish == "length" and self.lie == "length is stop":
                    chunk["choices"][0]["finish_reason"] = "stop"
                yield _frame(chunk)
        finally:
            if self.lie != "never closes the upstream":
                reading.cancel()
        if finish is None and self.lie == "every end is stop":
            yield _frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        elif finish is None and self.lie != "says nothing":
            yield _frame({"error": {"message": "The upstream broke off."}})
        yield b"data: [DONE]\n\n"


def _frame(chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _completion(text: str, finish: str, arguments: str = "") -> dict[str, object]:
    message = {"content": text, "tool_calls": [{"function": {"name": "add", "arguments": arguments}}]}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


async def _folded(frames) -> Response:
    text, finish, arguments = "", None, ""
    async for frame in frames:
        chunk = json.loads(frame[6:]) if b"[DONE]" not in frame else {}
        if "error" in chunk:
            return JSONResponse(chunk, status_code=502)
        for choice in chunk.get("choices", ()):
            text += choice["delta"].get("content") or ""
            arguments += "".join(call["function"]["arguments"] for call in choice["delta"].get("tool_calls", ()))
            finish = choice["finish_reason"] or finish
    return JSONResponse(_completion(text, finish or "stop", arguments))


async def judged_relay(lie: str, *checks: str, **options: float) -> dict[str, Finding]:
    async with Upstream() as upstream:
        relay = Relay(upstream.base_url, lie)
        async with Served(relay.app(), lifespan="off") as served:
            lab = Lab(WIRES["openai-chat"](Http(f"{served.url}/v1"), "m"), upstream, **{"limit": 30.0, **options})
            try:
                return {finding.id: finding async for finding in judge(lab, SERVERS["any"], checks)}
            finally:
                await relay.close()


async def test_an_honest_relay_is_found_honest():
    """Else every finding below could be the relay's clumsiness, and not its lie."""
    found = await judged_relay("", "truth/*", "leave/mid-stream", "leave/silence", silence=0.3, patience=60.0)

    assert [] == [(finding.id, finding.seen) for finding in found.values() if finding.verdict == "fail"]
    assert found["leave/silence"].figures["p50_ms"] >= 0


@pytest.mark.parametrize(
    ("lie", "check", "seen"),
    [
        ("every end is stop", "truth/cut", 'told as success (finish_reason "stop")'),
        ("every end is stop", "truth/eof", 'told as success (finish_reason "stop")'),
        ("every end is stop", "truth/error", 'told as success (finish_reason "stop")'),
        ("says nothing", "truth/cut", "nothing was said"),
        ("length is stop", "truth/length", 'told as success (finish_reason "stop")'),
        ("errors are answers", "truth/500", 'told as success (finish_reason "stop")'),
        ("errors are answers", "truth/refused", 'told as success (finish_reason "stop")'),
        ("never closes the upstream", "leave/mid-stream", "still open"),
        ("never closes the upstream", "leave/silence", "still open"),
    ],
)
async def test_a_relay_that_lies_is_caught_by_the_check_for_it(lie, check, seen):
    """Each of these lies is one that a server in use tells."""
    found = await judged_relay(lie, check, patience=60.0, **({"open": 1.0} if "still" in seen else {}))

    assert "fail" == found[check].verdict
    assert seen in found[check].seen


class Mended:
    """A relay's process, as far as the lab needs one: a restart ends its lie, unless it does not come up again."""

    def __init__(self, relay: Relay, *, starts: bool = True) -> None:
        self._relay, self._starts = relay, starts
        self.starts = 0

    async def kill(self) -> None: ...

    async def start(self) -> None:
        self.starts += 1
        if not self._starts:
            raise NotStarted("It did not start again.")
        self._relay.lie = ""

    async def memory(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("lie", "starts", "restarts", "verdict"),
    [
        ("", True, 0, "pass"),
        ("out of order", True, 1, "pass"),
        ("out of order", False, 1, "not judged"),
    ],
)
async def test_a_server_that_was_brought_to_a_halt_is_started_again_for_the_next_check(lie, starts, restarts, verdict):
    """Else one fault would be counted against it again and again; one that answers is left as it is."""
    async with Upstream() as upstream:
        relay = Relay(upstream.base_url, lie)
        async with Served(relay.app(), lifespan="off") as served:
            process = Mended(relay, starts=starts)
            lab = Lab(WIRES["openai-chat"](Http(f"{served.url}/v1"), "m"), upstream, patience=60.0, judged=process)
            (finding,) = [finding async for finding in judge(lab, SERVERS["any"], ["slow/readers"])]
            await relay.close()

    assert (verdict, restarts) == (finding.verdict, process.starts)


async def test_a_server_that_begins_no_answer_is_not_judged_by_how_it_ends_one():
    """What it does when a client leaves cannot be seen there."""
    found = await judged_relay("never answers", "leave/mute", "leave/mid-stream", patience=0.5)

    assert {"not judged"} == {finding.verdict for finding in found.values()}
    assert all("no answer was under way" in finding.seen for finding in found.values())


async def test_what_a_server_does_not_promise_is_shown_and_not_counted_against_it():
    """The reader learns what happened, and why it is no fault."""
    async with Upstream() as upstream:
        relay = Relay(upstream.base_url, "never closes the upstream")
        async with Served(relay.app(), lifespan="off") as served:
            lab = Lab(WIRES["openai-chat"](Http(f"{served.url}/v1"), "m"), upstream, open=1.0)
            facts = SERVERS["any"].__class__("x", "", {"leave/*": "runs outlive their clients there"})
            (finding,) = [finding async for finding in judge(lab, facts, ["leave/silence"])]
            await relay.close()

    assert ("not promised", "runs outlive their clients there") == (finding.verdict, finding.why)
    assert "still open" in finding.seen


async def test_a_server_that_does_not_use_the_labs_upstream_is_not_judged():
    """It would be judged by answers that have nothing to do with the scripts."""
    async with Upstream() as upstream:
        relay = Relay(upstream.base_url, "answers by itself")
        async with Served(relay.app(), lifespan="off") as served:
            why = await trouble(Lab(WIRES["openai-chat"](Http(f"{served.url}/v1"), "m"), upstream))
            await relay.close()

    assert why is not None
    assert "did not ask the lab's upstream" in why


async def test_a_server_that_is_not_there_is_named():
    """Nobody should read a table of failures that are all one typing error."""
    async with Upstream() as upstream:
        why = await trouble(Lab(WIRES["openai-chat"](Http("http://127.0.0.1:9/v1"), "m"), upstream))

    assert why is not None
    assert "cannot connect" in why


# A server of responses whose readers lose something.


class Keeper:
    """Keeps responses in memory, and lets readers come back; `lie` is what it does wrong."""

    def __init__(self, upstream: str, lie: str = "") -> None:
        self._upstream, self._lie = upstream, lie
        self._events: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
        self._grew = asyncio.Condition()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/responses", self.start, methods=["POST"]),
                Route("/v1/responses/{id}", self.read),
                Route("/v1/responses/{id}/cancel", self.cancel, methods=["POST"]),
            ]
        )

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def start(self, request: Request) -> Response:
        body = await request.json()
        id = f"resp_{len(self._events)}"
        await self._add(id, {"type": "response.created", "response": {"id": id, "status": "in_progress"}})
        self._tasks[id] = asyncio.create_task(self._run(id, body["input"]))
        return self._stream(id, 0)

    async def cancel(self, request: Request) -> Response:
        id = request.path_params["id"]
        if self._lie != "a stop that only says so":
            self._tasks[id].cancel()
        status = "completed" if self._lie == "stopped is completed" else "cancelled"
        await self._add(id, {"type": f"response.{status}", "response": self._response(id, status)})
        return JSONResponse({})

    async def read(self, request: Request) -> Response:
        id = request.path_params["id"]
        if request.query_params.get("stream") != "true":
            return JSONResponse(self._events[id][-1]["response"])
        after = int(request.query_params["starting_after"]) + 1
        skipped = {"loses a frame on reconnect": 1, "repeats a frame on reconnect": -1}.get(self._lie, 0)
        return self._stream(id, max(0, after + skipped) if after else 0)

    def _response(self, id: str, status: str) -> dict[str, object]:
        text = "".join(str(event["delta"]) for event in self._events[id] if "delta" in event)
        kept = "" if self._lie == "keeps nothing" else text
        output = [{"type": "message", "content": [{"type": "output_text", "text": kept}]}]
        return {"id": id, "status": status, "output": output}

    async def _run(self, id: str, prompt: str) -> None:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": prompt}]}
        url = f"{self._upstream}/chat/completions"
        async with (
            httpx2.AsyncClient(timeout=None, trust_env=False) as http,
            http.stream("POST", url, json=body) as got,
        ):
            async for line in got.aiter_lines():
                if line.startswith("data: {") and (text := _text_of(json.loads(line[6:]))):
                    await self._add(id, {"type": "response.output_text.delta", "delta": text})
        await self._add(id, {"type": "response.completed", "response": self._response(id, "completed")})

    async def _add(self, id: str, event: dict[str, object]) -> None:
        async with self._grew:
            self._events[id].append(event | {"sequence_number": len(self._events[id])})
            self._grew.notify_all()

    def _stream(self, id: str, at: int) -> Response:
        return StreamingResponse(self._frames(id, at), media_type="text/event-stream")

    async def _frames(self, id: str, at: int):
        while True:
            async with self._grew:
                while len(self._events[id]) <= at:
                    await self._grew.wait()
            event = self._events[id][at]
            if self._lie == "splits its readers" and "delta" in event:
                event = event | {"delta": ""} if event.get("taken") else event
                self._events[id][at] = self._events[id][at] | {"taken": True}
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            at += 1
            if str(event["type"]) in ("response.completed", "response.cancelled"):
                return


def _text_of(chunk: dict[str, list[dict[str, dict[str, str]]]]) -> str:
    return chunk["choices"][0]["delta"].get("content") or ""


async def judged_keeper(lie: str, *checks: str, **options: float) -> dict[str, Finding]:
    async with Upstream() as upstream:
        keeper = Keeper(upstream.base_url, lie)
        async with Served(keeper.app(), lifespan="off") as served:
            lab = Lab(WIRES["responses"](Http(f"{served.url}/v1"), "m"), upstream, limit=30.0, samples=2, **options)
            try:
                return {finding.id: finding async for finding in judge(lab, SERVERS["any"], checks)}
            finally:
                await keeper.close()


async def test_an_honest_keeper_is_found_honest():
    """Else every finding below could be the keeper's clumsiness, and not its lie."""
    found = await judged_keeper("", "resume/*", "stop/mid-stream", "stop/told", "keep/stop", patience=60.0)

    assert {"pass"} == {finding.verdict for finding in found.values()}, found


@pytest.mark.parametrize(
    ("lie", "check", "seen"),
    [
        ("loses a frame on reconnect", "resume/reconnects", "missing"),
        ("repeats a frame on reconnect", "resume/reconnects", "twice"),
        ("splits its readers", "resume/readers", "missing"),
        ("a stop that only says so", "stop/mid-stream", "still open"),
        ("stopped is completed", "stop/told", "told as success"),
        ("keeps nothing", "keep/stop", "0 of "),
    ],
)
async def test_a_keeper_that_lies_is_caught_by_the_check_for_it(lie, check, seen):
    """Gaps, repeats, readers who split an answer between them, stops that stop nothing."""
    found = await judged_keeper(lie, check, patience=60.0, **({"open": 1.0} if "still" in seen else {}))

    assert "fail" == found[check].verdict, found[check].seen
    assert seen in found[check].seen


# The parts.


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("t0 t1 t2 ", None),
        ("t0 t2 ", "1 pieces missing, from t1"),
        ("t0 t1 t1 t2 ", "1 pieces twice, from t1"),
        ("t1 t0 t2 ", "the pieces came in another order"),
    ],
)
def test_what_is_wrong_with_a_text_is_said(told, said):
    """A report that only says "wrong" helps nobody to mend it."""
    assert said == difference(told, "t0 t1 t2 ")


def test_every_check_has_an_id_of_its_own_and_a_promise():
    """Results are compared by id, over servers and years."""
    ids = [check.id for check in CHECKS]

    assert len(set(ids)) == len(ids) > 50
    assert all(check.promise for check in CHECKS)


async def test_a_server_that_does_not_start_is_named(tmp_path):
    """The command that was typed is what must be mended."""
    judged = Judged(shlex.join([sys.executable, "-c", "raise SystemExit(3)"]), "http://127.0.0.1:9", timeout=30.0)

    with pytest.raises(NotStarted, match="It ended before it listened"):
        await judged.start()
