"""Appends to SQLite and to PostgreSQL, in turn: the commit of new events, without a server."""

import asyncio
import statistics
import tempfile
import time

import asyncpg

from bench import machine
from holdfast.events import Text
from holdfast.ids import new_id
from holdfast.store import Append, RunRecord, Store
from holdfast.store.opening import open_store
from tests.support.postgres import Postgres

SHAPES = {"1x1": (1, 1), "20x1": (20, 1), "100x5": (100, 5)}
"""Runs in a commit, and events of each."""
COMMITS, ROUNDS = 60, 3

Figures = dict[str, float]


class _Log:
    """Appends to runs of a store, and notes how long each commit took."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: list[RunRecord] = []
        self._ends: dict[str, int] = {}
        self.seconds: dict[str, list[float]] = {name: [] for name in SHAPES}

    async def begin(self) -> None:
        await self._store.renew("node", 3600.0)
        for _ in range(100):
            record = RunRecord(id=new_id("run"), owner="o", node_id="node", created_at=1.0)
            self._runs.append(await self._store.create_run(record))

    async def append(self, shape: str) -> None:
        """Commit some batches. All runs of this log are equally long, so that their numbers agree."""
        runs, events = SHAPES[shape]
        for n in range(COMMITS):
            first = n % max(1, len(self._runs) // runs) * runs
            batch = [
                Append(run.id, 1, self._next(run.id, events), [Text(f"word {n} ")] * events)
                for run in self._runs[first : first + runs]
            ]
            began = time.perf_counter()
            await self._store.append("node", batch)
            self.seconds[shape].append(time.perf_counter() - began)

    def _next(self, run_id: str, events: int) -> int:
        seq = self._ends.get(run_id, 0) + 1
        self._ends[run_id] = seq + events - 1
        return seq


async def measure() -> Figures:
    """Return the times of a commit in both stores, and the processor time of PostgreSQL for an event."""
    found = await _measured("")
    found |= {f"no_fsync_{name}": value for name, value in (await _measured("", is_durable=False)).items()}
    without = await _measured("ALTER TABLE events DROP CONSTRAINT events_run_fkey")
    return found | {f"no_foreign_key_{name}": value for name, value in without.items() if "us_per_event" in name}


async def _measured(change: str, *, is_durable: bool = True) -> Figures:
    postgres = await asyncio.to_thread(Postgres, is_durable=is_durable)
    try:
        with tempfile.TemporaryDirectory(prefix="hfbench") as folder:
            url = await asyncio.to_thread(postgres.new_url)
            stores = [open_store(f"sqlite:{folder}"), await asyncio.to_thread(open_store, url)]
            if change:
                await _execute(url, change)
            try:
                return await _compared(stores, postgres)
            finally:
                for store in stores:
                    await store.close()
    finally:
        await asyncio.to_thread(postgres.stop)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


async def _compared(stores: list[Store], postgres: Postgres) -> Figures:
    logs = [_Log(store) for store in stores]
    for log in logs:
        await log.begin()
    cpu = dict.fromkeys(SHAPES, 0.0)
    for _ in range(ROUNDS):
        for shape in SHAPES:
            await logs[0].append(shape)
            before = machine.cpu_seconds(postgres.pid)
            await logs[1].append(shape)
            cpu[shape] += machine.cpu_seconds(postgres.pid) - before
    found: Figures = {}
    for shape, (runs, each) in SHAPES.items():
        sqlite, postgresql = (statistics.median(log.seconds[shape]) * 1e3 for log in logs)
        found[f"us_per_event_{shape}"] = cpu[shape] / (ROUNDS * COMMITS * runs * each) * 1e6
        found |= {f"sqlite_ms_{shape}": sqlite, f"postgresql_ms_{shape}": postgresql}
        found[f"postgresql_of_sqlite_{shape}"] = postgresql / sqlite
    return found
