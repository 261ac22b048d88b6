"""Shared by all commands: how errors are shown, and the options that choose the server."""

from __future__ import annotations

import functools
import os
import pathlib
import sqlite3
import sys
from collections.abc import Callable
from typing import IO, Any

import click
import msgspec

from ..error_help import ERRORS
from ..errors import HoldfastError
from ..server.config.settings_file import Choice, choose


def one_line_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Show an expected error in one line instead of a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except HoldfastError as error:
            raise click.ClickException(f"{error}{more_about(error.code)}") from None
        except sqlite3.Error as error:
            raise click.ClickException(str(error)) from None
        except BrokenPipeError:
            raise  # click handles it
        except OSError as error:
            raise click.ClickException(
                f"{error.filename}: {error.strerror}" if error.filename else str(error)
            ) from None

    return wrapped


def more_about(code: str) -> str:
    """Return the pointer to the help for an error code; empty for a code without help."""
    return f" (holdfast explain {code})" if code in ERRORS else ""


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""The option of every command that prints a list."""


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the server or the data folder."""
    for option in (
        click.option("--config", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml)."),
        click.option("--data", type=click.Path(), help="Data folder."),
        click.option(
            "--url", envvar="HOLDFAST_URL", help="URL of a running server (default: the one on this machine)."
        ),
    ):
        command = option(command)
    return command


def read_json(file: IO[bytes]) -> Any:
    """Return what a file has that the user has named."""
    try:
        return msgspec.json.decode(file.read())
    except msgspec.DecodeError as error:
        raise click.ClickException(f"{file.name} is not JSON: {error}") from None


def write_text(text: str, file: pathlib.Path | None) -> None:
    """Write a text to a file, or print it."""
    if file is None:
        sys.stdout.write(text)
    else:
        file.write_text(text, encoding="utf-8")


def settings_file_in_use(config: str | None, *, here: bool = False, also_unused: bool = True) -> Choice:
    """Return the settings file in use, and print a warning about it if there is one."""
    choice = choose(os.environ, config, here=here)
    for line in (choice.warning, choice.unused if also_unused else ""):
        if line:
            click.echo(line, err=True)
    return choice
