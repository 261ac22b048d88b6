"""Runs one client of the matrix in its own environment: a task for each line of stdin, JSON lines as the answer.

python run.py DRIVER VARIANT        # the address and the key of the server are in HOLDFAST_URL and HOLDFAST_KEY

A driver is a module with `ask`, and `tools`, `structured` and `picture` if its client has them. Each takes an `At`
and the name of a model, and is a coroutine function or a function, as the client is used.
"""

import asyncio
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PROMPT = "What is the wave?"


class LeaveAsked(BaseException):
    """The program leaves the client's stream: no handler of the client may take it for an error."""


@dataclass
class At:
    """What a driver is given: the server, and what to do with each piece of text that the client hands out."""

    variant: str
    url: str
    key: str
    heard: Callable[[str], None] = print
    prompt: str = PROMPT
    picture: str = ""
    """A PNG in base64."""
    v1: str = field(init=False)

    def __post_init__(self) -> None:
        self.v1 = f"{self.url}/v1"


def load(path: str) -> Any:
    """Import a driver by its path. Its folder is not on `sys.path`: no driver hides the package that it is for."""
    spec = importlib.util.spec_from_file_location("driver", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["driver"] = module  # clients look their callers' types up there
    spec.loader.exec_module(module)
    return module


class Session:
    """Tasks one after the other, on one event loop."""

    def __init__(self, driver: Any, at: At) -> None:
        self.driver, self.at = driver, at
        # Clients print what they like: only this has the answers.
        self.out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        os.dup2(2, 1)

    def run(self) -> None:
        with asyncio.Runner() as runner:
            while line := runner.run(asyncio.to_thread(sys.stdin.readline)):
                self.tell(self.done(runner, json.loads(line)))

    def done(self, runner: asyncio.Runner, task: dict[str, Any]) -> dict[str, Any]:
        """Do what one line asks for: the answer, or what the client raised."""
        function = getattr(self.driver, task["do"])
        self.at.picture = task.get("picture", "")
        given = [self.at, task["model"], *([task["stream"]] if task["do"] == "ask" else [])]
        try:
            if inspect.iscoroutinefunction(function):
                return {"answer": runner.run(self.asked(function, given, task["leave"]))}
            self.at.heard = self.leave if task["leave"] else self.hear
            return {"answer": function(*given)}
        except LeaveAsked:
            return {"answer": None}
        except Exception as error:  # noqa: BLE001 - whatever the client raises is what its user sees
            return {"raised": f"{type(error).__name__}: {error}"[:2000]}

    async def asked(self, function: Any, given: list[Any], leaves: bool) -> Any:
        """Call it in a task, which is cancelled after the first piece if the program leaves."""
        asking = asyncio.ensure_future(function(*given))

        def hear(text: str) -> None:
            self.hear(text)
            if leaves and text:
                asking.cancel()

        self.at.heard = hear
        await asyncio.wait({asking})
        return None if asking.cancelled() else asking.result()

    def hear(self, text: str) -> None:
        if text:
            self.tell({"piece": text})

    def leave(self, text: str) -> None:
        if text:
            self.hear(text)
            raise LeaveAsked

    def tell(self, said: dict[str, Any]) -> None:
        self.out.write(json.dumps(said) + "\n")
        self.out.flush()


def main() -> None:
    path, variant = sys.argv[1:]
    at = At(variant, os.environ["HOLDFAST_URL"], os.environ["HOLDFAST_KEY"])
    Session(load(path), at).run()


if __name__ == "__main__":
    main()
