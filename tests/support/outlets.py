"""Outlets for tests, and push sources read as iterators."""

import asyncio
from functools import partial

from holdfast import Text


def as_events(items):
    """What a source emits, with its strings as the events that they stand for."""
    return [Text(item) if isinstance(item, str) else item for item in items]


class Collected:
    """An outlet that keeps what is emitted. Now and then it says that it is enough, so that its source waits."""

    def __init__(self):
        self.events = []

    def emit(self, events):
        self.events += as_events(events)
        return len(self.events) % 2 == 0

    async def room(self):
        await asyncio.sleep(0)


class _Queued:
    def __init__(self):
        self.queue = asyncio.Queue()

    def emit(self, events):
        if events:  # else it is a sign of life
            self.queue.put_nowait(as_events(events))
        return True

    async def room(self):
        pass


async def batches(push):
    """Yield what a push source emits, each time what came together. Closing this cancels the source."""
    out = _Queued()
    task = asyncio.create_task(push(out))
    task.add_done_callback(lambda _: out.queue.put_nowait(None))
    try:
        while (batch := await out.queue.get()) is not None:
            yield batch
        await task
    finally:
        task.cancel()
        await asyncio.wait({task})


def answer(provider, request):
    """A provider's answer as an async generator."""
    return batches(partial(provider.answer, request))


def attach(provider, name, **seen):
    """What follows in a named answer as an async generator."""
    return batches(partial(provider.attach, name, **seen))
