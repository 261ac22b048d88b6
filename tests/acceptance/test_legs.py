"""An answer that breaks off is gone on with by another call: no word twice, none missing, and the seam is told."""

import asyncio
import itertools
import json
import re

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Cut, Delta, Done, Eof, Finish, Hang, Headers, InBandError, Raw, Role, Upstream

WORDS = "In the harbour of a small town there lived an old keeper who counted the tides, and each of them had a name. "
STORY = [*re.findall(r"\s*\S+", WORDS + "She wrote it down, the hour too, and the colour of the water.\n\n- low\n- high")]
TOKENS = [*itertools.chain.from_iterable((word[: len(word) // 2], word[len(word) // 2 :]) for word in STORY)][:60]
TEXT = "".join(TOKENS)
ANCHOR = re.compile(r"last characters:\n\n(.*)\n\nContinue it:", re.DOTALL)

BREAKS = {
    "the connection is reset": [Cut()],
    "the stream ends early": [Eof()],
    "an error is sent as an event": [InBandError()],
    "an event is no JSON": [Raw(b"data: {nonsense\n\n"), Hang()],
    "it falls silent": [Hang()],
}


class Model:
    """Writes one story, breaks off where it is told to, and goes on as real models do."""

    def __init__(self, *cuts: int, breaks=(Cut(),)) -> None:
        self.cuts, self.breaks = [*cuts], [*breaks]

    def __call__(self, request):
        text = self.rest_of(request.body["messages"])
        tokens = re.findall(r"\s*\S{1,4}|\s+", text) if text != TEXT else TOKENS
        begin = [Headers(), Role()]
        if not self.cuts:
            return [*begin, *map(Delta, tokens), Finish("stop"), Done()]
        return [*begin, *map(Delta, tokens[: self.cuts.pop(0)]), *self.breaks]

    def rest_of(self, messages):
        last = messages[-1]
        if last["role"] == "assistant":
            assert TEXT.startswith(last["content"])
            return TEXT[len(last["content"]) :]
        if asked := ANCHOR.search(last["content"]):
            return TEXT[TEXT.rindex(asked[1], 0, len(messages[-2]["content"]) + 1) :]
        return TEXT


class World:
    def __init__(self, up, other, client):
        self.up, self.other, self.client = up, other, client
        self.api = Native(client)

    async def run(self, model="up/m", on_break="continue", **more):
        session_id = await self.api.new_session()
        body = {"input": "Tell me", "model": model, **more}
        headers = {"holdfast-on-break": on_break} if on_break else {}
        run = await (await self.client.post(f"/api/sessions/{session_id}/runs", body, headers=headers)).json()
        settlement = await self.api.settled(run["id"])
        events = [frame.json() for frame in await self.api.replay(run["id"])]
        return settlement, events, (await self.api.session(session_id))["messages"][-1]


@pytest.fixture(params=[True, False], ids=["prefill", "turn"])
def prefills(request):
    return request.param


@pytest.fixture
def fallbacks():
    return {}


@pytest.fixture
async def world(tmp_path, prefills, fallbacks):
    async with Upstream() as up, Upstream() as other:
        providers = [
            ProviderSettings(name, base_url=each.base_url, models=("m",), prefills=prefills)
            for name, each in {"up": up, "other": other}.items()
        ]
        settings = Settings(
            data=str(tmp_path),
            providers=tuple(providers),
            fallbacks=fallbacks,
            retry_patience=0.0,
            drain=0.0,
            idle_limit=2.0,
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            yield World(up, other, client)


def seams(events):
    return [event for event in events if event["type"] == "leg.started"]


@pytest.mark.parametrize("breaks", [BREAKS[name] for name in BREAKS if name != "it falls silent"], ids=[name for name in BREAKS if name != "it falls silent"])
async def test_the_joined_text_equals_the_uncut_one_wherever_the_answer_breaks_off(world, breaks, prefills):
    """In the middle of a word, behind white space, and behind the last word."""
    for cut in range(1, len(TOKENS) + 1):
        world.up.models["m"] = Model(cut, breaks=breaks)
        settlement, events, message = await world.run()
        visible = "".join(TOKENS[:cut])

        assert (TEXT, "completed") == (settlement["text"], settlement["outcome"]), cut
        assert TEXT == message["content"] == "".join(e["text"] for e in events if e["type"] == "text.delta")
        if visible.strip():
            (seam,) = seams(events)
            assert (2, "up/m", len(visible)) == (seam["leg"], seam["model"], seam["at"])
            assert ("prefill" if prefills else "turn") == seam["how"]
