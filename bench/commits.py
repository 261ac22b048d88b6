"""What it costs two processes to write to one SQLite file, beside one that writes all of it and two with a file each.

The transactions are like those of the store's one writer: rows of the log, as many as have come, safe on the disk
before anybody sees them. A server refuses a file that another one has open, so these writers are no servers.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sqlite3
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path

from bench.measure import Figures, percentile
from holdfast.store.sqlite_file import connect, prepare

ROWS = 100
"""Rows that have come to all writers together by the time that one commits."""
STALL = 50.0
"""Milliseconds: the share of the time that writers spent in commits of more than this is told."""
BODY = b"x" * 400
INSERT = "INSERT INTO events (run, first, count, body) VALUES (?, ?, 1, ?)"

LAYOUTS: dict[str, list[str]] = {
    "one writer": ["a.db"],
    "two writers, two files": ["a.db", "b.db"],
    "two writers, one file": ["a.db", "a.db"],
}


def measure(seconds: float) -> dict[str, Figures]:
    """The figures of each layout."""
    return {name: _measured(files, seconds) for name, files in LAYOUTS.items()}


def _measured(files: list[str], seconds: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        paths = [Path(folder) / file for file in files]
        for path in set(paths):
            lock, db = prepare(path)
            db.close()
            lock.release()
        rows, spawn = ROWS // len(paths), multiprocessing.get_context("spawn")
        all_are_there = spawn.Barrier(len(paths))
        with ProcessPoolExecutor(len(paths), spawn, initializer=_wait, initargs=(all_are_there,)) as pool:
            ran = [pool.submit(write, path, n, rows, seconds) for n, path in enumerate(paths)]
            seen = [each.result() for each in ran]
    waits = [wait for each, _, _ in seen for wait in each]
    return {
        "rows_per_second": len(waits) * rows / seconds,
        "commits_per_second": len(waits) / seconds,
        "commit_p50_ms": percentile(waits, 0.5),
        "commit_p99_ms": percentile(waits, 0.99),
        "commit_max_ms": max(waits),
        "stalled_over_50_ms": sum(wait for wait in waits if wait > STALL) / 1e3 / seconds / len(paths),
        "cpu_us_per_row": sum(cpu for _, cpu, _ in seen) / len(waits) / rows * 1e6,
        "refused": sum(refused for _, _, refused in seen),
    }


def _wait(all_are_there: Barrier) -> None:
    """The writers begin together."""
    all_are_there.wait()


def write(path: Path, writer: int, rows: int, seconds: float) -> tuple[list[float], float, int]:
    """Commit one transaction after the other: how long each took in ms, the CPU seconds, and how many were refused."""
    waits, refused = list[float](), 0
    with closing(connect(path)) as db:
        db.execute("PRAGMA foreign_keys = OFF")  # there are no runs here, only their logs
        begin, cpu = time.monotonic(), time.process_time()
        for turn in itertools.count(1):
            start = time.monotonic()
            if waits and start > begin + seconds:
                break
            try:
                _commit(db, writer, rows, turn)
                waits.append((time.monotonic() - start) * 1e3)
            except sqlite3.OperationalError:
                refused += 1
        return waits, time.process_time() - cpu, refused


def _commit(db: sqlite3.Connection, writer: int, rows: int, turn: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    for row in range(rows):
        db.execute(INSERT, (writer * ROWS + row, turn, BODY))
    db.execute("COMMIT")
