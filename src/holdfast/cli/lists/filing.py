"""`holdfast sessions file` and `labels`: folders, tags and the archive."""

from __future__ import annotations

from typing import Any

import click

from .. import show
from ..client import Api, Object, calls_api
from ..commands import json_option
from ..completion import complete_sessions
from ..completion.prefixes import SESSION, whole_id
from ..tables import Column, print_list, prose

_AT_ONCE = 200


@click.command("file")
@click.argument("session_ids", nargs=-1, required=True, metavar="SESSION...", shell_complete=complete_sessions)
@click.option("--folder", help="Move them to this folder; an empty name takes them out of their folders.")
@click.option("--tag", "add_tags", multiple=True, help="Add a tag. Can be repeated.")
@click.option("--untag", "remove_tags", multiple=True, help="Remove a tag. Can be repeated.")
@click.option("--archive/--unarchive", "archived", default=None, help="Put them into the archive, or take them out.")
@calls_api
async def sessions_file(api: Api, session_ids: tuple[str, ...], **given: Any) -> None:
    """Move sessions to a folder, tag them, archive them."""
    change = {name: value for name, value in given.items() if value not in (None, ())}
    if not change:
        raise click.UsageError("Say how: --folder, --tag, --untag, --archive or --unarchive.")
    ids = list(dict.fromkeys([await whole_id(api, SESSION, each) for each in session_ids]))
    for start in range(0, len(ids), _AT_ONCE):
        filed = await api.call("POST", "/api/sessions/file", {"sessions": ids[start : start + _AT_ONCE], **change})
        for id in filed["filed"]:
            click.echo(f"{id} filed")
        for id in filed["missing"]:
            show.note(f"{id} does not exist any more.")


_COLUMNS = (Column("kind"), Column("name", is_text=True), Column("sessions"))


@click.command("labels")
@json_option
@calls_api
async def sessions_labels(api: Api, as_json: bool) -> None:
    """List folders and tags with their numbers of sessions."""
    labels: Object = await api.call("GET", "/api/labels")
    rows = [
        (kind, prose(label["name"]), str(label["sessions"]))
        for kind, all_of_them in (("folder", labels["folders"]), ("tag", labels["tags"]))
        for label in all_of_them
    ]
    if labels["archived"]:
        rows.append(("archive", prose(""), str(labels["archived"])))
    if not rows:
        show.note("No folders and no tags. Make one with: holdfast sessions file SESSION --folder NAME")
    print_list(_COLUMNS, rows, json=labels if as_json else None)
