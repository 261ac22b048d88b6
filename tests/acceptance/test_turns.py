"""A provider may be asked for so many answers at once; the others wait, say so, and can be stopped."""

import asyncio
import time

import pytest

from holdfast import Text
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.limit import LimitedProvider
from tests.support import outlets
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Status, Upstream, answer
from tests.support.waiting import LONG, SOON


@pytest.fixture
async def world(tmp_path):
    """An upstream that may give one answer at a time, one that is dead, and one with its own list of models."""
    async with Upstream() as up, Upstream() as dead:
        dead.refuse()
        settings = Settings(
            data=str(tmp_path),
            providers=(
                ProviderSettings("up", base_url=up.base_url, models=("m",), max_runs=1),
                ProviderSettings("dead", base_url=dead.base_url),
                ProviderSettings("free", base_url=up.base_url),
            ),
        )
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            yield up, Native(client)


async def busy(up, api) -> str:
    """A run that has the only turn, and keeps it until the gate is opened."""
    up.enqueue([Headers(), Role(), Delta("first"), Gate(), Finish(), Done()])
    run_id = await api.start(await api.new_session(), "Hello", "up/m")
    await up.reached()
    return str(run_id)


async def next_notice(api, run_id: str):
    reader = await api.events(run_id)
    while (frame := await reader.next_event()) is not None:
        if frame.event == "notice":
            return frame.json()
    raise AssertionError("the run ended without a notice")


async def test_one_too_many_waits_its_turn_and_says_so(world):
    """A silent wait looks like a broken upstream; the upstream is not asked before it is its turn."""
    up, api = world
    first = await busy(up, api)
    up.enqueue(answer("second"))
    second = await api.start(await api.new_session(), "Hello", "up/m")
    notice = await next_notice(api, second)
    asked_meanwhile = len(up.requests)
    up.open()

    assert ("waiting", 1) == (notice["code"], asked_meanwhile)
    assert ["first", "second"] == [(await api.settled(run_id))["text"] for run_id in (first, second)]


async def test_a_run_that_waits_stops_at_once_and_leaves_its_place(world):
    """Nothing has been asked for it, so there is nothing to wait for."""
    up, api = world
    first = await busy(up, api)
    second, third = [await api.start(await api.new_session(), "Hello", "up/m") for _ in range(2)]
    began = time.monotonic()
    stopped = await api.stop(second)
    took = time.monotonic() - began
    up.open()

    assert ("stopped", "") == (stopped["settlement"]["outcome"], stopped["settlement"]["text"])
    assert took < SOON
    assert ["completed"] * 2 == [(await api.settled(run_id))["outcome"] for run_id in (first, third)]
    assert 2 == len(up.requests)


async def test_a_stopped_or_failed_answer_gives_its_turn_back(world):
    """A turn that is never given back would stop the provider for good."""
    up, api = world
    first = await busy(up, api)
    await api.stop(first)
    up.enqueue([Status(400)], answer("last"))
    failed = await api.settled(await api.start(await api.new_session(), "Hello", "up/m"))
    last = await api.settled(await api.start(await api.new_session(), "Hello", "up/m"))

    assert ("failed", "last") == (failed["outcome"], last["text"])


async def test_other_providers_do_not_wait(world):
    """The limit is one provider's own."""
    up, api = world
    first = await busy(up, api)
    free = await api.start(await api.new_session(), "Hello", "free/m")

    assert "completed" == (await api.settled(free))["outcome"]
    up.open()
    await api.settled(first)


class Counting:
    """A provider that knows how many it answers at once, and in which order they came."""

    name, models, prefills, think, demo = "counting", ("m",), False, True, False

    def __init__(self):
        self.now = self.most = 0
        self.order = []

    async def answer(self, request, out):
        self.order.append(request.model)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
                out.emit([request.model])
        finally:
            self.now -= 1

    async def list_models(self):
        return list(self.models)

    async def close(self):
        pass


async def answer_of(provider, model: str) -> list[Text]:
    out = outlets.Collected()
    await provider.answer(ChatRequest(model=model, messages=[]), out)
    return out.events


async def test_no_more_than_so_many_are_answered_at_once_and_in_the_order_in_which_they_came():
    """Whoever comes late must not be served first, nor all of them together when a turn is given back."""
    counting = Counting()
    provider = LimitedProvider(counting, 3)

    async def ask(number: int) -> list[str]:
        return [said.text for said in await answer_of(provider, str(number))]

    said = await asyncio.gather(*(ask(number) for number in range(20)))

    assert [[str(number)] * 3 for number in range(20)] == said
    assert (3, 0) == (counting.most, counting.now)
    assert [str(number) for number in range(20)] == counting.order


async def test_turns_are_given_back_by_all_who_leave_while_they_wait():
    """A wait that is cancelled in the very moment in which its turn comes must not take the turn along."""
    counting = Counting()
    provider = LimitedProvider(counting, 1)

    async def ask(model: str) -> list[str]:
        return [said.text for said in await answer_of(provider, model)]

    for turns in range(12):
        tasks = [asyncio.create_task(ask("x")) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    assert ["last"] * 3 == await asyncio.wait_for(ask("last"), LONG)


async def test_the_list_of_models_says_which_provider_answers(world):
    """A dead one takes nothing from the others, and is seen to be dead."""
    _, api = world
    listed = await api.get("/api/models")

    assert ["up/m", "free/m"] == [model["id"] for model in listed["models"]]
    shown = [(each["name"], each["ok"], each["pending"], each["models"], each["demo"]) for each in listed["providers"]]
    assert [
        ("up", True, False, ["m"], False),
        ("dead", False, False, [], False),
        ("free", True, False, ["m"], False),
    ] == shown
    assert [True, False, True] == [each["why"] is None for each in listed["providers"]]
    assert ["up/m", "free/m"] == [model["id"] for model in (await api.get("/v1/models"))["data"]]
