"""The accounts of people at MCP servers: their tokens, kept sealed, and refreshed by one server at a time."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ....access import Access
from ....agents.mcp.described import McpServer, ToolServerAway, ToolServerNotConnected
from ....concurrency.retry import Backoff
from ....concurrency.tasks import OwnedTasks
from ....errors import HoldfastError, StaleDocument
from ....store import Store
from ....store.documents import Documents, Stored
from ...config.settings import McpSettings
from ...secrets.sealer import CannotUnseal, Sealer
from .oauth import AccountNotConnected, Authority, Oauth, TokenRefused, Tokens

logger = logging.getLogger(__name__)
T = TypeVar("T")

ATTEMPT_LASTS = 600.0
"""Seconds that a person has to allow the access."""
MOST_ATTEMPTS = 20
EARLY = 30.0
"""Seconds before its end at which a token is refreshed."""
CLAIM_LASTS = 30.0
"""Seconds after which another server refreshes a token that one has begun to refresh."""


class AttemptRefused(AccountNotConnected):
    """The answer of an authorization server is for no attempt of this person, or comes too late, or a second time."""

    code = "mcp_attempt_refused"
    status = 403
    type = "permission_error"
    message = "This is not an attempt of yours to connect an account, or it was used or is too old. Try again."


class McpAttempt(msgspec.Struct, frozen=True):
    """An attempt to connect an account, as it is stored under the digest of its state."""

    server: str
    credential: str
    """The id of the sign-in that has begun it. No other can finish it."""
    sealed: str


class Begun(msgspec.Struct, frozen=True):
    """What is sealed of an attempt."""

    url: str
    verifier: str
    redirect: str
    authority: Authority


class McpAccount(msgspec.Struct, frozen=True):
    """An account that is connected, as it is stored. It belongs to the person who has connected it."""

    server: str
    since: float
    sealed: str
    claimed_at: float = 0.0
    """When a server has begun to refresh the token; 0 if none does."""


class AccountGrant(msgspec.Struct, frozen=True):
    """What is sealed of an account."""

    url: str
    """The address of the MCP server. If it changes, the tokens are not for it."""
    authority: Authority
    tokens: Tokens


class McpAccounts:
    """The accounts of all people. Costs one read of a document for each request to an MCP server that needs one."""

    def __init__(self, store: Store, sealer: Sealer, environ: Mapping[str, str], now: Callable[[], float]) -> None:
        self._attempts = Documents(store, "mcp_attempt", McpAttempt, now=now)
        self._all = Documents(store, "mcp_account", McpAccount, now=now)
        self._sealer, self._oauth, self._environ, self._now = sealer, Oauth(environ), environ, now
        self._refreshing = OwnedTasks("the accounts at MCP servers")

    # connecting

    async def begin(self, server: McpSettings, caller: Access, redirect: str) -> str:
        """Return the address at which the caller allows the access."""
        await self._forget_attempts(caller.owner)
        await self._attempts.require_room(caller.owner, MOST_ATTEMPTS, "attempt to connect an account")
        authority = await self._oauth.authority_of(server, redirect)
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        id = _digest(state)
        sealed = await self._seal(id, Begun(server.url, verifier, redirect, authority))
        await self._attempts.put(id, McpAttempt(server.name, caller.credential, sealed), owner=caller.owner)
        return authority.start_url(state, verifier, redirect)

    async def _forget_attempts(self, owner: str) -> None:
        before = self._now() - ATTEMPT_LASTS
        for old in [each async for each in self._attempts.all(owner=owner) if each.created_at < before]:
            await self._attempts.delete(old.id)

    async def take(self, caller: Access, state: str) -> tuple[str, Begun]:
        """Use up an attempt of the caller. Return its MCP server, and what it has begun with."""
        id = _digest(state)
        stored = await self._attempts.get(id, owner=caller.owner)
        if stored is None or stored.body.credential != caller.credential:
            raise AttemptRefused
        if not await self._attempts.delete(id) or stored.created_at < self._now() - ATTEMPT_LASTS:
            raise AttemptRefused
        return stored.body.server, await self._open(id, stored.body.sealed, Begun)

    async def finish(self, server: McpSettings, owner: str, begun: Begun, code: str, issuer: str | None) -> None:
        """Exchange the code of an attempt for tokens, and keep them."""
        authority = begun.authority
        if begun.url != server.url:
            raise AttemptRefused
        if issuer != authority.issuer and (issuer is not None or authority.names_itself):
            raise AccountNotConnected("The answer is of another server than the one that was asked.")
        grant = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect,
            "code_verifier": begun.verifier,
        }
        tokens = await self._oauth.tokens(authority, self._now(), grant)
        id = _id_of(server, owner)
        sealed = await self._seal(id, AccountGrant(begun.url, authority, tokens))
        await self._all.exchange(id, McpAccount(server.name, self._now(), sealed), owner=owner)

    async def since(self, server: McpSettings, owner: str) -> float | None:
        """Return when an account was connected; None if none is."""
        stored = await self._all.get(_id_of(server, owner))
        return None if stored is None else stored.body.since

    async def disconnect(self, server: McpSettings, owner: str) -> bool:
        """Forget an account, and revoke its tokens. False if none is connected."""
        id = _id_of(server, owner)
        while (stored := await self._all.get(id)) is not None:
            if await self._all.delete(id, version=stored.version):  # or else it has newer tokens now
                await self._revoke(server, stored)
                return True
        return False

    async def forget_server(self, name: str) -> None:
        """Forget all accounts at an MCP server that was removed: another one may get its name."""
        for stored in [each async for each in self._all.all() if each.body.server == name]:
            await self._all.delete(stored.id)

    async def _revoke(self, server: McpSettings, stored: Stored[McpAccount]) -> None:
        try:
            grant = await self._open(stored.id, stored.body.sealed, AccountGrant)
            authority = grant.authority.with_secret(server.oauth_client, server.client_secret(self._environ))
            await self._oauth.revoke(authority, grant.tokens)
        except HoldfastError as error:
            logger.warning("the token of an account at MCP server %s was not revoked: %s", stored.body.server, error)

    # tokens

    async def bearer(self, server: McpServer, owner: str, refused: str) -> str:
        """Return a valid token, another one than the one that was refused. Of all servers one refreshes it."""
        pauses = Backoff(0.02, 1.0)
        while True:
            id = _id_of(server, owner)
            stored = await self._all.get(id)
            grant = None if stored is None else await self._grant(stored)
            if stored is None or grant is None or grant.url != server.url:
                raise ToolServerNotConnected(server.name)
            if grant.tokens.access != refused and not self._is_late(grant.tokens):
                return grant.tokens.access
            if stored.body.claimed_at > self._now() - CLAIM_LASTS:
                await asyncio.sleep(pauses.next())
                continue
            with suppress(StaleDocument):
                claim = replace(stored.body, claimed_at=self._now())
                claimed = await self._all.put(id, claim, owner=stored.owner, version=stored.version)
                # a stop of the run must not lose a token that can be had once
                return await self._refreshing.run(self._refreshed(server, claimed, grant))

    def _is_late(self, tokens: Tokens) -> bool:
        return tokens.expires_at is not None and self._now() > tokens.expires_at - EARLY

    async def _grant(self, stored: Stored[McpAccount]) -> AccountGrant | None:
        try:
            return await self._open(stored.id, stored.body.sealed, AccountGrant)
        except CannotUnseal as error:
            logger.warning("the account at MCP server %s cannot be used: %s", stored.body.server, error)
            return None

    async def _refreshed(self, server: McpServer, claimed: Stored[McpAccount], grant: AccountGrant) -> str:
        """Refresh the tokens of an account that this server has claimed. An account that is refused is forgotten."""
        id, owner, name, old = claimed.id, claimed.owner, server.name, grant.tokens
        authority = grant.authority.with_secret(server.oauth_client, server.oauth_secret)
        try:
            if not old.refresh:
                raise TokenRefused("There is no way to refresh the token.")
            given = {"grant_type": "refresh_token", "refresh_token": old.refresh}
            tokens = await self._oauth.tokens(authority, self._now(), given, old)
        except TokenRefused as error:
            logger.warning("the account at MCP server %s is disconnected: %s", name, error)
            await self._all.delete(id, version=claimed.version)
            raise ToolServerNotConnected(name) from None
        except AccountNotConnected as error:
            with suppress(StaleDocument):
                await self._all.put(id, replace(claimed.body, claimed_at=0.0), owner=owner, version=claimed.version)
            raise ToolServerAway(f"The token for MCP server {name} could not be refreshed: {error}") from None
        sealed = await self._seal(id, replace(grant, authority=authority, tokens=tokens))
        try:
            kept = replace(claimed.body, sealed=sealed, claimed_at=0.0)
            await self._all.put(id, kept, owner=owner, version=claimed.version)
        except StaleDocument:  # it was disconnected or erased meanwhile
            with suppress(AccountNotConnected):
                await self._oauth.revoke(authority, tokens)
            raise ToolServerNotConnected(name) from None
        return tokens.access

    # sealing

    async def _seal(self, id: str, body: msgspec.Struct) -> str:
        return await self._sealer.seal_text(sealed_account(id), msgspec.json.encode(body))

    async def _open(self, id: str, sealed: str, kind: type[T]) -> T:
        return msgspec.json.decode(await self._sealer.open_text(sealed_account(id), sealed), type=kind)


def _id_of(server: McpServer | McpSettings, owner: str) -> str:
    return _digest(f"{server.name}\n{'' if server.shared else owner}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sealed_account(id: str) -> str:
    """Return the name under which the tokens of an account are sealed."""
    return f"the account {id}"
