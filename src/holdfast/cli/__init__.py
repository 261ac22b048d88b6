"""The command line: composition, nothing else."""

from __future__ import annotations

import io
import sys

import click

from .. import __version__
from .lazy import LazyGroup

COMMANDS = {
    "serve": ("serve:serve", "Start the server: the OpenAI API under /v1, our own under /api."),
    "chat": ("talk:chat", "Talk to a model."),
    "run": ("talk:run", "Ask one question and print the answer."),
    "compare": ("compare:compare", "Ask several models the same, and see their answers side by side."),
    "models": ("look:models", "List the models that can be asked."),
    "runs": ("look:runs", "See, follow and stop runs."),
    "sessions": ("look:sessions", "List, export, import and remove sessions."),
    "doctor": (
        "doctor:doctor",
        "Check settings, data folder, database, providers, models and port, and say what to do.",
    ),
    "lab": (
        "lab:lab",
        "Judge any server of LLM answers by its URL: is a failure told as one, does a stop stop, is every word there?",
    ),
    "config": ("admin:config", "See the settings."),
    "key": ("admin:key", "Make, list and revoke keys for the server."),
    "db": ("admin:db", "Check, back up and migrate the database."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
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
      holdfast lab --url http://…/v1       judge any server: is a failure told as one, does a stop stop?

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
