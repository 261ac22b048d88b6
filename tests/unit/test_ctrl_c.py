"""Ctrl-C in a command: an open prompt, the work under way, or the work that begins next."""

import asyncio
import os
import signal

import pytest

from holdfast.cli import show
from holdfast.cli.chat.ctrl_c import CtrlC, stopped_by
from holdfast.cli.client import CallFailed
from tests.support.waiting import LONG


async def press() -> None:
    """Ctrl-C, as the terminal sends it, and a turn of the loop in which it is handled."""
    handled = asyncio.get_running_loop().create_future()
    os.kill(os.getpid(), signal.SIGINT)
    asyncio.get_running_loop().call_later(0.05, handled.set_result, None)
    await handled


async def test_the_first_one_asks_the_work_under_way_to_stop():
    """The answer is kept: the work ends by itself."""
    with CtrlC() as ctrl_c, ctrl_c.stops() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(LONG):
            await asked.wait()


def test_the_second_one_leaves():
    """Also if the work does not hear: a server may have stopped answering."""

    async def deaf() -> None:
        with CtrlC() as ctrl_c, ctrl_c.stops() as asked:
            os.kill(os.getpid(), signal.SIGINT)
            await asked.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(LONG)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(deaf())


async def test_one_before_the_work_begins_stops_it():
    """Enter, and Ctrl-C right after it: the message has not been sent yet."""
    with CtrlC() as ctrl_c:
        await press()
        with ctrl_c.stops() as asked:
            assert asked.is_set()
        with ctrl_c.stops() as asked:
            assert not asked.is_set(), "each counts once"


async def test_one_after_the_work_does_not_stop_the_next():
    """The answer ended by itself just before the key: a prompt came between."""
    with CtrlC() as ctrl_c:
        await press()
        with ctrl_c.reaches(lambda: None):
            pass
        with ctrl_c.stops() as asked:
            assert not asked.is_set()


async def test_an_open_prompt_hears_each_of_them():
    """No number of them ends the conversation."""
    heard = []
    with CtrlC() as ctrl_c, ctrl_c.reaches(lambda: heard.append("Ctrl-C")):
        await press()
        await press()

    assert ["Ctrl-C", "Ctrl-C"] == heard


class Calls:
    """An API that notes the calls, and refuses them if it is `away`."""

    def __init__(self, *, away=False):
        self.made = []
        self._away = away
        self._called = asyncio.Event()

    async def call(self, method, path):
        self.made.append((method, path))
        self._called.set()
        if self._away:
            raise CallFailed("The server is away.")

    async def wait(self):
        await asyncio.wait_for(self._called.wait(), LONG)
        await asyncio.sleep(0)


async def test_work_is_stopped_once_when_it_is_asked_to():
    """A run, a comparison and a batch are stopped in one way."""
    api, asked = Calls(), asyncio.Event()
    with stopped_by(asked, api, "/api/runs/run_1", "run"):
        asked.set()
        await api.wait()

    assert [("POST", "/api/runs/run_1/stop")] == api.made


async def test_a_stop_that_fails_is_told():
    """The work may go on, so the reader must know."""
    api, asked = Calls(away=True), asyncio.Event()
    with show.err.capture() as told, stopped_by(asked, api, "/api/batches/b", "batch"):
        asked.set()
        await api.wait()

    assert "Could not stop the batch: The server is away." in told.get()


async def test_work_that_ends_before_is_not_stopped():
    """The end of the block ends the wait."""
    api, asked = Calls(), asyncio.Event()
    with stopped_by(asked, api, "/api/runs/run_1", "run"):
        pass
    asked.set()
    await asyncio.sleep(0)

    assert [] == api.made
