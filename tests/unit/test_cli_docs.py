"""docs/cli.md names every command that there is, and none that there is not."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli import COMMANDS as AT
from holdfast.cli import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


def commands(command: click.Command, name: str = "holdfast") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(found, f"{name} {below}")


COMMANDS = dict(commands(main))


def test_every_command_is_documented():
    """What is not documented does not exist for most people. The options are in docs/reference/commands.md."""
    text = DOCUMENT.read_text(encoding="utf-8")

    assert len(COMMANDS) > 40
    assert [] == [name for name in COMMANDS if f"`{name}" not in text]


def test_every_documented_command_exists():
    """A command that was renamed must not live on in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    named = set(re.findall(r"`(holdfast [a-z]+(?: [a-z-]+)?)", text))

    assert len(named) > 40
    groups = {name for name, command in COMMANDS.items() if isinstance(command, click.Group)}
    assert set() == {
        name for name in named - COMMANDS.keys() if name.rpartition(" ")[0] not in COMMANDS.keys() - groups
    }


def test_help_says_of_each_command_what_the_command_says_of_itself():
    """It is written down twice so that help need not load them, and must not differ."""
    context = click.Context(main)
    own = {name: main.get_command(context, name).get_short_help_str(200) for name in main.list_commands(context)}

    assert own == {name: does for name, (_, does) in AT.items()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_loads_no_command(arguments):
    """A tenth of the time: no engine, no server, no client is needed to print a page."""
    code = "import sys; from holdfast.cli import main; main(sys.argv[1:], standalone_mode=False); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)

    loaded = set(ran.stdout.splitlines()[-1].split())
    assert "holdfast.cli.lazy" in loaded
    assert set() == loaded & {"asyncio", "msgspec", "httptools", "rich", "starlette", "uvicorn", "holdfast.errors"}


LOADING = """
import gc, click
from holdfast.cli import main
seen = []
gc.callbacks.append(lambda phase, _: seen.append(phase))
main.get_command(click.Context(main), "serve")
print(seen.count("start"), gc.isenabled())
"""


def test_the_garbage_collector_pauses_while_a_command_is_loaded():
    """It took a fifth of the time of every start, and imports leave nothing to collect."""
    ran = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=True)

    collections, is_enabled = ran.stdout.split()
    assert int(collections) <= 3, "those after it count too"
    assert "True" == is_enabled


def test_as_a_module_it_is_called_by_what_was_typed():
    """The usage line is copied."""
    command = [sys.executable, "-m", "holdfast", "runs", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ran.stdout.startswith("Usage: python -m holdfast runs ")
