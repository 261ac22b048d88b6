"""`holdfast nodes`: the servers that share the store."""

from __future__ import annotations

from functools import partial

import click

from ..client import Api, Object, calls_api
from ..commands import json_option
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
@partial(calls_api, own=False)  # a server of this command would list itself
async def nodes(api: Api, as_json: bool) -> None:
    """List the servers that share the store."""
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
