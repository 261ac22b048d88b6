"""A page that follows a story with EventSource, across reloads and restarts. Try it: uvicorn page_app:app"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse

from holdfast import Engine, Event, HoldfastError, Run, RunStarted, Settled, Text, open_store
from holdfast.asgi import events, on_error


async def story() -> AsyncGenerator[str]:
    """Stand in for your model or agent."""
    for number in range(1, 101):
        yield f"{number} "
        await asyncio.sleep(0.1)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    store = await asyncio.to_thread(open_store, "sqlite:./data")  # waits for the disk, so not on the event loop
    async with Engine(store) as app.state.engine:  # settles what a dead process left
        yield
    await store.close()


app = FastAPI(lifespan=lifespan)
app.add_exception_handler(HoldfastError, on_error)


def frame(seq: int, event: Event) -> dict[str, Any] | None:
    """Return what the page is sent for an event: JSON, or None for nothing."""
    match event:
        case RunStarted():
            return {"begins": True}
        case Text(text):
            return {"text": text}
        case Settled(settlement):
            return {"outcome": settlement.outcome}
    return None


async def find(request: Request, key: str) -> Run:
    run: Run | None = await request.app.state.engine.find(key)
    if run is None:
        raise HTTPException(404, "There is no such story.")
    return run


@app.get("/")
async def page() -> Response:
    return FileResponse(Path(__file__).with_name("page.html"))


@app.post("/stories/{key}", status_code=202)
async def start(key: str, request: Request) -> dict[str, str]:
    run = await request.app.state.engine.start(story(), key=key, keep=True)  # once for each key
    return {"id": run.id, "status": run.status}


@app.get("/stories/{key}/events")
async def read(key: str, request: Request) -> Response:
    return events(await find(request, key), request, frame=frame)


@app.post("/stories/{key}/stop")
async def stop(key: str, request: Request) -> dict[str, str | bool]:
    settlement, by_this_call = await (await find(request, key)).stop(by="user")
    return {"outcome": settlement.outcome, "stopped_now": by_this_call}
