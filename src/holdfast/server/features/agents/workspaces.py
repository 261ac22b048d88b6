"""`/api/agents/{agent}/files`: what an agent has written for its owner, to look at and to save."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import READ
from ....agents.files import FolderEntry
from ....agents.tools import ToolError
from ....attachments.kinds import PICTURES, type_of
from ....errors import NotFound
from ....store import StoredFile
from ....wires import native
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, file_response
from ...sources.agents import AgentSources

MOST_SENT = 50_000_000
"""Maximum size of a file that is sent, in bytes."""
_PATH = {"path": "from the top of the folder on"}
_NOT = {404: "no such file, or no agent of the caller's with files"}


class Workspaces(Feature):
    """The folders of agents, as their owners see them. No link is followed, and nothing is ever run as a page."""

    def __init__(self, agents: AgentSources) -> None:
        self._agents = agents

    @Endpoint("GET", "/api/agents/{agent}/files", who=READ, query=_PATH, answers=_NOT)
    async def list_files(self, request: Request) -> ASGIApp:
        """List a folder of an agent's files."""
        files, path = self._agents.files(access_of(request), request.path_params["agent"]), _path(request)
        try:
            found = await asyncio.to_thread(files.entries, path)
        except ToolError as error:
            raise NotFound(str(error)) from None
        return Json({"path": path, "entries": [_shown(each) for each in found.entries], "more": found.more})

    @Endpoint("GET", "/api/agents/{agent}/files/content", who=READ, query=_PATH, answers=_NOT, files=True)
    async def read_agent_file(self, request: Request) -> ASGIApp:
        """Return a file of an agent. A browser shows only pictures, and saves all others."""
        files = self._agents.files(access_of(request), request.path_params["agent"])
        try:
            data = await asyncio.to_thread(files.load, _path(request), MOST_SENT)
        except ToolError as error:
            raise NotFound(str(error)) from None
        kind = type_of(data[:64]) or ""
        found = StoredFile(type=kind if kind in PICTURES else "application/octet-stream", data=data)
        return file_response(found, {"cache-control": "no-store"})


def _path(request: Request) -> str:
    return {"path": "", **request.query_params}["path"]


def _shown(entry: FolderEntry) -> dict[str, Any]:
    shown = msgspec.structs.asdict(entry)
    return {**shown, "changed_at": native.moment(entry.changed_at)}
