"""The HTTP server, for programs that run it themselves: `create_app(Settings(...))` is an ASGI app."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import how_to_install

if TYPE_CHECKING:
    from .app import create_app
    from .config.settings import ProviderSettings, Settings

__all__ = ["ProviderSettings", "Settings", "create_app"]

_AT = {"create_app": "app", "ProviderSettings": "config.settings", "Settings": "config.settings"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the modules of the server import this package."""
    if name not in _AT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f".{_AT[name]}", __name__), name)
    except ModuleNotFoundError as error:
        hint = f"holdfast.server needs {error.name}, which is not installed: {how_to_install('server')}"
        raise ImportError(hint, name=error.name) from error
    globals()[name] = value
    return value
