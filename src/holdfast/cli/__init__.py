"""The command line: composition, nothing else."""

from __future__ import annotations

import io
import sys

import click

from .. import __version__
from .commands import LazyGroup

_COMMANDS = {
    "serve": "serve:serve",
    "chat": "talk:chat",
    "run": "talk:run",
    "compare": "compare:compare",
    "models": "look:models",
    "runs": "look:runs",
    "sessions": "look:sessions",
    "doctor": "doctor:doctor",
    "config": "admin:config",
    "key": "admin:key",
    "db": "admin:db",
}


@click.group(
    cls=LazyGroup,
    commands_at=_COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="holdfast")
@click.pass_context
def main(context: click.Context) -> None:
    """Runs that outlive the connection, stop when told, keep every word, and never call a failure a success.

    \b
    Examples:
      holdfast serve                       start the server on http://127.0.0.1:8787
      holdfast chat                        talk to a model; Ctrl-C stops an answer and keeps it
      holdfast run "Why is the sky blue?"  one question, one answer; reads a pipe, too
      git diff | holdfast run "Review this" -m openai/gpt-5
      holdfast compare "Say hi" -m a -m b  several models side by side; --set FILE --report PAGE for many prompts
      holdfast runs ls                     what runs, what stopped, what failed and why
      holdfast runs tail RUN               follow a run that was started elsewhere
      holdfast doctor                      check the set-up, and say what to do

    Shell completion: eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)", or zsh_source, fish_source.
    """
    _print_anything()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _print_anything() -> None:
    """Let a character that the terminal's encoding lacks become a question mark, instead of the end of an answer."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
