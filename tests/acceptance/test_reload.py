"""A settings file that is changed while the server runs: taken in as a whole or not at all, and no stream is cut."""

import asyncio
import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.settings.reload import LIVE
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.native import Native
from tests.support.served import Served
from tests.support.server import Server, clean_environment, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Status, Upstream
from tests.support.waiting import LONG

ADMIN, ANN = "r" * 40, "a" * 40


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


async def reload(client, **headers):
    response = await client.post("/api/settings/reload", headers=headers)
    return response.status, await response.json()


async def logged(server, text):
    """Wait until the log has a text."""
    async with asyncio.timeout(LONG):
        while text not in server.log_text():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)


@requirement("ops.reload")
async def test_a_changed_file_is_taken_in_and_an_open_stream_goes_on(tmp_path, up):
    """A restart for a new model would stop what everybody is reading."""
    up.enqueue([Headers(), Role(), Delta("One "), Gate(), Delta("two."), Finish("stop"), Done()])
    async with Server(tmp_path, [provider(up.base_url)]) as server, server.client() as client:
        api = Native(client)
        run_id = await api.start(await api.new_session(), "Count", "up/m")
        reader = await api.shown(run_id, "One ")
        server.rewrite('log_level = "debug"\nmax_runs = 7\n[aliases]\nmine = "up/m"\n', [provider(up.base_url)])
        status, result = await reload(client)
        up.open()
        rest = [frame.json() for frame in await reader.all_events()]
        aliased = await client.post(
            "/v1/chat/completions", {"model": "mine", "messages": [{"role": "user", "content": "Hi"}]}
        )

        assert (200, {"changed": ["log_level", "aliases"], "needs_restart": ["max_runs"]}) == (status, result)
        assert "completed" == rest[-1]["settlement"]["outcome"]
        assert "One two." == rest[-1]["settlement"]["text"]
        assert 200 == aliased.status


@requirement("ops.reload")
async def test_the_models_are_listed_while_a_provider_is_removed(tmp_path, up):
    """Every page asks for them when it opens. The list was put together from providers of before and of after."""
    stays, gone = provider(up.base_url, models=None), provider(up.base_url, "gone")
    up.models_script = [Gate(), Status(200, up.model_list())]
    async with Server(tmp_path, [stays, gone]) as server, server.client() as client:
        listing = asyncio.create_task(client.get("/api/models"))
        await up.reached()
        server.rewrite("", [stays])
        status, _ = await reload(client)
        up.open()
        listed = await listing
        names = {model["id"] for model in (await listed.json())["models"]}

        assert (200, 200) == (status, listed.status)
        assert "up/m" in names
        assert "gone/m" not in names


@requirement("ops.reload")
async def test_of_an_invalid_file_nothing_is_taken_in(tmp_path, up):
    """Half of a change is a state that nobody has written down."""
    async with Server(tmp_path, [provider(up.base_url)]) as server, server.client() as client:
        server.rewrite('[aliases]\nmine = "up/m"\n[fallbacks]\n"up/m" = "nowhere/m"\n', [provider(up.base_url)])
        status, result = await reload(client)
        aliased = await client.post(
            "/v1/chat/completions", {"model": "mine", "messages": [{"role": "user", "content": "Hi"}]}
        )
        log = server.log_text()

        assert (409, "settings_not_reloaded") == (status, result["error"]["code"])
        assert "no provider named 'nowhere'" in result["error"]["message"]
        assert 404 == aliased.status
        assert "the settings were not reloaded" in log


@requirement("ops.reload")
async def test_sighup_takes_in_the_file_and_the_log_says_what_has_changed(tmp_path, up):
    """What every service manager sends."""
    async with Server(tmp_path, [provider(up.base_url)]) as server, server.client() as client:
        server.rewrite("prot = 9000\n", [provider(up.base_url)])
        server.send_signal(signal.SIGHUP)
        await logged(server, "Unknown setting 'prot'")
        server.rewrite('[aliases]\nmine = "up/m"\n', [provider(up.base_url)])
        server.send_signal(signal.SIGHUP)
        await logged(server, "the settings were reloaded: changed aliases")
        response = await client.get("/health")

        assert 200 == response.status


@requirement("ops.reload")
@pytest.mark.one_server("each node reloads its own settings file when it is told to")
async def test_a_key_that_is_removed_from_the_file_ends_its_access_at_once(tmp_path, up):
    """A leaked key is the reason why somebody is in a hurry. A key that stays loses no stream."""

    def keys(*names):
        digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in (("root", ADMIN), ("ann", ANN))}
        admin = {"root": "true", "ann": "false"}
        return "".join(
            f'[[keys]]\nname = "{name}"\nsha256 = "{digests[name]}"\nadmin = {admin[name]}\n' for name in names
        )

    root, ann = ({"Authorization": f"Bearer {key}"} for key in (ADMIN, ANN))
    async with (
        Server(tmp_path, [provider(up.base_url)], config=keys("root", "ann")) as server,
        server.client() as client,
    ):
        before = (await client.get("/api/me", headers=ann)).status
        refused = await reload(client, **ann)
        server.rewrite(keys("root"), [provider(up.base_url)])
        status, result = await reload(client, **root)
        after = [(await client.get("/api/me", headers=each)).status for each in (ann, root)]

        assert (200, 403) == (before, refused[0])
        assert (200, ["keys"]) == (status, result["changed"])
        assert [401, 200] == after


@requirement("ops.reload")
async def test_the_command_reloads_and_tells(tmp_path, up):
    """For those who do not know the number of the process."""
    async with Server(tmp_path, [provider(up.base_url)]) as server:
        server.rewrite('[aliases]\nmine = "up/m"\n', [provider(up.base_url)])
        command = [sys.executable, "-m", "holdfast", "reload", "--url", server.url]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean_environment(), cwd=tmp_path
        )
        out, _ = await process.communicate()

        assert (0, b"Changed: aliases\n") == (process.returncode, out)


@requirement("ops.reload")
async def test_an_embedded_server_has_no_file_to_reload():
    """The program that embeds it has its settings."""
    async with Served(create_app()) as served, Client(served.url) as client:
        assert (409, "cannot_reload") == ((found := await reload(client))[0], found[1]["error"]["code"])


def test_the_document_lists_what_takes_effect_at_once():
    """Everything else needs a restart, which somebody has to plan."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    listed = page.partition("These take effect at once:")[2].partition("All others need a restart.")[0]

    assert {*LIVE} == {*re.findall(r"`(\w+)`", listed)}
    assert {*LIVE} <= {field.name for field in msgspec.structs.fields(Settings)}


def check(folder, text, **variables):
    (folder / "holdfast.toml").write_text(text)
    command = [sys.executable, "-m", "holdfast", "config", "check", "--config", "holdfast.toml"]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=clean_environment() | variables, check=False
    )


@requirement("ops.config-check")
def test_every_problem_of_the_settings_is_printed_at_once(tmp_path):
    """Who mends one, starts the server and finds the next does so ten times."""
    text = """
prot = 1
log_level = "loud"
[[providers]]
name = "a"
base_ur = "x"
[[providers]]
name = 3
[[providers]]
models = ["x"]
dialect = "klingon"
[[agents]]
name = "z"
max_steps = 0
[prices]
"a/b" = 3
"""
    shown = check(tmp_path, text, HOLDFAST_FOO="1", HOLDFAST_MAX_RUN="2")
    *found, last = shown.stderr.replace(f" in {tmp_path / 'holdfast.toml'}", "").splitlines()

    assert (1, True) == (shown.returncode, last.startswith("12 problems. Settings file: /"))
    assert [
        "Unknown setting 'prot'. Did you mean 'port'?",
        "log_level must be debug, error, info or warning.",
        "Unknown setting 'base_ur' in [[providers]] number 1. Did you mean 'base_url'?",
        "name of [[providers]] number 2 must be a string.",
        "[[providers]] number 3 has no 'name', which it needs.",
        "max_steps of [[agents]] number 1 must be at least 1.",
        "[[agents]] number 1 has no 'model', which it needs.",
        '"a/b" of [prices] must be a table.',
    ] == found[:8]
    assert "unknown dialect 'klingon'" in found[8]
    assert [
        "Unknown variable HOLDFAST_FOO. It is not a setting: unset it.",
        "Unknown variable HOLDFAST_MAX_RUN. Did you mean 'HOLDFAST_MAX_RUNS'?",
        "Provider 'a': base_url is not set.",
    ] == found[9:]


@requirement("ops.config-check")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[fallbacks]\n"up/m" = "nowhere/m"\n', "In fallbacks: no provider named 'up'."),
        ('[[keys]]\nname = "ann"\n', "Key 'ann': neither sha256 nor key_env is set."),
        ('[log_levels]\n"holdfast.engin" = "debug"\n', "there is no module 'holdfast.engin'"),
        ('[[agents]]\nname = "a"\nmodel = "up/m"\ntools = ["nothing"]\n', "nothing"),
        ("port = ", "Cannot read the settings file"),
    ],
)
def test_what_only_a_start_would_find_is_found_too(tmp_path, text, told):
    """A file that passes the check must not stop the next start."""
    shown = check(tmp_path, text)

    assert (1, True) == (shown.returncode, told in shown.stderr), shown.stderr


@requirement("ops.config-check")
def test_valid_settings_pass(tmp_path):
    """A script goes on by the exit code."""
    shown = check(tmp_path, '[aliases]\nmine = "scripted/echo"\n')

    assert (0, "") == (shown.returncode, shown.stderr)
    assert f"The settings are valid: {os.path.realpath(tmp_path)}" in shown.stdout.replace("\n", "")
