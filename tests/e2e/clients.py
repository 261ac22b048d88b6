"""What the tests with official clients share: a keyed server that says often that it is alive, and U's scripts."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.server import Server, provider
from tests.support.upstream import (
    TEXT,
    Cut,
    Delta,
    Done,
    Finish,
    Hang,
    Headers,
    Pause,
    Role,
    Status,
    Step,
    ToolDelta,
    Upstream,
    UsageChunk,
)

KEY = "hf-e2e-0123456789abcdef"
BEGIN: list[Step] = [Headers(), Role(), Delta(TEXT[:3]), Delta(TEXT[3:])]
SCRIPTS: dict[str, list[Step]] = {
    "pausing": [*BEGIN, Pause(0.7), Delta("!"), Pause(0.5), Finish(), UsageChunk(), Done()],
    "late-cut": [*BEGIN, Pause(0.3), Cut()],
    "two-tools": [
        Headers(),
        Role(),
        ToolDelta(index=0, id="call_1", name="add", arguments=""),
        ToolDelta(index=0, arguments='{"a": 1, '),
        ToolDelta(index=0, arguments='"b": 2}'),
        ToolDelta(index=1, id="call_2", name="add", arguments='{"a": 3, "b": '),
        ToolDelta(index=1, arguments="4}"),
        Finish("tool_calls"),
        UsageChunk(),
        Done(),
    ],
    "limited": [Status(429, headers={"Retry-After": "1"})],
    "hanging": [*BEGIN, Hang()],
}


class Setting(NamedTuple):
    server: Server
    up: Upstream

    @property
    def base_url(self) -> str:
        return f"{self.server.url}/v1"

    def calls(self, model: str) -> int:
        """How often the model was run."""
        return sum(request.model == model for request in self.up.requests)


@asynccontextmanager
async def setting(folder: Path) -> AsyncGenerator[Setting]:
    async with Upstream() as up:
        up.models |= SCRIPTS
        env, config = {"HOLDFAST_API_KEY": KEY}, "heartbeat = 0.2"
        providers = [provider(up.base_url, models=None), provider(up.base_url, name="fixed", models=["only"])]
        async with Server(folder, providers, config=config, env=env) as server:
            yield Setting(server, up)
