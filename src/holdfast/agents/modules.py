"""Import of agents and tools that the settings or the command line name as `module:attribute`."""

from __future__ import annotations

import importlib
import sys
from typing import Any


class CannotImport(Exception):
    """A module or an attribute cannot be loaded; the message says why."""


def import_named(module: str, attribute: str, folder: str) -> Any:
    """Import an attribute of a module. `folder` is searched too, before the installed packages, as Python itself does
    with the folder of a script.
    """
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:
        searched = f" Searched in {folder} and the installed packages." if _is_missing(error, module) else ""
        raise CannotImport(
            f"{module}:{attribute} cannot be loaded: {type(error).__name__}: {error}.{searched}"
        ) from error
    return found


def _is_missing(error: Exception, module: str) -> bool:
    """Return whether the module itself was not found, and not something that it imports."""
    return isinstance(error, ModuleNotFoundError) and module.split(".")[0] == (error.name or "").split(".")[0]
