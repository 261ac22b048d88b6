"""Agents as sources of runs: a model with tools in a loop, and agents of other frameworks."""

from .request import AgentRequest, AgentStopped
from .tools import Tool, ToolContext, ToolError, ToolOutput, tool
from .tools.effects import Effect, NotRun

__all__ = [
    "AgentRequest",
    "AgentStopped",
    "Effect",
    "NotRun",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "tool",
]
