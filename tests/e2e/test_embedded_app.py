"""The server inside another program: `create_app()` has what it is given, and nothing of the user's."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from holdfast.server import ProviderSettings, Settings, create_app
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import Served
from tests.support.uvicorn_app import UvicornApp
from tests.support.waiting import LONG, SOON

SCRIPTED = ProviderSettings("scripted", dialect="scripted")
KEY = "k" * 40
KEYED = Settings(providers=(SCRIPTED,), api_key=KEY)

WHOLE = """
from holdfast.server import ProviderSettings, Settings, create_app

app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),), drain=0.0))
"""
STARTS_AND_LISTS_MODELS = """
import asyncio, json, sys

from holdfast.server import create_app

seen = []
sys.addaudithook(lambda event, args: seen.append((event, args)))


async def main():
    app = create_app()
    messages = []
    async with app.router.lifespan_context(app):
        scope = {"type": "http", "method": "GET", "path": "/api/models", "root_path": "", "query_string": b"",
                 "headers": [(b"host", b"localhost")], "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1)}

        async def receive():
            await asyncio.Event().wait()

        async def send(message):
            messages.append(message)

        await app(scope, receive, send)
    print(b"".join(message.get("body", b"") for message in messages).decode())


asyncio.run(main())
opened = [str(args[0]) for event, args in seen if event == "open" and isinstance(args[0], str)]
connected = [str(args[1]) for event, args in seen if event == "socket.connect"]
print(json.dumps([path for path in opened if sys.argv[1] in path]))
print(json.dumps(connected))
"""


async def agent(request):
    yield f"You said: {request.text}"


def a_users_home(home):
    """A home in which everything is set that `holdfast serve` would find."""
    provider = '[[providers]]\nname = "mine"\ndialect = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n'
    for folder in (home / ".config" / "holdfast", home / ".local" / "share" / "holdfast"):
        folder.mkdir(parents=True)
        (folder / "holdfast.toml").write_text(provider)
        (folder / "settings.json").write_text("damaged: to read it would be an error")
    (home / "holdfast.toml").write_text(provider)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HOLDFAST_API_KEY": KEY,
        "HOLDFAST_CONFIG": str(home / "holdfast.toml"),
        "OPENAI_API_KEY": "sk-of-the-user",
        "OLLAMA_HOST": "http://127.0.0.1:9",
    }


@requirement("embed.nothing-read")
def test_an_app_without_settings_reads_nothing_of_the_user_and_looks_for_nobody(tmp_path):
    """A program that embeds us must not send its users' prompts to a provider that it never named."""
    command = [sys.executable, "-c", STARTS_AND_LISTS_MODELS, str(tmp_path)]
    environ = a_users_home(tmp_path)
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LONG)

    assert (0, "") == (ran.returncode, ran.stderr)
    assert ['{"models":[],"default":null,"providers":[],"currency":"USD"}', "[]", "[]"] == ran.stdout.splitlines()


@requirement("embed.nothing-read")
async def test_an_app_has_the_agents_and_providers_that_it_is_given():
    """And no others: an embedder's list of models is the embedder's."""
    async with Served(create_app(Settings(providers=(SCRIPTED,)), agents={"parrot": agent})) as served:
        async with served.client() as client:
            models = (await (await client.get("/api/models")).json())["models"]
            asked = {"model": "agent/parrot", "messages": [{"role": "user", "content": "hi"}]}
            answer = await (await client.post("/v1/chat/completions", asked)).json()

    assert {"agent", "scripted"} == {model["id"].partition("/")[0] for model in models}
    assert "You said: hi" == answer["choices"][0]["message"]["content"]


@requirement("embed.nothing-read")
async def test_what_is_set_in_the_page_lasts_as_long_as_the_process_without_a_data_folder(tmp_path, monkeypatch):
    """There is no folder that it may be written to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    async with Served(create_app(Settings(providers=(SCRIPTED,)))) as served, served.client() as client:
        changed = await client.request("PUT", "/api/settings", json={"default_model": "scripted/echo"})
        shown = await (await client.get("/api/settings")).json()

    assert (200, "scripted/echo") == (changed.status, shown["default_model"])
    assert [] == list(tmp_path.rglob("*"))


@requirement("embed.nothing-read")
async def test_a_data_folder_that_is_named_keeps_what_the_app_does(tmp_path):
    """`Settings(data=...)` is all that an embedder has to say for runs that survive."""
    settings = Settings(providers=(SCRIPTED,), data=str(tmp_path))
    listed = []
    for _ in range(2):
        app = await asyncio.to_thread(create_app, settings)
        async with Served(app) as served, served.client() as client:
            listed.append((await (await client.get("/api/sessions")).json())["sessions"])
            await client.post("/api/sessions", {"title": "Kept"})

    assert [[], ["Kept"]] == [[session["title"] for session in sessions] for sessions in listed]


def mounted(app, prefix):
    """An app as others mount it: Starlette runs no lifespan of a mounted app, so the outer one does."""

    @asynccontextmanager
    async def lifespan(_):
        async with app.router.lifespan_context(app):
            yield

    return Starlette(routes=[Mount(prefix, app)], lifespan=lifespan)


@requirement("embed.mounted")
@pytest.mark.parametrize("prefix", ["/ai", "/assets", "/s", "/runs", "/v1", "/health"])
async def test_a_mounted_app_needs_the_same_keys_under_every_prefix(prefix):
    """Paths decide what is open: a prefix that looks like one of them must open nothing."""
    paths = ["/health", "/api/models", "/v1/models", "/api/sessions", "/openapi.json", "/"]
    async with Served(create_app(KEYED)) as alone, Served(mounted(create_app(KEYED), prefix)) as inside:
        async with alone.client() as client, inside.client() as other:
            expected = [(await client.get(path)).status for path in paths]
            seen = [(await other.get(prefix + path)).status for path in paths]
            asked = {"model": "scripted/echo", "messages": [{"role": "user", "content": "hi"}]}
            headers = {"authorization": f"Bearer {KEY}"}
            answer = await other.post(f"{prefix}/v1/chat/completions", asked, headers=headers)

    assert [200, 401, 401, 401, 401, 200] == expected
    assert (expected, 200) == (seen, answer.status)


def served_at(app, address):
    """The app as a server calls it that listens on this address."""

    async def wrapped(scope, receive, send):
        await app({**scope, "server": address}, receive, send)

    return wrapped


@requirement("embed.no-key-local")
@pytest.mark.parametrize(
    ("settings", "address", "status"),
    [
        (Settings(providers=(SCRIPTED,)), ("127.0.0.1", 80), 200),
        (Settings(providers=(SCRIPTED,)), ("::1", 80), 200),
        (Settings(providers=(SCRIPTED,)), ("/run/app.sock", None), 200),
        (Settings(providers=(SCRIPTED,)), ("192.0.2.7", 80), 401),
        (KEYED, ("192.0.2.7", 80), 200),
    ],
)
async def test_an_app_without_keys_answers_on_this_machine_alone(settings, address, status):
    """Who embeds it chooses the address, and anyone can send `Host: localhost`."""
    async with Served(served_at(create_app(settings), address)) as served, served.client() as client:
        answer = await client.get("/api/models", headers={"authorization": f"Bearer {KEY}"})

    assert status == answer.status


@requirement("resp.websocket")
async def test_a_websocket_in_another_server_is_declined_and_says_why():
    """A bare 403 looks like a wrong key. 426 is the status at which Codex goes on over HTTP."""
    async with Served(create_app(Settings(providers=(SCRIPTED,))), ws="websockets-sansio") as served:
        with pytest.raises(InvalidStatus) as declined:
            await connect(served.url.replace("http", "ws") + "/v1/responses", proxy=None)
    body = json.loads(declined.value.response.body)

    assert (426, "websocket_unavailable") == (declined.value.response.status_code, body["error"]["code"])


@requirement("embed.shutdown")
async def test_the_whole_server_in_another_asgi_server_ends_its_streams_at_a_signal(tmp_path):
    """uvicorn tells an app of the end only when its responses are complete. Our own server settles the runs first."""
    (tmp_path / "whole.py").write_text(WHOLE)
    async with UvicornApp(tmp_path, "whole") as program, program.client() as client:
        api = Native(client)
        reader = await api.events(await api.start(await api.new_session(), "Hello", "scripted/lorem:100000:100"))
        await reader.next_event()
        began = time.monotonic()
        program.send(signal.SIGINT)
        frames = await reader.all_events()
        logged = await program.ended()
        seconds = time.monotonic() - began

    settlement = frames[-1].json()["settlement"]
    assert ("stopped", "shutdown") == (settlement["outcome"], settlement["by"])
    assert seconds < SOON
    assert "" == logged
