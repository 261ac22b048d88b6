"""Tasks and callbacks that an object owns."""

import asyncio
import gc
import logging

import pytest

from holdfast.concurrency.tasks import OwnedTasks
from holdfast.errors import ShuttingDown, StoreUnavailable
from holdfast.watchers import Watchers
from tests.requirements import requirement
from tests.support.waiting import LONG


async def test_a_task_that_nobody_else_holds_runs_to_its_end():
    """asyncio keeps only weak references: a task without an owner may be collected while it waits."""
    tasks, gate, done = OwnedTasks("the test"), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.set()

    tasks.start(work())
    await asyncio.sleep(0)
    gc.collect()
    gate.set()

    await asyncio.wait_for(done.wait(), LONG)
    await tasks.wait()
    assert 0 == len(tasks)


async def test_a_failure_is_logged_with_the_name_of_its_owner(caplog):
    """Nobody waits for such a task, so its error would be lost."""
    tasks = OwnedTasks("the test")

    async def work() -> None:
        raise ZeroDivisionError("a bug")

    with caplog.at_level(logging.ERROR, "holdfast"):
        tasks.start(work())
        await tasks.wait()

    assert "a task of the test failed" in caplog.text
    assert "a bug" in caplog.text


async def test_an_expected_error_reaches_the_caller_and_not_the_log(caplog):
    """A store that is away is the caller's to report, and not a bug."""
    tasks = OwnedTasks("the test")

    async def work() -> None:
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await tasks.run(work())
    assert "" == caplog.text


async def test_an_expected_error_is_logged_if_nobody_waits_for_the_task(caplog):
    """A store that is away is known: its message is enough, without a traceback."""
    tasks = OwnedTasks("the test")

    async def work() -> None:
        raise StoreUnavailable("away")

    tasks.start(work())
    await tasks.wait()

    assert "a task of the test failed: away" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_cancel_of_the_caller_does_not_reach_the_task():
    """A client that leaves must not interrupt a write."""
    tasks, gate, done = OwnedTasks("the test"), asyncio.Event(), []

    async def work() -> None:
        await gate.wait()
        done.append("written")

    caller = asyncio.create_task(tasks.run(work()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    gate.set()
    await tasks.wait()

    assert caller.cancelled()
    assert ["written"] == done


async def test_cancel_ends_every_task():
    """The owner ends, and leaves nothing behind."""
    tasks = OwnedTasks("the test")
    held = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(3)]
    for task in held:
        tasks.hold(task)

    await tasks.cancel()

    assert all(task.cancelled() for task in held)
    assert 0 == len(tasks)


async def test_wait_returns_at_its_timeout():
    """A server that ends gives its tasks some time, not all of it."""
    tasks = OwnedTasks("the test")
    tasks.start(asyncio.sleep(3600))

    await tasks.wait(timeout=0.01)

    assert 1 == len(tasks)
    await tasks.cancel()


def test_a_watcher_is_called_until_it_leaves():
    """`watch` returns the way out."""
    watchers, called = Watchers(), []
    leave = watchers.watch(lambda: called.append("first"))
    watchers.watch(lambda: called.append("second"))

    watchers.notify()
    leave()
    leave()
    watchers.notify()

    assert ["first", "second", "second"] == called
    assert 1 == len(watchers)


def test_a_watcher_may_add_and_remove_others():
    """A callback that ends one stream and begins another changes the registry while it is read."""
    watchers, called = Watchers(), []

    def first() -> None:
        called.append("first")
        leave()
        watchers.watch(lambda: called.append("new"))

    leave = watchers.watch(first)
    watchers.notify()
    assert ["first"] == called

    watchers.notify()
    assert ["first", "new"] == called


@requirement("nodes.drain")
async def test_who_waits_for_work_that_the_end_cuts_short_is_told_so():
    """A request to delete a session got 500 if its server ended first: 503 says that it can be repeated elsewhere."""
    tasks = OwnedTasks("the engine")
    waiting = asyncio.create_task(tasks.run(asyncio.sleep(3600)))
    await asyncio.sleep(0)
    await tasks.cancel()

    with pytest.raises(ShuttingDown):
        await waiting
