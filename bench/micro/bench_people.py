"""What people cost: a request with a cookie beside one with a key, and calls with ten people and with 100,000.

    python bench/micro/bench_people.py [people] [sessions]

SQLite makes the rows of the people and of their chat sessions itself. Requests go through the app's own gate, in this
process: processor time for each, the best of several rounds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from holdfast.server.app import create_app
from holdfast.server.config.settings import Settings
from holdfast.server.features.accounts.people.accounts import Account
from holdfast.store.sqlite.file import locate
from tests.support.asgi_calls import ask

PASSWORD = "correct horse battery"
ROUNDS, CALLS = 9, 2000

ROWS_OF_PEOPLE = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :people)
    INSERT INTO documents (kind, id, owner, version, created_at, updated_at, body)
    SELECT 'account', 'user_' || n, '', 1, 1e9, 1e9,
        CAST('{"name":"person-' || n || '","owner":"user_' || n || '"}' AS BLOB) FROM numbers
    UNION ALL SELECT 'account_index', 'name person-' || n, '', 1, 1e9, 1e9,
        CAST('{"account":"user_' || n || '"}' AS BLOB) FROM numbers
    UNION ALL SELECT 'account_index', 'owner user_' || n, '', 1, 1e9, 1e9,
        CAST('{"account":"user_' || n || '"}' AS BLOB) FROM numbers
    UNION ALL SELECT 'sign_in', printf('%064d', n), 'user_' || n, 1, 1e9, 1e9,
        CAST('{"account":"user_' || n || '","began_at":4e9,"seen_at":4e9,"idle":1}' AS BLOB) FROM numbers
"""
ROWS_OF_SESSIONS = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :sessions)
    INSERT INTO sessions (id, owner, title, params, pinned, created_at, updated_at)
    SELECT 'ses_' || n, CASE n % 10 WHEN 0 THEN 'local' ELSE 'user_' || (n % :people) END, 'A chat', x'7b7d', 0,
        1e9 + n, 1e9 + n FROM numbers
"""


async def cost(work: Callable[[], Awaitable[object]], calls: int = CALLS) -> float:
    """Return the processor time of one call in microseconds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(calls):
            await work()
        best = min(best, (time.process_time() - began) / calls)
    return best * 1e6


def grow(folder: Path, people: int, sessions: int) -> None:
    """Add people, and chat sessions of which a tenth is the admin's."""
    with closing(sqlite3.connect(locate(folder))) as db, db:
        db.execute(ROWS_OF_PEOPLE, {"people": people})
        db.execute(ROWS_OF_SESSIONS, {"people": people, "sessions": sessions})


async def measure(people: int, sessions: int) -> dict[str, float]:
    """Return what each call costs with so many people."""
    with tempfile.TemporaryDirectory() as name:
        app = create_app(Settings(data=name))
        people_of = app.state.server.people
        async with app.router.lifespan_context(app):
            grow(Path(name), people, sessions)
            admin = await people_of.add(Account(name="ada", owner="local", role="admin"), PASSWORD)
            token = await people_of.begin(admin, idle=600.0, stay=False, address="", agent="")
            cookie = {"cookie": f"holdfast={token}"}
            made = await ask(
                app, "POST", "/api/keys", json={"name": "k"}, headers={**cookie, "origin": "http://127.0.0.1"}
            )
            key = {"authorization": f"Bearer {made.json()['key']}"}

            def get(path: str, headers: dict[str, str]) -> Callable[[], Awaitable[object]]:
                return lambda: ask(app, "GET", path, headers=headers)

            for path in ("/api/me", "/api/sessions"):
                for headers in (cookie, key):
                    assert (await ask(app, "GET", path, headers=headers)).status == 200, path
            return {
                "request with a key": await cost(get("/api/me", key)),
                "request with a cookie": await cost(get("/api/me", cookie)),
                "sign-in of a cookie that is not in memory": await cost(lambda: people_of.sign_ins.get(f"{7:064d}")),
                "account by its name": await cost(lambda: people_of.accounts.find("person-7")),
                "sign-in": await cost(lambda: people_of.check_password("ada", PASSWORD, ""), 3),
                "list of people, a page of ten": await cost(get("/api/admin/people?limit=10", cookie), 50),
                "list of sessions, a page of ten": await cost(get("/api/sessions?limit=10", cookie), 50),
            }


async def main(people: int, sessions: int) -> None:
    """Print both columns."""
    few, many = await measure(10, 100), await measure(people, sessions)
    print(f"{'µs of processor time':45}{'10 people':>12}{f'{people:,} people':>18}")
    for name, value in few.items():
        print(f"{name:45}{value:12.1f}{many[name]:18.1f}")


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*(given or (100_000, 1_000_000))))
