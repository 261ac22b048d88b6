"""An upstream that refuses our key or our credit: told as a fault of the server, and not asked again for the same."""

import json
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.http import Client, Response
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Eof, Headers, Role, Status, Upstream, answer

REFUSALS = (401, 402, 403)


async def ask(client: Client, question: str = "Hi", **more: Any) -> Response:
    messages = [{"role": "user", "content": question}]
    return await client.post("/v1/chat/completions", {"model": "up/m", "messages": messages, **more})


@requirement("wire.refused-key")
@pytest.mark.parametrize("status", REFUSALS)
async def test_a_refused_key_or_credit_is_a_fault_of_the_server(tmp_path, status):
    """An alert, a proxy and a person look at the server then: the caller's request is all right."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)]) as server, server.client() as client:
        up.models["m"] = [Status(status)]
        response = await ask(client)
        error = (await response.json())["error"]

    assert (502, "false") == (response.status, response.headers["x-should-retry"])
    assert ("upstream_auth", "upstream_error") == (error["code"], error["type"])


@requirement("wire.refused-key")
@pytest.mark.parametrize("status", REFUSALS)
async def test_a_client_that_repeats_itself_is_refused_without_the_upstream(tmp_path, status):
    """Codex, the AI SDK and others repeat every 5xx, whatever the headers say: an upstream may lock a key for it."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url)]) as server, server.client() as client:
        up.models["m"] = [Status(status)]
        answers = [await ask(client) for _ in range(5)]
        told = [(response.status, (await response.json())["error"]) for response in answers]
        asked = len(up.requests)
        up.models["m"] = answer("Hello.")
        another = await ask(client, "Something else")

    assert 1 == asked
    assert [told[0]] * 5 == told
    assert 200 == another.status, "only the same request is refused: another one may be allowed"


@requirement("wire.refused-key")
async def test_new_settings_of_a_provider_are_tried_at_once(tmp_path):
    """Whoever has put the right key into the settings wants to see that it works."""
    env = {"RIGHT": "sk-right"}
    async with (
        Upstream() as up,
        Server(tmp_path, [provider(up.base_url)], env=env) as server,
        server.client() as client,
    ):
        up.models["m"] = [Status(401)]
        before = await ask(client)
        up.models["m"] = answer("Hello.")
        server.rewrite("", [provider(up.base_url) | {"api_key_env": "RIGHT"}])
        reloaded = await client.post("/api/settings/reload")
        after = await ask(client)

    assert (502, 200, 200) == (before.status, reloaded.status, after.status)


@requirement("wire.no-useless-retry")
@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
async def test_the_status_of_an_answer_that_failed_after_output_can_be_chosen(tmp_path, path):
    """406 is the status that fewest clients repeat; a proxy that counts 5xx needs 502."""
    said: dict[str, Any] = {"messages": [{"role": "user", "content": "What is the wave?"}], "max_tokens": 9}
    body = {"model": "scripted/fail", **(said if path != "responses" else {"input": "What is the wave?"})}
    async with Server(tmp_path, config="failed_status = 502") as server, server.client() as client:
        response = await client.post(f"/v1/{path}", body)
        told = await response.json()

    assert (502, "false") == (response.status, response.headers["x-should-retry"])
    assert "error" in [*told][:2]
    assert "What is " in str(told["holdfast"]["partial"])


@requirement("wire.no-useless-retry")
@pytest.mark.parametrize("size", [10, 200_000])
async def test_the_access_log_counts_an_answer_that_failed_after_output_as_failed(tmp_path, size):
    """Its status is 406, which else means a mistake of the caller. A long answer is sent in pieces and logged alike."""
    config = 'access_log = true\nlog_format = "json"'
    async with (
        Upstream() as up,
        Server(tmp_path, [provider(up.base_url)], config=config) as server,
        server.client() as client,
    ):
        up.models["m"] = [Headers(), Role(), Delta("x" * size), Eof()]
        response = await ask(client)
        await response.json()
        log = server.log_text()
    (entry,) = [json.loads(line) for line in log.splitlines() if '"path":"/v1/chat/completions"' in line]

    assert (406, "failed") == (response.status, response.headers["x-run-outcome"])
    assert ("failed", response.headers["x-run-id"]) == (entry["outcome"], entry["run"])
