"""What an operator does from the command line: back up and restore, and one-off prompts from scripts."""

import asyncio
import base64
import hashlib
import io
import re
import shutil
import signal
import sqlite3
import stat
import tarfile
import tomllib
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.server.live.saved_settings import SavedFile
from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.waiting import LONG

SCRIPTED = {"name": "scripted", "dialect": "scripted"}
AGENT = '[[agents]]\nname = "helper"\nmodel = "scripted/steps"\ntools = ["files"]\n'


@pytest.fixture
def alone(tmp_path):
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})


# backup and restore


@requirement("store.backup")
async def test_a_backup_of_a_running_server_restores_chats_keys_settings_and_files(tmp_path):
    """The guide named two files, and the providers that were added in the browser were lost with the third."""
    async with Server(tmp_path / "data", [SCRIPTED], config=AGENT) as server:
        shell = Shell(tmp_path, {**here(server), "HOLDFAST_CONFIG": str(server.config)})
        async with server.client() as client:
            api = Native(client)
            session = await api.new_session(title="kept")
            await api.settled(await api.start(session, "remember me", "scripted/echo"))
            added = [{"name": "mine", "base_url": "http://127.0.0.1:9/v1", "api_key": "sk-mine", "models": ["m"]}]
            await client.request("PUT", "/api/settings", json={"providers": added, "default_model": "mine/m"})
            written = 'files_write {"path": "note.txt", "content": "by the agent"}'
            await shell("run", "--agent", "helper", "--approve", "files_write", written)
        key = (await shell("key", "new", "ada", "--admin")).out.strip()
        (tmp_path / "secret.txt").write_text("not of the server")
        (server.data / "agents" / "out").symlink_to(tmp_path / "secret.txt")
        (server.data / "agents" / "above").symlink_to(tmp_path)
        (server.data / "models").mkdir(exist_ok=True)
        (server.data / "models" / "weights.gguf").write_bytes(b"large")
        backed_up = await shell("backup", "everything.tar.gz", "--with-secret-key")
        again = await shell("backup", "everything.tar.gz")
    other = Shell(tmp_path / "other", {"HOLDFAST_PORT": str(free_port()), "HOLDFAST_CLIENT_KEY": key})
    other.home.mkdir()
    archive = tmp_path / "everything.tar.gz"
    restored = await other("restore", str(archive))
    twice = await other("restore", str(archive))

    data = other.home / "data" / "holdfast"
    assert (0, 0) == (backed_up.code, restored.code), backed_up.err + restored.err
    assert 0o600 == stat.S_IMODE(archive.stat().st_mode)
    assert "remember me" in (await other("sessions", "export", session, "--format", "markdown")).out
    assert re.search(r"^ada\t.*\tadmin\tkey_\w+$", (await other("key", "ls")).out, re.MULTILINE)
    assert 'default_model = "mine/m"  # ui\n' in (await other("config", "show", "--sources")).out
    assert "sk-mine" == (await asyncio.to_thread(SavedFile(data).read)).providers[0].api_key
    assert ["by the agent"] == [file.read_text() for file in (data / "agents").rglob("note.txt")]
    assert "helper" in (other.home / "config" / "holdfast" / "holdfast.toml").read_text()
    assert not (data / "models").exists()
    assert ["helper"] == [file.name for file in (data / "agents").iterdir()]  # and no link of an agent was followed
    private = [data, *(file for file in data.rglob("*") if file.is_file())]
    assert {0} == {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in private}
    assert (1, True) == (again.code, "already exists" in again.err)
    assert (1, True) == (twice.code, "already has a database" in twice.err)


@requirement("store.backup")
@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({}, "it has no data/holdfast.db"),
        ({"data/holdfast.db": b"x", "SHA256SUMS": None}, "it has no SHA256SUMS"),
        ({"data/holdfast.db": b"x", "data/..\\..\\outside": b"x"}, "unexpected entry"),
        ({"data/holdfast.db": b"x", "data/agents\\..\\..\\..\\outside": b"x"}, "unexpected entry"),
        ({"data/holdfast.db": b"x", "data/../../outside": b"x"}, "unexpected entry"),
        ({"data/holdfast.db": b"x", "/outside": b"x"}, "unexpected entry"),
        ({"data/holdfast.db": b"x", "data/{tmp_path}/outside": b"x"}, "unexpected entry"),
        ({"data/holdfast.db": b"x", "data/./outside": b"x"}, "unexpected entry"),
        ({"data/holdfast.db": b"x", "SHA256SUMS": bytes(64_000_001)}, "SHA256SUMS is too large"),
        ({"data/holdfast.db": b"not a database" * 100}, "is damaged: file is not a database"),
        (None, "is not a backup, or is damaged"),
    ],
)
async def test_what_is_no_backup_is_refused_and_leaves_nothing(alone, tmp_path, entries, told):
    """A file from elsewhere must not write outside of the folder, and half a restore must not look like one."""
    archive = tmp_path / "backup.tar.gz"
    if entries is None:
        archive.write_bytes(b"no archive at all")
    else:
        sums = "".join(f"{hashlib.sha256(content or b'').hexdigest()}  {name}\n" for name, content in entries.items())
        with tarfile.open(archive, "w:gz") as tar:
            for name, content in ({"SHA256SUMS": sums.encode()} | entries).items():
                if content is not None:
                    info = tarfile.TarInfo(name.format(tmp_path=tmp_path))
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    shown = await alone("restore", str(archive))

    assert (1, "") == (shown.code, shown.out)
    assert told in shown.err
    assert not (alone.home / "data" / "holdfast").exists()
    assert not (tmp_path / "outside").exists()


@requirement("store.backup")
async def test_a_restored_database_has_every_row_and_every_picture(tmp_path):
    """Of all tables, whatever a version adds; the pictures are among them."""
    url = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n and so on").decode()
    looked_at = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with Server(tmp_path / "data", [SCRIPTED]) as server:
        shell = Shell(tmp_path, here(server))
        async with server.client() as client:
            api = Native(client)
            for _ in range(20):
                await api.settled(await api.start(await api.new_session(), looked_at, "scripted/echo"))
            await api.get("/api/sessions?query=What")  # which completes the search index
        backed_up = await shell("backup", "everything.tar.gz", "--with-secret-key")
        assert 0 == backed_up.code, backed_up.err
        before = every_row(server.data / "holdfast.db")
    restored = await shell("restore", "everything.tar.gz", "--data", str(tmp_path / "restored"))

    after = every_row(tmp_path / "restored" / "holdfast.db")
    assert 0 == restored.code, restored.err
    assert before == {**after, **{name: before[name] for name in CHANGING}}
    assert 1 == len(after["files"])
    assert len(after["runs"]) >= 20


CHANGING = ("keepers",)
"""Tables that a server writes to while nothing happens: its lease."""


def every_row(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of all tables of a database, which a server may be using."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in names}


@requirement("store.backup")
async def test_a_backup_that_was_damaged_later_is_found_before_anything_is_written(alone, tmp_path):
    """On the disk of an archive, years later. A dry run tells it beforehand."""
    await alone("run", "hello", "-m", "scripted/echo")
    await alone("backup", "backup.tar.gz")
    whole = await alone("restore", "--dry-run", "backup.tar.gz")
    changed = (tmp_path / "changed.tar.gz", "changed.tar.gz")
    with tarfile.open(tmp_path / "backup.tar.gz") as old, tarfile.open(changed[0], "w:gz") as new:
        for member in old.getmembers():
            content = old.extractfile(member).read() if member.isreg() else b""
            if member.name == "data/holdfast.db":
                content = content.replace(b"hello", b"jello")
            new.addfile(member, io.BytesIO(content))
    cut = (tmp_path / "backup.tar.gz").read_bytes()[:-1000]
    (tmp_path / "cut.tar.gz").write_bytes(cut)

    assert (0, True) == (whole.code, whole.out.startswith("backup.tar.gz is complete: "))
    for options in (["--dry-run"], []):
        shown = await alone("restore", *options, changed[1], "--data", "elsewhere")
        assert (1, True) == (shown.code, "data/holdfast.db is not what was backed up" in shown.err)
        shown = await alone("restore", *options, "cut.tar.gz", "--data", "elsewhere")
        assert (1, True) == (shown.code, "cut.tar.gz is not a backup, or is damaged" in shown.err)
    assert not (tmp_path / "elsewhere").exists()


@requirement("store.backup")
async def test_a_backup_that_cannot_be_finished_leaves_no_file(alone, tmp_path):
    """A damaged database is not backed up over a good one, and half a file does not look like a backup."""
    await alone("run", "hello", "-m", "scripted/echo")
    path = tmp_path / "data" / "holdfast" / "holdfast.db"
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * len(content[len(content) // 2 :])
    path.write_bytes(content)
    shown = await alone("backup", "backup.tar.gz")

    assert (1, True) == (shown.code, "is damaged: " in shown.err), shown.err
    assert [] == [
        file.name for file in tmp_path.iterdir() if "backup" in file.name or file.name.startswith(".holdfast")
    ]


async def test_a_restore_keeps_a_settings_file_that_is_there(alone, tmp_path):
    """It may be newer, and it can run commands."""
    alone.settings('log_level = "error"\n')
    await alone("run", "hello", "-m", "scripted/echo")
    await alone("backup", "backup.tar.gz")
    alone.settings('log_level = "warning"\n')
    shutil.rmtree(tmp_path / "data")
    shown = await alone("restore", "backup.tar.gz")

    assert 0 == shown.code
    assert "holdfast.toml differs from the one in the backup, and was kept." in shown.err
    assert "warning" in (Path(alone.home) / "config" / "holdfast" / "holdfast.toml").read_text()


@requirement("store.backup")
@pytest.mark.parametrize("named", [False, True])
async def test_a_restore_into_a_named_folder_touches_no_settings_of_the_user(alone, tmp_path, named):
    """It is a trial, or another server. Every later command of the user read the settings of the backup."""
    own = alone.settings('log_level = "error"\n')
    await alone("run", "hello", "-m", "scripted/echo")
    backed_up = await alone("backup", "backup.tar.gz")
    own.unlink()
    elsewhere = tmp_path / "other" / "settings.toml"
    shown = await alone(
        "restore", "backup.tar.gz", "--data", "scratch", **{"HOLDFAST_CONFIG": str(elsewhere)} if named else {}
    )

    place = elsewhere if named else tmp_path / "scratch" / "holdfast.toml"
    assert 0 == shown.code, shown.err
    assert not own.exists()
    assert 'log_level = "error"\n' == place.read_text()
    assert f"Restored the settings file to {place}." in shown.out
    assert named or f"--config {place}" in shown.out
    assert f"{own} is in it as it is: with every key that is written there." in backed_up.err.replace("\n", " ")


@requirement("store.backup")
async def test_a_backup_that_is_interrupted_leaves_nothing_behind(alone, tmp_path):
    """Ctrl-C in the middle of a long one. Here it waits for a database that another program has locked."""
    await alone("run", "hello", "-m", "scripted/echo")
    before = sorted(tmp_path.iterdir())
    with closing(sqlite3.connect(tmp_path / "data" / "holdfast" / "holdfast.db")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("BEGIN EXCLUSIVE")
        async with alone.start("backup", "backup.tar.gz") as process, asyncio.timeout(LONG):
            while not [*tmp_path.glob(".holdfast-*/*")]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            await process.wait()

    assert 0 != process.returncode
    assert before == sorted(tmp_path.iterdir())


# one-off prompts


@requirement("cli.run-alone")
async def test_run_keeps_no_session_unless_it_is_asked_to(alone):
    """A script's thousand calls were a thousand chats in the sidebar. The runs are still there to be looked at."""
    for arguments in (["one"], ["two", "--system", "Be brief."], ["three", "--json"]):
        assert 0 == (await alone("run", *arguments, "-m", "scripted/echo")).code
    without = (await alone("sessions", "ls")).out
    await alone("run", "four", "--keep", "-m", "scripted/echo")
    with_one = (await alone("sessions", "ls")).out
    runs = (await alone("runs", "ls")).out

    assert ["session\tchanged\ttitle\tstate\tfolder\ttags\tarchived"] == without.splitlines()
    assert ["four"] == [line.split("\t")[2] for line in with_one.splitlines()[1:]]
    assert {"one", "two", "three", "four"} == {line.split("\t")[4] for line in runs.splitlines()[1:]}


# providers


@requirement("model.default-providers")
async def test_a_provider_in_the_file_takes_no_other_away_unless_the_file_says_so(alone):
    """One table removed the demo models, so that the README's first command failed, and the keys of the environment."""
    table = '[[providers]]\nname = "up"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n'
    keys = {"GROQ_API_KEY": "gsk_0123456789"}
    alone.settings(table)
    with_others = await alone("config", "show", **keys)
    echoed = await alone("run", "Hello there", "-m", "scripted/echo")
    listed = await alone("models")
    alone.settings("default_providers = false\n" + table)
    only = await alone("config", "show", **keys)

    def providers(shown: str) -> list[str]:
        named = [each["name"] for each in tomllib.loads(shown)["providers"]]
        return named + re.findall(r"^# Provider (\w+) ", shown, re.MULTILINE)

    assert ["up", "groq", "local", "scripted"] == providers(with_others.out)
    assert (0, "Hello there\n") == (echoed.code, echoed.out)
    assert ["up/m\tdefault\t"] == listed.out.splitlines()[1:], "demo models stay out of the way of a real provider"
    assert ["up"] == providers(only.out)


async def test_errors_of_the_command_line_say_what_to_do(alone, tmp_path):
    """One line, in words that git or psql would use."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    told = {
        ("models", "--url", "nonsense"): "Not a URL: 'nonsense'. It must begin with http:// or https://.",
        ("models", "--url", nowhere): f"Could not connect to {nowhere}: connection refused. Is the server running?",
        ("run",): 'No prompt given. Try: holdfast run "Why is the sky blue?"',
        ("run", "hello", "-m", "nope"): "Unknown model 'nope'. See `holdfast models`. "
        "(holdfast explain model_not_found)",
        ("serve", "--port", "abc"): "Invalid value for '--port': 'abc' is not a valid port.",
        ("serve", "--port", "0", "--host", "192.0.2.1"): "Cannot listen on 192.0.2.1:0: Cannot assign requested "
        "address. Name an address of this machine with --host. (holdfast explain bad_settings)",
        ("runs", "show", "run_nowhere"): "No run 'run_nowhere'. See `holdfast runs ls`. "
        "(holdfast explain run_not_found)",
        ("key", "revoke", "nobody"): "No key 'nobody'. See `holdfast key ls`.",
        ("db", "check", "--data", "none"): f"No database at {tmp_path / 'none' / 'holdfast.db'}. `holdfast serve` "
        "creates it.",
        ("models", "--config", "none.toml"): "Settings file not found: none.toml (holdfast explain bad_settings)",
    }
    for command, words in told.items():
        shown = await alone(*command)
        assert shown.code in (1, 2)
        assert f"Error: {words}\n" == shown.err[shown.err.index("Error: ") :]
