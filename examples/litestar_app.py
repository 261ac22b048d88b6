"""Runs of your own generator in Litestar, each for its owner. Try it: uvicorn litestar_app:app"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from litestar import Litestar, Request, asgi, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult
from litestar.types import Receive, Scope, Send
from starlette.applications import Starlette

from holdfast import Engine
from holdfast.starlette import starlette_routes

USERS = {"Bearer token-of-ann": "ann", "Bearer token-of-bob": "bob"}  # stands for your sign-in
engine = Engine("sqlite:./data")


class SignIn(AbstractAuthenticationMiddleware):
    async def authenticate_request(self, connection: ASGIConnection[Any, Any, Any, Any]) -> AuthenticationResult:
        user = USERS.get(connection.headers.get("authorization", ""))
        if user is None:
            raise NotAuthorizedException
        return AuthenticationResult(user=user, auth=None)


async def count(to: int) -> AsyncGenerator[str]:
    for number in range(1, to + 1):
        yield f"{number} "
        await asyncio.sleep(0.05)


@post("/counts", status_code=202)
async def counting(request: Request[str, None, Any], to: int = 100) -> dict[str, str]:
    run = await engine.start(count(to), owner=request.user)
    return {"id": run.id}


routes = Starlette(routes=starlette_routes(engine, owner=lambda request: request.user))  # whom SignIn has found


@asgi("/runs", is_mount=True)
async def runs(scope: Scope, receive: Receive, send: Send) -> None:
    whole = scope["raw_path"].decode()  # `path` lacks the prefix of a mount
    await routes({**scope, "path": whole}, receive, send)


app = Litestar([counting, runs], middleware=[SignIn], lifespan=[engine.lifespan])
