"""What is true of the SQLite store alone: its file, its lock, its commits, and what it says when the disk fails."""

import asyncio
import contextlib
import os
import re
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.engine.core import Core
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.events import Completed, Stopped, Text
from holdfast.history import Message, Session
from holdfast.store import HEAD, Append, Document, Idempotency, RunRecord
from holdfast.store.memory import MemoryStore
from holdfast.store.opening import open_store
from holdfast.store.records import NodeDetails
from holdfast.store.rows.migrations import Migration
from holdfast.store.rows.queries import SQL, queries
from holdfast.store.sqlite import SqliteStore, StoreDamaged, StoreInUse, StoreReadOnly, StoreTooNew
from holdfast.store.sqlite.driver import READING, drive
from holdfast.store.sqlite.file import connect_reader, migrations, prepare
from holdfast.store.sqlite.threads import Job
from holdfast.testing import script
from tests.requirements import requirement
from tests.support.long import count
from tests.support.waiting import SOON

SRC = Path(__file__).parents[2] / "src"


@contextlib.asynccontextmanager
async def opened(path, **options):
    """A store that is closed in the end."""
    store = await asyncio.to_thread(SqliteStore, path, **options)
    try:
        yield store
    finally:
        await store.close()


async def new_run(store, run_id="r", **fields):
    await store.renew("k", 3600.0)
    return await store.create_run(RunRecord(id=run_id, **{"node_id": "k"} | fields))


async def whole_log(store, run_id):
    """Read a log to its end, in as many pieces as the store likes."""
    events = []
    while more := await store.read_log(run_id, len(events)):
        events += more
    return events


async def settle(store, run, *, seq=1, text=""):
    end = await store.settle(run.id, run.epoch, seq=seq, settlement=Completed(text=text), message=None, now=1.0)
    return end.settlement


def make_database(path, *further_steps):
    """Make a database, or bring one up to date, and close it."""
    lock, db = prepare(path, steps=[*migrations(), *further_steps])
    db.close()
    lock.release()


def tables_of(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master")}


def refusal(error, path):
    """What a start is told where the database cannot be opened. Nothing stays locked behind it."""
    with pytest.raises(error) as raised:
        SqliteStore(path)
    with pytest.raises(error):
        SqliteStore(path)
    return str(raised.value)


# opening by name


@pytest.mark.parametrize("name", ["sqlite:{}", "{}", "sqlite:{}/holdfast.db", "{}/holdfast.db"])
async def test_a_path_is_a_folder_or_a_file(name, tmp_path):
    """Whoever gives a data folder need not know the name of the file in it."""
    store = await asyncio.to_thread(open_store, name.format(tmp_path / "data"))
    await store.close()

    assert (tmp_path / "data" / "holdfast.db").is_file()


async def test_an_existing_folder_is_a_folder_whatever_its_name(tmp_path):
    """`data.d` looks like a file."""
    (tmp_path / "data.d").mkdir()
    async with opened(tmp_path / "data.d") as store:
        assert tmp_path / "data.d" / "holdfast.db" == store.path


def test_memory_is_a_store_too():
    """For tests, and for those who keep nothing."""
    assert isinstance(open_store("memory:"), MemoryStore)


def test_the_url_of_other_libraries_is_refused_with_our_own(tmp_path):
    """`sqlite:///data` is a relative path elsewhere. Here it would be a folder at the root, made without a word."""
    with pytest.raises(ValueError, match=r"write sqlite:\./data \(relative\)"):
        open_store("sqlite:///data")


@pytest.mark.parametrize("url", ["redis://x", "memory:x", "sqlite:", "mysql://h/db"])
def test_an_unknown_url_is_refused_with_what_is_known(url):
    """A folder called `redis:` would be a surprise."""
    with pytest.raises(ValueError, match="use memory:, sqlite:PATH"):
        open_store(url)


async def test_folder_and_files_are_for_their_owner_only(tmp_path):
    """Conversations are private, on a shared machine too."""
    async with opened(tmp_path / "data") as store:
        await new_run(store)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "data").iterdir()}

    assert 0o700 == stat.S_IMODE((tmp_path / "data").stat().st_mode)
    assert {f"holdfast.db{end}": 0o600 for end in ("", "-wal", "-shm", ".lock")} == modes


async def test_closing_leaves_one_file_that_can_be_copied(tmp_path):
    """Everything is in the database itself, and the lock is free."""
    async with opened(tmp_path) as store:
        await new_run(store)

    assert {"holdfast.db", "holdfast.db.lock"} == {file.name for file in tmp_path.iterdir()}
    shutil.copy(tmp_path / "holdfast.db", tmp_path / "copy.db")
    async with opened(tmp_path / "copy.db") as copy:
        assert await copy.get_run("r") is not None


async def test_a_closed_store_says_so(tmp_path):
    """Rather than wait for a thread that has ended."""
    async with opened(tmp_path) as store:
        pass

    for work in (store.get_run("r"), store.renew("k", 1.0)):
        with pytest.raises(StoreUnavailable, match="closed"):
            await work


# the lock, and what a dead process leaves

HOLDER = """
import asyncio, sys
from holdfast.events import Text
from holdfast.store import Append, RunRecord
from holdfast.store.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.renew("dead", 1e12)
    await store.create_run(RunRecord(id="r", node_id="dead"))
    await store.append("dead", [Append("r", 1, 1, [Text("a"), Text("b")])])
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@contextlib.contextmanager
def another_process(path):
    """A process that has the database open and has appended to a run."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    with child:
        try:
            assert "ready\n" == child.stdout.readline()
            yield child
        finally:
            child.kill()


def test_a_database_in_use_is_refused_with_the_process_that_uses_it(tmp_path):
    """Two processes that write can corrupt a database (the WAL-reset bug), and each would settle the other's runs."""
    with another_process(tmp_path) as child:
        said = refusal(StoreInUse, tmp_path)

    assert f"in use by process {child.pid}" in said
    assert "Stop that process" in said


async def test_one_process_cannot_open_a_database_twice(tmp_path):
    """The lock is of the file, not of the process."""
    async with opened(tmp_path):
        with pytest.raises(StoreInUse, match=str(os.getpid())):
            await asyncio.to_thread(SqliteStore, tmp_path)
    async with opened(tmp_path) as store:
        assert await store.get_run("r") is None


async def test_after_kill_9_everything_appended_is_there_and_orphans_are_found_at_once(tmp_path):
    """The lock proves that the owner is dead: nobody waits for its lease, which would hold for years."""
    with another_process(tmp_path) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
    async with opened(tmp_path) as store:
        await store.renew("new", 3600.0)

        assert {"r": 2} == await store.claim("new", 3600.0)
        assert [Text("a"), Text("b")] == await store.read_log("r", 0)


# the schema


def test_a_newer_schema_is_refused(tmp_path):
    """An older version would misread what a newer one has written."""
    path = tmp_path / "holdfast.db"
    make_database(path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO migrations VALUES (9999, '9999_future', 'x', 0)")
    said = refusal(StoreTooNew, path)

    assert "newer Holdfast (schema 9999" in said
    assert "Install the newer version" in said


def test_a_schema_step_that_was_changed_after_it_was_applied_is_refused(tmp_path):
    """Nobody knows what such a database looks like."""
    path = tmp_path / "holdfast.db"
    make_database(path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE migrations SET checksum = 'other' WHERE number = 1")

    assert "another edition of schema step 0001_" in refusal(StoreDamaged, path)


def test_line_ends_do_not_change_a_checksum():
    """Git may write CRLF on Windows, and the database may come from elsewhere."""
    assert Migration(1, "x", "a;\nb;\n").checksum == Migration(1, "x", "a;\r\nb;\r\n").checksum
    assert Migration(1, "x", "a;\nb;\n").checksum != Migration(1, "x", "a;\nc;\n").checksum


def test_migrations_are_numbered_without_gaps():
    """The number of the last is the version of the schema."""
    assert list(range(1, len(migrations()) + 1)) == [step.number for step in migrations()]
    assert migrations(), "the rule is checked against nothing"


async def test_a_database_is_backed_up_before_it_is_migrated(tmp_path):
    """The way back. A new database has nothing to back up."""
    async with opened(tmp_path) as store:
        await new_run(store)
    path = tmp_path / "holdfast.db"
    next_number = len(migrations()) + 1
    assert [] == list(tmp_path.glob("*.before-*"))

    await asyncio.to_thread(make_database, path, Migration(next_number, "next", "CREATE TABLE new (x);"))

    backup = tmp_path / f"holdfast.db.before-{next_number:04}"
    assert 0o600 == stat.S_IMODE(backup.stat().st_mode)
    assert {"new", "runs"} <= tables_of(path)
    assert "new" not in tables_of(backup)
    with contextlib.closing(sqlite3.connect(backup)) as copy:
        assert [("r",)] == copy.execute("SELECT id FROM runs").fetchall()
    assert [] == list(tmp_path.glob("*.part"))


async def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path):
    """Each step is one transaction."""
    async with opened(tmp_path) as store:
        await new_run(store)
    broken = Migration(len(migrations()) + 1, "broken", "CREATE TABLE new (x);\nCREATE TABLE runs (x);")
    with pytest.raises(HoldfastError, match="already exists"):
        await asyncio.to_thread(make_database, tmp_path / "holdfast.db", broken)

    assert "new" not in tables_of(tmp_path / "holdfast.db")
    async with opened(tmp_path) as store:
        assert await store.get_run("r") is not None


# files that are no good


def test_a_file_that_is_no_database_is_refused(tmp_path):
    """And not overwritten."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but somebody's notes")

    assert "is not a SQLite database" in refusal(StoreDamaged, path)
    assert "not a database, but somebody's notes" == path.read_text()


def test_a_database_of_another_program_is_refused(tmp_path):
    """A browser's history is a SQLite database as well."""
    path = tmp_path / "places.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE places (url)")

    assert "another program" in refusal(StoreDamaged, path)


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
async def test_a_damaged_database_is_refused_with_what_to_do(damage, tmp_path):
    """Better at the start than in the middle of a conversation."""
    path = tmp_path / "holdfast.db"
    async with opened(path) as store:
        await asyncio.gather(*(store.create_session(Session(id=f"s{n}", owner="o")) for n in range(500)))
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + (b"" if damage == "truncated" else b"\xff" * 8192 + whole[middle + 8192 :]))
    said = await asyncio.to_thread(refusal, StoreDamaged, path)

    assert "is damaged" in said
    assert "restore a backup" in said


def test_a_file_where_the_folder_should_be_is_explained(tmp_path):
    """The most common way of giving a wrong path."""
    (tmp_path / "data").write_text("")

    assert "a file stands where a folder should be" in refusal(StoreReadOnly, tmp_path / "data" / "holdfast.db")


def test_a_place_where_nothing_can_be_made_is_explained():
    """Not even for root, as these tests may be."""
    assert "cannot be written" in refusal(StoreReadOnly, "/proc/holdfast/holdfast.db")


NOBODY = """
import os, sys
from holdfast.errors import HoldfastError
from holdfast.store.sqlite import SqliteStore
from holdfast.store.rows.queries import queries
from holdfast.store.sqlite.file import migrations

migrations(), queries("sqlite")  # read while this user still may
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    SqliteStore(sys.argv[1])
except HoldfastError as error:
    print(error.code, error.status, str(error))
"""


@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["read-only", "closed"])
async def test_a_folder_without_permission_is_explained(mode, tmp_path):
    """Permission bits do not bind root, so another user tries."""
    data = tmp_path / "data"
    async with opened(data):
        pass
    for part in (tmp_path, *tmp_path.parents[:2]):
        part.chmod(0o755)
    (data / "holdfast.db.lock").unlink()
    data.chmod(mode)
    try:
        said = subprocess.run(
            [sys.executable, "-c", NOBODY, str(data / "holdfast.db")],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    finally:
        data.chmod(0o700)

    assert said.startswith("store_read_only 503")
    assert "Give this user the right to write there" in said


# commits


async def test_writes_of_one_moment_share_a_commit(tmp_path):
    """A flush of the disk for each of 200 settlements would take as long as 200 flushes."""
    async with opened(tmp_path) as store:
        runs = await asyncio.gather(*(new_run(store, f"r{n}") for n in range(200)))
        before = store.commits
        await asyncio.gather(*(settle(store, run) for run in runs))

        assert 1 <= store.commits - before < 50
        assert 200 == len(await store.list_runs(status="settled", limit=300))


class Statements:
    """The statements of the writer, and how the disk was told to behave at each commit."""

    def __init__(self):
        self.commits = []
        self._level = "FULL"

    def __call__(self, statement):
        if found := re.match(r"PRAGMA synchronous = (\w+)", statement):
            self._level = found[1]
        elif statement == "COMMIT":
            self.commits.append(self._level)


ACKNOWLEDGED = {
    "create_run": lambda store: store.create_run(RunRecord(id="new")),
    "settle": lambda store: store.settle("r", 1, seq=2, settlement=Completed(), message=None, now=1.0),
    "start_queued": lambda store: store.start_queued("waiting", node_id="k", now=1.0),
    "change_queued": lambda store: store.change_queued("q2", [Message(id="m", role="user", content="x")]),
    "drop_queued": lambda store: store.drop_queued("q2", Stopped(by="user"), 1.0),
    "create_session": lambda store: store.create_session(Session(id="new", owner="o")),
    "update_session": lambda store: store.update_session("s", {"title": "t"}, 1.0),
    "add_branch": lambda store: store.add_branch(
        "s", [Message(id="m", role="user", content="x")], parent=None, expect_head=None, now=1.0
    ),
    "delete_session": lambda store: store.delete_session("s"),
    "copy_session": lambda store: store.copy_session(Session(id="new", owner="o"), ()),
    "claim": lambda store: store.claim("k"),
    "renew": lambda store: store.renew("k", 1.0),
}


@pytest.mark.parametrize("write", ACKNOWLEDGED)
async def test_acknowledged_writes_are_flushed_and_appends_alone_are_not(write, tmp_path):
    """A power cut loses commits without a flush: 290 of 300 times in a simulation. Tokens need not wait for one."""
    statements = Statements()
    async with opened(tmp_path, trace=statements) as store:
        for session in ("s", "waiting"):
            await store.create_session(Session(id=session, owner="o"))
        first = await new_run(store, "q0", session_id="waiting")
        for queued in ("q1", "q2"):
            await store.create_run(RunRecord(id=queued, session_id="waiting"), if_busy="queue")
        await settle(store, first)
        await new_run(store)
        await store.append("k", [Append("r", 1, 1, [Text("a")])])
        assert "NORMAL" == statements.commits[-1]
        before = len(statements.commits)
        result = await ACKNOWLEDGED[write](store)

        assert result, "a write that did nothing would prove nothing"
        assert ["FULL"] == statements.commits[before:]


async def test_an_append_beside_a_settlement_is_flushed_with_it(tmp_path):
    """They are one commit, and the stricter wish counts."""
    statements = Statements()
    async with opened(tmp_path, trace=statements) as store:
        one, two = [await new_run(store, name) for name in ("r1", "r2")]
        await asyncio.gather(
            *(store.append("k", [Append(two.id, 1, n, [Text("x")])]) for n in range(1, 4)), settle(store, one)
        )

        assert "FULL" in statements.commits[-2:]
        assert 3 == len(await store.read_log("r2", 0))


async def test_work_that_fails_after_it_has_written_is_undone_alone(tmp_path):
    """The others of its commit are done again, each for itself."""

    def spoil(rows):
        yield from rows.renew("spoilt", 1e12, NodeDetails())
        raise RuntimeError("a bug")

    async with opened(tmp_path) as store:
        results = await asyncio.gather(
            *(new_run(store, f"r{n}") for n in range(5)),
            store._write(spoil),
            *(new_run(store, f"q{n}", node_id="spoilt") for n in range(5)),
            return_exceptions=True,
        )

        assert [RuntimeError] == [type(result) for result in results if not isinstance(result, RunRecord)]
        assert 10 == len(await store.list_runs())
        assert 10 == len(await store.claim("k")), "the lease that the spoilt work wrote is gone"


async def test_the_loop_goes_on_when_the_store_is_used_by_two_of_them(tmp_path):
    """A store belongs to no loop: a thread with a loop of its own may ask as well."""
    async with opened(tmp_path) as store:
        await asyncio.gather(new_run(store, "here"), asyncio.to_thread(lambda: asyncio.run(new_run(store, "there"))))

        assert {"here", "there"} == {run.id for run in await store.list_runs()}


# when the disk fails


async def fill(store, run, size=20_000):
    """Append until the store refuses; return how many events it took."""
    for seq in range(1, 5000):
        try:
            await store.append("k", [Append(run.id, run.epoch, seq, [Text("x" * size)])])
        except StoreUnavailable as error:
            return seq - 1, error
    raise AssertionError("the disk never got full")


async def limit_pages(store, pages):
    """Let the database grow no further, as a full disk would."""
    await store._writer.ask(Job(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone()))


@requirement("crash.disk-full")
async def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(tmp_path):
    """What was saved can be read, and writing goes on as soon as there is space."""
    async with opened(tmp_path) as store:
        run = await new_run(store)
        await limit_pages(store, 100)
        saved, error = await fill(store, run)

        assert "The disk is full: free some space" in str(error)
        assert saved == len(await whole_log(store, run.id))
        await limit_pages(store, 100_000)
        assert [saved + 1] == await store.append("k", [Append(run.id, 1, saved + 1, [Text("again")])])
        assert Completed() == await settle(store, run, seq=saved + 2)
    async with opened(tmp_path) as store:
        assert saved + 2 == len(await whole_log(store, run.id))


@requirement("crash.disk-full")
async def test_where_a_big_write_finds_no_space_a_small_one_of_the_same_commit_may(tmp_path):
    """One conversation that is too big takes no other with it."""
    async with opened(tmp_path) as store:
        small, big = [await new_run(store, name) for name in ("small", "big")]
        await limit_pages(store, 60)
        told = await asyncio.gather(
            store.append("k", [Append(big.id, 1, 1, [Text("x" * 1_000_000)])]),
            store.append("k", [Append(small.id, 1, 1, [Text("x")])]),
            return_exceptions=True,
        )

        assert isinstance(told[0], StoreUnavailable)
        assert [True] == told[1]
        assert ([], [Text("x")]) == (await store.read_log("big", 0), await store.read_log("small", 0))


@requirement("crash.disk-full")
async def test_a_run_waits_for_space_and_settles_once_with_all_of_its_text(tmp_path):
    """A full disk is a store that is away: the engine goes on asking."""
    async with opened(tmp_path) as store, Core(store) as engine:
        other = await new_run(store, "other")
        await limit_pages(store, 50)
        run = await engine.start(script(*["word " * 1000] * 100), keep=True)
        saved, _ = await fill(store, other)
        assert saved < 50
        assert run.settlement is None
        await limit_pages(store, 100_000)
        settlement = await run.settled()

        assert isinstance(settlement, Completed)
        assert "word " * 100_000 == settlement.text
        stored = await whole_log(store, run.id)
        assert settlement.text == "".join(event.text for event in stored if isinstance(event, Text))


@pytest.fixture
def tiny_disk(tmp_path):
    """A disk of two megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@requirement("crash.disk-full")
async def test_a_disk_that_is_really_full_is_survived(tiny_disk):
    """With the system's own error, not one that SQLite was asked for."""
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"\0" * 1_200_000)
    async with opened(tiny_disk) as store:
        run = await new_run(store)
        saved, error = await fill(store, run)

        assert re.search(r"disk is full|disk reported an error", str(error))
        assert saved == len(await whole_log(store, run.id))
        ballast.unlink()
        assert [saved + 1] == await store.append("k", [Append(run.id, 1, saved + 1, [Text("again")])])
        assert Completed() == await settle(store, run, seq=saved + 2)
    async with opened(tiny_disk) as store:
        assert saved + 2 == len(await whole_log(store, run.id))


@pytest.fixture
def file_limit():
    """Lets no file of this process grow beyond a size: the system then fails a write with EFBIG."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)


async def test_after_an_error_of_the_disk_the_store_opens_another_connection(tmp_path, file_limit):
    """What a connection knows after a failed write cannot be trusted."""
    connections = []
    trace = lambda statement: connections.append(1) if "journal_mode" in statement else None  # noqa: E731
    async with opened(tmp_path, trace=trace) as store:
        run = await new_run(store)
        file_limit(1_000_000)
        saved, error = await fill(store, run)

        assert "The disk reported an error" in str(error)
        assert "SQLITE_IOERR_WRITE" in str(error)
        assert saved == len(await whole_log(store, run.id))
        file_limit(resource.RLIM_INFINITY)
        before = len(connections)
        assert [saved + 1] == await store.append("k", [Append(run.id, 1, saved + 1, [Text("again")])])
        assert before + 1 == len(connections)
        assert Completed() == await settle(store, run, seq=saved + 2)
    async with opened(tmp_path) as store:
        assert saved + 2 == len(await whole_log(store, run.id))


async def test_a_lock_of_another_program_is_waited_for_off_the_loop(tmp_path):
    """Somebody opens the file with the sqlite3 shell. SQLite waits; the event loop does not."""
    async with opened(tmp_path) as store:
        with contextlib.closing(sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)) as other:
            await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
            write = asyncio.ensure_future(new_run(store))
            ticks = 0
            while not write.done():
                ticks += 1
                await asyncio.sleep(0.01)

            with pytest.raises(StoreUnavailable, match="Another program has locked the database"):
                await write
            assert ticks > 20
            await asyncio.to_thread(other.execute, "ROLLBACK")
        assert "r" == (await new_run(store)).id


@pytest.mark.parametrize("what", ["moved", "deleted", "replaced"])
async def test_nothing_is_written_to_a_file_that_is_no_longer_there(what, tmp_path):
    """The system would let us, and everything acknowledged would be gone with the file."""
    async with opened(tmp_path / "data") as store:
        await new_run(store)
        elsewhere = tmp_path / "elsewhere"
        store.path.rename(elsewhere)
        if what == "replaced":
            store.path.write_bytes(elsewhere.read_bytes())
        with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
            await settle(store, RunRecord(id="r"))
        with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
            await store.append("k", [Append("r", 1, 1, [Text("lost")])])
        elsewhere.replace(store.path)

        assert Completed() == await settle(store, RunRecord(id="r"))


# queries


@pytest.mark.parametrize("file", sorted(SQL.glob("*.sql")), ids=lambda file: file.stem)
def test_no_two_queries_of_a_file_have_one_name(file):
    """The second would silently take the place of the first. A dialect may replace a common one, in its own file."""
    names = re.findall(r"^-- name: (\S+)", file.read_text("utf-8"), re.MULTILINE)

    assert names
    assert [] == [name for name, times in Counter(names).items() if times > 1]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_query_has_a_name_that_is_used_and_every_name_a_query(dialect):
    """A misspelt name would be found by whoever needs the query first."""
    store = SRC / "holdfast" / "store"
    code = "".join(path.read_text() for path in (*(store / "rows").glob("*.py"), *(store / dialect).glob("*.py")))
    asked = set(re.findall(r'(?:yield \(?|statement\(|queries\("sqlite"\)\[)"(\w+)"', code))
    known = {name for name in queries(dialect) if isinstance(name, str)}  # others were put together of these

    assert asked <= known
    joined = ("runs_of_", "documents_", "audit_of_", "has_")
    assert [] == [name for name in known if f'"{name}"' not in code and not name.startswith(joined)]


STATEMENTS = [
    name
    for name, sql in queries("sqlite").items()
    if isinstance(name, str) and re.match("SELECT|INSERT|UPDATE|DELETE", sql)
]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_no_query_reads_a_whole_table(name, tmp_path):
    """With a million runs a scan would take seconds."""
    path = tmp_path / "holdfast.db"
    make_database(path)
    owner = "actor" if name.startswith("audit") else "owner"
    conditions = "sessions.id = :session_id" if name == "standings" else f"{owner} = :owner AND n < 5"
    sql = queries("sqlite")[name].replace("{conditions}", conditions)
    values = [None] * sql.count("?") if "?" in sql else defaultdict(lambda: None)
    with contextlib.closing(sqlite3.connect(path)) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]

    scans = [step for step in plan if re.match(r"SCAN (runs|events|messages|feed|sessions)\b(?!.*INDEX)", step)]
    assert [] == scans


@pytest.mark.parametrize("status", ["running", "queued"])
def test_the_runs_in_progress_of_an_owner_are_found_without_its_other_runs(tmp_path, status):
    """An owner with 100,000 ended runs waited a second for the list of the few that run."""
    make_database(tmp_path / "holdfast.db")
    query, values = next(READING.list_runs("o", None, status, "", None, 50))
    with contextlib.closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {queries('sqlite')[query]}", values)]

    assert [step for step in plan if "runs_unsettled" in step]
    assert [] == [step for step in plan if "runs_by_owner" in step]


async def test_a_word_is_indexed_once_for_each_session_however_often_it_is_said(tmp_path):
    """A search looks for sessions. One that had to pass ten million mentions of a common word took three seconds."""
    async with opened(tmp_path) as store:
        for name in ("a", "b"):
            said = [Message(id=f"m{n}", role="user", content=f"the same words and item{n}") for n in range(30)]
            await store.copy_session(Session(id=name, owner="o", title="the same title"), said)
        later = RunRecord(id="r", owner="o", session_id="a", message_id="answer")
        await store.create_run(later, [Message(id="last", role="user", content="the same words, later")])
        await store.list_sessions("o", query="later")  # which completes the index

        assert {"the": 4, "words": 2, "item7": 2, "later": 1} == mentions(store.path, "the", "words", "item7", "later")
        assert {"·i": 2, "·wor": 2} == mentions(store.path, "·i", "·wor")
        for query in ("the same", "words item29", "later", "wor lat", "w l", "i"):
            assert "a" in [found.id for found in await store.list_sessions("o", query=query)]
        assert ["a"] == [found.id for found in await store.list_sessions("o", query="words later")]


async def test_words_are_indexed_soon_after_a_run_has_settled(tmp_path):
    """Nobody may search for a year, and the first search after it must not take minutes."""
    async with opened(tmp_path) as store:
        for n in range(3):
            await store.create_session(Session(id=f"s{n}", owner="o"))
            run = await new_run(store, f"r{n}", session_id=f"s{n}", message_id=f"m{n}")
            answer = Message(id=f"m{n}", role="assistant", content=f"word{n}")
            await store.settle(f"r{n}", run.epoch, seq=1, settlement=Completed(text=""), message=answer, now=1.0)

        async with asyncio.timeout(SOON):
            while mentions(store.path, "word0", "word1", "word2") != {"word0": 1, "word1": 1, "word2": 1}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_page_of_a_long_log_costs_that_page_alone(tmp_path):
    """A log is read in pages. Each of them once read the settlement, with all of the text, and a whole big append."""
    async with opened(tmp_path) as store:
        run = await new_run(store)
        said = [Text(f"{n:0100}") for n in range(5_000)]
        await store.append("k", [Append("r", run.epoch, 1, said)])
        await settle(store, run, seq=len(said) + 1, text="x" * 5_000_000)

        page, most = await asyncio.to_thread(read_page, store.path, "r", 2_000)

        assert said[2_000:2_512] == page
        assert most < 1_000_000
        (*events, settled) = await whole_log(store, "r")
        assert said == events
        assert Completed(text="x" * 5_000_000) == settled.settlement


def test_how_far_a_log_goes_is_known_without_its_settlement(tmp_path):
    """SQLite reads a value whole to tell whether there is one: the text of a long answer, for each page of its log."""
    path, read = tmp_path / "holdfast.db", set()
    make_database(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.set_authorizer(lambda action, table, column, *_: read.add((table, column)) or sqlite3.SQLITE_OK)
        db.execute(queries("sqlite")["log"], {"id": "r"})

    assert ("runs", "seq") in read
    assert ("runs", "settlement") not in read


def read_page(path, run_id, after):
    """A page of a log, and the most memory that it took."""
    with contextlib.closing(connect_reader(path)) as db:
        tracemalloc.start()
        try:
            return drive(db, READING.read_log(run_id, after, 512)), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def mentions(path, *words):
    """How many entries of the index have a word."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab (main, search, row)")
        count = "SELECT doc FROM vocabulary WHERE term = ?"
        return {word: (db.execute(count, (word,)).fetchone() or (0,))[0] for word in words}


async def test_words_that_an_answer_gained_are_found_beside_those_that_it_had(tmp_path):
    """Entries are added to when an answer is continued: nothing that later messages leave to it may be lost."""
    async with opened(tmp_path) as store:
        await store.create_session(Session(id="s", owner="o"))
        run = await store.create_run(RunRecord(id="r", owner="o", session_id="s", message_id="m"))
        answer = Message(id="m", role="assistant", content="first words", partial=True)
        await store.settle(
            "r", run.epoch, seq=1, settlement=Stopped(text="first words", by="user"), message=answer, now=1.0
        )
        again = await store.create_run(RunRecord(id="r2", owner="o", session_id="s", message_id="m"))
        assert ["s"] == [found.id for found in await store.list_sessions("o", query="first")]
        more = Message(id="m", role="assistant", content="first words and more")
        await store.settle("r2", again.epoch, seq=1, settlement=Completed(text=more.content), message=more, now=2.0)

        for query in ("first", "words", "more"):
            assert ["s"] == [found.id for found in await store.list_sessions("o", query=query)], query


# the whole store against the same transactions in memory

SESSIONS, RUNS, MESSAGES = ["s1", "s2"], [f"r{n}" for n in range(6)], [f"m{n}" for n in range(8)]
OWNERS = ["ann", "bob"]
WORDS = ["alpha", "Älpha beta", "gamma_delta", "", "c++ 東京"]
moments = st.integers(0, 20).map(float)


def some_messages():
    message = st.builds(
        Message,
        id=st.sampled_from(MESSAGES),
        role=st.sampled_from(["user", "assistant"]),
        content=st.sampled_from(WORDS) | st.just([{"type": "text", "text": "part"}]),
    )
    return st.lists(message, max_size=2)


class BothStores(RuleBasedStateMachine):
    """Does the same to a store on a file and to one in memory, and sees that they never differ."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.model = MemoryStore()
        self.store = SqliteStore(self.folder.name)

    def teardown(self):
        self.loop.run_until_complete(self.store.close())
        self.loop.close()
        self.folder.cleanup()

    def both(self, method, *args, **options):
        model, store = [self.outcome(store, method, args, options) for store in (self.model, self.store)]
        assert model == store, method
        return model

    def outcome(self, store, method, args, options):
        try:
            return self.loop.run_until_complete(getattr(store, method)(*args, **options))
        except (HoldfastError, ValueError) as error:
            return type(error), str(error)

    @rule(
        id=st.sampled_from(SESSIONS),
        owner=st.sampled_from(OWNERS),
        title=st.sampled_from(WORDS),
        kind=st.sampled_from(["chat", "chat", "pane"]),
        at=moments,
    )
    def create_session(self, id, owner, title, kind, at):
        self.both("create_session", Session(id=id, owner=owner, title=title, kind=kind, updated_at=at))

    @rule(id=st.sampled_from(SESSIONS), owner=st.sampled_from(OWNERS), messages=some_messages())
    def copy_session(self, id, owner, messages):
        self.both("copy_session", Session(id=id, owner=owner), messages)

    @rule(
        id=st.sampled_from(RUNS),
        session=st.sampled_from([*SESSIONS, *SESSIONS, None]),
        messages=some_messages(),
        parent=st.sampled_from([HEAD, HEAD, HEAD, None, *MESSAGES[:2]]),
        expect=st.sampled_from([HEAD, HEAD, HEAD, None, *MESSAGES[:2]]),
        if_busy=st.sampled_from(["reject", "queue", "queue", "interrupt"]),
        key=st.none() | st.builds(Idempotency, st.sampled_from(OWNERS), st.sampled_from("kl"), st.sampled_from("de")),
        at=moments,
    )
    def create_run(self, id, session, messages, parent, expect, if_busy, key, at):
        run = RunRecord(
            id=id, owner="ann", session_id=session, message_id=f"a-{id}", node_id="k1", created_at=at, started_at=at
        )
        options = {"parent": parent, "expect_head": expect, "if_busy": if_busy, "idempotency": key}
        self.both("create_run", run, messages, **options)
        if key is not None:
            self.both("find_repeated", key)

    @rule(id=st.sampled_from(SESSIONS), at=moments)
    def start_queued(self, id, at):
        self.both("start_queued", id, node_id="k2", now=at)

    @rule(ids=st.lists(st.sampled_from(RUNS), max_size=3), epoch=st.integers(1, 2), data=st.data())
    def append(self, ids, epoch, data):
        entries = []
        for id in ids:
            run = self.loop.run_until_complete(self.model.get_run(id))
            first = max(1, (run.seq if run else 0) + data.draw(st.sampled_from([1, 1, 1, 0, -1, 2])))
            count = data.draw(st.integers(0, 3))
            entries.append(Append(id, epoch, first, [Text(f"{first + n} ") for n in range(count)]))
        self.both("append", "k1", entries)

    @rule(id=st.sampled_from(RUNS), epoch=st.integers(1, 2), ahead=st.sampled_from([1, 1, 1, 0, 2]), at=moments)
    def settle(self, id, epoch, ahead, at):
        run = self.loop.run_until_complete(self.model.get_run(id))
        answer = Message(id=f"a-{id}", role="assistant", content="the answer", run_id=id)
        ending = Completed(text="t") if ahead else Stopped(by="user")
        seq = (run.seq if run else 0) + ahead
        self.both("settle", id, epoch, seq=seq, settlement=ending, message=answer if at % 2 else None, now=at)

    @rule(id=st.sampled_from(RUNS), messages=some_messages())
    def change_queued(self, id, messages):
        self.both("change_queued", id, messages)

    @rule(id=st.sampled_from(RUNS), at=moments)
    def drop_queued(self, id, at):
        self.both("drop_queued", id, Stopped(by="user"), at)

    @rule(
        id=st.sampled_from(SESSIONS),
        changes=st.fixed_dictionaries(
            {},
            optional={
                "title": st.sampled_from(WORDS),
                "pinned": st.booleans(),
                "head_id": st.none() | st.sampled_from(MESSAGES),
                "params": st.just({"a": 1}),
                "owner": st.just("eve"),
            },
        ),
        at=moments,
    )
    def update_session(self, id, changes, at):
        self.both("update_session", id, changes, at)

    @rule(
        id=st.sampled_from(SESSIONS),
        messages=some_messages(),
        parent=st.none() | st.sampled_from(MESSAGES),
        head=st.none() | st.sampled_from(MESSAGES),
        at=moments,
    )
    def add_branch(self, id, messages, parent, head, at):
        self.both("add_branch", id, messages, parent=parent, expect_head=head, now=at)

    @rule(id=st.sampled_from(SESSIONS))
    def delete_session(self, id):
        self.both("delete_session", id)

    @rule(
        kind=st.sampled_from("ab"),
        id=st.sampled_from("xyz"),
        owner=st.sampled_from(OWNERS),
        version=st.sampled_from([None, 0, 1, 1, 2, 3]),
        at=moments,
        body=st.sampled_from([{}, {"n": [1, None, "ü"]}, {"n": 2}]),
    )
    def put_document(self, kind, id, owner, version, at, body):
        document = Document(kind=kind, id=id, owner=owner, created_at=at, updated_at=at, body=body)
        self.both("put_document", document, version)

    @rule(kind=st.sampled_from("ab"), id=st.sampled_from("xyz"), version=st.sampled_from([None, None, 1, 2]))
    def delete_document(self, kind, id, version):
        self.both("delete_document", kind, id, version)

    @rule(
        kind=st.sampled_from("ab"),
        owner=st.sampled_from([None, *OWNERS]),
        before=st.sampled_from([None, *"xyz"]),
        limit=st.integers(0, 3),
    )
    def list_documents(self, kind, owner, before, limit):
        self.both("list_documents", kind, owner, before=before, limit=limit)

    @rule(before=moments)
    def trim_logs(self, before):
        self.both("trim_logs", before)

    @rule(node_id=st.sampled_from(["k1", "k2"]), seconds=st.sampled_from([0.0, 3600.0, 3600.0]))
    def renew(self, node_id, seconds):
        model, store = [self.outcome(store, "renew", (node_id, seconds), {}) for store in (self.model, self.store)]
        assert (model is None) == (store is None)

    @rule(node_id=st.sampled_from(["k1", "k2"]), unbroken=st.sampled_from([0.0, 3600.0]))
    def claim(self, node_id, unbroken):
        self.both("claim", node_id, unbroken)

    @rule()
    def reopen(self):
        self.loop.run_until_complete(self.store.close())
        self.store = SqliteStore(self.folder.name)
        self.model.db.execute(queries("sqlite")["forget_nodes"])  # opening proves that other processes are dead

    @rule(query=st.sampled_from([*WORDS, "al", "alpha part", "answ"]) | st.text(max_size=5))
    def search(self, query):
        for owner in OWNERS:
            self.both("list_sessions", owner, query=query)

    @invariant()
    def they_say_the_same(self):
        self.both("waiting_sessions")
        self.both("list_runs")
        for kind in "ab":
            self.both("list_documents", kind)
        for id in SESSIONS:
            for method in ("get_session", "messages", "queued"):
                self.both(method, id)
            self.both("read_feed", id, 0)
        for id in RUNS:
            for after in (0, 1, 3):
                self.both("read_log", id, after, 2)


def test_a_file_says_what_memory_says():
    """The same transactions, in threads, with shared commits and opened again, under any sequence of calls."""
    examples = count(10, 60)
    run_state_machine_as_test(
        BothStores, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None)
    )


async def test_a_damaged_text_of_the_schema_is_told_as_damage(tmp_path):
    """SQLite names the table in its error, in bytes that are no text: that was a traceback."""
    async with opened(tmp_path):
        pass
    with contextlib.closing(sqlite3.connect(tmp_path / "holdfast.db")) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET name = CAST(x'72ff' AS TEXT), sql = 'nonsense' WHERE name = 'runs'")
        db.commit()
    with pytest.raises(StoreDamaged, match="is damaged"):
        await asyncio.to_thread(SqliteStore, tmp_path)


async def test_words_that_were_forgotten_are_not_in_the_write_ahead_log(tmp_path):
    """It kept them until the next checkpoint, which on an idle server comes much later."""
    async with opened(tmp_path) as store:
        await store.create_session(Session(id="s", owner="o", title="canary7193"))
        before = (tmp_path / "holdfast.db-wal").read_bytes()
        await store.delete_session("s")
        more = await store.forget_words(begin=True)
        while more:
            more = await store.forget_words(begin=False)
        after = (tmp_path / "holdfast.db-wal").read_bytes()
        await store.create_session(Session(id="t", owner="o"))

    assert b"canary7193" in before
    assert b"canary7193" not in after
