"""The command line: puts the other packages together."""

from __future__ import annotations

import click

from .. import __version__
from .lazy import HelpText, LazyGroup, show_usage_error
from .screen import guard

click.Context.formatter_class = HelpText  # of every command
click.IntRange.name, click.FloatRange.name = "whole number", "number"
click.UsageError.show = show_usage_error  # type: ignore[assignment, method-assign]

SECTIONS = {
    "Use": {
        "chat": ("chat.talk:chat", "Chat with a model."),
        "run": ("chat.talk:run", "Send one prompt and print the response."),
        "compare": ("evals.compare:compare", "Send a prompt to several models and compare the responses."),
        "models": ("lists.inspect:models", "List the available models."),
        "agents": ("lists.agents:agents", "List, add and remove agents."),
        "mcp": ("lists.mcp:mcp", "List, add, try and remove MCP servers."),
        "runs": ("lists.inspect:runs", "List, show, follow, fork and stop runs."),
        "sessions": ("lists.inspect:sessions", "List, file, export, import and delete chats (sessions)."),
        "import": (
            "lists.importing:import_command",
            "Import chats that ChatGPT, Open WebUI, LibreChat or Holdfast have exported.",
        ),
        "export": ("lists.importing:export_command", "Write all chats, comparisons, runs and presets to a ZIP file."),
        "presets": ("lists.presets:presets", "List, show, add, remove, export and import presets and prompts."),
        "schedules": (
            "lists.schedules:schedules",
            "List, add, pause, run and remove schedules: runs that start at a time.",
        ),
        "triggers": (
            "lists.triggers:triggers",
            "List, add, pause and remove triggers: runs that start when an address is called.",
        ),
        "grants": ("lists.grants:grants", "List and revoke what agents may do without asking."),
        "explain": ("explain:explain_command", "Explain an error code: cause, and what to do."),
    },
    "Serve": {
        "serve": ("serve:serve", "Start the server."),
        "config": ("admin.configuration:config", "Write a settings file, check the settings, show them."),
        "reload": ("admin.reloading:reload_command", "Make the server read its changed settings file."),
        "doctor": (
            "doctor:doctor",
            "Check settings, data folder, database, keys, port, providers, agents and MCP servers.",
        ),
        "top": ("top:top", "Show runs, rates, latencies and errors of running servers, live."),
        "nodes": ("lists.nodes:nodes", "List the servers that share the store."),
    },
    "Administer": {
        "user": ("admin.users:user", "Create, list and change accounts."),
        "key": ("admin.keys:key", "Create, list and revoke API keys for the server."),
        "secrets": ("admin.sealing:secrets", "Manage the encryption of stored provider keys."),
        "audit": ("admin.audit:audit", "Export the audit log, and verify that nothing in it was changed or removed."),
        "backup": ("admin.backup:backup", "Write chats, runs, keys, settings and agents' files to one file."),
        "restore": ("admin.backup:restore", "Restore a backup into an empty data folder."),
        "copy": (
            "admin.database:copy_command",
            "Copy everything between SQLite and PostgreSQL, to a store that is empty.",
        ),
        "db": ("admin.database:db", "Check, copy and migrate the database."),
    },
    "Other": {
        "lab": ("lab:lab", "Conformance-test any LLM server: outcomes, stops, disconnects and complete text."),
    },
}
"""The commands in the order of the help: what people use first comes first. Each has its place and what it does."""
COMMANDS = {name: at for section in SECTIONS.values() for name, at in section.items()}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="holdfast")
@click.pass_context
def main(context: click.Context) -> None:
    """LLM chats and agents that keep running when the client disconnects.

    \b
    Examples:
      holdfast serve                       start the server on port 8787
      holdfast chat                        chat; Ctrl-C stops a response
      holdfast run "Why is the sky blue?"  one prompt, one response
      git diff | holdfast run "Review this" -m openai/gpt-5
      holdfast run -p reviewer < change.diff
      holdfast compare "Say hi" -m scripted/echo -m scripted/think
      holdfast runs ls                     list runs: what failed, and why
      holdfast runs tail RUN               follow a run of any client
      holdfast doctor                      check the installation
      holdfast explain upstream_auth       what an error code means
      holdfast top                         watch a running server
      holdfast backup holdfast.tar.gz      back up a running server

    Ids of runs and sessions can be shortened to any unambiguous prefix.

    Shell completion: eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)", or zsh_source, fish_source.
    """
    guard()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
