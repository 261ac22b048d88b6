"""`holdfast lab`: conformance-test any LLM server."""

from __future__ import annotations

import asyncio
import datetime
import pathlib
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import click
import msgspec
from rich.markup import escape
from rich.text import Text

from ..errors import HoldfastError
from . import show
from .commands import one_line_errors

try:
    from holdfast_lab import SERVERS, WIRES, Finding, Http, Lab, ServerFacts, Upstream, __version__, judge, trouble
    from holdfast_lab.process import Judged
    from holdfast_lab.report import GROUPS, Report, groups, page
except ModuleNotFoundError as missing:
    if missing.name != "holdfast_lab":
        raise
    raise click.ClickException(
        "The conformance lab is not installed. It is the package holdfast-lab: in a clone run `pip install ./lab`."
    ) from None

COLOURS = {"pass": "green", "fail": "red", "not promised": "dim", "not judged": "yellow"}


@click.group(invoke_without_command=True)
@click.option("--url", help="Base URL of the server under test: http://127.0.0.1:8787/v1")
@click.option("--model", default="m", show_default=True, help="Model name that leads to the lab's upstream.")
@click.option("--api-key", envvar="HOLDFAST_LAB_KEY", help="API key for the server under test (HOLDFAST_LAB_KEY).")
@click.option("--header", "headers", multiple=True, help='Extra request header: "Name: value". Repeatable.')
@click.option(
    "--wire",
    "wires",
    multiple=True,
    type=click.Choice(list(WIRES)),
    help="API to test (openai-chat). Repeatable.",
)
@click.option("--server", type=click.Choice(list(SERVERS)), default="any", help="Kind of server: which checks apply.")
@click.option("--upstream-port", type=int, default=9100, show_default=True, help="Port of the lab's upstream.")
@click.option("--start", help="Command that starts the server under test; enables the kill -9 checks.")
@click.option("--only", multiple=True, help="Only these checks: truth/*, leave/silence, … Repeatable.")
@click.option("--not-promised", multiple=True, help="Checks that the server does not claim to pass. Repeatable.")
@click.option(
    "--samples", type=click.IntRange(1, 1000), default=10, show_default=True, help="Measurements for each latency."
)
@click.option("--patience", type=float, default=20.0, show_default=True, help="Time limit for a response, in seconds.")
@click.option(
    "--silence",
    type=float,
    default=8.0,
    show_default=True,
    help="Time limit for a silent upstream to be reported, in seconds.",
)
@click.option("--name", default="", help="Name of the server in the report.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--report", "report_file", type=click.Path(dir_okay=False), help="Write an HTML report.")
@click.pass_context
@one_line_errors
def lab(context: click.Context, url: str | None, **what: Any) -> None:
    """Conformance-test any LLM server: outcomes, stops, disconnects and complete text.

    The server under test must use the lab's upstream as its provider: `holdfast lab upstream` shows how.

    \b
    Examples:
      holdfast lab upstream                      how to set up a server with the lab's upstream
      holdfast lab --url http://127.0.0.1:8787/v1 --model lab/m --server holdfast
      holdfast lab --url http://127.0.0.1:4000/v1 --model m --server litellm --report page.html
      holdfast lab --url … --wire responses --wire native --only "resume/*" --only "stop/*"
      holdfast lab --url … --start "my-server --port 8000 --data /tmp/its-data"

    Exit code: 0 = all checks passed, 1 = some failed.
    """
    if context.invoked_subcommand is not None:
        return
    if url is None:
        raise click.UsageError("No --url given. `holdfast lab upstream` shows how to set up the server under test.")
    sys.exit(asyncio.run(_judge(url, **what)))


@lab.command()
@click.option("--port", type=int, default=9100, show_default=True, help="Port to listen on.")
@click.option("--model", default="m", show_default=True, help="Model that it lists.")
@one_line_errors
def upstream(port: int, model: str) -> None:
    """Run only the lab's upstream, and print how to set up known servers with it.

    Set up your server while it runs, press Ctrl-C, then run `holdfast lab --url …`, which starts the upstream on the
    same port.
    """
    asyncio.run(_serve(port, model))


async def _serve(port: int, model: str) -> None:
    told_to_end = _listen_for_the_end()
    async with Upstream(port=port, models=(model,)) as running:
        show.out.print(f"Upstream ready on {running.base_url}, model {model}.\n")
        for facts in SERVERS.values():
            show.out.print(f"[bold]{facts.name}[/]: {escape(facts.how(running.base_url, model))}")
        await told_to_end.wait()


def _listen_for_the_end() -> asyncio.Event:
    """Handle Ctrl-C and SIGTERM, also in a background job, whose shell ignores Ctrl-C."""
    ended = asyncio.Event()
    for sent in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sent, ended.set)
    return ended


class CannotJudge(HoldfastError):
    """The server under test is not reachable, or does not use the lab's upstream."""


async def _judge(
    url: str,
    *,
    model: str,
    api_key: str | None,
    headers: Sequence[str],
    wires: Sequence[str],
    server: str,
    upstream_port: int,
    start: str | None,
    only: Sequence[str],
    not_promised: Sequence[str],
    samples: int,
    patience: float,
    silence: float,
    name: str,
    as_json: bool,
    report_file: str | None,
) -> int:
    facts = _facts(server, not_promised)
    http = Http(url, api_key, dict(_header(header) for header in headers))
    report = Report(name or server, "", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), __version__)
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(Upstream(port=upstream_port, models=(model,)))
        judged = await stack.enter_async_context(Judged(start, url)) if start else None
        for wire in wires or ("openai-chat",):
            it = Lab(WIRES[wire](http, model, facts.session), behind, patience, silence, samples=samples, judged=judged)
            if why := await trouble(it):
                raise CannotJudge(f"{why} {facts.how(behind.base_url, model)}")
            await _look(it, facts, only, report, silent=as_json)
    _write(report, report_file, as_json=as_json)
    return 1 if report.count("fail") else 0


def _facts(server: str, not_promised: Sequence[str]) -> ServerFacts:
    """Return the known facts about a server, with those of the command line added."""
    declared = dict.fromkeys(not_promised, "so the command line says")
    return msgspec.structs.replace(SERVERS[server], not_promised=declared | SERVERS[server].not_promised)


def _header(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(":")
    if not colon:
        raise click.UsageError(f'Not a header: {header!r}. Use "Name: value".')
    return name.strip(), value.strip()


async def _look(it: Lab, facts: ServerFacts, only: Sequence[str], report: Report, *, silent: bool) -> None:
    found: list[Finding] = []
    with show.err.status(f"{it.wire.name} …") as status:
        async for finding in judge(it, facts, only):
            found.append(finding)
            status.update(f"{it.wire.name}: {finding.id} …")
    report.findings += found
    if not silent:
        _print(it.wire.name, found)


def _print(wire: str, found: Sequence[Finding]) -> None:
    show.out.print(f"\n[bold]{wire}[/]")
    for group, inside in groups(found).items():
        looked_at = [finding for finding in inside if finding.seen]
        if not looked_at:
            show.out.print(f"  [dim]{GROUPS[group]} Not applicable: {escape(inside[0].why)}[/]")
            continue
        show.out.print(f"  {GROUPS[group]}")
        for finding in looked_at:
            why = f" [dim]({escape(finding.why)})[/]" if finding.why else ""
            verdict = Text(f"{finding.verdict:13}", style=COLOURS[finding.verdict])
            show.out.print("   ", verdict, f"{finding.id:26} {escape(finding.seen)}{why}")


def _write(report: Report, report_file: str | None, *, as_json: bool) -> None:
    if report_file:
        pathlib.Path(report_file).write_text(page(report), encoding="utf-8")
    if as_json:
        sys.stdout.write(show.as_json(report))
    else:
        counts = ", ".join(f"{report.count(verdict)} {verdict}" for verdict in COLOURS)
        show.out.print(f"\n{escape(report.server)}: {counts}.")
