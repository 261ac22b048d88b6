"""`holdfast grants`: what agents may do without asking, and how to take it back."""

from __future__ import annotations

import click

from .. import show
from ..client import Api, Object, calls_api
from ..commands import json_option
from ..tables import Column, TableCell, print_list, prose, when


@click.group()
def grants() -> None:
    """List and revoke what agents may do without asking."""


def _what(grant: Object) -> TableCell:
    return prose(f"{grant['tool']}: {grant['beginning']} …" if grant["beginning"] else grant["tool"])


def _where(grant: Object) -> str:
    return f"chat {grant['session_id']}" if grant["session_id"] else "always"


_COLUMNS = (
    Column("grant", "id", is_id=True),
    Column("agent"),
    Column("tool", _what),
    Column("for", _where),
    Column("since", lambda each: when(each["created_at"]), can_wait=True),
)


@grants.command("ls")
@json_option
@calls_api
async def grants_ls(api: Api, as_json: bool) -> None:
    """List what you have allowed for longer than one call."""
    listed = (await api.call("GET", "/api/grants"))["grants"]
    print_list(_COLUMNS, listed, as_json, empty="No grants. Agents ask each time.")


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
