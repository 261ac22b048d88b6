"""`holdfast user budget` and `holdfast key budget`: limits on the usage of a person or a key."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
from msgspec.structs import asdict, replace

from ...access import NO_BUDGET, Budget
from ...server.features.accounts.people.accounts import Account
from ...server.features.accounts.people.people import People
from ...server.features.audit.audit import AuditNote
from ...store import KeyRecord, Store
from .beside import audited, beside, person
from .folder import folder_options, settings_of

_OPTIONS = {
    "tokens_per_day": (int, "Tokens in and out, for a day of UTC."),
    "tokens_per_month": (int, "Tokens in and out, for a month of UTC."),
    "cost_per_day": (float, "Money for a day, in the currency of the settings."),
    "cost_per_month": (float, "Money for a month, in the currency of the settings."),
    "runs_at_once": (int, "Runs at once, on all nodes."),
    "requests_per_minute": (int, "Requests to models in a minute."),
    "bytes_stored": (int, "Bytes of messages and pictures."),
}


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a budget to a command."""
    command = click.option("--none", is_flag=True, help="Remove the budget.")(command)
    for name, (kind, text) in reversed(_OPTIONS.items()):
        bound = click.IntRange(0) if kind is int else click.FloatRange(0)
        command = click.option(f"--{name.replace('_', '-')}", name, type=bound, help=text)(command)
    return command


@click.command("budget")
@click.argument("name")
@budget_options
@folder_options
def user_budget(name: str, **options: Any) -> None:
    """Set the budget of a person, which replaces the earlier one. Without options, print it."""
    budget, where = _parted(options)

    async def present(store: Store) -> Budget:
        return (await person(store, name)).body.budget

    async def work(store: Store, note: AuditNote) -> Budget:
        def changed(account: Account) -> Account:
            return replace(account, budget=budget)

        note.target, note.details = (await person(store, name)).id, {"changed": "budget"}
        return (await People(store).change(note.target, changed)).body.budget

    settings = settings_of(**where)
    now = beside(settings, present) if budget is None else audited(settings, "person.change", work)
    click.echo(f"{name}: {_described(now)}")


@click.command("budget")
@click.argument("name")
@budget_options
@folder_options
def key_budget(name: str, **options: Any) -> None:
    """Set the budget of a key, by its name or id, for what starts from then on. Without options, print it."""
    budget, where = _parted(options)

    async def present(store: Store) -> Budget:
        return _named(await store.list_keys(), name).details.budget

    async def work(store: Store, note: AuditNote) -> Budget:
        key = _named(await store.list_keys(), name)
        note.target, note.details = key.id, {"changed": "budget"}
        await store.change_key(key.id, lambda details: replace(details, budget=budget))
        return budget or NO_BUDGET

    settings = settings_of(**where)
    now = beside(settings, present) if budget is None else audited(settings, "key.change", work)
    click.echo(f"{name}: {_described(now)}")


def _named(keys: Any, name: str) -> KeyRecord:
    now = time.time()
    in_force = [key for key in keys if key.revoked_at is None and (key.details.expires_at or now) >= now]
    found: list[KeyRecord] = [key for key in in_force if name in (key.name, key.id)]
    if len(found) > 1:
        raise click.ClickException(f"Several people have a key {name!r}. Name its id: see `holdfast key ls`.")
    if not found:
        raise click.ClickException(f"No key {name!r}. See `holdfast key ls`.")
    return found[0]


def _parted(options: dict[str, Any]) -> tuple[Budget | None, dict[str, Any]]:
    """Return the budget of the options, None if they have none, and the other options."""
    budget, removes = Budget(**{name: options.pop(name) for name in _OPTIONS}), options.pop("none")
    if removes and budget != NO_BUDGET:
        raise click.UsageError("--none removes the budget: leave out the other limits.")
    return budget if removes or budget != NO_BUDGET else None, options


def _described(budget: Budget) -> str:
    limits = {name: value for name, value in asdict(budget).items() if value is not None}
    return ", ".join(f"{name.replace('_', ' ')} {value:.15g}" for name, value in limits.items()) or "no budget"
