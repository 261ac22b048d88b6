"""Agents: a model, its tools, and a loop around both, as the source of a run."""

from .tools import Tool, ToolContext, ToolError, ToolOutput, tool

__all__ = ["Tool", "ToolContext", "ToolError", "ToolOutput", "tool"]
