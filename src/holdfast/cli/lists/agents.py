"""`holdfast agents`: the agents of a server, for admins."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from .. import show
from ..client import connect
from ..commands import json_option, one_line_errors, settings_options
from ..completion import complete_models
from ..tables import Column, print_list, prose


@click.group()
def agents() -> None:
    """List, add and remove agents."""


COLUMNS = (
    Column("name"),
    Column("model"),
    Column("from"),
    Column("tools", is_text=True),
    Column("problem", can_wait=True, is_text=True),
)


@agents.command("ls")
@json_option
@settings_options
@one_line_errors
def agents_ls(as_json: bool, **where: Any) -> None:
    """List the agents, and where each is set up."""
    asyncio.run(_ls(as_json, **where))


async def _ls(as_json: bool, **where: Any) -> None:
    async with connect(**where) as api:
        listed = (await api.call("GET", "/api/agents"))["agents"]
    if not listed:
        show.note("No agents. Add one with: holdfast agents add NAME -m MODEL --tool files")
    rows = [
        (
            each["name"],
            each["model"],
            each["source"],
            prose(" ".join(each["tools"])),
            prose(each["problem"] or ""),
        )
        for each in listed
    ]
    print_list(COLUMNS, rows, json=listed if as_json else None)


@agents.command("add")
@click.argument("name")
@click.option("-m", "--model", required=True, shell_complete=complete_models, help="Model, as PROVIDER/MODEL.")
@click.option("--system", default="", help="System prompt.")
@click.option("--tool", "tools", multiple=True, help="files, shell or mcp:SERVER. Can be repeated.")
@click.option("--user", "users", multiple=True, help="Who may use it: an id, or * for all. Can be repeated.")
@click.option("--allow", multiple=True, metavar="TOOL", help="A tool that needs no approval. Can be repeated.")
@click.option("--max-steps", type=click.IntRange(1), default=25, show_default=True, help="Model calls in one run.")
@settings_options
@one_line_errors
def agents_add(**what: Any) -> None:
    """Add an agent. It is the model agent/NAME."""
    asyncio.run(_add(**what))


async def _add(
    name: str,
    model: str,
    system: str,
    tools: tuple[str, ...],
    users: tuple[str, ...],
    allow: tuple[str, ...],
    max_steps: int,
    **where: Any,
) -> None:
    body: dict[str, Any] = {"name": name, "model": model, "system": system, "tools": tools, "max_steps": max_steps}
    body |= {"users": users or None, "approvals": dict.fromkeys(allow, "allow")}
    async with connect(**where) as api:
        await api.call("POST", "/api/agents", body)
    click.echo(f"Added {name}. Chat with it: holdfast chat --agent {name}")


@agents.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@settings_options
@one_line_errors
def agents_rm(names: tuple[str, ...], **where: Any) -> None:
    """Remove agents. Runs that go on come to their end."""
    asyncio.run(_rm(names, **where))


async def _rm(names: tuple[str, ...], **where: Any) -> None:
    async with connect(**where) as api:
        for name in names:
            await api.call("DELETE", f"/api/agents/{name}")
            click.echo(f"Removed {name}.")
