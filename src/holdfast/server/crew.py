"""Several processes that are one server: how they find each other, what they share, and how they live and end.

The *owner* has the data folder and is all of a server. The *workers* accept connections on the same socket and carry
what nobody keeps (`whose.py`). The owner starts them, and starts them again; they end when it does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import NamedTuple

import msgspec
from starlette.applications import Starlette

from .app import create_worker_app, share
from .board import Board, new_board
from .boxes import Box, Handed, Inbox, Outbox, new_boxes
from .context import Parts
from .door import Door, House
from .serving import Server, address, configuration, run_server
from .settings import Settings
from .whose import OWNER, Whose

logger = logging.getLogger("holdfast")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a worker that has ended is started again; twice as long each time that it did not live long."""
LONG = 30.0
"""Seconds after which a worker has lived long."""
LAST_WORDS = 6.0
"""Seconds that a worker has to end, once its runs may drain no longer; then it is killed."""
LONGEST_CLEARANCE = 2.0
"""Seconds that others have to take what a worker hands over while it ends."""
HURRY = signal.SIGUSR1
"""Says that nobody is to drain any longer. A second SIGTERM does not: whoever ends all processes at once sends one to a
worker, and so does its owner."""


class Orders(msgspec.Struct, frozen=True):
    """What a worker is told when it starts, in one line. The pipe it comes through stays open while the owner lives."""

    settings: Settings
    sources: dict[str, str]
    has_agents: bool
    process: int
    size: int
    listening: int
    board: int
    puts: list[int]
    take: int

    def line(self) -> bytes:
        """Return it as one line. It is no JSON, which has no word for the infinite numbers that a setting may have."""
        return base64.b64encode(msgspec.msgpack.encode(self)) + b"\n"

    @classmethod
    def of(cls, line: bytes) -> Orders:
        """Return what a line tells."""
        return msgspec.msgpack.decode(base64.b64decode(line), type=cls)


class Shared(NamedTuple):
    """What all processes of a server have."""

    listening: socket.socket
    board: int
    boxes: Sequence[Box]


def serve_together(
    app: Starlette,
    sock: socket.socket,
    processes: int,
    on_ready: Callable[[str], None],
    sources: Mapping[str, str],
) -> bool:
    """Serve with several processes until a signal; this one is the owner. True where it started and ended well."""
    parts: Parts = app.state.parts
    shared = Shared(sock, new_board(), new_boxes(processes))
    board = Board(shared.board, OWNER, processes)
    share(parts, board)
    has_agents = bool(parts.agents.agents or parts.agents.published)
    house = _house(parts, board, [box.put for box in shared.boxes], has_agents)
    server = Server(configuration(app, partial(Door, house=house)), app, lambda: on_ready(address(sock)))
    server.others = Workers(shared, board, parts.settings, sources, has_agents)
    return run_server(server, sock)


def _house(parts: Parts, board: Board, puts: Sequence[socket.socket], has_agents: bool) -> House:
    whose = Whose(board, parts.settings, parts.configured, has_agents=has_agents)
    return House(board, whose, [Outbox(put) for put in puts])


class Welcome:
    """Makes connections of this process of those that others hand over."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, handed: Handed) -> None:
        """Go on with a connection."""
        task = asyncio.create_task(self._go_on(handed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go_on(self, handed: Handed) -> None:
        server = self._server
        door: Callable[..., asyncio.Protocol] = server.config.http_protocol_class
        make = partial(
            door,
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
            handed=handed,
        )
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make, handed.connection)
        except OSError as error:
            logger.debug("a client left while its connection was handed over: %s", error)
            handed.connection.close()


class Workers:
    """The workers as their owner sees them: `Others` of its server.

    Costs a small task for each. The box of a worker that is not there is emptied by the owner, so that no connection
    waits for it.
    """

    def __init__(
        self, shared: Shared, board: Board, settings: Settings, sources: Mapping[str, str], has_agents: bool
    ) -> None:
        self._shared = shared
        self._board = board
        self._settings = settings
        self._sources = dict(sources)
        self._has_agents = has_agents
        self._ends = asyncio.Event()
        self._going_on: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, server: Server) -> None:
        """Take what workers hand over, and start them."""
        welcome = Welcome(server)
        self._inbox = self._look_into(OWNER, welcome)
        self._board.come_up()
        workers = range(1, self._board.size)
        self._tasks = [asyncio.create_task(self._look_after(worker, welcome)) for worker in workers]

    def begin_to_end(self) -> None:
        """Let the workers drain, too."""
        self._ends.set()
        self._board.begin_to_end()
        self._ends_by = asyncio.get_running_loop().time() + self._settings.drain + LAST_WORDS
        self._signal(signal.SIGTERM)

    def hurry(self) -> None:
        """A second signal cuts their draining short."""
        self._signal(HURRY)

    async def end(self) -> None:
        """Wait until all workers have ended; one that does not is killed."""
        left = max(0.0, self._ends_by - asyncio.get_running_loop().time())
        if self._tasks and (await asyncio.wait(self._tasks, timeout=left))[1]:
            logger.error("workers that did not end are killed: %s", sorted(self._going_on))
            self._signal(signal.SIGKILL)
            await asyncio.wait(self._tasks)
        self._inbox.close()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._going_on.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def _look_into(self, box: int, welcome: Welcome) -> Inbox:
        return Inbox(self._shared.boxes[box].take, self._board, box, welcome)

    async def _look_after(self, worker: int, welcome: Welcome) -> None:
        """Start a worker, again and again, until the server ends."""
        pause, loop = FIRST_PAUSE, asyncio.get_running_loop()
        while not self._ends.is_set():
            began = loop.time()
            try:
                code: int | str = await self._lived(worker)
            except OSError as error:
                code = f"it cannot be started: {error.strerror}"
            self._board.clear(worker)
            inbox = self._look_into(worker, welcome)  # what is in its box is the owner's
            if not self._ends.is_set():
                pause = FIRST_PAUSE if loop.time() - began > LONG else min(pause * 2, LONGEST_PAUSE)
                logger.error("worker %d has ended (%s), and is started again in %.1f s", worker, code, pause)
                await self._pause(pause)
            inbox.close()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ends.wait(), seconds)

    async def _lived(self, worker: int) -> int:
        """Start a worker and wait for its end."""
        shared = self._shared
        puts, take = [box.put.fileno() for box in shared.boxes], shared.boxes[worker].take.fileno()
        orders = Orders(
            settings=self._settings,
            sources=self._sources,
            has_agents=self._has_agents,
            process=worker,
            size=self._board.size,
            listening=shared.listening.fileno(),
            board=shared.board,
            puts=puts,
            take=take,
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "holdfast.cli.worker"),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[shared.listening.fileno(), shared.board, *puts, take],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # the same modules as here
        )
        self._going_on[worker] = process
        try:
            assert process.stdin is not None
            with contextlib.suppress(ConnectionError):
                process.stdin.write(orders.line())
                await process.stdin.drain()
            if self._ends.is_set():
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            return await process.wait()
        finally:
            del self._going_on[worker]


# A worker's own side.


class Owner:
    """The owner as a worker sees it: `Others` of its server."""

    def __init__(self, orders: Orders, board: Board, life: int) -> None:
        self._orders = orders
        self._board = board
        self._life = life
        self._take = socket.socket(fileno=orders.take)

    async def begin(self, server: Server) -> None:
        """Take what others hand over, and end at once when the owner is gone."""
        self._inbox = Inbox(self._take, self._board, self._board.me, Welcome(server))
        asyncio.get_running_loop().add_reader(self._life, self._end_at_once)
        self._board.come_up()

    def _end_at_once(self) -> None:
        """The owner was killed: whoever starts the server anew needs the port, and the clients were told nothing."""
        if not os.read(self._life, 1):
            os._exit(1)

    def begin_to_end(self) -> None:
        """Be given nothing more but what asks for a run of this process."""
        self._board.go_down()

    def hurry(self) -> None:
        """Nobody else has to be told."""

    async def end(self) -> None:
        """Leave what still comes to the owner."""
        self._inbox.close()


class WorkerServer(Server):
    """Ends when its owner says so: Ctrl-C, which reaches all processes, is for the owner to take."""

    ways: Sequence[Outbox] = ()
    """The ways out of this process."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End when the connections that were handed over last are out of this process, too."""
        await super().shutdown(sockets)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_CLEARANCE):
                for way in self.ways:
                    await way.is_empty.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take only the owner's signals."""
        signal.signal(signal.SIGTERM, self.handle_exit)
        signal.signal(HURRY, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, or end at once."""
        if sig == HURRY or not self.should_exit:
            super().handle_exit(sig, frame)


def work(life: int) -> bool:
    """Be a worker: read the orders from a pipe, and serve until the owner says so, or is gone."""
    with open(life, "rb", buffering=0, closefd=False) as pipe:
        orders = Orders.of(pipe.readline())
    logging.basicConfig(
        level=orders.settings.log_level.upper(),
        format=f"%(asctime)s %(levelname)s worker {orders.process}: %(message)s",
    )
    board = Board(orders.board, orders.process, orders.size)
    app = create_worker_app(orders.settings, board, sources=orders.sources)
    puts = [socket.socket(fileno=put) for put in orders.puts]
    house = _house(app.state.parts, board, puts, orders.has_agents)
    server = WorkerServer(configuration(app, partial(Door, house=house)), app, lambda: None)
    server.others, server.ways = Owner(orders, board, life), house.ways
    listening = socket.socket(fileno=orders.listening)
    listening.setblocking(False)  # its copies are made to be as it is, and with them it is in all processes
    return run_server(server, listening)
