"""An MCP server whose effects an outside witness counts. By stdio, or HTTP with a port."""

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

from tests.support.effects import FOLDER, happen

PREFIX = "http" if len(sys.argv) > 1 else "stdio"
server = MCPServer("effects", log_level="INFO" if len(sys.argv) > 1 else "ERROR")


async def _happen(name: str, ctx: Context) -> str:
    effect_id = (ctx.request_context.meta or {}).get("idempotency-key", "none")
    return await happen(Path(os.environ[FOLDER]), f"{PREFIX}-{name}", str(effect_id))


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look(ctx: Context) -> str:
    """Change nothing that matters."""
    return await _happen("look", ctx)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def charge(ctx: Context) -> str:
    """Charge an account that refuses the same key twice."""
    return await _happen("charge", ctx)


@server.tool()
async def send(ctx: Context) -> str:
    """Send something that cannot be taken back."""
    return await _happen("send", ctx)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
