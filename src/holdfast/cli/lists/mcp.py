"""`holdfast mcp`: the MCP servers of a server, for admins."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import click

from ..client import Api, Object, calls_api
from ..commands import json_option
from ..tables import Column, TableCell, print_list


@click.group()
def mcp() -> None:
    """List, add, try and remove MCP servers."""


def _place(server: Object) -> str:
    return server["why"] or server["url"] or shlex.join([server["command"], *server["args"]])


COLORS = {"connected": "green", "failed": "red", "idle": ""}
COLUMNS = (
    Column("name"),
    Column("state", lambda each: TableCell(each["state"], COLORS[each["state"]])),
    Column("from", "source"),
    Column("agents", lambda each: " ".join(each["agents"]), can_wait=True),
    Column("where", _place, is_text=True),
)


@mcp.command("ls")
@json_option
@calls_api
async def mcp_ls(api: Api, as_json: bool) -> None:
    """List the MCP servers, and your connections to them."""
    listed = (await api.call("GET", "/api/mcp"))["servers"]
    empty = "No MCP servers. Add one with: holdfast mcp add NAME --server-url URL, or NAME -- COMMAND"
    print_list(COLUMNS, listed, as_json, empty=empty)


@mcp.command("add")
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[COMMAND [ARGUMENT]…]")
@click.option("--server-url", default="", help="Its address, in place of a command.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header. Can be repeated.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable. Can be repeated.")
@click.option("--oauth", is_flag=True, help="People connect accounts of theirs, in the page.")
@click.option("--allow", is_flag=True, help="Its tools need no approval.")
@calls_api
async def mcp_add(
    api: Api,
    name: str,
    command: tuple[str, ...],
    server_url: str,
    headers: tuple[str, ...],
    env: tuple[str, ...],
    oauth: bool,
    allow: bool,
) -> None:
    """Add an MCP server: its URL, or after -- the command that starts it."""
    if bool(command) == bool(server_url):
        raise click.UsageError("Give either --server-url or, after --, a command.")
    body = {
        "name": name,
        "url": server_url,
        "headers": _pairs(headers, "--header"),
        "command": command[0] if command else "",
        "args": command[1:],
        "env": _pairs(env, "--env"),
        "approval": "allow" if allow else "ask",
        "auth": "oauth" if oauth else "",
    }
    await api.call("POST", "/api/mcp", body)
    click.echo(f"Added {name}. List its tools: holdfast mcp tools {name}")


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if any(not name or not equals for name, equals, _ in pairs):
        raise click.UsageError(f"{option} must be NAME=VALUE.")
    return {name: value for name, _, value in pairs}


@mcp.command("tools")
@click.argument("name")
@json_option
@calls_api
async def mcp_tools(api: Api, name: str, as_json: bool) -> None:
    """Connect to an MCP server, and list its tools."""
    found = await api.call("POST", f"/api/mcp/{name}/connect")
    if not found["ok"]:
        raise click.ClickException(found["why"])
    print_list((Column("tool", "name"), Column("description", is_text=True)), found["tools"], as_json)


@mcp.command("call")
@click.argument("name")
@click.argument("tool")
@click.argument("arguments", default="{}")
@calls_api
async def mcp_call(api: Api, name: str, tool: str, arguments: str) -> int:
    """Call a tool of an MCP server, with its arguments as JSON."""
    try:
        given = json.loads(arguments)
    except ValueError as error:
        raise click.UsageError(f"The arguments are not JSON: {error}") from None
    called = await api.call("POST", f"/api/mcp/{name}/call", {"tool": tool, "arguments": given})
    click.echo(called["output"])
    return 1 if called["is_error"] else 0


@mcp.command("disconnect")
@click.argument("name")
@calls_api
async def mcp_disconnect(api: Api, name: str) -> None:
    """Revoke and forget the access to your account at an MCP server. Connect it in the page."""
    await api.call("DELETE", f"/api/mcp-accounts/{name}")
    click.echo(f"Disconnected {name}.")


@mcp.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@calls_api
async def mcp_rm(api: Api, names: tuple[str, ...]) -> None:
    """Remove MCP servers that no agent has."""
    for name in names:
        await api.call("DELETE", f"/api/mcp/{name}")
        click.echo(f"Removed {name}.")
