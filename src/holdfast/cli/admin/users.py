"""`holdfast user`: accounts of the people who use the server."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from ...access import LOCAL
from ...server.config.settings import Settings
from ...server.features.accounts.factors.second_factors import reset_factors
from ...server.features.accounts.people.accounts import Account
from ...server.features.accounts.people.people import People
from ...server.features.audit.audit import AuditNote
from ...server.features.data.archive import Archive
from ...server.features.data.bringing_in import BroughtIn, Importing
from ...store import Store
from ...store.documents import Stored
from .. import show
from ..client import local_url
from ..commands import json_option, whole_file
from ..tables import Column, print_list, when
from .beside import audited, beside, person
from .budgets import user_budget
from .folder import folder_options, settings_of
from .keys import iso

ROLES = click.Choice(["guest", "member", "admin"])


@click.group()
def user() -> None:
    """Create, list and change accounts. After the first one, everyone signs in."""


@user.command("new")
@click.argument("name")
@click.option("--email", default="", help="An e-mail address, which can be used to sign in too.")
@click.option("--role", type=ROLES, default="member", show_default=True, help="The first account is always an admin.")
@click.option(
    "--owner", default="", help="Take over what an owner has: sessions, runs and keys. See `holdfast key ls`."
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@folder_options
def user_new(name: str, email: str, role: str, owner: str, password_stdin: bool, **where: Any) -> None:
    """Create an account. Without --password-stdin, print a link to set the password."""
    settings = settings_of(**where)
    password = sys.stdin.readline().rstrip("\n") if password_stdin else ""

    async def make(store: Store, note: AuditNote) -> tuple[Stored[Account], str]:
        people = People(store)
        is_first = not await people.accounts.exist()
        account = Account(
            name=name,
            email=email,
            role="admin" if is_first else role,  # type: ignore[arg-type]
            owner=owner or (LOCAL if is_first else ""),
        )
        added = await people.add(account, password)
        note.target, note.details = added.id, {"role": added.body.role}
        return added, "" if password else await people.secrets.make("password", added.id)

    added, token = audited(settings, "person.new", make)
    click.echo(f"Created {added.body.name} ({added.body.role}).")
    if token:
        _print_link(settings, token)


@user.command("ls")
@json_option
@folder_options
def user_ls(as_json: bool, **where: Any) -> None:
    """List the accounts, the newest first."""

    async def all_of(store: Store) -> list[Stored[Account]]:
        accounts, found, before = People(store).accounts, [], None
        while page := await accounts.page(before=before, limit=200):
            found += page
            before = page[-1].id
        return found

    people = beside(settings_of(**where), all_of)
    columns = (
        Column("name", lambda it: it.body.name),
        Column("e-mail", lambda it: it.body.email),
        Column("role", lambda it: f"{it.body.role}, disabled" if it.body.is_disabled else it.body.role),
        Column("created", lambda it: when(iso(it.created_at))),
        Column("last sign-in", lambda it: when(iso(it.body.signed_in_at) if it.body.signed_in_at else None)),
    )
    listed = [
        {
            "id": it.id,
            "name": it.body.name,
            "email": it.body.email,
            "role": it.body.role,
            "disabled": it.body.is_disabled,
            "created_at": iso(it.created_at),
        }
        for it in people
    ]
    print_list(columns, people, as_json, json=listed, empty="No accounts. Create one with: holdfast user new NAME")


@user.command("reset")
@click.argument("name")
@folder_options
def user_reset(name: str, **where: Any) -> None:
    """Print a link to set a new password. It works once, within a day."""
    settings = settings_of(**where)

    async def make(store: Store, note: AuditNote) -> str:
        account, people = await person(store, name), People(store)
        note.target = account.id
        await people.secrets.forget(account.id)
        return await people.secrets.make("password", account.id)

    _print_link(settings, audited(settings, "person.reset_link", make))


@user.command("reset-factor")
@click.argument("name")
@folder_options
def user_reset_factor(name: str, **where: Any) -> None:
    """Remove the second factor and the passkeys of a person who has lost them. The password stays."""

    async def work(store: Store, note: AuditNote) -> None:
        note.target = (await person(store, name)).id
        await reset_factors(People(store), note.target)

    audited(settings_of(**where), "second_factor.reset", work)
    click.echo(f"{name} has no second factor and no passkeys now.")


@user.command("role")
@click.argument("name")
@click.argument("role", type=ROLES)
@folder_options
def user_role(name: str, role: str, **where: Any) -> None:
    """Change the role of a person. It takes effect within a second."""
    _change(settings_of(**where), name, {"role": role})
    click.echo(f"{name} is {role} now.")


@user.command("disable")
@click.argument("name")
@folder_options
def user_disable(name: str, **where: Any) -> None:
    """Disable an account: its sign-ins and open requests end within a second. Nothing of it is deleted."""
    _change(settings_of(**where), name, {"is_disabled": True})
    click.echo(f"Disabled {name}.")


@user.command("enable")
@click.argument("name")
@folder_options
def user_enable(name: str, **where: Any) -> None:
    """Enable an account again."""
    _change(settings_of(**where), name, {"is_disabled": False})
    click.echo(f"Enabled {name}.")


@user.command("export")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@folder_options
def user_export(name: str, file: Path, **where: Any) -> None:
    """Write all data of a person to a ZIP archive: chats, pictures, runs, and more."""

    async def work(store: Store, note: AuditNote) -> None:
        account = await person(store, name)
        note.target = account.id
        with whole_file(file, is_new=True) as output:
            async for piece in Archive(store, account.body.owner, account).pieces():
                output.write(piece)

    audited(settings_of(**where), "account.export", work)
    click.echo(f"Wrote {file}.")


@user.command("import")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be brought in, and what is wrong.")
@folder_options
def user_import(name: str, file: Path, dry_run: bool, **where: Any) -> None:
    """Import the chats and comparisons of an archive for a person, with new ids: all or nothing."""

    async def work(store: Store, note: AuditNote) -> BroughtIn:
        account = await person(store, name)
        note.target = account.id
        with open(file, "rb") as archive:  # noqa: ASYNC230
            return await Importing(archive, store, account.body.owner, time.time).bring_in(dry_run=dry_run)

    result = audited(settings_of(**where), "account.import", work)
    done = "Would import" if dry_run else "Imported"
    click.echo(f"{done} {result.sessions} chats and {result.comparisons} comparisons. Known: {result.known}.")
    if result.refused:
        show.note(f"Nothing would be imported: {result.refused} entries are not valid. {result.reason}", "yellow")


user.add_command(user_budget)


def _change(settings: Settings, name: str, changes: dict[str, Any]) -> None:
    async def work(store: Store, note: AuditNote) -> None:
        note.target = (await person(store, name)).id
        note.details = {field: str(value) for field, value in changes.items()}
        await People(store).change(note.target, lambda account: replace(account, **changes))

    audited(settings, "person.change", work)


def _print_link(settings: Settings, token: str) -> None:
    base = settings.public_url.rstrip("/") or local_url(settings)
    click.echo(f"{base}/reset#{token}")
    show.note("Whoever opens this link sets the password. It works once, for a day.")
