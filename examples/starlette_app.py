"""Runs of your own generator in Starlette, each for its owner. Try it: uvicorn starlette_app:app"""

import asyncio
from collections.abc import AsyncGenerator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast import Engine
from holdfast.asgi import events
from holdfast.starlette import starlette_routes

USERS = {"Bearer token-of-ann": "ann", "Bearer token-of-bob": "bob"}  # stands for your sign-in
engine = Engine("sqlite:./data")


def current_user(request: Request) -> str:
    user = USERS.get(request.headers.get("authorization", ""))
    if user is None:
        raise HTTPException(401)
    return user


async def count(to: int) -> AsyncGenerator[str]:
    for number in range(1, to + 1):
        yield f"{number} "
        await asyncio.sleep(0.05)


def counting(request: Request) -> AsyncGenerator[str]:
    return count(int(request.query_params.get("to", "100")))


async def watch(request: Request) -> Response:
    """Count for one client: when it leaves, the run is stopped and the generator is closed."""
    run = await engine.start(count(to=100), owner=current_user(request), lifetime="attached")
    return events(run, request)


app = Starlette(
    routes=[Route("/count", watch), *starlette_routes(engine, owner=current_user, start=counting)],
    lifespan=engine.lifespan,
)
