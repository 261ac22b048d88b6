"""Times a newcomer's path: from a clone to the first answer, and to three servers with metrics.

`.venv/bin/python -m scripts.newcomer` clones this repository, as committed, twice into a temporary folder, and types
what the README says. Packages come from the index, or from the caches of pip and uv; `--no-cache` does without these.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

ROOT = Path(__file__).parents[1]
LONGEST = 900.0
"""Seconds after which a step is given up."""
PAUSE = 0.05


class Stopwatch:
    """Prints the seconds since the first command."""

    def __init__(self, title: str) -> None:
        print(title, flush=True)
        self._began = time.monotonic()

    def note(self, step: str) -> None:
        """Print a step that is done."""
        print(f"  {time.monotonic() - self._began:6.1f} s  {step}", flush=True)

    def until(self, step: str, is_done: Callable[[], bool]) -> None:
        """Wait for a step, and print it."""
        while not is_done():
            if time.monotonic() - self._began > LONGEST:
                raise SystemExit(f"{step}: not within {LONGEST:g} s")
            time.sleep(PAUSE)
        self.note(step)


def main() -> None:
    """Print the seconds of each step."""
    options = argparse.ArgumentParser(prog="python -m scripts.newcomer", description=__doc__)
    options.add_argument("--no-cache", action="store_true", help="download every package")
    no_cache = {"UV_NO_CACHE": "1", "PIP_NO_CACHE_DIR": "1"} if options.parse_args().no_cache else {}
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")} | no_cache
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-newcomer-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user if this one is root
        first_answer(Path(folder) / "one", env)
        cluster(Path(folder) / "three", env)


def first_answer(clone: Path, env: dict[str, str]) -> None:
    """From nothing to the first answer of one server."""
    watch = Stopwatch("One server: git clone, make serve")
    with _served(clone, "serve", env, watch) as url:
        watch.until("answers (scripted/echo)", lambda: _answer(url, "scripted/echo") is not None)
        watch.until("the built-in model has answered", lambda: _answer(url, "local/smollm2") is not None)


def cluster(clone: Path, env: dict[str, str]) -> None:
    """From nothing to three servers that answer and measure themselves."""
    watch = Stopwatch("Three servers with metrics: git clone, HOLDFAST_METRICS=true make serve-cluster")
    with _served(clone, "serve-cluster", env | {"HOLDFAST_METRICS": "true"}, watch) as url:
        watch.until("answers (scripted/echo)", lambda: _answer(url, "scripted/echo") is not None)
        watch.until("metrics count three servers", lambda: "\nholdfast_nodes 3.0\n" in _text(f"{url}/metrics"))


@contextmanager
def _served(clone: Path, target: str, env: dict[str, str], watch: Stopwatch) -> Iterator[str]:
    """Clone, and run a target of make until the block is left. Yields the URL of the server, once it listens."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    watch.note("cloned")
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = ["make", "--silent", target, f"ARGS=--port {port} --data {clone / 'data'}"]
    with (clone.parent / f"{target}.log").open("w+") as log:
        process = subprocess.Popen(command, cwd=clone, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            watch.until("installed, and ready", lambda: _is_ready(process, url, Path(log.name)))
            yield url
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _is_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    if process.poll() is not None:
        raise SystemExit(log.read_text())
    return bool(_text(f"{url}/ready"))


def _text(url: str, body: Any = None) -> str:
    """Return the body of a response; empty if there is none, or an error."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=LONGEST) as response:
            found: str = response.read().decode()
            return found
    except OSError:
        return ""


def _answer(url: str, model: str) -> str | None:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    answered = _text(f"{url}/v1/chat/completions", body)
    return json.loads(answered)["choices"][0]["message"]["content"] if answered else None


if __name__ == "__main__":
    main()
