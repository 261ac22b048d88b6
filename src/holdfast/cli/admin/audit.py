"""`holdfast audit`: export the audit log, and verify that nothing in it was changed or removed."""

from __future__ import annotations

import datetime
import sys
from typing import Any, BinaryIO

import click
import msgspec

from ...server.features.accounts.people.accounts import Accounts
from ...store import Store
from ...store.people.audit import AuditFilter, ChainCheck
from .beside import beside
from .folder import folder_options, settings_of

_PAGE = 500
TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])


@click.group()
def audit() -> None:
    """Export the audit log, and verify that nothing in it was changed or removed."""


@audit.command("export")
@click.option("--actor", help="Only what these people did: an id, or a part of a name or an e-mail address.")
@click.option("--action", help="Only this action, such as key.revoke, or all of one kind: key.")
@click.option("--since", type=TIME, metavar="DATE", help="Only entries since this time (UTC).")
@click.option("--until", type=TIME, metavar="DATE", help="Only before this time (UTC).")
@click.option("--after", type=int, default=0, help="Only entries with higher numbers: where the last export ended.")
@folder_options
def audit_export(
    actor: str | None,
    action: str | None,
    since: datetime.datetime | None,
    until: datetime.datetime | None,
    after: int,
    **where: Any,
) -> None:
    """Print the entries as JSON lines, the oldest first."""

    async def work(store: Store) -> None:
        actors = None if actor is None else await Accounts(store).ids_of(actor)
        filter = AuditFilter(actors=actors, action=action, since=_seconds(since), until=_seconds(until))
        await _print_lines(store, filter, after, sys.stdout.buffer)

    beside(settings_of(**where), work)


@audit.command("verify")
@click.option("--head", default="", metavar="NUMBER:DIGEST", help="An earlier head, which must still be in the log.")
@folder_options
def audit_verify(head: str, **where: Any) -> None:
    """Check that no entry was changed or removed. Print the head: keep it elsewhere to verify with it later."""

    async def work(store: Store) -> tuple[ChainCheck, str]:
        end, check, found = await store.audit_end(), ChainCheck(), not head
        while entries := await store.read_audit(AuditFilter(), after=check.last[0], limit=_PAGE):
            check.add(entry for entry in entries if entry.n <= end[0])
            found = found or any(f"{entry.n}:{entry.hash}" == head for entry in entries)
            if check.problem or entries[-1].n >= end[0]:
                break
        problem = check.end(end)
        return check, problem or ("" if found else f"The log no longer has the entry {head}.")

    check, problem = beside(settings_of(**where), work)
    if problem:
        raise click.ClickException(f"The audit log is not intact. {problem}")
    click.echo(f"The audit log is intact: {check.checked} entries. Head: {check.last[0]}:{check.last[1]}")


async def _print_lines(store: Store, filter: AuditFilter, after: int, output: BinaryIO) -> None:
    while entries := await store.read_audit(filter, after=after, limit=_PAGE):
        output.write(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
        after = entries[-1].n
    output.flush()


def _seconds(moment: datetime.datetime | None) -> float | None:
    return None if moment is None else moment.replace(tzinfo=datetime.UTC).timestamp()
