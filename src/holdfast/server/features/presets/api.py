"""`/api/presets` and `/api/prompts`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, READ
from ....store import Store
from ....store.documents import Documents, Stored
from ....wires import native
from ...kit.caller import access_of, owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json, NoContent
from ...kit.request import Bodies, decode
from ...sources.models import AllowedModels
from .kinds import KeptUnderName, Preset, SavedPrompt, variables_in
from .library import Found, Library

K = TypeVar("K", bound=KeptUnderName)


class ChosenDefault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The preset of a person's new chats. None for none."""

    preset: str | None


class _Calls(Feature, Generic[K]):
    """The calls for one kind."""

    def __init__(self, bodies: Bodies, library: Library[K], kind: type[K]) -> None:
        self._bodies, self._library, self._kind = bodies, library, kind

    async def _list(self, request: Request) -> list[dict[str, Any]]:
        return [await self._shown(found) for found in await self._library.of(access_of(request))]

    async def _shown(self, found: Found[K]) -> dict[str, Any]:
        stored = found.stored
        return {
            "id": stored.id,
            **msgspec.structs.asdict(stored.body),
            "group": stored.body.group or None,
            "group_name": await self._library.group_name(stored.body.group),
            "own": found.is_own,
            "by": found.by or None,
            "created_at": native.moment(stored.created_at),
            "updated_at": native.moment(stored.updated_at),
        }

    async def _add(self, request: Request, path: str) -> ASGIApp:
        stored = await self._library.add(access_of(request), await self._read(request))
        shown = await self._shown(Found(stored))
        return Json(shown, status_code=201, headers={"location": f"{path}/{stored.id}"})

    async def _replace(self, request: Request, id: str) -> ASGIApp:
        stored = await self._library.replace(access_of(request), id, await self._read(request))
        return Json(await self._shown(Found(stored)))

    async def _read(self, request: Request) -> K:
        return decode(await self._bodies.read(request), self._kind)

    async def _delete(self, request: Request, id: str) -> ASGIApp:
        await self._library.delete(owner_of(request), id)
        return NoContent()


_BAD = {404: "no such group or model", 409: "the name is taken, or there are too many"}
_PRESET, _PROMPT = "/api/presets/{preset_id}", "/api/prompts/{prompt_id}"


class PresetsApi(_Calls[Preset]):
    """Presets, and the one of new chats."""

    def __init__(self, bodies: Bodies, library: Library[Preset], models: AllowedModels, store: Store) -> None:
        super().__init__(bodies, library, Preset)
        self._models, self._defaults = models, Documents(store, "default_preset", ChosenDefault)

    async def _read(self, request: Request) -> Preset:
        preset = await super()._read(request)
        if preset.model:
            await self._models.providers(access_of(request)).find(preset.model)
        return preset

    @Endpoint("GET", "/api/presets", who=READ)
    async def list_presets(self, request: Request) -> ASGIApp:
        """List presets: the caller's by name, then those that others share with the caller's groups."""
        listed = await self._list(request)
        chosen: Stored[ChosenDefault] | None = await self._defaults.get(owner_of(request))
        id = None if chosen is None else chosen.body.preset
        default = id if any(each["id"] == id for each in listed) else None
        groups = await self._library.groups(access_of(request))
        return Json({"presets": listed, "default": default, "groups": groups})

    @Endpoint("POST", "/api/presets", who=CHAT, takes=Preset, answers={201: "the preset", **_BAD})
    async def add_preset(self, request: Request) -> ASGIApp:
        """Create a preset."""
        return await self._add(request, "/api/presets")

    @Endpoint("PUT", "/api/presets/default", who=CHAT, takes=ChosenDefault, answers={404: "no such preset"})
    async def set_default(self, request: Request) -> ASGIApp:
        """Choose the preset of new chats."""
        chosen = decode(await self._bodies.read(request), ChosenDefault)
        if chosen.preset is not None:
            await self._library.named(access_of(request), chosen.preset)
        await self._defaults.exchange(owner_of(request), chosen, owner=owner_of(request))
        return Json(chosen)

    @Endpoint("PUT", _PRESET, who=CHAT, takes=Preset, answers=_BAD)
    async def replace_preset(self, request: Request) -> ASGIApp:
        """Replace a preset of the caller. Chats that were set up with it stay as they are."""
        return await self._replace(request, request.path_params["preset_id"])

    @Endpoint("DELETE", _PRESET, who=CHAT, audit="preset.delete")
    async def delete_preset(self, request: Request) -> ASGIApp:
        """Delete a preset of the caller. Chats that were set up with it stay as they are."""
        return await self._delete(request, request.path_params["preset_id"])


class PromptsApi(_Calls[SavedPrompt]):
    """Prompts."""

    def __init__(self, bodies: Bodies, library: Library[SavedPrompt]) -> None:
        super().__init__(bodies, library, SavedPrompt)

    async def _shown(self, found: Found[SavedPrompt]) -> dict[str, Any]:
        return {**await super()._shown(found), "variables": variables_in(found.stored.body.text)}

    @Endpoint("GET", "/api/prompts", who=READ)
    async def list_prompts(self, request: Request) -> ASGIApp:
        """List prompts: the caller's by name, then those that others share with the caller's groups."""
        return Json({"prompts": await self._list(request)})

    @Endpoint("POST", "/api/prompts", who=CHAT, takes=SavedPrompt, answers={201: "the prompt", **_BAD})
    async def add_prompt(self, request: Request) -> ASGIApp:
        """Create a prompt."""
        return await self._add(request, "/api/prompts")

    @Endpoint("PUT", _PROMPT, who=CHAT, takes=SavedPrompt, answers=_BAD)
    async def replace_prompt(self, request: Request) -> ASGIApp:
        """Replace a prompt of the caller."""
        return await self._replace(request, request.path_params["prompt_id"])

    @Endpoint("DELETE", _PROMPT, who=CHAT, audit="prompt.delete")
    async def delete_prompt(self, request: Request) -> ASGIApp:
        """Delete a prompt of the caller."""
        return await self._delete(request, request.path_params["prompt_id"])
