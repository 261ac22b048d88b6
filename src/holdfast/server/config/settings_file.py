"""The search for the settings file, and the check that no other user could have written it.

A settings file names commands to run, addresses to call and variables to send there, so its author acts as the user. It
is read only from a place that only the user (or root) can write to, or if the user gave its path. A file in the current
folder may come from a cloned repository.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import HoldfastError
from ...store.folder import who_else

NAME = "holdfast.toml"
VARIABLE = "HOLDFAST_CONFIG"


class FileRefused(HoldfastError):
    """A settings file that another user could have written, or that is not named exactly."""

    code = "bad_settings"


class Choice(NamedTuple):
    """The settings file in use, if any, and notes about it for the user."""

    path: pathlib.Path | None
    warning: str = ""
    """The warning about other users that can write to a named file."""
    unused: str = ""
    """The reason why the file of the current folder is ignored."""


def choose(environ: Mapping[str, str], named: str | os.PathLike[str] | None = None, *, here: bool = False) -> Choice:
    """Return the settings file: the named one, else the user's own, else with `here` that of the current folder."""
    if path := named_file(environ, named):
        trouble = who_else(path)
        return Choice(path, f"Warning: {trouble}; its settings can run commands as you." if trouble else "")
    own = config_folder(environ) / NAME
    if _exists(own):
        is_here = own.parent.resolve() == pathlib.Path.cwd()
        return Choice(_trusted(own), unused="" if is_here else _unused(f"{own} is the settings file"))
    if here and _exists(pathlib.Path(NAME)):
        return Choice(_trusted(pathlib.Path.cwd() / NAME))
    return Choice(None, unused=_unused("only `holdfast serve` and `holdfast config` read it"))


def config_folder(environ: Mapping[str, str]) -> pathlib.Path:
    """Return the user's folder for Holdfast's configuration."""
    return user_folder(environ, "XDG_CONFIG_HOME", "~/.config") / "holdfast"


def user_folder(environ: Mapping[str, str], variable: str, default: str) -> pathlib.Path:
    """Return one of the user's base folders. A relative value is ignored, as the XDG specification demands."""
    given = pathlib.Path(environ.get(variable, ""))
    return given if given.is_absolute() else pathlib.Path(default).expanduser()


def tables_of(values: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the values of a name that are tables. Other values are refused later."""
    found = values.get(name)
    return [table for table in found if isinstance(table, dict)] if isinstance(found, list) else []


def make_absolute(values: dict[str, Any], names: tuple[str, ...], file: pathlib.Path) -> None:
    """Make relative paths absolute: they are relative to the folder of the file."""
    for name in names:
        if isinstance(value := values.get(name), str) and value:
            values[name] = str(file.absolute().parent / pathlib.Path(value).expanduser())


def named_file(environ: Mapping[str, str], named: str | os.PathLike[str] | None) -> pathlib.Path | None:
    """Return the settings file that the user has named, by an option or in the environment."""
    if named:
        return pathlib.Path(named).expanduser()
    if not (given := environ.get(VARIABLE)):
        return None
    path = pathlib.Path(given).expanduser()
    if not path.is_absolute():
        raise FileRefused(f"{VARIABLE} must be an absolute path, not {given!r}. Use --config for a relative path.")
    return path


def _exists(path: pathlib.Path) -> bool:
    """Return whether a file exists. One that cannot be examined counts: reading it raises the reason."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _unused(why: str) -> str:
    """Return a note that the file of the current folder is ignored, if there is one."""
    here = pathlib.Path.cwd() / NAME
    return f"Note: {here} is not used: {why}. Use it with --config {NAME}." if _exists(here) else ""


def _trusted(path: pathlib.Path) -> pathlib.Path:
    """Return a file that no other user can have written; refuse it otherwise."""
    if trouble := who_else(path.parent) or who_else(path):
        raise FileRefused(
            f"Refusing to read the settings file {path}: {trouble}, and its settings can run commands as you. "
            "Fix that, or use --config if you trust the file."
        )
    return path
