"""Agents on every surface: the same text, and the same truth about how they ended."""

import asyncio

import pytest

from tests.acceptance.surfaces import SURFACES, World
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.upstream import Cut, Delta, Finish, Headers, Pause, Recorded, Role, Status, Upstream, answer, calling

FIRST = calling(("add", {"a": 1, "b": 2}), text="One. ")
BROKEN = [Headers(), Role(), Delta("So "), Pause(0.05), Cut()]


def in_steps(*scripts):
    """Script by script, counted by the results that the model has been shown since the user spoke."""

    def script(request: Recorded):
        roles = [said["role"] for said in request.body["messages"]]
        return scripts[roles[::-1].index("user") // 2]

    return script


ROWS = {
    "completed": (in_steps(FIRST, answer("Two.")), "completed", "One. Two.", None),
    "fails at once": (in_steps([Status(400)]), "failed", "", "upstream_rejected"),
    "fails in the third step": (in_steps(FIRST, FIRST, BROKEN), "failed", "One. One. So ", "upstream_broke"),
    "length": (in_steps(FIRST, [Headers(), Role(), Delta("Two"), Finish("length")]), "truncated", "One. Two", None),
    "out of steps": (in_steps(*[FIRST] * 4), "truncated", "One. One. One. One. ", None),
}


@requirement("gone.same-for-agents", "start.agent-late-text", "truth.completed", "truth.cut", "truth.length")
@pytest.mark.parametrize("row", ROWS)
async def test_an_agent_tells_the_same_on_every_surface(tmp_path, row):
    """Whoever asks, and however: only what completed looks like success, and no client is given the agent's calls."""
    script, outcome, text, code = ROWS[row]
    async with Upstream() as up, serving(up, tmp_path, max_steps=4) as served:
        up.models["m"] = script
        world = World(up, None, served.api.client)  # type: ignore[arg-type]
        told = await asyncio.gather(*(surface(world, "agent/helper") for surface in SURFACES.values()))

    assert dict.fromkeys(SURFACES, (outcome, text, code)) == {
        name: (each.outcome, each.text, each.code) for name, each in zip(SURFACES, told, strict=True)
    }
