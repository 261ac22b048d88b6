"""Metrics for Prometheus: what has happened is counted once, by labels that no caller can multiply."""

import asyncio
import socket
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.pricing import Price
from holdfast.server.config.settings import KeySettings, ProviderSettings, Settings
from holdfast.server.features.observe.metrics import metrics_of
from holdfast.server.features.observe.metrics.port import MOST_CONNECTIONS
from holdfast.store.memory import MemoryStore
from holdfast.store.opening import disconnect
from holdfast.store.sqlite import SqliteStore
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.http import Client
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server, StartFailed, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Status, Upstream, UsageChunk, answer
from tests.support.waiting import LONG

COUNTED = [Headers(), Role(), Delta("One "), Delta("two."), Finish("stop"), UsageChunk(10, 20), Done()]


class Connected(MemoryStore):
    """A store whose connections belong to an event loop."""

    has_connections = True

    async def disconnect(self):
        self.has_connections = False


@requirement("ops.metrics")
async def test_a_store_that_is_measured_lets_go_of_an_event_loop():
    """A server reads its keys on a loop of its own before it starts, through connections that end with it."""
    store = Connected()
    measured = metrics_of(Settings(metrics=True)).timed(store)
    await disconnect(measured)
    await disconnect(MemoryStore())

    assert not store.has_connections


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def world(up, tmp_path):
    prices = {"up/m": Price(2.0, 4.0)}
    async with serving(up, tmp_path, settings={"prices": prices, "metrics": True}) as served:
        yield served


class Figures:
    """The metrics of one moment: `figures("holdfast_runs_total", outcome="failed")` is a sum."""

    def __init__(self, text):
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def __call__(self, name, **labels):
        return sum(
            sample.value for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        )


async def figures(client):
    response = await client.get("/metrics")
    assert 200 == response.status
    return Figures(await response.text())


async def chat(world, script, model="up/m"):
    world.up.enqueue(script)
    session_id = await world.api.new_session()
    return await world.api.settled(await world.api.start(session_id, "Count", model))


@requirement("ops.metrics")
async def test_a_run_is_counted_with_its_tokens_its_cost_and_its_times(world):
    """An operator sees what the models do without reading a database."""
    await chat(world, COUNTED)
    now = await figures(world.api.client)
    of_model = {"provider": "up", "model": "m"}

    assert 1 == now("holdfast_runs_total", outcome="completed", kind="chat", **of_model)
    assert 1 == now("holdfast_runs_total")
    assert (10, 20) == tuple(now(f"holdfast_{way}_tokens_total", **of_model) for way in ("prompt", "generation"))
    assert pytest.approx((10 * 2.0 + 20 * 4.0) / 1e6) == now("holdfast_cost_total", currency="USD", **of_model)
    for times in ("run_duration", "time_to_first_token", "time_per_output_token"):
        assert 1 == now(f"holdfast_{times}_seconds_count", **of_model), times


@requirement("ops.metrics")
async def test_failures_are_counted_by_their_code_and_retries_too(world):
    """An alert must tell a broken upstream from a wrong key."""
    await chat(world, [Status(503)])  # and then the default answer, at the second try
    await chat(world, [Status(401)])
    now = await figures(world.api.client)

    assert 1 == now("holdfast_runs_total", outcome="failed")
    assert 1 == now("holdfast_run_errors_total", provider="up", code="upstream_auth")
    assert 1 == now("holdfast_upstream_retries_total", provider="up")


@requirement("ops.metrics")
async def test_what_goes_on_now_is_read_at_the_request(world):
    """Gauges are read from the parts themselves: they cannot drift."""
    world.up.enqueue([Headers(), Role(), Delta("One "), Hang()])
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Count", "up/m")
    await world.api.start(session_id, "And then?", "up/m", if_busy="queue")
    reader = await world.api.shown(run_id, "One ")
    now = await figures(world.api.client)

    assert (1, 1, 1) == tuple(now(f"holdfast_{name}") for name in ("runs_running", "runs_queued", "subscribers"))
    assert 0 == now("holdfast_subscriber_lag_events")
    assert (1, 1) == (now("holdfast_store_available"), now("holdfast_nodes"))

    await world.api.client.post(f"/api/sessions/{session_id}/stop")
    await reader.all_events()
    now = await figures(world.api.client)

    assert (0, 0) == (now("holdfast_runs_running"), now("holdfast_runs_queued"))
    assert 2 == now("holdfast_runs_total", outcome="stopped")
    assert 1 == now("holdfast_stop_latency_seconds_count", by="user"), "the queued one had nothing to stop"


@requirement("ops.metrics")
async def test_a_run_that_waited_in_its_session_tells_how_long(world):
    """A person who waits behind an own message sees a slow server."""
    session_id = await world.api.new_session()
    world.up.enqueue([Headers(), Role(), Gate(), *COUNTED[2:]])
    await world.api.start(session_id, "Count", "up/m")
    await world.up.reached()
    queued = await world.api.start(session_id, "And then?", "up/m", if_busy="queue")
    world.up.open()
    await world.api.settled(queued)
    now = await figures(world.api.client)

    assert 1 == now("holdfast_run_queue_time_seconds_count"), "the first did not wait"
    assert 2 == now("holdfast_runs_total", outcome="completed")


@requirement("ops.metrics")
async def test_every_call_to_the_store_is_measured(world):
    """Nothing is shown that is not saved, so a slow store is a slow stream."""
    await chat(world, COUNTED)
    now = await figures(world.api.client)

    assert 1 == now("holdfast_store_operation_seconds_count", operation="settle")
    assert 1 == now("holdfast_store_operation_seconds_count", operation="create_run")
    assert now("holdfast_store_operation_seconds_count", operation="append") >= 1
    assert now("holdfast_events_saved_total") >= 3, "the start, and two pieces"
    assert 0 == now("holdfast_store_errors_total")


@requirement("ops.metrics")
async def test_the_event_loop_and_the_process_are_measured(world):
    """A blocked loop stops every stream, and no other figure says why."""

    async with asyncio.timeout(LONG):
        while not (now := await figures(world.api.client))("holdfast_event_loop_lag_seconds_count"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # it measures four times a second

    assert now("process_resident_memory_bytes") > 10_000_000
    assert now("process_cpu_seconds_total") > 0


@requirement("ops.metrics-bounded")
async def test_a_name_that_a_caller_made_up_is_no_label(up, tmp_path):
    """A label for each name would take memory without limit, here and in Prometheus."""
    open_to_all = (ProviderSettings("up", base_url=up.base_url, unlisted="pass"),)  # its upstream may have any model
    async with serving(up, tmp_path, settings={"providers": open_to_all, "metrics": True}) as world:
        for n in range(3):
            await chat(world, COUNTED, f"up/made-up-{n}")
        now = await figures(world.api.client)

        assert 3 == now("holdfast_runs_total", provider="up", model="other")
        assert {"other"} == {sample.labels["model"] for sample in now.samples if "model" in sample.labels}


@requirement("ops.metrics-bounded")
async def test_an_alias_and_a_bare_name_count_for_their_model(up, tmp_path):
    """One model is one line of a graph, whatever clients call it."""
    async with serving(up, tmp_path, settings={"aliases": {"gpt": "up/m"}, "metrics": True}) as world:
        for name in ("gpt", "m", "up/m"):
            await chat(world, COUNTED, name)
        now = await figures(world.api.client)

        assert 3 == now("holdfast_runs_total", provider="up", model="m")


@requirement("ops.metrics-access")
async def test_metrics_are_for_admins_and_wrong_keys_are_counted(up, tmp_path):
    """Names of models and costs are not for every user."""
    keys = (KeySettings("root", key_env="ROOT", admin=True), KeySettings("ann", key_env="ANN"))
    environ = {"ROOT": "r" * 40, "ANN": "a" * 40, "XDG_DATA_HOME": "/nonexistent"}
    async with serving(up, tmp_path, settings={"keys": keys, "metrics": True}, environ=environ) as world:
        client, bearer = world.api.client, "Bearer {}".format
        statuses = [
            (await client.get("/metrics", headers={"Authorization": bearer(key)})).status
            for key in (environ["ANN"], "wrong", environ["ROOT"])
        ]
        missing = (await client.get("/metrics")).status
        response = await client.get("/metrics", headers={"Authorization": bearer(environ["ROOT"])})
        now = Figures(await response.text())

        assert ([403, 401, 200], 401) == (statuses, missing)
        assert (1, 1) == tuple(
            now("holdfast_requests_refused_total", reason=reason) for reason in ("wrong_key", "no_key")
        )


@requirement("ops.metrics-access")
async def test_a_separate_port_answers_without_a_key_but_to_no_foreign_host(up, tmp_path):
    """Prometheus has no key. A page whose name points to 127.0.0.1 must not read a local server's metrics."""
    port = free_port()
    async with (
        serving(up, tmp_path, settings={"metrics_port": port, "api_key": "k" * 40}),
        Client(f"http://127.0.0.1:{port}") as client,
    ):
        found = await client.get("/metrics")
        foreign = await client.get("/metrics", headers={"Host": "evil.example"})
        invalid = await client.get("/metrics", headers={"Host": "["})
        elsewhere = await client.get("/api/sessions")
        changed = await client.post("/metrics", {})

        assert [200, 403, 403, 404, 405] == [each.status for each in (found, foreign, invalid, elsewhere, changed)]
        assert 1 == Figures(await found.text())("holdfast_build_info")


@requirement("ops.metrics-access")
async def test_silent_connections_to_the_separate_port_do_not_keep_prometheus_out(up, tmp_path):
    """Without a limit of their age, a few of them would do so for as long as they like."""
    port = free_port()
    async with (
        serving(up, tmp_path, settings={"metrics_port": port}),
        asyncio.timeout(LONG),
    ):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CONNECTIONS + 1)]
        for _, writer in silent[1:]:
            writer.write(b"GET /met")
        async with Client(f"http://127.0.0.1:{port}") as client:
            kept_out = (await client.get("/metrics")).status
        ends = [await reader.read() for reader, _ in silent]
        async with Client(f"http://127.0.0.1:{port}") as client:
            found = (await client.get("/metrics")).status
        for _, writer in silent:
            writer.close()

        assert (503, 200) == (kept_out, found)
        assert {b""} == set(ends)


@requirement("ops.metrics")
async def test_without_the_setting_nothing_is_measured(up, tmp_path):
    """Who does not look at metrics does not pay for them."""
    async with serving(up, tmp_path) as world:
        response = await world.api.client.get("/metrics")

        assert (404, "metrics_off") == (response.status, (await response.json())["error"]["code"])


@requirement("ops.metrics")
def test_prometheus_client_is_loaded_only_for_metrics():
    """It comes with an extra, and takes its time to load."""
    code = "import sys; from holdfast.server import create_app; create_app(); print('prometheus_client' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "False\n" == shown.stdout


@requirement("ops.metrics")
async def test_an_answer_of_a_fallback_counts_for_the_model_that_gave_it(up, tmp_path):
    """The requested model did not answer: its times would be those of another."""
    settings = {"fallbacks": {"up/m": "up/next"}, "retry_patience": 0.0, "metrics": True}
    async with serving(up, tmp_path, settings=settings) as world:
        world.up.enqueue([Status(401)])
        await chat(world, answer("Instead."))
        now = await figures(world.api.client)

        assert (0, 1) == tuple(now("holdfast_runs_total", model=model) for model in ("m", "next"))
        assert 1 == now("holdfast_fallbacks_total", provider="up")


@requirement("ops.metrics")
async def test_a_reader_that_does_not_read_shows_as_lag(up, tmp_path):
    """It costs memory, and its user sees an answer that stands still."""
    long = [Headers(), Role(), *[Delta("x" * 100_000)] * 150, Hang()]
    async with serving(up, tmp_path, settings={"metrics": True}) as world:
        world.up.enqueue(long)
        run_id = await world.api.start(await world.api.new_session(), "Much", "up/m")
        async with Client(f"http://127.0.0.1:{world.api.client.port}", receive_buffer=4096) as slow:
            reader = await slow.get(f"/api/runs/{run_id}/events")
            reader.stop_reading()
            async with asyncio.timeout(LONG):
                while not (await figures(world.api.client))("holdfast_subscriber_lag_events"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)  # nothing tells when the buffers are full

            assert 200 == reader.status


@requirement("ops.metrics")
@pytest.mark.one_server("figures are those of one node")
async def test_runs_that_are_taken_over_are_counted(up, tmp_path):
    """A node that died is seen at the one that goes on."""
    async with Server(tmp_path, [provider(up.base_url)], config="metrics = true\n") as server:
        async with server.client() as client:
            up.enqueue([Headers(), Role(), Delta("One "), Hang()])
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Count", "up/m")
            await api.shown(run_id, "One ")
        await server.kill9()
        await server.restart()
        async with server.client() as client:
            settlement = await Native(client).settled(run_id)
            now = await figures(client)

    assert "interrupted" == settlement["outcome"]
    assert 1 == now("holdfast_takeovers_total")
    assert 1 == now("holdfast_runs_total", outcome="interrupted", provider="up", model="m")


@requirement("ops.metrics")
async def test_the_size_of_sqlites_write_ahead_log_is_shown(up, tmp_path):
    """One that grows without end means that something keeps it from being moved into the file."""
    store = await asyncio.to_thread(SqliteStore, tmp_path / "data")
    async with serving(up, tmp_path, store, settings={"metrics": True}) as world:
        await chat(world, COUNTED)
        shown = (await figures(world.api.client))("holdfast_store_wal_bytes")
        written = (tmp_path / "data" / "holdfast.db-wal").stat().st_size

    assert 0 < shown <= written


@requirement("ops.metrics-access")
async def test_a_port_that_is_taken_is_an_error_in_one_line(tmp_path):
    """As for the port of the server itself."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartFailed) as failed:
            await Server(tmp_path, config=f"metrics_port = {port}\n").__aenter__()

    assert f"Error: Cannot listen on 127.0.0.1:{port} for metrics: Address already in use." in str(failed.value)
    assert "Traceback" not in str(failed.value)
