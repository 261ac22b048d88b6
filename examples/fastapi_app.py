"""Your own generator in FastAPI, with detach, resume, stop and one settlement. Try it: uvicorn fastapi_app:app"""

import asyncio
from collections.abc import AsyncGenerator

from fastapi import FastAPI, Request, Response

from holdfast import Engine, HoldfastError
from holdfast.asgi import events, on_error


async def story(subject: str) -> AsyncGenerator[str]:
    """Stand in for your model or agent: anything that yields text will do."""
    for word in f"Once upon a time there was {subject}. The end.".split():
        yield word + " "
        await asyncio.sleep(0.05)


app = FastAPI()
app.add_exception_handler(HoldfastError, on_error)  # an unknown run is 404, and so on
engine = Engine()  # docs/embedding.md shows how runs survive kill -9, with open_store() and keep=True


@app.post("/runs", status_code=202)
async def start(subject: str) -> dict[str, str]:
    run = await engine.start(story(subject))
    return {"id": run.id}


@app.get("/runs/{run_id}/events")
async def read(run_id: str, request: Request) -> Response:
    return events(await engine.open(run_id), request)  # resumes after ?after= or Last-Event-ID


@app.post("/runs/{run_id}/stop")
async def stop(run_id: str) -> dict[str, str | bool]:
    settlement, by_this_call = await (await engine.open(run_id)).stop(by="user")
    return {"outcome": settlement.outcome, "text": settlement.text, "stopped_now": by_this_call}
