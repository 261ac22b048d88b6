"""The OpenAPI description, generated from the table of the routes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ... import __version__
from ...access import ANYONE, READ
from .feature import Endpoint, Feature, endpoints_of
from .http.errors import Json

_PARAMETER = re.compile(r"{(\w+)(:path)?}")
_ID = re.compile(r"{(\w+_id)}")
_REF = "#/components/schemas/{name}"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "string"},
                "param": {"type": ["string", "null"]},
            },
        }
    },
}

EVENT = {
    "description": "One event of the stream. docs/protocol/06-events.md describes its data.",
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
}


def describe(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description."""
    structs = [endpoint.takes for endpoint in endpoints if endpoint.takes is not None]
    schemas, components = msgspec.json.schema_components(structs, ref_template=_REF)
    bodies = dict(zip(structs, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, bodies)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": version},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": ERROR, "Event": EVENT},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, bodies: dict[type[msgspec.Struct], dict[str, Any]]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": _summary(endpoint),
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {
            str(status): _response(endpoint, status, description) for status, description in _answers(endpoint).items()
        },
    }
    if endpoint.who is not ANYONE:
        described["security"] = [{"key": []}]
        described["x-rule"] = msgspec.structs.asdict(endpoint.who)
    if endpoint.takes is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": bodies[endpoint.takes]}},
        }
    return described


def _answers(endpoint: Endpoint) -> dict[int, str]:
    """Return the responses of an endpoint, including those of its access rule, its query, its body and its path."""
    answers = {400: "a bad query"} if endpoint.is_own or endpoint.query else {}
    if nouns := [name.removesuffix("_id").replace("_", " ") for name in _ID.findall(endpoint.path)]:
        answers[404] = f"no such {' or '.join(nouns)}"
    if endpoint.takes is not None:
        answers |= {400: "bad input", 413: "the body is too large"}
    if endpoint.who is not ANYONE:
        answers |= {401: "no valid key or sign-in", 403: "the caller's role or key does not allow it"}
    if all(status >= 400 for status in endpoint.answers):
        answers[204 if endpoint.method == "DELETE" else 200] = _summary(endpoint)
    return {**answers, **endpoint.answers}


def _summary(endpoint: Endpoint) -> str:
    return (endpoint.handler.__doc__ or "").strip().split("\n")[0]


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name, _ in _PARAMETER.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}
        for name, description in endpoint.query.items()
    ]


_ERROR_AS_TEXT = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
"""An error in the shape of Ollama's API."""


def _response(endpoint: Endpoint, status: int, description: str) -> dict[str, Any]:
    if status == 204:
        return {"description": description}
    if status >= 400:
        schema: dict[str, Any] = {"$ref": _REF.format(name="Error")}
        if endpoint.ollama:
            schema = {"anyOf": [schema, _ERROR_AS_TEXT]}
        return {"description": description, "content": {"application/json": {"schema": schema}}}
    if endpoint.files:
        return {"description": description, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
    content: dict[str, Any] = {"application/json": {"schema": {"type": "array" if endpoint.lists else "object"}}}
    if endpoint.streams and endpoint.ollama:
        content["application/x-ndjson"] = {"schema": {"type": "string"}}
    if endpoint.streams:
        content["text/event-stream"] = {"schema": {"$ref": _REF.format(name="Event")}}
    return {"description": description, "content": content}


class Description(Feature):
    """The description of other features. It is made when it is first asked for: nothing else here takes as long."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = features
        self._description: dict[str, Any] | None = None

    @Endpoint("GET", "/openapi.json", who=READ)
    async def openapi_json(self, request: Request) -> ASGIApp:
        """Return the OpenAPI description."""
        if self._description is None:
            self._description = await asyncio.to_thread(describe, endpoints_of([*self._features, self]), __version__)
        return Json(self._description)
