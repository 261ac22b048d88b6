"""`holdfast chat` and `holdfast run`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import click
import msgspec
from rich.markup import escape

from .. import show
from ..client import Api, CallFailed, Object, Params, connect
from ..commands import settings_options
from ..completion import complete_agents, complete_models, complete_presets, complete_sessions
from ..completion.prefixes import SESSION, whole_id
from ..screen import flat, visible
from ..tables import SHORTEST_ID
from .answer_file import AnswerFile
from .as_read import as_read
from .attendant import APPROVAL_MISSING, Attendant
from .ctrl_c import CtrlC, interruptible, stopped_by
from .named import filled_prompt, find_prompt, preset_named
from .printer import Printer
from .prompt import TerminalPrompt, well_formed


async def attached(api: Api, paths: Sequence[str]) -> list[Object]:
    """Send files ahead, say what they are, and return them as parts of a message."""
    return [await _attached(api, pathlib.Path(path)) for path in paths]


def question_of(text: str, parts: list[Object]) -> str | list[Object]:
    """Return the content of a message. A model reads files before the question."""
    return [*parts, {"type": "text", "text": text}] if parts else text


async def _attached(api: Api, path: pathlib.Path) -> Object:
    try:
        data = await asyncio.to_thread(lambda: path.expanduser().read_bytes())
    except (OSError, RuntimeError) as error:  # an unknown user of `~user`
        raise CallFailed(f"Cannot read {visible(str(path))}: {getattr(error, 'strerror', error)}.") from None
    found = msgspec.convert(await api.call("POST", "/api/files", data, {"name": path.name}), _Found)
    facts = [f"{found.size:,} bytes", *found.facts()]
    show.note(f"{visible(found.name)}: {', '.join(facts)}")
    return {"type": "file", "file": {"filename": found.name, "file_data": f"holdfast-file:{found.sha256}"}}


class _Found(msgspec.Struct):
    """What the server has found in a file."""

    name: str
    size: int
    sha256: str
    tokens: int | None = None
    pages: int | None = None

    def facts(self) -> list[Any]:
        """Return its pages and tokens, if it has any."""
        pages = [] if self.pages is None else [show.plural(self.pages, "page")]
        return pages if self.tokens is None else [*pages, f"about {self.tokens:,} tokens"]


EXIT = {"completed": 0, "failed": 1, "interrupted": 1, "truncated": 3, "stopped": 4}
"""Exit codes by outcome. 2 is a wrong command line, 5 a tool call that could not be approved."""

HELP = """\
/new            start a new chat
/model NAME     change the model
/models         list the models
/prompts        list the saved prompts
/NAME           send the saved prompt of this name
/retry          regenerate the last response
/continue       continue a cut-off response
/attach FILE    send a file with the next message
/compact        let a summary make room in a long chat
/sessions       list recent chats
/quit           quit (or Ctrl-D)
Ctrl-C          stop the response; it is saved
Alt-Enter       new line
Ctrl-R          search earlier messages
Ctrl-X Ctrl-E   edit in $EDITOR
Up, Down        earlier and later messages
While an agent is running, a line that you type is sent to it."""


def talk_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the model, the session and the tools of an agent."""
    for option in (
        click.option("--plain", is_flag=True, help="Print responses as they are: no styles, no figures."),
        click.option("--approve", multiple=True, metavar="TOOL,…", help="Auto-approve these tools."),
        click.option(
            "-a",
            "--attach",
            multiple=True,
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False),
            help="Attach a file: text, code, CSV, PDF or picture.",
        ),
        click.option("--system", help="System prompt."),
        click.option("-c", "--continue", "goes_on", is_flag=True, help="Continue the latest session."),
        click.option(
            "-s", "--session", shell_complete=complete_sessions, help="Continue this session (id or unique prefix)."
        ),
        click.option("--agent", shell_complete=complete_agents, help="Agent; short for --model agent/NAME."),
        click.option(
            "-p", "--preset", shell_complete=complete_presets, help="Preset: model, system prompt, parameters."
        ),
        click.option("-m", "--model", shell_complete=complete_models, help="Model, as PROVIDER/MODEL."),
    ):
        command = option(command)
    return command


def chosen_model(model: str | None, agent: str | None) -> str | None:
    """Return the model that --model or --agent names."""
    if model and agent:
        raise click.UsageError("Use --agent or --model, not both: an agent has its own model.")
    return f"agent/{agent.removeprefix('agent/')}" if agent else model


def named(tools: Sequence[str]) -> list[str]:
    """Return the tools of an option: separated by commas, or given one by one."""
    return [name for each in tools for name in each.replace(",", " ").split()]


@click.command()
@click.argument("prompt", nargs=-1)
@talk_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="Write the response to a file once it is complete, and its pictures beside it.",
)
@click.option("--keep", is_flag=True, help="Keep the prompt and the response as a new session.")
@click.option("--json", "as_json", is_flag=True, help="Print the finished run as JSON.")
@settings_options
def run(prompt: tuple[str, ...], model: str | None, agent: str | None, **what: Any) -> None:
    """Send one prompt and print the response.

    Standard input is appended to the prompt, unless it is a terminal. The run is listed by `holdfast runs ls`; it is
    part of a session only with --keep, --session or --continue.

    Exit code: 0 completed, 1 failed or interrupted, 2 wrong command line, 3 truncated, 4 stopped, 5 stopped because an
    agent asked its user and standard input is not a terminal.
    """
    text = with_input(prompt)
    if not text:
        raise click.UsageError('No prompt given. Try: holdfast run "Why is the sky blue?"')
    sys.exit(asyncio.run(_run_once(well_formed(text), model=chosen_model(model, agent), **what)))


SILENT = 1.0
"""Seconds of waiting for standard input before a note is printed."""


def with_input(prompt: Sequence[str]) -> str:
    """Return the prompt followed by standard input. If that takes long, print a note about the wait."""
    text = " ".join(prompt)
    if sys.stdin is None or sys.stdin.isatty():
        return text
    waiting = threading.Timer(SILENT, show.note, ["Reading standard input until it ends. Use < /dev/null for none."])
    waiting.daemon = True
    waiting.start()
    try:
        piped = sys.stdin.read()
    finally:
        waiting.cancel()
    return "\n\n".join(part for part in (text, piped.strip()) if part)


async def _run_once(
    text: str,
    *,
    model: str | None,
    preset: str | None,
    session: str | None,
    goes_on: bool,
    system: str | None,
    approve: Sequence[str],
    attach: Sequence[str],
    plain: bool,
    output: pathlib.Path | None,
    keep: bool,
    as_json: bool,
    **where: Any,
) -> int:
    file = None if output is None else AnswerFile(output)
    async with connect(**where) as api:
        attendant = Attendant(api, named(approve))
        session = await _chosen_session(api, session, goes_on=goes_on)
        setup = _Setup(model, system, None if preset is None else await preset_named(api, preset))
        content = question_of(text, await attached(api, attach))
        with interruptible() as stop_requested:
            if session is None and not keep:
                started = await _start_alone(api, content, setup)
            else:
                session = await _set_up(api, session, setup)
                body = {"input": content, **({"model": model} if model else {})}
                started = await api.call("POST", f"/api/sessions/{session}/runs", body)
            settled = await follow(
                api, started, silent=as_json, plain=plain, file=file, stop_requested=stop_requested, attendant=attendant
            )
        if file is not None and settled["outcome"] == "completed":
            file.write(settled["text"])
        if as_json:
            finished = await api.call("GET", f"/api/runs/{started['id']}")
            sys.stdout.write(show.as_json(finished))
        elif settled["outcome"] != "completed":
            _hint(session, started["id"])
        return APPROVAL_MISSING if attendant.missed else EXIT[settled["outcome"]]


class _Setup(NamedTuple):
    """What a command line says of a chat. The options have precedence over the preset."""

    model: str | None
    system: str | None
    preset: Object | None = None

    def session(self) -> Object:
        """Return the fields of a session."""
        preset = {"preset": self.preset["id"]} if self.preset else {}
        return preset | {name: value for name, value in {"system": self.system, "model": self.model}.items() if value}

    def request(self, content: str | list[Object]) -> Object:
        """Return a request without a session."""
        preset = self.preset or {"params": {}, "system": None, "model": None}
        system, model = self.system or preset["system"], self.model or preset["model"]
        messages = [{"role": "system", "content": system}] if system else []
        body = {**preset["params"], "messages": [*messages, {"role": "user", "content": content}]}
        return body | ({"model": model} if model else {})


async def _start_alone(api: Api, content: str | list[Object], setup: _Setup) -> Object:
    """Start a run outside of a session. It is kept as a run, and continues if the connection breaks."""
    started = await api.call("POST", "/v1/chat/completions", setup.request(content) | {"background": True})
    return await api.call("GET", f"/api/runs/{started['holdfast']['run_id']}")


async def _chosen_session(api: Api, session: str | None, *, goes_on: bool) -> str | None:
    """Return the session that the command line names; None for a new one."""
    if session is not None:
        return await whole_id(api, SESSION, session)
    return await _latest(api) if goes_on else None


async def _latest(api: Api) -> str | None:
    sessions = (await api.call("GET", "/api/sessions", query={"limit": 1}))["sessions"]
    return str(sessions[0]["id"]) if sessions else None


async def _set_up(api: Api, session: str | None, setup: _Setup) -> str:
    """Return a new session, or the one that was named, with the preset that was named."""
    if session is None:
        return str((await api.call("POST", "/api/sessions", setup.session()))["id"])
    if setup.preset is not None:
        await api.call("PATCH", f"/api/sessions/{session}", setup.session())
    return session


def _hint(session: str | None, run_id: str) -> None:
    """Print how to continue the session, or how to show the run if it has none."""
    if session is None:
        show.note(f"See the run with: holdfast runs show {run_id[:SHORTEST_ID]}")
    else:
        show.note(f"Continue with: holdfast chat -s {session[:SHORTEST_ID]}")


async def follow(
    api: Api,
    run: Object,
    *,
    silent: bool = False,
    plain: bool = False,
    file: AnswerFile | None = None,
    stop_requested: asyncio.Event | None = None,
    attendant: Attendant | None = None,
) -> Object:
    """Print a run as it arrives, and return its settlement. Stop the run when `stop_requested` is set.

    With a `file` the answer is not printed. On a terminal the figures of a run that began here follow, unless `plain`.
    """
    printer = Printer(silent, plain=plain, prints_answer=file is None)
    async with contextlib.AsyncExitStack() as meanwhile:
        if stop_requested is not None:
            meanwhile.enter_context(stopped_by(stop_requested, api, f"/api/runs/{run['id']}", "run"))
        if attendant is not None and run["kind"] == "agent":
            await meanwhile.enter_async_context(attendant.beside(run["id"], printer))
        async for event in api.events(run["id"]):
            try:
                printer.take(event)
            except BrokenPipeError:
                if stop_requested is None:
                    raise
                printer = Printer(silent=True)
                _discard_output()
                stop_requested.set()
            if attendant is not None:
                attendant.take(event)
            if file is not None:
                file.take(event)
            if event["type"] == "run.settled":
                if show.is_terminal() and not (silent or plain) and attendant is not None:
                    await _print_figures(api, run["id"], printer)
                settlement: Object = event["settlement"]
                return settlement
    raise CallFailed(f"The events of run {run['id']} ended before it did.")


async def _print_figures(api: Api, run_id: str, printer: Printer) -> None:
    run = await api.call("GET", f"/api/runs/{run_id}")
    has_cost = "cost" in run and run["cost"] is not None
    printer.print_figures(run, (await api.call("GET", "/api/models"))["currency"] if has_cost else "")


def _discard_output() -> None:
    """Discard further output: the reader of the pipe (`head`) has closed it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.command()
@talk_options
@settings_options
def chat(model: str | None, agent: str | None, **what: Any) -> None:
    """Chat with a model.

    Ctrl-C stops a response, which is saved. /help lists the commands and keys.
    """
    sys.exit(asyncio.run(_chat(model=chosen_model(model, agent), **what)))


async def _chat(
    *,
    model: str | None,
    preset: str | None,
    session: str | None,
    goes_on: bool,
    system: str | None,
    approve: Sequence[str],
    attach: Sequence[str],
    plain: bool,
    **where: Any,
) -> int:
    async with contextlib.AsyncExitStack() as stack:
        ctrl_c = stack.enter_context(CtrlC())
        with ctrl_c.stops() as stop_requested:
            api = await stack.enter_async_context(connect(**where))
            setup = _Setup(model, system, None if preset is None else await preset_named(api, preset))
            talk = _Talk(api, setup, TerminalPrompt(ctrl_c), Attendant(api, named(approve)), plain)
            talk.files = await attached(api, attach)
            await talk.begin(await _chosen_session(api, session, goes_on=goes_on), stop_requested)
        while (text := await talk.prompt.ask()) is not None and text != "/quit":
            if text:
                with ctrl_c.stops() as stop_requested:
                    await _answered(talk, text, stop_requested)
        if talk.session:
            _hint(talk.session, "")
        return APPROVAL_MISSING if talk.attendant.missed else 0


async def _answered(talk: _Talk, text: str, stop_requested: asyncio.Event) -> None:
    try:
        await talk.send(text, stop_requested)
    except CallFailed as error:
        show.note(f"{error!s}", "red")


class _Talk:
    """One conversation in the terminal."""

    def __init__(self, api: Api, setup: _Setup, prompt: TerminalPrompt, attendant: Attendant, plain: bool) -> None:
        self._api = api
        self._setup = setup
        self._model = setup.model
        self.prompt = prompt
        self.attendant = attendant
        self._plain = plain
        self.session = ""
        """Empty until a new chat has its first message: who leaves before that leaves no chat behind."""
        self.files: list[Object] = []
        """What goes with the next message."""
        self._stop_requested = asyncio.Event()

    async def begin(self, session: str | None, stop_requested: asyncio.Event | None = None) -> None:
        """Continue a session, or start one with the next message."""
        self.session = ""
        if session is None:
            await self._require(self._setup.model)
            preset = [self._setup.preset["name"]] if self._setup.preset else []
            what = "  ·  ".join([*preset, await self._current_model()])
            show.note(f"{what}  ·  /help for commands, Ctrl-C to stop a response")
            return
        await _set_up(self._api, session, self._setup)
        opened = await self._api.call("GET", f"/api/sessions/{session}")
        self.session = opened["id"]
        self.prompt.remember(opened["messages"])
        show.note(f"{opened['title'] or 'Untitled'} ({len(opened['messages'])} messages)")
        for message in as_read(opened["messages"])[-2:]:
            show.note(f"{message['role']}: {show.line(str(message['content']), 200)}")
        if opened["active_run"]:
            beside = self.attendant if self.attendant.is_person else None  # runs of other clients are not stopped
            await follow(
                self._api, opened["active_run"], plain=self._plain, stop_requested=stop_requested, attendant=beside
            )

    async def _require(self, model: str | None) -> None:
        """Raise CallFailed if there is no such model."""
        if model:
            await self._api.call("GET", f"/v1/models/{quote(model)}")

    async def send(self, text: str, stop_requested: asyncio.Event) -> None:
        """Send a message, or run a command. `stop_requested` stops the run that it starts."""
        self._stop_requested = stop_requested
        if not text.startswith("/"):
            await self._say(text)
            return
        name, _, rest = text[1:].partition(" ")
        commands = {
            "help": self._help,
            "new": self._new,
            "model": self._change_model,
            "models": self._models,
            "prompts": self._prompts,
            "retry": self._retry,
            "continue": self._continue,
            "attach": self._attach,
            "compact": self._compact,
            "sessions": self._sessions,
        }
        command = commands.get(name)
        if command is not None:
            await command(rest.strip())
        elif (prompt := await find_prompt(self._api, name)) is not None:
            await self._send_prompt(prompt, rest.strip())
        else:
            show.err.print(f"[yellow]Unknown command or prompt /{escape(name)}.[/]\n{HELP}")

    async def _send_prompt(self, prompt: Object, rest: str) -> None:
        """Send a prompt. What follows its name is its first variable, or follows its text; the others are asked."""
        given: dict[str, str] = {}
        for variable in prompt["variables"]:
            if rest:
                given[variable], rest = rest, ""
                continue
            show.note(f"{flat(variable)}:")
            if (value := await self.prompt.ask()) is None:
                return
            given[variable] = value
        text = "\n\n".join(filter(None, (filled_prompt(prompt, given), rest)))
        show.note(show.line(text, 200))
        await self._say(text)

    async def _prompts(self, rest: str) -> None:
        for prompt in (await self._api.call("GET", "/api/prompts"))["prompts"]:
            show.note(f"/{flat(prompt['name'])}  {show.line(prompt['text'], 60)}", "")

    async def _start(self, how: str, body: Object) -> None:
        await self._follow(await self._begin(how, body))

    async def _begin(self, how: str, body: Object) -> Object:
        body = {**body, **({"model": self._model} if self._model else {})}
        return await self._api.call("POST", f"/api/sessions/{self.session}/{how}", body)

    async def _follow(self, started: Object) -> None:
        await follow(
            self._api,
            started,
            plain=self._plain,
            stop_requested=self._stop_requested,
            attendant=self.attendant,
        )

    async def _say(self, text: str) -> None:
        """Send a message, with the files that wait for it. They stay if it is not taken."""
        if not self.session:
            self.session = await _set_up(self._api, None, self._setup)
        started = await self._begin("runs", {"input": question_of(text, self.files)})
        self.files = []
        await self._follow(started)

    async def _attach(self, rest: str) -> None:
        if not rest:
            raise CallFailed("Name a file: /attach notes.md")
        self.files += await attached(self._api, [rest])

    async def _compact(self, rest: str) -> None:
        await self._last()
        await self._start("compact", {})

    async def _help(self, rest: str) -> None:
        show.err.print(HELP)

    async def _new(self, rest: str) -> None:
        await self.begin(None)

    async def _change_model(self, rest: str) -> None:
        if rest:
            if self.session:
                await self._api.call("PATCH", f"/api/sessions/{self.session}", {"model": rest})
            await self._require(rest)
            self._model, self._setup = rest, _Setup(rest, self._setup.system, self._setup.preset)
        show.note(f"Model: {await self._current_model()}")

    async def _current_model(self) -> str:
        session = self._setup.preset or {"model": None}
        if self.session:
            session = await self._api.call("GET", f"/api/sessions/{self.session}")
        return str(self._model or session["model"] or (await self._api.call("GET", "/api/models"))["default"])

    async def _models(self, rest: str) -> None:
        """List the models. With a real provider, the demo models are listed only by `/models all`."""
        every: Params = {"all": "true"} if rest == "all" else {}
        for model in (await self._api.call("GET", "/api/models", query=every))["models"]:
            show.note(flat(model["id"]) + ("  (demo)" if model.get("demo") else ""), "")

    async def _last(self) -> str:
        opened = await self._api.call("GET", f"/api/sessions/{self.session}") if self.session else {"messages": []}
        messages = opened["messages"]
        if not messages:
            raise CallFailed("No messages in this session yet.")
        return str(messages[-1]["id"])

    async def _retry(self, rest: str) -> None:
        await self._start("regenerate", {"message_id": await self._last()})

    async def _continue(self, rest: str) -> None:
        await self._start("continue", {"message_id": await self._last()})

    async def _sessions(self, rest: str) -> None:
        for session in (await self._api.call("GET", "/api/sessions", query={"limit": 10}))["sessions"]:
            id, title = session["id"][:SHORTEST_ID], show.line(session["title"], 50)
            show.note(f"{id}  {show.ago(session['updated_at']):10}  {title}", "")
