"""`holdfast key`: API keys for the server."""

from __future__ import annotations

import datetime
import time
from typing import Any

import click

from ...access import KEY_SCOPES
from ...server.features.accounts.made_keys import NewKey, check_key_name, new_key
from ...server.features.accounts.people.accounts import Accounts
from ...server.features.audit.audit import AuditNote
from ...store import KeyDetails, KeyRecord, Store
from .. import show
from ..commands import json_option
from ..tables import Column, print_list, when
from .beside import audited, beside, person
from .budgets import key_budget
from .folder import folder_options, settings_of


@click.group()
def key() -> None:
    """Create, list and revoke API keys for the server. Each key has its own sessions."""


async def _in_force(store: Store) -> list[KeyRecord]:
    return [key for key in await store.list_keys() if key.revoked_at is None]


@key.command("new")
@click.argument("name")
@click.option("--admin", is_flag=True, help="Add the scope admin: it may change settings.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(sorted(KEY_SCOPES)),
    help="What it is for. Default: all but admin.",
)
@click.option("--model", "models", multiple=True, help="A model that it may use, or a pattern such as openai/*.")
@click.option("--agent", "agents", multiple=True, help="An agent that it may use, or a pattern.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="Days after which it expires.")
@click.option("--user", help="Make it a key of this person's account.")
@click.option("--owner", default="", help="Make it one more key of this service, by the owner in `holdfast key ls`.")
@folder_options
def key_new(
    name: str,
    admin: bool,
    scopes: tuple[str, ...],
    models: tuple[str, ...],
    agents: tuple[str, ...],
    days: float | None,
    user: str | None,
    owner: str,
    **where: Any,
) -> None:
    """Create a key and print it once. It works within a second. After the first key, every client needs one."""
    settings = settings_of(**where)
    details = KeyDetails(
        scopes=(*scopes, "admin") if scopes and admin else scopes or None,
        models=models or None,
        agents=agents or None,
        expires_at=None if days is None else time.time() + days * 86400,
        made_by="command line",
    )

    async def make(store: Store, note: AuditNote) -> NewKey:
        if user is None:
            check_key_name(name, settings)
            if owner and await store.account_of(owner) != "":
                raise click.ClickException(f"No service {owner!r}. See `holdfast key ls`.")
            made = new_key(name, admin=admin or "admin" in scopes, owner=owner, details=details)
        else:
            account = await person(store, user)
            made = new_key(name, owner=account.body.owner, account=account.id, details=details)
        note.target, note.details = made.record.id, {"owner": made.record.owner}
        await store.add_key(made.record)
        return made

    made = audited(settings, "key.new", make)
    click.echo(made.key)
    show.note("Save this key: it cannot be shown again. Clients send it as Authorization: Bearer …")
    show.note("The command line sends the key in HOLDFAST_CLIENT_KEY.")


@key.command("ls")
@json_option
@folder_options
def key_ls(as_json: bool, **where: Any) -> None:
    """List the active keys."""
    keys = beside(settings_of(**where), _in_force)
    listed = [
        {
            "id": key.id,
            "name": key.name,
            "owner": key.owner,
            "created_at": iso(key.created_at),
            "expires_at": None if key.details.expires_at is None else iso(key.details.expires_at),
            "last_used_at": None if key.last_used_at is None else iso(key.last_used_at),
            "admin": key.admin,
            "scopes": key.details.scopes,
        }
        for key in keys
    ]
    columns = (
        Column("name"),
        Column("owner"),
        Column("created", lambda key: when(key["created_at"])),
        Column("expires", lambda key: when(key["expires_at"])),
        Column("rights", _rights),
        Column("id"),
    )
    print_list(columns, listed, as_json, empty="No keys. Create one with: holdfast key new NAME")


def _rights(key: dict[str, Any]) -> str:
    return ", ".join(key["scopes"]) if key["scopes"] is not None else "admin" if key["admin"] else ""


@key.command("revoke")
@click.argument("name")
@folder_options
def key_revoke(name: str, **where: Any) -> None:
    """Revoke a key by its name or id. It stops working within a second, and its open requests end."""
    settings = settings_of(**where)

    async def revoke(store: Store, note: AuditNote) -> bool:
        found = [key for key in await _in_force(store) if name in (key.name, key.id)]
        if len(found) > 1:
            raise click.ClickException(f"Several people have a key {name!r}. Name its id: see `holdfast key ls`.")
        if not found:
            raise click.ClickException(f"No key {name!r}. See `holdfast key ls`.")
        note.target, note.details = found[0].id, {"owner": found[0].owner}
        await store.revoke_key(found[0].id, time.time())
        return not await _in_force(store) and not await Accounts(store).exist()

    was_last = audited(settings, "key.revoke", revoke)
    click.echo(f"Revoked {name}.")
    if was_last and not settings.keys and not settings.api_key:
        show.note(
            "Warning: that was the last key. The running server now refuses every client. A server that is started "
            "without keys accepts everyone on this machine. Create a key with: holdfast key new NAME",
            "yellow",
        )


key.add_command(key_budget)


def iso(seconds: float) -> str:
    """Return a time as text."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
