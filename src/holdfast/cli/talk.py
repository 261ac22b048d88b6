"""`holdfast chat` and `holdfast run`: talk to a model in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Generator
from typing import Any

import click
import msgspec
from rich.markup import escape

from . import show
from .client import Api, CallFailed, Object, connect
from .commands import settings_options, telling

EXIT = {"completed": 0, "failed": 1, "interrupted": 1, "truncated": 3, "stopped": 4}
"""What a script can tell apart: 2 is for a wrong command line."""

HELP = """\
/new            start another session        /model NAME     change the model
/models         list the models              /retry          answer the last message again
/continue       go on with a cut-off answer  /sessions       list sessions
/quit           leave (or Ctrl-D)            Ctrl-C          stop the answer and keep it"""


@click.command()
@click.argument("prompt", nargs=-1)
@click.option("-m", "--model", help="The model to ask.")
@click.option("-s", "--session", help="The session to go on with, by its id.")
@click.option("-c", "--continue", "goes_on", is_flag=True, help="Go on with the latest session.")
@click.option("--system", help="The system prompt of a new session.")
@click.option("--json", "as_json", is_flag=True, help="Print the settled run as JSON.")
@settings_options
@telling
def run(prompt: tuple[str, ...], **what: Any) -> None:
    """Ask one question and print the answer. What is piped in comes after the prompt.

    Exit code: 0 completed, 1 failed or interrupted, 3 truncated, 4 stopped, 2 for a wrong command line.
    """
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    text = "\n\n".join(part for part in (" ".join(prompt), piped.strip()) if part)
    if not text:
        raise click.UsageError('Nothing was asked. Try: holdfast run "Why is the sky blue?"')
    sys.exit(asyncio.run(_run_once(text, **what)))


async def _run_once(
    text: str,
    *,
    model: str | None,
    session: str | None,
    goes_on: bool,
    system: str | None,
    as_json: bool,
    **where: Any,
) -> int:
    async with connect(**where) as api:
        session = session or (await _latest(api) if goes_on else None) or await _new_session(api, system)
        body = {"input": text, **({"model": model} if model else {})}
        started = await api.call("POST", f"/api/sessions/{session}/runs", body)
        settled = await follow(api, started["id"], silent=as_json)
        if as_json:
            finished = await api.call("GET", f"/api/runs/{started['id']}")
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(finished)).decode() + "\n")
        return EXIT[settled["outcome"]]


async def _latest(api: Api) -> str | None:
    sessions = (await api.call("GET", "/api/sessions", query={"limit": 1}))["sessions"]
    return str(sessions[0]["id"]) if sessions else None


async def _new_session(api: Api, system: str | None = None, model: str | None = None) -> str:
    body = {name: value for name, value in {"system": system, "model": model}.items() if value}
    return str((await api.call("POST", "/api/sessions", body))["id"])


async def follow(api: Api, run_id: str, *, silent: bool = False, stops: bool = True) -> Object:
    """Print a run as it comes and return its settlement. Ctrl-C stops the run and keeps what is there."""
    printer = _Printer(silent)
    stopping: set[asyncio.Task[Object]] = set()

    def stop() -> None:
        if not stopping:
            stopping.add(asyncio.create_task(api.call("POST", f"/api/runs/{run_id}/stop")))

    with _on_interrupt(stop) if stops else contextlib.nullcontext():
        async for event in api.events(run_id):
            printer.take(event)
            if event["type"] == "run.settled":
                settled: Object = event["settlement"]
                printer.end(settled)
                if stopping:
                    await asyncio.wait(stopping)
                return settled
    raise CallFailed(f"Run {run_id} ended without a settlement.")


@contextlib.contextmanager
def _on_interrupt(act: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows has no such handlers
        loop.add_signal_handler(signal.SIGINT, act)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


class _Printer:
    """Prints a run: the answer to the output, everything else to the side."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent
        self._thinks = False
        self._at_line_start = True

    def take(self, event: Object) -> None:
        """Print one event."""
        if self._silent:
            return
        if event["type"] == "text.delta":
            self._stop_thinking()
            sys.stdout.write(event["text"])
            sys.stdout.flush()
            self._at_line_start = event["text"].endswith("\n")
        elif event["type"] == "reasoning.delta" and show.err.is_terminal:
            self._thinks = True
            show.err.print(event["text"], style="dim italic", end="", markup=False)
        elif event["type"] == "notice":
            show.err.print(f"[dim]{escape(event['message'])}[/]")

    def _stop_thinking(self) -> None:
        if self._thinks:
            self._thinks = False
            show.err.print("\n")

    def end(self, settled: Object) -> None:
        """End the line, and say how the run ended where it did not complete."""
        if self._silent:
            return
        self._stop_thinking()
        if not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
        if settled["outcome"] != "completed":
            reason = show.why({"settlement": settled})
            kept = " What was said is kept." if settled["partial"] else ""
            colour = show.MARKS[settled["outcome"]][0]
            show.err.print(f"[{colour}]{settled['outcome']}[/]{': ' if reason else ''}{escape(reason)}{kept}")


@click.command()
@click.option("-m", "--model", help="The model to ask.")
@click.option("-s", "--session", help="The session to go on with, by its id.")
@click.option("-c", "--continue", "goes_on", is_flag=True, help="Go on with the latest session.")
@click.option("--system", help="The system prompt of a new session.")
@settings_options
@telling
def chat(**what: Any) -> None:
    """Talk to a model. Ctrl-C stops an answer and keeps what was said; /help lists the commands."""
    asyncio.run(_chat(**what))


async def _chat(*, model: str | None, session: str | None, goes_on: bool, system: str | None, **where: Any) -> None:
    async with connect(**where) as api:
        talk = _Talk(api, model)
        await talk.begin(session or (await _latest(api) if goes_on else None), system)
        while (said := await _ask("> ")) is not None and said != "/quit":
            if said:
                try:
                    await talk.say(said)
                except CallFailed as error:
                    show.err.print(f"[red]{escape(str(error))}[/]")
        show.err.print(f"[dim]holdfast chat -s {talk.session} goes on with this session.[/]")


async def _ask(prompt: str) -> str | None:
    """Read a line without holding up the loop. None at the end of the input, or on Ctrl-C."""
    try:
        return (await asyncio.to_thread(input, prompt if sys.stdin.isatty() else "")).strip()
    except (EOFError, KeyboardInterrupt):
        return None


class _Talk:
    """One conversation in the terminal."""

    def __init__(self, api: Api, model: str | None) -> None:
        self._api = api
        self._model = model
        self.session = ""

    async def begin(self, session: str | None, system: str | None) -> None:
        """Go on with a session, or start one."""
        if session is None:
            self.session = await _new_session(self._api, system, self._model)
            model = self._model or (await self._api.call("GET", "/api/models"))["default"]
            show.err.print(f"[dim]{escape(str(model))}  ·  /help lists the commands, Ctrl-C stops an answer[/]")
            return
        opened = await self._api.call("GET", f"/api/sessions/{session}")
        self.session = opened["id"]
        show.err.print(f"[dim]{escape(opened['title'] or 'Session')}, {len(opened['messages'])} messages[/]")
        for message in opened["messages"][-2:]:
            show.err.print(f"[dim]{message['role']}: {escape(show.line(str(message['content']), 200))}[/]")
        if opened["active_run"]:
            await follow(self._api, opened["active_run"]["id"])

    async def say(self, said: str) -> None:
        """Send a message, or do what a command says."""
        if not said.startswith("/"):
            await self._start("runs", {"input": said})
            return
        name, _, rest = said[1:].partition(" ")
        commands = {
            "help": self._help,
            "new": self._new,
            "model": self._change_model,
            "models": self._models,
            "retry": self._retry,
            "continue": self._continue,
            "sessions": self._sessions,
        }
        command = commands.get(name)
        if command is None:
            show.err.print(f"[yellow]There is no command /{escape(name)}.[/]\n{HELP}")
        else:
            await command(rest.strip())

    async def _start(self, how: str, body: Object) -> None:
        body = {**body, **({"model": self._model} if self._model else {})}
        started = await self._api.call("POST", f"/api/sessions/{self.session}/{how}", body)
        await follow(self._api, started["id"])

    async def _help(self, rest: str) -> None:
        show.err.print(HELP)

    async def _new(self, rest: str) -> None:
        await self.begin(None, None)

    async def _change_model(self, rest: str) -> None:
        await self._api.call("PATCH", f"/api/sessions/{self.session}", {"model": rest or None})
        self._model = rest or None

    async def _models(self, rest: str) -> None:
        for model in (await self._api.call("GET", "/api/models"))["models"]:
            show.err.print(escape(model["id"]))

    async def _last(self) -> Object | None:
        messages = (await self._api.call("GET", f"/api/sessions/{self.session}"))["messages"]
        return messages[-1] if messages else None

    async def _retry(self, rest: str) -> None:
        if last := await self._last():
            await self._start("regenerate", {"message_id": last["id"]})

    async def _continue(self, rest: str) -> None:
        if last := await self._last():
            await self._start("continue", {"message_id": last["id"]})

    async def _sessions(self, rest: str) -> None:
        for session in (await self._api.call("GET", "/api/sessions", query={"limit": 10}))["sessions"]:
            show.err.print(f"{session['id']}  {escape(session['title'])}  [dim]{show.ago(session['updated_at'])}[/]")
