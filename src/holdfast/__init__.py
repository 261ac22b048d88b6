"""Durable, resumable runs for async generators: a run goes on without its reader, and ends in exactly one outcome.

    import asyncio
    from holdfast import Engine

    async def story():
        yield "Once upon a time "
        yield "there was a fox."

    async def main():
        async with Engine("sqlite:./data") as engine:
            run = await engine.start(story(), owner="ann")
            async for seq, event in run.read(after=0):
                print(seq, event)
            print((await run.settled()).outcome)

    asyncio.run(main())

`holdfast.fastapi` and `holdfast.starlette` have routes for apps, `holdfast.asgi` the event stream of one run,
`holdfast.server` the whole server, and `holdfast.testing` scripted sources.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .embedding.engine import Engine
    from .errors import HoldfastError, RunNotFound, RunSettled, SourceFailed
    from .events import (
        AnswerBegins,
        Completed,
        Event,
        Failed,
        Finish,
        Interrupted,
        Notice,
        Outcome,
        Outlet,
        PushSource,
        Reasoning,
        RunStarted,
        Settled,
        Settlement,
        Source,
        Stopped,
        Text,
        ToolCall,
        ToolResult,
        Truncated,
        Usage,
    )
    from .runs.run import Limits, Run, StopResult
    from .store import Store
    from .store.opening import open_store

__version__ = "0.1.0"

__all__ = [
    "AnswerBegins",
    "Completed",
    "Engine",
    "Event",
    "Failed",
    "Finish",
    "HoldfastError",
    "Interrupted",
    "Limits",
    "Notice",
    "Outcome",
    "Outlet",
    "PushSource",
    "Reasoning",
    "Run",
    "RunNotFound",
    "RunSettled",
    "RunStarted",
    "Settled",
    "Settlement",
    "Source",
    "SourceFailed",
    "StopResult",
    "Stopped",
    "Store",
    "Text",
    "ToolCall",
    "ToolResult",
    "Truncated",
    "Usage",
    "open_store",
]

_AT = {
    "embedding.engine": ("Engine",),
    "errors": ("HoldfastError", "RunNotFound", "RunSettled", "SourceFailed"),
    "runs.run": ("Limits", "Run", "StopResult"),
    "store": ("Store",),
    "store.opening": ("open_store",),
}
_PLACES = {name: module for module, names in _AT.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the engine needs nothing of the server, `--help` nothing of the engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_PLACES.get(name, 'events')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__doc__", "__file__", "__name__", "__path__", "__version__", *__all__})
