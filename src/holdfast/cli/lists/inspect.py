"""`holdfast models`, `runs` and `sessions`: list, show, follow, stop, export and delete."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import sys
from typing import IO, Any

import click

from ...history import text_of
from .. import show
from ..chat.as_read import as_read
from ..chat.talk import EXIT, follow
from ..client import Api, Object, Params, calls_api, connect
from ..commands import json_option, one_line_errors, read_json, settings_options, write_text
from ..completion import complete_runs, complete_sessions
from ..completion.prefixes import RUN, SESSION, Kind, whole_id
from ..screen import flat
from ..tables import Column, TableCell, print_list, prose, short_ids, state, when
from .filing import sessions_file, sessions_labels
from .search import search_sessions

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
    if not listed:
        show.note("No models. `holdfast doctor` finds out why.")
    rows = [
        (
            model["id"],
            TableCell("default" if model["default"] else "", "green"),
            TableCell("demo" if model["demo"] else "", "dim"),
        )
        for model in listed
    ]
    print_list((Column("model"), Column("default"), Column("demo")), rows, json=listed if as_json else None)


@click.group()
def runs() -> None:
    """List, show, follow, fork and stop runs."""


RUN_COLUMNS = (
    Column("run"),
    Column("state"),
    Column("started"),
    Column("model", can_wait=True),
    Column("text", is_text=True, can_wait=True),
    Column("reason", is_piped=True),
    Column("question", is_piped=True),
    Column("chat", is_piped=True),
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
    if not listed:
        show.note("No runs yet. Runs in chats and in the background are listed here.")
    rows = [
        (
            id,
            state(show.state_of(run)),
            when(run["created_at"]),
            run["model"],
            prose(run["text"], " · ".join(filter(None, (show.why(run), run["question"])))),
            prose(show.why(run)),
            prose(run["question"]),
            prose(run["session_title"] or ""),
        )
        for run, id in zip(listed, short_ids([run["id"] for run in listed]), strict=True)
    ]
    print_list(RUN_COLUMNS, rows, json=listed if as_json else None)


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
@settings_options
@one_line_errors
def runs_tail(run_id: str, **where: Any) -> None:
    """Print a run's output from its start to its end. Ctrl-C leaves; the run continues."""
    try:
        sys.exit(asyncio.run(_runs_tail(run_id, **where)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        show.note(f"\nThe run continues. Stop it with: holdfast runs stop {run_id}")
        sys.exit(LEFT)


async def _runs_tail(run_id: str, **where: Any) -> int:
    following = asyncio.current_task()
    assert following is not None
    with contextlib.suppress(NotImplementedError):  # not on Windows; needed for Ctrl-C in background jobs
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, following.cancel)
    async with connect(**where) as api:
        settled = await follow(api, await _get(api, RUN, run_id))
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
@settings_options
@one_line_errors
def runs_fork(run_id: str, **what: Any) -> None:
    """Answer again from a place in a run's log: the new response begins with what was said up to there."""
    try:
        sys.exit(asyncio.run(_runs_fork(run_id, **what)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        show.note("\nThe run continues. Find it with: holdfast runs ls")
        sys.exit(LEFT)


async def _runs_fork(
    run_id: str, after: int | None, text: str | None, model: str | None, as_json: bool, **where: Any
) -> int:
    chosen = {"after": after, "text": text, "model": model}
    body = {name: value for name, value in chosen.items() if value is not None}
    async with connect(**where) as api:
        run = await api.call("POST", f"/api/runs/{await whole_id(api, RUN, run_id)}/fork", body)
        settled = await follow(api, run, silent=as_json)
        if as_json:
            sys.stdout.write(show.as_json(await api.call("GET", f"/api/runs/{run['id']}")))
    return EXIT[settled["outcome"]]


@click.group()
def sessions() -> None:
    """List, file, export, import and delete sessions."""


SESSION_COLUMNS = (
    Column("session"),
    Column("changed"),
    Column("title", is_text=True, can_wait=True),
    Column("state", can_wait=True),
    Column("folder", is_piped=True),
    Column("tags", is_piped=True),
    Column("archived", is_piped=True),
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
    if not listed:
        show.note("No sessions found." if query or wanted else "No sessions yet. Start one with: holdfast chat")
    rows = [
        (
            id,
            when(session["updated_at"]),
            prose(session["title"], _with_place(session)),
            state("running" if session["active_run"] else ""),
            prose(session["folder"]),
            prose(",".join(session["tags"])),
            "archived" if session["archived"] else "",
        )
        for session, id in zip(listed, short_ids([session["id"] for session in listed]), strict=True)
    ]
    print_list(SESSION_COLUMNS, rows, json=listed if as_json else None)


def _with_place(session: Object) -> str:
    """Return a session's title and where it is filed, for a person; empty if it is filed nowhere."""
    parts = (session["folder"], *(f"#{tag}" for tag in session["tags"]), "archived" if session["archived"] else "")
    place = " ".join(filter(None, parts))
    return f"{session['title']} · {place}" if place else ""


sessions.add_command(search_sessions)
sessions.add_command(sessions_file)
sessions.add_command(sessions_labels)


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
