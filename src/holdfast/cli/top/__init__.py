"""`holdfast top`: a live view of running servers, from their metrics, and from what each says of its last minute."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack

import click

from ..client import Api, CallFailed, Object, connect
from ..commands import one_line_errors
from ..screen import safe, unfiltered
from .samples import Interval, Moment
from .view import lines

try:
    import termios
    import tty
except ImportError:  # Windows has none: Ctrl-C ends the view there
    termios = tty = None  # type: ignore[assignment]

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Use the second screen of the terminal without a cursor, and return to the first."""
HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

DrawScreen = Callable[[int, int], list[str]]
"""Returns the lines for a width and a height."""


class LiveView:
    """Draws the newest lines. A change of the window's size draws them again at once."""

    def __init__(self, draw: DrawScreen) -> None:
        self._draw = draw
        self._out = unfiltered(sys.stdout)
        self.ended = asyncio.Event()
        """Set by `q` and Ctrl-C."""

    @contextlib.contextmanager
    def full_screen(self) -> Generator[None]:
        """Draw on the terminal's second screen, and read single keys, until the block is left."""
        loop = asyncio.get_running_loop()
        self._out.write(ENTER)
        try:
            with _single_keys():
                loop.add_reader(sys.stdin.fileno(), self._typed)
                loop.add_signal_handler(signal.SIGWINCH, self.draw)
                loop.add_signal_handler(signal.SIGINT, self.ended.set)
                try:
                    yield
                finally:
                    loop.remove_reader(sys.stdin.fileno())
                    loop.remove_signal_handler(signal.SIGWINCH)
                    loop.remove_signal_handler(signal.SIGINT)
        finally:
            self._out.write(LEAVE)
            self._out.flush()

    def draw(self) -> None:
        """Draw the lines in the present size of the window."""
        width, height = os.get_terminal_size(self._out.fileno())
        lines = [safe(line)[:width] + REST_OF_LINE for line in self._draw(width, height)[:height]]
        self._out.write(HOME + "\r\n".join(lines) + REST_OF_SCREEN)
        self._out.flush()

    def _typed(self) -> None:
        if os.read(sys.stdin.fileno(), 64).lower() in (b"q", b"", b"\x03"):
            self.ended.set()


@contextlib.contextmanager
def _single_keys() -> Generator[None]:
    """Read keys as they are typed, and do not show them."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


HERE = "this machine"
METRICS_OFF = "metrics_off"
NO_METRICS = "metrics = true would show more"
"""In place of the figures of a server whose metrics are off. What it did in the last minute is shown all the same."""


@click.command()
@click.option("--url", "urls", multiple=True, envvar="HOLDFAST_URL", help="URL of a server; repeat it for each node.")
@click.option("--data", type=click.Path(), help="Data folder.")
@click.option("--config", type=click.Path(), help="Settings file (~/.config/holdfast/holdfast.toml).")
@click.option("--interval", type=click.FloatRange(0.2, 60), default=2.0, help="Seconds between two readings (2).")
@click.option("--once", is_flag=True, help="Print one interval and exit.")
@one_line_errors
def top(urls: tuple[str, ...], data: str | None, config: str | None, interval: float, once: bool) -> None:
    """Show runs, rates, latencies and errors of running servers, live.

    You need a key with admin rights. With `metrics = true` a server has figures of its models, store and event
    loop too. Press q to quit. Without a terminal, --once is implied.
    """
    is_live = not once and sys.stdout.isatty() and sys.stdin.isatty() and sys.platform != "win32"
    asyncio.run(_top(urls, data, config, interval, is_live=is_live))


async def _top(urls: tuple[str, ...], data: str | None, config: str | None, interval: float, *, is_live: bool) -> None:
    async with AsyncExitStack() as stack:
        servers = {
            url or HERE: await stack.enter_async_context(connect(url, data, config, own=False)) for url in urls or ("",)
        }
        nodes = Nodes(servers)
        await nodes.read(must_answer=True)
        if is_live:
            await _watch(nodes, interval)
            return
        await asyncio.sleep(interval)
        await nodes.read()
        width = shutil.get_terminal_size((200, 24)).columns if sys.stdout.isatty() else 10_000
        click.echo("\n".join(lines(nodes.shown, nodes.listed, width)))


class Nodes:
    """The watched servers, and the metrics of each between the last two readings."""

    def __init__(self, servers: Mapping[str, Api]) -> None:
        self._servers = servers
        self._last: dict[str, Moment] = {}
        self.shown: dict[str, Interval | str] = {}
        """The last interval of each server, or why it has none."""
        self.listed: list[Object] = []
        """The nodes of the store, as the first server that answers lists them."""

    async def read(self, *, must_answer: bool = False) -> None:
        """Read the metrics of all servers. One that does not answer is shown with its error."""
        found = await asyncio.gather(*map(self._moment, self._servers.values()))
        for name, moment in zip(self._servers, found, strict=True):
            if isinstance(moment, CallFailed):
                is_off = moment.code == METRICS_OFF
                if must_answer and not is_off and (len(self._servers) == 1 or moment.status):
                    raise moment
                self.shown[name] = NO_METRICS if is_off else str(moment)
                self._last.pop(name, None)
            else:
                self.shown[name] = Interval(self._last.get(name, moment), moment)
                self._last[name] = moment
        self.listed = await self._listed()

    async def _listed(self) -> list[Object]:
        for name, api in self._servers.items():
            if isinstance(self.shown[name], Interval) or self.shown[name] == NO_METRICS:
                with contextlib.suppress(CallFailed):  # the figures of the servers say more
                    listed: list[Object] = (await api.call("GET", "/api/nodes"))["nodes"]
                    return listed
        return []

    async def _moment(self, api: Api) -> Moment | CallFailed:
        try:
            return Moment(await api.text("/metrics"), time.monotonic())
        except CallFailed as error:
            return error


async def _watch(nodes: Nodes, interval: float) -> None:
    """Draw the view until it is ended."""

    def draw(width: int, height: int) -> list[str]:
        title = f"holdfast top  {time.strftime('%H:%M:%S')}  every {interval:g} s  q: quit"
        return [title, "", *lines(nodes.shown, nodes.listed, width, height - 2)]

    view = LiveView(draw)
    with view.full_screen():
        while not view.ended.is_set():
            view.draw()
            try:
                async with asyncio.timeout(interval):
                    await view.ended.wait()
            except TimeoutError:
                await nodes.read()
