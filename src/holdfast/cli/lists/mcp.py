"""`holdfast mcp`: the MCP servers of a server, for admins."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from .. import show
from ..client import connect
from ..commands import json_option, one_line_errors, settings_options
from ..tables import Column, TableCell, print_list, prose


@click.group()
def mcp() -> None:
    """List, add, try and remove MCP servers."""


COLUMNS = (
    Column("name"),
    Column("state"),
    Column("from"),
    Column("agents", can_wait=True),
    Column("where", is_text=True),
)
COLORS = {"connected": "green", "failed": "red", "idle": ""}


@mcp.command("ls")
@json_option
@settings_options
@one_line_errors
def mcp_ls(as_json: bool, **where: Any) -> None:
    """List the MCP servers, and your connections to them."""
    asyncio.run(_ls(as_json, **where))


async def _ls(as_json: bool, **where: Any) -> None:
    async with connect(**where) as api:
        listed = (await api.call("GET", "/api/mcp"))["servers"]
    if not listed:
        show.note("No MCP servers. Add one with: holdfast mcp add NAME --server-url URL, or NAME -- COMMAND")
    rows = [
        (
            each["name"],
            TableCell(each["state"], COLORS[each["state"]]),
            each["source"],
            " ".join(each["agents"]),
            prose(each["why"] or each["url"] or each["command"]),
        )
        for each in listed
    ]
    print_list(COLUMNS, rows, json=listed if as_json else None)


@mcp.command("add")
@click.argument("name")
@click.argument("command", nargs=-1, metavar="[COMMAND [ARGUMENT]…]")
@click.option("--server-url", default="", help="Its address, in place of a command.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header. Can be repeated.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable. Can be repeated.")
@click.option("--oauth", is_flag=True, help="People connect accounts of theirs, in the page.")
@click.option("--allow", is_flag=True, help="Its tools need no approval.")
@settings_options
@one_line_errors
def mcp_add(**what: Any) -> None:
    """Add an MCP server: its URL, or after -- the command that starts it."""
    asyncio.run(_add(**what))


async def _add(
    name: str,
    command: tuple[str, ...],
    server_url: str,
    headers: tuple[str, ...],
    env: tuple[str, ...],
    oauth: bool,
    allow: bool,
    **where: Any,
) -> None:
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
    async with connect(**where) as api:
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
@settings_options
@one_line_errors
def mcp_tools(name: str, as_json: bool, **where: Any) -> None:
    """Connect to an MCP server, and list its tools."""
    found = asyncio.run(_post(f"/api/mcp/{name}/connect", None, **where))
    if not found["ok"]:
        raise click.ClickException(found["why"])
    rows = [(tool["name"], prose(tool["description"])) for tool in found["tools"]]
    columns = (Column("tool"), Column("description", is_text=True))
    print_list(columns, rows, json=found["tools"] if as_json else None)


@mcp.command("call")
@click.argument("name")
@click.argument("tool")
@click.argument("arguments", default="{}")
@settings_options
@one_line_errors
def mcp_call(name: str, tool: str, arguments: str, **where: Any) -> None:
    """Call a tool of an MCP server, with its arguments as JSON."""
    try:
        given = json.loads(arguments)
    except ValueError as error:
        raise click.UsageError(f"The arguments are not JSON: {error}") from None
    called = asyncio.run(_post(f"/api/mcp/{name}/call", {"tool": tool, "arguments": given}, **where))
    click.echo(called["output"])
    if called["is_error"]:
        sys.exit(1)


async def _post(path: str, body: Any, **where: Any) -> Any:
    async with connect(**where) as api:
        return await api.call("POST", path, body)


@mcp.command("disconnect")
@click.argument("name")
@settings_options
@one_line_errors
def mcp_disconnect(name: str, **where: Any) -> None:
    """Revoke and forget the access to your account at an MCP server. Connect it in the page."""
    asyncio.run(_disconnect(name, **where))
    click.echo(f"Disconnected {name}.")


async def _disconnect(name: str, **where: Any) -> None:
    async with connect(**where) as api:
        await api.call("DELETE", f"/api/mcp-accounts/{name}")


@mcp.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@settings_options
@one_line_errors
def mcp_rm(names: tuple[str, ...], **where: Any) -> None:
    """Remove MCP servers that no agent has."""
    asyncio.run(_rm(names, **where))


async def _rm(names: tuple[str, ...], **where: Any) -> None:
    async with connect(**where) as api:
        for name in names:
            await api.call("DELETE", f"/api/mcp/{name}")
            click.echo(f"Removed {name}.")
