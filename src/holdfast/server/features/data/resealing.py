"""Seals the secrets in the store again, after another key was put before the one that they are sealed with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from ....store import Store
from ....store.documents import Documents
from ...secrets.sealer import CannotUnseal, Sealer
from ..accounts.factors.second_factors import SecondFactors
from ..accounts.people.people import People
from ..agents import accounts
from ..notifications import people, push
from ..schedules import triggers


async def reseal_store(store: Store, sealer: Sealer) -> bool:
    """Seal every secret in the store with the key that seals now. Returns whether any was sealed with another."""
    kinds = {
        "mcp_account": (accounts.McpAccount, partial(_resealed, sealer, accounts.sealed_account)),
        "trigger_secret": (triggers.TriggerSecret, partial(_resealed, sealer, triggers.sealed_trigger)),
        "push_key": (push.PushKey, partial(_resealed, sealer, str)),
        "notified": (people.Notified, partial(_with_webhooks, sealer)),
    }
    is_changed = await SecondFactors(People(store), sealer).reseal()
    for kind, (body, resealed) in kinds.items():
        documents = Documents[Any](store, kind, body)
        for stored in [each async for each in documents.all()]:
            after = await documents.change_awaiting(stored.id, partial(resealed, stored.id))
            is_changed = is_changed or (after is not None and after.version != stored.version)
    return is_changed


async def _resealed(sealer: Sealer, name_of: Callable[[str], str], id: str, body: Any) -> Any:
    """Return what has a field `sealed` with that sealed anew. What no key opens stays: it is of no use already."""
    try:
        sealed = await sealer.resealed_text(name_of(id), body.sealed)
    except CannotUnseal:
        return body
    return body if sealed == body.sealed else replace(body, sealed=sealed)


async def _with_webhooks(sealer: Sealer, _: str, chosen: people.Notified) -> people.Notified:
    kept = tuple([await _resealed(sealer, people.sealed_webhook, each.id, each) for each in chosen.webhooks])
    return chosen if kept == chosen.webhooks else replace(chosen, webhooks=kept)
