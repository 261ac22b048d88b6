"""One thread that writes and two that read, so that the event loop never waits for a disk.

The writer takes all queued jobs, runs them in one transaction, commits, and wakes the event loop once: the
more jobs are queued, the less each write costs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ...errors import StoreUnavailable
from .file import Lock, Trace, connect_reader, open_connection, prepare, primary_code, roll_back, unavailable

logger = logging.getLogger(__name__)


class Job:
    """Work for a thread, and the future of the caller that waits for it.

    `durable` work survives a power cut once it is acknowledged. Work that is done `apart` has a transaction of its own,
    and work that is done `alone` has none. A thread ends after the `last` job.
    """

    __slots__ = ("alone", "apart", "durable", "error", "future", "last", "loop", "result", "work")

    def __init__(
        self,
        work: Callable[..., Any],
        *,
        durable: bool = False,
        apart: bool = False,
        alone: bool = False,
        last: bool = False,
    ) -> None:
        self.work = work
        self.apart = apart or alone
        self.alone = alone
        self.durable = durable
        self.last = last
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def do(self, *args: Any) -> None:
        """Do the work, and store its result or its error for the caller."""
        self.error = None
        try:
            self.result = self.work(*args)
        except Exception as error:  # noqa: BLE001  any error is for the caller; the thread continues
            self.error = error

    def fail(self, error: Exception) -> None:
        """Fail the job with an error. An error of the medium becomes `StoreUnavailable`, with advice."""
        self.error = unavailable(error) or error

    def answer(self) -> None:
        """Set the result of the future, unless the caller was cancelled."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def resolve_job(jobs: Iterable[Job]) -> None:
    """Wake each event loop once for all of its jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, its_jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no caller any more
            loop.call_soon_threadsafe(_answer_all, its_jobs)


def _answer_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.answer()


class _Spoilt(Exception):
    """A job failed after it had written something: its transaction must not be committed."""


class Writer:
    """The one thread that writes, with its connection. It holds the lock on the database."""

    def __init__(self, path: Path, trace: Trace | None = None) -> None:
        self.path = path
        self.commits = 0
        self._trace = trace
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock: Lock | None = None
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._is_there = True
        self._synchronous = ""

    def open(self) -> None:
        """Lock the database, and start the thread."""
        self._lock, self._db = prepare(self.path, self._trace)
        self._synchronous = "FULL"
        self._inode = os.stat(self.path).st_ino
        threading.Thread(target=self._run, name="holdfast-writer", daemon=True).start()

    def ask(self, job: Job) -> asyncio.Future[Any]:
        """Queue a job. It is done even if the caller is cancelled."""
        self._jobs.put(job)
        return job.future

    async def empty_log(self) -> None:
        """Move the write-ahead log into the file, and cut it off: what was deleted is not in it any more."""
        await self.ask(Job(_truncate_log, alone=True))

    async def close(self) -> None:
        """Do the queued jobs, checkpoint the write-ahead log, and close the file."""
        await self.ask(Job(_nothing, last=True))

    # in the thread

    def _run(self) -> None:
        while not (jobs := self._take())[-1].last:
            apart = [jobs.pop()] if jobs[-1].apart else []
            self._do(jobs)
            resolve_job(jobs)
            for job in apart:
                if job.alone:
                    self._do_alone(job)
                else:
                    self._do(apart)
            resolve_job(apart)
        self._do(jobs[:-1])
        self._leave()
        resolve_job(jobs)

    def _take(self) -> list[Job]:
        """Wait for a job, and take all that are queued."""
        jobs = [self._jobs.get()]
        while not (jobs[-1].last or jobs[-1].apart):
            try:
                jobs.append(self._jobs.get_nowait())
            except Empty:
                break
        return jobs

    def _do(self, jobs: list[Job]) -> None:
        """Do jobs in one transaction. If that fails because of one job, each gets its own transaction."""
        if not jobs:
            return
        try:
            self._transact(jobs)
        except (sqlite3.Error, StoreUnavailable, _Spoilt) as error:
            self._undo(error)
            if len(jobs) > 1 and _may_be_of_one(error):
                for job in jobs:
                    self._do([job])
            elif not isinstance(error, _Spoilt):
                for job in jobs:
                    job.fail(error)

    def _do_alone(self, job: Job) -> None:
        """Do a job outside of a transaction."""
        try:
            job.do(self._connected())
        except (sqlite3.Error, StoreUnavailable) as error:
            job.error = error
        if isinstance(job.error, sqlite3.Error):
            job.fail(job.error)

    def _transact(self, jobs: list[Job]) -> None:
        is_durable = any(job.durable for job in jobs)
        db = self._connected(look=is_durable)
        self._set_synchronous(db, "FULL" if is_durable else "NORMAL")
        db.execute("BEGIN IMMEDIATE")
        for job in jobs:
            written = db.total_changes
            job.do(db)
            if job.error is not None:
                _refuse_spoilt(job.error, db.total_changes != written)
        db.execute("COMMIT")
        self.commits += 1

    def _undo(self, error: Exception) -> None:
        """Roll back. After a disk error the next batch opens a new connection."""
        if self._db is None:
            return
        try:
            roll_back(self._db)
        except sqlite3.Error as worse:
            error = worse
        if primary_code(error) == sqlite3.SQLITE_IOERR or self._db.in_transaction:
            self._disconnect()

    def _connected(self, *, look: bool = True) -> sqlite3.Connection:
        """Return the connection. Unless it should `look`, the file is where it was seen last.

        Most transactions are appends, which would take 5% longer. What they have added is acknowledged by later,
        durable writes, and the lease of the node is renewed by one.
        """
        if look or not self._is_there:
            self.refuse_if_moved()
        if self._db is None:
            self._db = open_connection(self.path, self._trace)
            self._synchronous = "FULL"
        return self._db

    def refuse_if_moved(self) -> None:
        """Refuse a file that was deleted or replaced: writes to it would succeed, and be lost."""
        try:
            self._is_there = os.stat(self.path).st_ino == self._inode
        except OSError:
            self._is_there = False
        if not self._is_there:
            raise StoreUnavailable(
                f"{self.path} was moved, deleted or replaced while it was in use. Put it back, or restart the server."
            )

    def _set_synchronous(self, db: sqlite3.Connection, level: str) -> None:
        if level != self._synchronous:
            db.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = level

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        _close(db)

    def _leave(self) -> None:
        try:
            self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (sqlite3.Error, StoreUnavailable) as error:
            logger.warning("last checkpoint failed; the next start repeats it: %s", error)
        self._disconnect()
        assert self._lock is not None
        self._lock.release()


def _truncate_log(db: sqlite3.Connection) -> None:
    (busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreUnavailable("The write-ahead log is being read, and cannot be cut off yet.")


def _nothing(db: sqlite3.Connection) -> None:
    """The work of a job that only marks the end."""


def _refuse_spoilt(error: Exception, has_written: bool) -> None:
    """Raise if the error of a job must undo the transaction. If the job had written nothing, the others can commit."""
    if isinstance(error, sqlite3.Error) and unavailable(error):
        raise error
    if has_written:
        raise _Spoilt from error


def _may_be_of_one(error: Exception) -> bool:
    """Return whether the other jobs of a batch may succeed: a full disk refuses a big write and accepts a small one."""
    return isinstance(error, _Spoilt) or primary_code(error) == sqlite3.SQLITE_FULL


def _close(db: sqlite3.Connection | None) -> None:
    if db is not None:
        with contextlib.suppress(sqlite3.Error):
            db.close()


class Readers:
    """The threads that read, each with its connection."""

    def __init__(self, path: Path, count: int = 2, name: str = "reader") -> None:
        self._path = path
        self._count = count
        self._name = name
        self._jobs: SimpleQueue[Job] = SimpleQueue()

    def open(self) -> None:
        """Start the threads."""
        for number in range(1, self._count + 1):
            threading.Thread(target=self._run, name=f"holdfast-{self._name}-{number}", daemon=True).start()

    def ask(self, job: Job) -> asyncio.Future[Any]:
        """Queue a job."""
        self._jobs.put(job)
        return job.future

    async def close(self) -> None:
        """Do the queued jobs and close the connections."""
        endings = [self.ask(Job(_nothing, last=True)) for _ in range(self._count)]
        await asyncio.gather(*endings)

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        while not (job := self._jobs.get()).last:
            try:
                db = db or connect_reader(self._path)
                job.do(db)
                if isinstance(job.error, sqlite3.Error):
                    raise job.error
            except sqlite3.Error as error:
                job.fail(error)
                _close(db)
                db = None  # the next job opens a new connection
            resolve_job([job])
        _close(db)
        resolve_job([job])
