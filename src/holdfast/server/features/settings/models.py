"""`/v1/models`, `/api/models` and `/api/me`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import LOCAL, ME, READ
from ....asks import OnBreak
from ....ids import full_name, new_id
from ....upstreams import FoundModel, Provider, Providers, ProviderState
from ....upstreams.efforts import efforts_of
from ....upstreams.facts import facts_of
from ...kit.caller import access_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import Json
from ...sources.breaks.on_break import OnBreaks
from ...sources.models import AllowedModels


class Listed(msgspec.Struct, frozen=True):
    """A model of the list. A demo model is for trying things out: scripted answers, a tiny built-in model."""

    id: str
    provider: str
    name: str
    demo: bool
    local: bool = False
    """Whether it runs on a machine of the operator: then it may read a long prompt for minutes."""
    on_break: OnBreak = "settle"
    """What is done if a response breaks off in a chat that does not say it."""
    window: int | None = None
    """Tokens that a prompt and its answer have together; None if nobody has said."""
    sees: bool | None = None
    """Whether it takes pictures; None if nobody has said."""
    efforts: tuple[str, ...] = ()
    """The values of `reasoning_effort` that it takes."""
    files: bool = False
    """Whether it is an agent with files."""


ALL = {"all": "true for the demo models too, if a real provider lists a model"}


class ModelsApi(Feature):
    """The models that the caller may use, and who the caller is."""

    def __init__(self, models: AllowedModels, breaks: OnBreaks, currency: str) -> None:
        self._models, self._breaks, self._currency = models, breaks, currency

    @Endpoint("GET", "/v1/models", who=READ, query=ALL)
    async def openai_models(self, request: Request) -> ASGIApp:
        """List the models in OpenAI's shape, or in Anthropic's for its clients."""
        providers = self._models.providers(access_of(request))
        default = await self._models.default(access_of(request))
        listed = _listed(providers, await providers.states(), default, _is_all(request))
        if "anthropic-version" in request.headers:
            return Json(_anthropic_list(listed), headers={"x-request-id": new_id("req")})
        data = [_openai(model.id, demo=model.demo) for model in listed]
        data += [_openai(alias, owned_by=model) for alias, model in providers.aliases.items()]
        return Json({"object": "list", "data": data}, headers={"x-request-id": new_id("req")})

    @Endpoint("GET", "/v1/models/{model:path}", who=READ, answers={404: "no such model"})
    async def openai_model(self, request: Request) -> ASGIApp:
        """Return one model in OpenAI's shape, or in Anthropic's for its clients."""
        name = request.path_params["model"]
        provider, model, _ = await self._models.providers(access_of(request)).find(name)
        found = Listed(f"{provider.name}/{model}", provider.name, model, provider.demo)
        is_anthropic = "anthropic-version" in request.headers
        if name in self._models.providers(access_of(request)).aliases:
            found = msgspec.structs.replace(found, id=name)
        shown = _anthropic(found) if is_anthropic else _openai(found.id, demo=found.demo)
        return Json(shown, headers={"x-request-id": new_id("req")})

    @Endpoint("GET", "/api/models", who=READ, query=ALL)
    async def get_models(self, request: Request) -> ASGIApp:
        """List the models, the default model, the state of the providers, and the currency of the prices."""
        providers = self._models.providers(access_of(request))
        states = await providers.states()
        default = await self._models.default(access_of(request))
        listed = _listed(providers, states, default, _is_all(request))
        there = {provider.name: provider for provider in providers.all}  # others were removed meanwhile
        models = [await self._described(there[each.provider], each) for each in listed if each.provider in there]
        return Json({"models": models, "default": default, "providers": states, "currency": self._currency})

    async def _described(self, provider: Provider, model: Listed) -> Listed:
        """Return a model with where it runs, what is done if a response breaks off, and what is known of it."""
        facts = await facts_of(provider, model.name)
        return msgspec.structs.replace(
            model,
            local=bool(getattr(provider, "is_local", False)),
            on_break=self._breaks.in_chats(FoundModel(provider, model.name, full_name(model.provider, model.name))),
            efforts=efforts_of(provider, model.name),
            window=facts.window,
            sees=facts.sees,
            files=facts.files,
        )

    @Endpoint("GET", "/api/me", who=ME)
    async def me(self, request: Request) -> ASGIApp:
        """Return the caller: owner and rights."""
        access = access_of(request)
        return Json(
            {
                "owner": access.owner,
                "local": access.owner == LOCAL,
                "admin": access.admin,
                "name": access.name,
                "role": access.role,
                "via": access.via,
                "account": access.account or None,
                "scopes": sorted(access.scopes),
                "lacks_second_factor": access.lacks_factor,
            }
        )


def _listed(providers: Providers, states: Sequence[ProviderState], default: str | None, is_all: bool) -> list[Listed]:
    """Return the models. Demo models are left out if a real provider lists a model, unless all are requested.

    The default model is always included.
    """
    every = [Listed(f"{state.name}/{name}", state.name, name, state.demo) for state in states for name in state.models]
    hides = not is_all and providers.hides_demo({state.name: state.models for state in states})
    return [model for model in every if not (hides and model.demo) or model.id == default]


def _is_all(request: Request) -> bool:
    return request.query_params.get("all") == "true"


def _openai(name: str, *, demo: bool = False, owned_by: str = "") -> dict[str, object]:
    mark = {"holdfast": {"demo": True}} if demo else {}
    return {"id": name, "object": "model", "created": 0, "owned_by": (owned_by or name).partition("/")[0], **mark}


def _anthropic_list(models: Sequence[Listed]) -> dict[str, object]:
    """Return all models as one page."""
    first, last = (models[0].id, models[-1].id) if models else (None, None)
    return {"data": [_anthropic(model) for model in models], "has_more": False, "first_id": first, "last_id": last}


def _anthropic(model: Listed) -> dict[str, object]:
    name = f"{model.id} (demo)" if model.demo else model.id
    return {"type": "model", "id": model.id, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
