"""Rows of a store in memory, changed behind the back of its engines."""

from holdfast.store import Append
from holdfast.store.memory import MemoryStore
from holdfast.store.rows import Querying, first
from holdfast.store.rows.structs import rows_of
from holdfast.store.rows.transactions import Writing


def lose_events(store: MemoryStore, run_id: str, left: int) -> None:
    """Delete all but the first events of a log, as a failover to a standby does that was behind."""

    def lose(rows: Writing) -> Querying[None]:
        events = yield from rows.read_log(run_id, 0, 1_000_000)
        row = first((yield "log", {"id": run_id}))
        assert row is not None
        yield "trim_events", [(row["n"],)]
        yield "append", [*rows_of(row["n"], 1, Append(run_id, 1, 1, events[:left]))]

    store.transact(lose)
