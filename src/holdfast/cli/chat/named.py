"""Presets and prompts by their names, for chats in the terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from ..client import Api, CallFailed, Object

_VARIABLE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")


async def preset_named(api: Api, name: str) -> Object:
    """Return the preset with a name; the caller's own comes before those of others."""
    found = _named((await api.call("GET", "/api/presets"))["presets"], name)
    if found is None:
        raise CallFailed(f"No preset {name!r}. See `holdfast presets ls`.", "preset_not_found", 404)
    return found


async def prompt_named(api: Api, name: str) -> Object:
    """Return the prompt with a name; the caller's own comes before those of others."""
    found = await find_prompt(api, name)
    if found is None:
        raise CallFailed(f"No prompt '/{name}'. See `holdfast presets ls`.", "prompt_not_found", 404)
    return found


async def find_prompt(api: Api, name: str) -> Object | None:
    """Return the prompt with a name; None if there is none."""
    return _named((await api.call("GET", "/api/prompts"))["prompts"], name)


def _named(listed: Sequence[Object], name: str) -> Object | None:
    return next((each for each in listed if _folded(each["name"]) == _folded(name) or each["id"] == name), None)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def filled_prompt(prompt: Object, given: Mapping[str, str]) -> str:
    """Return the text of a prompt with what was given for its variables."""
    return _VARIABLE.sub(lambda match: given.get(match[1], match[0]), prompt["text"])
