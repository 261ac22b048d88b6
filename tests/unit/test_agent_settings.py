"""Agents in the settings: what is wrong with one is said at the start."""

import pytest

from holdfast.server.agents import agents_of
from holdfast.server.settings import AgentSettings, ProviderSettings, Settings, SettingsError


def agents(*described: AgentSettings, providers=()) -> dict:
    return agents_of(Settings(agents=described, providers=providers), {"XDG_DATA_HOME": "/nowhere"})


def test_an_agent_is_made_of_its_table():
    """Tools by name, from here and from Python."""
    made = agents(AgentSettings("a", model="up/m", tools=("files", "shell", "tests.support.agents:add"), max_tokens=9))

    assert ["files_read", "files_list", "files_search", "files_write", "shell", "add"] == [
        tool.name for tool in made["a"].tools
    ]
    assert (9, None, 25) == (made["a"].limits.tokens, made["a"].limits.cost, made["a"].limits.steps)
    assert "ask" == next(tool.approval for tool in made["a"].tools if tool.name == "shell")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"name": "a/b"}, "no name for an agent"),
        ({"name": ""}, "no name for an agent"),
        ({"tools": ("telepathy",)}, "there is no tool 'telepathy'"),
        ({"tools": ("no_such_module:tool",)}, "cannot be loaded"),
        ({"tools": ("os:getcwd",)}, "is no tool"),
        ({"tools": ("files", "files")}, "two of its tools have the same name"),
        ({"approvals": {"shell": "allow"}}, "none of its tools"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_in_clear_words(table, told):
    """At the start, not in the middle of a run."""
    with pytest.raises(SettingsError, match=told):
        agents(AgentSettings(**{"name": "a", "model": "up/m", **table}))


def test_names_are_not_taken_twice():
    """Nobody could tell who is meant."""
    with pytest.raises(SettingsError, match="same name"):
        agents(AgentSettings("a", model="m"), AgentSettings("a", model="m"))
    with pytest.raises(SettingsError, match="No provider can be called 'agent'"):
        agents(AgentSettings("a", model="m"), providers=(ProviderSettings("agent", base_url="http://127.0.0.1:1"),))
