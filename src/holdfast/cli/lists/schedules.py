"""`holdfast schedules`: runs that start at a time."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from .. import show
from ..client import Api, CallFailed, Object, calls_api
from ..commands import json_option
from ..completion import complete_models, complete_presets, complete_sessions, complete_started
from ..completion.prefixes import SESSION, whole_id
from ..screen import flat
from ..tables import Column, print_list, state

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def asked_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of what a schedule or a trigger asks, and where."""
    for option in (
        click.argument("name"),
        click.argument("prompt", required=False),
        click.option("-m", "--model", shell_complete=complete_models, help="Model or agent. Default: the server's."),
        click.option("-p", "--preset", shell_complete=complete_presets, help="Preset that sets up each new chat."),
        click.option(
            "-s", "--session", shell_complete=complete_sessions, help="Have all runs in this chat, not in new ones."
        ),
        click.option("--paused", is_flag=True, help="Start nothing until it is resumed."),
    )[::-1]:
        command = option(command)
    return command


async def asked_body(api: Api, name: str, prompt: str | None, session: str | None, **rest: Any) -> Object:
    """Return what a schedule or a trigger asks. The prompt may come from standard input."""
    if prompt is None:
        prompt = "" if sys.stdin.isatty() else sys.stdin.read().strip()
    if not prompt:
        raise click.UsageError("No prompt given. It is the second argument, or standard input.")
    session = None if session is None else await whole_id(api, SESSION, session)
    return {"name": name, "prompt": prompt, "session": session, **rest}


async def found_by_name(api: Api, kind: str, name: str) -> Object:
    """Return the schedule or the trigger with a name, an id or the beginning of one."""
    listed: list[Object] = (await api.call("GET", f"/api/{kind}"))[kind]
    folded = name.casefold()
    found = [each for each in listed if name == each["id"]]
    found = found or [each for each in listed if each["name"].casefold() == folded]
    found = found or [each for each in listed if len(name) > 4 and each["id"].startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CallFailed(f"No {kind[:-1]} {name!r}. See `holdfast {kind} ls`.", f"{kind[:-1]}_not_found", 404)
    ids = ", ".join(each["id"] for each in found)
    raise CallFailed(f"{name!r} is the name of {len(found)} {kind}. Give the id: {ids}.", "ambiguous_id")


async def removed(api: Api, kind: str, names: Sequence[str]) -> None:
    """Remove schedules or triggers, and say so."""
    for name in names:
        found = await found_by_name(api, kind, name)
        await api.call("DELETE", f"/api/{kind}/{found['id']}")
        click.echo(flat(f"Removed {found['name']}."))


def when_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say when, of which the command gets `when`."""

    @functools.wraps(command)
    def timed(cron: str | None, every: str | None, at: str | None, zone: str | None, **what: Any) -> Any:
        return command(when=_when(cron, every, at, zone), **what)

    for option in (
        click.option("--cron", metavar="FIELDS", help='Cron expression, such as "0 9 * * 1-5".'),
        click.option("--every", metavar="TIME", help="Interval, such as 90s, 15m, 2h or 1d."),
        click.option("--at", metavar="DATE", help="Once, at a date and time such as 2027-01-31T18:00."),
        click.option("--zone", help="Time zone of --cron and --at. Default: that of this machine."),
    )[::-1]:
        timed = option(timed)
    return timed


def _when(cron: str | None, every: str | None, at: str | None, zone: str | None) -> Object:
    if sum(given is not None for given in (cron, every, at)) != 1:
        raise click.UsageError("Say when: --cron, --every or --at.")
    if every is not None:
        found = re.fullmatch(r"(\d{1,9}) ?([smhd]?)", every)
        if found is None:
            raise click.UsageError(f"--every {every!r} is no time such as 90s, 15m, 2h or 1d.")
        return {"kind": "every", "seconds": int(found[1]) * _UNITS[found[2] or "s"]}
    time_zone = zone or _own_zone()
    if cron is not None:
        return {"kind": "cron", "expression": cron, "time_zone": time_zone}
    return {"kind": "once", "at": at, "time_zone": time_zone}


def _own_zone() -> str:
    """Return the time zone of this machine by its IANA name; UTC if it has none."""
    if name := os.getenv("TZ", "").lstrip(":"):
        return name
    _, is_linked, name = str(pathlib.Path("/etc/localtime").resolve()).partition("/zoneinfo/")
    return name if is_linked else "UTC"


def _in_words(when: Object) -> str:
    if when["kind"] == "every":
        seconds = when["seconds"]
        unit = next(unit for unit in "dhms" if seconds % _UNITS[unit] == 0)
        return f"every {seconds // _UNITS[unit]}{unit}"
    return f"{when['expression' if when['kind'] == 'cron' else 'at']} {when['time_zone']}"


@click.group()
def schedules() -> None:
    """List, add, pause, run and remove schedules: runs that start at a time."""


def _then(schedule: Object) -> str:
    return "paused" if schedule["paused"] else f"next {schedule['next']['local']}" if schedule["next"] else "over"


def _became(one: Object) -> str:
    """Return what became of an occurrence: the state of its run, or why there is none."""
    run = one["run"]
    return str(one["state"] if run is None else run["outcome"] or run["status"])


_COLUMNS = (
    Column("schedule", "id", is_id=True),
    Column("name", is_text=True),
    Column("next", lambda each: _then(each).removeprefix("next ")),
    Column("last", lambda each: state(_became(each["last"]) if each["last"] else ""), can_wait=True),
    Column("when", lambda each: _in_words(each["when"]), can_wait=True),
    Column("model", can_wait=True),
    Column("prompt", is_text=True, can_wait=True),
)


@schedules.command("ls")
@json_option
@calls_api
async def schedules_ls(api: Api, as_json: bool) -> None:
    """List your schedules, each with its next time and what became of the last one."""
    listed = (await api.call("GET", "/api/schedules"))["schedules"]
    empty = 'No schedules. Add one with: holdfast schedules add NAME "PROMPT" --cron "0 9 * * *"'
    print_list(_COLUMNS, listed, as_json, empty=empty)


@schedules.command("show")
@click.argument("name", shell_complete=complete_started("schedules"))
@calls_api
async def schedules_show(api: Api, name: str) -> None:
    """Print a schedule as JSON."""
    sys.stdout.write(show.as_json(await found_by_name(api, "schedules", name)))


@schedules.command("next")
@when_options
@json_option
@calls_api
async def schedules_next(api: Api, when: Object, as_json: bool) -> None:
    """Print the next five times of a cron expression, an interval or a date, before you add it."""
    times = (await api.call("POST", "/api/schedule-preview", {"when": when}))["times"]
    print_list((Column("local"), Column("utc", "at")), times, as_json)


@schedules.command("add")
@asked_options
@when_options
@click.option(
    "--missed",
    type=click.Choice(["skip", "one", "all"]),
    default="one",
    help="What is done with times at which no server ran: none, one run for all (the default), or each.",
)
@calls_api
async def schedules_add(api: Api, when: Object, **what: Any) -> None:
    """Add a schedule that sends PROMPT (or standard input) to a model or an agent."""
    made = await api.call("POST", "/api/schedules", {**await asked_body(api, **what), "when": when})
    click.echo(flat(f"{made['name']}: {_then(made)}"))


@schedules.command("run")
@click.argument("name", shell_complete=complete_started("schedules"))
@calls_api
async def schedules_run(api: Api, name: str) -> None:
    """Start a run of a schedule now, paused or not."""
    found = await found_by_name(api, "schedules", name)
    one = await api.call("POST", f"/api/schedules/{found['id']}/run")
    click.echo(one["run"]["id"] if one["run"] else one["state"])


@schedules.command("pause")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_started("schedules"))
@calls_api
async def schedules_pause(api: Api, names: tuple[str, ...]) -> None:
    """Start nothing of these schedules until they are resumed."""
    await _each(api, names, "pause")


@schedules.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_started("schedules"))
@calls_api
async def schedules_resume(api: Api, names: tuple[str, ...]) -> None:
    """Go on with the next time. What fell into the pause is left out."""
    await _each(api, names, "resume")


async def _each(api: Api, names: tuple[str, ...], what: str) -> None:
    for name in names:
        found = await found_by_name(api, "schedules", name)
        after = await api.call("POST", f"/api/schedules/{found['id']}/{what}")
        click.echo(flat(f"{after['name']}: {_then(after)}"))


_OCCURRENCES = (
    Column("at"),
    Column("how"),
    Column("state", lambda one: state(_became(one))),
    Column("run", lambda one: one["run"] and one["run"]["id"]),
    Column("left_out", lambda one: one["others"] or "", can_wait=True),
    Column("why", lambda one: one["error"]["message"] if one["error"] else one["why"], is_text=True, can_wait=True),
)


@schedules.command("history")
@click.argument("name", shell_complete=complete_started("schedules"))
@json_option
@calls_api
async def schedules_history(api: Api, name: str, as_json: bool) -> None:
    """List the last times of a schedule, each with its run or why there is none."""
    found = await found_by_name(api, "schedules", name)
    listed = (await api.call("GET", f"/api/schedules/{found['id']}/history"))["occurrences"]
    print_list(_OCCURRENCES, listed, as_json)


@schedules.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_started("schedules"))
@calls_api
async def schedules_rm(api: Api, names: tuple[str, ...]) -> None:
    """Remove schedules. Their chats stay, and what runs goes on."""
    await removed(api, "schedules", names)
