"""Agents: a model, its tools, and a loop around both, as the source of a run; and agents that others wrote."""

from .request import AgentRequest
from .tools import Tool, ToolContext, ToolError, ToolOutput, tool

__all__ = ["AgentRequest", "Tool", "ToolContext", "ToolError", "ToolOutput", "tool"]
