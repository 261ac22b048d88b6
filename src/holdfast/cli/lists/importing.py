"""`holdfast import` and `holdfast export`: the chats of an export, with progress and a report, and all chats as one."""

from __future__ import annotations

import asyncio
import pathlib
import sys
from typing import IO, Any

import click

from .. import show
from ..client import CallFailed, Object, connect
from ..commands import json_option, more_about, settings_options, whole_file
from ..screen import flat

_OWN_BEGIN = b"holdfast.json"
"""The name of the first file in an archive of Holdfast, and its place."""
_OWN_AT = 30
_LARGEST = 2 * 1024 * 1024 * 1024
_NAMES = {"chatgpt": "ChatGPT", "open-webui": "Open WebUI", "librechat": "LibreChat"}


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option
@settings_options
def import_command(file: str, **what: Any) -> None:
    """Import chats that ChatGPT, Open WebUI, LibreChat or Holdfast have exported.

    FILE is the ZIP or the JSON file of the export. Importing it again adds no chat twice.
    """
    path = pathlib.Path(file)
    if path.stat().st_size > _LARGEST:
        raise click.ClickException(f"{file} is larger than 2 GiB.")
    with path.open("rb") as export:
        is_own = export.read(_OWN_AT + len(_OWN_BEGIN)).endswith(_OWN_BEGIN)
        sys.exit(asyncio.run((_import_own if is_own else _import)(export, **what)))


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=pathlib.Path))
@settings_options
def export_command(file: pathlib.Path, **where: Any) -> None:
    """Write all chats, comparisons, runs and presets to a ZIP file.

    `holdfast import` adds its chats and comparisons to another server. FILE must not exist.
    """
    with whole_file(file, is_new=True) as output:
        asyncio.run(_export(output, **where))
    click.echo(f"Wrote {file}.")


async def _export(output: IO[bytes], **where: Any) -> None:
    async with connect(**where) as api:
        async for piece in api.download("/api/account/export"):
            output.write(piece)


async def _import_own(export: IO[bytes], as_json: bool, **where: Any) -> int:
    async with connect(**where) as api:
        done = await api.call("POST", "/api/account/import", export, seconds=None)
    if as_json:
        sys.stdout.write(show.as_json(done))
    else:
        added = f"{done['sessions']} chats and {done['comparisons']} comparisons added"
        click.echo(f"{added}, {done['known']} known already")
    return 0


async def _import(export: IO[bytes], as_json: bool, **where: Any) -> int:
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
    if report["sources"]:
        source = " and ".join(_NAMES[source] for source in report["sources"])
        click.echo(f"{report['found']} chats of {source}: {report['added']} added, {report['known']} known already")
    for name, why in (("empty", "have no message to show"), ("refused", "refused")):
        if report[name]:
            click.echo(f"{report[name]} {why}")
    for refusal in report["refusals"]:
        click.echo(flat(f"  {refusal['title'] or 'untitled'}: {refusal['why']}"))
    if report["left_out"]:
        show.note(f"{report['left_out']} parts have no place here: calls of tools, and files that the export lacks.")
