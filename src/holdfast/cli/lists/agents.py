"""`holdfast agents`: the agents of a server, for admins."""

from __future__ import annotations

from typing import Any

import click

from ..client import Api, calls_api
from ..commands import json_option
from ..completion import complete_models
from ..tables import Column, print_list


@click.group()
def agents() -> None:
    """List, add and remove agents."""


COLUMNS = (
    Column("name"),
    Column("model"),
    Column("from", "source"),
    Column("tools", lambda each: " ".join(each["tools"]), is_text=True),
    Column("problem", can_wait=True, is_text=True),
)


@agents.command("ls")
@json_option
@calls_api
async def agents_ls(api: Api, as_json: bool) -> None:
    """List the agents, and where each is set up."""
    listed = (await api.call("GET", "/api/agents"))["agents"]
    empty = "No agents. Add one with: holdfast agents add NAME -m MODEL --tool files"
    print_list(COLUMNS, listed, as_json, empty=empty)


@agents.command("add")
@click.argument("name")
@click.option("-m", "--model", required=True, shell_complete=complete_models, help="Model, as PROVIDER/MODEL.")
@click.option("--system", default="", help="System prompt.")
@click.option("--tool", "tools", multiple=True, help="files, shell or mcp:SERVER. Can be repeated.")
@click.option("--user", "users", multiple=True, help="Who may use it: an id, or * for all. Can be repeated.")
@click.option("--allow", multiple=True, metavar="TOOL", help="A tool that needs no approval. Can be repeated.")
@click.option("--max-steps", type=click.IntRange(1), default=25, show_default=True, help="Model calls in one run.")
@calls_api
async def agents_add(api: Api, name: str, users: tuple[str, ...], allow: tuple[str, ...], **what: Any) -> None:
    """Add an agent. It is the model agent/NAME."""
    body = {"name": name, **what, "users": users or None, "approvals": dict.fromkeys(allow, "allow")}
    await api.call("POST", "/api/agents", body)
    click.echo(f"Added {name}. Chat with it: holdfast chat --agent {name}")


@agents.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@calls_api
async def agents_rm(api: Api, names: tuple[str, ...]) -> None:
    """Remove agents. Runs that go on come to their end."""
    for name in names:
        await api.call("DELETE", f"/api/agents/{name}")
        click.echo(f"Removed {name}.")
