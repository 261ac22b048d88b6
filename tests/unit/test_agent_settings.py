"""Agents in the settings: what is wrong with one is said at the start."""

import pytest

from holdfast.server.config.settings import AgentSettings, ProviderSettings, Settings, SettingsError
from holdfast.server.sources.agent_factory import agents_of, folder_name


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
        ({"name": "a/b"}, "not a valid agent name"),
        ({"name": ""}, "not a valid agent name"),
        ({"name": ".."}, "not a valid agent name"),
        ({"tools": ("telepathy",)}, "unknown tool 'telepathy'"),
        ({"tools": ("no_such_module:tool",)}, "cannot be loaded"),
        ({"tools": ("os:getcwd",)}, "is not a tool"),
        ({"tools": ("files", "files")}, "two of its tools have the same name"),
        ({"approvals": {"shell": "allow"}}, "not one of its tools"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_in_clear_words(table, told):
    """At the start, not in the middle of a run."""
    with pytest.raises(SettingsError, match=told):
        agents(AgentSettings(**{"name": "a", "model": "up/m", **table}))


@pytest.mark.parametrize(
    "owner", ["", ".", "..", "../x", "a/b", "Ada", "a" * 5000, "é", "bad\udc80", "a~b", "x\0y", "con."]
)
def test_every_owner_has_a_folder_of_its_own(owner):
    """Whatever a key is called: one name, inside the folder, which nobody else has."""
    name = folder_name(owner)
    others = {folder_name(other) for other in ("ada", "a", "b", "x", "local", "_", "__", owner.lower() + "2")}

    assert name not in others
    assert name not in ("", ".", "..")
    assert len(name) <= 80
    assert name.isascii()
    assert not set(name) & set("/\0")
    assert name == name.lower(), "on some machines capital letters do not count in the names of folders"


def test_plain_owners_are_the_names_of_their_folders():
    """So that a person finds them."""
    assert ["local", "ada@example.com"] == [folder_name("local"), folder_name("ada@example.com")]


def test_names_are_not_taken_twice():
    """Nobody could tell who is meant."""
    with pytest.raises(SettingsError, match="same name"):
        agents(AgentSettings("a", model="m"), AgentSettings("a", model="m"))
    with pytest.raises(SettingsError, match="The provider name 'agent' is reserved"):
        agents(AgentSettings("a", model="m"), providers=(ProviderSettings("agent", base_url="http://127.0.0.1:1"),))
