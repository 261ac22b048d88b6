"""The scripted source does as it is told."""

import asyncio

import pytest

from holdfast import Limits
from holdfast.engine.core import Core
from holdfast.events import Completed, Failed, Finish, Notice, Stopped, Text, Truncated, Usage
from holdfast.testing import HANG, Pause, script


@pytest.fixture
async def engine():
    async with Core(limits=Limits(grace=0.01)) as engine:
        yield engine


async def test_it_yields_what_it_is_given_in_its_order(engine):
    """Strings, events, and several at once."""
    run = await engine.start(script("a", Notice("n", "m"), ["b", Usage(1, 2)], Pause(0), Finish("length")))

    assert Truncated(text="ab", usage=Usage(1, 2), finish_reason="length") == await run.settled()
    assert [Text("a"), Notice("n", "m"), Text("b"), Usage(1, 2)] == [event async for _, event in run.read(1)][:-1]


async def test_it_raises_what_is_an_exception(engine):
    """After what came before it."""
    settlement = await (await engine.start(script("a", KeyError("secret"), "never"))).settled()

    assert isinstance(settlement, Failed)
    assert ("a", "source_failed") == (settlement.text, settlement.error.code)


async def test_it_hangs_until_it_is_stopped(engine):
    """As an upstream does that has fallen silent."""
    run = await engine.start(script("a", HANG, "never"))
    async for _, event in run.read():
        if event == Text("a"):
            break
    settlement = (await run.stop()).settlement

    assert isinstance(settlement, Stopped)
    assert ("a", "user") == (settlement.text, settlement.by)


async def test_it_can_ignore_a_cancel_once():
    """And go on as if nothing had been said; a second cancel ends it, or no test could."""
    source = script("a", HANG, "b", ignore_cancel=True)
    assert "a" == await anext(source)
    waiting = asyncio.ensure_future(anext(source))
    for _ in range(2):
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_run_whose_source_ignores_the_cancel_is_stopped_all_the_same(engine):
    """What it says afterwards comes too late."""
    run = await engine.start(script("a", HANG, "late", ignore_cancel=True))
    async for _, event in run.read():
        if event == Text("a"):
            break
    settlement = (await run.stop()).settlement

    assert isinstance(settlement, Stopped)
    assert "a" == settlement.text


async def test_an_empty_script_completes(engine):
    """It said nothing and ended by itself."""
    assert isinstance(await (await engine.start(script())).settled(), Completed)
