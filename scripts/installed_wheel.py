"""The check of a built wheel: installed in an empty environment, does it serve the page, the API and a model?

Nothing of the checkout is used but the locks, whose versions and hashes the installation must have.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SECONDS = 300.0
"""For each step, the download of the built-in model included."""
READY = re.compile(r"is ready on (http://\S+)")


class WheelFailed(Exception):
    """A step of the check failed. The message says which, and why."""


def check_wheel(
    wheel: Path, locks: Sequence[Path], extras: str, version: str, *, model: str = "", python: str = sys.executable
) -> Iterator[str]:
    """Install the wheel with these extras, start its server, and yield a line for each part that works.

    `model` is a real model that has to answer too. `python` is an interpreter, or a version that uv finds.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-release-") as folder:
        place = Path(folder)
        own = _environment(place / "venv", python)
        _install(own, wheel, locks, extras)
        program = str(own.with_name("holdfast"))
        printed = _run([program, "--version"], place).strip()
        if not printed.endswith(f" {version}"):
            raise WheelFailed(f"`holdfast --version` prints {printed!r}, but the version is {version}.")
        yield f"installed holdfast[{extras}], and nothing else, in an empty environment"
        with _serving(program, place) as url:
            yield from _answers(url, model)


def _environment(folder: Path, python: str) -> Path:
    """Make an empty environment and return its Python."""
    _run([_uv(), "venv", "--quiet", "--python", python, str(folder)], folder.parent)
    return folder / "bin" / "python"


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def _install(python: Path, wheel: Path, locks: Sequence[Path], extras: str) -> None:
    """Install the wheel and what its own metadata asks for, at locked versions and hashes.

    If only pip knows a mirror, it installs the locks: pip takes no hashes from constraints.
    """
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wanted = python.parents[1] / "wanted.txt"
    wanted.write_text(f"holdfast[{extras}] @ {wheel.resolve().as_uri()}#sha256={digest}\n")
    uv = [_uv(), "pip", "install", "--quiet", "--python", str(python), "-r", str(wanted)]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-r", str(wanted)]
    try:
        _run([*uv, *(part for lock in locks for part in ("--constraint", str(lock)))], wheel.parent)
    except WheelFailed as error:
        try:
            _run([*pip, *(part for lock in locks for part in ("-r", str(lock)))], wheel.parent)
        except WheelFailed as second:
            raise WheelFailed(f"Neither uv nor pip could install it. {error}\n{second}") from None
    _run([_uv(), "pip", "check", "--quiet", "--python", str(python)], wheel.parent)


def _clean() -> dict[str, str]:
    """The environment without what could reach the checkout, another server, or a paid model."""
    pattern = re.compile(r"^(HOLDFAST_|PYTHON|VIRTUAL_ENV)|_API_KEY$|_BASE_URL$|_proxy$", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if not pattern.search(name)}
    return kept | {"PATH": os.pathsep.join([str(Path(_uv()).parent), os.environ.get("PATH", os.defpath)])}


def _run(command: Sequence[str], folder: Path) -> str:
    ended = subprocess.run(
        command, cwd=folder, env=_clean(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if ended.returncode:
        raise WheelFailed(f"{' '.join(command)} failed with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


@contextlib.contextmanager
def _serving(program: str, folder: Path) -> Iterator[str]:
    """Start the server on a free port, yield its address, and end it as a service manager does."""
    nowhere = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    command = [program, "serve", "--port", "0", "--host", "127.0.0.1", "--data", str(folder / "data")]
    with subprocess.Popen(
        command, cwd=folder, env=_clean() | nowhere, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        limit = threading.Timer(SECONDS, server.kill)
        limit.start()
        try:
            yield _address(server)
            server.terminate()
            if code := server.wait(SECONDS):
                raise WheelFailed(f"The server ended with {code} after SIGTERM.")
        finally:
            limit.cancel()
            server.kill()


def _address(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    printed = ""
    for line in server.stdout:
        printed += line
        if found := READY.search(line):
            threading.Thread(target=server.stdout.read, daemon=True).start()  # a full pipe would stop the server
            return found[1].rstrip("/.")
    raise WheelFailed(f"The server ended before it was ready:\n{printed}")


# what must work


def _answers(url: str, model: str) -> Iterator[str]:
    page = _get(f"{url}/").decode()
    files = sorted(set(re.findall(r'(?:src|href)="(/[^"]+)"', page)))
    if not files or not all(_get(url + name) for name in files):
        raise WheelFailed("The page has no files, or an empty one.")
    yield f"the page and its {len(files)} files"
    _get(f"{url}/ready")
    completion = _post(f"{url}/v1/chat/completions", _asking("scripted/echo", "Hello there"))
    _expect("the scripted model", "Hello there", completion["choices"][0]["message"]["content"])
    session = _post(f"{url}/api/sessions", {})["id"]
    run = _post(f"{url}/api/sessions/{session}/runs", {"input": "Keep this", "model": "scripted/echo"})["id"]
    _expect("the events of a run", True, b"run.settled" in _get(f"{url}/api/runs/{run}/events"))
    _expect("the outcome of a run", "completed", json.loads(_get(f"{url}/api/runs/{run}"))["settlement"]["outcome"])
    yield "the API: /ready, /v1/chat/completions, a stored run of a session"
    if model:
        completion = _post(f"{url}/v1/chat/completions", _asking(model, "Say hello.") | {"max_tokens": 16})
        _expect(f"an answer of {model}", True, bool(completion["choices"][0]["message"]["content"]))
        yield f"an answer of {model}: {completion['choices'][0]['message']['content']!r}"


def _asking(model: str, prompt: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": prompt}]}


def _expect(what: str, wanted: object, found: object) -> None:
    if wanted != found:
        raise WheelFailed(f"{what}: expected {wanted!r}, but it was {found!r}.")


def _get(url: str) -> bytes:
    return _ask(urllib.request.Request(url))


def _post(url: str, body: object) -> Any:
    headers = {"content-type": "application/json"}
    return json.loads(_ask(urllib.request.Request(url, json.dumps(body).encode(), headers)))


def _ask(request: urllib.request.Request) -> bytes:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=SECONDS) as response:
            content: bytes = response.read()
    except OSError as error:
        detail = error.read().decode(errors="replace") if hasattr(error, "read") else ""
        raise WheelFailed(f"{request.get_method()} {request.selector} failed: {error} {detail}".strip()) from None
    return content
