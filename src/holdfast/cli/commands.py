"""Commands that are loaded when they are needed: each imports only what it works with."""

from __future__ import annotations

import functools
import importlib
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import click

from ..errors import HoldfastError


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own, named as `module:command`."""

    def __init__(self, *args: Any, commands_at: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a newcomer needs them."""
        return list(self._commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        place = self._commands_at.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command: click.Command = getattr(importlib.import_module(f".{module}", __package__), name)
        return command


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
