"""Scores over HTTP: what people voted, as ratings, counts and files."""

import csv
import io

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.compare import Compare
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Status, Upstream, answer

MODELS = ["up/a", "up/b"]


class World:
    def __init__(self, up, client):
        self.up = up
        self.api = Native(client)
        self.client = client
        self.compare = Compare(client)

    async def vote(self, winner, models=MODELS, **more):
        """Compare blindly and vote, by the words: who says them is not known before."""
        kept = await self.compare.whole(models, **{"blind": True, **more})
        texts = [pane["text"] for pane in kept["panes"]]
        return await self.compare.vote(kept, texts.index(winner) if winner in texts else winner)

    async def scores(self, query=""):
        told = await self.api.get(f"/api/comparisons/scores{query}")
        return {row["model"]: row for row in told["models"]}, told["counted"]


@pytest.fixture
async def world():
    async with Upstream() as up:
        up.models |= {"a": answer("I am first"), "b": answer("I am second"), "broken": [Status(400)]}
        described = ProviderSettings(name="up", base_url=up.base_url, models=("a", "b", "broken"))
        async with Served(create_app(Settings(providers=(described,)), MemoryStore(), NO_HOME)) as served:
            async with served.client() as client:
                yield World(up, client)


@requirement("cmp.scores")
async def test_votes_become_scores(world):
    """Three for one, one for the other, a tie, all bad; a vote with open eyes and one against a failure rate nobody."""
    for winner in ("I am first", "I am first", "I am first", "I am second", "tie", "none"):
        await world.vote(winner)
    await world.vote(0, blind=False)
    await world.vote("I am first", ["up/a", "up/broken"])
    await world.compare.whole(MODELS, blind=True)  # nobody votes, nobody knows

    rows, counted = await world.scores()

    assert {"blind_votes": 7, "other_votes": 1} == counted
    a, b = rows["up/a"], rows["up/b"]
    assert (6, 3, 1, 1, 1, 0.7) == tuple(a[name] for name in ("votes", "wins", "losses", "ties", "all_bad", "win_rate"))
    assert (6, 1, 3, 1, 1, 0.3) == tuple(b[name] for name in ("votes", "wins", "losses", "ties", "all_bad", "win_rate"))
    assert (8, 8, 7) == (a["panes"], a["completed"], b["panes"])
    assert a["low"] < a["rating"] < a["high"]
    assert a["rating"] > 1000 > b["rating"]
    broken = rows["up/broken"]
    assert (1, 1, None, None) == tuple(broken[name] for name in ("panes", "failed", "rating", "ttft_ms_p50"))


async def test_scores_by_kind_and_time(world):
    """A category alone, or since a day."""
    await world.vote("I am first", kind="code")
    await world.vote("I am second", kind="prose")

    assert 1 == (await world.scores("?kind=code"))[0]["up/a"]["wins"]
    assert 1 == (await world.scores("?kind=prose"))[0]["up/b"]["wins"]
    assert {} == (await world.scores("?kind=other"))[0]
    assert {} == (await world.scores("?until=2020-01-01"))[0]
    assert {} == (await world.scores("?since=2999-01-01T00:00:00Z"))[0]
    assert 2 == (await world.scores("?since=2020-01-01&until=2999-01-01T00:00:00%2B02:00"))[0]["up/a"]["votes"]


async def test_scores_and_votes_as_files(world):
    """The same numbers in a spreadsheet."""
    await world.vote("I am first", prompt="=1+1")

    scores = await world.client.get("/api/comparisons/scores?format=csv")
    [first, _] = list(csv.DictReader(io.StringIO(await scores.text())))
    exported = await world.client.get("/api/comparisons/export?format=csv")
    panes = list(csv.DictReader(io.StringIO(await exported.text())))
    [vote] = (await world.api.get("/api/comparisons/export"))["data"]

    assert ("up/a", "1", "0") == (first["model"], first["wins"], first["losses"])
    assert {"up/a", "up/b"} == {pane["model"] for pane in panes}
    assert "text/csv" in exported.headers["content-type"]
    assert "up/a" == vote["panes"][vote["winner"]]["model"]
    assert (True, "general", ["=1+1"]) == (vote["blind"], vote["kind"], vote["prompts"])


async def test_before_the_first_vote(world):
    """An empty board, and empty files."""
    assert ({}, {"blind_votes": 0, "other_votes": 0}) == await world.scores()
    assert {"data": []} == await world.api.get("/api/comparisons/export")
    assert 200 == (await world.client.get("/api/comparisons/export?format=csv")).status


@pytest.mark.parametrize("query", ["format=xml", "since=yesterday", "until=99999-01-01"])
@pytest.mark.parametrize("what", ["scores", "export"])
async def test_a_bad_query_is_400(world, what, query):
    """With the name of what is wrong."""
    response = await world.client.get(f"/api/comparisons/{what}?{query}")

    assert 400 == response.status
    assert query.partition("=")[0] == (await response.json())["error"]["param"]
