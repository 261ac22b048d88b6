"""Blocking code as a model on every wire. Try it: holdfast serve --agent sorter=blocking_agent:agent"""

import subprocess
from collections.abc import Callable

from holdfast.agents import AgentRequest


def agent(request: AgentRequest, emit: Callable[[str], None]) -> None:
    """Sort the lines of what was asked. A stop ends the program that sorts them."""
    process = subprocess.Popen(["sort"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    request.on_stop(lambda reason: process.terminate())
    lines, _ = process.communicate(request.text)
    for line in lines.splitlines(keepends=True):
        emit(line)
