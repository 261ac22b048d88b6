"""Traces for OpenTelemetry: what a request has caused is one trace, wherever and however late it happens."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.server.config.settings import McpSettings
from holdfast.server.features.observe.traces.traced_store import SLOW
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.native import Native
from tests.support.otlp import Collector
from tests.support.ports import free_port
from tests.support.server import Server, StartFailed, provider
from tests.support.upstream import (
    Delta,
    Done,
    Finish,
    Gate,
    Hang,
    Headers,
    Role,
    Status,
    Upstream,
    UsageChunk,
    answer,
    calling,
)
from tests.support.waiting import SOON

COUNTED = [Headers(), Role(), Delta("One "), Delta("two."), Finish("stop"), UsageChunk(10, 20), Done()]
CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
REFUSED = {"error__type": "upstream_auth"}
LOGGED = {"the source ended with Refused": "upstream_auth", "upstream_stalled": "upstream_stalled"}
"""Words of an entry, and the code of the error that it is about."""
TRACEPARENT = {"traceparent": f"00-{CALLER[0]}-{CALLER[1]}-01"}


@pytest.fixture
def collector(monkeypatch):
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        yield collector


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path, collector):
    async with serving(up, tmp_path, settings={"traces": True}) as served:
        yield served


async def start(world, script, session_id=None, **more):
    """Send a message with a trace of the caller's own; the ids of session and run."""
    world.up.enqueue(script)
    session_id = session_id or await world.api.new_session()
    sent = {"input": "Count my secrets", "model": "up/m", **more}
    response = await world.api.client.post(f"/api/sessions/{session_id}/runs", sent, headers=TRACEPARENT)
    return session_id, (await response.json())["id"]


@requirement("ops.traces")
async def test_a_chat_is_one_trace_of_its_caller_up_to_the_upstream(world, collector):
    """A run outlives its request, and is a child of it all the same: one trace has all that the request has caused."""
    session_id, run_id = await start(world, COUNTED)
    request = await collector.span("POST /api/sessions/{session_id}/runs")
    ran = await collector.span("run chat", holdfast__run__id=run_id)
    call = await collector.span("chat m")
    added, settled = await collector.span("store create_run"), await collector.span("store settle")
    of_run, of_call = ran.attributes, call.attributes

    assert [CALLER[0]] * 5 == [span.trace_id for span in (request, ran, call, added, settled)]
    assert (CALLER[1], request.span_id, ran.span_id) == (request.parent_id, ran.parent_id, call.parent_id)
    assert (request.span_id, ran.span_id) == (added.parent_id, settled.parent_id)
    assert ("server", "internal", "client") == (request.kind, ran.kind, call.kind)
    assert 202 == request.attributes["http.response.status_code"]
    assert ("completed", session_id) == (of_run["holdfast.run.outcome"], of_run["gen_ai.conversation.id"])
    assert (10, 20) == (of_call["gen_ai.usage.input_tokens"], of_call["gen_ai.usage.output_tokens"])
    assert ("chat", "up") == (of_call["gen_ai.operation.name"], of_call["gen_ai.provider.name"])
    assert of_run["holdfast.store.commits"] >= 1
    assert f"00-{CALLER[0]}-{call.span_id}-01" == world.up.requests[-1].headers["traceparent"]
    assert "holdfast" == ran.resource["service.name"]


@requirement("ops.traces")
async def test_a_queued_run_belongs_to_the_request_that_has_sent_it(world, collector):
    """It is started by the end of another run, whose trace it must not enter."""
    session_id, first = await start(world, [Headers(), Role(), Delta("One "), Gate(), Finish(), Done()])
    await world.api.shown(first, "One ")
    world.up.enqueue(COUNTED)
    second = await world.api.start(session_id, "And then?", "up/m", if_busy="queue")
    world.up.open()
    runs = [await collector.span("run chat", holdfast__run__id=run_id) for run_id in (first, second)]
    requests = collector.named("POST /api/sessions/{session_id}/runs")

    assert [span.span_id for span in requests] == [run.parent_id for run in runs]
    assert runs[0].trace_id != runs[1].trace_id
    assert requests[0].ended < runs[0].ended


@requirement("ops.traces")
async def test_the_calls_of_an_agent_are_spans_of_its_run(world, collector):
    """The model, the tool and the model again, under the names of GenAI's conventions."""
    world.up.enqueue(calling(("add", {"a": 1, "b": 2})), answer("3."))
    await world.api.settled((await world.start())[1])
    agent = await collector.span("invoke_agent helper")
    tool = await collector.span("execute_tool add")
    calls = collector.named("chat m")

    assert {agent.span_id} == {span.parent_id for span in (tool, *calls)}
    assert 2 == len(calls)
    assert ("execute_tool", "add") == (tool.attributes["gen_ai.operation.name"], tool.attributes["gen_ai.tool.name"])
    assert "helper" == agent.attributes["gen_ai.agent.name"]


@requirement("ops.traces")
async def test_an_mcp_server_gets_the_trace_of_the_tool_call(up, tmp_path, collector):
    """It continues the trace with what it does itself: the context is in the request, as MCP says."""
    server = Path(__file__).parents[1] / "support" / "mcp_server.py"
    command = {"command": sys.executable, "args": ("-P", str(server), str(tmp_path / "seen")), "approval": "allow"}
    settings = {"mcp": (McpSettings("slow", **command),), "traces": True}
    async with serving(up, tmp_path, settings=settings, tools=("mcp:slow",)) as world:
        up.enqueue(calling(("slow__trace", {})), answer("Done."))
        frames = await world.api.replay((await world.start())[1])
        tool = await collector.span("execute_tool slow__trace")
    (told,) = [frame.json()["output"] for frame in frames if frame.event == "tool.result"]

    assert f"00-{tool.trace_id}-{tool.span_id}-" == told[:-2]


@requirement("ops.traces")
async def test_a_failure_is_an_error_by_its_code_and_a_stop_is_none(world, collector):
    """An operator filters by errors. What a user has stopped is not one."""
    _, stopped = await start(world, [Headers(), Role(), Delta("One "), Hang()])
    await world.api.shown(stopped, "One ")
    await world.api.stop(stopped)
    _, failed = await start(world, [Status(401)])
    broken = await collector.span("run chat", holdfast__run__id=failed)
    ended = await collector.span("run chat", holdfast__run__id=stopped)
    calls = [await collector.span("chat m", **more) for more in (REFUSED, {"holdfast__stopped": True})]

    assert {"holdfast.run.outcome": "failed", "error.type": "upstream_auth"}.items() <= broken.attributes.items()
    assert {"holdfast.run.outcome": "stopped", "holdfast.run.stopped_by": "user"}.items() <= ended.attributes.items()
    assert [True, False] * 2 == [span.is_error for span in (broken, ended, *calls)]


@requirement("ops.traces")
async def test_panes_of_a_comparison_are_runs_of_their_own(world, collector):
    """Their sources are made elsewhere than those of chats."""
    world.up.enqueue(COUNTED, COUNTED)
    body = {"models": ["up/m", "up/next"], "prompt": "Count"}
    await (await world.api.client.post("/api/comparisons", body)).text()
    request = await collector.span("POST /api/comparisons")
    calls = [await collector.span(f"chat {model}") for model in ("m", "next")]
    panes = {span.span_id: span for span in collector.named("run pane")}

    assert {request.span_id} == {panes[call.parent_id].parent_id for call in calls}
    assert 2 == len(panes)


@requirement("ops.traces")
async def test_a_slow_commit_is_a_span_and_quick_ones_are_counted(up, tmp_path, collector):
    """Each token or so has a commit: a span for each would hide the few that matter."""
    store = LateStore()
    async with serving(up, tmp_path, store, settings={"traces": True}) as world:
        _, run_id = await start(world, COUNTED)
        await world.api.settled(run_id)
        late = await collector.span("store append")
        ran = await collector.span("run chat")

    assert (ran.trace_id, ran.span_id) == (late.trace_id, late.parent_id)
    assert late.ended - late.began >= SLOW * 1e9
    assert ran.attributes["holdfast.store.commits"] >= len(collector.named("store append"))


class LateStore(MemoryStore):
    """A store whose first commit takes its time."""

    is_late = True

    async def append(self, node_id, entries):
        if self.is_late:
            self.is_late = False
            await asyncio.sleep(SLOW * 1.5)
        return await super().append(node_id, entries)


@requirement("ops.traces-content")
@pytest.mark.parametrize("is_asked", [False, True])
async def test_what_is_said_is_in_no_span_unless_asked_for(up, tmp_path, collector, is_asked):
    """Traces go to systems that more people read than chats. Headers and keys are in none of them."""
    async with serving(up, tmp_path, settings={"traces": True, "traces_content": is_asked}) as world:
        session_id, run_id = await start(world, answer("A secret answer."))
        await collector.span("run chat", holdfast__run__id=run_id)
        up.enqueue(calling(("add", {"a": 47110815, "b": 1})), answer("Sum."))
        await world.api.settled((await world.start("Add 47110815"))[1])
        await collector.span("invoke_agent helper")
    sent = b"".join(collector.bodies)

    for words in (b"Count my secrets", b"A secret answer.", b"47110815", b"47110816"):
        assert is_asked == (words in sent), words
    assert session_id.encode() in sent


@requirement("ops.traces")
async def test_the_token_of_a_link_is_in_no_span(world, collector):
    """Who reads the traces could read every shared chat."""
    session_id = await world.api.new_session()
    world.up.enqueue(COUNTED)
    await world.api.settled(await world.api.start(session_id, "Hello", "up/m"))
    made = await world.api.client.post(f"/api/sessions/{session_id}/shares", {})
    token = (await made.json())["token"]
    read = await world.api.client.get(f"/api/shared/{token}")
    span = await collector.span("GET /api/shared/{token}")

    assert 200 == read.status
    assert token not in str(span.attributes)


FAILED_OR_STALLED = ["m", "silent"]
LIMITS = 'retry_patience = 0.0\n[limits]\n"up/silent" = { first_token = 1 }\n'
"""Of the silent model alone: the other one fails, however slow the machine is."""


async def failed_and_stalled(up, server):
    """Have the log of one run that fails and one that stalls, each started by the caller's own trace."""
    up.models |= {"silent": [Headers(), Role(), Hang()], "m": [Status(401)]}
    async with server.client() as client:
        api = Native(client)
        for model in FAILED_OR_STALLED:
            body = {"input": "Hi", "model": f"up/{model}"}
            path = f"/api/sessions/{await api.new_session()}/runs"
            response = await client.post(path, body, headers=TRACEPARENT)
            await api.settled((await response.json())["id"])
        await (await client.get("/health")).body()


@requirement("ops.log-traces")
@pytest.mark.one_server("each node has a log of its own")
async def test_an_entry_of_the_log_names_the_span_in_which_it_was_written(up, tmp_path, collector):
    """From a line of the log to the trace, and back: of a request, of a run, and of the watch over a run."""
    config = f'traces = true\naccess_log = true\nlog_format = "json"\n{LIMITS}'
    providers = [provider(up.base_url, models=FAILED_OR_STALLED)]
    async with Server(tmp_path, providers, config=config, env=collector.environment) as server:
        await failed_and_stalled(up, server)
        spans = {(await collector.span("run chat", error__type=code)).span_id: code for code in LOGGED.values()}
        requests = {span.span_id for span in collector.named("POST /api/sessions/{session_id}/runs")}
        entries = [json.loads(line) for line in server.log_text().splitlines() if line.startswith("{")]
    asked = [entry for entry in entries if entry.get("path", "").endswith("/runs")]
    ended = [entry for entry in entries if any(words in entry["message"] for words in LOGGED)]
    probes = [entry for entry in entries if entry.get("path") == "/health"]

    assert {CALLER[0]} == {entry["trace_id"] for entry in asked + ended}
    assert requests == {entry["span_id"] for entry in asked}
    assert {*LOGGED.values()} == {spans[entry["span_id"]] for entry in ended}
    assert probes
    assert not [entry for entry in probes if "trace_id" in entry]


@requirement("ops.log-traces")
@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.one_server("each node has a log of its own")
async def test_a_log_of_text_has_the_id_of_the_trace_at_the_end_of_a_line(up, tmp_path, collector, is_on):
    """A person copies it into the search of the traces. Without traces there is nothing to copy."""
    config = f"traces = {str(is_on).lower()}\naccess_log = true\n{LIMITS}"
    providers = [provider(up.base_url, models=FAILED_OR_STALLED)]
    async with Server(tmp_path, providers, config=config, env=collector.environment) as server:
        await failed_and_stalled(up, server)
        lines = server.log_text().splitlines()
    wanted = [line for line in lines if "/runs 202" in line or any(words in line for words in LOGGED)]

    assert len(wanted) >= 4
    assert [is_on] * len(wanted) == [line.endswith(f"trace:{CALLER[0]}]") for line in wanted]
    assert not [line for line in lines if "/health" in line and "trace:" in line]


@requirement("ops.log-traces")
@pytest.mark.one_server("each node has a log of its own")
async def test_a_pipelined_request_is_not_in_the_trace_of_the_one_before(up, tmp_path, collector):
    """It is started when the response before it ends, by the task of that."""
    config = 'traces = true\naccess_log = true\nlog_format = "json"\n'
    async with Server(tmp_path, [provider(up.base_url)], config=config, env=collector.environment) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"Host: 127.0.0.1:{server.port}\r\n"
        asked = f"GET /api/sessions HTTP/1.1\r\n{head}traceparent: {TRACEPARENT['traceparent']}\r\n\r\n"
        writer.write(f"{asked}GET /health HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
        answered = await reader.read()
        writer.close()
        entries = [json.loads(line) for line in server.log_text().splitlines() if line.startswith("{")]
    traces = [(entry["path"], entry.get("trace_id")) for entry in entries if "path" in entry][-2:]

    assert 2 == answered.count(b"HTTP/1.1 200")
    assert [("/api/sessions", CALLER[0]), ("/health", None)] == traces


@requirement("ops.traces")
def test_opentelemetry_is_loaded_only_for_traces():
    """It comes with an extra, and takes its time to load."""
    code = "import sys; from holdfast.server import create_app; create_app(); print('opentelemetry' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "False\n" == shown.stdout


@requirement("ops.traces")
async def test_a_run_that_is_taken_over_stays_in_its_trace(up, tmp_path, collector):
    """The node that has it next knows the trace from the record of the run."""
    config, env = "traces = true\n", collector.environment
    async with Server(tmp_path, [provider(up.base_url)], config=config, env=env) as server:
        async with server.client() as client:
            up.enqueue([Headers(), Role(), Delta("One "), Hang()])
            session_id = await Native(client).new_session()
            body = {"input": "Count", "model": "up/m"}
            response = await client.post(f"/api/sessions/{session_id}/runs", body, headers=TRACEPARENT)
            run_id = (await response.json())["id"]
            await Native(client).shown(run_id, "One ")
            request = await collector.span("POST /api/sessions/{session_id}/runs")
        await server.kill9()
        await server.restart()
        ran = await collector.span("run chat", holdfast__run__id=run_id)
        taken = await collector.span("takeover")

    assert (CALLER[0], request.span_id) == (ran.trace_id, ran.parent_id)
    assert (ran.span_id, 2) == (taken.parent_id, taken.attributes["holdfast.run.epoch"])
    assert (True, "interrupted") == (ran.is_error, ran.attributes["holdfast.run.outcome"])
    assert taken.attributes["holdfast.takeover.continues"] is False


@requirement("ops.traces-away")
async def test_a_collector_that_is_away_delays_nothing(up, tmp_path):
    """It is less important than any run, and than the end of the server."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    async with Server(tmp_path, [provider(up.base_url)], config="traces = true\n", env=env) as server:
        async with server.client() as client:
            api = Native(client)
            settlement = await api.settled(await api.start(await api.new_session(), "Hi", "up/m"))
        ended = await server.terminate()

    assert "completed" == settlement["outcome"]
    assert 0 == ended.code
    assert ended.seconds < SOON  # three seconds, and a busy machine


@requirement("ops.traces-away")
@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_EXPORTER", "zipkin")]
)
async def test_a_way_to_send_that_there_is_not_is_an_error_at_the_start(tmp_path, name, value):
    """Traces that silently go nowhere are missed on the day of the incident."""
    with pytest.raises(StartFailed) as failed:
        await Server(tmp_path, config="traces = true\n", env={name: value}).__aenter__()

    assert f"Error: {name} is {value!r}." in str(failed.value)
    assert "Traceback" not in str(failed.value)
