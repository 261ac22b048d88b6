"""The last minute of a node."""

import asyncio

from holdfast.engine.core import Core
from holdfast.errors import ProviderRefused
from holdfast.events import StepStarted, Text
from holdfast.server.features.observe.metrics.activity import Activity, last_minute
from tests.requirements import requirement


async def broken():
    yield "Half "
    raise ProviderRefused("no", code="upstream_auth", status=502)


async def whole():
    yield "All of it."


@requirement("ops.status")
async def test_the_last_minute_counts_runs_errors_and_times_and_forgets_them():
    """A rate of now, not of the whole life of the server."""
    now = 100.0
    activity = Activity(lambda: now)
    async with Core(observe=activity.settled) as engine:
        for source in (whole, whole, broken):
            await (await engine.start(source())).settled()
        found = last_minute(activity.counts())
        now += 61
        later = last_minute(activity.counts())

    assert (3, 1, {"upstream_auth": 1}) == (found["runs"], found["failed"], found["errors"])
    assert found["ttft_p95_ms"] >= found["ttft_p50_ms"] >= 0
    assert found["stop_p95_ms"] is None
    assert (0, 0, {}, None) == (later["runs"], later["failed"], later["errors"], later["ttft_p95_ms"])


@requirement("sub.figures")
async def test_the_start_of_tools_is_not_part_of_the_time_to_first_token():
    """The model is asked with the first step. Before, an agent connects its MCP servers."""

    async def with_slow_tools():
        await asyncio.sleep(0.05)
        yield [StepStarted(1), Text("At once.")]

    activity = Activity()
    async with Core(observe=activity.settled) as engine:
        run = await engine.start(with_slow_tools())
        await run.settled()

    assert run.measured is not None
    assert 0.05 <= run.measured.ended - run.measured.started
    assert 0 == run.measured.ttft == last_minute(activity.counts())["ttft_p50_ms"]


@requirement("ops.status")
async def test_the_time_of_a_stop_is_told():
    """It is what users notice first."""
    activity = Activity()

    async def endless(out):
        out.emit(["word"])
        await asyncio.Event().wait()

    async with Core(observe=activity.settled) as engine:
        run = await engine.start(endless)
        async for _ in run.read():
            if run.text:
                break
        await run.stop()

    assert last_minute(activity.counts())["stop_p95_ms"] >= 0


def test_a_node_of_another_version_tells_nothing():
    """Its figures are not zero: they are not known."""
    assert last_minute({"runs": 3}) is None
