"""MCP servers as others write them: time (Python), filesystem and everything (JavaScript), by stdio and by HTTP."""

import logging
import re
import sys
from pathlib import Path

import pytest

from holdfast.agents.mcp.described import McpServer
from holdfast.agents.mcp.pool import ToolServer
from holdfast.agents.tools import ToolContext
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.server import Process, clean_environment
from tests.support.waiting import LONG

BIN = Path(sys.executable).parent
PACKAGES = Path(__file__).parent / "node_modules" / "@modelcontextprotocol"
EVERYTHING = str(PACKAGES / "server-everything" / "dist" / "index.js")
FILESYSTEM = str(PACKAGES / "server-filesystem" / "dist" / "index.js")


def server(**more) -> ToolServer:
    return ToolServer(McpServer(approval="allow", **more))


async def call(there: ToolServer, name: str, **arguments):
    tools = {tool.name: tool for tool in await there.tools()}
    return await tools[name].call(arguments, ToolContext())


@requirement("mcp.tools")
async def test_the_time_server_tells_the_time():
    """A server from PyPI."""
    there = server(name="time", command=str(BIN / "mcp-server-time"))
    try:
        told = await call(there, "time__get_current_time", timezone="UTC")
        wrong = await call(there, "time__get_current_time", timezone="Nowhere/Else")
    finally:
        await there.close()

    assert '"timezone": "UTC"' in told.text
    assert (False, True) == (told.is_error, wrong.is_error)


@requirement("mcp.tools")
async def test_the_filesystem_server_reads_its_folder_and_no_other(tmp_path):
    """A server from npm, which speaks the protocol with the handshake."""
    (tmp_path / "note.txt").write_text("Hold fast.")
    there = server(name="fs", command=str(BIN / "node"), args=(FILESYSTEM, str(tmp_path)))
    try:
        read = await call(there, "fs__read_text_file", path=str(tmp_path / "note.txt"))
        outside = await call(there, "fs__read_text_file", path="/etc/hostname")
    finally:
        await there.close()

    assert (False, "Hold fast.") == (read.is_error, read.text)
    assert outside.is_error


@requirement("mcp.tools")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_everything_server_shows_every_kind_of_content(tmp_path, transport, caplog):
    """Text for the model; pictures and resources named there, and kept for people as they were sent."""
    caplog.set_level(logging.INFO, "holdfast")
    port = free_port()
    env = clean_environment() | {"PORT": str(port)}
    process = Process([str(BIN / "node"), EVERYTHING, "streamableHttp"], log=tmp_path / "log", env=env, cwd=tmp_path)
    if transport == "http":
        await process.start(re.compile("listening on port"), LONG)
        there = server(name="all", url=f"http://127.0.0.1:{port}/mcp")
    else:
        there = server(name="all", command=str(BIN / "node"), args=(EVERYTHING, "stdio"))
    try:
        echoed = await call(there, "all__echo", message="hello")
        picture = await call(there, "all__get-tiny-image")
        structured = await call(there, "all__get-structured-content", location="Chicago")
    finally:
        await there.close()
        if transport == "http":
            await process.kill9()

    assert "hello" in echoed.text
    assert "[image: image/png, " in picture.text
    assert [("image", "image/png")] == [(block["type"], block["mimeType"]) for block in picture.content]
    assert "temperature" in structured.text
    assert "connected to MCP server all, protocol 2025-11-25" in caplog.text
