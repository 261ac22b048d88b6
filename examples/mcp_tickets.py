"""A small MCP server, whose tools an agent has. Try it with mcp_tickets.toml, as its first lines tell."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("tickets", log_level="ERROR")
TICKETS = {1: "The door squeaks.", 2: "The lamp is broken."}


@server.tool()
async def search(words: str) -> str:
    """Find tickets that contain some words."""
    found = [f"{number}: {text}" for number, text in TICKETS.items() if words.lower() in text.lower()]
    return "\n".join(found) or "There is no such ticket."


@server.tool()
async def close(number: int) -> str:
    """Close a ticket."""
    return f"Closed: {TICKETS.pop(number)}" if number in TICKETS else f"There is no ticket {number}."


if __name__ == "__main__":
    server.run("stdio")
