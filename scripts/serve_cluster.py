"""Three servers on one PostgreSQL, and a small proxy in front of them, on this machine: `make serve-cluster`.

The database is in a temporary folder, and gone afterwards. The proxy takes the next node that accepts a connection.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections import deque
from pathlib import Path

from tests.support.ports import free_port
from tests.support.postgres import Postgres

NODES = 3
END_SECONDS = 30.0
"""For the nodes to end their runs after a signal."""


class Proxy:
    """Passes connections on to one node after the other. Nodes that refuse are left out, each time anew."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = deque(ports)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes in both directions, until one end leaves."""
        try:
            there, back = await self._connect()
        except OSError:
            writer.transport.abort()  # no node is left
            return
        carrying = {asyncio.create_task(_carry(reader, back)), asyncio.create_task(_carry(there, writer))}
        try:
            await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in carrying:
                task.cancel()
            for end in (back, writer):
                end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in range(len(self._ports) - 1):
            self._ports.rotate(-1)
            with contextlib.suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", self._ports[0])
        self._ports.rotate(-1)
        return await asyncio.open_connection("127.0.0.1", self._ports[0])


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


async def _start(number: int, port: int, data: Path, env: dict[str, str]) -> Process:
    """Start a node, and wait until it accepts connections. The first one downloads the demo model for all."""
    own = {**env, "HOLDFAST_NODE_ADDRESS": f"127.0.0.1:{free_port()}"} | (
        {"HOLDFAST_OFFLINE": "1"} if number > 1 else {}
    )
    where = ["--host", "127.0.0.1", "--port", str(port), "--data", str(data)]
    file = data / f"node-{number}.log"
    with file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "serve", *where),
            stdin=DEVNULL,
            stdout=log,
            stderr=STDOUT,
            env=own,
            start_new_session=True,  # Ctrl+C is for this script, which ends the nodes
        )
    while process.returncode is None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            print(f"Node {number}: process {process.pid}, http://127.0.0.1:{port}", flush=True)
            return process
        await asyncio.sleep(0.1)
    raise SystemExit(file.read_text(errors="replace"))


async def _tell_of_end(number: int, process: Process) -> None:
    code = await process.wait()
    print(f"Node {number} (process {process.pid}) has ended with {code}.", flush=True)


async def _serve(port: int, postgres: Postgres, data: Path) -> int:
    """Serve until a signal. Return 1 if all nodes have ended before."""
    signalled = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, signalled.set)
    store = postgres.url(await postgres.new_database())
    env = {**os.environ, "HOLDFAST_STORE": store, "HOLDFAST_CLUSTER_KEY": secrets.token_hex(16)}
    ports = [free_port() for _ in range(NODES)]
    proxy = await asyncio.start_server(Proxy(ports).accept, "127.0.0.1", port)
    nodes: list[Process] = []
    try:
        for number, own in enumerate(ports, 1):
            nodes.append(await _start(number, own, data, env))
        ends = [asyncio.create_task(_tell_of_end(number, node)) for number, node in enumerate(nodes, 1)]
        print(f"Holdfast is ready on http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}", flush=True)
        print(f"Kill any node, such as: kill -9 {nodes[0].pid}. Ctrl+C ends everything.", flush=True)
        asked = asyncio.create_task(signalled.wait())
        every = asyncio.gather(*ends)
        await asyncio.wait({asked, every}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        return 0 if signalled.is_set() else 1
    finally:
        proxy.close()
        await _end(nodes)


async def _end(nodes: list[Process]) -> None:
    for node in nodes:
        if node.returncode is None:
            node.terminate()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await asyncio.gather(*(node.wait() for node in nodes))
    for node in nodes:
        if node.returncode is None:
            node.kill()


def main() -> int:
    """Start PostgreSQL, serve, and end everything."""
    options = argparse.ArgumentParser(prog="make serve-cluster", description=__doc__)
    options.add_argument("--port", type=int, default=8787, help="port of the proxy (8787)")
    options.add_argument("--data", type=Path, default=Path(sys.prefix) / "cluster", help="data folder of all nodes")
    given = options.parse_args()
    data: Path = given.data.absolute()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    postgres = Postgres(is_durable=True)
    try:
        print(f"PostgreSQL: port {postgres.port}. Logs of the nodes: {data}", flush=True)
        return asyncio.run(_serve(given.port, postgres, data))
    finally:
        postgres.stop()


if __name__ == "__main__":
    sys.exit(main())
