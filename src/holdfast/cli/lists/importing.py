"""`holdfast import`: the chats of another program's export, with progress and a report."""

from __future__ import annotations

import asyncio
import pathlib
import sys
from typing import Any

import click

from .. import show
from ..client import CallFailed, Object, connect
from ..commands import json_option, more_about, one_line_errors, settings_options
from ..screen import flat

_LARGEST = 2 * 1024 * 1024 * 1024
_NAMES = {"chatgpt": "ChatGPT", "open-webui": "Open WebUI", "librechat": "LibreChat"}


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
@settings_options
@one_line_errors
def import_command(file: str, **what: Any) -> None:
    """Import chats that ChatGPT, Open WebUI or LibreChat have exported.

    FILE is the ZIP or the JSON file of the export. Importing it again adds no chat twice.
    """
    path = pathlib.Path(file)
    if path.stat().st_size > _LARGEST:
        raise click.ClickException(f"{file} is larger than 2 GiB.")
    sys.exit(asyncio.run(_import(path.read_bytes(), **what)))


async def _import(export: bytes, as_json: bool, **where: Any) -> int:
    ended: Object | None = None
    async with connect(**where) as api:
        async for event, told in api.stream("POST", "/api/imports", export):
            if event == "import.progress" and not as_json:
                _progress(told)
            elif event != "import.progress":
                ended = told
    if ended is None:
        raise CallFailed("The connection ended before the import did. It goes on in the server: see the list of chats.")
    report = ended["report"]
    if as_json:
        sys.stdout.write(show.as_json(report))
    else:
        _tell(report)
    if "error" in ended:
        error = ended["error"]
        raise click.ClickException(f"{flat(error['message'])}{more_about(error['code'])}")
    return 1 if report["refused"] else 0


def _progress(report: Object) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{report['found']} chats read, {report['added']} added")
        sys.stderr.flush()


def _tell(report: Object) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    source = " and ".join(_NAMES[source] for source in report["sources"]) or "unknown programs"
    click.echo(f"{report['found']} chats of {source}: {report['added']} added, {report['known']} known already")
    for name, why in (("empty", "have no message to show"), ("refused", "refused")):
        if report[name]:
            click.echo(f"{report[name]} {why}")
    for refusal in report["refusals"]:
        click.echo(flat(f"  {refusal['title'] or 'untitled'}: {refusal['why']}"))
    if report["left_out"]:
        show.note(f"{report['left_out']} parts have no place here: calls of tools, and files that the export lacks.")
