"""`holdfast nodes`: the servers that share the store."""

from __future__ import annotations

from functools import partial

import click

from ..client import Api, Object, calls_api
from ..commands import json_option
from ..tables import Column, TableCell, print_list, when


def _state(node: Object) -> TableCell:
    if not node["alive"]:
        return TableCell("lease ended", "red")
    return TableCell("draining", "yellow") if node["draining"] else TableCell("alive", "green")


def _lease(node: Object) -> TableCell:
    return TableCell(f"{max(node['lease_left'], 0):.0f} s", piped=str(node["lease_left"]))


def _this(node: Object) -> TableCell:
    return TableCell("this node" if node["this"] else "", "dim", piped="this" if node["this"] else "")


COLUMNS = (
    Column("node", "number"),
    Column("state", _state),
    Column("since", lambda node: when(node["since"])),
    Column("runs"),
    Column("lease", _lease),
    Column("version", can_wait=True),
    Column("address", is_text=True, can_wait=True),
    Column("this", _this, can_wait=True),
    Column("id", is_piped=True),
)


@click.command()
@json_option
@partial(calls_api, own=False)  # a server of this command would list itself
async def nodes(api: Api, as_json: bool) -> None:
    """List the servers that share the store."""
    print_list(COLUMNS, (await api.call("GET", "/api/nodes"))["nodes"], as_json)
