"""Runs that outlive the connection, stop when told, keep every word, and never call a failure a success.

engine = Engine()
run = await engine.start(my_generator())
async for seq, event in run.read(after=0):
    ...
settlement = await run.stop(by="user")
"""

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
