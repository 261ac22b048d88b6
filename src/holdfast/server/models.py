"""Models, and who is asking."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ..errors import ModelNotFound
from ..ids import new_id
from .context import Endpoint, Parts, owner_of
from .errors import Json
from .keys import LOCAL


async def openai_models(parts: Parts, request: Request) -> Response:
    """List the models in OpenAI's shape."""
    listed = [_openai(name) for name in await parts.providers.names()]
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


async def models(parts: Parts, request: Request) -> Response:
    """List the models, the one that a session gets which names none, and which providers answer."""
    states = await parts.providers.states()
    listed = [
        {"id": f"{state.name}/{name}", "provider": state.name, "name": name}
        for state in states
        for name in state.models
    ]
    default = parts.settings.default_model or (listed[0]["id"] if listed else None)
    return Json({"models": listed, "default": default, "providers": states})


async def me(parts: Parts, request: Request) -> Response:
    """Say who is asking."""
    owner = owner_of(request)
    return Json({"owner": owner, "local": owner == LOCAL})


ENDPOINTS = [
    Endpoint("GET", "/v1/models", openai_models, answers={200: "the models"}),
    Endpoint("GET", "/v1/models/{model:path}", openai_model, answers={200: "the model", 404: "no such model"}),
    Endpoint("GET", "/api/models", models, answers={200: "the models, the default, and the providers"}),
    Endpoint("GET", "/api/me", me, answers={200: "who is asking"}),
]
