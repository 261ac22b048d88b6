"""Routes about the runs of an engine, for FastAPI.

app = FastAPI(lifespan=engine.lifespan)
app.include_router(run_routes(engine, owner=current_user))
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from ..asgi import Frame, on_error
from ..embedding.engine import Engine
from ..errors import HoldfastError
from ..events import Source
from ..starlette.calls import RunCalls, checked_owner, keep_body

__all__ = ["run_routes"]

_Key = Annotated[str | None, Header(alias="idempotency-key")]
"""The key of a request, in the description of the API."""


def run_routes(
    engine: Engine,
    *,
    owner: Callable[..., Any],
    start: Callable[..., Source] | None = None,
    frame: Frame | None = None,
    prefix: str = "/runs",
) -> APIRouter:
    """Return a router to start, list, show, read and stop runs. What belongs to another owner is 404.

    - `owner` is a dependency that returns who sends a request, or raises an `HTTPException`. An empty name is answered
      with 401.
    - `start` makes the source of a new run, such as an async generator function. `POST /runs` takes its parameters, as
      those of a path operation: from the query, the body, or `Depends`. Without it there is no `POST /runs`.
    - `frame` replaces the frames of the protocol in `GET /runs/{run_id}/events`.
    """
    _check(owner, start)
    calls, router = RunCalls(engine, frame), APIRouter(prefix=prefix, route_class=_Route, tags=["runs"])

    async def caller(name: Annotated[Any, Depends(owner)]) -> str:
        return checked_owner(name)

    Owner = Annotated[str, Depends(caller)]

    @router.get("", response_class=Response)
    async def list_runs(name: Owner, before: str | None = None) -> Response:
        return await calls.list(name, before)

    @router.get("/{run_id}", response_class=Response)
    async def show_run(run_id: str, name: Owner) -> Response:
        return await calls.show(name, run_id)

    @router.get("/{run_id}/events", response_class=Response)
    async def read_run(run_id: str, name: Owner, request: Request) -> Response:
        return await calls.read(name, run_id, request)

    @router.post("/{run_id}/stop", response_class=Response)
    async def stop_run(run_id: str, name: Owner) -> Response:
        return await calls.stop(name, run_id)

    if start is not None:
        made = Depends(_dependency(start))

        @router.post("", status_code=202, response_class=Response)
        async def start_run(name: Owner, source: Annotated[Any, made], request: Request, key: _Key = None) -> Response:
            return await calls.start(name, source, request)

    return router


def _check(owner: object, start: object) -> None:
    """Refuse what FastAPI would refuse without a word about what to pass."""
    if not callable(owner):
        raise TypeError("owner is a dependency that returns who sends a request, such as current_user")
    if start is not None and not callable(start):
        raise TypeError("start needs the function that makes a source: pass story, not story()")


def _dependency(make: Callable[..., Source]) -> Callable[..., Any]:
    """Return a dependency that makes a source. FastAPI would run an async generator function itself."""

    async def source(*args: Any, **kwargs: Any) -> Source:
        return make(*args, **kwargs)

    source.__signature__ = inspect.signature(make, eval_str=True)  # type: ignore[attr-defined]
    return source


class _Route(APIRoute):
    """Answers an error of the engine with its status, whatever handlers the app has."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        """Return the function that answers requests."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                await keep_body(request)
                return await handle(request)
            except HoldfastError as error:
                return await on_error(request, error)

        return answer
