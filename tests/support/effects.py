"""Tools whose effects an outside witness counts: a file, with a line for each time that something has happened."""

import asyncio
import os
from pathlib import Path

from holdfast.agents import NotRun, ToolContext, tool

FOLDER = "EFFECTS_FOLDER"
"""The variable of the server with the folder of the witness."""
WITNESS = "witness"
STAGE = "stage"
"""The file that says at which point of a call the tools hang until the server is killed: `before` or `during`."""


def effects(folder: Path) -> dict[str, list[str]]:
    """What has happened: the effect ids by the name of the tool."""
    found: dict[str, list[str]] = {}
    file = folder / WITNESS
    for line in file.read_text().splitlines() if file.exists() else []:
        name, _, effect_id = line.partition(" ")
        found.setdefault(name, []).append(effect_id)
    return found


async def happen(folder: Path, name: str, effect_id: str) -> str:
    """Have an effect; hang before or after it, once, if the test says so."""
    await _hang(folder, name, "before")
    with (folder / WITNESS).open("a") as file:
        file.write(f"{name} {effect_id}\n")
    await _hang(folder, name, "during")
    return f"{name} is done"


async def _hang(folder: Path, name: str, here: str) -> None:
    paused = folder / f"{name}.paused"
    if (folder / STAGE).read_text() == here and not paused.exists():
        paused.touch()
        await asyncio.Event().wait()


def command(name: str) -> str:
    """The same as a shell command, which runs in the folder."""

    def hang(here: str) -> str:
        return f'if [ "$(cat {STAGE})" = {here} ] && [ ! -e {name}.paused ]; then touch {name}.paused; sleep 600; fi'

    return f'{hang("before")}; echo "{name} $HOLDFAST_EFFECT_ID" >> {WITNESS}; {hang("during")}; echo done'


@tool(replay="safe")
async def look(folder: str, context: ToolContext) -> str:
    """Change nothing that matters."""
    return await happen(Path(folder), "look", context.effect_id)


@tool(replay="keyed")
async def charge(folder: str, context: ToolContext) -> str:
    """Charge an account that refuses the same key twice."""
    return await happen(Path(folder), "charge", context.effect_id)


@tool
async def send(folder: str, context: ToolContext) -> str:
    """Send something that cannot be taken back."""
    return await happen(Path(folder), "send", context.effect_id)


def booking(effect_id: str) -> str | NotRun:
    """Look a booking up."""
    return "booked before" if effect_id in effects(Path(os.environ[FOLDER])).get("book", []) else NotRun()


@tool(reconcile=booking)
async def book(folder: str, context: ToolContext) -> str:
    """Book something that can be looked up."""
    return await happen(Path(folder), "book", context.effect_id)


TOOLS = [look, charge, send, book]
