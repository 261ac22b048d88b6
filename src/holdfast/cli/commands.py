"""What commands have in common: how they fail, and the options that say which server is meant."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import Any

import click

from ..errors import HoldfastError


def telling(command: Callable[..., Any]) -> Callable[..., Any]:
    """Show what is no fault of ours in one line, instead of a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (HoldfastError, sqlite3.Error) as error:
            raise click.ClickException(str(error)) from None
        except BrokenPipeError:
            raise  # click knows what to do
        except OSError as error:
            raise click.ClickException(f"{error.filename or 'The system'}: {error.strerror}") from None

    return wrapped


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which server, or which data, is meant."""
    for option in (
        click.option("--config", type=click.Path(), help="Settings file (holdfast.toml)."),
        click.option("--data", type=click.Path(), help="Folder for everything that is kept."),
        click.option("--url", envvar="HOLDFAST_URL", help="A running server. Default: the one on this machine."),
    ):
        command = option(command)
    return command
