"""`holdfast doctor` on agents: what the server could not load or reach is reported before it starts."""

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from holdfast.cli.doctor.interpreter import built, check_interpreter
from holdfast.cli.doctor.machine import check_platform, check_proxy
from holdfast.server.config.settings import Settings
from holdfast.server.config.sign_in_settings import ProxySettings
from tests.e2e.test_cli import Shell
from tests.support.ports import free_port
from tests.support.server import ROOT

SCRIPTED = '[[providers]]\nname = "scripted"\ndialect = "scripted"\n'


@pytest.fixture
def alone(tmp_path):
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})


def agent(**fields: str) -> str:
    """An agent that needs nothing but what the test gives it."""
    return "[[agents]]\n" + "".join(
        f"{name} = {value}\n" for name, value in {"name": '"helper"', "model": '"scripted/steps"', **fields}.items()
    )


def documented_tool() -> str:
    """The Python tool of docs/agents.md."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "agents.md").read_text(), re.M | re.S)[0]


def python_without_mcp(folder: Path) -> str:
    """A PATH whose `python` has no MCP SDK, as that of most systems."""
    program = folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'mcp'\" >&2\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


async def test_a_tool_is_found_beside_the_settings_file_from_any_folder(alone, tmp_path):
    """The example of docs/agents.md, pasted: the server's folder is not the file's."""
    file = alone.settings(SCRIPTED + agent(tools='["my_module:book"]'))
    file.with_name("my_module.py").write_text(documented_tool())
    (tmp_path / "elsewhere").mkdir()
    checked = await alone("doctor", folder=tmp_path / "elsewhere")
    ran = await alone(
        *("run", "--agent", "helper", "--approve", "book", 'book {"city": "Oslo", "nights": 2}'),
        folder=tmp_path / "elsewhere",
    )

    assert "ok    agent helper: scripted/steps, 1 tool\n" in checked.out
    assert (0, 0) == (checked.code, ran.code)
    assert "✓ book" in ran.err


async def test_a_module_of_the_current_folder_is_not_imported(alone, tmp_path):
    """A repository that somebody cloned must not stand in for a module that the settings name."""
    alone.settings(SCRIPTED + agent(tools='["my_module:book"]'))
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "my_module.py").write_text("print('taken over')")
    shown = await alone("doctor", folder=tmp_path / "repository", PYTHONSAFEPATH="1")

    assert 1 == shown.code
    assert "taken over" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"tools": '["no_such_module:book"]'},
            r"agents: Agent 'helper': the tool no_such_module:book cannot be loaded: "
            r"ModuleNotFoundError: No module named 'no_such_module'\. Searched in .*/config/holdfast",
        ),
        ({"tools": '["json:nothing"]'}, r"agents: Agent 'helper': the tool json:nothing cannot be loaded: Attrib"),
        ({"tools": '["json:dumps"]'}, r"agents: Agent 'helper': 'json:dumps' is not a tool\. Put @tool before"),
        ({"tools": '["hammer"]'}, r"agents: Agent 'helper': unknown tool 'hammer'\. Use files, shell, ask_user, mcp:"),
        ({"model": '"openai/gpt-5-mini"'}, r"agent helper: Unknown model 'openai/gpt-5-mini'\. No provider 'openai'"),
    ],
)
async def test_an_agent_that_cannot_work_is_a_problem(alone, fields, told):
    """It said that all is well, and the server then did not start, or failed at the first message."""
    alone.settings(SCRIPTED + agent(**fields))
    shown = await alone("doctor")

    assert 1 == shown.code
    assert re.search(f"^bad   {told}", shown.out, re.MULTILINE), shown.out


async def test_an_mcp_server_that_cannot_start_is_a_problem_and_its_own_words_are_quoted(alone, tmp_path):
    """ "Connection closed" told nobody that a package is missing. Secrets in the words are hidden."""
    program = "import sys; sys.exit('ModuleNotFoundError: no key-0123456789 here')"
    alone.settings(
        SCRIPTED
        + agent(tools='["mcp:broken", "mcp:gone"]')
        + f'[[mcp]]\nname = "broken"\ncommand = "{sys.executable}"\nargs = ["-c", "{program}"]\n'
        + 'env = { KEY = "key-0123456789" }\n'
        + '[[mcp]]\nname = "gone"\ncommand = "/no/such/program"\n'
        + '[[mcp]]\nname = "idle"\ncommand = "python"\n'
    )
    shown = await alone("doctor")

    assert 1 == shown.code
    printed = "bad   MCP server broken ended before it was ready. It printed: ModuleNotFoundError: no [redacted] here"
    assert printed in shown.out
    assert re.search(r"^bad   MCP server gone cannot be reached: .*No such file.*/no/such/program", shown.out, re.M)
    assert "note  MCP server idle is used by no agent" in shown.out


async def test_python_as_the_command_of_an_mcp_server_is_the_servers_own(alone, tmp_path):
    """The example of the guide, whose server needs the MCP SDK: the PATH of a service seldom has it."""
    for name in ("mcp_tickets.py", "mcp_tickets.toml"):
        (tmp_path / name).write_text((ROOT / "examples" / name).read_text())
    shown = await alone("doctor", "--config", "mcp_tickets.toml", PATH=python_without_mcp(tmp_path))

    assert "ok    MCP server tickets: 2 tools\n" in shown.out
    assert 0 == shown.code, shown.out


@pytest.mark.parametrize(("platform", "states"), [("linux", []), ("darwin", ["note"]), ("win32", ["bad"])])
def test_doctor_names_what_a_system_cannot_do(platform, states):
    """What Linux alone has is not silently missing elsewhere."""
    checks = list(check_platform(platform))

    assert states == [check.state for check in checks]
    assert all(check.advice for check in checks)


@pytest.mark.parametrize(
    ("settings", "states"),
    [
        (Settings(), []),
        (Settings(allowed_hosts=("chat.example.com",)), ["note"]),
        (Settings(public_url="https://chat.example.com"), ["note"]),
        (Settings(public_url="https://chat.example.com", tls_cert="a.pem", tls_key="a.key"), []),
        (Settings(public_url="https://chat.example.com", proxy=ProxySettings(addresses=("127.0.0.1",))), []),
    ],
    ids=["alone", "allowed-host", "public-url", "own-tls", "trusted"],
)
def test_doctor_tells_of_a_proxy_that_is_not_trusted(settings, states):
    """Its clients share one address, and wrong passwords are not counted for each of them."""
    assert states == [check.state for check in check_proxy(settings)]


OFFICIAL = (
    "'--enable-loadable-sqlite-extensions' '--enable-optimizations' '--enable-shared' '--with-lto' '--with-ensurepip'"
)


@pytest.mark.parametrize(
    ("options", "prefix", "build", "state"),
    [
        (OFFICIAL, "/usr/local", "with PGO and LTO", "ok"),
        ("'--enable-optimizations'", "/opt/python", "with PGO, without LTO", "note"),
        (
            "'--prefix=/home/ann/.pyenv/versions/3.11.7' '--enable-shared'",
            "/home/ann/.pyenv",
            "without PGO and LTO",
            "note",
        ),
        ("'--enable-shared' '--prefix=/usr'", "/usr", "", "ok"),  # Debian's: it has both, and does not say so
        (None, "C:\\Python", "", "ok"),
    ],
)
def test_a_slow_build_of_python_is_told_with_what_it_costs(options, prefix, build, state):
    """pyenv builds Python without optimisation by default, which costs more than most settings could save."""
    assert build == built(options, prefix)
    (check,) = check_interpreter(build)

    assert state == check.state
    assert check.what.endswith(build)
    assert ("3 to 12%" in check.advice) == (state == "note")


async def test_the_doctor_names_the_build_of_its_own_python(alone):
    """With the version alone nobody can tell why one machine is slower than another."""
    checked = await alone("doctor")

    assert re.search(r"^(ok|note) +Python 3\.\d+\.\d+", checked.out, re.M)
