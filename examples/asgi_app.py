"""Runs beside an ASGI app of any kind, each for its owner. Try it: uvicorn asgi_app:app"""

import asyncio
from collections.abc import AsyncGenerator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from holdfast import Engine
from holdfast.starlette import starlette_routes

USERS = {"Bearer token-of-ann": "ann", "Bearer token-of-bob": "bob"}  # stands for your sign-in
engine = Engine("sqlite:./data")


def current_user(request: Request) -> str:
    return USERS.get(request.headers.get("authorization", ""), "")  # "" is answered with 401


async def count(to: int) -> AsyncGenerator[str]:
    for number in range(1, to + 1):
        yield f"{number} "
        await asyncio.sleep(0.05)


def counting(request: Request) -> AsyncGenerator[str]:
    return count(int(request.query_params.get("to", "100")))


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands for your app."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"Hello!"})


runs = Starlette(routes=starlette_routes(engine, owner=current_user, start=counting), lifespan=engine.lifespan)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    is_ours = scope["type"] == "lifespan" or scope["path"].startswith("/runs")
    await (runs if is_ours else hello)(scope, receive, send)
