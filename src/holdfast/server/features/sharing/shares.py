"""Shares: sessions that are shared by a link or with a group, and the access that this gives to others.

A request to something shared is made with a loan of the caller's access. When the share ends, its owner is disabled, or
the person leaves the group, the loan is revoked, and the responses that it has opened end as with a revoked key: on
every node, within a second. No endpoint has to check this itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Literal

import msgspec

from ....access import Access
from ....errors import Conflict, HoldfastError, KeyRevoked, StaleDocument
from ....store import Store
from ....store.documents import DocumentGuard, Documents, Stored
from ....watchers import Wake
from ..accounts.people.changes import AccessChanges

May = Literal["read", "write"]
"""The rights of a group to a session."""
Included = Literal["tools", "reasoning", "system", "names"]
"""Contents of a link besides the messages: tool calls with results, reasoning, the system prompt, people's names."""

MOST_SHARES = 1000
"""Maximum number of shares of one owner."""
MOST_SPECTATORS = 200
"""Maximum number of open streams of one link on one node."""
MOST_OF_ALL_LINKS = 2000
"""Maximum number of open streams of all links on one node."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is shared by a link, or with a group. A share never changes: it is created and revoked."""

    session_id: str
    group: str = ""
    """The id of the group; empty for a link."""
    may: May = "read"
    head_id: str | None = None
    """The last message that a link shows; None if the link follows the session."""
    before_id: str | None = None
    """The message before the last one, which becomes the last one if the run of that leaves no message."""
    title: str = ""
    """The title of the session when the link was made, for a link that does not follow it."""
    include: tuple[Included, ...] = ()
    sign_in: bool = False
    """True if a link is only for callers that are signed in or have a key."""
    expires_at: float | None = None


class _InGroup(msgspec.Struct, frozen=True):
    """An entry of the index by groups. Its id is that of the share."""

    session_id: str


class TooManyShares(Conflict):
    """The owner has reached the maximum number of shares."""

    code = "too_many_shares"
    message = f"You share {MOST_SHARES} chats already. Revoke a share first."


class TooManySpectators(HoldfastError):
    """A link has reached the maximum number of open streams."""

    code = "too_many_spectators"
    status = 429
    type = "rate_limit_error"

    def __init__(self) -> None:
        super().__init__("Too many people read this link now. Try again later.")
        self.retry_after = 30.0


def id_of_link(token: str) -> str:
    """Return the id of the share of a link's token: a digest, from which the token cannot be computed."""
    return hashlib.sha256(b"share " + token.encode("utf-8", "replace")).hexdigest()


def id_in_group(session_id: str, group: str) -> str:
    """Return the id of the share of a session with a group: there is at most one."""
    return hashlib.sha256(f"group {group}\n{session_id}".encode("utf-8", "replace")).hexdigest()


IsDisabled = Callable[[str], Awaitable[bool]]


async def _no_one(owner: str) -> bool:
    return False


class Loan(Access):
    """The access of one request to a shared session: a copy of the caller's access, which ends with the share.

    An open response that watches it adds it to the list of its `Shares`, and removes it at its end. So a loan costs
    only its memory if no stream depends on it.
    """

    __slots__ = ("_has_ended", "_loans", "is_checked", "lender", "share")

    def __init__(self, lender: Access, share: Stored[Share], loans: dict[Loan, None]) -> None:
        self._has_ended = False
        self._loans = loans
        self.lender = lender
        self.share = share
        self.is_checked = False
        """True if the share was read from the store since the stream began, and since its last possible change."""
        super().__init__(
            lender.owner,
            role=lender.role,
            scopes=lender.scopes,
            via=lender.via,
            account=lender.account,
            credential=lender.credential,
            expires_at=lender.expires_at,
            allowed=lender.allowed,
        )
        self.name, self.groups = lender.name, lender.groups
        self.models, self.agents, self.granted = lender.models, lender.agents, lender.granted
        self.budgets = lender.budgets

    @property
    def is_revoked(self) -> bool:
        """True if the share has ended for the caller, or the caller's own access."""
        return self._has_ended or self.lender.is_revoked

    @is_revoked.setter
    def is_revoked(self, value: bool) -> None:
        self._has_ended = value

    def end_error(self) -> KeyRevoked:
        """Return the error for a request that its end has ended."""
        return super().end_error() if self._has_ended else self.lender.end_error()

    def watch(self, wake: Wake) -> Wake:
        """Call `wake` when it ends, until the returned function is called."""
        unwatch, unwatch_lender = super().watch(wake), self.lender.watch(wake)
        self._loans[self] = None

        def leave() -> None:
            unwatch()
            unwatch_lender()
            if not self.is_watched:
                self._loans.pop(self, None)

        return leave

    def is_over(self, now: float) -> bool:
        """Return whether the link has expired, or the caller has left the group."""
        share = self.share.body
        has_left = bool(share.group) and share.group not in self.root.groups
        return has_left or (share.expires_at is not None and share.expires_at <= now)

    @property
    def root(self) -> Access:
        """The caller's own access, whose groups are kept current."""
        return self.lender.root if isinstance(self.lender, Loan) else self.lender


class Shares:
    """All shares, and the loans of this node."""

    def __init__(
        self, store: Store, is_disabled: IsDisabled = _no_one, *, now: Callable[[], float] = time.time
    ) -> None:
        """`is_disabled` returns whether the account of an owner is disabled: then none of its shares is valid."""
        self._is_disabled = is_disabled
        self._all = Documents(store, "share", Share, now=now)
        self._one_at_a_time = DocumentGuard(store, "shares")
        self._by_group = Documents(store, "group_share", _InGroup, now=now)
        self._changes = AccessChanges(store, now=now)
        self._now = now
        self._refreshing = asyncio.Lock()
        self._loans: dict[Loan, None] = {}
        """The loans that open streams of this node depend on."""

    # shares

    async def add_link(self, owner: str, share: Share) -> tuple[str, Stored[Share]]:
        """Add a link, and return its token, which is not stored."""
        token = secrets.token_urlsafe(32)
        return token, await self._add(id_of_link(token), share, owner)

    async def add_group(self, owner: str, share: Share) -> Stored[Share]:
        """Share a session with a group, or change the rights of the group."""
        id = id_in_group(share.session_id, share.group)
        if await self._all.get(id) is None:
            with suppress(StaleDocument):  # another request was faster
                await self._add(id, share, owner)
        if await self._all.exchange(id, share, owner=owner) is not None:
            await self._changed(id)
        await self._by_group.exchange(id, _InGroup(share.session_id), owner=share.group)
        if (stored := await self._all.get(id)) is None:
            raise StaleDocument("share", id)  # it was revoked meanwhile
        return stored

    async def _add(self, id: str, share: Share, owner: str) -> Stored[Share]:
        """Add a share, if its owner has not too many."""

        async def check() -> None:
            if len([True async for _ in self._all.all(owner=owner)]) >= MOST_SHARES:
                raise TooManyShares

        return await self._all.add_alone(id, share, check, among=self._one_at_a_time, owner=owner)

    async def of_owner(self, owner: str, session_id: str | None = None) -> list[Stored[Share]]:
        """Return the shares of an owner, the newest first: all, or those of one session."""
        shares = [share async for share in self._all.all(owner=owner)]
        return [share for share in shares if session_id in (None, share.body.session_id) and self._is_valid(share)]

    async def page(self, *, before: str | None, limit: int) -> list[Stored[Share]]:
        """Return shares of all owners, the newest first."""
        return await self._all.page(before=before, limit=limit)

    async def find_link(self, token: str) -> Stored[Share] | None:
        """Return the share of a link's token. A wrong token costs one look-up of a digest."""
        return await self._valid(id_of_link(token))

    async def find_group(self, access: Access, session_id: str, may: May) -> Stored[Share] | None:
        """Return a share that lets the caller read or write a session. The cost depends on the caller's groups only."""
        found = [await self._valid(id_in_group(session_id, group)) for group in access.groups]
        shares = [share for share in found if share is not None]
        shares.sort(key=lambda share: share.body.may != "write")
        return next((share for share in shares if may in ("read", share.body.may)), None)

    async def with_groups(self, groups: Iterable[str], limit: int) -> AsyncIterator[Stored[Share]]:
        """Yield the shares with groups, the newest of each group first, at most `limit` of each."""
        for group in groups:
            for entry in await self._by_group.page(owner=group, limit=limit):
                if (share := await self._valid(entry.id)) is not None:
                    yield share

    async def _valid(self, id: str) -> Stored[Share] | None:
        """Return a share if it is valid: it has not expired, and its owner is not disabled."""
        share = await self._all.get(id)
        if share is None or not self._is_valid(share) or await self._is_disabled(share.owner):
            return None
        return share

    def _is_valid(self, share: Stored[Share]) -> bool:
        return share.body.expires_at is None or share.body.expires_at > self._now()

    async def revoke(self, id: str, *, owner: str | None = None) -> bool:
        """Revoke a share: False if there is none, or if it is another owner's. Its open streams end on every node."""
        share = await self._all.get(id, owner=owner)
        if share is None:
            return False
        await self._by_group.delete(id)
        await self._all.delete(id)
        await self._changed(id)
        return True

    async def _changed(self, id: str) -> None:
        await self._changes.note("share", id)
        await self.refresh()

    async def forget_session(self, owner: str, session_id: str) -> None:
        """Revoke all shares of a session."""
        for share in await self.of_owner(owner, session_id):
            await self.revoke(share.id)

    async def forget_owner(self, owner: str) -> None:
        """Revoke all shares of an owner."""
        for id in [share.id async for share in self._all.all(owner=owner)]:
            await self.revoke(id)

    async def forget_group(self, group: str) -> None:
        """Revoke all shares with a group."""
        for id in [entry.id async for entry in self._by_group.all(owner=group)]:
            await self.revoke(id)

    async def forget_expired(self) -> None:
        """Delete links that have expired."""
        for id in [share.id async for share in self._all.all() if not self._is_valid(share)]:
            await self.revoke(id)

    # loans

    def lend(self, access: Access, share: Stored[Share]) -> Access:
        """Return a loan of the caller's access, for one request to a shared session."""
        return Loan(access, share, self._loans)

    def check_spectators(self, share: Stored[Share]) -> None:
        """Refuse one more open stream of a link if there are too many."""
        links = [loan.share.id for loan in self._loans if not loan.share.body.group]
        if len(links) >= MOST_OF_ALL_LINKS or links.count(share.id) >= MOST_SPECTATORS:
            raise TooManySpectators

    async def refresh(self) -> None:
        """End the streams of shares that any node has revoked, and those whose readers have lost their right."""
        if not self._loans:
            return
        async with self._refreshing:  # one that has read a share before its end would remove the doubt of another
            if self._changes.are_lost:
                await self._changes.skip()
                self._doubt(None)
            async for change in self._changes.read():
                if change.of in ("share", "account"):
                    self._doubt(change.id if change.of == "share" else None)
            await self._check_loans()

    def _doubt(self, share: str | None) -> None:
        """Mark the loans of a share as unchecked; with None, all loans. They stay so until they are checked."""
        for loan in self._loans:
            if share in (None, loan.share.id):
                loan.is_checked = False

    async def _check_loans(self) -> None:
        """Check the unchecked loans, and end those whose share has ended. Each share is read once."""
        now, valid = self._now(), dict[str, Stored[Share] | None]()
        for loan in tuple(self._loans):
            if not loan.is_checked and loan.share.id not in valid:
                valid[loan.share.id] = await self._valid(loan.share.id)
            if not loan.is_checked:
                stored = valid[loan.share.id]
                loan.is_checked = stored is not None and stored.version == loan.share.version
            if loan.is_over(now) or not loan.is_checked:
                loan.revoke()
