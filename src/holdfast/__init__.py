"""Runs that outlive the connection, stop when told, keep every word, and never call a failure a success.

engine = Engine()
run = await engine.start(my_generator())
async for seq, event in run.read(after=0):
    ...
settlement = await run.stop(by="user")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Engine
    from .errors import HoldfastError, SourceFailed
    from .events import (
        Completed,
        Event,
        Failed,
        Finish,
        Interrupted,
        Notice,
        Reasoning,
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
    from .run import Limits, Run
    from .store import Store
    from .store.opening import open_store

__version__ = "0.1.0"

__all__ = [
    "Completed",
    "Engine",
    "Event",
    "Failed",
    "Finish",
    "HoldfastError",
    "Interrupted",
    "Limits",
    "Notice",
    "Reasoning",
    "Run",
    "Settled",
    "Settlement",
    "Source",
    "SourceFailed",
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
    "engine": ("Engine",),
    "errors": ("HoldfastError", "SourceFailed"),
    "run": ("Limits", "Run"),
    "store": ("Store",),
    "store.opening": ("open_store",),
}
_PLACES = {name: module for module, names in _AT.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for: a command line that prints its help needs no engine."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_PLACES.get(name, 'events')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
