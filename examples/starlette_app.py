"""Your own generator in plain Starlette: a run that lives by its client. Try it: uvicorn starlette_app:app"""

import asyncio
from collections.abc import AsyncGenerator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast import Engine, HoldfastError
from holdfast.asgi import events, on_error

engine = Engine()


async def count(to: int) -> AsyncGenerator[str]:
    for number in range(1, to + 1):
        yield f"{number} "
        await asyncio.sleep(0.05)


async def watch(request: Request) -> Response:
    run = await engine.start(count(to=100), lifetime="attached")  # leaving stops it, and closes the generator
    return events(run, request)


async def status(request: Request) -> Response:
    run = await engine.open(request.path_params["run_id"])
    return JSONResponse({"status": run.status, "text": run.text})


app = Starlette(
    routes=[Route("/count", watch), Route("/runs/{run_id}", status)],
    exception_handlers={HoldfastError: on_error},
)
