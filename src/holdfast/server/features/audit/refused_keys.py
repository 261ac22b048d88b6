"""Keys that were refused, for the audit log: one entry for each address, reason and minute, with a count."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .audit import REFUSALS_A_MINUTE, Audit

KEY_REASONS = frozenset({"wrong_key", "expired_key", "revoked_key", "key_of_disabled"})
"""Reasons that concern a key. The last one is for a key of a person who is disabled."""


class GateRefusal(NamedTuple):
    """A request that was refused before it reached a route."""

    reason: str
    """The label of the metrics, and the code of the audit log."""
    address: str = ""
    key: str = ""
    """The id of a key that was once active; empty if there never was such a key."""


class RefusedKeys:
    """Counts refused keys, and writes the counts once a minute. The number of counts is limited, against attackers.

    Beyond the limit, refusals are counted by reason only, without address and key.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._counts: Counter[GateRefusal] = Counter()

    def count(self, refused: GateRefusal) -> None:
        """Count a refused key. Requests with other reasons of refusal are not counted."""
        if refused.reason not in KEY_REASONS:
            return
        has_place = refused in self._counts or len(self._counts) < REFUSALS_A_MINUTE
        self._counts[refused if has_place else GateRefusal(refused.reason)] += 1

    async def write(self) -> None:
        """Write the counts. Those that cannot be written are kept, and written with the next ones.

        What was left out of the entries about other refusals is written with them.
        """
        await self._audit.write_left_out()
        counts, self._counts = self._counts, Counter()
        while counts:
            refused, count = counts.popitem()
            try:
                await self._audit.key_refused(refused.reason, count, address=refused.address, key=refused.key)
            except BaseException:
                self._counts.update(counts)
                self._counts[refused] += count
                raise
