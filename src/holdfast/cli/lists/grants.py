"""`holdfast grants`: what agents may do without asking, and how to take it back."""

from __future__ import annotations

import click

from .. import show
from ..client import Api, Object, calls_api
from ..commands import json_option
from ..tables import Column, TableCell, print_list, prose, short_ids, when


@click.group()
def grants() -> None:
    """List and revoke what agents may do without asking."""


_COLUMNS = (Column("grant"), Column("agent"), Column("tool"), Column("for"), Column("since", can_wait=True))


@grants.command("ls")
@json_option
@calls_api
async def grants_ls(api: Api, as_json: bool) -> None:
    """List what you have allowed for longer than one call."""
    listed = (await api.call("GET", "/api/grants"))["grants"]
    if not listed:
        show.note("No grants. Agents ask each time.")
    rows = [
        (id, each["agent"], _what(each), _where(each), when(each["created_at"]))
        for each, id in zip(listed, short_ids([each["id"] for each in listed]), strict=True)
    ]
    print_list(_COLUMNS, rows, json=listed if as_json else None)


def _what(grant: Object) -> TableCell:
    return prose(f"{grant['tool']}: {grant['beginning']} …" if grant["beginning"] else grant["tool"])


def _where(grant: Object) -> str:
    return f"chat {grant['session_id']}" if grant["session_id"] else "always"


@grants.command("rm")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@calls_api
async def grants_rm(api: Api, ids: tuple[str, ...]) -> None:
    """Revoke grants: the agents ask again. The beginning of an id is enough."""
    known = [each["id"] for each in (await api.call("GET", "/api/grants"))["grants"]]
    for id in ids:
        found = [each for each in known if each.startswith(id)]
        if len(found) != 1:
            raise click.ClickException(f"{'Several grants begin' if found else 'No grant begins'} with {id!r}.")
        await api.call("DELETE", f"/api/grants/{found[0]}")
        show.note(f"Revoked {found[0]}.")
