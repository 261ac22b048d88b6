"""Comparisons whose server is killed, ended or loses its store; and those of somebody else."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.compare import EVENTS, Compare, Watched
from tests.support.http import Incomplete
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Hang, Headers, Role, Upstream, UsageChunk, answer
from tests.support.waiting import LONG

HANGING = [Headers(), Role(), Delta("half an answer"), Hang()]


def tables(folder: Path) -> dict[str, int]:
    """How many rows each table has that a comparison could have left something in."""
    with closing(sqlite3.connect(folder / "holdfast.db")) as db:
        names = ("sessions", "messages", "feed", "runs", "events", "documents", "search")
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


def outcomes(kept: dict[str, Any]) -> list[str]:
    return [pane["settlement"]["outcome"] for pane in kept["panes"]]


async def settled(compare: Compare, comparison_id: str) -> dict[str, Any]:
    """Wait until the server has found what was left."""
    async with asyncio.timeout(LONG):
        while (kept := await compare.get(comparison_id))["status"] == "running":  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.02)
    return kept


@requirement("cmp.crash")
@pytest.mark.parametrize("blind", [False, True])
async def test_a_comparison_whose_server_was_killed_is_settled_with_what_was_shown(tmp_path, blind):
    """Its panes are interrupted, those that waited too; what was seen is kept, and it can be gone on with."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        up.models["hangs"] = HANGING
        async with server.client() as client:
            body = {"prompt": "Hi", "models": ["up/hangs"] * 3, "blind": blind, "order": "sequential"}
            watched = Watched(await client.post("/api/comparisons", body, headers=EVENTS))
            started = await watched.until("comparison.started")
            await watched.said(0, "half an answer")
            await server.kill9()
            with pytest.raises((Incomplete, ConnectionError)):
                await watched.end()
        await server.restart()
        async with server.client() as client:
            compare = Compare(client)
            kept = await settled(compare, started["comparison"]["id"])

            assert ["interrupted"] * 3 == outcomes(kept)
            assert ["half an answer", "", ""] == [pane["text"] for pane in kept["panes"]]
            assert [blind] * 3 == [pane["model"] is None for pane in kept["panes"]]
            path = f"/api/comparisons/{kept['id']}"
            assert (409, "pane_cannot_win") == await compare.refused(f"{path}/vote", {"winner": 0})
            up.models["hangs"] = [Headers(), Role(), Delta("whole"), Finish(), Done()]
            again = await compare.post(f"{path}/panes/1/reroll")
            assert ["interrupted", "completed", "interrupted"] == outcomes(again)
            assert 1 == (await compare.vote(again, 1))["vote"]["winner"]


@requirement("cmp.crash")
async def test_the_ends_that_nobody_wrote_down_are_written_down_after_a_crash(tmp_path):
    """Whoever counts panes reads documents, and finds none that goes on for ever."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        up.models["hangs"] = HANGING
        async with server.client() as client:
            watched = await Compare(client).begin(["up/hangs", "up/echo:done"])
            await watched.until("run.settled", pane=1)
            await watched.said(0, "half an answer")
            await server.kill9()
        await server.restart()
        async with asyncio.timeout(LONG):
            while "running" in statuses(tmp_path):  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.02)
        await server.terminate()

    assert ["settled"] == statuses(tmp_path)


def statuses(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "holdfast.db")) as db:
        return [
            status for (status,) in db.execute("SELECT body ->> '$.status' FROM documents WHERE kind = 'comparison'")
        ]


@requirement("cmp.crash", "crash.sigterm")
async def test_a_server_that_is_asked_to_end_settles_its_comparisons_first(tmp_path):
    """The client is told how each pane ended, and the next server has it written down."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)], config="drain = 0") as server:
        up.models["hangs"] = HANGING
        async with server.client() as client:
            watched = await Compare(client).begin(["up/hangs", "up/never"], order="sequential")
            await watched.said(0, "half an answer")
            ended = asyncio.create_task(server.terminate())
            kept = await watched.end()
            assert 0 == (await ended).code

        assert [("stopped", "shutdown")] * 2 == [
            (p["settlement"]["outcome"], p["settlement"]["by"]) for p in kept["panes"]
        ]
        await server.restart()
        async with server.client() as client:
            assert kept == await Compare(client).get(kept["id"])


async def test_a_deleted_comparison_leaves_no_row(tmp_path):
    """Not of its sessions, messages, feeds, runs, logs, nor in the search."""
    async with Upstream() as up, Server(tmp_path, [provider(up.base_url, models=None)]) as server:
        async with server.client() as client:
            before = tables(tmp_path)
            compare = Compare(client)
            kept = await compare.whole(["up/echo:one", "up/echo:two"])
            await compare.post(f"/api/comparisons/{kept['id']}/panes/0/reroll")
            await compare.post(f"/api/comparisons/{kept['id']}/panes/1/swap", {"model": "up/echo:three"})
            await compare.post(f"/api/comparisons/{kept['id']}/turns", {"prompt": "And?"})
            assert before["runs"] + 6 == tables(tmp_path)["runs"]

            assert 204 == (await client.request("DELETE", f"/api/comparisons/{kept['id']}")).status
            assert before == tables(tmp_path)


@requirement("safe.owner-404")
async def test_the_comparison_of_somebody_else_is_not_there(tmp_path):
    """Not to look at, not to stop, not to vote on."""
    keys = 'keys = [{name = "ada", key_env = "ADA"}, {name = "bob", key_env = "BOB"}]'
    env = {"ADA": "ada-key-0123456789", "BOB": "bob-key-0123456789"}
    async with Upstream() as up:
        async with Server(tmp_path, [provider(up.base_url, models=None)], config=keys, env=env) as server:
            ada = server.client(authorization=f"Bearer {env['ADA']}")
            bob = server.client(authorization=f"Bearer {env['BOB']}")
            async with ada, bob:
                kept = await Compare(ada).whole(["up/echo:one", "up/echo:two"])
                path, theirs = f"/api/comparisons/{kept['id']}", Compare(bob)

                missing = (404, "comparison_not_found")
                for call, body in (("turns", {"prompt": "x"}), ("stop", {}), ("vote", {"winner": 0}), ("reveal", {})):
                    assert missing == await theirs.refused(f"{path}/{call}", body)
                for call, body in (("reroll", {}), ("swap", {"model": "up/echo:x"}), ("continue", {})):
                    assert missing == await theirs.refused(f"{path}/panes/0/{call}", body)
                for method in ("GET", "DELETE"):
                    assert missing == await theirs.refused(path, method=method)
                assert [] == (await Native(bob).get("/api/comparisons"))["data"]
                assert kept == await Compare(ada).get(kept["id"])


@requirement("safe.run-limit")
async def test_a_comparison_begins_with_all_of_its_panes_or_not_at_all(tmp_path):
    """Where there is no room for all of them it is 429, and nothing is left; in sequence one place is enough."""
    async with Upstream() as up:
        config = "max_runs = 3"
        async with Server(tmp_path, [provider(up.base_url, models=None)], config=config) as server:
            async with server.client() as client:
                compare = Compare(client)
                before = tables(tmp_path)
                body = {"prompt": "Hi", "models": ["up/echo:x"] * 4}
                response = await client.post("/api/comparisons", body)

                assert (429, "run_limit") == (response.status, (await response.json())["error"]["code"])
                assert "retry-after" in response.headers
                assert before == tables(tmp_path)
                kept = await compare.whole(["up/echo:x"] * 4, order="sequential")
                assert ["completed"] * 4 == outcomes(kept)


@requirement("safe.run-limit")
async def test_of_two_comparisons_that_come_at_once_one_has_room_for_all_of_its_panes(tmp_path):
    """Both look before either has begun: a pane that is refused then would be counted as its model's failure."""
    async with Upstream() as up:
        up.models["gated"] = [Headers(), Role(), Gate(), Delta("x"), Finish(), UsageChunk(1, 1), Done()]
        async with Server(tmp_path, [provider(up.base_url, models=None)], config="max_runs = 5") as server:
            async with server.client() as client:
                body = {"prompt": "Hi", "models": ["up/gated"] * 4}
                asked = {asyncio.create_task(client.post("/api/comparisons", body)) for _ in range(3)}
                while len(asked) > 1:
                    refused, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                    assert {429} == {(await task).status for task in refused}
                up.open()
                (begun,) = asked
                kept = await (await begun).json()

                assert ["completed"] * 4 == outcomes(kept)
                assert ["completed"] * 5 == outcomes(await Compare(client).whole(["up/echo:x"] * 5)), "no place is lost"


class Holding(MemoryStore):
    """A store that lets the second session that is made wait."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0
        self.go_on = asyncio.Event()

    async def create_session(self, session):
        self.made += 1
        if self.made == 2:
            await self.go_on.wait()
        return await super().create_session(session)

    async def has_made(self, count: int) -> None:
        async with asyncio.timeout(LONG):
            while self.made < count:  # noqa: ASYNC110 - the server's own pace
                await asyncio.sleep(0.01)


@requirement("cmp.sequential", "cmp.failed-pane")
@pytest.mark.parametrize("stops", [False, True])
async def test_a_pane_whose_turn_comes_while_others_are_busy_waits_for_room(stops):
    """That the server is busy is no failure of the model; and who stops the comparison need not wait."""
    async with Upstream() as up:
        up.models["busy"] = [Headers(), Role(), Gate(), Delta("x"), Finish(), UsageChunk(1, 1), Done()]
        described = ProviderSettings("up", base_url=up.base_url, models=("echo:y", "busy"))
        store = Holding()
        app = create_app(Settings(providers=(described,), max_runs=1), store, {})
        async with Served(app) as served, served.client() as client:
            compare = Compare(client)
            watched = await compare.begin(["up/echo:y", "up/echo:y"], order="sequential")
            await store.has_made(2)
            other = await compare.begin(["up/busy"])
            await up.reached()
            store.go_on.set()
            await store.has_made(4)  # it has tried again
            if stops:
                await compare.post(f"{watched.path}/stop")
            up.open()

            assert ["completed", "stopped" if stops else "completed"] == outcomes(await watched.end())
            assert ["completed"] == outcomes(await other.end())


class Away(MemoryStore):
    """A store that can be away for documents."""

    is_away = False
    tries = 0

    async def put_document(self, document, expected_version=None):
        if self.is_away:
            self.tries += 1
            raise StoreUnavailable("away")
        return await super().put_document(document, expected_version)


async def test_an_answer_is_written_down_when_the_store_is_back():
    """Nobody is told that a comparison has settled before that is kept."""
    async with Upstream() as up:
        up.models["gated"] = [Headers(), Role(), Delta("x"), Gate(), Finish(), UsageChunk(1, 1), Done()]
        store = Away()
        described = ProviderSettings("up", base_url=up.base_url, models=("gated",))
        app = create_app(Settings(providers=(described,), allowed_hosts=("127.0.0.1",)), store, NO_HOME)
        async with Served(app) as served, served.client() as client:
            watched = await Compare(client).begin(["up/gated"])
            await watched.said(0, "x")
            store.is_away = True
            up.open()
            await watched.until("run.settled", pane=0)
            async with asyncio.timeout(LONG):
                while store.tries < 2:  # noqa: ASYNC110 - the server's own pace
                    await asyncio.sleep(0.01)
            assert "running" == (await Compare(client).get(watched.comparison["id"]))["status"]
            store.is_away = False
            kept = await watched.end()

            assert ["completed"] == outcomes(kept)
            (document,) = await store.list_documents("comparison")
            assert "settled" == document.body["status"]


class Unwilling(MemoryStore):
    """A store that makes no sessions for a while."""

    is_unwilling = False

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, None] = {}

    async def create_session(self, session):
        if self.is_unwilling:
            raise StoreUnavailable("away")
        self.made[session.id] = None
        return await super().create_session(session)


@requirement("cmp.reroll-fresh")
async def test_a_model_that_took_over_is_never_shown_what_the_one_before_it_said():
    """Also where its first run could not begin: what the pane has heard is not what this model has said."""
    async with Upstream() as up:
        up.models |= {"before": answer("old words"), "after": answer("new words")}
        described = ProviderSettings("up", base_url=up.base_url, models=("before", "after"))
        store = Unwilling()
        app = create_app(Settings(providers=(described,)), store, {})
        async with Served(app) as served, served.client() as client:
            compare = Compare(client)
            kept = await compare.whole(["up/before"], prompt="One?")
            path = f"/api/comparisons/{kept['id']}"
            store.is_unwilling = True
            swapped = await compare.post(f"{path}/panes/0/swap", {"model": "up/after"})
            store.is_unwilling = False
            went_on = await compare.post(f"{path}/turns", {"prompt": "Two?"})
            session = await compare.post(f"{path}/panes/0/continue", status=201)
            said = (await Native(client).get(f"/api/sessions/{session['id']}"))["messages"]
            await client.request("DELETE", path)

            assert (["failed"], "up/after") == (outcomes(swapped), swapped["panes"][0]["model"])
            assert (["completed"], "new words") == (outcomes(went_on), went_on["panes"][0]["text"])
            assert ["One?\n\nTwo?"] == [message["content"] for message in up.requests[-1].body["messages"]]
            assert ["One?", "Two?", "new words"] == [message["content"] for message in said]
            assert 2 == len(store.made)
            assert [None, None] == [await store.get_session(made) for made in store.made]
