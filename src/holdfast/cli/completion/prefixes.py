"""Shortened ids, as in git: an unambiguous prefix stands for the whole id.

The server searches only the caller's own objects, so that no other user's ids can be guessed.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import show
from ..client import Api, CallFailed, Object, Params
from ..tables import short_ids

WHOLE = 36
"""Length of an id after its type, in characters."""
CANDIDATES = 8
"""Maximum number of candidates in an error."""


class Kind(NamedTuple):
    """A kind of object with ids, and the call that lists the caller's own."""

    name: str
    type: str
    path: str
    field: str
    hint: str = ""


RUN = Kind("run", "run_", "/api/runs", "runs", " See `holdfast runs ls`.")
SESSION = Kind("session", "ses_", "/api/sessions", "sessions", " See `holdfast sessions ls`.")
BATCH = Kind("batch", "bat_", "/api/batches", "data")


async def whole_id(api: Api, kind: Kind, given: str) -> str:
    """Return the whole id for a prefix. The type before the underscore is optional."""
    prefix = given if given.startswith(kind.type) else f"{kind.type}{given}"
    if len(prefix) >= len(kind.type) + WHOLE:
        return prefix
    found = await begin_with(api, kind, prefix, CANDIDATES + 1)
    exact = [each for each in found if each["id"] in (given, prefix)]
    if len(exact or found) == 1:
        return str((exact or found)[0]["id"])
    if not found:
        raise CallFailed(f"No {kind.name} {given!r}.{kind.hint}", f"{kind.name}_not_found", 404)
    raise CallFailed(_ambiguous(kind, given, found), "ambiguous_id")


async def begin_with(api: Api, kind: Kind, prefix: str, limit: int) -> list[Object]:
    """Return the caller's own objects with this id prefix, the newest first."""
    query: Params = {"prefix": prefix, "limit": limit} if kind is not BATCH else {"limit": 200}
    listed: list[Object] = (await api.call("GET", kind.path, query=query))[kind.field]
    return [each for each in listed if each["id"].startswith(prefix)]


def _ambiguous(kind: Kind, given: str, found: list[Object]) -> str:
    lines = [f"The {kind.name} id {given!r} is ambiguous. The candidates are:"]
    shown = short_ids([each["id"] for each in found[:CANDIDATES]])
    lines += [f"  {id.text}  {_described(each)}".rstrip() for id, each in zip(shown, found, strict=False)]
    return "\n".join([*lines, "  …"] if len(found) > CANDIDATES else lines)


def _described(each: Object) -> str:
    title = each.get("title") or each.get("name") or each.get("model") or ""
    return f"{show.ago(each.get('created_at'))}  {show.line(str(title), 40)}"
