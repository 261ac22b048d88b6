"""`holdfast reload`: make a running server read its changed settings file."""

from __future__ import annotations

import asyncio

import click

from ..client import connect
from ..commands import one_line_errors, settings_options


@click.command("reload")
@settings_options
@one_line_errors
def reload_command(url: str | None, data: str | None, config: str | None) -> None:
    """Make the server read its changed settings file.

    All of it is applied, or nothing if it is invalid. No connection is closed. Prints what has changed, and what needs
    a restart. SIGHUP does the same.
    """
    asyncio.run(_reload(url, data, config))


async def _reload(url: str | None, data: str | None, config: str | None) -> None:
    async with connect(url, data, config, own=False) as api:
        result = await api.call("POST", "/api/settings/reload")
    for label, names in (("Changed", result["changed"]), ("Needs a restart", result["needs_restart"])):
        if names:
            click.echo(f"{label}: {', '.join(names)}")
    if not result["changed"] and not result["needs_restart"]:
        click.echo("Nothing has changed.")
