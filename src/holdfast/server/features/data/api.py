"""`/api/account/export`, `/api/account/import`, `DELETE /api/account`, and the progress of an erasure."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from ....access import ADMIN, CHAT, PERSON_FRESH, READ_FRESH, Access
from ....engine.core import Core
from ....errors import BadRequest, NotFound
from ....store import Store
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import PRIVATE, Json
from ...kit.receiving import receive
from ...kit.request import Bodies, decode
from ..accounts.api.sign_in import Short, SigningIn
from ..accounts.people.people import People
from ..accounts.people.sign_ins import cookie
from ..audit.audit import note_of
from ..budgets.budgets import Budgets
from .erasing import Erasing, shown_erasure

if TYPE_CHECKING:
    from .archive import Archive
    from .bringing_in import Importing

LARGEST_ARCHIVE = 1024 * 1024 * 1024
"""Maximum size of an imported archive, in bytes. It is received into a temporary file."""
_IN_MEMORY = 1024 * 1024


class AccountDeletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password, to confirm the identity. A person without a password sends none."""

    password: Short = ""


class AccountDataApi(Feature):
    """A person's data: export, import and deletion."""

    def __init__(
        self,
        bodies: Bodies,
        signing_in: SigningIn,
        people: People,
        budgets: Budgets,
        erasing: Erasing,
        engine: Core,
        store: Store,
    ) -> None:
        self._bodies, self._signing_in, self._people, self._budgets = bodies, signing_in, people, budgets
        self._erasing, self._engine, self._store = erasing, engine, store

    @Endpoint("GET", "/api/account/export", who=READ_FRESH, audit="account.export", files=True)
    async def export_account(self, request: Request) -> ASGIApp:
        """Return all data of the caller, as a ZIP archive. Without a sign-in it has no account and no secrets."""
        access = access_of(request)
        account = await self._signing_in.own(request) if access.via == "sign_in" else None
        archives = importlib.import_module(".archive", __package__)  # needs zipfile: 1 MB
        archive: Archive = archives.Archive(self._store, access.owner, account)
        return StreamingResponse(
            _while_allowed(archive.pieces(), access),
            media_type="application/zip",
            headers={**PRIVATE, "content-disposition": 'attachment; filename="holdfast-account.zip"'},
        )

    @Endpoint(
        "POST",
        "/api/account/import",
        who=CHAT,
        audit="account.import",
        query={"dry_run": "true: only count what would be brought in, and what is wrong"},
        answers={
            400: "not an archive, or something in it is not valid: nothing was brought in",
            413: "too large",
            429: "the owner has stored as much as it may: nothing was brought in",
        },
    )
    async def import_account(self, request: Request) -> ASGIApp:
        """Import the chats and comparisons of an archive, with new ids: all or nothing. Nothing is overwritten."""
        dry_run = _flag(request, "dry_run")
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
            await receive(request, file, LARGEST_ARCHIVE)
            access = access_of(request)
            check_room = partial(self._budgets.require_room, access)
            make = importlib.import_module(".bringing_in", __package__).Importing
            importing: Importing = await asyncio.to_thread(
                partial(make, file, self._store, access.owner, self._engine.now, check_room=check_room)
            )
            result = await importing.bring_in(dry_run=dry_run)
        for session in result.added:
            self._engine.touch(session.id, access.owner)
        counts = {name: getattr(result, name) for name in ("sessions", "comparisons", "known", "refused")}
        note_of(request).details = {name: str(count) for name, count in counts.items()} | {
            "dry_run": str(dry_run).lower()
        }
        return Json({**counts, "reason": result.reason or None})

    @Endpoint(
        "DELETE",
        "/api/account",
        who=PERSON_FRESH,
        audit="account.delete",
        takes=AccountDeletion,
        answers={
            202: "the account is deleted; its data is being deleted",
            401: "the password is wrong",
            409: "no admin would be left",
            429: "too many tries",
        },
    )
    async def delete_account(self, request: Request) -> ASGIApp:
        """Delete the caller's account at once, and all data of the caller in the background."""
        given = decode(await self._bodies.read(request) or b"{}", AccountDeletion)
        account = await self._signing_in.own(request)
        note_of(request).target = account.id
        if account.body.password:
            await self._signing_in.check_password(request, account, given.password)
        erasure = await self._erasing.begin(account)
        taken = cookie("", secure=self._signing_in.is_secure(request), keep=None)
        return Json(shown_erasure(erasure), status_code=202, headers={"set-cookie": taken})

    @Endpoint("GET", "/api/admin/erasures/{erasure_id}", who=ADMIN, audit="erasure.read")
    async def get_erasure(self, request: Request) -> ASGIApp:
        """Return the progress of an erasure."""
        if (found := await self._erasing.get(request.path_params["erasure_id"])) is None:
            raise NotFound("There is no such erasure, or it ended more than a month ago.")
        return Json(shown_erasure(found))


async def _while_allowed(pieces: AsyncIterator[bytes], access: Access) -> AsyncIterator[bytes]:
    async for piece in pieces:
        if access.is_revoked:
            raise access.end_error()
        yield piece


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise BadRequest(f"{name} is true or false.", param=name)
    return text == "true"
