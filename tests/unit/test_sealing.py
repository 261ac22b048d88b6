"""Sealed secrets: what opens them, what does not, and where their keys come from."""

import multiprocessing
import os
import stat
import time

import pytest

from holdfast.server.config.settings import Settings, SettingsError
from holdfast.server.features.agents.accounts import McpAccount
from holdfast.server.features.data.resealing import reseal_store
from holdfast.server.features.notifications.people import Persons
from holdfast.server.features.notifications.push import PushKeys
from holdfast.server.features.schedules.triggers import TriggerSecret
from holdfast.server.secrets.key_sources import SecretKeyFile, SecretKeys, new_secret_key
from holdfast.server.secrets.sealer import CannotUnseal, NoSecretKey, Sealer
from holdfast.store.documents import Documents
from holdfast.store.memory import MemoryStore
from holdfast.wires.openai import webhooks
from tests.requirements import requirement

ONE, TWO = "1" * 64, "2" * 64
STORE = "postgresql://u@h/d"


def sealer(*keys: str, **settings: str) -> Sealer:
    return Sealer(SecretKeys(Settings(secret_key=",".join(keys), **settings), None))


@requirement("safe.sealed")
def test_a_sealed_text_opens_under_its_own_name_only():
    """Otherwise a writer of the database could put one secret in place of another."""
    sealed = sealer(ONE).seal("settings", b"sk-secret")

    assert b"sk-secret" == sealer(ONE).open("settings", sealed)
    assert b"secret" not in sealed
    with pytest.raises(CannotUnseal, match="moved here"):
        sealer(ONE).open("other", sealed)


@requirement("safe.sealed")
def test_a_sealed_text_with_any_changed_byte_is_refused():
    """No part of it is believed without its tag: not the version, not the id of the key, not the nonce."""
    sealed = sealer(ONE).seal("name", b"text")

    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises(CannotUnseal):
            sealer(ONE).open("name", changed)
    for length in range(len(sealed)):
        with pytest.raises(CannotUnseal):
            sealer(ONE).open("name", sealed[:length])


@requirement("safe.sealed")
def test_two_keys_at_once_open_what_either_has_sealed():
    """A rotation needs no moment at which nothing can be read."""
    old, both, new = sealer(ONE), sealer(TWO, ONE), sealer(TWO)
    first, second = old.seal("name", b"first"), both.seal("name", b"second")

    assert (b"first", b"second") == (both.open("name", first), both.open("name", second))
    assert b"second" == new.open("name", second)
    assert (False, True) == (both.is_current(first), both.is_current(second))
    with pytest.raises(CannotUnseal, match="secrets reset"):
        new.open("name", first)


@requirement("safe.sealed")
async def test_every_secret_in_the_store_is_sealed_with_the_new_key():
    """The old key is deleted after a rotation: what is not sealed again is lost for good."""
    store, old, both, new = MemoryStore(), sealer(ONE), sealer(TWO, ONE), sealer(TWO)
    webhook, secret = await Persons(store, old, time.time).add_webhook("ada", "https://x.org/", ("run.failed",))
    shown = await PushKeys(store, old).shown()
    triggers = Documents(store, "trigger_secret", TriggerSecret)
    await triggers.put("trg_1", TriggerSecret(sealed=await old.seal_text("the secret of trigger trg_1", b"signed")))
    await triggers.put("trg_2", TriggerSecret(digest="unsigned"))
    await triggers.put("trg_3", TriggerSecret(sealed=await sealer("3" * 64).seal_text("the secret", b"lost before")))
    accounts = Documents(store, "mcp_account", McpAccount)
    await accounts.put("acc", McpAccount("desk", 7.0, await old.seal_text("the account acc", b"tokens")))
    first, again = [await reseal_store(store, both) for _ in range(2)]
    (kept,) = (await (persons := Persons(store, new, time.time)).of("ada")).webhooks
    opened = [
        await new.open_text("the secret of trigger trg_1", (await triggers.get("trg_1")).body.sealed),
        await new.open_text("the account acc", (await accounts.get("acc")).body.sealed),
    ]

    assert (True, False) == (first, again)
    assert (webhook.id, webhooks.key_of(secret)) == (kept.id, await persons.key_of(kept))
    assert shown == await PushKeys(store, new).shown()
    assert [b"signed", b"tokens"] == opened
    assert TriggerSecret(digest="unsigned") == (await triggers.get("trg_2")).body


@requirement("safe.sealed")
def test_the_same_text_is_never_sealed_to_the_same_bytes():
    """A repeated nonce would reveal the key stream."""
    assert 1000 == len({sealer(ONE).seal("name", b"text") for _ in range(1000)})


@requirement("safe.sealed")
def test_without_a_key_for_all_servers_nothing_is_sealed():
    """Each server of a shared store would make another key, and none could read what another has sealed."""
    with pytest.raises(NoSecretKey, match="HOLDFAST_SECRET_KEY"):
        Sealer(SecretKeys(Settings(store=STORE), None)).seal("name", b"text")


@requirement("safe.sealed")
def test_the_cluster_key_seals_until_a_secret_key_is_given(tmp_path):
    """Servers that had only a cluster key can open their secrets after they got a better key."""
    before = sealer(store=STORE, cluster_key="c" * 16).seal("name", b"text")

    assert b"text" == sealer(ONE, store=STORE, cluster_key="c" * 16).open("name", before)


@requirement("safe.sealed")
def test_the_first_secret_makes_a_key_file_for_the_owner_only(tmp_path):
    """Nothing has to be set up, and nothing is made where nothing is kept."""
    keys = SecretKeys(Settings(), tmp_path)
    empty = list(tmp_path.iterdir())
    sealed = Sealer(keys).seal("name", b"text")
    (path,) = tmp_path.iterdir()

    assert [] == empty
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert b"text" == Sealer(SecretKeys(Settings(), tmp_path)).open("name", sealed)
    assert b"text" == Sealer(SecretKeys(Settings(secret_key=ONE), tmp_path)).open("name", sealed)


def made_in(folder: str, results: "multiprocessing.SimpleQueue[str]") -> None:
    from pathlib import Path

    results.put(SecretKeyFile(Path(folder)).make()[0])


@requirement("safe.sealed")
def test_processes_that_make_the_key_file_at_once_have_one_key(tmp_path):
    """The loser of the race must not replace the key with which the winner has sealed."""
    spawn = multiprocessing.get_context("spawn")
    results = spawn.SimpleQueue()
    processes = [spawn.Process(target=made_in, args=(str(tmp_path), results)) for _ in range(4)]
    for process in processes:
        process.start()
    made = {results.get() for _ in processes}
    for process in processes:
        process.join()

    assert 1 == len(made)
    assert [SecretKeyFile(tmp_path).path] == list(tmp_path.iterdir())


@requirement("safe.sealed")
def test_a_key_file_that_another_process_has_replaced_counts_at_once(tmp_path):
    """A running server goes on while `holdfast secrets rotate` changes the keys."""
    keys = SecretKeys(Settings(), tmp_path)
    running = Sealer(keys)
    old = running.seal("name", b"old")
    file = SecretKeyFile(tmp_path)
    file.replace([new_secret_key(), *file.read()])

    assert not running.is_current(old)
    assert running.is_current(running.seal("name", b"new"))
    assert b"old" == running.open("name", old)


@requirement("safe.sealed")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"secret_key": "short"}, "fewer than 32"),
        ({"secret_key": ONE + ",short"}, "fewer than 32"),
        ({"secret_key_file": "missing"}, "cannot be read"),
        ({"secret_key_file": "empty"}, "has no key"),
        ({"secret_key_file": "short"}, "fewer than 32"),
    ],
)
def test_a_bad_key_is_refused_without_being_shown(tmp_path, settings, problem):
    """A key that can be guessed protects nothing, and an error must not show it."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "short").write_text("short-secret\n")
    settings = {name: str(tmp_path / value) if "file" in name else value for name, value in settings.items()}

    with pytest.raises(SettingsError, match=problem) as raised:
        SecretKeys(Settings(**settings), None)
    assert "short-secret" not in str(raised.value)


@requirement("safe.sealed")
def test_a_key_file_of_the_operator_may_have_two_keys(tmp_path):
    """The new one stands first."""
    path = tmp_path / "keys"
    path.write_text(f"{TWO}\n\n{ONE}\n")
    both = Sealer(SecretKeys(Settings(secret_key_file=str(path)), None))

    assert b"a" == both.open("name", sealer(ONE).seal("name", b"a"))
    assert b"b" == sealer(TWO).open("name", both.seal("name", b"b"))


@requirement("safe.sealed", "safe.data-folder")
@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links here")
def test_a_key_file_that_is_a_link_is_refused(tmp_path):
    """Another user could have planted it, and would know the key."""
    (tmp_path / "theirs").write_text(ONE)
    SecretKeyFile(tmp_path).path.symlink_to(tmp_path / "theirs")

    with pytest.raises(Exception, match="is a link"):
        Sealer(SecretKeys(Settings(), tmp_path)).seal("name", b"text")
