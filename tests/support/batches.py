"""Batches in a few verbs, for tests on whatever asks for them."""

from collections import Counter
from typing import Any

from tests.support.http import Client
from tests.support.native import Native
from tests.support.upstream import Upstream

MODELS = ["up/a", "up/b", "up/c"]


class World:
    """An upstream with three models, and a server that has them."""

    def __init__(self, up: Upstream, client: Client) -> None:
        self.up = up
        self.client = client
        self.api = Native(client)

    async def create(self, prompts: Any = 3, models: Any = MODELS, **more: Any) -> Any:
        asked = [{"prompt": f"Question {number}"} for number in range(prompts)] if isinstance(prompts, int) else prompts
        response = await self.client.post("/api/batches", {"models": models, "prompts": asked, **more})
        assert 202 == response.status, await response.text()
        return await response.json()

    async def get(self, batch: Any) -> Any:
        return await self.api.get(f"/api/batches/{batch['id']}")

    async def settled(self, batch: Any) -> Any:
        """Wait until a batch has ended; its object as its readers are told."""
        frames = await (await self.client.get(f"/api/batches/{batch['id']}/events")).all_events()
        assert "batch.settled" == frames[-1].event
        return frames[-1].json()["batch"]

    async def progressed(self, batch: Any, done: int) -> None:
        """Wait until so many cells are done."""
        progress = await self.client.get(f"/api/batches/{batch['id']}/events")
        while (frame := await progress.next_event()) is not None and frame.event == "batch.progress":
            if frame.json()["progress"]["done"] >= done:
                progress.leave()
                return
        raise AssertionError("it ended before")

    async def cells(self, batch: Any) -> Any:
        return (await self.api.get(f"/api/batches/{batch['id']}/cells?limit=1000"))["data"]

    async def report(self, batch: Any, **query: str) -> Any:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        told = await self.api.get(f"/api/batches/{batch['id']}/report?{asked}")
        return {model["model"]: model for model in told["models"]}

    async def post(self, batch: Any, what: str, body: Any = None) -> Any:
        response = await self.client.post(f"/api/batches/{batch['id']}/{what}", body)
        assert 200 == response.status, await response.text()
        return await response.json()

    def asked(self) -> Counter[tuple[str, str]]:
        """How often each model was asked each question."""
        return asked_of(self.up)


def asked_of(up: Upstream) -> Counter[tuple[str, str]]:
    return Counter((request.model, request.body["messages"][-1]["content"]) for request in up.requests)


def place(cell: Any) -> tuple[str, str]:
    """Which question was put to which model, as U sees it."""
    return cell["model"].removeprefix("up/"), cell["prompt"]
