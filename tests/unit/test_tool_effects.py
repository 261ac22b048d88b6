"""What tools find out about a call that a crash has interrupted."""

import os
import time

import pytest

from holdfast.agents import Effect, NotRun, ToolOutput, tool
from holdfast.agents.files import WRITE, Files
from holdfast.agents.tools import Reconciling
from tests.requirements import requirement


def effect(**arguments):
    return Effect("eff_1", arguments, time.time())


def write_of(folder):
    (found,) = (each for each in Files(folder).tools() if each.name == WRITE)
    assert isinstance(found, Reconciling)
    return found


@requirement("crash.effects")
async def test_a_file_with_the_content_of_a_write_was_written(tmp_path):
    """Nobody is asked about what the folder shows."""
    (tmp_path / "a.md").write_text("new")

    assert ToolOutput("3 bytes were written to a.md.") == await write_of(tmp_path).reconcile(
        effect(path="a.md", content="new")
    )


@requirement("crash.effects")
@pytest.mark.parametrize("names", [[], ["a.md"]])
async def test_a_file_that_nobody_has_touched_since_was_not_written(tmp_path, names):
    """The write can be made: it replaces nothing that somebody has changed meanwhile."""
    for name in names:
        (tmp_path / name).write_text("old")
        os.utime(tmp_path / name, (1.0, 1.0))
    os.utime(tmp_path, (1.0, 1.0))

    assert NotRun() == await write_of(tmp_path).reconcile(effect(path="a.md", content="new"))


@requirement("crash.effects")
async def test_a_file_that_was_changed_since_is_unknown(tmp_path):
    """It may be our content with somebody's change: a person has to look."""
    (tmp_path / "a.md").write_text("new, and more")

    assert await write_of(tmp_path).reconcile(effect(path="a.md", content="new")) is None
    assert await write_of(tmp_path).reconcile(effect(path="b/c.md", content="new")) is None


@requirement("crash.effects")
@pytest.mark.parametrize(
    ("found", "expected"), [("paid", ToolOutput("paid")), (NotRun(), NotRun()), (None, None), ({"n": 1}, '{"n":1}')]
)
async def test_a_function_says_what_it_has_found_out(found, expected):
    """A value is the result. None says nothing: a function that returns nothing must not be taken for a no."""
    seen = []

    @tool(reconcile=lambda effect_id: (seen.append(effect_id), found)[1])
    async def pay() -> str:
        """Pay."""
        return "paid"

    told = await pay.reconcile(effect())

    assert (expected if not isinstance(expected, str) else ToolOutput(expected)) == told
    assert ["eff_1"] == seen


def test_a_misspelt_replay_is_refused_at_once():
    """At the definition, not after the crash."""

    async def pay() -> str:
        """Pay."""
        return "paid"

    with pytest.raises(TypeError, match="use one of safe, keyed, never"):
        tool(replay="save")(pay)
