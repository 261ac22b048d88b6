"""Shared by all commands: how errors are shown, and the options that choose the server."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import secrets
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import click
import msgspec

from ..error_help import ERRORS
from ..errors import HoldfastError
from ..server.config.settings_file import Choice, choose


class Port(click.IntRange):
    """The number of a port."""

    name = "port"


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
    """Add the options that choose the server or the data folder. Expected errors are shown in one line."""
    command = one_line_errors(command)
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


@contextlib.contextmanager
def whole_file(file: pathlib.Path, *, is_new: bool = False) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name once all of it is on the disk. If not, whatever had the name stays as it was.

    With `is_new` nothing may have the name, and only this user can read the file.
    """
    if is_new:
        try:
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise click.ClickException(f"{file} exists already. Choose another name.") from None
    elif file.exists() and not file.is_file():  # a terminal or a pipe
        with file.open("wb") as output:
            yield output
        return
    file = file.resolve()
    part, mode = file.with_name(f".holdfast-{secrets.token_hex(8)}.part"), 0o600 if file.exists() else 0o666
    try:
        with open(part, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as output:
            if file.exists():
                shutil.copymode(file, part)
            yield output
            output.flush()
            os.fsync(output.fileno())
        part.replace(file)
    except BaseException:
        for made in (part, file) if is_new else (part,):
            made.unlink(missing_ok=True)
        raise


def write_text(text: str, file: pathlib.Path | None) -> None:
    """Write a text to a file, or print it."""
    if file is None:
        sys.stdout.write(text)
        return
    with whole_file(file) as output:
        output.write(text.encode())


def settings_file_in_use(config: str | None, *, here: bool = False, also_unused: bool = True) -> Choice:
    """Return the settings file in use, and print a warning about it if there is one."""
    choice = choose(os.environ, config, here=here)
    for line in (choice.warning, choice.unused if also_unused else ""):
        if line:
            click.echo(line, err=True)
    return choice
