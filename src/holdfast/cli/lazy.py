"""Commands that are loaded on first use. Help and completion load none of them."""

from __future__ import annotations

import difflib
import gc
import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import click
from click.shell_completion import CompletionItem

NARROW = 70
"""Columns below which the description of an option is on the lines below it."""


class HelpText(click.HelpFormatter):
    """Help that can be read on a narrow terminal, too."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms and their descriptions: side by side, or below each other."""
        if self.width >= NARROW:
            super().write_dl([*rows], col_max, col_spacing)
            return
        for term, description in rows:
            self.write_text(term)
            self.indent()
            self.write_text(description)
            self.dedent()


def show_usage_error(error: click.UsageError, file: IO[Any] | None = None) -> None:
    """Print what can be typed, and what is wrong, a line each."""
    usage, context = "", error.ctx
    if context is not None:
        command, more = context.command, f"more: {context.command_path} --help"
        if isinstance(command, click.Group) and not command.invoke_without_command:
            more = f"commands: {', '.join(command.list_commands(context))}"
        usage = f"{context.get_usage()} ({more})\n"
    click.echo(f"{usage}Error: {error.format_message()}", file, err=file is None)


class LazyGroup(click.Group):
    """A group of commands in separate modules: for each name `module:command` and a description."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections
        self._commands_at = {name: at for section in sections.values() for name, at in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of their sections."""
        return [*self._commands_at]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in self._commands_at:
            return None
        module, _, name = self._commands_at[cmd_name][0].partition(":")
        with without_collections():
            command: click.Command = getattr(importlib.import_module(f".{module}", __package__), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was typed; for one that does not exist, an error that names the nearest."""
        if args and args[0] not in self._commands_at and not args[0].startswith("-") and not ctx.resilient_parsing:
            known = [*self._commands_at, "--help", "--version"]
            near = difflib.get_close_matches(args[0], known, 1)
            ctx.fail(f"No such command {args[0]!r}.{f' Did you mean {near[0]!r}?' if near else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description of each command, by section."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, does) for name, (_, does) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options with this prefix."""
        begin = [(name, does) for name, (_, does) in self._commands_at.items() if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=does) for name, does in begin]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


@contextmanager
def without_collections() -> Iterator[None]:
    """Pause the garbage collector. Imports leave nothing to collect, and it takes a fifth of their time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
