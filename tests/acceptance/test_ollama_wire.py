"""Ollama's API, as programs ask for it that speak nothing else: chats, prompts, models, and every ending."""

import json
import re
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import (
    TEXT,
    Delta,
    Headers,
    InBandError,
    Raw,
    Recorded,
    Role,
    Script,
    Status,
    Upstream,
    answer,
    calling,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), requirement("wire.ollama")]

USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        up.models |= {
            "says": answer("Hello", " there."),
            "calls": calling(("add", {"a": 1})),
            "breaks": [Role(), Delta("Hello"), InBandError()],
            "refuses": [Status(400)],
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(up, tmp_path_factory):
    config = '[aliases]\n"llama3" = "up/says"\n'
    ollama = {"name": "own", "dialect": "ollama", "base_url": up.base_url.removesuffix("/v1"), "models": ["m", "e"]}
    providers = [provider(up.base_url, models=None), provider(up.base_url, name="other", models=["one"]), ollama]
    async with Server(tmp_path_factory.mktemp("ollama"), providers, config=config) as server:
        async with server.client() as client:
            yield client


async def lines(client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post(path, body)
    assert "application/x-ndjson" == response.headers["content-type"]
    return [json.loads(line) for line in (await response.body()).splitlines()]


async def test_a_chat_streams_unless_it_is_told_otherwise(client, up):
    """The last line is done, says why, and counts the tokens."""
    told = await lines(client, "/api/chat", {"model": "up/says", "messages": [USER]})
    whole = await (await client.post("/api/chat", {"model": "up/says", "messages": [USER], "stream": False})).json()

    assert ["Hello", " there.", ""] == [line["message"]["content"] for line in told]
    assert [False, False, True] == [line["done"] for line in told]
    assert ("stop", 3, 2) == (told[-1]["done_reason"], told[-1]["prompt_eval_count"], told[-1]["eval_count"])
    assert ("Hello there.", True, "stop") == (whole["message"]["content"], whole["done"], whole["done_reason"])


async def test_what_is_asked_reaches_the_model_in_its_words(client, up):
    """Options, a schema, pictures, how hard to think."""
    options = {"temperature": 0.5, "num_predict": 7, "stop": ["END"], "num_ctx": 4096}
    message = {**USER, "images": ["iVBORw0KGgo="]}
    body = {"model": "up/says:latest", "messages": [message], "options": options, "format": {"type": "object"}}
    await (await client.post("/api/chat", {**body, "think": "low", "keep_alive": "5m"})).body()
    sent = up.requests[-1].body

    assert ("says", 0.5, 7, ["END"], "low") == (
        *(sent["model"], sent["temperature"], sent["max_tokens"], sent["stop"]),
        sent["reasoning_effort"],
    )
    assert "num_ctx" not in sent
    assert {"type": "object"} == sent["response_format"]["json_schema"]["schema"]
    assert "data:image/png;base64,iVBORw0KGgo=" == sent["messages"][0]["content"][1]["image_url"]["url"]


OWN = Raw(
    b'{"model":"m","message":{"role":"assistant","content":"Hi."},"done":false}\n'
    b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n'
)
OPTIONS = {
    "num_ctx": 32768,
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.2,
    "tfs_z": 0.9,
    "typical_p": 0.8,
    "repeat_last_n": 33,
    "penalize_newline": False,
    "num_predict": -1,
    "temperature": 0.5,
    "some_day": 1,
}


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize("think", [True, False, "high"])
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_all_that_is_ollamas_own_reaches_an_ollama(client, up, path, think):
    """Without `num_ctx` it cuts the input in silence, and a model that was told not to think thinks."""
    up.models["m"] = [Headers(headers={"content-type": "application/x-ndjson"}), OWN]
    said = {"messages": [USER]} if path == "/api/chat" else {"prompt": "Hi"}
    own = {"options": OPTIONS, "think": think, "keep_alive": "5m", "truncate": False, "shift": True}
    response = await client.post(path, {"model": "own/m", "stream": False, **said, **own})
    sent = up.requests[-1]

    assert (200, "/api/chat") == (response.status, sent.path)
    assert own == {name: sent.body.get(name) for name in own}


@pytest.mark.parametrize("model", ["own/e", "up/e"])
async def test_texts_are_embedded_by_either_call(client, up, model):
    """LangChain, LlamaIndex and Open WebUI ask Ollama's own calls for embeddings."""
    data = [{"index": 1, "embedding": [3.0, 4.0]}, {"index": 0, "embedding": [1.0, 2.0]}]
    own = {"model": "e", "embeddings": [[1.0, 2.0], [3.0, 4.0]], "prompt_eval_count": 5}
    openais = {"object": "list", "data": data, "usage": {"prompt_tokens": 5, "total_tokens": 5}}
    asked: list[Recorded] = []

    def script(request: Recorded) -> Script:
        asked.append(request)
        return [Status(200, own if request.path == "/api/embed" else openais)]

    up.at |= {"POST /api/embed": script, "POST /v1/embeddings": script}
    new = await (await client.post("/api/embed", {"model": model, "input": ["a", "b"], "truncate": True})).json()
    sent = json.loads(asked[0].raw)
    old = await (await client.post("/api/embeddings", {"model": f"{model}:latest", "prompt": "a"})).json()

    assert ([[1.0, 2.0], [3.0, 4.0]], 5, model) == (new["embeddings"], new["prompt_eval_count"], new["model"])
    assert (["a", "b"], "e", model == "own/e") == (sent["input"], sent["model"], "truncate" in sent)
    assert [1.0, 2.0] == old["embedding"]


async def test_each_model_has_a_digest_of_its_own(client):
    """`llm` takes models of one digest for one model: every name asked the same one."""
    models = (await (await client.get("/api/tags")).json())["models"]
    digests = {model["digest"] for model in models}

    assert len(models) == len(digests) > 1
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


async def test_a_tool_is_called_and_its_result_belongs_to_the_call(client, up):
    """Ollama's results have no ids."""
    body = {"model": "up/calls", "messages": [USER], "tools": [TOOL]}
    told = await lines(client, "/api/chat", body)
    (call,) = next(line["message"]["tool_calls"] for line in told if "tool_calls" in line["message"])
    turns = [USER, {"role": "assistant", "content": "", "tool_calls": [{"function": call["function"]}]}]
    body = {"model": "up/says", "messages": [*turns, {"role": "tool", "tool_name": "add", "content": "2"}]}
    await (await client.post("/api/chat", body)).body()
    sent = up.requests[-1].body["messages"]

    assert {"name": "add", "arguments": {"a": 1}} == call["function"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"]


async def test_a_choice_of_tools_reaches_the_upstream(client, up):
    """Ollama has no such field and overlooks it; the AI SDK's provider for Ollama sends it with every tool."""
    body = {"model": "up/calls", "messages": [USER], "tools": [TOOL], "tool_choice": "auto"}
    await (await client.post("/api/chat", body)).body()

    assert "auto" == up.requests[-1].body["tool_choice"]


async def test_results_with_ids_belong_to_calls_without_them_in_their_order(client, up):
    """LiteLLM sends the ids of results and leaves out those of the calls, since Ollama's calls had none."""
    calls = [{"function": {"name": "add", "arguments": {"a": each}}} for each in (1, 2)]
    results = [{"role": "tool", "tool_call_id": f"call_{each}", "content": f"{each}"} for each in (1, 2)]
    turns = [USER, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    await (await client.post("/api/chat", {"model": "up/says", "messages": turns})).body()
    sent = up.requests[-1].body["messages"]

    assert [call["id"] for call in sent[1]["tool_calls"]] == [message["tool_call_id"] for message in sent[2:]]
    assert ["1", "2"] == [message["content"] for message in sent[2:]]


async def test_results_with_ids_belong_to_the_calls_with_these_ids(client, up):
    """In whatever order they come."""
    calls = [{"id": f"c{each}", "function": {"name": "add", "arguments": {"a": each}}} for each in (1, 2)]
    results = [{"role": "tool", "tool_call_id": f"c{each}", "content": f"{each}"} for each in (2, 1)]
    turns = [USER, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    await (await client.post("/api/chat", {"model": "up/says", "messages": turns})).body()
    sent = up.requests[-1].body["messages"]

    assert {"c1": "1", "c2": "2"} == {message["tool_call_id"]: message["content"] for message in sent[2:]}


async def test_a_prompt_is_answered_and_an_empty_one_loads_nothing(client, up):
    """Programs send an empty one to load a model."""
    told = await lines(client, "/api/generate", {"model": "llama3", "prompt": "Hi", "system": "Be brief."})
    asked = len(up.requests)
    loaded = await (await client.post("/api/generate", {"model": "llama3"})).json()

    assert "Hello there." == "".join(line["response"] for line in told)
    assert ["system", "user"] == [message["role"] for message in up.requests[-1].body["messages"]]
    assert ("load", asked) == (loaded["done_reason"], len(up.requests))


@requirement("wire.truth")
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
async def test_an_answer_that_breaks_off_is_an_error_and_never_done(client, path):
    """Ollama's clients raise on a line with an error, and on a status."""
    asked = {"messages": [USER]} if path == "/api/chat" else {"prompt": "Hi"}
    told = await lines(client, path, {"model": "up/breaks", **asked})
    whole = await client.post(path, {"model": "up/breaks", **asked, "stream": False})

    assert ("upstream_error", None) == (told[-1]["holdfast"]["code"], told[-1].get("done"))
    assert isinstance(told[-1]["error"], str)
    assert (406, "upstream_error") == (whole.status, (await whole.json())["holdfast"]["code"])


@requirement("wire.truth")
@pytest.mark.parametrize(("ending", "reason"), [("length", "length"), ("content-filter", "content_filter")])
async def test_an_answer_that_was_cut_short_says_so(client, ending, reason):
    """The word is the one for what happened."""
    told = await lines(client, "/api/chat", {"model": f"up/end:{ending}", "messages": [USER]})

    assert (TEXT, reason) == ("".join(line["message"]["content"] for line in told), told[-1]["done_reason"])


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize(
    ("path", "more", "param"),
    [
        ("/api/chat", {"options": {"mirostat": 2}}, "options.mirostat"),
        ("/api/chat", {"logprobs": True}, "logprobs"),
        ("/api/chat", {"made_up": 1}, "made_up"),
        ("/api/generate", {"raw": True}, "raw"),
        ("/api/generate", {"suffix": "x"}, "suffix"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_words(client, up, path, more, param):
    """And by name."""
    asked = len(up.requests)
    body = {"model": "up/says", **({"messages": [USER]} if path == "/api/chat" else {"prompt": "Hi"}), **more}
    response = await client.post(path, body)
    told = await response.json()

    assert (400, "unsupported", param) == (response.status, told["holdfast"]["code"], told["holdfast"]["param"])
    assert isinstance(told["error"], str)
    assert asked == len(up.requests)


async def test_an_early_failure_has_its_status_and_says_why_in_words(client):
    """Also in a stream."""
    answers = [
        await client.post("/api/chat", {"model": "up/refuses", "messages": [USER]}),
        await client.post("/api/chat", {"model": "nobody/m", "messages": [USER]}),
        await client.post("/api/show", {"model": "nobody/m"}),
    ]

    assert [400, 404, 404] == [answer.status for answer in answers]
    assert all([isinstance((await answer.json())["error"], str) for answer in answers])


async def test_models_are_listed_with_their_aliases_and_described(client):
    """As far as anything is known of them."""
    listed = (await (await client.get("/api/tags")).json())["models"]
    shown = await (await client.post("/api/show", {"model": "llama3:latest"})).json()
    version = await (await client.get("/api/version")).json()

    assert {"up/says", "other/one", "llama3"} <= {model["name"] for model in listed}
    assert ["completion", "tools"] == shown["capabilities"]
    assert version["version"]


async def test_the_ai_sdk_is_still_told_apart_by_its_messages(client):
    """Both have `/api/chat`."""
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    response = await client.post("/api/chat", {"model": "up/says", "messages": [message]})
    await response.body()

    assert response.headers["content-type"].startswith("text/event-stream")
