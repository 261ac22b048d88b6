"""`POST /api/imports`: adds the chats of another program's export, with progress and a report."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from typing import IO

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from ....access import CHAT, Access
from ....concurrency.tasks import OwnedTasks
from ....engine.core import Core
from ....errors import Conflict, HoldfastError
from ....store import Store
from ....wires import sse
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import PRIVATE, Json
from ...kit.receiving import receive
from ...kit.request import wants_events
from ..budgets.budgets import Budgets
from .others import ForeignImport, Report

LARGEST_EXPORT = 2 * 1024 * 1024 * 1024
"""Maximum size of an export, in bytes. It is received into a temporary file."""
MOST_AT_ONCE = 2
"""Maximum number of imports of all owners at the same time. Others wait when their upload has arrived."""
_SECONDS_BETWEEN = 0.25
_HEADERS = {**PRIVATE, "x-accel-buffering": "no"}


class ImportRunning(Conflict):
    """The owner imports an export already."""

    code = "import_running"
    message = "An import of yours is running. Wait for its end, then try again."


class ImportStopped(HoldfastError):
    """The import did not come to its end."""

    code = "import_stopped"
    status = 503
    type = "server_error"
    message = "The import was stopped by the server. What was added stays: import the file again for the rest."


class ImportFailed(msgspec.Struct, frozen=True):
    """Why an import ended early."""

    code: str
    message: str


class _Going:
    """An import that goes on, whether its client waits for it or not."""

    def __init__(self, importing: ForeignImport) -> None:
        self._importing = importing
        self.error: HoldfastError | None = None
        self.ended = asyncio.Event()

    @property
    def report(self) -> Report:
        """What became of the chats until now."""
        return self._importing.report

    async def run(self, file: IO[bytes], places: asyncio.Semaphore) -> None:
        """Import the whole file as soon as there is a place."""
        try:
            async with places:
                async for _ in self._importing.add_all(file):
                    pass
        except HoldfastError as error:
            self.error = error
        except BaseException:
            self.error = ImportStopped()
            raise
        finally:
            self.ended.set()

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield the report while it grows, and at the end."""
        sent = b""
        while not self.ended.is_set():
            progress = msgspec.json.encode(self.report)
            yield _frame("import.progress", progress) if progress != sent else sse.HEARTBEAT
            sent = progress
            try:
                async with asyncio.timeout(_SECONDS_BETWEEN if progress != sent else 1.0):
                    await self.ended.wait()
            except TimeoutError:
                continue
        if self.error is None:
            yield _frame("import.ended", msgspec.json.encode({"report": self.report}))
        else:
            failed = ImportFailed(self.error.code, str(self.error))
            yield _frame("import.failed", msgspec.json.encode({"report": self.report, "error": failed}))


def _frame(event: str, payload: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), payload)


class ImportsApi(Feature):
    """Imports of the exports of other programs."""

    def __init__(self, budgets: Budgets, engine: Core, store: Store) -> None:
        self._budgets, self._engine, self._store = budgets, engine, store
        self._tasks = OwnedTasks("imports")
        self._owners: set[str] = set()
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    @Endpoint(
        "POST",
        "/api/imports",
        who=CHAT,
        audit="chats.import",
        answers={
            400: "the file has no chats, or cannot be read",
            409: "another import is running",
            413: "too large",
            429: "the owner has stored as much as it may",
        },
    )
    async def import_export(self, request: Request) -> ASGIApp:
        """Import the chats of ChatGPT's, Open WebUI's or LibreChat's export: each whole or not at all, none twice."""
        access = access_of(request)
        self._reserve(access.owner)
        try:
            file = await asyncio.to_thread(tempfile.TemporaryFile)  # it has no name: no crash leaves it behind
            try:
                await receive(request, file, LARGEST_EXPORT)
                await asyncio.to_thread(file.seek, 0)
            except BaseException:
                file.close()
                raise
        except BaseException:
            self._owners.discard(access.owner)
            raise
        going = _Going(self._importing(access))
        self._tasks.start(self._run(going, file, access.owner))
        if wants_events(request):
            return StreamingResponse(going.frames(), media_type="text/event-stream", headers=_HEADERS)
        await going.ended.wait()
        if going.error is not None:
            raise going.error
        return Json(going.report)

    def _reserve(self, owner: str) -> None:
        if owner in self._owners:
            raise ImportRunning
        self._owners.add(owner)

    def _importing(self, access: Access) -> ForeignImport:
        async def check_room() -> None:
            if access.is_revoked:
                raise access.end_error()
            await self._budgets.require_room(access)

        return ForeignImport(
            self._store,
            access.owner,
            self._engine.now,
            check_room,
            lambda session: self._engine.touch(session.id, session.owner),
        )

    async def _run(self, going: _Going, file: IO[bytes], owner: str) -> None:
        try:
            await going.run(file, self._places)
        finally:
            self._owners.discard(owner)
            file.close()

    async def close(self) -> None:
        """End the imports. What was added stays, and the rest is added when the file is imported again."""
        await self._tasks.cancel()
