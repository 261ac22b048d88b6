"""The server's log is written by the server alone, whatever names and errors come from others."""

import re
import sys
from pathlib import Path

from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server

FORGED = "2026-01-01 00:00:00,000 ERROR forged"
ENTRY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ")
MCP = f"import sys; sys.stderr.write('late\\r{FORGED} \\x1b]0;owned\\x07\\n')"


def entries(log: str) -> list[str]:
    """What a reader takes for entries of the log."""
    return [line for line in log.splitlines() if ENTRY.match(line)]


@requirement("safe.log")
async def test_a_name_that_a_client_chose_forges_no_entry(tmp_path):
    """Anyone with a key could write what an administrator would believe, or set the title of a terminal."""
    async with Server(tmp_path) as server, server.client() as client:
        for end in ("\n", "\r\n", "\r", "\x0b", "\x1c", "\u2028", "\x85"):
            model = f"scripted/fail:x{end}{FORGED} \x1b]0;owned\x07 \u202e"
            said = [{"role": "user", "content": "Hi"}]
            response = await client.post("/v1/chat/completions", {"model": model, "messages": said})
            assert 406 == response.status
        log = server.log_text()

    assert 7 == log.count("forged") == len([entry for entry in entries(log) if "scripted/fail" in entry])
    assert not [entry for entry in entries(log) if entry.startswith(FORGED)]
    assert log.replace("\n", "").isprintable()


@requirement("safe.log")
async def test_what_an_mcp_server_says_of_its_errors_forges_no_entry(tmp_path):
    """Its program was written by others, and quotes what it was sent."""
    (tmp_path / "noisy.py").write_text(MCP)
    command = f'command = "{sys.executable}"\nargs = ["{tmp_path / "noisy.py"}"]'
    config = f'[[mcp]]\nname = "noisy"\n{command}\n[[agents]]\nname = "a"\nmodel = "scripted/echo"\n'
    async with Server(Path(tmp_path, "data"), config=config + 'tools = ["mcp:noisy"]\n') as server:
        async with server.client() as client:
            api = Native(client)
            await api.settled(await api.start(await api.new_session(), "Hi", "agent/a"))
        log = server.log_text()

    assert "forged" in log
    assert not [entry for entry in entries(log) if entry.startswith(FORGED)]
    assert log.replace("\n", "").isprintable()
