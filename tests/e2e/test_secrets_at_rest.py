"""Keys of providers on the disk: sealed at the first start, rotated while the server runs, lost, backed up."""

import asyncio
import json
import stat
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.secrets.key_sources import SecretKeyFile
from holdfast.wires.openai import webhooks
from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.ports import free_port
from tests.support.server import Server, StartFailed, provider
from tests.support.upstream import Upstream, answer

KEY, OTHER = "sk-canary-at-rest-7751aa", "sk-canary-at-rest-0f0f22"
SCRIPTED = {"name": "scripted", "dialect": "scripted"}


def alone(data: Path, **env: str) -> Server:
    """A server with a data folder of its own."""
    return Server(data, [SCRIPTED], nodes=1, env=env)


def mine(up: Upstream, key: str = KEY) -> dict[str, Any]:
    return {"name": "mine", "base_url": up.base_url, "api_key": key, "models": ["m"]}


async def save(client: Client, *providers: dict[str, Any]) -> int:
    return (await client.request("PUT", "/api/settings", json={"providers": list(providers)})).status


async def key_sent(client: Client, up: Upstream) -> str:
    """Ask the provider something, and return the key that it got."""
    asked = {"model": "mine/m", "messages": [{"role": "user", "content": "?"}]}
    assert 200 == (await client.post("/v1/chat/completions", asked)).status
    return up.requests[-1].headers["authorization"].removeprefix("Bearer ")


def all_bytes(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@requirement("safe.sealed")
async def test_keys_that_an_earlier_version_kept_in_clear_are_sealed_at_the_first_start(tmp_path):
    """Nobody has to know of it: the provider answers with its key, and no file has the key any more."""
    async with Upstream(answer("42")) as up:
        saved = tmp_path / "settings.json"
        saved.write_text(json.dumps({"default_model": "mine/m", "providers": [mine(up)]}))
        saved.chmod(0o600)
        async with alone(tmp_path) as server, server.client() as client:
            first = await key_sent(client, up)
            shown = await (await client.get("/api/settings")).text()
            await server.restart()
            again = await key_sent(client, up)

    assert (KEY, KEY) == (first, again)
    assert KEY.encode() not in all_bytes(tmp_path)
    assert KEY not in shown
    assert 0o600 == stat.S_IMODE(SecretKeyFile(tmp_path).path.stat().st_mode)


@requirement("safe.sealed")
async def test_a_rotation_while_the_server_runs_loses_nothing(tmp_path):
    """The server reads the new key when it next seals, and the old key opens nothing any more."""
    async with Upstream(answer("42")) as up, alone(tmp_path / "data") as server, server.client() as client:
        shell = Shell(tmp_path, {**here(server), "HOLDFAST_CONFIG": str(server.config)})
        nothing = await shell("secrets", "rotate")
        await save(client, mine(up))
        file = SecretKeyFile(server.data)
        before = await asyncio.to_thread(file.read)
        rotated = await shell("secrets", "rotate")
        after = await asyncio.to_thread(file.read)
        second = await shell("secrets", "rotate")
        await save(client, mine(up, OTHER))
        await server.restart()
        sent = await key_sent(client, up)
        last = await asyncio.to_thread(file.read)

    assert (1, True) == (nothing.code, "nothing is encrypted yet" in nothing.err)
    assert (0, 0) == (rotated.code, second.code), rotated.err + second.err
    assert (1, 1, False) == (len(before), len(after), before == after)
    assert OTHER == sent
    assert not set(before + after) & set(last)


@requirement("safe.sealed")
async def test_a_rotation_keeps_the_secrets_that_are_not_of_the_settings(tmp_path):
    """Browsers know the key for push messages, and callers that of a trigger: nobody could give them another."""
    async with alone(tmp_path / "data") as server, server.client() as client:
        shell = Shell(tmp_path, {**here(server), "HOLDFAST_CONFIG": str(server.config)})
        key = (await (await client.request("PUT", "/api/notifications", json={})).json())["key"]
        trigger = {"name": "signed", "prompt": "Go", "model": "scripted/echo", "signed": True}
        made = await (await client.post("/api/triggers", trigger)).json()
        rotated = await shell("secrets", "rotate")
        await server.restart()
        after = (await (await client.request("PUT", "/api/notifications", json={})).json())["key"]
        headers = webhooks.headers(webhooks.key_of(made["secret"]), "call_1", int(time.time()), b"{}")
        called = await client.post(made["path"], {}, headers=headers)

    assert 0 == rotated.code, rotated.err
    assert key == after
    assert 202 == called.status, await called.text()


@requirement("safe.sealed")
async def test_a_key_that_is_given_later_takes_over_at_the_next_start(tmp_path):
    """An operator who moves the key out of the data folder can then delete the file there."""
    given = "g" * 40
    async with Upstream(answer("42")) as up:
        async with alone(tmp_path) as server, server.client() as client:
            await save(client, mine(up))
        async with alone(tmp_path, HOLDFAST_SECRET_KEY=given):
            pass
        SecretKeyFile(tmp_path).path.unlink()
        both = f"{'n' * 40},{given}"
        async with alone(tmp_path, HOLDFAST_SECRET_KEY=both) as server, server.client() as client:
            sent = await key_sent(client, up)

    assert KEY == sent


@requirement("safe.sealed")
async def test_a_key_that_is_given_later_takes_over_the_secrets_in_the_store_too(tmp_path):
    """Without the file, browsers would be sent nothing more, and their key for push messages be gone."""
    async with alone(tmp_path) as server, server.client() as client:
        key = (await (await client.request("PUT", "/api/notifications", json={})).json())["key"]
    async with alone(tmp_path, HOLDFAST_SECRET_KEY="g" * 40):
        pass
    SecretKeyFile(tmp_path).path.unlink()
    async with alone(tmp_path, HOLDFAST_SECRET_KEY="g" * 40) as server, server.client() as client:
        after = (await (await client.request("PUT", "/api/notifications", json={})).json())["key"]

    assert key == after


@requirement("safe.sealed")
async def test_a_lost_key_names_what_is_lost_and_a_reset_lets_the_server_start(tmp_path):
    """And if the key turns up after all, nothing is lost."""
    async with Upstream(answer("42")) as up:
        data = tmp_path / "data"
        async with alone(data) as server, server.client() as client:
            await save(client, mine(up))
        shell = Shell(tmp_path, {**here(server), "HOLDFAST_CONFIG": str(server.config)})
        sound = await shell("doctor")
        kept = SecretKeyFile(data).path.rename(tmp_path / "kept.key")
        with pytest.raises(StartFailed) as refused:
            await server.restart()
        doctor = await shell("doctor")
        asked = await shell("secrets", "reset", stdin="n\n")
        reset = await shell("secrets", "reset", "--yes")
        nothing = await shell("secrets", "reset", "--yes")
        async with alone(data) as server, server.client() as client:
            empty = await (await client.get("/api/settings")).text()
        (data / "settings.json.sealed").rename(data / "settings.json")
        kept.rename(SecretKeyFile(data).path)
        async with alone(data) as server, server.client() as client:
            found = await key_sent(client, up)

    assert "Keep a copy elsewhere" in sound.out
    for said in (str(refused.value), doctor.out):
        assert "secret key that this server does not have" in " ".join(said.split())
        assert "holdfast secrets reset" in " ".join(said.split())
        assert "the providers mine and their keys" in " ".join(said.split())
    assert (1, 0, 0) == (asked.code, reset.code, nothing.code), reset.err
    assert "settings.json.sealed" in reset.err.replace("\n", "")
    assert "nothing to delete" in nothing.out
    assert '"mine"' not in empty
    assert KEY == found


@requirement("safe.sealed", "store.backup")
async def test_a_backup_has_no_key_in_clear_and_the_restore_says_what_is_needed(tmp_path):
    """Backups lie on disks of others. The key that opens them must not lie beside."""
    async with Upstream(answer("42")) as up:
        async with alone(tmp_path / "data") as server, server.client() as client:
            shell = Shell(tmp_path, {**here(server), "HOLDFAST_CONFIG": str(server.config)})
            await save(client, mine(up))
            backed_up = await shell("backup", "backup.tar.gz")
        with tarfile.open(tmp_path / "backup.tar.gz") as tar:
            tar.extractall(tmp_path / "content", filter="data")
        other = Shell(tmp_path / "other", {"HOLDFAST_PORT": str(free_port())})
        other.home.mkdir()
        restored = await other("restore", str(tmp_path / "backup.tar.gz"))
        data = other.home / "data" / "holdfast"
        SecretKeyFile(data).path.write_bytes(SecretKeyFile(server.data).path.read_bytes())
        async with alone(data) as server, server.client() as client:
            sent = await key_sent(client, up)

    assert (0, 0) == (backed_up.code, restored.code), backed_up.err + restored.err
    assert KEY.encode() not in all_bytes(tmp_path / "content")
    assert [] == [*(tmp_path / "content").rglob("secret.key*")]
    assert "secret.key is not in it" in backed_up.err.replace("\n", " ")
    assert "Put the key back" in restored.err.replace("\n", " ")
    assert KEY == sent


@requirement("safe.sealed", "nodes.settings")
async def test_the_settings_in_a_shared_store_are_rotated_and_reset(postgres, tmp_path):
    """With both keys on every server, the command seals the document again, and the old key can be removed."""
    store, old, new = postgres.url(await postgres.new_database()), "o" * 40, "n" * 40
    shell = Shell(tmp_path, {"HOLDFAST_STORE": store})
    async with Upstream(answer("42")) as up:

        def server(key: str) -> Server:
            return Server(
                tmp_path / "data", [provider(up.base_url)], env={"HOLDFAST_STORE": store, "HOLDFAST_SECRET_KEY": key}
            )

        async with server(old) as first, first.client() as client:
            await save(client, mine(up))
        async with server(f"{new},{old}"):
            rotated = await shell("secrets", "rotate", HOLDFAST_SECRET_KEY=f"{new},{old}")
            again = await shell("secrets", "rotate", HOLDFAST_SECRET_KEY=f"{new},{old}")
        async with server(new) as last, last.client() as client:
            sent = await key_sent(client, up)
        with pytest.raises(StartFailed, match="secrets reset"):
            async with server("x" * 40):
                pass
        reset = await shell("secrets", "reset", "--yes", HOLDFAST_SECRET_KEY="x" * 40)
        async with server("x" * 40) as last, last.client() as client:
            empty = await (await client.get("/api/settings")).text()

    assert (0, 0, 0) == (rotated.code, again.code, reset.code), rotated.err + again.err + reset.err
    assert "Encrypted with the first key" in rotated.out
    assert "Nothing is encrypted with an old key" in again.out
    assert KEY == sent
    assert '"mine"' not in empty
