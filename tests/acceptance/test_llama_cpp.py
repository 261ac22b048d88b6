"""llama.cpp's resumable dialect: a run under a name, read on from any byte, stopped and looked up by that name.

The statuses and shapes are those that llama.cpp's own server gave when it was asked the same.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Pause, Role, Step, Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = """
[[keys]]
name = "one"
key_env = "KEY_ONE"
[[keys]]
name = "two"
key_env = "KEY_TWO"
"""


class World(NamedTuple):
    client: Client
    other: Client
    up: Upstream
    server: Server

    async def ask(self, name: str, model: str, **more: Any) -> Response:
        body = {"model": f"up/{model}", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **more}
        return await self.client.post("/v1/chat/completions", body, headers={"X-Conversation-Id": name})

    async def rest(self, name: str, offset: int | str = 0) -> Response:
        return await self.client.get(f"/v1/stream?conv_id={name}&from={offset}")

    async def stop(self, name: str) -> Response:
        return await self.client.request("DELETE", f"/v1/stream?conv_id={name}")

    async def lookup(self, *names: Any, client: Client | None = None) -> Any:
        response = await (client or self.client).post("/v1/streams/lookup", {"conversation_ids": names})
        assert 200 == response.status
        return await response.json()

    async def run(self, response: Response) -> dict[str, Any]:
        run: dict[str, Any] = await Native(self.client).run(response.headers["x-run-id"])
        return run


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Two people and one server: each test has names of its own. It would say often that it is alive."""
    env = {"KEY_ONE": "key-of-the-first-person", "KEY_TWO": "key-of-the-second-person"}
    folder = tmp_path_factory.mktemp("llama")
    async with Upstream() as up:
        providers = [provider(up.base_url, models=None)]
        async with Server(folder, providers, config="heartbeat = 0.2\n" + KEYS, env=env) as server:
            async with (
                server.client(authorization=f"Bearer {env['KEY_ONE']}") as client,
                server.client(authorization=f"Bearer {env['KEY_TWO']}") as other,
            ):
                yield World(client, other, up, server)


def answer(*texts: str, end: tuple[Step, ...] = (Finish(), Done())) -> list[Step]:
    return [Headers(), Role(), *(Delta(text) for text in texts), *end]


def said(body: bytes) -> str:
    """The text of a whole stream."""
    datas = [line.removeprefix("data: ") for line in body.decode().split("\n\n") if line]
    chunks = [json.loads(data) for data in datas if data != "[DONE]"]
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", ()))


@requirement("llama.byte-exact")
async def test_the_rest_from_every_byte_is_exactly_the_rest(world):
    """A client counts bytes, and is cut off anywhere: in the middle of a frame, of a character, of a line end."""
    world.up.models["waves"] = answer("Hé", "🌊")
    whole = await (await world.ask("waves", "waves")).body()

    async def rest(offset: int) -> bytes:
        return await (await world.rest("waves", offset)).body()

    resumed = []
    for start in range(0, len(whole) + 2, 20):
        resumed += await asyncio.gather(*(rest(offset) for offset in range(start, min(start + 20, len(whole) + 2))))

    assert [whole[offset:] for offset in range(len(whole) + 2)] == resumed
    assert "Hé🌊" == said(whole)
    assert any(not 0x80 > byte for byte in whole), "there was no character of several bytes"


@requirement("llama.byte-exact", "gone.detached")
async def test_a_client_that_is_cut_off_goes_on_live_from_its_last_byte(world):
    """The run does not notice that it left; replay and live are one stream, without a sign of life in between."""
    world.up.models["gated"] = answer("one ", end=(Gate("llama"), Delta("two"), Pause(0.5), Finish(), Done()))
    first = await world.ask("gated", "gated")
    while "one " not in ((await first.next_event()).json()["choices"][0]["delta"].get("content") or ""):
        pass
    seen = first.raw_bytes
    first.leave("rst")
    begun = await world.rest("gated")
    await begun.next_event()
    world.up.open("llama")
    whole = await begun.body()
    middle = len(whole) // 2

    rest = await (await world.rest("gated", middle)).body()

    assert b"one " in bytes(seen)
    assert "one two" == said(whole)
    assert (whole[middle:], b"") == (rest, whole.partition(b"data: [DONE]\n\n")[2])
    assert b"\n:" not in whole, "a comment would be counted"
    assert ("completed", "detached") == _told(await world.run(begun))


def _told(run: dict[str, Any]) -> tuple[str, str]:
    return run["settlement"]["outcome"], run["lifetime"]


@requirement("llama.byte-exact", "truth.in-band-error", "truth.length")
@pytest.mark.parametrize("ending", ["in-band-error", "length", "eof", "401", "think", "tool-call"])
async def test_every_ending_is_read_again_as_it_was_told(world, ending):
    """A failure too has its bytes; one that came before any output was a status, and is an error event here."""
    response = await world.ask(f"end-{ending}", f"end:{ending}", stream_options={"include_usage": True})
    whole = await response.body()

    replayed = await world.rest(f"end-{ending}")
    body = await replayed.body()

    assert 200 == replayed.status
    if ending == "401":
        assert 502 == response.status
        assert json.loads(whole)["error"] == json.loads(body.split(b"data: ")[-1])["error"]
    else:
        assert whole == body
    assert body[7:] == await (await world.rest(f"end-{ending}", 7)).body()


@requirement("llama.stop", "stop.closes-upstream")
async def test_delete_stops_the_run_and_every_reader_is_told(world):
    """204 whether it ran or not: it is not running now. Unlike with llama.cpp itself, what was said stays."""
    world.up.models["endless"] = answer("Half", end=(Hang(),))
    reader = await world.ask("endless", "endless")
    await reader.next_event()
    await reader.next_event()

    stops = [(await world.stop("endless")).status, (await world.stop("endless")).status]
    told = await reader.all_events()
    replayed = await (await world.rest("endless")).body()
    run = await world.run(reader)

    assert [204, 204] == stops
    assert ["cancelled", "[DONE]"] == [told[-2].json()["choices"][0]["finish_reason"], told[-1].data]
    assert ("stopped", "user", "Half") == tuple(run["settlement"][field] for field in ("outcome", "by", "text"))
    assert b'"finish_reason":"cancelled"' in replayed
    await next(request for request in world.up.requests if request.model == "endless").wait_closed()


@requirement("llama.replace")
async def test_a_new_run_under_the_name_replaces_the_one_before(world):
    """As with llama.cpp: one name, one run. The one before is stopped, and its readers are told."""
    world.up.models |= {"old": answer("Old", end=(Hang(),)), "new": answer("New")}
    old = await world.ask("again", "old")
    await old.next_event()
    await old.next_event()

    new = await world.ask("again", "new")
    body = await new.body()
    ended = await old.all_events()

    assert "cancelled" == ended[-2].json()["choices"][0]["finish_reason"]
    assert "replaced" == (await world.run(old))["settlement"]["by"]
    assert body == await (await world.rest("again")).body()
    assert "New" == said(body)


@requirement("llama.replace")
async def test_of_many_runs_under_a_name_only_the_last_goes_on(world):
    """Ten at once, from ten tabs: none is lost from sight, and no two of them go on."""
    world.up.models["tab"] = answer("Tab", end=(Hang(),))

    responses = await asyncio.gather(*(world.ask("tabs", "tab") for _ in range(10)))
    await asyncio.gather(*(response.next_event() for response in responses))
    found = await world.rest("tabs")
    runs = [await world.run(response) for response in responses]
    running = [run["id"] for run in runs if run["status"] == "running"]
    await world.stop("tabs")

    assert [found.headers["x-run-id"]] == running
    assert {"replaced"} == {run["settlement"]["by"] for run in runs if run["id"] not in running}


@requirement("llama.replace", "llama.stop")
@pytest.mark.parametrize("kept_in", ["session", "response"])
async def test_that_an_earlier_run_was_deleted_hides_no_later_one(world, kept_in):
    """A stop that answers 204 and stops nothing would be the worst answer: the run would go on unseen."""
    world.up.models |= {"gone": answer("Gone"), "later": answer("Later", end=(Hang(),)), "last": answer("Last")}
    name = f"deleted-{kept_in}"
    gone = await world.ask(name, "gone", **({"session_id": name} if kept_in == "session" else {}))
    await gone.body()
    run = await world.run(gone)
    later = await world.ask(name, "later")
    await later.next_event()

    response = run["id"].replace("run_", "resp_")
    path = f"/api/sessions/{run['session_id']}" if kept_in == "session" else f"/v1/responses/{response}"
    assert (await world.client.request("DELETE", path)).status in (200, 204)
    (found,) = await world.lookup(name)
    assert not found["is_done"]
    await (await world.ask(name, "last")).body()
    replaced = (await world.run(later))["settlement"]
    again = await world.ask(name, "later")
    await again.next_event()
    await world.stop(name)

    assert "replaced" == replaced["by"]
    assert "user" == (await world.run(again))["settlement"]["by"]


@requirement("llama.replace")
async def test_a_name_whose_run_was_deleted_is_free_again(world):
    """Nothing is found under it, nothing is stopped, and the next run has it."""
    world.up.models["free"] = answer("Free")
    first = await world.ask("free again", "free")
    await first.body()
    deleted = await world.client.request("DELETE", f"/v1/responses/resp_{first.headers['x-run-id'][4:]}")
    lost = await world.client.get("/v1/stream?conv_id=free%20again")
    stopped = await world.client.request("DELETE", "/v1/stream?conv_id=free%20again")
    second = await (await world.ask("free again", "free")).body()

    assert (200, 404, 204) == (deleted.status, lost.status, stopped.status)
    assert second == await (await world.client.get("/v1/stream?conv_id=free%20again")).body()


@requirement("llama.lookup")
async def test_a_lookup_tells_how_far_each_has_come(world):
    """What a page that was loaded again needs to know of the conversations it has; unknown ones are left out."""
    world.up.models |= {"done": answer("Done"), "going": answer("Going", end=(Hang(),))}
    whole = await (await world.ask("is-done", "done")).body()
    going = await world.ask("is-going", "going")
    await going.next_event()
    await going.next_event()

    done, on = await world.lookup("is-done", "nobody", "is-going", "")
    await world.stop("is-going")
    (off,) = await world.lookup("is-going")

    assert {"conversation_id", "is_done", "total_bytes", "started_at", "completed_at"} == set(done)
    assert ("is-done", True, len(whole)) == (done["conversation_id"], done["is_done"], done["total_bytes"])
    assert done["completed_at"] >= done["started_at"] > 1_700_000_000
    assert ("is-going", False, 0) == (on["conversation_id"], on["is_done"], on["completed_at"])
    assert len(whole) > on["total_bytes"] > 0
    assert (True, True) == (off["is_done"], off["total_bytes"] > on["total_bytes"])
    assert [] == await world.lookup()


@requirement("llama.lookup", "safe.owner-404")
async def test_a_name_is_its_owners(world):
    """Two people may use the same name, and neither finds, reads or stops the other's run."""
    world.up.models["mine"] = answer("Mine", end=(Hang(),))
    mine = await world.ask("shared", "mine")
    await mine.next_event()

    others = await world.other.get("/v1/stream?conv_id=shared&from=0")
    stopped = await world.other.request("DELETE", "/v1/stream?conv_id=shared")
    found = await world.lookup("shared", client=world.other)

    assert (404, "stream_not_found") == (others.status, (await others.json())["error"]["code"])
    assert (204, []) == (stopped.status, found)
    assert "running" == (await world.run(mine))["status"]
    await world.stop("shared")


@requirement("start.bad-input")
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/stream", None, 400),
        ("GET", "/v1/stream?conv_id=", None, 400),
        ("GET", "/v1/stream?conv_id=nobody", None, 404),
        ("GET", "/v1/stream?conv_id=nobody&from=zz", None, 400),
        ("GET", "/v1/stream?conv_id=nobody&from=-1", None, 400),
        ("DELETE", "/v1/stream", None, 400),
        ("DELETE", "/v1/stream?conv_id=nobody", None, 204),
        ("POST", "/v1/streams/lookup", {}, 200),
        ("POST", "/v1/streams/lookup", {"conversation_ids": "nobody"}, 400),
        ("POST", "/v1/streams/lookup", {"conversation_ids": [1]}, 400),
        ("POST", "/v1/streams/lookup", {"conversation_ids": ["x"] * 1001}, 400),
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_status_of_llama_cpp(world, method, path, body, status):
    """Where llama.cpp takes nonsense for an empty list we say what is wrong."""
    response = await world.client.request(method, path, json=body)

    assert status == response.status
    assert 200 <= status < 300 or (await response.json())["error"]["message"]


@requirement("start.bad-input")
async def test_a_request_that_is_refused_leaves_the_name_as_it_was(world):
    """The run that has the name must not be stopped for one that never started."""
    world.up.models["steady"] = answer("Steady", end=(Hang(),))
    steady = await world.ask("kept", "steady")
    await steady.next_event()
    key, name = {"Idempotency-Key": "k", "X-Conversation-Id": "kept"}, {"X-Conversation-Id": "n" * 257}
    body = {"model": "up/steady", "messages": [{"role": "user", "content": "Hi"}]}

    refused = [
        await world.ask("kept", "steady", messages=[]),
        await world.client.post("/v1/chat/completions", body, headers=key),
        await world.client.post("/v1/chat/completions", body, headers=name),
    ]

    assert [400, 400, 400] == [response.status for response in refused]
    assert "running" == (await world.run(steady))["status"]
    await world.stop("kept")


@requirement("llama.replace", "hist.session-id")
async def test_a_name_goes_together_with_a_session(world):
    """History comes from the store then; the run before is replaced there too and does not make the session busy."""
    world.up.models |= {"first": answer("First", end=(Hang(),)), "second": answer("Second")}
    first = await world.ask("in-session", "first", session_id="llama session")
    await first.next_event()
    await first.next_event()

    second = await world.ask("in-session", "second", session_id="llama session")
    body = await second.body()
    session = (await world.run(second))["session_id"]

    assert "Second" == said(body)
    assert [("user", "Hi"), ("partial", "First"), ("user", "Hi"), ("assistant", "Second")] == await Native(
        world.client
    ).transcript(session)


@requirement("llama.byte-exact", "crash.resume", "crash.kill9")
async def test_offsets_hold_after_the_server_was_killed(tmp_path):
    """Nothing of the bytes is kept, only the events: the same log gives the same bytes in the next process."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        up.models |= {"whole": answer("Wörld 🌊"), "half": answer("Hälf", end=(Hang(),))}
        async with server.client() as client:
            world = World(client, client, up, server)
            whole = await (await world.ask("whole", "whole")).body()
            half = await world.ask("half", "half")
            await half.next_event()
            await half.next_event()
            begun = await world.lookup("half")
            await server.kill9()
            await server.restart()

            again = await (await world.rest("whole")).body()
            rest = await (await world.rest("half", begun[0]["total_bytes"])).body()
            replayed = await (await world.rest("half")).body()

    assert whole == again
    assert replayed[begun[0]["total_bytes"] :] == rest
    assert "Hälf" == said(replayed)
    assert b'"finish_reason":"error"' in rest
    assert b'"outcome":"interrupted"' in rest
