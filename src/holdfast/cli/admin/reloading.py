"""`holdfast reload`: make a running server read its changed settings file."""

from __future__ import annotations

from functools import partial

import click

from ..client import Api, calls_api


@click.command("reload")
@partial(calls_api, own=False)
async def reload_command(api: Api) -> None:
    """Make the server read its changed settings file.

    All of it is applied, or nothing if it is invalid. No connection is closed. Prints what has changed, and what needs
    a restart. SIGHUP does the same.
    """
    result = await api.call("POST", "/api/settings/reload")
    for label, names in (("Changed", result["changed"]), ("Needs a restart", result["needs_restart"])):
        if names:
            click.echo(f"{label}: {', '.join(names)}")
    if not result["changed"] and not result["needs_restart"]:
        click.echo("Nothing has changed.")
