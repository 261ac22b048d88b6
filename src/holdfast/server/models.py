"""Models, and who is asking."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..errors import ModelNotFound
from ..ids import new_id
from .context import Endpoint, Parts, is_admin, owner_of
from .errors import Json
from .keys import LOCAL


async def openai_models(parts: Parts, request: Request) -> Response:
    """List the models in OpenAI's shape, or in Anthropic's for a client that says it speaks that."""
    names = await parts.providers.names()
    if "anthropic-version" in request.headers:
        return Json(_anthropic_list(names), headers={"x-request-id": new_id("req")})
    listed = [_openai(name) for name in names]
    return Json({"object": "list", "data": listed}, headers={"x-request-id": new_id("req")})


async def openai_model(parts: Parts, request: Request) -> Response:
    """Return one model in OpenAI's shape."""
    name = request.path_params["model"]
    provider, model = await parts.providers.find(name)
    if model not in await provider.list_models():
        raise ModelNotFound(f"There is no model {name!r}.")
    return Json(_openai(f"{provider.name}/{model}"), headers={"x-request-id": new_id("req")})


def _openai(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": name.partition("/")[0]}


def _anthropic_list(names: list[str]) -> dict[str, object]:
    """Return all models at once: there is no second page."""
    created = "1970-01-01T00:00:00Z"
    listed = [{"type": "model", "id": name, "display_name": name, "created_at": created} for name in names]
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": listed, "has_more": False, "first_id": first, "last_id": last}


async def models(parts: Parts, request: Request) -> Response:
    """List the models, the one that a session gets which names none, and which providers answer."""
    states = await parts.providers.states()
    listed = [
        {"id": f"{state.name}/{name}", "provider": state.name, "name": name}
        for state in states
        for name in state.models
    ]
    default = parts.configured.default_model or await parts.providers.first()
    return Json({"models": listed, "default": default, "providers": states})


async def me(parts: Parts, request: Request) -> Response:
    """Say who is asking."""
    owner = owner_of(request)
    return Json({"owner": owner, "local": owner == LOCAL, "admin": is_admin(request)})


ENDPOINTS = [
    Endpoint("GET", "/v1/models", openai_models, answers={200: "the models"}),
    Endpoint("GET", "/v1/models/{model:path}", openai_model, answers={200: "the model", 404: "no such model"}),
    Endpoint("GET", "/api/models", models, answers={200: "the models, the default, and the providers"}),
    Endpoint("GET", "/api/me", me, answers={200: "who is asking"}),
]
