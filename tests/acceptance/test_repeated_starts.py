"""A repeated `Idempotency-Key` is answered with its run, at every door, whatever the caller has left."""

from typing import Any

import pytest

from holdfast.access import Budget
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Upstream, answer

SAID = [{"role": "user", "content": "hello"}]
UI = [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}]
AG_UI = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
DOORS: dict[str, dict[str, Any]] = {
    "/api/sessions/ID/runs": {"input": "hello", "model": "up/m"},
    "/v1/chat/completions": {"messages": SAID, "model": "up/m"},
    "/v1/completions": {"prompt": "hello", "model": "up/m"},
    "/v1/responses": {"input": "hello", "model": "up/m"},
    "/v1/messages": {"messages": SAID, "model": "up/m", "max_tokens": 9},
    "/api/chat": {"messages": UI, "model": "up/m"},
    "/api/chat (session)": {"id": "c", "messages": UI, "model": "up/m"},
    "/api/generate": {"prompt": "hello", "model": "up/m", "stream": False},
    "/ag-ui": {**AG_UI, "messages": [{"id": "m1", **SAID[0]}]},
}
LIMITS: dict[str, dict[str, Any]] = {
    "rate": {"starts_per_minute": 1},
    "budget": {"budget": Budget(requests_per_minute=1)},
}


@requirement("start.idempotent")
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("door", DOORS)
async def test_a_repeated_key_is_answered_where_a_new_start_is_refused(door, limit):
    """A client that repeats a request whose response was lost got 429, although its run was there."""
    async with Upstream(answer("42")) as up:
        provider = ProviderSettings(name="up", base_url=up.base_url, models=("m",))
        settings = Settings(providers=(provider,), default_model="up/m", **LIMITS[limit])
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            path = door.split()[0].replace("ID", await Native(client).new_session())
            answers = []
            for key in ("first", "first", "other"):
                response = await client.post(path, DOORS[door], headers={"Idempotency-Key": key})
                answers.append((response.status, dict(response.headers).get("x-run-id"), await response.text()))
        first, again, other = answers

    assert first[0] in (200, 202), first
    assert first[:2] == again[:2]
    assert first[1] is not None
    assert 429 == other[0], other
    assert 1 == len(up.requests)
