"""`holdfast compare`: one prompt over several models side by side, or a whole set of prompts with a report."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .. import show
from ..chat.ctrl_c import CtrlC, interruptible, stopped_by
from ..chat.prompt import Lines, well_formed
from ..chat.talk import EXIT, with_input
from ..client import Api, CallFailed, Object, connect
from ..commands import settings_options
from ..completion import complete_models
from .prompt_set import check_files, compare_set

NARROWEST = 36
"""Minimum width of a pane in columns. On a narrower terminal, panes are below one another."""
WORST_FIRST = ("failed", "interrupted", "stopped", "truncated", "completed")


@click.command()
@click.argument("prompt", nargs=-1)
@click.option("-m", "--model", "models", multiple=True, shell_complete=complete_models, help="Model; repeat for each.")
@click.option("--blind", is_flag=True, help="Hide the model names until you vote.")
@click.option("--sequential", is_flag=True, help="Run the models one at a time.")
@click.option(
    "--synthesis",
    metavar="MODEL",
    shell_complete=complete_models,
    help="Let this model make one response of all that completed.",
)
@click.option("--kind", help="Category for the leaderboard.")
@click.option("--system", help="System prompt.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Time limit for each response, in seconds."
)
@click.option(
    "--set", "set_file", type=click.Path(exists=True, dir_okay=False), help="File of prompts, one on each line."
)
@click.option("--report", type=click.Path(dir_okay=False), help="With --set: write an HTML report.")
@click.option(
    "--responses", "answers", type=click.Path(dir_okay=False), help="With --set: write the responses as JSON Lines."
)
@click.option("--csv", "as_csv", is_flag=True, help="With --set: print the report as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--resume", help="Continue this batch (id or unique prefix).")
@click.option("--name", help="With --set: name of the batch; an unfinished one of that name is continued.")
@click.option(
    "--match",
    type=click.Choice(["contains", "exact", "regex", "number"]),
    default="contains",
    help="With --set: how a response is checked (contains).",
)
@click.option("--concurrency", type=click.IntRange(1, 32), default=4, help="With --set: concurrent requests (4).")
@settings_options
def compare(prompt: tuple[str, ...], set_file: str | None, resume: str | None, **what: Any) -> None:
    """Send a prompt to several models and compare the responses.

    Ctrl-C stops all of them; partial responses are saved.

    \b
    Examples:
      holdfast compare "Why is the sky blue?" -m openai/gpt-5 -m local/smollm2
      holdfast compare --blind "Write a haiku" -m a/x -m b/y      vote, then see the models
      holdfast compare "How old is the moon?" -m a/x -m b/y --synthesis a/x
      holdfast compare --set prompts.jsonl -m a/x -m b/y --report report.html

    Exit code: 0 if all completed, else that of the worst: 1 failed, 4 stopped, 3 truncated.
    """
    if set_file or resume:
        if prompt:
            raise click.UsageError("Use a prompt or --set, not both.")
        if what.pop("synthesis"):
            raise click.UsageError("--synthesis is for one prompt, not for a set.")
        check_files(what["report"], what["answers"])
        sys.exit(asyncio.run(compare_set(set_file, resume, **what)))
    text = " ".join(prompt) if what["blind"] else with_input(prompt)
    if not text:
        raise click.UsageError('No prompt given. Try: holdfast compare "Why is the sky blue?" -m MODEL -m MODEL')
    if not what["models"]:
        raise click.UsageError("No models given. Use -m MODEL -m MODEL; see `holdfast models`.")
    sys.exit(asyncio.run(_compare(well_formed(text), **what)))


async def _compare(
    text: str,
    *,
    models: tuple[str, ...],
    blind: bool,
    sequential: bool,
    kind: str | None,
    system: str | None,
    timeout: float | None,
    synthesis: str | None,
    as_json: bool,
    url: str | None,
    data: str | None,
    config: str | None,
    **of_a_set: Any,
) -> int:
    if any(of_a_set[name] for name in ("report", "answers", "as_csv", "name")):
        raise click.UsageError("--report, --responses, --csv and --name need --set.")
    body: Object = {"prompt": text, "models": list(models), "blind": blind}
    body["order"] = "sequential" if sequential else "parallel"
    body |= {name: value for name, value in (("kind", kind), ("system", system), ("timeout", timeout)) if value}
    async with connect(url, data, config) as api:
        with interruptible() as stop_requested:
            comparison = await _follow(api, body, stop_requested, silent=as_json)
            if synthesis is not None and not stop_requested.is_set():
                comparison = await _synthesize(api, comparison, synthesis, stop_requested, silent=as_json)
        if blind and not as_json:
            comparison = await _vote(api, comparison)
        if as_json:
            sys.stdout.write(show.as_json(comparison))
        else:
            _summary(comparison)
    made = [comparison["synthesis"]] if comparison["synthesis"] else []
    return EXIT[min((_outcome(each) for each in [*comparison["panes"], *made]), key=WORST_FIRST.index)]


async def _synthesize(
    api: Api, comparison: Object, model: str, stop_requested: asyncio.Event, *, silent: bool
) -> Object:
    """Let a model make one answer of those of the panes, and print it as it comes."""
    path = f"/api/comparisons/{comparison['id']}"
    begun = (await api.call("POST", f"{path}/synthesis", {"model": model}))["synthesis"]
    labels = ", ".join(comparison["panes"][pane]["label"] for pane in begun["panes"])
    if not silent:
        sys.stdout.write(f"== Synthesis of {labels} by {begun['model']}\n\n")
    with stopped_by(stop_requested, api, path, "comparison"):
        async for event in api.events(begun["run_id"]):
            if not silent and event["type"] == "text.delta":
                sys.stdout.write(event["text"])
                sys.stdout.flush()
    comparison = await api.call("GET", path)
    if not silent:
        settlement = comparison["synthesis"]["settlement"]
        sys.stdout.write("\n\n")
        if settlement["outcome"] != "completed":
            show.note(f"{settlement['outcome']}: {show.why({'settlement': settlement})}", "yellow")
    return comparison


async def _follow(api: Api, body: Object, stop_requested: asyncio.Event, *, silent: bool) -> Object:
    """Show the panes live, and return the comparison when all have settled."""
    screen = _Silence() if silent else _LivePanes() if show.is_terminal() else _OneByOne()
    with contextlib.ExitStack() as meanwhile:
        meanwhile.enter_context(screen)
        async for name, event in api.stream("POST", "/api/comparisons", body):
            if name == "comparison.started":
                path = f"/api/comparisons/{event['comparison']['id']}"
                meanwhile.enter_context(stopped_by(stop_requested, api, path, "comparison"))
                screen.begin(event["comparison"])
            elif name == "comparison.settled":
                screen.end(event["comparison"])
                comparison: Object = event["comparison"]
                return comparison
            else:
                screen.take(event)
    raise CallFailed("Lost the connection before the comparison was finished.")


def _outcome(pane: Object) -> str:
    return str(pane["settlement"]["outcome"]) if pane["settlement"] else "stopped"


# The vote.


async def _vote(api: Api, comparison: Object) -> Object:
    """Ask which answer is the best, then show the model names. Without a vote nothing is revealed."""
    path = f"/api/comparisons/{comparison['id']}"
    labels = {pane["label"]: pane["pane"] for pane in comparison["panes"] if _outcome(pane) == "completed"}
    if sys.stdin is None or not sys.stdin.isatty():
        show.note(f"Not a terminal: no vote recorded. {comparison['id']} stays blind.")
        return comparison
    if not labels:
        show.note("No response completed: nothing to vote on.", "yellow")
        return await api.call("POST", f"{path}/reveal", {})
    choice = await _read_choice(labels)
    if choice is None:
        return await api.call("POST", f"{path}/reveal", {})
    return await api.call("POST", f"{path}/vote", {"winner": choice})


async def _read_choice(labels: dict[str, int]) -> int | str | None:
    """Return the vote: a pane, a tie, none of them; None after Ctrl-C, Ctrl-D or an empty line."""
    choices: dict[str, int | str] = {**labels, "T": "tie", "TIE": "tie", "N": "none", "NONE": "none"}
    question = f"Which is best? {', '.join(labels)}, [t]ie, [n]one, Enter to reveal without a vote: "
    with CtrlC() as ctrl_c:
        lines = Lines(ctrl_c)
        while True:
            show.err.print(question, style="bold", markup=False, end="")
            line = await lines.next()
            if line is None:
                show.err.print()
            if not line or not (choice := line.strip().upper()):
                return None
            if choice in choices:
                return choices[choice]
            show.note(f"Unknown choice {choice!r}.", "yellow")


def _summary(comparison: Object) -> None:
    """Print model, outcome and speed of each pane, unless it is still blind."""
    if not comparison["revealed"]:
        return
    winner = comparison["vote"]["winner"] if comparison["vote"] else None
    rows = []
    for pane in comparison["panes"]:
        numbers = pane["metrics"] or {}
        mark = "best" if pane["pane"] == winner else ""
        rows.append(
            (
                pane["label"],
                pane["model"],
                Text(*reversed(show.MARKS[_outcome(pane)])),
                _number(numbers.get("ttft_ms"), " ms") + (" (fastest)" if numbers.get("fastest") else ""),
                _number(numbers.get("tokens_per_second"), " tok/s"),
                mark,
            )
        )
    table = Table.grid(padding=(0, 2))
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    show.err.print(table)
    if winner in ("tie", "none"):
        show.note("Your vote: tie." if winner == "tie" else "Your vote: none.")


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:,.0f}{unit}"


# Output.


class _Pane:
    """The state of one pane."""

    def __init__(self, pane: Object) -> None:
        self.title = f"{pane['label']}  {pane['model']}" if pane["model"] else pane["label"]
        self.text = ""
        self.reasoning = ""
        self.state = "waiting"
        self.note = ""

    def take(self, event: Object) -> None:
        match event["type"]:
            case "run.started":
                self.state, self.text, self.reasoning, self.note = "running", "", "", ""
            case "text.delta":
                self.text += event["text"]
            case "reasoning.delta":
                self.reasoning += event["text"]
            case "notice":
                self.note = event["message"]
            case "run.settled":
                self.state = event["settlement"]["outcome"]
                self.note = show.why({"settlement": event["settlement"]})


class _Screen:
    """Shows panes. Each subclass decides when to print which text."""

    def __init__(self) -> None:
        self.panes: list[_Pane] = []

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def begin(self, comparison: Object) -> None:
        self.panes = [_Pane(pane) for pane in comparison["panes"]]

    def take(self, event: Object) -> None:
        self.panes[event["pane"]].take(event)

    def end(self, comparison: Object) -> None:
        pass


class _Silence(_Screen):
    """For JSON: no output until the end."""


class _OneByOne(_Screen):
    """For a pipe: each response whole, in the order of the panes, as soon as those before it are printed."""

    def __init__(self) -> None:
        super().__init__()
        self._printed = 0

    def take(self, event: Object) -> None:
        super().take(event)
        while self._printed < len(self.panes) and self.panes[self._printed].state in WORST_FIRST:
            self._print(self.panes[self._printed])
            self._printed += 1

    def end(self, comparison: Object) -> None:
        for pane in self.panes[self._printed :]:  # stopped before they began
            pane.state = "stopped" if pane.state not in WORST_FIRST else pane.state
            self._print(pane)

    def _print(self, pane: _Pane) -> None:
        ending = "" if pane.state == "completed" else f" ({pane.state}{f': {pane.note}' if pane.note else ''})"
        sys.stdout.write(f"== {pane.title}{ending}\n\n{pane.text.rstrip()}\n\n")
        sys.stdout.flush()


class _LivePanes(_Screen):
    """For a terminal: live panes side by side, then the whole responses."""

    def __init__(self) -> None:
        super().__init__()
        self._live = Live(
            console=show.out, get_renderable=self._draw, refresh_per_second=12, transient=True, vertical_overflow="crop"
        )

    def __enter__(self) -> _LivePanes:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()
        if self.panes:
            show.out.print(self._drawn(None), soft_wrap=False)

    def _draw(self) -> RenderableType:
        rows = -(-len(self.panes) // self._across()) if self.panes else 1
        return self._drawn(max((show.out.size.height - 2) // rows, 4))

    def _across(self) -> int:
        return max(1, min(len(self.panes), show.out.size.width // NARROWEST))

    def _drawn(self, height: int | None) -> RenderableType:
        """Return the panes as a grid. With a height, only the end of each response."""
        across = self._across()
        table = Table.grid(expand=True, padding=0)
        for _ in range(across):
            table.add_column(ratio=1)
        drawn = [self._panel(pane, height, show.out.size.width // across - 4) for pane in self.panes]
        for first in range(0, len(drawn), across):
            table.add_row(*drawn[first : first + across])
        return table

    def _panel(self, pane: _Pane, height: int | None, width: int) -> Panel:
        colour = show.MARKS.get(pane.state, ("white", ""))[0]
        body = Text(pane.text.strip("\n"))
        if not pane.text and pane.reasoning and height is not None:
            body = Text(pane.reasoning, style="dim italic")
        if height is not None:
            lines = body.wrap(show.out, max(width, 1))
            body = Text("\n").join(lines[-(height - 2) :])
        inside: RenderableType = body
        if pane.note and pane.state != "completed":
            inside = Group(body, Text(show.line(pane.note, 200), style="dim"))
        state = Text(pane.state, style=colour)
        return Panel(inside, title=Text(pane.title), subtitle=state, border_style=colour, height=height)
