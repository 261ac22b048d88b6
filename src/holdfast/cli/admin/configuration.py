"""`holdfast config`: the settings in use, and their problems."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from ...server.config.settings import Settings, data_folder, load_with_sources
from ...server.live.live_settings import with_saved
from ...store.place import without_password
from ..commands import json_option, one_line_errors, settings_file_in_use
from ..tables import Column, print_list
from .settings_check import problems

SECRET = ("api_key", "cluster_key", "secret_key")


@click.group()
def config() -> None:
    """Show and check the settings."""


@config.command("check")
@click.option("--host", help="As for `serve`.")
@click.option("--port", type=click.IntRange(0, 65535), help="As for `serve`.")
@click.option("--data", type=click.Path(), help="Data folder.")
@click.option("--config", "file", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml).")
@one_line_errors
def config_check(file: str | None, **flags: Any) -> None:
    """Check the settings that `serve` would use, and print every problem.

    Exit code: 0 = OK, 1 = problems found. The server is not needed.
    """
    choice = settings_file_in_use(file, here=True)
    found = problems(flags, os.environ, file, here=True)
    for line in found:
        click.echo(line, err=True)
    if found:
        raise click.exceptions.Exit(1)
    click.echo(f"The settings are valid{f': {choice.path.absolute()}' if choice.path else ''}.")


@config.command("show")
@click.option("--sources", is_flag=True, help="Show where each value comes from.")
@click.option("--host", help="As for `serve`.")
@click.option("--port", type=click.IntRange(0, 65535), help="As for `serve`.")
@click.option("--data", type=click.Path(), help="Data folder.")
@click.option("--config", "file", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml).")
@json_option
@one_line_errors
def config_show(sources: bool, file: str | None, as_json: bool, **flags: Any) -> None:
    """Print every setting.

    Order of precedence: flag, environment, settings file, browser, default. Secrets are shown as (set).
    """
    settings_file_in_use(file)
    settings, given = with_saved(*load_with_sources(flags, os.environ, file))
    values = [
        {
            "setting": field.name,
            "value": _shown(field.name, getattr(settings, field.name), settings),
            "source": given.get(field.name, "default"),
        }
        for field in msgspec.structs.fields(Settings)
    ]
    columns = [Column("setting"), Column("value", is_text=True), *([Column("source")] if sources else [])]
    rows = [[value[column.name] for column in columns] for value in values]
    print_list(columns, rows, json=values if as_json else None)


def _shown(name: str, value: Any, settings: Settings) -> str:
    """Return a value as text. A secret is shown as (set)."""
    if name in SECRET:
        return "(set)" if value else ""
    if name == "store":
        return without_password(value)
    if name == "data":
        return str(data_folder(settings))
    if name == "providers":
        return ", ".join(f"{provider.name} ({provider.dialect})" for provider in settings.providers)
    if name == "keys":
        return ", ".join(key.name for key in settings.keys)
    if name == "webhooks":  # an address may hold a secret; its host name does not
        return ", ".join(urlsplit(webhook.url).hostname or "" for webhook in settings.webhooks)
    if name == "agents":
        return ", ".join(f"{agent.name} ({' '.join((agent.model, *agent.tools))})" for agent in settings.agents)
    if name == "mcp":  # without arguments and variables, which may hold keys
        return ", ".join(f"{mcp.name} ({mcp.command or urlsplit(mcp.url).hostname or ''})" for mcp in settings.mcp)
    if name == "prices":
        return ", ".join(f"{model} = {price.input:g} in, {price.output:g} out" for model, price in value.items())
    if isinstance(value, dict):
        return ", ".join(f"{model} = {other}" for model, other in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
