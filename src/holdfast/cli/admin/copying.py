"""`holdfast copy`: everything from one store to another."""

from __future__ import annotations

import asyncio

import click

from ...store.opening.copying import copy_store
from .. import show
from ..commands import one_line_errors


@click.command("copy")
@click.argument("source")
@click.argument("target")
@one_line_errors
def copy_command(source: str, target: str) -> None:
    """Copy everything between SQLite and PostgreSQL, to a store that is empty.

    That is chats, runs, logs, documents, pictures and keys.

    SOURCE and TARGET are sqlite:FOLDER or postgresql://user@host:port/dbname. No server may use either of them
    meanwhile. A copy that was interrupted continues when the command is repeated. At the end both stores are compared.
    Not part of a store, and not copied, are the other files of the data folder: settings made in the browser, and
    folders of agents.
    """
    shown: dict[str, int] = {}

    def progress(what: str, done: int, total: int) -> None:
        tenth = done * 10 // max(total, 1)
        if shown.get(what) != tenth:
            shown[what] = tenth
            show.note(f"{what}: {done} of {total}")

    rows = asyncio.run(copy_store(source, target, progress))
    click.echo(f"Copied and compared {show.plural(rows, 'row')}.")
