"""A server behind a company's proxy: runs through it, what they say when it fails, and who learns its password."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.certificates import Authority
from tests.support.forward_proxy import ForwardProxy
from tests.support.native import Native
from tests.support.server import Server, clean_environment, provider
from tests.support.upstream import TEXT, Delta, Gate, Hang, Headers, Role, Upstream
from tests.support.waiting import LONG

PASSWORD = "canary-p@ss-77ab21"
ENCODED = PASSWORD.replace("@", "%40")
TOKEN = "dXNlcjpjYW5hcnktcEBzcy03N2FiMjE="
URL = "https://up.test/v1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
async def up(authority: Authority):
    async with Upstream(tls=authority.server_context("up.test")) as up:
        yield up


def with_login(proxy: ForwardProxy) -> str:
    return proxy.url.replace("://", f"://user:{ENCODED}@")


def leaks(text: str) -> list[str]:
    return [secret for secret in (PASSWORD, ENCODED, TOKEN) if secret in text]


def files_of(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "holdfast.toml":
            yield path.read_bytes().decode("latin-1")


async def asked(api: Native, model: str = "up/m") -> dict[str, Any]:
    return await api.settled(await api.start(await api.new_session(), "Hi", model))


@requirement("start.proxy")
@requirement("start.own-tls")
@requirement("safe.proxy-secret")
async def test_a_run_goes_through_the_proxy_of_the_environment_with_an_own_ca(up, authority, tmp_path):
    """What a company's operator sets, and nothing else. The password is the proxy's: nobody else sees it."""
    env = {"SSL_CERT_FILE": str(authority.path), "NO_PROXY": "127.0.0.1,.internal.test"}
    async with ForwardProxy({"up.test:443": (up.host, up.port)}, login=f"user:{PASSWORD}") as proxy:
        env["HTTPS_PROXY"] = with_login(proxy)
        providers = [provider(URL)]
        async with Server(tmp_path, providers, config='log_level = "debug"\n', env=env) as server:
            async with server.client() as client:
                settlement = await asked(Native(client))
                shown = await (await client.get("/api/settings")).text()
            log = server.log_text()

    assert ("completed", TEXT) == (settlement["outcome"], settlement["text"])
    assert {"CONNECT up.test:443 HTTP/1.1"} == set(proxy.lines)
    assert f'"proxy":"{proxy.place}"' in shown.replace(": ", ":")
    assert [] == leaks(shown + log + "".join(files_of(tmp_path)))
    assert [] == leaks(str(up.requests))


@requirement("start.proxy")
@requirement("safe.proxy-secret")
async def test_a_proxy_that_refuses_fails_the_run_at_once_and_is_named(authority, tmp_path):
    """A retry cannot help, so none is made. The error tells an operator what to change, without the password."""
    async with ForwardProxy({}, login="other:login") as proxy:
        up = provider(URL, proxy=with_login(proxy), ca_file=str(authority.path))
        async with Server(tmp_path, [up], config='log_level = "debug"\n') as server, server.client() as client:
            settlement = await asked(Native(client))
            log = server.log_text()
            tried = len(proxy.lines)

    error = settlement["error"]
    assert ("failed", "proxy_refused") == (settlement["outcome"], error["code"])
    assert f"the proxy {proxy.place} refuses the user and password of its URL (407)" in error["message"]
    assert 1 == tried
    assert [] == leaks(str(settlement) + log + "".join(files_of(tmp_path)))


@requirement("stop.closes-upstream")
@requirement("start.proxy")
async def test_a_stop_closes_the_upstream_behind_the_proxy(up, authority, tmp_path):
    """The tunnel ends with the run, and the proxy ends its own connection."""
    up.script = [Headers(), Role(), Delta("Once "), Hang()]
    async with ForwardProxy({"up.test:443": (up.host, up.port)}) as proxy:
        settings = provider(URL, proxy=proxy.url, ca_file=str(authority.path))
        async with Server(tmp_path, [settings]) as server, server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Hi", "up/m")
            await api.shown(run_id, "Once ")
            assert 200 == (await client.post(f"/api/runs/{run_id}/stop")).status
            await up.requests[0].wait_closed()
            settlement = await api.settled(run_id)

    assert ("stopped", "Once ") == (settlement["outcome"], settlement["text"])
    assert settlement["receipt"]["upstream_closed_at"] is not None


@requirement("truth.asked-once")
@requirement("start.proxy")
async def test_a_proxy_that_dies_in_the_middle_fails_the_run_with_its_text(up, authority, tmp_path):
    """The text that came is kept. The upstream was asked once: its model has worked."""
    up.script = [Headers(), Role(), Delta("Once "), Gate()]
    async with ForwardProxy({"up.test:443": (up.host, up.port)}) as proxy:
        settings = provider(URL, proxy=proxy.url, ca_file=str(authority.path))
        async with Server(tmp_path, [settings]) as server, server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Hi", "up/m")
            await api.shown(run_id, "Once ")
            proxy.die()
            settlement = await api.settled(run_id)

    assert ("failed", "upstream_broke", "Once ") == (
        settlement["outcome"],
        settlement["error"]["code"],
        settlement["text"],
    )
    assert 1 == len(up.requests)


def command(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    where = ["--data", str(folder), "--config", str(folder / "holdfast.toml")]
    line = [sys.executable, "-m", "holdfast", *args, *where]
    return subprocess.run(line, env=clean_environment() | env, capture_output=True, text=True, timeout=LONG, cwd=folder)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('ca_file = "gone.pem"', "gone.pem cannot be read: no such file or directory"),
        ('cert = "holdfast.toml"', "must hold a certificate and its private key in PEM form"),
        (f'proxy = "socks5://user:{ENCODED}@proxy:1080"', "a proxy must be http://host:port or https://host:port"),
    ],
)
@requirement("start.own-tls")
@requirement("safe.proxy-secret")
def test_what_cannot_be_used_is_refused_at_the_start_and_by_doctor(tmp_path, setting, said):
    """Not with the first request of somebody. Relative paths are meant from the settings file."""
    (tmp_path / "holdfast.toml").write_text(f'[[providers]]\nname = "up"\nbase_url = "{URL}"\n{setting}\n')
    started = command(tmp_path, "serve", "--port", "0")
    examined = command(tmp_path, "doctor")

    assert 0 != started.returncode
    assert "Provider 'up': " in started.stderr
    assert said in started.stderr
    assert 1 == examined.returncode
    assert said in examined.stdout.replace("\n", " ")
    assert [] == leaks(started.stderr + started.stdout + examined.stdout + examined.stderr)


@requirement("safe.proxy-secret")
@requirement("start.proxy")
async def test_doctor_and_config_show_name_the_proxy_without_its_password(up, authority, tmp_path):
    """They are copied into bug reports."""
    async with ForwardProxy({"up.test:443": (up.host, up.port)}, login=f"user:{PASSWORD}") as proxy:
        settings = f'base_url = "{URL}"\nproxy = "{with_login(proxy)}"\nca_file = "{authority.path}"\n'
        (tmp_path / "holdfast.toml").write_text(f'[[providers]]\nname = "up"\n{settings}')
        examined = await run(tmp_path, "doctor")
        shown = await run(tmp_path, "config", "show")
    async with ForwardProxy({}, login="other:login") as refusing:
        settings = settings.replace(proxy.place, refusing.place)
        (tmp_path / "holdfast.toml").write_text(f'[[providers]]\nname = "up"\n{settings}')
        refused = await run(tmp_path, "doctor")

    assert f"1 model (m), through the proxy {proxy.place}" in " ".join(examined.split())
    assert f"the proxy {refusing.place} refuses the user and password" in " ".join(refused.split())
    assert 'name = "up"' in shown
    assert [] == leaks(examined + shown + refused)


async def run(folder: Path, *args: str) -> str:
    """Run a command while the proxy and the upstream of this loop answer it."""
    done = await asyncio.to_thread(command, folder, *args, COLUMNS="200", HOLDFAST_PORT="0")
    return done.stdout + done.stderr
