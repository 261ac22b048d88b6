"""An app as its author writes it from docs/embedding.md alone: read by pyright and mypy, and never run."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request, Response

from holdfast import Engine, Event, Finish, Limits, Reasoning, Run, SourceFailed, Text, ToolCall, ToolResult
from holdfast.asgi import events
from holdfast.fastapi import run_routes

outcomes: Counter[str] = Counter()


def count(run: Run) -> None:
    if run.settlement is not None:
        outcomes[run.settlement.outcome] += 1


engine = Engine("sqlite:./data", limits=Limits(idle=30, runs_per_owner=4), observe=count, drain=5)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with engine.lifespan(app):
        yield


async def agent(question: str) -> AsyncGenerator[Event | Finish | str | list[Text]]:
    yield Reasoning("A look at the weather will help.")
    yield ToolCall("call_1", "weather", '{"city":"Bergen"}')
    yield ToolResult("call_1", "rain")
    if not question:
        raise SourceFailed("Ask me something.", code="no_question")
    yield [Text("It "), Text("rains.")]
    yield Finish("stop")


async def current_user(request: Request) -> str:
    return request.headers["x-user"]


User = Annotated[str, Depends(current_user)]
app = FastAPI(lifespan=lifespan)
app.include_router(run_routes(engine, owner=current_user, start=agent))


@app.post("/questions/{number}")
async def ask(number: str, question: str, user: User, request: Request) -> Response:
    run = await engine.start(agent(question), owner=user, key=f"question-{number}", lifetime="attached")
    return events(run, request)


@app.get("/questions/{number}")
async def answer(number: str, user: User) -> dict[str, str]:
    run = await engine.find(f"question-{number}", owner=user)
    if run is None:
        raise HTTPException(404)
    settlement = await run.settled()
    return {"outcome": settlement.outcome, "text": settlement.text, "id": run.id}


@app.get("/latest")
async def latest(user: User) -> list[str]:
    return [run.text for run in await engine.list(owner=user, limit=5)]


@app.delete("/questions/{run_id}")
async def stop(run_id: str, user: User) -> bool:
    return (await engine.stop(run_id, owner=user)).by_this_call
