"""Runs that outlive the connection, stop when told, keep every word, and never call a failure a success.

engine = Engine()
run = await engine.start(my_generator())
async for seq, event in run.read(after=0):
    ...
settlement, by_this_call = await run.stop(by="user")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine.core import Core as Engine
    from .errors import HoldfastError, RunNotFound, SourceFailed
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
    from .server.app import create_app
    from .server.config.settings import ProviderSettings, Settings
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
    "ProviderSettings",
    "PushSource",
    "Reasoning",
    "Run",
    "RunNotFound",
    "RunStarted",
    "Settings",
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
    "create_app",
    "open_store",
]

_AT = {
    "engine.core": ("Engine",),
    "errors": ("HoldfastError", "RunNotFound", "SourceFailed"),
    "runs.run": ("Limits", "Run", "StopResult"),
    "store": ("Store",),
    "store.opening": ("open_store",),
    "server.app": ("create_app",),
    "server.config.settings": ("ProviderSettings", "Settings"),
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
    return sorted({*globals(), *__all__})
