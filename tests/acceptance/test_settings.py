"""The settings that a UI shows and changes: what counts, who may, and what is never shown."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import load_with_sources
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.served import Served
from tests.support.server import Server, provider
from tests.support.upstream import TEXT, Delta, Finish, Gate, Headers, Role, Status, Upstream
from tests.support.waiting import LONG

KEY = "sk-canary-ui-77aa55cc33ee"
OTHER_KEY = "sk-canary-ui-11bb22dd44ff"


@pytest.fixture
async def up():
    async with Upstream() as up:
        yield up


@asynccontextmanager
async def served(data: Path, environ: dict[str, str] | None = None, file: str = "") -> AsyncIterator[Client]:
    """A server whose settings are loaded as `holdfast serve` loads them, with nothing listening beside it."""
    nobody = dict.fromkeys(("OLLAMA_HOST", "LLAMACPP_URL", "LMSTUDIO_URL"), "http://127.0.0.1:9")
    app = await asyncio.to_thread(made, data, nobody | (environ or {}), file)
    async with Served(app) as server, server.client() as client:
        yield client


def made(data: Path, environ: dict[str, str], file: str) -> Any:
    path = data / "holdfast.toml"
    path.write_text(file)
    settings, sources = load_with_sources({"data": str(data)}, environ, path)
    return create_app(settings, MemoryStore(), environ, sources=sources, look_every=0.05)


async def put(client: Client, body: Any, **options: Any) -> tuple[int, Any]:
    response = await client.request("PUT", "/api/settings", json=body, **options)
    return response.status, await response.json()


async def get(client: Client, path: str = "/api/settings", **options: Any) -> Any:
    return await (await client.get(path, **options)).json()


def named(shown: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in shown["providers"] if each["name"] == name]
    return found


# changing


@requirement("set.change")
async def test_a_provider_that_is_added_answers_at_once_and_after_a_restart(up, tmp_path):
    """A person pastes a key into the page and talks on; nobody edits a file."""
    async with served(tmp_path) as client:
        status, shown = await put(
            client,
            {
                "default_model": "mine/m",
                "providers": [{"name": "mine", "base_url": up.base_url, "api_key": KEY}],
                "fallbacks": {"mine/m": "scripted/echo"},
            },
        )
        api = Native(client)
        settlement = await api.settled((await _started(api))["id"])
    async with served(tmp_path) as client:
        again = await get(client)

    assert 200 == status
    assert TEXT == settlement["text"]
    assert f"Bearer {KEY}" == up.requests[0].headers["authorization"]
    assert shown == again
    assert ("mine/m", {"mine/m": "scripted/echo"}) == (shown["default_model"], shown["fallbacks"])
    assert {"default_model": "ui", "title_model": "default", "fallbacks": "ui"} == shown["sources"]
    assert {
        "name": "mine",
        "dialect": "openai",
        "profile": None,
        "base_url": up.base_url,
        "proxy": None,
        "models": None,
        "max_runs": 0,
        "options": {},
        "key_set": True,
        "source": "ui",
        "editable": True,
    } == named(shown, "mine")


async def _started(api: Native) -> dict[str, Any]:
    """A run of the default model."""
    response = await api.client.post(f"/api/sessions/{await api.new_session()}/runs", {"input": "Hi"})
    assert 202 == response.status
    started: dict[str, Any] = await response.json()
    return started


@requirement("set.change")
@requirement("set.test")
async def test_a_provider_is_tested_before_it_is_saved(up, tmp_path):
    """A wrong address or key is found while the form is open. Nothing of it stays."""
    tried = {"name": "mine", "base_url": up.base_url, "api_key": KEY, "models": ["by-hand"]}
    async with served(tmp_path) as client:
        before = await get(client)
        good = await client.post("/api/settings/test", tried)
        bad = await client.post("/api/settings/test", {**tried, "base_url": "http://127.0.0.1:9/v1"})
        wrong = await client.post("/api/settings/test", {**tried, "name": "no/name"})
        found, away = await good.json(), await bad.json()
        after = await get(client)

    assert (200, 200, 400) == (good.status, bad.status, wrong.status)
    assert (True, False) == (found["ok"], away["ok"])
    assert found["models"]
    assert "by-hand" not in found["models"]
    assert before == after
    assert KEY not in json.dumps([found, away, after])


@requirement("set.test")
async def test_a_test_says_why_a_provider_cannot_be_used(up, tmp_path):
    """A wrong key, a wrong port, a wrong host and a forgotten scheme are mended in different places."""
    tried = {"name": "mine", "base_url": up.base_url, "api_key": KEY}
    up.models_script = [Status(401, {"error": {"message": f"Incorrect API key provided: {KEY}."}})]
    async with served(tmp_path) as client:
        key = await (await client.post("/api/settings/test", tried)).json()
        port = await (await client.post("/api/settings/test", {**tried, "base_url": "http://127.0.0.1:9/v1"})).json()
        host = await (await client.post("/api/settings/test", {**tried, "base_url": "http://no.invalid/v1"})).json()
        scheme = await (await client.post("/api/settings/test", {**tried, "base_url": "localhost:9/v1"})).json()

    assert [False] * 3 == [key["ok"], port["ok"], host["ok"]]
    assert "mine refuses the key (401): Incorrect API key provided: [redacted]. Check the API key." == key["why"]
    assert "connection refused. Check the address and its port." in port["why"]
    assert "its name could not be resolved. Check the host in base_url." in host["why"]
    assert "must begin with http:// or https://" in scheme["error"]["message"]


@requirement("set.test")
async def test_a_test_waits_for_a_slow_list_and_lists_of_models_do_not(up, tmp_path):
    """A long list takes a hosted provider some seconds. Nobody waits that long for the picker."""
    up.models_script = [Gate(), Status(200, {"data": [{"id": "m"}]})]
    described = {"name": "mine", "base_url": up.base_url}
    async with served(tmp_path) as client:
        test = asyncio.create_task(client.post("/api/settings/test", described))
        await up.reached()
        await put(client, {"providers": [described]})
        waiting = named(await get(client, "/api/models"), "mine")
        up.open()
        tested = await (await test).json()

    assert (False, True, None) == (waiting["ok"], waiting["pending"], waiting["why"])
    assert (True, False, ["m"]) == (tested["ok"], tested["pending"], tested["models"])


async def test_a_run_keeps_its_provider_until_it_ends(up, tmp_path):
    """Whoever takes a provider out, or gives it another key, must not cut off the answers that are being written."""
    up.script = [Headers(), Role(), Delta("Once "), Gate(), Delta("upon"), Finish()]
    mine = {"name": "mine", "base_url": up.base_url, "api_key": KEY, "models": ["m"]}
    async with served(tmp_path) as client:
        api = Native(client)
        await put(client, {"providers": [mine]})
        run_id = await api.start(await api.new_session(), "Hi", "mine/m")
        await api.shown(run_id, "Once ")
        await put(client, {"providers": [mine | {"api_key": OTHER_KEY}]})
        other = await api.start(await api.new_session(), "Hi", "mine/m")
        await api.shown(other, "Once ")
        await put(client, {"providers": []})
        refused = await api.send(await api.new_session(), "Hi", "mine/m")
        up.open()
        settled = [await api.settled(each) for each in (run_id, other)]
        await up.requests[0].wait_closed()

    assert [("completed", "Once upon")] * 2 == [(each["outcome"], each["text"]) for each in settled]
    assert [f"Bearer {KEY}", f"Bearer {OTHER_KEY}"] == [each.headers["authorization"] for each in up.requests]
    assert 404 == refused.status


@requirement("set.change")
async def test_what_is_left_out_stays_and_null_takes_away(up, tmp_path):
    """A page that changes one thing must not have to know the others, least of all the keys."""
    mine = {"name": "mine", "base_url": up.base_url, "models": ["m", "n"]}
    async with served(tmp_path) as client:
        await put(client, {"default_model": "mine/m", "providers": [mine | {"api_key": KEY}]})
        _, renamed = await put(client, {"default_model": "mine/n"})
        _, kept = await put(client, {"providers": [mine | {"max_runs": 3}]})
        _, without = await put(client, {"providers": [mine | {"api_key": None}], "default_model": None})

    assert ("mine/n", True) == (renamed["default_model"], named(renamed, "mine")["key_set"])
    assert (True, 3) == (named(kept, "mine")["key_set"], named(kept, "mine")["max_runs"])
    assert (None, False) == (without["default_model"], named(without, "mine")["key_set"])


@requirement("set.secrets")
async def test_a_key_that_is_kept_goes_to_no_other_address(up, tmp_path):
    """Else whoever may change an address, but knows no key, could have it sent to himself."""
    mine = {"name": "mine", "base_url": "http://127.0.0.1:9/v1", "models": ["m"]}
    async with served(tmp_path) as client:
        await put(client, {"providers": [mine | {"api_key": KEY}]})
        moved = await put(client, {"providers": [mine | {"base_url": up.base_url}]})
        other = await put(client, {"providers": [mine | {"dialect": "anthropic"}]})
        given = await put(client, {"providers": [mine | {"base_url": up.base_url, "api_key": OTHER_KEY}]})

    assert [400, 400, 200] == [status for status, _ in (moved, other, given)]
    assert "again" in moved[1]["error"]["message"]


@requirement("set.secrets")
@pytest.mark.one_server("nodes keep the settings in the store, sealed, and not in a file")
async def test_a_key_is_in_no_answer_and_no_log_and_only_its_owner_can_read_the_file(up, tmp_path):
    """It is written once, to a file of mode 0600, and comes back as the fact that it is there."""
    up.script = [Status(401)]
    os.umask(0)
    try:
        async with Server(tmp_path, [provider(up.base_url)], config='log_level = "debug"') as server:
            async with server.client() as client:
                body = {"providers": [{"name": "mine", "base_url": f"{up.base_url}?key={OTHER_KEY}", "api_key": KEY}]}
                seen = [await put(client, body), await put(client, {"providers": body["providers"] * 2})]
                seen.append((200, await get(client)))
                failed = await client.post("/v1/chat/completions", {"model": "mine/m", "messages": []})
                seen += [(200, await failed.text()), (200, await get(client, "/api/models"))]
            log = server.log_text()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("settings.*")}
    finally:
        os.umask(0o022)

    told = json.dumps(seen) + log
    assert [200, 400] == [status for status, _ in seen[:2]]
    assert KEY not in told
    assert OTHER_KEY not in told
    assert {"settings.json": 0o600} == modes
    assert KEY not in (tmp_path / "settings.json").read_text()
    assert "mine" in (tmp_path / "settings.json").read_text()  # its name, for the case that the key is lost


# what is pinned


@requirement("set.pinned")
async def test_what_is_set_by_the_environment_or_a_file_is_refused_with_where(up, tmp_path):
    """Values that a database pins over the environment are what people hate most; so is a change that does nothing."""
    environ = {"HOLDFAST_DEFAULT_MODEL": "openai/m", "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": up.base_url}
    async with served(tmp_path, environ) as client:
        by_env = await get(client)
        refused = [
            await put(client, {"default_model": "scripted/echo"}),
            await put(client, {"providers": [{"name": "openai", "base_url": up.base_url}]}),
            await put(client, {"providers": [{"name": "local", "base_url": up.base_url}]}),
        ]
        unchanged = await get(client)
    file = 'default_model = "up/m"\nfallbacks = { "up/m" = "up/n" }\n[[providers]]\nname = "up"\n'
    async with served(tmp_path, file=f'{file}base_url = "{up.base_url}"\n') as client:
        by_file = await get(client)
        refused += [
            await put(client, {"default_model": "up/n"}),
            await put(client, {"providers": [{"name": "up", "base_url": up.base_url}]}),
            await put(client, {"fallbacks": {}}),
        ]

    assert [409] * 6 == [status for status, _ in refused]
    assert {"setting_pinned"} == {answer["error"]["code"] for _, answer in refused}
    where = ["HOLDFAST_DEFAULT_MODEL", "OPENAI_API_KEY", "built in", *[str(tmp_path / "holdfast.toml")] * 3]
    assert [] == [
        told for told, (_, answer) in zip(where, refused, strict=True) if told not in answer["error"]["message"]
    ]
    assert refused[2][1]["error"]["message"].endswith("Choose another name.")  # a built-in one cannot be changed
    assert by_env == unchanged
    assert "env" == by_env["sources"]["default_model"]
    assert [("openai", "env", True), ("local", "default", False), ("scripted", "default", False)] == [
        (each["name"], each["source"], each["key_set"]) for each in by_env["providers"]
    ]
    assert {"default_model": "file", "title_model": "default", "fallbacks": "file"} == by_file["sources"]
    assert [("up", "file", False), ("local", "default", False), ("scripted", "default", False)] == [
        (each["name"], each["source"], each["editable"]) for each in by_file["providers"]
    ]


@requirement("set.pinned")
async def test_the_environment_wins_over_what_was_set_in_the_ui_before(up, tmp_path):
    """And gives way again where it is taken back: nothing was overwritten."""
    mine = {"name": "openai", "base_url": "http://127.0.0.1:9/v1", "models": ["m"]}
    async with served(tmp_path) as client:
        await put(client, {"providers": [mine], "default_model": "openai/m"})
    async with served(tmp_path, {"OPENAI_API_KEY": KEY, "HOLDFAST_DEFAULT_MODEL": "scripted/echo"}) as client:
        pinned = await get(client)
    async with served(tmp_path) as client:
        free = await get(client)

    assert ("scripted/echo", "env") == (pinned["default_model"], named(pinned, "openai")["source"])
    assert ("openai/m", "ui") == (free["default_model"], named(free, "openai")["source"])


# what makes no sense


@pytest.mark.parametrize(
    "body",
    [
        {"providers": [{"name": "a/b", "base_url": "http://x"}]},
        {"providers": [{"name": "", "base_url": "http://x"}]},
        {"providers": [{"name": "a", "base_url": "http://x"}] * 2},
        {"providers": [{"name": "a"}]},
        {"providers": [{"name": "a", "base_url": "file:///etc/passwd"}]},
        {"providers": [{"name": "a", "base_url": "http://user:pass@x"}]},
        {"providers": [{"name": "a", "base_url": "http://x", "api_key": "two\nlines"}]},
        {"providers": [{"name": "a", "base_url": "http://x", "api_key_env": "HOME"}]},
        {"providers": [{"name": "a", "base_url": "http://x", "dialect": "local"}]},
        {"providers": [{"name": "a", "base_url": "http://x", "max_runs": -1}]},
        {"providers": [{"name": "a", "base_url": "http://x", "options": {"keep_alive": "5m"}}]},
        {"providers": [{"name": "a", "base_url": "http://x", "dialect": "ollama", "options": {"keepalive": 5}}]},
        {"providers": [{"name": "a", "base_url": "http://x", "dialect": "ollama", "options": {"think": 7}}]},
        {"providers": [{"name": "a", "base_url": "http://x", "dialect": "ollama", "options": []}]},
        {"providers": [{"name": f"a{n}", "base_url": "http://x"} for n in range(101)]},
        {"fallbacks": {"nobody/m": "scripted/echo"}},
        {"fallbacks": {"scripted/echo": "bare"}},
        {"defaultmodel": "scripted/echo"},
        {"default_model": 7},
        [],
    ],
)
@requirement("set.change")
async def test_what_makes_no_sense_is_refused_whole(tmp_path, body):
    """A key read from any variable, a file as an address, half of a change: none of it is taken."""
    async with served(tmp_path) as client:
        before = await get(client)
        status, answer = await put(client, body)
        after = await get(client)

    assert (400, "invalid_request_error") == (status, answer["error"]["type"])
    assert before == after
    assert not (tmp_path / "settings.json").exists()


@requirement("set.change")
async def test_a_default_model_that_nobody_offers_is_not_found(tmp_path):
    """With what may have been meant, as everywhere."""
    async with served(tmp_path) as client:
        status, answer = await put(client, {"default_model": "scriptet/echo"})

    assert (404, "model_not_found") == (status, answer["error"]["code"])
    assert "scripted/echo" in answer["error"]["message"]


@requirement("set.change")
async def test_a_change_that_cannot_be_saved_does_not_count(tmp_path):
    """What is in force and what is there after a restart must be the same."""
    async with served(tmp_path) as client:
        (tmp_path / "settings.json").mkdir()
        (tmp_path / "settings.json" / "in the way").touch()
        before = await get(client)
        status, answer = await put(client, {"default_model": "scripted/echo"})
        after = await get(client)

    assert (503, "settings_not_saved") == (status, answer["error"]["code"])
    assert before == after


# who may


@requirement("set.admin")
async def test_only_an_admins_key_changes_the_settings_and_sees_where_the_upstreams_are(up, tmp_path):
    """The key of the server itself is one; others are where they were made so, in the file or by the command."""
    async with Server(
        tmp_path, [provider(up.base_url)], env={"HOLDFAST_API_KEY": "root", "ADA": "ada", "BOB": "bob"}
    ) as s:
        s.config.write_text(
            s.config.read_text()
            + '[[keys]]\nname = "ada"\nkey_env = "ADA"\nadmin = true\n[[keys]]\nname = "bob"\nkey_env = "BOB"\n'
        )
        await s.restart()
        seen = {}
        for key in ("root", "ada", "bob"):
            async with s.client(authorization=f"Bearer {key}") as client:
                shown, me = await get(client), await get(client, "/api/me")
                status, answer = await put(client, {"providers": []})
            seen[key] = (status, named(shown, "up")["base_url"], shown["editable"], me["admin"])

    assert {"root": (200, up.base_url, True, True), "ada": (200, up.base_url, True, True)} == {
        key: told for key, told in seen.items() if key != "bob"
    }
    assert (403, None, False, False) == seen["bob"]
    assert "admin_only" == answer["error"]["code"]


# what listens on this machine


async def until(client: Client, is_so: Callable[[Any], bool]) -> Any:
    """Ask for the models until they are as wanted."""
    async with asyncio.timeout(LONG):
        while not is_so(models := await get(client, "/api/models")):
            pass
    return models


def state(models: Any, name: str) -> bool | None:
    """Whether a provider answers; None where there is none."""
    return next((each["ok"] for each in models["providers"] if each["name"] == name), None)


@requirement("set.found")
async def test_a_local_server_that_starts_later_is_found_and_one_that_leaves_is_away(up, tmp_path):
    """Nobody restarts Holdfast because Ollama was updated; and a model that is away is not the one that is chosen."""
    up.listed = ["qwen3"]
    up.refuse()
    async with served(tmp_path, {"LMSTUDIO_URL": f"http://127.0.0.1:{up.port}"}) as client:
        before = await get(client, "/api/models")
        await up.listen()
        found = await until(client, lambda models: state(models, "lmstudio"))
        shown = await get(client)
        answered = await Native(client).settled((await _started(Native(client)))["id"])
        up.refuse()
        away = await until(client, lambda models: state(models, "lmstudio") is False)
        await up.listen()
        back = await until(client, lambda models: state(models, "lmstudio"))

    assert state(before, "lmstudio") is None
    assert "lmstudio/qwen3" == found["default"] == back["default"]
    assert ("found", False) == (named(shown, "lmstudio")["source"], named(shown, "lmstudio")["editable"])
    assert ("completed", TEXT) == (answered["outcome"], answered["text"])
    assert not away["default"].startswith("lmstudio/")


@requirement("set.found")
async def test_what_is_set_up_by_hand_stands_before_what_was_found(up, tmp_path):
    """Whoever gives an address for Ollama means that one."""
    async with served(tmp_path, {"LMSTUDIO_URL": f"http://127.0.0.1:{up.port}"}) as client:
        await until(client, lambda models: state(models, "lmstudio"))
        await put(client, {"providers": [{"name": "lmstudio", "base_url": "http://127.0.0.1:9/v1", "models": ["m"]}]})
        by_hand = named(await get(client), "lmstudio")
        await put(client, {"providers": []})
        again = named(await get(client), "lmstudio")

    assert ("ui", "http://127.0.0.1:9/v1") == (by_hand["source"], by_hand["base_url"])
    assert ("found", up.base_url) == (again["source"], again["base_url"])


@requirement("set.found")
async def test_a_fallback_may_name_a_local_server_that_is_not_there_yet(tmp_path):
    """It is for the day on which the other one is away, and Ollama may start after Holdfast."""
    file = '[fallbacks]\n"openai/gpt-5-mini" = "ollama/qwen3"\n'
    async with served(tmp_path, {"OPENAI_API_KEY": KEY}, file) as client:
        shown = await get(client)

    assert {"openai/gpt-5-mini": "ollama/qwen3"} == shown["fallbacks"]
