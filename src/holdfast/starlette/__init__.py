"""Routes about the runs of an engine, for Starlette and every framework that can mount an ASGI app.

app = Starlette(routes=starlette_routes(engine, owner=current_user), lifespan=engine.lifespan)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..asgi import Frame, on_error
from ..embedding.engine import Engine
from ..errors import HoldfastError
from ..events import Source
from .calls import RunCalls, checked_owner, keep_body

__all__ = ["starlette_routes"]

RunCall = Callable[[str, Request], Awaitable[Response]]
"""Answers a request of an owner."""


def starlette_routes(
    engine: Engine,
    *,
    owner: Callable[[Request], str | Awaitable[str]],
    start: Callable[[Request], Source | Awaitable[Source]] | None = None,
    frame: Frame | None = None,
    prefix: str = "/runs",
) -> list[Route]:
    """Return routes to start, list, show, read and stop runs. What belongs to another owner is 404.

    - `owner` returns who sends a request, or raises an `HTTPException`. An empty name is answered with 401.
    - `start` makes the source of a new run of a request. Without it there is no `POST /runs`.
    - `frame` replaces the frames of the protocol in `GET /runs/{run_id}/events`.
    """
    calls = RunCalls(engine, frame)

    def route(path: str, method: str, call: RunCall) -> Route:
        async def answer(request: Request) -> Response:
            try:
                return await call(checked_owner(await _result(owner(request))), request)
            except HoldfastError as error:
                return await on_error(request, error)

        return Route(prefix + path, answer, methods=[method])

    async def list_runs(name: str, request: Request) -> Response:
        return await calls.list(name, request.query_params.get("before"))

    async def show(name: str, request: Request) -> Response:
        return await calls.show(name, request.path_params["run_id"])

    async def read(name: str, request: Request) -> Response:
        return await calls.read(name, request.path_params["run_id"], request)

    async def stop(name: str, request: Request) -> Response:
        return await calls.stop(name, request.path_params["run_id"])

    routes = [
        route("", "GET", list_runs),
        route("/{run_id}", "GET", show),
        route("/{run_id}/events", "GET", read),
        route("/{run_id}/stop", "POST", stop),
    ]
    if start is None:
        return routes

    async def begin(name: str, request: Request) -> Response:
        return await calls.start(name, await _source(start, request), request)

    return [*routes, route("", "POST", begin)]


async def _source(start: Callable[[Request], Source | Awaitable[Source]], request: Request) -> Any:
    await keep_body(request)
    return await _result(start(request))


async def _result(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given
