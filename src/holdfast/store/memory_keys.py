"""The documents, API keys and usage of a store in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..access import Payer
from ..errors import StaleDocument
from . import Cap, Charge, Document, Draw, DrawResult, KeyDetails, KeyRecord, Spent, UsageRow
from . import semantics as rules


class MemoryDocuments:
    """Documents by kind and id, in the order in which they were added."""

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], Document] = {}

    async def put_document(self, document: Document, expected_version: int | None = None) -> Document:
        """Store a document: compare-and-set."""
        place = document.kind, document.id
        self._documents[place] = after = rules.after_put(document, self._documents.get(place), expected_version)
        return _copy(after)

    async def put_documents(self, puts: Sequence[tuple[Document, int | None]]) -> list[Document]:
        """Store documents, all or none."""
        before = dict(self._documents)
        try:
            return [await self.put_document(document, expected) for document, expected in puts]
        except StaleDocument:
            self._documents = before
            raise

    async def get_document(self, kind: str, id: str) -> Document | None:
        """Return a document."""
        found = self._documents.get((kind, id))
        return None if found is None else _copy(found)

    async def list_documents(
        self, kind: str, owner: str | None = None, *, before: str | None = None, limit: int = 50
    ) -> list[Document]:
        """Return documents of a kind, the last added first."""
        ofkind = [it for it in reversed(self._documents.values()) if it.kind == kind]
        if before is not None:
            ofkind = list(itertools.dropwhile(lambda it: it.id != before, ofkind))[1:]
        return [_copy(it) for it in ofkind if owner in (None, it.owner)][: max(limit, 0)]

    async def delete_document(self, kind: str, id: str, version: int | None = None) -> bool:
        """Delete a document."""
        found = self._documents.get((kind, id))
        if found is None or version not in (None, found.version):
            return False
        del self._documents[kind, id]
        return True

    async def documents_of(self, owner: str, *, after: tuple[str, str] = ("", ""), limit: int = 20) -> list[Document]:
        """Return documents of an owner, of every kind."""
        found = [it for place, it in sorted(self._documents.items()) if it.owner == owner and place > after]
        return found[:limit]

    async def delete_documents_of(self, owner: str, limit: int = 100) -> int:
        """Delete documents of an owner."""
        found = [place for place, document in self._documents.items() if document.owner == owner][:limit]
        for place in found:
            del self._documents[place]
        return len(found)


def _copy(document: Document) -> Document:
    """Return a copy of a document, so that a change of its body does not change the stored one."""
    return replace(document, body=rules.plain_json(document.body))


class MemoryKeys:
    """Owners by their ids, and API keys, each with the number of its last change."""

    def __init__(self) -> None:
        self._accounts: dict[str, str] = {}
        """The account of each owner; empty for a service."""
        self._api_keys: dict[str, KeyRecord] = {}
        self._changed: dict[str, int] = {}
        self._last_change = 0

    def claim_owner(self, owner: str, account: str) -> None:
        """Give an owner to an account."""
        rules.check_claim(owner, self._accounts.get(owner), account)
        self._accounts[owner] = account
        for key in [key for key in self._api_keys.values() if key.owner == owner and not key.account]:
            self._put(replace(key, account=account))

    async def account_of(self, owner: str) -> str | None:
        """Return the account of an owner."""
        return self._accounts.get(owner)

    async def release_owner(self, owner: str) -> bool:
        """Delete an owner."""
        return self._accounts.pop(owner, None) is not None

    async def add_key(self, key: KeyRecord, most: int | None = None) -> KeyRecord:
        """Add an API key."""
        if (known := self._api_keys.get(key.id)) is not None:
            return known
        others = [other for other in self._api_keys.values() if other.account == key.account]
        rules.check_key(key, self._accounts.get(key.owner), others, most)
        self._accounts[key.owner] = key.account
        return self._put(key)

    async def misplaced_keys(self) -> list[str]:
        """Return the ids of active keys whose owner belongs to another account."""
        active = (key for key in self._api_keys.values() if key.revoked_at is None)
        return [key.id for key in active if self._accounts.get(key.owner) != key.account]

    async def revoke_key(self, id: str, now: float) -> KeyRecord | None:
        """Revoke a key."""
        key = self._in_force(id)
        return None if key is None else self._put(replace(key, revoked_at=now))

    async def change_key(self, id: str, details: KeyDetails) -> KeyRecord | None:
        """Change the limits of a key."""
        key = self._in_force(id)
        return None if key is None else self._put(replace(key, details=details))

    async def list_keys(self, *, after: int = 0, account: str | None = None) -> list[KeyRecord]:
        """Return the API keys."""
        keys = self._api_keys.values()
        return [key for key in keys if self._changed[key.id] > after and account in (None, key.account)]

    async def key_changes(self) -> int:
        """Return a number that grows whenever a key is added, changed or revoked."""
        return self._last_change

    async def forget_keys(self, account: str) -> int:
        """Remove the data about a person from revoked keys."""
        old = [key for key in self._api_keys.values() if key.account == account and key.revoked_at is not None]
        for key in old:
            self._put(replace(key, name="", owner="", account="", details=KeyDetails(), last_used_at=None))
        return len(old)

    async def keys_used(self, ids: Sequence[str], now: float) -> None:
        """Record the time of the last use of keys."""
        for id in ids:
            if (key := self._api_keys.get(id)) is not None:
                self._api_keys[id] = replace(key, last_used_at=now)

    def _in_force(self, id: str) -> KeyRecord | None:
        key = self._api_keys.get(id)
        return None if key is None or key.revoked_at is not None else key

    def _put(self, key: KeyRecord) -> KeyRecord:
        self._last_change += 1
        self._api_keys[key.id] = key
        self._changed[key.id] = self._last_change
        return key


class _Kept(NamedTuple):
    """A charge as it is stored."""

    charge: Charge
    settled_at: float | None = None
    held_tokens: int = 0
    held_cost: float = 0.0

    def counts_for(self, cap: Cap) -> bool:
        charge = self.charge
        named = {"owner": (charge.owner,), "key": (charge.payer.key,), "group": charge.payer.groups}
        return cap.id in named[cap.of]


class MemorySpending:
    """Charges by the ids of their runs."""

    def __init__(self) -> None:
        self._charges: dict[str, _Kept] = {}

    async def disown_usage(self, owner: str) -> int:
        """Remove an owner and the keys from their usage."""
        owned = {id: kept for id, kept in self._charges.items() if kept.charge.owner == owner}
        for id, kept in owned.items():
            disowned = replace(kept.charge, owner="", payer=Payer(groups=kept.charge.payer.groups))
            del self._charges[id]
            changed = _Kept(disowned, *kept[1:])
            if kept.settled_at == math.inf:
                self._fold(changed)
            else:
                self._charges[id] = changed
        return len(owned)

    async def draw(self, draws: Sequence[Draw], now: float) -> list[DrawResult]:
        """Share out budgets."""
        return [self._draw(draw, now) for draw in draws]

    def _draw(self, draw: Draw, now: float) -> DrawResult:
        result = rules.shared_out(draw, [self._spent(cap, draw.charge.id, now) for cap in draw.caps])
        known = self._charges.get(draw.charge.id)
        is_open = known is None or known.settled_at is None
        if is_open and not draw.looks and (result.refused is None or not draw.opens):
            self._charges[draw.charge.id] = _Kept(draw.charge, None, result.tokens or 0, result.cost or 0.0)
        return result

    def _spent(self, cap: Cap, besides: str, now: float) -> Spent:
        found = [kept for id, kept in self._charges.items() if id != besides and kept.counts_for(cap)]
        in_period = [kept for kept in found if kept.charge.day >= cap.since]
        return Spent(
            sum(kept.charge.tokens for kept in in_period),
            sum(kept.charge.cost or 0.0 for kept in in_period),
            sum(max(kept.held_tokens, kept.charge.tokens) for kept in in_period),
            sum(max(kept.held_cost, kept.charge.cost or 0.0) for kept in in_period),
            sum(kept.settled_at is None for kept in found),
            sum(kept.charge.runs for kept in found if kept.charge.started_at > now - 60.0),
        )

    async def charge(self, charges: Sequence[Charge], now: float) -> None:
        """Record the total usage of ended runs."""
        for charge in charges:
            self._end_charge(charge, now)

    def _end_charge(self, charge: Charge, now: float) -> None:
        known = self._charges.get(charge.id)
        self._charges[charge.id] = _Kept(rules.final_charge(charge, known and known.charge), now)

    async def drop_charge(self, id: str) -> None:
        """Delete the charge of a run that has not started."""
        if (known := self._charges.get(id)) is not None and known.settled_at is None:
            del self._charges[id]

    async def fold_charges(self, before: float, now: float) -> int:
        """Merge the charges that ended before a time into one for each day, owner, payer and model."""
        ended = [it for it in self._charges.values() if it.settled_at is not None and it.settled_at < before]
        for kept in ended:
            del self._charges[kept.charge.id]
            self._fold(kept)
        return len(ended)

    def _fold(self, kept: _Kept) -> None:
        charge = kept.charge
        id = f"{charge.day} {charge.owner} {charge.payer} {charge.model}"
        known = self._charges.get(id)
        total = replace(charge, id=id) if known is None else rules.added_charge(known.charge, charge)
        self._charges[id] = _Kept(total, math.inf)

    async def usage(self, since: int, until: int, *, owner: str | None = None, limit: int = 10_000) -> list[UsageRow]:
        """Return the usage of some days by owner, key and model."""
        sums: dict[tuple[int, str, str, str], UsageRow] = {}
        for kept in self._charges.values():
            charge = kept.charge
            if since <= charge.day <= until and owner in (None, charge.owner):
                place = (charge.day, charge.owner, charge.payer.key, charge.model)
                sums[place] = rules.added_usage(sums.get(place), charge)
        rows = sorted(sums.values(), key=lambda row: (-row.day, row.owner, row.key, row.model))
        return rows[:limit]
