"""The current rights of owners of runs, for code without a request."""

from __future__ import annotations

from ....access import Access
from ....errors import AccessEnded, ModelNotFound
from ....ids import ModelName
from ....store import RunRecord
from .keys import Keys
from .people.callers import Callers


class Owners:
    """Finds the rights of an owner: those of the person's account, or those of its keys."""

    def __init__(self, keys: Keys, callers: Callers) -> None:
        self._keys = keys
        self._callers = callers

    async def access(self, owner: str, key: str = "") -> Access | None:
        """Return the rights of an owner, or of one of its keys; None if it has lost all access.

        What a key has begun ends with the key, whatever else its owner may do.
        """
        if key:
            access = await self._keys.in_force(key)
            is_known = access is not None and (access.role is not None or await self._callers.load(access))
            return access if is_known else None
        if (known := self._callers.known_rights(owner)) is not None:
            return known
        if self._callers.exist and (account := await self._callers.accounts.of_owner(owner)) is not None:
            return None if account.body.is_disabled else self._callers.access_of(account)
        return self._keys.rights(owner)

    async def require(self, record: RunRecord, model: ModelName) -> None:
        """Refuse to call a model for a run whose person or key may no longer use it.

        A run may call it long after it was accepted: it waited in a queue or in a batch, or its agent has many steps.
        """
        access = await self.access(record.payer.owner or record.owner, record.payer.key)
        if access is None:
            raise AccessEnded
        if not access.may_ask(model):
            raise ModelNotFound(f"Unknown model {model!r}.")
