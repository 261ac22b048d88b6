"""`holdfast sessions search`: chats that contain the words, each with the sentence and the message."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.text import Text

from .. import show
from ..client import Api, calls_api
from ..commands import json_option
from ..screen import flat
from ..tables import short_ids

_HEADER = ("session", "message", "title", "updated_at", "excerpt")


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=20, help="Maximum number of chats (20).")
@json_option
@calls_api
async def search_sessions(api: Api, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find messages by words or prefixes of words."""
    found = (await api.call("GET", "/api/sessions", query={"query": " ".join(words), "limit": limit}))["sessions"]
    if as_json:
        sys.stdout.write(show.as_json(found))
    elif not found:
        show.note("No matches.")
    elif show.is_terminal():
        ids = short_ids([session["id"] for session in found])
        for id, session in zip(ids, found, strict=True):
            show.out.print(_for_a_person(id.text, session), soft_wrap=False, overflow="fold")
    else:
        for row in (_HEADER, *map(_for_a_program, found)):
            sys.stdout.write("\t".join(flat(cell) for cell in row) + "\n")


def _for_a_person(id: str, session: dict[str, Any]) -> Text:
    """Return a session with the matching sentence, the words marked."""
    title, changed = show.line(session["title"], 60), show.ago(session["updated_at"])
    text = Text.assemble((id, "cyan"), "\n  ", (title, "bold"), f"  {changed}")
    text.append("\n  " if _pieces(session) else "")
    for piece in _pieces(session):
        text.append(flat(piece["text"]), "bold yellow" if piece["match"] else "dim")
    return text


def _for_a_program(session: dict[str, Any]) -> tuple[str, ...]:
    message = session["hit"]["message_id"] if session["hit"] else ""
    excerpt = "".join(piece["text"] for piece in _pieces(session))
    return session["id"], message, session["title"], session["updated_at"], excerpt


def _pieces(session: dict[str, Any]) -> list[dict[str, Any]]:
    return session["hit"]["excerpt"] if session["hit"] else []
