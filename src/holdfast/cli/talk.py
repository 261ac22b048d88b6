"""`holdfast chat` and `holdfast run`: talk to a model in the terminal."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, cast

import click
import msgspec
from rich.markup import escape

from . import show
from .attend import NOBODY, Attendant
from .client import Api, CallFailed, Object, connect
from .commands import settings_options, telling
from .ctrl_c import CtrlC
from .printer import Printer

EXIT = {"completed": 0, "failed": 1, "interrupted": 1, "truncated": 3, "stopped": 4}
"""What a script can tell apart: 2 is for a wrong command line, 5 for a call that nobody was there to allow."""

HELP = """\
/new            start another session        /model NAME     change the model
/models         list the models              /retry          answer the last message again
/continue       go on with a cut-off answer  /sessions       list sessions
/quit           leave (or Ctrl-D)            Ctrl-C          stop the answer and keep it
While an agent works, a line that you type is sent to it."""


def talk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say who is asked, where, and what an agent may do."""
    for option in (
        click.option("--approve", multiple=True, metavar="TOOL,…", help="Tools that the agent need not ask for."),
        click.option("--system", help="The system prompt of a new session."),
        click.option("-c", "--continue", "goes_on", is_flag=True, help="Go on with the latest session."),
        click.option("-s", "--session", help="The session to go on with, by its id."),
        click.option("--agent", help="The agent to ask: short for --model agent/NAME."),
        click.option("-m", "--model", help="The model to ask."),
    ):
        command = option(command)
    return command


def whom(model: str | None, agent: str | None) -> str | None:
    """Return the model that was named, one way or the other."""
    if model and agent:
        raise click.UsageError("An agent has a model of its own: say --agent or --model, not both.")
    return f"agent/{agent.removeprefix('agent/')}" if agent else model


def named(tools: Sequence[str]) -> list[str]:
    """Return the tools that were named, with commas or one by one."""
    return [name for each in tools for name in each.replace(",", " ").split()]


@click.command()
@click.argument("prompt", nargs=-1)
@talk_options
@click.option("--json", "as_json", is_flag=True, help="Print the settled run as JSON.")
@settings_options
@telling
def run(prompt: tuple[str, ...], model: str | None, agent: str | None, **what: Any) -> None:
    """Ask one question and print the answer. What is piped in comes after the prompt.

    Exit code: 0 completed, 1 failed or interrupted, 3 truncated, 4 stopped, 5 stopped because nobody was there to allow
    what an agent asked for, 2 for a wrong command line.
    """
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    text = "\n\n".join(part for part in (" ".join(prompt), piped.strip()) if part)
    if not text:
        raise click.UsageError('Nothing was asked. Try: holdfast run "Why is the sky blue?"')
    sys.exit(asyncio.run(_run_once(well_formed(text), model=whom(model, agent), **what)))


def well_formed(text: str) -> str:
    """Return a text that JSON can carry: bytes that the locale could not read are taken for UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def _run_once(
    text: str,
    *,
    model: str | None,
    session: str | None,
    goes_on: bool,
    system: str | None,
    approve: Sequence[str],
    as_json: bool,
    **where: Any,
) -> int:
    async with connect(**where) as api:
        attendant = Attendant(api, named(approve))
        session = session or (await _latest(api) if goes_on else None) or await _new_session(api, system, model)
        body = {"input": text, **({"model": model} if model else {})}
        with interruptible() as asked:
            started = await api.call("POST", f"/api/sessions/{session}/runs", body)
            settled = await follow(api, started, silent=as_json, asked=asked, attendant=attendant)
        if as_json:
            finished = await api.call("GET", f"/api/runs/{started['id']}")
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(finished)).decode() + "\n")
        elif settled["outcome"] != "completed":
            _say_how_to_go_on(session)
        return NOBODY if attendant.missed else EXIT[settled["outcome"]]


async def _latest(api: Api) -> str | None:
    sessions = (await api.call("GET", "/api/sessions", query={"limit": 1}))["sessions"]
    return str(sessions[0]["id"]) if sessions else None


async def _new_session(api: Api, system: str | None = None, model: str | None = None) -> str:
    body = {name: value for name, value in {"system": system, "model": model}.items() if value}
    return str((await api.call("POST", "/api/sessions", body))["id"])


def _say_how_to_go_on(session: str) -> None:
    show.err.print(f"[dim]holdfast chat -s {session} goes on with this session.[/]")


@contextlib.contextmanager
def interruptible() -> Generator[asyncio.Event]:
    """Take Ctrl-C for the wish to stop a run, from before it starts, and yield what tells of it.

    Only the first one: the second leaves at once, also where the server does not answer.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        asked.set()
        loop.remove_signal_handler(signal.SIGINT)

    with contextlib.suppress(NotImplementedError):  # Windows has no such handlers
        loop.add_signal_handler(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        with contextlib.suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


async def follow(
    api: Api,
    run: Object,
    *,
    silent: bool = False,
    asked: asyncio.Event | None = None,
    attendant: Attendant | None = None,
) -> Object:
    """Print a run as it comes and return its settlement. Stop it where that is asked for: what is there is kept."""
    printer = Printer(silent)
    async with contextlib.AsyncExitStack() as meanwhile:
        if asked is not None:
            meanwhile.callback(asyncio.create_task(_stop_when(asked, api, run["id"])).cancel)
        if attendant is not None and run["kind"] == "agent":
            await meanwhile.enter_async_context(attendant.beside(run["id"], printer))
        async for event in api.events(run["id"]):
            try:
                printer.take(event)
            except BrokenPipeError:
                if asked is None:
                    raise
                printer = Printer(silent=True)
                _let_go_of_output()
                asked.set()
            if attendant is not None:
                attendant.take(event)
            if event["type"] == "run.settled":
                settlement: Object = event["settlement"]
                return settlement
    raise CallFailed(f"Run {run['id']} ended without a settlement.")


async def _stop_when(asked: asyncio.Event, api: Api, run_id: str) -> None:
    await asked.wait()
    try:
        await api.call("POST", f"/api/runs/{run_id}/stop")
    except CallFailed as error:
        show.err.print(f"[red]It could not be stopped: {escape(str(error))}[/]")


def _let_go_of_output() -> None:
    """Send what is still printed nowhere: whoever read it (`head`) has seen enough."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.command()
@talk_options
@settings_options
@telling
def chat(model: str | None, agent: str | None, **what: Any) -> None:
    """Talk to a model. Ctrl-C stops an answer and keeps what was said; /help lists the commands."""
    model = whom(model, agent)
    with CtrlC() as ctrl_c, _Aside(ctrl_c) as aside:
        aside.do(lambda asked: _begin(aside, asked, model=model, **what))
        talk = aside.talk
        while (said := talk.prompt.ask()) is not None and said != "/quit":
            if said:
                aside.do(lambda asked, said=said: _answered(talk, said, asked))  # type: ignore[misc]
        _say_how_to_go_on(talk.session)
    if talk.attendant.missed:
        sys.exit(NOBODY)


async def _begin(
    aside: _Aside,
    asked: asyncio.Event,
    *,
    model: str | None,
    session: str | None,
    goes_on: bool,
    system: str | None,
    approve: Sequence[str],
    **where: Any,
) -> None:
    api = await aside.stack.enter_async_context(connect(**where))
    aside.talk = _Talk(api, model, _Prompt(aside.ctrl_c), Attendant(api, named(approve)))
    await aside.talk.begin(session or (await _latest(api) if goes_on else None), system, asked)


async def _answered(talk: _Talk, said: str, asked: asyncio.Event) -> None:
    try:
        await talk.say(said, asked)
    except CallFailed as error:
        show.err.print(f"[red]{escape(str(error))}[/]")


class _Aside:
    """A loop in a thread of its own, so that it goes on while a person types: a server of our own runs in it.

    Ctrl-C comes to the main thread, which types or waits. All work is done by one task, as what is entered by a task
    has to be left by the same.
    """

    talk: _Talk

    def __init__(self, ctrl_c: CtrlC) -> None:
        self.ctrl_c = ctrl_c
        self.stack = contextlib.AsyncExitStack()
        self._work: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue()
        self._began = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="holdfast-chat", daemon=True)

    def __enter__(self) -> _Aside:
        self._thread.start()
        self._began.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._work.put_nowait, None)
        self._thread.join()  # no Ctrl-C ends this wait: what is under way has to be saved

    def do(self, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Wait for some work. The first Ctrl-C asks it to stop, the second gives it up."""
        asked, done = asyncio.Event(), concurrent.futures.Future[None]()

        async def doing() -> None:
            try:
                await work(asked)
                done.set_result(None)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                done.set_exception(error)

        self._loop.call_soon_threadsafe(self._work.put_nowait, doing)
        try:
            self.ctrl_c.during(done.result)
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(asked.set)
            self._wait_no_longer_than_wanted(done)

    def _wait_no_longer_than_wanted(self, done: concurrent.futures.Future[None]) -> None:
        try:
            self.ctrl_c.during(done.result)
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(self._task.cancel)
            raise

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), cast(asyncio.Task[None], asyncio.current_task())
        self._began.set()
        async with self.stack:
            while (work := await self._work.get()) is not None:
                await work()


class _Prompt:
    """Where a person types. The arrow keys bring back what was said in this session."""

    def __init__(self, ctrl_c: CtrlC) -> None:
        self._ctrl_c = ctrl_c
        self._is_person = sys.stdin is not None and sys.stdin.isatty()
        self._readline: Any = None
        # In a file its import alone leaves escape codes; without it a terminal cuts lines at 4096 bytes.
        if self._is_person and show.is_terminal():
            with contextlib.suppress(ImportError):  # Windows has none
                self._readline = importlib.import_module("readline")

    def remember(self, messages: list[Object]) -> None:
        """Take in what was said before."""
        for message in messages if self._readline else ():
            if message["role"] == "user" and isinstance(message["content"], str):
                self._readline.add_history(show.safe(" ".join(message["content"].split())))

    def ask(self) -> str | None:
        """Read a line. None at the end of the input; nothing where Ctrl-C threw the line away.

        Ctrl-C reaches the reading itself: it is the main thread that reads.
        """
        try:
            return well_formed(self._ctrl_c.during(lambda: input(self._text()))).strip()
        except EOFError:
            self._end_line()
            return None
        except KeyboardInterrupt:
            self._end_line("Ctrl-D leaves.")
            return "" if self._is_person else None

    def _text(self) -> str:
        if self._is_person and not show.is_terminal():
            show.err.print("> ", end="")
        return "> " if self._is_person and show.is_terminal() else ""

    def _end_line(self, hint: str = "") -> None:
        if self._is_person:
            show.err.print(f"\n[dim]{hint}[/]" if hint else "")


class _Talk:
    """One conversation in the terminal."""

    def __init__(self, api: Api, model: str | None, prompt: _Prompt, attendant: Attendant) -> None:
        self._api = api
        self._model = model
        self.prompt = prompt
        self.attendant = attendant
        self.session = ""
        self._asked = asyncio.Event()

    async def begin(self, session: str | None, system: str | None, asked: asyncio.Event | None = None) -> None:
        """Go on with a session, or start one."""
        if session is None:
            self.session = await _new_session(self._api, system, self._model)
            show.err.print(
                f"[dim]{escape(await self._current_model())}  ·  /help lists the commands, Ctrl-C stops an answer[/]"
            )
            return
        opened = await self._api.call("GET", f"/api/sessions/{session}")
        self.session = opened["id"]
        self.prompt.remember(opened["messages"])
        show.err.print(f"[dim]{escape(opened['title'] or 'Session')}, {len(opened['messages'])} messages[/]")
        for message in opened["messages"][-2:]:
            show.err.print(f"[dim]{message['role']}: {escape(show.line(str(message['content']), 200))}[/]")
        if opened["active_run"]:
            beside = self.attendant if self.attendant.is_person else None  # what others have started is not stopped
            await follow(self._api, opened["active_run"], asked=asked, attendant=beside)

    async def say(self, said: str, asked: asyncio.Event) -> None:
        """Send a message, or do what a command says. What it starts is stopped where that is asked for."""
        self._asked = asked
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
        await follow(self._api, started, asked=self._asked, attendant=self.attendant)

    async def _help(self, rest: str) -> None:
        show.err.print(HELP)

    async def _new(self, rest: str) -> None:
        await self.begin(None, None)

    async def _change_model(self, rest: str) -> None:
        if rest:
            await self._api.call("PATCH", f"/api/sessions/{self.session}", {"model": rest})
            self._model = rest
        show.err.print(f"[dim]The model is {escape(await self._current_model())}.[/]")

    async def _current_model(self) -> str:
        session = await self._api.call("GET", f"/api/sessions/{self.session}")
        return str(self._model or session["model"] or (await self._api.call("GET", "/api/models"))["default"])

    async def _models(self, rest: str) -> None:
        for model in (await self._api.call("GET", "/api/models"))["models"]:
            show.err.print(escape(model["id"]))

    async def _last(self) -> str:
        messages = (await self._api.call("GET", f"/api/sessions/{self.session}"))["messages"]
        if not messages:
            raise CallFailed("Nothing was said in this session yet.")
        return str(messages[-1]["id"])

    async def _retry(self, rest: str) -> None:
        await self._start("regenerate", {"message_id": await self._last()})

    async def _continue(self, rest: str) -> None:
        await self._start("continue", {"message_id": await self._last()})

    async def _sessions(self, rest: str) -> None:
        for session in (await self._api.call("GET", "/api/sessions", query={"limit": 10}))["sessions"]:
            title = escape(show.line(show.safe(session["title"])))
            show.err.print(f"{session['id']}  {title}  [dim]{show.ago(session['updated_at'])}[/]")
