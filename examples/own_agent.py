"""An agent of your own as a model on every wire. Try it: holdfast serve --agent own_agent:agent"""

import asyncio
from collections.abc import AsyncGenerator

from holdfast.agents import AgentRequest
from holdfast.events import Text, ToolCall, ToolResult


async def agent(request: AgentRequest) -> AsyncGenerator[str | Text | ToolCall | ToolResult]:
    """Count the words of what was asked, slowly, as if it took a tool to do that."""
    yield "Let me count. "
    yield ToolCall(id="1", name="count", arguments="{}")
    await asyncio.sleep(0.2)  # a stop cancels it here; try/finally works as everywhere
    words = len(request.text.split())
    yield ToolResult(id="1", output=str(words))
    yield f"You said {words} words."
