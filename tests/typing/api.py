"""The public API as a type checker sees it: read by pyright and mypy, and never run."""

from collections.abc import AsyncGenerator
from typing import Literal, assert_type

from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast import (
    Completed,
    Engine,
    Event,
    Failed,
    Interrupted,
    Limits,
    Outlet,
    PushSource,
    Run,
    Stopped,
    StopResult,
    Text,
    Truncated,
    open_store,
)
from holdfast.agents import AgentRequest
from holdfast.asgi import events
from holdfast.events import Finish, put
from holdfast.fastapi import run_routes
from holdfast.server import ProviderSettings, Settings, create_app
from holdfast.starlette import starlette_routes
from holdfast.upstreams import ChatRequest, Provider
from holdfast.upstreams.kinds import ProviderKind, ProviderSetup


async def words() -> AsyncGenerator[str]:
    yield "a"


async def batches() -> AsyncGenerator[list[Text]]:
    yield [Text("a"), Text("b")]


async def pushed(out: Outlet) -> None:
    if not out.emit(["a", Text("b")]):
        await out.room()


def frame(seq: int, event: Event) -> dict[str, str] | None:
    return {"text": event.text} if isinstance(event, Text) else None


async def embedding(request: Request) -> None:
    async with Engine(open_store("memory:"), limits=Limits(idle=5)) as engine:
        run = await engine.start(words(), keep=True, lifetime="attached", interrupt=print)
        assert_type(run, Run)
        assert_type(await engine.start(batches()), Run)
        push: PushSource = pushed
        assert_type(await engine.start(push), Run)
        async for seq, event in run.read(after=3):
            assert_type(seq, int)
            told: Event = event
            if isinstance(told, Text):
                assert_type(told.text, str)
        result = await run.stop(by="user")
        assert_type(result, StopResult)
        assert_type(result.by_this_call, bool)
        ending, _ = result
        assert_type(ending, Completed | Truncated | Stopped | Failed | Interrupted)
        if isinstance(ending, Failed):
            assert_type(ending.error.code, str)
        assert_type(ending.outcome, Literal["completed", "truncated", "stopped", "failed", "interrupted"])
        if ending.outcome == "stopped":
            assert_type(ending, Stopped)
        assert_type(await engine.start(words(), key="order-17", owner="ann"), Run)
        assert_type(await engine.find("order-17", owner="ann"), Run | None)
        assert_type(await engine.open(run.id, owner="ann"), Run)
        assert_type(await engine.list(owner="ann"), list[Run])
        assert_type(await engine.stop(run.id, owner="ann"), StopResult)
        assert_type(await engine.store.delete_runs(0.0), int)
        assert_type(events(run, request), Response)
        assert_type(events(run, request, frame=frame), Response)


async def current_user(request: Request) -> str:
    return request.headers["x-user"]


def in_an_app(engine: Engine) -> None:
    app = FastAPI(lifespan=engine.lifespan)
    router = run_routes(engine, owner=current_user, start=words, frame=frame)
    assert_type(router, APIRouter)
    app.include_router(router)
    routes = starlette_routes(engine, owner=current_user, start=lambda request: words())
    assert_type(routes, list[Route])
    Starlette(routes=routes, lifespan=engine.lifespan)


async def a_server(request: AgentRequest) -> AsyncGenerator[str]:
    yield request.text


def embedding_the_server() -> None:
    provider = ProviderSettings("openai", base_url="https://example.com/v1", api_key="sk-...")
    assert_type(create_app(), Starlette)
    assert_type(create_app(Settings(providers=(provider,)), "sqlite:./data", agents={"parrot": a_server}), Starlette)


class Plain:
    """A provider as a package writes it: `ProviderKind` takes it without a cast."""

    models: tuple[str, ...] | None = ("m",)
    prefills = think = demo = False

    def __init__(self, setup: ProviderSetup) -> None:
        self.name = setup.name

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        await put(out, [Text(request.model), Finish("stop")])

    async def list_models(self) -> list[str]:
        return ["m"]

    async def close(self) -> None:
        return None


assert_type(ProviderKind(make=Plain).make(ProviderSetup(name="p")), Provider)
