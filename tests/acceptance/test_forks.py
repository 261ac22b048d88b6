"""An answer is left at any place of its log, and another model goes on from there. The first answer stays."""

import re

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import (
    Cut,
    Delta,
    Done,
    Finish,
    Hang,
    Headers,
    ReasoningDelta,
    Role,
    ToolDelta,
    Upstream,
    answer,
    calling,
)

TOKENS = ["Once", " upon", " a", " time", ",\n\n", "there", " lived", " a", " keep", "er", " of", " tides", "."]
TEXT = "".join(TOKENS)
THOUGHTS = ["A", " story", "?"]
STORY = [Headers(), Role(), *map(ReasoningDelta, THOUGHTS), *map(Delta, TOKENS), Finish("stop"), Done()]
MODELS = {"prefill": "writes/m", "turn": "turns/m"}
ANCHOR = re.compile(r"last characters:\n\n(.*)\n\nContinue it:", re.DOTALL)


class World:
    def __init__(self, up, client):
        self.up, self.client, self.api = up, client, Native(client)

    async def told(self, model="writes/m"):
        """A chat with one answer; the ids of the session and of its run, and what the log has."""
        self.up.enqueue(STORY)
        session_id = await self.api.new_session()
        run_id = await self.api.start(session_id, "Tell me", model)
        frames = await self.api.replay(run_id)
        return session_id, run_id, [frame.json() for frame in frames]

    async def fork(self, run_id, **body):
        return await self.client.post(f"/api/runs/{run_id}/fork", body)

    async def forked(self, run_id, **body):
        response = await self.fork(run_id, **body)
        assert 202 == response.status, await response.text()
        run = await response.json()
        return run, await self.api.settled(run["id"])

    async def refused(self, path, body):
        response = await self.client.post(path, body)
        return response.status, (await response.json())["error"]["code"]


@pytest.fixture
async def world(tmp_path):
    """One upstream under two names: as one that goes on with its own words, and as one that is asked in a turn."""
    async with Upstream() as up:
        providers = [
            ProviderSettings(name, base_url=up.base_url, models=("m",), prefills=name == "writes")
            for name in ("writes", "turns")
        ]
        settings = Settings(data=str(tmp_path), providers=tuple(providers), retry_patience=0.0)
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            yield World(up, client)


def text_of(events):
    return "".join(event["text"] for event in events if event["type"] == "text.delta")


def thoughts_of(events):
    return "".join(event["text"] for event in events if event["type"] == "reasoning.delta")


@requirement("fork.exact")
@pytest.mark.parametrize("how", ["prefill", "turn"])
async def test_for_every_event_the_prefix_is_exact_and_the_first_answer_is_untouched(world, how):
    """The log, the message and the request of the upstream begin with what had been said, and with nothing else."""
    session_id, run_id, events = await world.told()
    first = (await world.api.session(session_id))["messages"][-1]
    for after in range(len(events)):
        said, thought = text_of(events[:after]), thoughts_of(events[:after])
        world.up.models["m"] = lambda request, said=said: goes_on(request, said, " and on.")
        run, settlement = await world.forked(run_id, after=after, model=MODELS[how])
        log = [frame.json() for frame in await world.api.replay(run["id"])]
        begun = [event for event in log if event.get("earlier")]
        messages = world.up.requests[-1].body["messages"]
        *_, message = (await world.api.session(session_id))["messages"]

        assert (said, thought) == (text_of(begun), thoughts_of(begun))
        assert settlement["text"].startswith(said), after
        assert {"role": "user", "content": "Tell me"} == messages[0]
        expected = [{"role": "assistant", "content": said.rstrip()}] if said else []
        assert expected == messages[1:2]
        assert (len(expected) + 1 + (how == "turn" and bool(said))) == len(messages)
        assert (first["parent_id"], run["message_id"]) == (message["parent_id"], message["id"])
        assert first["id"] in message["siblings"]
        if said:
            assert ("forked", len(said), how) == tuple(message["legs"][1][name] for name in ("reason", "at", "how"))
            assert ["writes/m", run["model"]] == [leg["model"] for leg in message["legs"]]
            assert "and on." == settlement["text"][len(said) :].strip()
            assert "edited" not in message

    assert events == [frame.json() for frame in await world.api.replay(run_id)]
    await world.client.request("PATCH", f"/api/sessions/{session_id}", json={"head_id": first["id"]})
    shown = (await world.api.session(session_id))["messages"][-1]
    assert first == {**shown, "siblings": first["siblings"]}


def goes_on(request, said, more):
    """Go on after a text: at once, or with its last words repeated, if the model is told to repeat them."""
    asked = ANCHOR.search(request.body["messages"][-1]["content"])
    assert asked is None or said.rstrip().endswith(asked[1])
    return answer(more if asked is None else asked[1] + more)


@requirement("fork.exact")
async def test_what_was_said_earlier_is_not_counted_as_written_now(world):
    """Tokens, cost and speed are those of the new call alone."""
    _, run_id, events = await world.told()
    world.up.enqueue(answer("!"))
    _, settlement = await world.forked(run_id, after=len(events) - 1)

    assert f"{TEXT}!" == settlement["text"]
    assert settlement["usage"]["output_tokens"] <= 2
    assert 0 == settlement["legs"][0]["usage"]["output_tokens"]


@requirement("fork.edited")
async def test_a_changed_text_is_gone_on_with_and_marked(world):
    """Whoever reads, exports or answers it knows that a person has put in words; the model sees these words."""
    session_id, run_id, events = await world.told()
    world.up.enqueue(answer(" of storms."), answer("Fine."))
    _, settlement = await world.forked(run_id, after=len(events) - 1, text="Twice upon a time lived a keeper")
    message = (await world.api.session(session_id))["messages"][-1]
    await world.api.settled(await world.api.start(session_id, "And?", "writes/m"))
    exported = await world.api.get(f"/api/sessions/{session_id}?files=inline")
    imported = await (await world.client.post("/api/sessions/import", exported)).json()
    again = (await world.api.session(imported["id"]))["messages"]

    assert "Twice upon a time lived a keeper of storms." == settlement["text"] == message["content"]
    assert message["edited"] is True
    assert settlement["text"] == world.up.requests[-1].body["messages"][1]["content"]
    assert [None, True, None, None] == [each.get("edited") for each in again]


@requirement("fork.edited")
async def test_a_message_is_forked_with_the_text_that_is_to_stay(world):
    """An answer without a kept log too: an imported one has no run."""
    session_id, _, _ = await world.told()
    exported = await world.api.get(f"/api/sessions/{session_id}?files=inline")
    imported = await (await world.client.post("/api/sessions/import", exported)).json()
    user, said = (await world.api.session(imported["id"]))["messages"]
    world.up.enqueue(answer("a bear."))
    path = f"/api/sessions/{imported['id']}/messages/{said['id']}/fork"
    run = await (await world.client.post(path, {"text": "Once upon "})).json()
    settlement = await world.api.settled(run["id"])
    shown = (await world.api.session(imported["id"]))["messages"]

    assert ("Once upon a bear.", True) == (settlement["text"], shown[-1]["edited"])
    assert [said["id"], shown[-1]["id"]] == shown[-1]["siblings"]
    assert (400, "invalid_request") == await world.refused(path.replace(said["id"], user["id"]), {})


@requirement("fork.exact")
async def test_a_running_answer_is_left_only_if_it_may_be_stopped(world):
    """A chat writes one answer at a time."""
    world.up.enqueue([Headers(), Role(), Delta("Once"), Delta(" upon"), Hang()], answer(" again."))
    session_id = await world.api.new_session()
    run_id = await world.api.start(session_id, "Tell me", "writes/m")
    await world.api.shown(run_id, "Once upon")
    refused = await world.refused(f"/api/runs/{run_id}/fork", {"after": 2})
    _, settlement = await world.forked(run_id, after=2, if_busy="interrupt")

    assert (409, "session_busy") == refused
    assert "Once again." == settlement["text"]
    assert "stopped" == (await world.api.settled(run_id))["outcome"]


@requirement("fork.exact")
async def test_a_fork_can_be_forked_and_names_every_model_that_has_written(world):
    """Each part of the text has its author."""
    _, run_id, events = await world.told()
    world.up.models["m"] = lambda request: goes_on(request, "Once upon", " one tide.")
    second, _ = await world.forked(run_id, after=6, model="turns/m")
    world.up.models["m"] = lambda request: goes_on(request, "Once upon one tide.", " It rose.")
    _, settlement = await world.forked(second["id"], model="writes/m")

    assert "Once upon one tide. It rose." == settlement["text"]
    assert ["writes/m", "turns/m", "writes/m"] == [leg["model"] for leg in settlement["legs"]]
    assert "Once upon" == text_of(events[:6])


@requirement("fork.refused")
async def test_a_place_behind_a_tool_call_is_refused_in_words(world):
    """No model can go on behind a call that a client answers."""
    call = [ToolDelta(0, id="call_1", name="look", arguments="{}"), Finish("tool_calls"), Done()]
    world.up.enqueue([Headers(), Role(), Delta("I look. "), *call])
    session_id = await world.api.new_session()
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    run_id = await world.api.start(session_id, "Look", "writes/m", params={"tools": tools})
    events = [frame.json() for frame in await world.api.replay(run_id)]
    first = next(seq for seq, event in enumerate(events, 1) if event["type"].startswith("tool."))
    response = await world.fork(run_id, after=len(events) - 1)
    said = (await response.json())["error"]

    assert (409, "cannot_fork") == (response.status, said["code"])
    assert f"Event {first} belongs to a tool call" in said["message"]
    assert f"after event {first - 1}" in said["message"]
    world.up.enqueue(answer("and see."))
    _, settlement = await world.forked(run_id, after=first - 1)
    assert "I look. and see." == settlement["text"]


@requirement("fork.refused")
async def test_bad_places_and_strangers_are_refused(world):
    """Nothing is left behind by a refused fork."""
    session_id, run_id, events = await world.told()
    path = f"/api/runs/{run_id}/fork"
    before = (await world.api.session(session_id))["messages"]

    assert (400, "invalid_request") == await world.refused(path, {"after": len(events) + 1})
    assert (400, "invalid_request") == await world.refused(path, {"after": -1})
    assert (400, "invalid_request") == await world.refused(path, {"after": "x"})
    assert (404, "model_not_found") == await world.refused(path, {"after": 3, "model": "none"})
    assert (404, "run_not_found") == await world.refused("/api/runs/run_none/fork", {})
    alone = await world.client.post(
        "/v1/chat/completions", {"model": "writes/m", "messages": [{"role": "user", "content": "x"}]}
    )
    outside = alone.headers["x-run-id"]
    assert (409, "cannot_fork") == await world.refused(f"/api/runs/{outside}/fork", {})
    assert before == (await world.api.session(session_id))["messages"]


@requirement("fork.exact")
async def test_a_fork_that_breaks_off_keeps_its_beginning(world):
    """It fails like any answer: with every word that was there."""
    _, run_id, _ = await world.told()
    world.up.enqueue([Headers(), Role(), Delta(" and"), Cut()])
    response = await world.client.post(
        f"/api/runs/{run_id}/fork", {"after": 6}, headers={"holdfast-on-break": "settle"}
    )
    settlement = await world.api.settled((await response.json())["id"])

    assert ("failed", "Once upon and") == (settlement["outcome"], settlement["text"])


# Agents.


@requirement("fork.steps")
async def test_an_agent_goes_on_after_a_step_without_making_its_calls_again(tmp_path):
    """The recorded results are shown to the model; a place within a step is refused with the places that are not."""
    async with Upstream() as up, serving(up, tmp_path) as world:
        up.enqueue(calling(("add", {"a": 1, "b": 2})), calling(("add", {"a": 3, "b": 4})), answer("3 and 7."))
        session_id, run_id = await world.start("Add")
        events = [frame.json() for frame in await world.api.replay(run_id)]
        ends = [seq for seq, event in enumerate(events, 1) if event["type"] == "step.finished"]
        inside = await world.api.client.post(f"/api/runs/{run_id}/fork", {"after": ends[0] - 1})
        said = (await inside.json())["error"]
        up.enqueue(answer("Only 3."))
        response = await world.api.client.post(f"/api/runs/{run_id}/fork", {"after": ends[0]})
        run = await response.json()
        settlement = await world.api.settled(run["id"])
        log = [frame.json() for frame in await world.api.replay(run["id"])]
        shown = up.requests[-1].body["messages"]
        edited = await world.api.client.post(f"/api/runs/{run_id}/fork", {"after": ends[0], "text": "x"})
        at_the_end = await world.api.client.post(f"/api/runs/{run_id}/fork", {"after": ends[-1]})
        up.enqueue(answer("Anew."))
        anew = await (await world.api.client.post(f"/api/runs/{run_id}/fork", {"after": 1})).json()
        message = (await world.api.session(session_id))["messages"][-1]

        assert (409, "cannot_fork") == (inside.status, said["code"])
        assert "before its first step" in said["message"]
        assert "Only 3." == settlement["text"]
        assert [("tool", "3")] == [(each["role"], each["content"]) for each in shown if each["role"] == "tool"]
        assert 1 == len([event for event in log if event["type"] == "tool.result"])
        assert [1, 2] == [event["step"] for event in log if event["type"] == "step.started"]
        assert (400, 409) == (edited.status, at_the_end.status)
        assert run["message_id"] != anew["message_id"]
        assert "Anew." == (await world.api.settled(anew["id"]))["text"]
        assert message["siblings"]
