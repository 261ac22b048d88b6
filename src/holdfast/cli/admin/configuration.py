"""`holdfast config`: write a settings file, check the settings, and show those in use."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from ...server.config.settings import (
    DISCOVERED,
    TABLES,
    Settings,
    data_folder,
    load_with_sources,
    source_name,
)
from ...server.config.settings_file import NAME, config_folder, named_file
from ...server.live.live_settings import with_saved
from ...store.place import without_password
from ..commands import Port, json_option, one_line_errors, settings_file_in_use
from .settings_check import problems

HIDDEN = (
    *("api_key", "cluster_key", "secret_key", "oauth_secret"),
    *("headers", "query", "proxy", "url", "base_url", "args", "env"),
)
"""Settings and fields that are, or may hold, a secret."""


@click.group()
def config() -> None:
    """Write a settings file, check the settings, show them."""


def of_serve(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options by which `serve` chooses its settings."""
    for option in (
        click.option("--config", "file", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml)."),
        click.option("--data", type=click.Path(), help="Data folder."),
        click.option("--port", type=Port(0, 65535), help="As for `serve`."),
        click.option("--host", help="As for `serve`."),
    ):
        command = option(command)
    return command


@config.command("init")
@click.argument("file", required=False, type=click.Path(allow_dash=True, dir_okay=False))
@one_line_errors
def config_init(file: str | None) -> None:
    """Write a settings file with every setting, each as a comment with its default.

    FILE is ~/.config/holdfast/holdfast.toml unless you name one, or `-` for standard output. A file that exists is
    kept.
    """
    text = (files("holdfast.server.config") / "example.toml").read_text(encoding="utf-8")
    if file == "-":
        click.echo(text, nl=False)
        return
    path = Path(file) if file else named_file(os.environ, None) or config_folder(os.environ) / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # it may get keys
    except FileExistsError:
        raise click.ClickException(f"{path} already exists. Name another file, or `-` to print the settings.") from None
    with open(descriptor, "w", encoding="utf-8") as written:
        written.write(text)
    click.echo(f"Wrote {path}.")


@config.command("check")
@of_serve
@click.option("--agent", "agents", multiple=True, help="As for `serve`.")
@one_line_errors
def config_check(file: str | None, agents: tuple[str, ...], **flags: Any) -> None:
    """Check the settings that `serve` would use, and print every problem.

    Exit code: 0 = OK, 1 = problems found. The server is not needed.
    """
    choice = settings_file_in_use(file, here=True)
    found = problems(flags, os.environ, file, agents, here=True)
    for line in found:
        click.echo(line, err=True)
    if found:
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        click.echo(f"{count}.{f' Settings file: {choice.path.absolute()}' if choice.path else ''}", err=True)
        sys.exit(1)
    click.echo(f"The settings are valid{f': {choice.path.absolute()}' if choice.path else ''}.")


@config.command("show")
@click.option("--sources", is_flag=True, help="Show where each value comes from.")
@of_serve
@json_option
@one_line_errors
def config_show(sources: bool, file: str | None, as_json: bool, **flags: Any) -> None:
    """Print every setting that `serve` would use as TOML, as in a settings file.

    Order of precedence: flag, environment, settings file, browser, default. A secret is a comment in its place.
    """
    settings_file_in_use(file, here=True)
    loaded, given = load_with_sources(flags, os.environ, file, here=True)
    of_file = {each.name: given["providers"] for each in loaded.providers if source_name(each) not in given}
    settings, given = with_saved(loaded, given)
    given |= {source_name(each): of_file.get(each.name, "ui") for each in settings.providers} | given
    if as_json:
        click.echo(json.dumps([*_rows(settings, given)], indent=2, ensure_ascii=False, default=str))
        return
    for line in _lines(settings, given, sources):
        click.echo(line)


def _rows(settings: Settings, given: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name, value in _values(settings).items():
        yield {"setting": name, "value": _without_secrets(name, value), "source": given.get(name, "default")}


def _values(settings: Settings) -> dict[str, Any]:
    """Return all values as those of TOML and JSON. The data folder is the one in use."""
    values: dict[str, Any] = msgspec.to_builtins(settings)
    return values | {"data": str(data_folder(settings)), "store": without_password(settings.store)}


def _lines(settings: Settings, given: Mapping[str, str], sources: bool) -> Iterator[str]:
    """Yield the lines of a settings file: the single values first, since a table lasts until the next one."""
    values = _values(settings)
    for name, value in values.items():
        if name not in TABLES:
            yield from _line(name, value, f"  # {given.get(name, 'default')}" if sources else "")
    for name in TABLES:
        if name == "providers":
            yield from _provider_lines(values[name], given, sources)
        elif isinstance(values[name], tuple):
            for each in values[name]:
                yield from _table(f"[[{name}]]", each, given.get(name, "default") if sources else "")
        elif values[name]:
            yield from _table(f"[{name}]", values[name], given.get(name, "default") if sources else "")


def _provider_lines(providers: tuple[dict[str, Any], ...], given: Mapping[str, str], sources: bool) -> Iterator[str]:
    """Yield the providers of the file as tables, and name those that come from elsewhere."""
    for each in providers:
        source = given[f"providers.{each['name']}"]
        if source in (DISCOVERED, "ui"):
            place = "set in the browser" if source == "ui" else "offered by default, or by its key"
            yield f"\n# Provider {each['name']} ({each['dialect']}): {place}"
        else:
            yield from _table("[[providers]]", each, source if sources else "")


def _table(head: str, table: Mapping[str, Any], source: str) -> Iterator[str]:
    """Yield a table; its empty fields are left out, and so is a table without any other."""
    given = {name: value for name, value in table.items() if value not in ("", (), {})}
    lines = [line for name, value in given.items() for line in _line(name, value, "")]
    if lines:
        yield f"\n{head}{f'  # {source}' if source else ''}"
        yield from lines


def _line(name: str, value: Any, source: str) -> Iterator[str]:
    """Yield a value as a line; a secret as a comment. What TOML cannot say is left out: it is the default."""
    if value is None:
        return
    shown = _without_secrets(name, value)
    if shown not in (value, "inf"):
        yield f"# {_key(name)} = {_toml(shown)}{source}"
    else:
        yield f"{_key(name)} = {_toml(value)}{source}"


def _without_secrets(name: str, value: Any) -> Any:
    """Return a value in which each secret is replaced: of an address the host stays."""
    if isinstance(value, dict):
        is_secret = name in HIDDEN and name not in TABLES
        return {key: "(hidden)" if is_secret else _without_secrets(key, each) for key, each in value.items()}
    if isinstance(value, tuple) and name in TABLES:
        return [_without_secrets("", each) for each in value]
    if value == math.inf:
        return "inf"
    if name not in HIDDEN or not value:
        return value
    if name in ("url", "base_url", "proxy") and isinstance(value, str):
        parts = urlsplit(value)
        return (
            value if not (parts.query or "@" in parts.netloc) and name != "url" else f"(hidden) {parts.hostname or ''}"
        )
    return "(hidden)"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(name)} = {_toml(each)}' for name, each in value.items() if each is not None)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
