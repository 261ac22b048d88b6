"""A page that follows a story with EventSource, across reloads and restarts. Try it: uvicorn page_app:app"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated

from fastapi import Cookie, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse

from holdfast import Engine, Event, HoldfastError, Run, RunStarted, Settled, Text
from holdfast.asgi import events, on_error


async def story() -> AsyncGenerator[str]:
    """Stand in for your model or agent."""
    for number in range(1, 101):
        yield f"{number} "
        await asyncio.sleep(0.1)


engine = Engine("sqlite:./data")  # keeps runs, and settles what a dead process left
app = FastAPI(lifespan=engine.lifespan)
app.add_exception_handler(HoldfastError, on_error)


def frame(seq: int, event: Event) -> dict[str, object] | None:
    """Return what the page is sent for an event: JSON, or None for nothing."""
    match event:
        case RunStarted():
            return {"begins": True}
        case Text(text):
            return {"text": text}
        case Settled(settlement):
            return {"outcome": settlement.outcome}
        case _:
            return None


def current_visitor(visitor: Annotated[str, Cookie()] = "") -> str:
    """Stands for your sign-in: the secret that this browser got with the page."""
    if not visitor:
        raise HTTPException(401)
    return visitor


Visitor = Annotated[str, Depends(current_visitor)]


async def find(key: str, owner: str) -> Run:
    run = await engine.find(key, owner=owner)
    if run is None:
        raise HTTPException(404, "There is no such story.")
    return run


@app.get("/")
async def page(visitor: Annotated[str, Cookie()] = "") -> Response:
    response = FileResponse(Path(__file__).with_name("page.html"))
    response.set_cookie("visitor", visitor or secrets.token_urlsafe(), httponly=True, samesite="lax")
    return response


@app.post("/stories/{key}", status_code=202)
async def start(key: str, owner: Visitor) -> dict[str, str]:
    run = await engine.start(story(), owner=owner, key=key)  # once for each key
    return {"id": run.id, "status": run.status}


@app.get("/stories/{key}/events")
async def read(key: str, owner: Visitor, request: Request) -> Response:
    return events(await find(key, owner), request, frame=frame)


@app.post("/stories/{key}/stop")
async def stop(key: str, owner: Visitor) -> dict[str, str | bool]:
    settlement, by_this_call = await (await find(key, owner)).stop()
    return {"outcome": settlement.outcome, "stopped_now": by_this_call}
