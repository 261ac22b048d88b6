"""People whom a trusted proxy names in a header of each request."""

from __future__ import annotations

import time
from collections import OrderedDict

from ....access import Access
from ...config.sign_in_settings import ProxySettings
from .people.identities import Identities, Identity
from .people.people import People

LOOK_AGAIN = 60.0
"""Seconds for which the account of a header is cached. Changes of its rights apply within a second."""
MOST_NAMES = 20_000


class ProxyPeople:
    """Finds the access of the person in a proxy's header. The caller has checked that the proxy is trusted."""

    def __init__(self, people: People, settings: ProxySettings) -> None:
        self.header = settings.user_header.lower().encode()
        self.groups_header = settings.groups_header.lower().encode()
        self._people = people
        self._identities = Identities(people, settings)
        self._known: OrderedDict[tuple[bytes, bytes], tuple[float, Access]] = OrderedDict()

    async def access_of(self, headers: dict[bytes, bytes]) -> Access:
        """Return the access of the person in the headers. `NoAccount` if the person may not use the server."""
        named = headers[self.header], headers.get(self.groups_header, b"") if self.groups_header else b""
        known, now = self._known.get(named), time.monotonic()
        if known is not None and now - known[0] < LOOK_AGAIN and not known[1].is_revoked:
            return known[1]
        account = await self._identities.account_of(_identity(*named))
        access = await self._people.callers.of_account(account.id)
        self._known[named] = now, access
        if len(self._known) > MOST_NAMES:
            self._known.popitem(last=False)
        return access


def _identity(user: bytes, groups: bytes) -> Identity:
    name = user.decode("utf-8", "replace").strip()
    listed = (group.strip() for group in groups.decode("utf-8", "replace").split(","))
    return Identity("proxy", name, name, tuple(group for group in listed if group))
