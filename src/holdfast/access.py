"""The access of a caller: its owner and rights, until the key is revoked."""

from __future__ import annotations

from .concurrency.watchers import Wake, Watchers

ACCESS = "holdfast.access"
"""The key of a request's `Access` in its scope."""


class Access:
    """The access that an API key gives: owner, rights, and whether it was revoked. All requests with one key share one.

    An open stream watches it, so that revoking a key ends the stream too. That costs a dict entry for each stream.
    """

    __slots__ = ("_watchers", "admin", "is_revoked", "owner")

    def __init__(self, owner: str, *, admin: bool = False) -> None:
        self.owner = owner
        self.admin = admin
        """Whether the caller may change the settings."""
        self.is_revoked = False
        self._watchers = Watchers()

    def revoke(self) -> int:
        """Revoke it, and end the open responses. Returns how many there were."""
        self.is_revoked = True
        watching = len(self._watchers)
        self._watchers.notify()
        return watching

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` at its revocation, until the returned function is called."""
        return self._watchers.watch(wake)
