"""`holdfast nodes`: the servers that share the store."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from ..client import Object, connect
from ..commands import json_option, one_line_errors, settings_options
from ..tables import Column, TableCell, print_list, when

COLUMNS = (
    Column("node"),
    Column("state"),
    Column("since"),
    Column("runs"),
    Column("lease"),
    Column("version", can_wait=True),
    Column("address", is_text=True, can_wait=True),
    Column("this", can_wait=True),
    Column("id", is_piped=True),
)


@click.command()
@json_option
@settings_options
@one_line_errors
def nodes(**what: Any) -> None:
    """List the servers that share the store."""
    asyncio.run(_nodes(**what))


async def _nodes(as_json: bool, **where: Any) -> None:
    async with connect(**where, own=False) as api:  # a server of this command would list itself
        listed = (await api.call("GET", "/api/nodes"))["nodes"]
    print_list(COLUMNS, map(_row, listed), json=listed if as_json else None)


def _row(node: Object) -> tuple[TableCell | str, ...]:
    return (
        str(node["number"]),
        _state(node),
        when(node["since"]),
        str(node["runs"]),
        TableCell(f"{max(node['lease_left'], 0):.0f} s", piped=str(node["lease_left"])),
        node["version"],
        node["address"] or "",
        TableCell("this node" if node["this"] else "", "dim", piped="this" if node["this"] else ""),
        node["id"],
    )


def _state(node: Object) -> TableCell:
    if not node["alive"]:
        return TableCell("lease ended", "red")
    return TableCell("draining", "yellow") if node["draining"] else TableCell("alive", "green")
