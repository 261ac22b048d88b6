"""`holdfast models`, `runs` and `sessions`: see what is there, follow it, stop it, take it along."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import signal
import sys
from typing import Any

import click
import msgspec

from . import show
from .client import Api, Object, Query, connect
from .commands import settings_options, telling
from .talk import EXIT, follow

LEFT = 130
"""What shells know as the exit code after Ctrl-C."""


@click.command()
@settings_options
@telling
def models(**where: Any) -> None:
    """List the models that can be asked."""
    asyncio.run(_models(**where))


async def _models(**where: Any) -> None:
    async with connect(**where) as api:
        listed = await api.call("GET", "/api/models")
    if not listed["models"]:
        show.err.print("No model is there. `holdfast doctor` says what to do.")
    for model in listed["models"]:
        default = "  (default)" if model["id"] == listed["default"] and show.is_terminal() else ""
        click.echo(model["id"] + default)


@click.group()
def runs() -> None:
    """See, follow and stop runs."""


@runs.command("ls")
@click.option("--status", type=click.Choice(["queued", "running", "settled"]), help="Only those.")
@click.option("-n", "limit", type=click.IntRange(1, 200), default=20, help="How many (20).")
@settings_options
@telling
def runs_ls(**what: Any) -> None:
    """List the latest runs: what runs, what stopped, what failed and why."""
    asyncio.run(_runs_ls(**what))


async def _runs_ls(status: str | None, limit: int, **where: Any) -> None:
    async with connect(**where) as api:
        query: Query = {"limit": limit, **({"status": status} if status else {})}
        listed = (await api.call("GET", "/api/runs", query=query))["runs"]
    if not listed:
        show.err.print("[dim]No runs are kept yet. Runs in sessions and in the background are.[/]")
    show.table(
        ("run", "state", "model", "started", "text", "why"),
        [
            (
                run["id"],
                show.word(show.state_of(run)),
                run["model"],
                show.ago(run["created_at"]),
                show.line(run["text"], 40),
                show.line(show.why(run), 50),
            )
            for run in listed
        ],
    )


@runs.command("show")
@click.argument("run_id")
@settings_options
@telling
def runs_show(run_id: str, **where: Any) -> None:
    """Print all about a run as JSON."""
    sys.stdout.write(_pretty(asyncio.run(_get(f"/api/runs/{run_id}", **where))))


async def _get(path: str, **where: Any) -> Object:
    async with connect(**where) as api:
        return await api.call("GET", path)


def _pretty(value: Object) -> str:
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


@runs.command("tail")
@click.argument("run_id")
@settings_options
@telling
def runs_tail(run_id: str, **where: Any) -> None:
    """Follow a run from its start to its end, wherever it was started. Ctrl-C only leaves: the run goes on."""
    try:
        sys.exit(asyncio.run(_runs_tail(run_id, **where)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        show.err.print(f"\n[dim]The run goes on. `holdfast runs stop {run_id}` stops it.[/]")
        sys.exit(LEFT)


async def _runs_tail(run_id: str, **where: Any) -> int:
    following = asyncio.current_task()
    assert following is not None
    with contextlib.suppress(NotImplementedError):  # Windows has no such handlers; a background job ignores Ctrl-C else
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, following.cancel)
    async with connect(**where) as api:
        settled = await follow(api, await api.call("GET", f"/api/runs/{run_id}"))
        return EXIT[settled["outcome"]]


@runs.command("stop")
@click.argument("run_id")
@settings_options
@telling
def runs_stop(run_id: str, **where: Any) -> None:
    """Stop a run. What it has said is kept."""
    asyncio.run(_runs_stop(run_id, **where))


async def _runs_stop(run_id: str, **where: Any) -> None:
    async with connect(**where) as api:
        run = await api.call("POST", f"/api/runs/{run_id}/stop")
    click.echo(f"{run['id']} {show.state_of(run)} {show.why(run)}".rstrip())


@click.group()
def sessions() -> None:
    """List, export, import and remove sessions."""


@sessions.command("ls")
@click.option("-q", "--query", default="", help="Words in titles and messages.")
@click.option("-n", "limit", type=click.IntRange(1, 200), default=20, help="How many (20).")
@settings_options
@telling
def sessions_ls(**what: Any) -> None:
    """List the latest sessions, or search them."""
    asyncio.run(_sessions_ls(**what))


async def _sessions_ls(query: str, limit: int, **where: Any) -> None:
    async with connect(**where) as api:
        listed = (await api.call("GET", "/api/sessions", query={"query": query, "limit": limit}))["sessions"]
    if not listed:
        show.err.print(f"[dim]{'Nothing found.' if query else 'No sessions yet. `holdfast chat` starts one.'}[/]")
    show.table(
        ("session", "title", "changed", ""),
        [
            (
                session["id"],
                show.line(session["title"], 60),
                show.ago(session["updated_at"]),
                show.word("running") if session["active_run"] else "",
            )
            for session in listed
        ],
    )


@sessions.command("export")
@click.argument("session_id")
@click.option("--format", "form", type=click.Choice(["json", "markdown"]), default="json", help="How (json).")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to (the terminal).")
@settings_options
@telling
def sessions_export(session_id: str, form: str, output: str | None, **where: Any) -> None:
    """Export a session as JSON, which can be imported again, or as Markdown."""
    session = asyncio.run(_get(f"/api/sessions/{session_id}", **where))
    text = markdown(session) if form == "markdown" else _pretty(session)
    if output is None:
        sys.stdout.write(text)
    else:
        pathlib.Path(output).write_text(text, encoding="utf-8")


def markdown(session: Object) -> str:
    """Return a session as a text that people read."""
    parts = [f"# {session['title'] or 'Session'}\n"]
    for message in session["messages"]:
        content = message["content"]
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content or ())
        ending = f"\n\n*({message['outcome']})*" if message["partial"] else ""
        parts.append(f"## {message['role']}\n\n{text}{ending}\n")
    return "\n".join(parts)


@sessions.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@settings_options
@telling
def sessions_import(file: str, **where: Any) -> None:
    """Import a session that was exported as JSON."""
    try:
        exported = msgspec.json.decode(pathlib.Path(file).read_bytes())
    except msgspec.DecodeError as error:
        raise click.ClickException(f"{file} is not JSON: {error}") from None
    asyncio.run(_sessions_import(exported, **where))


async def _sessions_import(exported: Any, **where: Any) -> None:
    async with connect(**where) as api:
        session = await api.call("POST", "/api/sessions/import", _importable(exported))
    click.echo(f"{session['id']}  {session['title']}")


def _importable(exported: Any) -> Object:
    if not isinstance(exported, dict) or not isinstance(exported.get("messages"), list):
        raise click.ClickException("This is no exported session: it has no messages.")
    fields = ("title", "model", "system", "params", "messages")
    return {field: exported[field] for field in fields if field in exported}


@sessions.command("rm")
@click.argument("session_ids", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@settings_options
@telling
def sessions_rm(session_ids: tuple[str, ...], yes: bool, **where: Any) -> None:
    """Delete sessions with everything in them, and stop their runs."""
    if not yes:
        click.confirm(f"Delete {len(session_ids)} session(s) for good?", abort=True)
    asyncio.run(_sessions_rm(session_ids, **where))


async def _sessions_rm(session_ids: tuple[str, ...], **where: Any) -> None:
    async with connect(**where) as api:
        for session_id in session_ids:
            await _remove(api, session_id)


async def _remove(api: Api, session_id: str) -> None:
    await api.call("DELETE", f"/api/sessions/{session_id}")
    click.echo(f"{session_id} deleted")
