"""`holdfast models`, `runs` and `sessions`: list, show, follow, stop, export and delete."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import sys
from typing import IO, Any

import click
from rich.text import Text

from ...history import text_of
from .. import show
from ..chat.as_read import as_read
from ..chat.talk import EXIT, follow
from ..client import Api, Object, Params, calls_api
from ..commands import json_option, read_json, write_text
from ..completion import complete_runs, complete_sessions
from ..completion.prefixes import RUN, SESSION, Kind, whole_id
from ..screen import flat
from ..tables import Column, TableCell, print_list, prose, short_ids, state, when

LEFT = 130
"""The exit code after Ctrl-C, as in shells."""


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Include the demo models if a real provider lists a model.")
@json_option
@calls_api
async def models(api: Api, is_all: bool, as_json: bool) -> None:
    """List the available models."""
    answer = await api.call("GET", "/api/models", query={"all": "true"} if is_all else {})
    listed = [{**model, "default": model["id"] == answer["default"]} for model in answer["models"]]
    columns = (
        Column("model", "id"),
        Column("default", lambda model: TableCell("default" if model["default"] else "", "green")),
        Column("demo", lambda model: TableCell("demo" if model["demo"] else "", "dim")),
    )
    print_list(columns, listed, as_json, empty="No models. `holdfast doctor` finds out why.")


@click.group()
def runs() -> None:
    """List, show, follow, fork and stop runs."""


def _text_of(run: Object) -> TableCell:
    return prose(run["text"], " · ".join(filter(None, (show.why(run), run["question"]))))


RUN_COLUMNS = (
    Column("run", "id", is_id=True),
    Column("state", lambda run: state(show.state_of(run))),
    Column("started", lambda run: when(run["created_at"])),
    Column("model", can_wait=True),
    Column("text", _text_of, is_text=True, can_wait=True),
    Column("reason", show.why, is_text=True, is_piped=True),
    Column("question", is_text=True, is_piped=True),
    Column("chat", "session_title", is_text=True, is_piped=True),
)


@runs.command("ls")
@click.option("--status", type=click.Choice(["queued", "running", "settled"]), help="Only runs with this status.")
@click.option(
    "--outcome",
    type=click.Choice(["completed", "truncated", "stopped", "failed", "interrupted"]),
    help="Only runs that ended so.",
)
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=20, help="Maximum number of runs (20).")
@json_option
@calls_api
async def runs_ls(api: Api, limit: int, as_json: bool, **wanted: str | None) -> None:
    """List the latest runs with their outcome."""
    query: Params = {"limit": limit, **{name: value for name, value in wanted.items() if value}}
    listed = (await api.call("GET", "/api/runs", query=query))["runs"]
    empty = "No runs yet. Runs in chats and in the background are listed here."
    print_list(RUN_COLUMNS, listed, as_json, empty=empty)


@runs.command("show")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@calls_api
async def runs_show(api: Api, run_id: str) -> None:
    """Print a run as JSON."""
    sys.stdout.write(show.as_json(await _get(api, RUN, run_id)))


async def _get(api: Api, kind: Kind, given: str, query: str = "") -> Object:
    return await api.call("GET", f"{kind.path}/{await whole_id(api, kind, given)}{query}")


@runs.command("tail")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@calls_api
async def runs_tail(api: Api, run_id: str) -> int:
    """Print a run's output from its start to its end. Ctrl-C leaves; the run continues."""
    return await _followed(api, await _get(api, RUN, run_id), f"Stop it with: holdfast runs stop {run_id}")


async def _followed(api: Api, run: Object, hint: str, *, silent: bool = False) -> int:
    """Print a run's output to its end, and return the exit code. Ctrl-C leaves the run with a hint."""
    following = asyncio.current_task()
    assert following is not None
    with contextlib.suppress(NotImplementedError):  # not on Windows; needed for Ctrl-C in background jobs
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, following.cancel)
    try:
        settled = await follow(api, run, silent=silent)
    except asyncio.CancelledError:
        show.note(f"\nThe run continues. {hint}")
        return LEFT
    return EXIT[settled["outcome"]]


@runs.command("stop")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@calls_api
async def runs_stop(api: Api, run_id: str) -> None:
    """Stop a run. Its partial response is saved."""
    run = await api.call("POST", f"/api/runs/{await whole_id(api, RUN, run_id)}/stop")
    click.echo(flat(f"{run['id']} {show.state_of(run)} {show.why(run)}").rstrip())


@runs.command("fork")
@click.argument("run_id", metavar="RUN", shell_complete=complete_runs)
@click.option("--after", type=click.IntRange(0), help="The number of the event after which to go on (the last one).")
@click.option("--text", help="The text to begin with, in place of the one up to there.")
@click.option("-m", "--model", help="The model that goes on (that of the run).")
@json_option
@calls_api
async def runs_fork(api: Api, run_id: str, as_json: bool, **chosen: Any) -> int:
    """Answer again from a place in a run's log: the new response begins with what was said up to there."""
    body = {name: value for name, value in chosen.items() if value is not None}
    run = await api.call("POST", f"/api/runs/{await whole_id(api, RUN, run_id)}/fork", body)
    code = await _followed(api, run, "Find it with: holdfast runs ls", silent=as_json)
    if as_json and code != LEFT:
        sys.stdout.write(show.as_json(await api.call("GET", f"/api/runs/{run['id']}")))
    return code


@click.group()
def sessions() -> None:
    """List, file, export, import and delete chats (sessions)."""


def _with_place(session: Object) -> TableCell:
    """Return a session's title; for a person with where it is filed."""
    parts = (session["folder"], *(f"#{tag}" for tag in session["tags"]), "archived" if session["archived"] else "")
    place = " ".join(filter(None, parts))
    return prose(session["title"], f"{session['title']} · {place}" if place else "")


SESSION_COLUMNS = (
    Column("session", "id", is_id=True),
    Column("changed", lambda session: when(session["updated_at"])),
    Column("title", _with_place, is_text=True, can_wait=True),
    Column("state", lambda session: state("running" if session["active_run"] else ""), can_wait=True),
    Column("folder", is_text=True, is_piped=True),
    Column("tags", lambda session: ",".join(session["tags"]), is_text=True, is_piped=True),
    Column("archived", lambda session: "archived" if session["archived"] else "", is_piped=True),
)


@sessions.command("ls")
@click.option("-q", "--query", default="", help="Only sessions with these words in titles or messages.")
@click.option("--folder", help="Only sessions in this folder; an empty name for those in none.")
@click.option("--tag", help="Only sessions with this tag.")
@click.option("--archived", is_flag=True, help="Only archived sessions.")
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=20, help="Maximum number of sessions (20).")
@json_option
@calls_api
async def sessions_ls(
    api: Api, query: str, folder: str | None, tag: str | None, archived: bool, limit: int, as_json: bool
) -> None:
    """List the latest sessions, or search them."""
    filters = {"folder": folder, "tag": tag, "archived": "true" if archived else None}
    wanted: Params = {name: value for name, value in filters.items() if value is not None}
    page = await api.call("GET", "/api/sessions", query={"query": query, "limit": limit, **wanted})
    listed = page["sessions"]
    empty = "No sessions found." if query or wanted else "No sessions yet. Start one with: holdfast chat"
    print_list(SESSION_COLUMNS, listed, as_json, empty=empty)


_AT_ONCE = 200


@sessions.command("file")
@click.argument("session_ids", nargs=-1, required=True, metavar="SESSION...", shell_complete=complete_sessions)
@click.option("--folder", help="Move them to this folder; an empty name takes them out of their folders.")
@click.option("--tag", "add_tags", multiple=True, help="Add a tag. Can be repeated.")
@click.option("--untag", "remove_tags", multiple=True, help="Remove a tag. Can be repeated.")
@click.option("--archive/--unarchive", "archived", default=None, help="Put them into the archive, or take them out.")
@calls_api
async def sessions_file(api: Api, session_ids: tuple[str, ...], **given: Any) -> None:
    """Move sessions to a folder, tag them, archive them."""
    change = {name: value for name, value in given.items() if value not in (None, ())}
    if not change:
        raise click.UsageError("Say how: --folder, --tag, --untag, --archive or --unarchive.")
    ids = list(dict.fromkeys([await whole_id(api, SESSION, each) for each in session_ids]))
    for start in range(0, len(ids), _AT_ONCE):
        filed = await api.call("POST", "/api/sessions/file", {"sessions": ids[start : start + _AT_ONCE], **change})
        for id in filed["filed"]:
            click.echo(f"{id} filed")
        for id in filed["missing"]:
            show.note(f"{id} does not exist any more.")


LABEL_COLUMNS = (Column("kind"), Column("name", is_text=True), Column("sessions"))


@sessions.command("labels")
@json_option
@calls_api
async def sessions_labels(api: Api, as_json: bool) -> None:
    """List folders and tags with their numbers of sessions."""
    labels: Object = await api.call("GET", "/api/labels")
    listed = [{"kind": "folder", **each} for each in labels["folders"]]
    listed += [{"kind": "tag", **each} for each in labels["tags"]]
    if labels["archived"]:
        listed.append({"kind": "archive", "name": "", "sessions": labels["archived"]})
    empty = "No folders and no tags. Make one with: holdfast sessions file SESSION --folder NAME"
    print_list(LABEL_COLUMNS, listed, as_json, json=labels, empty=empty)


SEARCH_HEADER = ("session", "message", "title", "updated_at", "excerpt")


@sessions.command("search")
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
        for row in (SEARCH_HEADER, *map(_for_a_program, found)):
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


@sessions.command("export")
@click.argument("session_id", metavar="SESSION", shell_complete=complete_sessions)
@click.option("--format", "form", type=click.Choice(["json", "markdown"]), default="json", help="Output format (json).")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=pathlib.Path), help="Output file (standard output)."
)
@calls_api
async def sessions_export(api: Api, session_id: str, form: str, output: pathlib.Path | None) -> None:
    """Export a session as JSON, which can be imported again, or as Markdown."""
    session = await _get(api, SESSION, session_id, "?files=inline")
    write_text(markdown(session) if form == "markdown" else show.as_json(session), output)


def markdown(session: Object) -> str:
    """Return a session as Markdown."""
    parts = [f"# {session['title'] or 'Session'}\n"]
    for message in as_read(session["messages"]):
        marks = [message["outcome"] if message["partial"] else "", "edited" if "edited" in message else ""]
        ending = "".join(f"\n\n*({mark})*" for mark in marks if mark)
        parts.append(f"## {message['role']}\n\n{text_of(message['content'])}{ending}\n")
    return "\n".join(parts)


@sessions.command("import")
@click.argument("file", type=click.File("rb"))
@calls_api
async def sessions_import(api: Api, file: IO[bytes]) -> None:
    """Import a session that was exported as JSON."""
    exported = read_json(file)
    if not isinstance(exported, dict) or not isinstance(exported.get("messages"), list):
        raise click.ClickException("Not an exported session: it has no messages.")
    session = await api.call("POST", "/api/sessions/import", exported)
    click.echo(flat(f"{session['id']}  {session['title']}"))


@sessions.command("rm")
@click.argument("session_ids", nargs=-1, required=True, metavar="SESSION...", shell_complete=complete_sessions)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@calls_api
async def sessions_rm(api: Api, session_ids: tuple[str, ...], yes: bool) -> None:
    """Delete sessions with their messages and runs. Active runs are stopped."""
    ids = [await whole_id(api, SESSION, each) for each in session_ids]
    if not yes:
        names = "this session" if len(ids) == 1 else f"these {len(ids)} sessions"
        click.confirm("\n".join([*ids, f"Permanently delete {names}?"]), abort=True)
    for session_id in dict.fromkeys(ids):
        await api.call("DELETE", f"/api/sessions/{session_id}")
        click.echo(f"{session_id} deleted")
