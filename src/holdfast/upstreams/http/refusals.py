"""Requests that an upstream has just refused because of the API key or the account's credit."""

from __future__ import annotations

import hashlib
import time

from ...errors import ProviderError

_SECONDS = 5.0
_MAX_REFUSALS = 1024


class RecentRefusals:
    """Refusals of one upstream and one key, cached for some seconds under the request.

    Many clients repeat a request at every 5xx, and a repeated wrong key can get an account locked. Only the same
    request is refused: another one may be for a model that the key may use, or cost less. Changed settings create a new
    provider, which has no refusals.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[float, ProviderError]] = {}

    def add(self, body: bytes, error: ProviderError) -> None:
        """Keep a refusal. The oldest are dropped first."""
        now = time.monotonic()
        self._known = {key: known for key, known in self._known.items() if now < known[0]}
        while len(self._known) >= _MAX_REFUSALS:
            del self._known[next(iter(self._known))]
        self._known[_key(body)] = now + _SECONDS, error

    def of(self, body: bytes) -> ProviderError | None:
        """Return the refusal of the same request. Costs nothing if there was none."""
        if not self._known:
            return None
        until, error = self._known.get(_key(body), (0.0, None))
        return error.with_traceback(None) if error is not None and time.monotonic() < until else None


def _key(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()
