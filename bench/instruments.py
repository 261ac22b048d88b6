"""The upstream and the load client as Python sees them."""

import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench import machine
from bench.load.build import build


class Http:
    """One kept connection that speaks JSON."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """The status and the decoded answer."""
        text = None if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json"} if text else {}
        self._connection.request(method, path, text, kind | (headers or {}))
        answer = self._connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw[:1] in (b"{", b"[") else raw

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer; anything but a 2xx ends the measurement."""
        status, answer = self.call(method, path, body)
        if not 200 <= status < 300:
            raise Failed(f"{method} {path}: {status} {answer}")
        return answer

    def close(self) -> None:
        self._connection.close()


class Failed(Exception):
    """A target did not do what the scenario needs."""


class Upstream:
    """The upstream's process and its control calls."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [build("upstream"), "--port", "0"], stdout=subprocess.PIPE, preexec_fn=machine.pin_load
        )
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid
        self._control = Http(self.port)
        self._closes_before = 0

    def stats(self) -> dict[str, Any]:
        return dict(self._control.ask("GET", "/_control/stats"))

    def reset(self) -> None:
        """Counts from zero; closes that were seen before are of no measurement that is still to come."""
        self._closes_before = self._control.ask("GET", "/_control/closes?after=999999999999")["next"]
        self._control.ask("POST", "/_control/reset")

    def closes(self) -> dict[str, int]:
        """When each marked client was seen to go since the last reset, in ns of CLOCK_MONOTONIC."""
        answer = self._control.ask("GET", f"/_control/closes?after={self._closes_before}")
        return {seen["marker"]: seen["at"] for seen in answer["closes"]}

    def wait_active(self, streams: int, seconds: float = 20) -> None:
        """Returns when that many streams are being played at least."""
        until = time.monotonic() + seconds
        while (active := self.stats()["active"]) < streams:
            if time.monotonic() > until:
                raise Failed(f"only {active} of {streams} streams reached the upstream")
            time.sleep(0.05)

    def still_active(self, seconds: float = 2) -> int:
        """How many streams are still played although their clients have left: 0 as soon as it is 0."""
        until = time.monotonic() + seconds
        while (active := int(self.stats()["active"])) and time.monotonic() < until:
            time.sleep(0.02)
        return active

    def wait_closes(self, markers: set[str], seconds: float = 5) -> dict[str, int]:
        """The closes of these markers; those that do not come within the time are left out."""
        until = time.monotonic() + seconds
        while True:
            seen = self.closes()
            if markers <= seen.keys() or time.monotonic() > until:
                return {marker: seen[marker] for marker in markers & seen.keys()}
            time.sleep(0.1)

    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self._process.pid)

    def stop(self) -> None:
        self._control.close()
        self._process.terminate()
        self._process.wait()


def run_client(port: int, within: float = 600, **options: Any) -> dict[str, Any]:
    """Runs the load client to its end: `streams=16, model="flat:100"` become `--streams 16 --model flat:100`.

    A list gives the option once for each of its items.
    """
    process = _start_client(port, options)
    return _result(process, within)


class Load:
    """A load that is kept up in the background; `seen` is the client's report once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.seen: dict[str, Any] = {}

    def end(self) -> dict[str, Any]:
        """Ends the load, unless it has ended, and returns what its client has seen."""
        if not self.seen:
            if self._process.poll() is not None:
                raise Failed("the background load ended too early")
            self._process.terminate()
            self.seen = _result(self._process, timeout=30)
        return self.seen


@contextmanager
def background(port: int, **options: Any) -> Iterator[Load]:
    """Keeps a load up while the block runs."""
    process = _start_client(port, options)
    load = Load(process)
    try:
        yield load
        load.end()
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def _start_client(port: int, options: dict[str, Any]) -> subprocess.Popen[str]:
    command = [str(build("client")), "--port", str(port)]
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for each in value if isinstance(value, list) else [value]:
            command += [flag] if each is True else [flag, str(each)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=machine.pin_load
    )


def _result(process: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Failed(f"too slow: the load took longer than {timeout:.0f} s") from None
    if process.returncode:
        raise Failed(f"the load client failed: {errors}")
    return dict(json.loads(output))
