"""docs/cli.md names every command and every option that there is, and no command that there is not."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

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


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name):
    """What is not documented does not exist for most people."""
    text = DOCUMENT.read_text(encoding="utf-8")
    options = [option for param in COMMANDS[name].params if isinstance(param, click.Option) for option in (param.opts)]

    assert f"{name}" in text
    assert [] == [option for option in options if f"`{option}" not in text and f" {option}`" not in text]


def test_every_documented_command_exists():
    """A command that was renamed must not live on in the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    named = set(re.findall(r"^## `(holdfast \w+)`$|^\| `(holdfast \w+ \w+)", text, re.MULTILINE))

    assert {"".join(pair) for pair in named} <= set(COMMANDS)
