"""An agent whose first command hangs until its server is killed, and that goes on after it by itself."""

import asyncio
from pathlib import Path

from tests.support.waiting import LONG

AGENT = """
[[agents]]
name = "lasting"
model = "scripted/steps"
tools = ["shell"]
folder = "{folder}"
approvals = {{ shell = "allow" }}
on_restart = "continue"
"""
COMMAND = "echo ran >> ran; if [ ! -e once ]; then echo half; touch once; sleep 600; fi"
"""It has its effect, and then hangs; not so the second time."""
ASKED = f'shell {{"command": "{COMMAND}"}}\nDone.'


async def hangs(folder: Path) -> None:
    """Wait until the command has had its effect, and hangs."""
    async with asyncio.timeout(LONG):
        while not (folder / "once").exists():  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)
