"""The public API as a type checker sees it: read by pyright and mypy, and never run."""

from collections.abc import AsyncGenerator
from typing import assert_type

from starlette.requests import Request

from holdfast import Completed, Engine, Event, Failed, Interrupted, Limits, Run, Stopped, Text, Truncated, open_store
from holdfast.asgi import EventStream, events


async def words() -> AsyncGenerator[str]:
    yield "a"


async def batches() -> AsyncGenerator[list[Text]]:
    yield [Text("a"), Text("b")]


async def embedding(request: Request) -> None:
    async with Engine(open_store("memory:"), limits=Limits(idle=5)) as engine:
        run = await engine.start(words(), keep=True, lifetime="attached", interrupt=print)
        assert_type(run, Run)
        assert_type(await engine.start(batches()), Run)
        async for seq, event in run.read(after=3):
            assert_type(seq, int)
            told: Event = event
            if isinstance(told, Text):
                assert_type(told.text, str)
        ending = await run.stop(by="user")
        assert_type(ending, Completed | Truncated | Stopped | Failed | Interrupted)
        if isinstance(ending, Failed):
            assert_type(ending.error.code, str)
        assert_type(events(run, request), EventStream)
