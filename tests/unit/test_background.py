"""Background tasks that fail, are reported, and recover."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.concurrency.background import Background
from holdfast.errors import StoreUnavailable
from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served
from tests.support.waiting import LONG


class Step:
    """A step of a task: it fails with the errors that it was given, one after the other, and then succeeds."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.done = 0
        self.succeeded = asyncio.Event()

    async def __call__(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.done += 1
        self.succeeded.set()


@pytest_asyncio.fixture
async def background() -> AsyncIterator[Background]:
    background = Background()
    yield background
    await background.close()


FAULTS = {
    "a known error": StoreUnavailable("the store is away"),
    "of the system": OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
    "a bug": KeyError("nobody thought of that"),
    "a cancel that nobody meant": asyncio.CancelledError(),
}


@requirement("safe.background")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_task_that_fails_is_logged_named_and_tried_again(background, caplog, fault):
    """A task that ends without a word is missed by nobody until it matters."""
    step = Step(fault)
    background.every("sweeping", 0.01, step)
    await until(lambda: background.failing)
    failing = background.failing
    await asyncio.wait_for(step.succeeded.wait(), LONG)

    assert {"sweeping": str(fault) or "CancelledError"} == failing
    assert {} == background.failing
    assert "background task sweeping failed (1 times)" in caplog.text
    assert "recovered after 1 failures" in caplog.text
    assert isinstance(fault, StoreUnavailable) or "Traceback" in caplog.text


async def until(is_so) -> None:
    async with asyncio.timeout(LONG):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)


@requirement("safe.background")
async def test_what_is_done_once_is_done_until_it_succeeds(background):
    """And then never again."""
    step = Step(OSError("once"))
    background.once("starting up", step)
    await asyncio.wait_for(step.succeeded.wait(), LONG)
    await background.close("starting up")

    assert 1 == step.done


@requirement("safe.background")
async def test_a_task_that_keeps_failing_does_not_fill_the_log(background, caplog):
    """The first failure is logged, the second, the fourth, the eighth."""
    step = Step(*[OSError("again")] * 9)
    background.every("sweeping", 0.001, step, longest_pause=0.001)
    await asyncio.wait_for(step.succeeded.wait(), LONG)

    assert 4 == caplog.text.count("background task sweeping failed")


@requirement("safe.background")
async def test_closing_ends_a_task_wherever_it_is(background):
    """Also one that is in the middle of a step, or in its pause."""
    entered = asyncio.Event()

    async def hang() -> None:
        entered.set()
        await asyncio.Event().wait()

    background.every("hanging", 1.0, hang)
    background.every("pausing", 1000.0, Step())
    await entered.wait()
    await asyncio.wait_for(background.close(), LONG)

    assert {} == background.failing


class Exhausted(MemoryStore):
    """A store that has no descriptors left, while the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_exhausted = False

    async def key_changes(self) -> int:
        if self.is_exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await super().key_changes()


@requirement("safe.background")
async def test_ready_names_the_task_that_fails_until_it_has_recovered(caplog):
    """An operator, and a load balancer, must learn that something is wrong before it is too late."""
    store = Exhausted()
    async with Served(create_app(Settings(), store, NO_HOME)) as served, served.client() as client:

        async def ready(status: int) -> dict:
            async with asyncio.timeout(LONG):
                while (answer := await client.get("/ready")).status != status:
                    pass
            return await answer.json()

        await ready(200)
        store.is_exhausted = True
        told = (await ready(503))["error"]
        store.is_exhausted = False
        await ready(200)

    assert "task_failing" == told["code"]
    assert "keys" in told["message"]
    assert "background task keys failed" in caplog.text
    assert "Too many open files" in caplog.text
