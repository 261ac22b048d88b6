"""The data folder as an attacker, another user or a failed restore leaves it."""

import asyncio
import contextlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.folder import FolderNotSafe
from holdfast.store.sqlite import SqliteStore, StoreDamaged, StoreInUse
from holdfast.store.sqlite.file import prepare
from tests.requirements import requirement

SRC = Path(__file__).parents[2] / "src"
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def use(path: Path) -> None:
    """Open a store, write to it, and close it."""

    async def write() -> None:
        await store.renew("k", 1.0)
        await store.close()

    store = SqliteStore(path)
    asyncio.run(write())


def refusal(error: type[Exception], folder: Path) -> str:
    with pytest.raises(error) as raised:
        SqliteStore(folder)
    return str(raised.value)


# Files that somebody planted.


@requirement("safe.data-folder")
@pytest.mark.parametrize("name", ["holdfast.db.lock", "holdfast.db"])
def test_a_planted_link_is_not_followed(name, tmp_path):
    """The lock file is truncated and written to: through a link that would be any file of the server's user."""
    target = tmp_path / "precious"
    target.write_text("precious")
    data = tmp_path / "data"
    data.mkdir(0o700)
    (data / name).symlink_to(target)

    said = refusal(FolderNotSafe, data)

    assert str(data / name) in said
    assert "delete it" in said
    assert "precious" == target.read_text()


@requirement("safe.data-folder")
@as_root
def test_root_leaves_a_hard_link_alone_in_a_folder_of_another_user(tmp_path):
    """The folder's owner could name any file of root's `holdfast.db.lock`, and root would empty it."""
    target = tmp_path / "precious"
    target.write_text("precious")
    data = tmp_path / "data"
    data.mkdir(0o700)
    (data / "holdfast.db.lock").hardlink_to(target)
    os.chown(data, NOBODY, NOBODY)

    with pytest.raises(FolderNotSafe):
        prepare(data / "holdfast.db", guest=True)

    assert "precious" == target.read_text()


@requirement("safe.data-folder")
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702], ids=oct)
def test_a_folder_that_others_can_write_to_is_refused(mode, tmp_path):
    """They could replace the database, or put links in its place."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)

    said = refusal(FolderNotSafe, data)

    assert f"chmod go-w {data}" in said
    assert [] == list(data.iterdir())
    data.chmod(mode & ~0o022)
    use(data)


@requirement("safe.data-folder")
@as_root
def test_a_folder_that_a_group_can_write_to_is_refused_unless_the_group_is_the_users_own(tmp_path):
    """Many systems give each user a group of their own, and let it write by default."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o770)
    os.chown(data, 0, 100)
    refusal(FolderNotSafe, data)

    os.chown(data, 0, 0)
    use(data)


@requirement("safe.data-folder")
@as_root
def test_a_folder_of_another_user_is_refused(tmp_path):
    """Also to root: what the owner puts there would be obeyed with root's rights."""
    data = tmp_path / "data"
    data.mkdir(0o700)
    os.chown(data, NOBODY, NOBODY)

    said = refusal(FolderNotSafe, data)

    assert "belongs to nobody, and this process is root. Start it as nobody" in said
    assert [] == list(data.iterdir())


@requirement("safe.data-folder")
@as_root
@pytest.mark.parametrize("exists", [True, False], ids=["the folder is there", "it has to be made"])
def test_what_root_makes_for_another_user_belongs_to_that_user(exists, tmp_path):
    """A server that runs as that user could not read it otherwise."""
    os.chown(tmp_path, NOBODY, NOBODY)
    data = tmp_path / "some" / "data"
    if exists:
        data.mkdir(0o700, parents=True)
        os.chown(data, NOBODY, NOBODY)

    lock, db = prepare(data / "holdfast.db", guest=True)
    owners = {file.name: file.stat().st_uid for file in (data, *data.iterdir())}
    db.close()
    lock.release()

    assert {"data", "holdfast.db", "holdfast.db.lock", "holdfast.db-wal", "holdfast.db-shm"} == owners.keys()
    assert {NOBODY} == set(owners.values())
    assert 0o700 == stat.S_IMODE(data.stat().st_mode)


# The lock.

HOLDER = """
import sys
from holdfast.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def another_server(folder: Path):
    """A process that has the folder open until the block is left."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(SRC)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as child:
        try:
            assert child.stdout is not None
            assert "ready\n" == child.stdout.readline()
            yield child
        finally:
            child.kill()


@requirement("safe.one-server")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the lock file is locked")
def test_deleting_the_lock_file_lets_no_second_server_in(tmp_path):
    """It would settle the first one's runs, and two that write can damage the database."""
    with another_server(tmp_path):
        (tmp_path / "holdfast.db.lock").unlink()
        said = refusal(StoreInUse, tmp_path)
        again = refusal(StoreInUse, tmp_path)

    assert "another process, though its lock file was deleted" in said
    assert "Stop that process" in again
    use(tmp_path)


# What a failed restore leaves.


@requirement("safe.restore")
def test_an_empty_database_is_not_taken_for_a_new_one(tmp_path):
    """A restore that failed leaves one. A server that starts on it is empty, and open to everyone."""
    use(tmp_path)
    database = tmp_path / "holdfast.db"
    database.write_bytes(b"")

    said = refusal(StoreDamaged, tmp_path)

    assert f"{database} is empty" in said
    assert "restore the backup again; to begin anew, delete the file" in said
    assert b"" == database.read_bytes()
    database.unlink()
    use(tmp_path)


@requirement("safe.restore")
def test_a_log_without_its_database_is_not_thrown_away(tmp_path):
    """It holds what was acknowledged last. A new database beside it would delete it."""
    use(tmp_path)
    (tmp_path / "holdfast.db").rename(tmp_path / "elsewhere.db")
    wal = tmp_path / "holdfast.db-wal"
    wal.write_bytes(b"the last words")

    said = refusal(StoreDamaged, tmp_path)

    assert "Put holdfast.db back beside it" in said
    assert b"the last words" == wal.read_bytes()


@requirement("safe.restore")
def test_a_first_start_that_was_killed_is_made_up_for(tmp_path):
    """The database gets its name when it is no longer empty."""
    (tmp_path / "holdfast.db.new").write_bytes(b"")

    use(tmp_path)

    assert {"holdfast.db", "holdfast.db.lock"} == {file.name for file in tmp_path.iterdir()}
