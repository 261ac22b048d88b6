"""Holdfast as the client of one MCP server, named by its URL: calls each of its tools once."""

import asyncio
import sys

from holdfast.agents.mcp.described import McpServer
from holdfast.agents.mcp.pool import ToolServer
from holdfast.agents.tools import ToolContext


async def main(url: str) -> None:
    there = ToolServer(McpServer(name="there", url=url, approval="allow"))
    try:
        for tool in await there.tools():
            arguments = dict.fromkeys(tool.parameters.get("properties", {}), 1)
            print(tool.name, await tool.call(arguments, ToolContext()))
    finally:
        await there.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
