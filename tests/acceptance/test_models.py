"""Which model answers: the default, bare names, demo models, and servers that are found on the machine."""

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import SettingsError, load_with_sources
from holdfast.store.memory import MemoryStore
from tests.acceptance.surfaces import QUESTION
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Upstream, answer
from tests.support.waiting import LONG

KEY = "hf-test-key"
NAMELESS = {"omitted": {}, "null": {"model": None}, "empty": {"model": ""}}
WIRES = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}),
    "responses": ("/v1/responses", {"input": QUESTION}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 100}),
}
DISCOVERS = 'discover = true\n[[providers]]\nname = "scripted"\ndialect = "scripted"\n'
UP = '[[providers]]\nname = "up"\nbase_url = "{}"\n'


async def own(request):
    yield f"You said: {request.text}"


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        upstream.script = answer("From up.")
        upstream.listed = ["m", "n"]
        yield upstream


@asynccontextmanager
async def serving(data: Path, file: str = "", environ: dict[str, str] | None = None, agents=None, **client):
    """A server whose settings are loaded as `holdfast serve` loads them."""
    nobody = dict.fromkeys(("OLLAMA_HOST", "LLAMACPP_URL", "LMSTUDIO_URL"), "http://127.0.0.1:9")
    app = await asyncio.to_thread(made, data, file, {**NO_HOME, **nobody, **(environ or {})}, agents)
    async with Served(app) as served, served.client(**client) as opened:
        yield Native(opened)


def made(data: Path, file: str, environ: dict[str, str], agents):
    path = data / "holdfast.toml"
    path.write_text(file)
    settings, sources = load_with_sources({"data": str(data)}, environ, path)
    return create_app(settings, MemoryStore(), environ, sources=sources, look_every=0.05, agents=agents)


async def asked(api, wire, **more):
    """The status, the body and the text of an answer without a stream."""
    path, body = WIRES[wire]
    response = await api.client.post(path, {**body, **more})
    told = await response.json()
    if response.status != 200:
        return response.status, told, ""
    read = {
        "chat": lambda: told["choices"][0]["message"]["content"],
        "responses": lambda: told["output"][-1]["content"][0]["text"],
        "messages": lambda: told["content"][0]["text"],
    }
    return response.status, told, read[wire]()


async def ids(api, query=""):
    return [model["id"] for model in (await api.get(f"/api/models{query}"))["models"]]


async def default(api):
    return (await api.get("/api/models"))["default"]


# The default model.


@requirement("model.default")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("nameless", NAMELESS)
async def test_a_request_without_a_model_is_answered_by_the_default_and_says_which(tmp_path, up, wire, nameless):
    """Clients of the systems we descend from send none; and whoever asks should know who answered."""
    async with serving(tmp_path, UP.format(up.base_url)) as api:
        status, body, text = await asked(api, wire, **NAMELESS[nameless])

    assert (200, "up/m", "From up.") == (status, body["model"], text)
    assert "m" == up.requests[-1].model


@requirement("model.default")
@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_without_a_model_names_who_answers(tmp_path, up, wire):
    """In its chunks, its response or its message, as each dialect does."""
    path, body = WIRES[wire]
    async with serving(tmp_path, UP.format(up.base_url)) as api:
        response = await api.client.post(path, {**body, "stream": True})
        frames = [json.loads(frame.data) for frame in await response.all_events() if frame.data != "[DONE]"]

    named = [
        frame.get("model") or (frame.get("response") or frame.get("message") or {}).get("model") for frame in frames
    ]
    assert {"up/m"} == set(filter(None, named))


@requirement("model.default")
@pytest.mark.parametrize("wire", WIRES)
async def test_with_one_agent_and_no_provider_set_up_the_agent_is_the_default(tmp_path, wire):
    """`holdfast serve --agent module:agent` and nothing else: who asks means that agent, not a demo model."""
    async with serving(tmp_path, agents={"own": own}) as api:
        shown = await default(api)
        status, body, text = await asked(api, wire)

    assert (200, "agent/own", f"You said: {QUESTION}") == (status, body["model"], text)
    assert "agent/own" == shown


@requirement("model.default")
async def test_a_provider_that_was_set_up_is_the_default_before_agents(tmp_path, up):
    """An agent beside it is asked by its name; and of two agents none is the only one."""
    async with serving(tmp_path, UP.format(up.base_url), agents={"own": own}) as api:
        with_provider = await default(api)
    async with serving(tmp_path, agents={"own": own, "other": own}) as api:
        of_two = await default(api)

    assert "up/m" == with_provider
    assert not of_two.startswith("agent/")


@requirement("model.default")
async def test_a_provider_that_lists_no_model_is_not_replaced_by_a_demo(tmp_path, up):
    """The prompt is for the provider that was set up: a demo model would answer nonsense in its place."""
    up.refuse()
    async with serving(tmp_path, environ={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": up.base_url}) as api:
        status, body, _ = await asked(api, "chat")

    assert (404, "model_not_found") == (status, body["error"]["code"])
    assert "no provider that was set up lists one now (openai)" in body["error"]["message"]


# Bare names.


@requirement("model.bare-name")
@pytest.mark.parametrize("wire", WIRES)
async def test_an_agent_answers_under_its_bare_name(tmp_path, up, wire):
    """As models do. The answer has the full name, under which it is kept."""
    async with serving(tmp_path, UP.format(up.base_url), agents={"own": own}) as api:
        status, body, text = await asked(api, wire, model="own")

    assert (200, "agent/own", f"You said: {QUESTION}") == (status, body["model"], text)


@requirement("model.bare-name")
async def test_an_agent_answers_under_its_bare_name_in_sessions(tmp_path):
    """On the native API, on the AI SDK's and on AG-UI, too."""
    hello = {"role": "user", "id": "m1"}
    async with serving(tmp_path, agents={"own": own}) as api:
        native = await api.settled(await api.start(await api.new_session(), "Hi", "own"))
        ui = {"id": "c1", "messages": [{**hello, "parts": [{"type": "text", "text": "Hi"}]}], "model": "own"}
        ai_sdk = await (await api.client.post("/api/chat", ui)).text()
        thread = {"threadId": "t", "runId": "r", "messages": [{**hello, "content": "Hi"}], "tools": [], "context": []}
        ag_ui = await (
            await api.client.post("/ag-ui", {**thread, "state": {}, "forwardedProps": {"model": "own"}})
        ).text()

    assert "You said: Hi" == native["text"]
    assert "You said" in ai_sdk
    assert "You said" in ag_ui


# The default that is set.


@requirement("model.default-set")
@pytest.mark.parametrize("name", ["agent/own", "own"])
async def test_an_agent_can_be_set_as_the_default(tmp_path, up, name):
    """Whoever may choose a model for all may choose an agent."""
    async with serving(tmp_path, UP.format(up.base_url), agents={"own": own}) as api:
        put = await api.client.request("PUT", "/api/settings", json={"default_model": name})
        _, body, text = await asked(api, "chat")

    assert (200, "agent/own") == (put.status, body["model"])
    assert text.startswith("You said")


@requirement("model.default-set")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("up/nosuch", "Unknown model 'up/nosuch'."),
        ("nosuch/m", "Unknown model 'nosuch/m'."),
        ("agent/nosuch", "Unknown model 'agent/nosuch'."),
    ],
)
async def test_a_default_that_is_not_there_is_refused(tmp_path, up, name, words):
    """Else every request without a model would fail from then on."""
    file = UP.format(up.base_url) + '[[providers]]\nname = "other"\ndialect = "scripted"\n'
    async with serving(tmp_path, file, agents={"own": own}) as api:
        put = await api.client.request("PUT", "/api/settings", json={"default_model": name})
        told = (await put.json())["error"]
        kept = (await api.get("/api/settings"))["default_model"]

    assert (404, "model_not_found", None) == (put.status, told["code"], kept)
    assert words in told["message"]


@requirement("model.default-set")
async def test_an_unknown_agent_on_a_server_without_agents_is_not_called_a_provider(tmp_path, up):
    """A newcomer who adds an agent and forgets the restart would look for a provider."""
    async with serving(tmp_path, UP.format(up.base_url)) as api:
        put = await api.client.request("PUT", "/api/settings", json={"default_model": "agent/helper"})
        message = (await put.json())["error"]["message"]

    assert 404 == put.status
    assert "Unknown model 'agent/helper'. This server has no agents" in message
    assert "provider" not in message


@requirement("model.default-set")
async def test_a_default_of_an_upstream_that_does_not_answer_is_refused_and_says_why(tmp_path, up):
    """Nobody can tell whether it is there."""
    up.refuse()
    async with serving(tmp_path, UP.format(up.base_url)) as api:
        put = await api.client.request("PUT", "/api/settings", json={"default_model": "up/m"})
        words = (await put.json())["error"]["message"]

    assert 404 == put.status
    assert "'m' cannot be checked: up could not be reached: connection refused." in words


# Demo models.


@requirement("model.demo-marked")
async def test_demo_models_are_marked_and_alone_they_are_listed(tmp_path):
    """Without anything else they are what one can try."""
    async with serving(tmp_path) as api:
        native = (await api.get("/api/models"))["models"]
        openai = (await api.get("/v1/models"))["data"]
        headers = {"anthropic-version": "2023-06-01"}
        anthropic = (await api.get("/v1/models", headers=headers))["data"]
        one = await api.get(f"/v1/models/{anthropic[0]['id']}", headers=headers)

    assert one == anthropic[0], "one model has the shape of the list"
    assert "scripted/echo" in [model["id"] for model in native]
    assert {True} == {model["demo"] for model in native}
    assert {True} == {model["holdfast"]["demo"] for model in openai}
    assert {"(demo)"} == {model["display_name"].rpartition(" ")[2] for model in anthropic}


@requirement("model.demo-marked")
async def test_demo_models_are_left_out_beside_a_real_provider_unless_asked_for(tmp_path, up):
    """`hang` and `fail` are no models that anybody looks for; by their full names they still answer."""
    async with serving(tmp_path, environ={"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": up.base_url}) as api:
        listed, every = await ids(api), await ids(api, "?all=true")
        openai = [model["id"] for model in (await api.get("/v1/models"))["data"]]
        all_openai = [model["id"] for model in (await api.get("/v1/models?all=true"))["data"]]
        status, _, text = await asked(api, "chat", model="scripted/echo")
        bare, _, _ = await asked(api, "chat", model="echo")

    assert ["openai/m", "openai/n"] == listed == openai
    assert {"openai/m", "scripted/echo"} <= set(every) & set(all_openai)
    assert (200, QUESTION) == (status, text)
    assert (404, []) == (bare, up.requests), "a bare name is the real one's"


@requirement("model.demo-marked")
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_provider_that_lists_no_model_does_not_hide_the_demo_models(tmp_path, up, is_there):
    """An Ollama without a pulled model must not leave a newcomer without any model. None is chosen for them."""
    up.listed = []
    if not is_there:
        up.refuse()
    async with serving(tmp_path, UP.format(up.base_url), {"HOLDFAST_DISCOVER": "false"}) as api:
        listed, chosen = await ids(api), await default(api)
        openai = [model["id"] for model in (await api.get("/v1/models"))["data"]]
        ollama = [model["name"] for model in (await api.get("/api/tags"))["models"]]
        bare, body, _ = await asked(api, "chat", model="nosuch/echo")
        status, _, text = await asked(api, "chat", model="scripted/echo")

    assert listed == openai == ollama
    assert {"local/smollm2", "scripted/echo"} <= set(listed)
    assert chosen is None
    assert (404, 200, QUESTION) == (bare, status, text)
    assert "Did you mean scripted/echo" in body["error"]["message"]


# Servers that are found.


async def until(api, is_so):
    async with asyncio.timeout(LONG):
        while not is_so(models := await api.get("/api/models")):
            pass
    return models


def has(name):
    return lambda models: any(each["name"] == name and each["ok"] for each in models["providers"])


def at(up):
    return {"LMSTUDIO_URL": f"http://127.0.0.1:{up.port}"}


@requirement("model.found-default")
async def test_a_server_with_keys_looks_for_nothing_unless_told_to(tmp_path, up):
    """Its users rely on who answers; anybody on the machine could listen on a well-known port."""
    key = f'api_key = "{KEY}"\n'
    bearer = {"headers": {"Authorization": f"Bearer {KEY}"}}
    async with serving(tmp_path, key, at(up), **bearer) as api:
        alone = [each["name"] for each in (await api.get("/api/models"))["providers"]]
    async with serving(tmp_path, f"{key}discover = true\n", at(up), **bearer) as api:
        told = await until(api, has("lmstudio"))
    async with serving(tmp_path, "discover = false\n", at(up)) as api:
        never = [each["name"] for each in (await api.get("/api/models"))["providers"]]

    assert ["local", "scripted"] == alone == never
    assert not told["default"].startswith("lmstudio/")


@requirement("model.found-default")
async def test_what_is_found_later_does_not_take_over_a_default_that_is_in_use(tmp_path, up):
    """A conversation that began with one model must not go on with another, silently."""
    up.refuse()
    async with serving(tmp_path, DISCOVERS, at(up)) as api:
        _, before, _ = await asked(api, "chat")
        await up.listen()
        found = await until(api, has("lmstudio"))
        _, after, _ = await asked(api, "chat")

    assert "scripted/echo" == before["model"] == after["model"] == found["default"]


@requirement("model.found-default")
async def test_what_is_found_before_anybody_asked_is_the_default_of_a_server_without_keys(tmp_path, up):
    """Whoever starts Ollama on their own machine means to use it."""
    up.refuse()
    async with serving(tmp_path, DISCOVERS, at(up)) as api:
        before = await default(api)
        await up.listen()
        await until(api, has("lmstudio"))
        _, body, text = await asked(api, "chat")

    assert ("scripted/echo", "lmstudio/m", "From up.") == (before, body["model"], text)


@requirement("model.default")
async def test_a_provider_that_is_set_up_while_the_server_runs_is_the_default_from_then_on(tmp_path, up):
    """That is no silent change: somebody with the right to do so has asked for it."""
    async with serving(tmp_path, DISCOVERS) as api:
        _, before, _ = await asked(api, "chat")
        change = {"providers": [{"name": "mine", "base_url": up.base_url}]}
        put = await api.client.request("PUT", "/api/settings", json=change)
        _, after, _ = await asked(api, "chat")

    assert ("scripted/echo", 200, "mine/m") == (before["model"], put.status, after["model"])


STRANGER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    caller, _ = listener.accept()
    caller.recv(65536)
    body = b'{"object": "list", "data": [{"id": "stranger"}]}'
    caller.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%b" % (len(body), body))
    caller.close()
"""


@contextmanager
def stranger(port: int):
    """Another user of the machine who listens on a port."""
    process = subprocess.Popen([sys.executable, "-c", STRANGER, str(port)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"listening\n" == process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@requirement("model.found-default")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a port is")
async def test_a_server_of_another_user_of_the_machine_is_not_taken_in(tmp_path, caplog):
    """Any user can listen on the port of LM Studio, and would be sent every prompt."""
    if not await asyncio.to_thread(_may_change_user):
        pytest.skip("needs root, to be somebody else")
    port = free_port()
    with stranger(port):
        async with (
            serving(tmp_path, environ={"LMSTUDIO_URL": f"http://127.0.0.1:{port}"}) as api,
            asyncio.timeout(LONG),
        ):
            while "belongs to the user 65534 and is not used" not in caplog.text:  # noqa: ASYNC110 - a look may be too short
                await asyncio.sleep(0.02)
            providers = [each["name"] for each in (await api.get("/api/models"))["providers"]]

    assert ["local", "scripted"] == providers


@requirement("model.found-default")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a port is")
async def test_a_server_that_was_found_is_dropped_when_another_user_takes_its_port(tmp_path, up):
    """Ollama is stopped for an update, and somebody else listens in the meantime."""
    if not await asyncio.to_thread(_may_change_user):
        pytest.skip("needs root, to be somebody else")
    async with serving(tmp_path, environ=at(up)) as api:
        await until(api, has("lmstudio"))
        up.refuse()
        with stranger(up.port):
            models = await until(api, lambda models: "lmstudio" not in [each["name"] for each in models["providers"]])

    assert not models["default"].startswith("lmstudio/")


def _may_change_user() -> bool:
    return subprocess.run([sys.executable, "-c", "import os; os.setuid(65534)"], check=False, stderr=-3).returncode == 0


@requirement("model.alias")
@pytest.mark.parametrize("wire", WIRES)
async def test_an_alias_is_a_name_of_a_model_on_every_wire(tmp_path, up, wire):
    """For programs that know only certain names, or cut a name at its slash."""
    file = UP.format(up.base_url) + '[aliases]\ngpt-4o = "up/m"\n'
    async with serving(tmp_path, file) as api:
        _, answered, text = await asked(api, wire, model="gpt-4o")
        listed = (await api.get("/v1/models"))["data"]
        found = await api.get("/v1/models/gpt-4o")

    assert ["m"] == [request.model for request in up.requests if request.method == "POST"]
    assert ("gpt-4o", "gpt-4o", "From up.") == (answered["model"], found["id"], text)
    assert {"id": "gpt-4o", "object": "model", "created": 0, "owned_by": "up"} in listed


@requirement("model.alias")
def test_an_alias_of_an_alias_is_refused_when_the_server_starts(tmp_path):
    """It could lead in a circle."""
    with pytest.raises(SettingsError, match="aliases"):
        made(tmp_path, '[aliases]\na = "b"\nb = "up/m"\n', dict(NO_HOME), None)
