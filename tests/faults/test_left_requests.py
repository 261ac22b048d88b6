"""A client that leaves before its request is passed on to an upstream."""

import asyncio

from holdfast.access import Budget
from holdfast.asgi.client import CONNECTION
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.served import NO_HOME


class Gone:
    """The connection of a client that has left."""

    is_lost, takes_more = True, False

    def watch_loss(self, wake):
        return lambda: None

    def abort(self):
        pass

    def reply(self, *asked):
        return False

    def begin(self, *asked):
        return False


@requirement("budget.limits")
async def test_a_request_whose_client_has_left_takes_no_place():
    """Otherwise its owner could start nothing before the next day."""
    provider = ProviderSettings("up", dialect="openai", base_url=f"http://127.0.0.1:{free_port()}/v1", models=("m",))
    app = create_app(Settings(providers=(provider,), budget=Budget(runs_at_once=1)), MemoryStore(), NO_HOME)
    async with app.router.lifespan_context(app):
        left = await _ask(app, Gone())
        await app.state.parts.budgets.spending.flush()
        status = await _ask(app)

    assert left is None
    assert status == 502


async def _ask(app, connection=None):
    body, statuses = b'{"model": "up/m", "input": "Hi"}', []
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "query_string": b"", "headers": headers}
    scope |= {"scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "http_version": "1.1"}
    if connection is not None:
        scope[CONNECTION] = connection
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive():
        return next(messages, None) or await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0] if statuses else None
