"""`/api/presets/export` and `/api/presets/import`: presets and prompts as one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ, Access
from ....errors import HoldfastError, ModelNotFound
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...kit.request import Bodies, convert, decode
from ...sources.models import AllowedModels
from .kinds import KeptUnderName, Preset, SavedPrompt
from .library import Library, NameInUse

K = TypeVar("K", bound=KeptUnderName)
FORMAT: Literal["holdfast-presets"] = "holdfast-presets"


class PresetsFile(msgspec.Struct, frozen=True):
    """An export of presets and prompts. Entries are read one by one, so that a bad one does not spoil the others."""

    format: Literal["holdfast-presets"]
    version: Literal[1]
    presets: list[dict[str, Any]] = []
    prompts: list[dict[str, Any]] = []


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one entry of a file."""

    kind: str
    name: str
    result: Literal["added", "known", "refused"]
    """Known: the caller has it already, with the same content."""
    why: str = ""
    """Why it was refused; or what is missing here for it to work."""


class TransferApi(Feature):
    """Presets and prompts as a file."""

    def __init__(
        self, bodies: Bodies, presets: Library[Preset], prompts: Library[SavedPrompt], models: AllowedModels
    ) -> None:
        self._bodies, self._presets, self._prompts, self._models = bodies, presets, prompts, models

    @Endpoint("GET", "/api/presets/export", who=READ)
    async def export_presets(self, request: Request) -> ASGIApp:
        """Return the caller's own presets and prompts as a file, without their groups."""
        access = access_of(request)
        return Json(
            {
                "format": FORMAT,
                "version": 1,
                "presets": await _written(self._presets, access),
                "prompts": await _written(self._prompts, access),
            },
            headers={"content-disposition": 'attachment; filename="holdfast-presets.json"'},
        )

    @Endpoint("POST", "/api/presets/import", who=CHAT, takes=PresetsFile, answers={400: "not such a file"})
    async def import_presets(self, request: Request) -> ASGIApp:
        """Add the presets and prompts of a file. What the caller has already under a name is never replaced."""
        file, access = decode(await self._bodies.read(request), PresetsFile), access_of(request)
        taken = [
            *[await self._take(self._presets, Preset, access, entry) for entry in file.presets],
            *[await self._take(self._prompts, SavedPrompt, access, entry) for entry in file.prompts],
        ]
        return Json({"entries": taken, "added": sum(each.result == "added" for each in taken)})

    async def _take(self, library: Library[K], kind: type[K], access: Access, entry: dict[str, Any]) -> Taken:
        """Add one entry, and return what became of it."""
        match entry:
            case {"name": str(name)}:
                pass
            case _:
                name = ""
        try:
            body = replace(convert(entry, kind), group="")
            await library.add(access, body)
        except NameInUse as error:
            if any(
                each.stored.body == replace(body, group=each.stored.body.group) for each in await library.of(access)
            ):
                return Taken(kind=kind.noun, name=name, result="known")
            return Taken(kind=kind.noun, name=name, result="refused", why=str(error))
        except HoldfastError as error:
            return Taken(kind=kind.noun, name=name[:64], result="refused", why=str(error))
        return Taken(kind=kind.noun, name=name, result="added", why=await self._missing(access, body))

    async def _missing(self, access: Access, body: KeptUnderName) -> str:
        """Return what a preset needs and does not find here: it is kept all the same."""
        if isinstance(body, Preset) and body.model:
            try:
                await self._models.providers(access).find(body.model)
            except ModelNotFound as error:
                return str(error)
        return ""


async def _written(library: Library[K], access: Access) -> Sequence[dict[str, Any]]:
    """Return the caller's own as entries of a file."""
    own = [found.stored.body for found in await library.of(access) if found.is_own]
    return [{name: value for name, value in asdict(body).items() if name != "group"} for body in own]
