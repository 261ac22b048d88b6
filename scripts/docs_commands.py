"""The page docs/reference/commands.md, written from the command line itself by `make reference`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli import main as holdfast

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
HEAD = """# Commands

Every command with its help, as `COMMAND --help` prints it. [The command line](../cli.md) describes their use, the exit
codes and the choice of the server. This page is written by `scripts/docs_commands.py`.
"""
WIDTH = 100


def page() -> str:
    """Return the page of all commands."""
    return HEAD + "".join(map(_section, _contexts(holdfast, "holdfast", None)))


def _contexts(command: click.Command, name: str, parent: click.Context | None) -> Iterator[click.Context]:
    """Yield the context of a command, then those of the commands below it."""
    context = command.make_context(name, [], parent, resilient_parsing=True)
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            below = context.command.get_command(context, name)
            assert below is not None
            yield from _contexts(below, name, context)


def _section(context: click.Context) -> str:
    context.terminal_width = WIDTH
    level = "###" if context.parent is not None and context.parent.parent is not None else "##"
    return f"\n{level} `{context.command_path}`\n\n```\n{context.get_help().rstrip()}\n```\n"
