"""How fast a store takes events and settlements, and finds sessions.

    python bench/micro/bench_store.py [FOLDER | postgresql://…]

FOLDER should lie on the disk that is meant; without it a temporary folder is used. A PostgreSQL database must be empty,
and for this alone. Each figure is the best of three rounds, save the latencies: those are of all calls.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.events import Completed, Event, Text
from holdfast.history import Message, Session
from holdfast.store import Append, RunRecord, Store
from holdfast.store.opening import open_store

SECONDS = 1.0
ROUNDS = 3
SESSIONS = 10_000
TEXT = "the store keeps what must outlive a process and its log is read by any number of cursors"
WORDS = TEXT.split()

numbers = itertools.count(1)


async def new_run(store: Store, session_id: str | None = None) -> RunRecord:
    await store.renew("node", 3600.0)
    run = RunRecord(
        id=f"run_{next(numbers):032}",
        node_id="node",
        owner="o",
        session_id=session_id,
        message_id=f"msg_{next(numbers)}",
    )
    question = Message(id=f"msg_{next(numbers)}", role="user", content="How is it kept?")
    return await store.create_run(run, [question] if session_id else [])


async def appended_per_second(store: Store, batch: int) -> float:
    """One committer, as the engine has: the next batch goes out when the last one is saved."""
    runs = [(await new_run(store)).id for _ in range(batch)]
    event: Event = Text(" hello")
    begin, seq = time.perf_counter(), 0
    while (seconds := time.perf_counter() - begin) < SECONDS:
        seq += 1
        await store.append("node", [Append(run_id, 1, seq, [event]) for run_id in runs])
    return batch * seq / seconds


async def append_latencies(store: Store) -> list[float]:
    """One event at a time, with nothing else going on."""
    run_id, event = (await new_run(store)).id, Text(" hello")
    took = []
    for seq in range(1, 2001):
        begin = time.perf_counter()
        await store.append("node", [Append(run_id, 1, seq, [event])])
        took.append(time.perf_counter() - begin)
    return sorted(took)


async def settled_per_second(store: Store, callers: int) -> float:
    """Each caller settles run after run, in a session of its own, with a message of a usual size."""
    await asyncio.gather(*(store.create_session(Session(id=f"ses_{n}", owner="o")) for n in range(callers)))
    each = max(1, 400 // callers)
    spent = 0.0
    for _ in range(each):
        runs = await asyncio.gather(*(new_run(store, f"ses_{n}") for n in range(callers)))
        begin = time.perf_counter()
        await asyncio.gather(*(settle(store, run) for run in runs))
        spent += time.perf_counter() - begin
    return each * callers / spent


async def settle(store: Store, run: RunRecord) -> None:
    text = " ".join(WORDS * 10)
    answer = Message(id=run.message_id or "", role="assistant", content=text, run_id=run.id)
    await store.settle(run.id, 1, seq=1, settlement=Completed(text=text), message=answer, now=time.time())


async def fill_with_sessions(store: Store) -> None:
    for start in range(0, SESSIONS, 500):
        await asyncio.gather(*(copy(store, n) for n in range(start, start + 500)))


async def copy(store: Store, n: int) -> None:
    title = f"{WORDS[n % len(WORDS)]} {WORDS[n % 7]} number{n}"
    messages = [
        Message(id=f"m{n}.{at}", role="user", content=" ".join(WORDS[at:] + WORDS[:at]) + f" topic{n % 100}")
        for at in range(4)
    ]
    await store.copy_session(Session(id=f"old_{n}", owner="reader", title=title, updated_at=float(n)), messages)


async def milliseconds(work: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(10):
        begin = time.perf_counter()
        await work()
        took.append(time.perf_counter() - begin)
    return min(took) * 1000


async def best(measure: Callable[[], Awaitable[float]]) -> float:
    return max([await measure() for _ in range(ROUNDS)])


async def bench(url: str) -> None:
    store = await asyncio.to_thread(open_store, url)
    for batch in (1, 50, 500):
        rate = await best(lambda batch=batch: appended_per_second(store, batch))  # type: ignore[misc]
        print(f"append, batches of {batch:3} entries of one event   {rate:9,.0f} events/s")
    took = await append_latencies(store)
    print(f"append, one event, round trip                {took[len(took) // 2] * 1000:9.2f} ms p50", end="")
    print(f"  {took[len(took) * 99 // 100] * 1000:.2f} ms p99")
    for callers in (1, 100):
        rate = await best(lambda callers=callers: settled_per_second(store, callers))  # type: ignore[misc]
        print(f"settle, {callers:3} callers                          {rate:9,.0f} runs/s")
    await fill_with_sessions(store)
    page = await store.list_sessions("reader", limit=5000)
    for name, work in {
        "list, first 50": lambda: store.list_sessions("reader"),
        "list, 50 after 5,000": lambda: store.list_sessions("reader", before=page[-1].id),
        "search, one in 10,000": lambda: store.list_sessions("reader", query="number7777"),
        "search, one in 100": lambda: store.list_sessions("reader", query="topic42"),
        "search, two words in all": lambda: store.list_sessions("reader", query="curs proc"),
        "search, a letter": lambda: store.list_sessions("reader", query="t"),
    }.items():
        print(f"{SESSIONS:,} sessions: {name:<25}   {await milliseconds(work):9.2f} ms")
    await store.close()


def main() -> None:
    named = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="holdfast-bench-")
    if named.startswith("postgresql:"):
        asyncio.run(bench(named))
        return
    folder = Path(named) / "bench-store"
    try:
        asyncio.run(bench(f"sqlite:{folder}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
