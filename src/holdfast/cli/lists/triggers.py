"""`holdfast triggers`: runs that start when another system calls an address."""

from __future__ import annotations

import sys
from typing import Any

import click

from .. import show
from ..client import Api, Object, calls_api
from ..commands import json_option
from ..completion import complete_started
from ..screen import flat
from ..tables import Column, print_list, when
from .schedules import asked_body, asked_options, found_by_name, removed

_WRITTEN = ("name", "prompt", "model", "kind", "preset", "session", "signed")
"""Fields of a trigger that its owner writes, besides whether it is paused."""


@click.group()
def triggers() -> None:
    """List, add, pause and remove triggers: runs that start when an address is called."""


_COLUMNS = (
    Column("trigger", "id", is_id=True),
    Column("name", is_text=True),
    Column("called", lambda each: when(each["last"]["at"] if each["last"] else None)),
    Column("state", lambda each: " ".join(word for word in ("paused", "signed") if each[word]), can_wait=True),
    Column("model", can_wait=True),
    Column("prompt", is_text=True, can_wait=True),
)


@triggers.command("ls")
@json_option
@calls_api
async def triggers_ls(api: Api, as_json: bool) -> None:
    """List your triggers, each with its last call."""
    listed = (await api.call("GET", "/api/triggers"))["triggers"]
    empty = 'No triggers. Add one with: holdfast triggers add NAME "Sort this: {{body}}"'
    print_list(_COLUMNS, listed, as_json, empty=empty)


@triggers.command("show")
@click.argument("name", shell_complete=complete_started("triggers"))
@calls_api
async def triggers_show(api: Api, name: str) -> None:
    """Print a trigger with its last calls as JSON. Its secret is not shown again."""
    sys.stdout.write(show.as_json(await _call(api, name, "GET")))


async def _call(api: Api, name: str, method: str, path: str = "") -> Object:
    return await api.call(method, f"/api/triggers/{(await found_by_name(api, 'triggers', name))['id']}{path}")


@triggers.command("add")
@asked_options
@click.option("--signed", is_flag=True, help="Calls are signed with the secret, which is then not in the address.")
@calls_api
async def triggers_add(api: Api, **what: Any) -> None:
    """Add a trigger. PROMPT (or standard input) is a template; its address and secret are printed once."""
    _print_once(await api.call("POST", "/api/triggers", await asked_body(api, **what)), "Added")


def _print_once(made: Object, done: str) -> None:
    """Print the address, and the secret of signatures. Nothing else goes to standard output, for scripts."""
    show.note(flat(f"{done} {made['name']}. This is shown once: keep it."))
    click.echo(made["path"])
    if made["signed"]:
        click.echo(made["secret"])


@triggers.command("rotate")
@click.argument("name", shell_complete=complete_started("triggers"))
@calls_api
async def triggers_rotate(api: Api, name: str) -> None:
    """Replace the secret of a trigger. The old one ends at once."""
    _print_once(await _call(api, name, "POST", "/rotate"), "New secret for")


@triggers.command("pause")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_started("triggers"))
@calls_api
async def triggers_pause(api: Api, names: tuple[str, ...]) -> None:
    """Let calls of these triggers start nothing until they are resumed."""
    await _set_paused(api, names, is_paused=True)


@triggers.command("resume")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_started("triggers"))
@calls_api
async def triggers_resume(api: Api, names: tuple[str, ...]) -> None:
    """Let calls start runs again."""
    await _set_paused(api, names, is_paused=False)


async def _set_paused(api: Api, names: tuple[str, ...], *, is_paused: bool) -> None:
    for name in names:
        found = await found_by_name(api, "triggers", name)
        body = {field: found[field] for field in _WRITTEN}
        await api.call("PUT", f"/api/triggers/{found['id']}", {**body, "paused": is_paused})
        click.echo(flat(f"{'Paused' if is_paused else 'Resumed'} {found['name']}."))


@triggers.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=complete_started("triggers"))
@calls_api
async def triggers_rm(api: Api, names: tuple[str, ...]) -> None:
    """Remove triggers. Their addresses answer no more; their chats stay."""
    await removed(api, "triggers", names)
