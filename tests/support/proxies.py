"""nginx and Caddy in front of a server, set up as the guide says, and a tap on what they send to it."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.programs import CADDY, NGINX
from tests.support.server import ROOT
from tests.support.waiting import LONG

NGINX_AROUND = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr warn;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}}
"""
CADDY_AROUND = """{{
	admin off
	auto_https off
}}

{site}
"""


def documented(page: str, language: str) -> str:
    """The block of a guide that people copy."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return block


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """A block of a guide as it is, but for places and names."""
    for written, here in changes.items():
        assert 1 == text.count(written), f"{written!r} is not in the guide"
        text = text.replace(written, here)
    return text


def _places(ports: Sequence[int]) -> dict[str, str]:
    """The addresses of the servers in the guide, and where they are here."""
    return {f"10.0.0.{number}:8787": f"127.0.0.1:{port}" for number, port in enumerate(ports, 1)}


@asynccontextmanager
async def nginx(folder: Path, server_port: int, *more: int) -> AsyncIterator[str]:
    """nginx in front of a server, or of several, without TLS. Its address."""
    program, port = NGINX.find_or_skip(), free_port()
    text = documented("reverse-proxy.md", "nginx")
    if more:
        (one,) = re.findall(r"^upstream holdfast \{.*?^\}\n", text, re.MULTILINE | re.DOTALL)
        several = replaced(documented("cluster.md", "nginx"), _places([server_port, *more]))
        text = replaced(text, {one: several, "proxy_next_upstream off;": "proxy_next_upstream error;"})
    else:
        text = replaced(text, {"server 127.0.0.1:8787;": f"server 127.0.0.1:{server_port};"})
    site = replaced(text, {"listen 443 ssl;": f"listen 127.0.0.1:{port};"})
    site = re.sub(r"^ *ssl_certificate.*\n", "", site, flags=re.M)
    config = folder / "nginx.conf"
    config.write_text(NGINX_AROUND.format(folder=folder, site=site))
    async with running([program, "-p", str(folder), "-c", str(config)], folder, port) as url:
        yield url


@asynccontextmanager
async def caddy(folder: Path, server_port: int, *more: int) -> AsyncIterator[str]:
    """Caddy in front of a server, or of several, without TLS. Its address."""
    program, port = CADDY.find_or_skip(), free_port()
    if more:
        text = replaced(documented("cluster.md", "caddyfile"), _places([server_port, *more]))
    else:
        text = replaced(
            documented("reverse-proxy.md", "caddyfile"),
            {"reverse_proxy 127.0.0.1:8787 {": f"reverse_proxy 127.0.0.1:{server_port} {{"},
        )
    site = replaced(text, {"chat.example.com {": f"http://:{port} {{\n\tbind 127.0.0.1"})
    config = folder / "Caddyfile"
    config.write_text(CADDY_AROUND.format(site=site))
    command = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
    async with running(command, folder, port) as url:
        yield url


@asynccontextmanager
async def running(command: Sequence[str], folder: Path, port: int) -> AsyncIterator[str]:
    """A program that listens on a port, from when it does. Its address."""
    log = folder / "proxy.log"
    with log.open("wb") as file:
        environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        process = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file, env=environment)
    try:
        async with asyncio.timeout(LONG):
            while not await _answers(port):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


class Tap:
    """Stands between a proxy and a server: passes everything on, and keeps what the proxy sent on each connection."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._tasks: list[asyncio.Future[list[None]]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.connections: list[bytearray] = []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Tap"]:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()
            await asyncio.gather(*self._tasks)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = bytearray()
        self.connections.append(sent)
        answers, asking = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers += writer, asking
        copying = asyncio.gather(_copy(reader, asking, sent), _copy(answers, writer))
        self._tasks.append(copying)
        await copying


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray | None = None) -> None:
    try:
        while data := await reader.read(65536):
            if kept is not None:
                kept += data
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
