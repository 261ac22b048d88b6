"""One client cannot stop the others: large bodies, long lists and costly patterns are bounded, and take turns."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = 1024 * 1024
MANY = 6 * MEGABYTE
"""Values in a body of 18 MB. Decoded, they take some hundreds of MB."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one-client")
    async with Server(folder, [provider(up.base_url, models=["m"])], forked=False) as server:
        yield server
    assert "Traceback" not in server.log_text()


def resident(pid: int) -> int:
    """The most memory that a process has ever had, in bytes."""
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@requirement("safe.body-values")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model":"up/m","messages":[' + b"[]," * MANY + b"[]]}", id="lists"),
        pytest.param(b'{"model":"up/m","messages":[' + b"{}," * MANY + b"{}]}", id="objects"),
        pytest.param(b'{"model":"up/m","messages":[' + b"1," * MANY + b"1]}", id="numbers"),
        pytest.param(b'{"model":"up/m","messages":[' + b'"",' * MANY + b'""]}', id="texts"),
    ],
)
async def test_a_body_of_millions_of_values_is_refused_before_it_becomes_objects(server, body):
    """Its bytes are within the limit; its objects would take a gigabyte, and seconds in which nobody is served."""
    async with server.client() as client:
        await (await client.get("/health")).json()
        before = resident(server.pid)
        response = await client.post("/v1/chat/completions", body=body)

        assert 400 == response.status
        assert "invalid_json" == (await response.json())["error"]["code"]
        assert resident(server.pid) - before < 200 * MEGABYTE


@requirement("safe.body-values")
@pytest.mark.parametrize(
    "said",
    [
        pytest.param("one, two [three] {four}: " * 100_000, id="marks"),
        pytest.param('say "a, b" \\ and \\" [{,' * 60_000, id="escapes"),
        pytest.param("\\" * 200_000, id="backslashes"),
    ],
)
async def test_a_long_text_is_one_value_whatever_characters_it_has(server, up, said):
    """Only what stands outside of strings counts: a pasted book has more commas than any list."""
    up.enqueue(answer("fine"))
    async with server.client() as client:
        asked = {"model": "up/m", "messages": [{"role": "user", "content": said}]}
        response = await client.post("/v1/chat/completions", asked)

        assert 200 == response.status, await response.text()
        assert said == up.requests[-1].body["messages"][0]["content"]


@requirement("safe.body-values")
async def test_large_bodies_take_turns_with_other_requests(server):
    """Ten at once would hold the loop ten times as long as one, if each were looked at without a pause."""
    body = b'{"model":"nobody/m","messages":[' + b"{}," * 60_000 + b'{"role":"user","content":"' + b"x" * MEGABYTE
    body += b'"}]}'

    async def send(client: Client) -> int:
        return (await client.post("/v1/chat/completions", body=body)).status

    async with contextlib.AsyncExitStack() as stack:
        other, *clients = [await stack.enter_async_context(server.client()) for _ in range(11)]
        async with asyncio.TaskGroup() as group:
            sending = [group.create_task(send(client)) for client in clients]
            answered = 0
            while not all(task.done() for task in sending):
                assert 200 == (await other.get("/health")).status
                answered += 1

    assert {400} == {task.result() for task in sending}
    assert answered >= 5, "another client was not served while large bodies were read"


@requirement("safe.lists-short")
async def test_lists_leave_out_system_prompts_parameters_and_long_texts(server, up):
    """Ten sessions with a system prompt of 18 MB made one list of 188 MB."""
    up.enqueue(answer("word " * 10_000))
    async with server.client() as client:
        api = Native(client)
        session_id = await api.new_session(model="up/m", system="s" * 500_000, params={"stop": ["x" * 50_000]})
        run_id = await api.start(session_id, "hello", "up/m")
        await api.settled(run_id)
        listed = (await api.get("/api/sessions?limit=1"))["sessions"][0]
        run = (await api.get("/api/runs?limit=1"))["runs"][0]

        assert session_id == listed["id"]
        assert not {"system", "params"} & set(listed)
        assert run_id == run["id"]
        assert 1000 == len(run["text"]) == len(run["settlement"]["text"])
        assert run["text"].endswith("…")
        assert 50_000 == len((await api.run(run_id))["text"])
        assert 500_000 == len((await api.session(session_id))["system"])


@requirement("safe.lists-short")
@pytest.mark.parametrize(
    ("field", "value", "param"),
    [("system", "s" * 1_000_001, "system"), ("params", {"stop": ["x" * 100_001]}, "params")],
)
async def test_what_a_session_keeps_for_every_turn_has_a_limit(server, field, value, param):
    """It is stored, and sent with each turn: a mistake would be paid for again and again."""
    async with server.client() as client:
        before = await Native(client).get("/api/sessions?limit=200")
        session_id = before["sessions"][0]["id"] if before["sessions"] else await Native(client).new_session()
        refused = [
            await client.post("/api/sessions", {field: value}),
            await client.request("PATCH", f"/api/sessions/{session_id}", json={field: value}),
            await client.post("/api/sessions/import", {field: value, "messages": [{"role": "user", "content": "x"}]}),
            await client.post("/api/comparisons", {field: value, "prompt": "x", "models": ["up/m", "up/m"]}),
            await client.post("/api/batches", {field: value, "models": ["up/m"], "prompts": [{"prompt": "x"}]}),
        ]

        for response in refused:
            assert 400 == response.status, await response.text()
            assert param == (await response.json())["error"]["param"]


@requirement("safe.patterns")
async def test_a_pattern_of_a_batch_has_a_limited_length(server):
    """Compiling one of 5 MB took 26 s and a gigabyte."""
    prompts: list[dict[str, Any]] = [{"prompt": "x", "expected": "a|" * 600}]
    async with server.client() as client:
        response = await client.post("/api/batches", {"models": ["up/m"], "match": "regex", "prompts": prompts})

        assert 400 == response.status
        assert "prompts[0].expected" == (await response.json())["error"]["param"]


COSTLY = ["(?i)" + f"[{chr(0x100 + number)}-\uffff]" * 60 for number in range(200)]
"""Patterns within the limit of length. Python compiles each of them for more than a second."""


@requirement("safe.patterns")
async def test_patterns_that_take_long_to_compile_are_refused_and_nobody_waits_for_them(server):
    """Two requests held both threads for the work of clients, and every large answer waited for them."""
    costly = {"models": ["up/m"], "match": "regex", "prompts": [{"prompt": "x", "expected": each} for each in COSTLY]}
    async with server.client() as client, contextlib.AsyncExitStack() as stack:
        said = [{"role": "user", "content": "word " * 50} for _ in range(600)]
        session = await (await client.post("/api/sessions/import", {"messages": said})).json()
        others = [await stack.enter_async_context(server.client()) for _ in range(2)]
        asking = [asyncio.create_task(other.post("/api/batches", costly)) for other in others]
        answered = 0
        while not all(task.done() for task in asking):
            opened = await client.get(f"/api/sessions/{session['id']}", headers={"accept-encoding": "gzip"})
            assert "gzip" == opened.headers["content-encoding"]
            await opened.body()
            answered += 1
        refused = [task.result() for task in asking]

        assert [400, 400] == [response.status for response in refused]
        assert ["prompts"] * 2 == [(await response.json())["error"]["param"] for response in refused]
        assert answered >= 10, "a compressed answer waited for the patterns of others"


@requirement("safe.lists-short")
async def test_a_list_of_runs_with_long_texts_is_complete_page_after_page(server, up):
    """The store hands them out by size; a client sees pages of the length it asked for."""
    for _ in range(4):
        up.enqueue(answer("x" * (3 * MEGABYTE)))
    async with server.client() as client:
        api = Native(client)
        started = []
        for _ in range(4):
            body = {"model": "up/m", "background": True, "messages": [{"role": "user", "content": "go"}]}
            accepted = await (await client.post("/v1/chat/completions", body)).json()
            run_id = str(accepted["id"]).replace("chatcmpl-", "run_")
            await api.settled(run_id)
            started.append(run_id)
        page = await api.get("/api/runs?limit=3")
        rest = await api.get(f"/api/runs?limit=1&before={page['next']}")

        assert started[::-1] == [run["id"] for run in page["runs"] + rest["runs"]]
        assert len(json.dumps(page)) < 100_000


@requirement("safe.retention")
@pytest.mark.parametrize(("days", "left"), [("0", 404), ("inf", 200), ("30", 200)])
@pytest.mark.one_server("it starts another server on the same data folder")
async def test_old_runs_outside_of_sessions_are_deleted_after_the_retention_time(up, tmp_path, days, left):
    """Zero days is what somebody sets for privacy: it must not mean "for ever"."""
    config = f"retention_days = {days}"
    async with Server(tmp_path, [provider(up.base_url, models=["m"])], config=config) as server:
        async with server.client() as client:
            api = Native(client)
            body = {"model": "up/m", "background": True, "messages": [{"role": "user", "content": "go"}]}
            accepted = await (await client.post("/v1/chat/completions", body)).json()
            run_id = str(accepted["id"]).replace("chatcmpl-", "run_")
            await api.settled(run_id)
            kept = await api.start(await api.new_session(model="up/m"), "hello", "up/m")
            await api.settled(kept)
            said = {"type": "message", "role": "user", "content": "hello"}
            conversation = (await (await client.post("/v1/conversations", {"items": [said]})).json())["id"]
    async with Server(tmp_path, [provider(up.base_url, models=["m"])], config=config) as server:
        async with server.client() as client:
            async with asyncio.timeout(LONG):
                for path in (f"/api/runs/{run_id}", f"/v1/conversations/{conversation}"):
                    while left != (await client.get(path)).status:
                        pass  # the start deletes in the background

            assert 200 == (await client.get(f"/api/runs/{kept}")).status
