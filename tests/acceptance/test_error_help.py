"""Every error names a page with its cause and what to do, and the server has that page."""

from typing import Any

import pytest
import pytest_asyncio

from holdfast.error_help import ERRORS
from tests.acceptance.surfaces import ag_ui_input
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.server import Server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), requirement("ops.error-help")]

KEY = "key-4f1c9d77aa0142aa"
FAILS = "scripted/fail"
UI_MESSAGE = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello there"}]}
MESSAGES = [{"role": "user", "content": "Hello there"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    providers = [{"name": "scripted", "dialect": "scripted"}]
    async with Server(tmp_path_factory.mktemp("help"), providers, env={"HOLDFAST_API_KEY": KEY}) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def client(server):
    async with server.client(authorization=f"Bearer {KEY}") as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def stranger(server):
    """A client without a key."""
    async with server.client() as client:
        yield client


async def page(client: Client, path: str, accept: str) -> tuple[int, str, str]:
    response = await client.get(path, headers={"accept": accept})
    return response.status, response.headers["content-type"], await response.text()


FAILING: dict[str, tuple[str, dict[str, Any]]] = {
    "chat completions": ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
    "completions": ("/v1/completions", {"prompt": "Hello there", "stream": True}),
    "responses": ("/v1/responses", {"input": "Hello there", "stream": True}),
    "Anthropic's messages": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 99, "stream": True}),
    "Ollama": ("/api/chat", {"messages": MESSAGES}),
    "AG-UI": ("/ag-ui", {**ag_ui_input("thread", FAILS), "model": None}),
    "the AI SDK": ("/api/chat", {"id": "chat", "messages": [UI_MESSAGE], "trigger": "submit-message"}),
    "native": ("/api/sessions/{session}/runs", {"input": "Hello there"}),
}
REFUSED = {
    "native": "/api/runs/run_none",
    "chat completions": "/v1/chat/completions/chatcmpl-none",
    "Anthropic's messages": "/v1/messages/msg_none",
    "Ollama": "/api/pull",
}


@pytest.mark.parametrize("wire", FAILING)
async def test_a_run_that_fails_names_the_page_about_it(client, wire):
    """The client shows the error to somebody who does not know what `upstream_error` is."""
    path, body = FAILING[wire]
    session = (await (await client.post("/api/sessions", {})).json())["id"]
    response = await client.post(path.format(session=session), {"model": FAILS, **body})
    text = await response.text()
    if wire == "native":
        run = response.headers["x-run-id"]
        text = await (await client.get(f"/api/runs/{run}/events")).text()

    assert '"help":"/docs/errors/upstream_error"' in text


@pytest.mark.parametrize("wire", REFUSED)
async def test_a_refused_request_names_the_page_about_it(client, wire):
    """In the place where the wire has room for it."""
    response = await client.get(REFUSED[wire])
    body = await response.json()
    told = body["holdfast"] if wire == "Ollama" else body["error"]

    assert response.status in (404, 405)
    assert f"/docs/errors/{told['code']}" == told["help"]


async def test_the_page_needs_no_key(client, stranger):
    """Who has no key needs it most."""
    refusal = (await (await stranger.get("/api/runs")).json())["error"]

    status, kind, text = await page(stranger, refusal["help"], "text/html,*/*")

    assert "unauthorized" == refusal["code"]
    assert (200, "text/html; charset=utf-8") == (status, kind)
    assert "holdfast key new NAME" in text


async def test_a_terminal_gets_text(stranger):
    """`curl` shows what it gets."""
    status, kind, text = await page(stranger, "/docs/errors/run_limit", "*/*")

    assert (200, "text/plain; charset=utf-8") == (status, kind)
    assert text.startswith("run_limit (HTTP 429)\n")
    assert "<" not in text


async def test_the_list_names_every_code(stranger):
    """Somebody looks for a code that is only in a log."""
    for accept in ("text/html", "*/*"):
        status, _, text = await page(stranger, "/docs/errors", accept)

        assert 200 == status
        assert [] == [code for code in ERRORS if code not in text]


async def test_a_code_that_is_not_ours_has_no_page(stranger):
    """An agent may have codes of its own, and a path may hold anything."""
    response = await stranger.get("/docs/errors/%3Cscript%3E")
    body = await response.json()

    assert (404, "not_found") == (response.status, body["error"]["code"])
