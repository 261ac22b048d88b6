"""`/api/files`: send a file ahead of its message, and learn what a model reads of it."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT
from ....attachments.reading import Reader
from ....errors import BadRequest
from ....wires import native
from ...kit.caller import owner_of
from ...kit.chores import Chores
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies
from .uploads import SECONDS_KEPT, Uploads

_CLEAN_UP_EVERY = 600.0
_KEEP = ("true", "false")


class FilesApi(Feature):
    """Files that wait for their message."""

    def __init__(self, bodies: Bodies, reader: Reader, uploads: Uploads) -> None:
        self._bodies, self._reader, self._uploads = bodies, reader, uploads

    @Endpoint(
        "POST",
        "/api/files",
        who=CHAT,
        query={"name": "the name of the file", "keep": "true; or false to learn only what the file is"},
        answers={
            200: "what the file is",
            201: "the same, and it is kept for a day",
            400: "an empty or a damaged file",
            409: "too many files wait for a message",
            413: "too large",
            415: "a kind of file that no model can read",
        },
    )
    async def add_file(self, request: Request) -> ASGIApp:
        """Send a file as the body: its type, size, pages, and about how many tokens a model reads.

        A message of the next day can refer to it by its hash, as `holdfast-file:` and the hash.
        """
        query = {"name": "", "keep": "true", **request.query_params}
        if query["keep"] not in _KEEP:
            raise BadRequest("keep is true or false.", param="keep")
        data = await self._bodies.read_bytes(request)
        file = await self._reader.inspect(query["name"], data)
        shown = msgspec.structs.asdict(file)
        if query["keep"] == "false":
            return Json({**shown, "expires_at": None})
        stored = await self._uploads.keep(owner_of(request), file, data)
        return Json({**shown, "expires_at": native.moment(stored.updated_at + SECONDS_KEPT)}, status_code=201)

    @Endpoint("DELETE", "/api/files/{sha256}", who=CHAT, answers={404: "the caller has no such file without a message"})
    async def remove_file(self, request: Request) -> ASGIApp:
        """Remove a file that no message needs. Messages that have it keep it."""
        await self._uploads.remove(owner_of(request), request.path_params["sha256"])
        return NoContent()

    def begin(self, chores: Chores) -> None:
        """Delete files whose message never came."""
        chores.by_one_node("old uploads", _CLEAN_UP_EVERY, self._uploads.delete_old)
