"""The real Holdfast server, and U, as processes of their own: started, killed, started again, never left behind."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol, Self

from tests.support.forked import starter
from tests.support.http import Client
from tests.support.kept import kept_in
from tests.support.ports import free_port
from tests.support.postgres import NOT_COMPARED, rows_of, shared_postgres
from tests.support.waiting import LONG

ROOT = Path(__file__).resolve().parents[2]
UP_KEY = "sk-up-6f1d0c2b9a8e7d6c5b4a39281706f5e4"
"""The key that the server under test uses for U. It must never be seen in an answer, a log or a page."""

NODES = int(os.environ.get("HOLDFAST_TEST_NODES", "1"))
"""Nodes of every `Server`. Several share a PostgreSQL, and each request of a client goes to a random one."""

READY = re.compile(r"\bready\b.*?(https?)://(\[[0-9a-f:]+\]|[\w.-]+):(\d+)", re.IGNORECASE)
POLL = 0.02

STORES: dict[Path, str] = {}
"""The PostgreSQL of the servers that have one instead of the database in their data folder."""

DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
"""PR_SET_PDEATHSIG, then the command itself: the kernel kills it when the test process dies, even by SIGKILL.

A `preexec_fn` would do the same, and Python warns of it wherever the parent has threads.
"""
LAUNCHER = [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT] if sys.platform == "linux" else []


class Ended(NamedTuple):
    """How a process ended, and how long that took. The code is negative for a signal, as in `subprocess`."""

    code: int
    seconds: float


class StartFailed(AssertionError):
    """The process ended or stayed silent where it should have become ready. The message is its log."""


class Started(Protocol):
    """A process, started or forked."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


class Process:
    """A command in a process group of its own, its output in a file. The group dies with the block, it with us too.

    With `forked`, `python -m holdfast` is forked from a process that has its imports (`forked.py`).
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path, forked: bool = False
    ) -> None:
        self.command = list(command)
        self._is_forked = forked
        self._log = log
        self._env = dict(env)
        self._cwd = cwd
        self._log_start = 0
        self._process: Started | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it was started with."""
        return dict(self._env)

    def log_text(self) -> str:
        """All that it has printed, to stdout and stderr, since the first start."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def start(self, ready: re.Pattern[str], timeout: float) -> re.Match[str]:
        """Start it and wait until it prints the line that says it is ready."""
        assert not self.alive, "already running"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = await self._started(log)
        try:
            return await self._ready(ready, timeout)
        except BaseException:
            await self.kill9()
            raise

    async def _started(self, log: IO[bytes]) -> Started:
        forking = starter(clean_environment()) if self._is_forked else None
        if forking is not None and forking.can_start(self.command, self._env):
            return await forking.start(self.command, output=log, environment=self._env, folder=self._cwd)
        return await asyncio.create_subprocess_exec(
            *LAUNCHER,
            *self.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )

    async def kill9(self, *, group: bool = True) -> Ended:
        """SIGKILL, to its children too unless told otherwise."""
        began = time.monotonic()
        if group:
            self._signal_group(signal.SIGKILL)
        elif self.alive:
            os.kill(self.pid, signal.SIGKILL)
        return await self._ended(began, LONG)

    async def terminate(self, timeout: float = LONG) -> Ended:
        """SIGTERM to the process, and wait. One that does not end in time is killed, and that is a TimeoutError."""
        began = time.monotonic()
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)
        try:
            return await self._ended(began, timeout)
        except TimeoutError:
            await self.kill9()
            raise TimeoutError(f"still running {timeout} s after SIGTERM; its log:\n{self.log_text()}") from None
        finally:
            self._signal_group(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Any other signal: SIGSTOP makes a paused owner, SIGCONT wakes it."""
        os.kill(self.pid, number)

    def rss_kb(self) -> int:
        """Resident memory of the process, without its children."""
        match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert match is not None, "the process has ended"
        return int(match[1])

    def open_files(self) -> int:
        """File descriptors in use."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    async def _ready(self, ready: re.Pattern[str], timeout: float) -> re.Match[str]:
        deadline = time.monotonic() + timeout
        while (match := ready.search(self._new_log())) is None:
            if not self.alive:
                raise StartFailed(f"{self.command} ended with {self._code()}; its log:\n{self._new_log()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.command} was not ready after {timeout} s; its log:\n{self._new_log()}")
            await asyncio.sleep(POLL)
        return match

    def _new_log(self) -> str:
        """What was printed since the last start, as far as whole lines go."""
        text = self._log.read_bytes()[self._log_start :].decode(errors="replace")
        return text[: text.rfind("\n") + 1] if self.alive else text

    def _code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def _ended(self, began: float, timeout: float) -> Ended:
        assert self._process is not None, "not started"
        async with asyncio.timeout(timeout):
            code = await self._process.wait()
        return Ended(code, time.monotonic() - began)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass  # the whole group has ended


def link_target(link: str) -> str:
    """Return what a link leads to; empty if it is gone meanwhile."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


class Server(Process):
    """`async with Server(data=tmp_path, providers=[provider(up)]) as s:` runs `holdfast serve` until the block is left.

    `config` is TOML text that stands before the providers in `holdfast.toml`. `port` None picks a free one, 0 lets the
    server pick; the printed address is believed in any case, and kept for a restart. With several `nodes` what is done
    to the server is done to all of them. `forked` False makes every start a real one: for tests of what a process has
    before it runs, such as its first environment, and of its memory.
    """

    def __init__(
        self,
        data: Path,
        providers: Sequence[Mapping[str, Any]] = (),
        *,
        config: str = "",
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        port: int | None = None,
        timeout: float = LONG,
        program: Sequence[str] = (sys.executable, "-m", "holdfast"),
        nodes: int = NODES,
        log: str = "server.log",
        forked: bool = True,
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.config = data / "holdfast.toml"
        self.rewrite(config, providers)
        self.port = free_port(2) if port is None else port  # the next one is for the other nodes, by default
        self.url = ""
        self._program = list(program)
        self._args = list(args)
        self._timeout = timeout
        asks_local = any(each.get("dialect") == "local" for each in providers)
        offline = {} if asks_local else {"HOLDFAST_OFFLINE": "1"}  # nothing is downloaded that no test asks for
        own = offline | dict(env or {})
        self._peers: list[Server] = []
        if nodes > 1 and "HOLDFAST_STORE" not in own:
            own |= {"HOLDFAST_STORE": shared_postgres().new_url(), "HOLDFAST_CLUSTER_KEY": "k" * 32}
            STORES[data] = own["HOLDFAST_STORE"]
            like_this = partial(Server, data, providers, config=config, args=args, timeout=timeout, program=program)
            own_logs = [f"node{number}.log" for number in range(2, nodes + 1)]
            self._peers = [like_this(env=own | _own_address(), log=name, forked=forked) for name in own_logs]
            own |= _own_address()
        super().__init__([], log=data / log, env=clean_environment() | own, cwd=data, forked=forked)

    async def __aenter__(self) -> Self:
        await self._serve()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "COVERAGE_PROCESS_CONFIG" in os.environ and self.alive:
            await self._leave_coverage()
        await self.kill9()
        if error is not None:
            error.add_note(f"--- the server's log, its last lines ---\n{self.log_text()[-4000:]}")

    def rewrite(self, config: str, providers: Sequence[Mapping[str, Any]]) -> None:
        """Write the settings file anew. What no test asks for stays as it was."""
        quick = "" if "drain" in config else "drain = 2\n"  # many tests leave runs that do not end
        self.config.write_text(config_text(quick + config, providers))

    async def restart(self, env: Mapping[str, str] | None = None) -> None:
        """Start again with the same data, on the same port. One that still runs gets SIGTERM first.

        `env` are variables that it has from now on.
        """
        if self.alive:
            await self.terminate()
        self._env |= env or {}
        await self._serve()

    def client(self, *, timeout: float = LONG, **headers: str) -> Client:
        """A client of this server; `x_session_id="…"` becomes the header `x-session-id`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Client(self.url, named, timeout=timeout, ports=[self.port, *(peer.port for peer in self._peers)])

    def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables, but for the nodes' leases and the audit log, which has refusals too."""
        if url := self.environment.get("HOLDFAST_STORE"):
            with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
                return thread.submit(asyncio.run, rows_of(url)).result()
        return kept_in(self.data / "holdfast.db", but=NOT_COMPARED)

    def log_text(self) -> str:
        """All that it has printed, to stdout and stderr, since the first start."""
        return "".join([super().log_text(), *(peer.log_text() for peer in self._peers)])

    async def kill9(self, *, group: bool = True) -> Ended:
        """SIGKILL, to its children too unless told otherwise."""
        for peer in self._peers:
            if peer.alive:
                await peer.kill9(group=group)
        return await super().kill9(group=group)

    async def terminate(self, timeout: float = LONG) -> Ended:
        """SIGTERM to the process, and wait. One that does not end in time is killed, and that is a TimeoutError."""
        await asyncio.gather(*(peer.terminate(timeout) for peer in self._peers if peer.alive))
        return await super().terminate(timeout)

    async def _leave_coverage(self) -> None:
        """A killed process writes no coverage data; one that was asked to end does."""
        try:
            await self.terminate(timeout=5.0)
        except TimeoutError:
            pass  # killed by now

    async def _serve(self) -> None:
        where = ["--port", str(self.port), "--data", str(self.data), "--config", str(self.config)]
        self.command = [*self._program, "serve", *where, *self._args]
        match = await self.start(READY, self._timeout)
        host = "127.0.0.1" if match[2] in ("0.0.0.0", "[::]") else match[2]
        self.port = int(match[3])
        self.url = f"{match[1]}://{host}:{self.port}"
        try:
            await asyncio.gather(*(peer.restart() for peer in self._peers))
        except BaseException:
            await self.kill9()
            raise


def _own_address() -> dict[str, str]:
    return {"HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}"}


class UpstreamProcess(Process):
    """U as a process, for loads and for what must not share a loop with the test. Scripts go by the model's name."""

    def __init__(self, data: Path, port: int = 0) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.port = port
        super().__init__([], log=data / "upstream.log", env=clean_environment(), cwd=ROOT)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self.command = [sys.executable, "-m", "tests.support.upstream", "--port", str(self.port)]
        match = await self.start(re.compile(r"listening on (\d+)"), LONG)
        self.port = int(match[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill9()

    async def requests(self) -> list[dict[str, Any]]:
        """The records: number, model, received_at, first_byte_at, closed_at, closed_by, finished, open, …"""
        records: list[dict[str, Any]] = (await self._ask("GET", "/_control/requests"))["requests"]
        return records

    async def open_connections(self) -> int:
        return int((await self._ask("GET", "/_control/open"))["open"])

    async def forget(self) -> None:
        await self._ask("POST", "/_control/forget")

    async def wait_until_closed(self, number: int, timeout: float = LONG) -> float:
        """Wait until the connection of that request is gone; the moment (`time.monotonic`) at which it went."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for record in await self.requests():
                if record["number"] == number and record["closed_at"] is not None:
                    return float(record["closed_at"])
            await asyncio.sleep(POLL)
        raise TimeoutError(f"after {timeout} s the connection of request {number} is still open")

    async def _ask(self, method: str, path: str) -> Any:
        async with Client(f"http://127.0.0.1:{self.port}") as client:
            return await (await client.request(method, path)).json()


def provider(base_url: str, name: str = "up", models: Sequence[str] | None = ("m",), **more: Any) -> dict[str, Any]:
    """One `[[providers]]` entry for U: `provider(up.base_url)`. With `models=None` the server has to ask U.

    U plays what a model's name says (`echo:…`), so that no list can have all of its models.
    """
    entry: dict[str, Any] = {"name": name, "dialect": "openai", "base_url": base_url, "api_key_env": "UP_KEY"}
    return entry | ({"unlisted": "pass"} if models is None else {"models": list(models)}) | more


def config_text(config: str, providers: Sequence[Mapping[str, Any]]) -> str:
    """`holdfast.toml`: JSON's strings, numbers, booleans and lists are TOML's too."""
    blocks = [config.strip()] if config.strip() else []
    for entry in providers:
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()]
        blocks.append("\n".join(["[[providers]]", *lines]))
    return "\n\n".join(blocks) + "\n"


def clean_environment() -> dict[str, str]:
    """Ours without what would change the server's settings: its own variables, real keys, proxies."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HOLDFAST_") and not re.search(r"_API_KEY$|_BASE_URL$|_proxy$", name, re.IGNORECASE)
    }
    paths = [str(ROOT / "src"), str(ROOT / "lab"), str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    nowhere = str(ROOT / "no-such-folder")  # whoever runs the tests may have settings of their own
    return kept | {
        "UP_KEY": UP_KEY,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "XDG_CONFIG_HOME": nowhere,
    }
