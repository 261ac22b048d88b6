"""The systems under test: each is started on its own core, in a folder that goes away, with the upstream behind it."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from bench import machine
from bench.instruments import Failed, Http


class Target:
    """A server between the load client and the upstream. `pid` is None where there is none."""

    name: ClassVar[str]
    health: ClassVar[str] = "/v1/models"
    native: ClassVar[bool] = False
    """Whether it has our API, with runs that can be stopped by name."""

    def __init__(self, upstream_port: int, models: list[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self.folder = Path(self._folder.name)
        self.upstream_port, self.models = upstream_port, models
        self.port = _free_port()
        self._output = (self.folder / "output").open("w+")
        self._process = self._start()
        self.started_in = self._wait_ready()

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be measured here."""
        return None

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def cpu_seconds(self) -> float:
        return machine.cpu_seconds(self.pid) if self.pid else 0.0

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()
        self._folder.cleanup()

    def _start(self) -> subprocess.Popen[bytes] | None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "OPENAI_"))}
        return subprocess.Popen(
            self.command(),
            cwd=machine.ROOT,
            env=kept | self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            preexec_fn=machine.pin_target,
        )

    def _wait_ready(self, seconds: float = 40) -> float:
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            if self._process and self._process.poll() is not None:
                break
            http = Http(self.port)
            try:
                if http.call("GET", self.health)[0] == 200:
                    return time.monotonic() - start
            except OSError:
                time.sleep(0.02)
            finally:
                http.close()
        tail = "\n".join(self.output().strip().splitlines()[-3:])
        self.stop()
        raise Failed(f"{self.name} did not become ready: {tail}")

    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")


class Direct(Target):
    """No server: the client's own figures, which the others are held against."""

    name = "direct"

    def _start(self) -> None:
        self.port = self.upstream_port
        return None


class Nginx(Target):
    """Bytes only, one worker: what a proxy that does not look inside can reach."""

    name = "nginx"

    @classmethod
    def missing(cls) -> str | None:
        return None if _nginx() else "no nginx binary (apt-get install nginx-light)"

    def command(self) -> list[str]:
        config = self.folder / "nginx.conf"
        config.write_text(NGINX.format(folder=self.folder, port=self.port, upstream=self.upstream_port))
        return [str(_nginx()), "-e", str(self.folder / "error"), "-p", str(self.folder), "-c", str(config)]


NGINX = """
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {folder}/pid;
error_log {folder}/error warn;
events {{ worker_connections 9000; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream up {{
        server 127.0.0.1:{upstream};
        keepalive 64;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://up;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""


class Holdfast(Target):
    """This repository's server as anybody starts it."""

    name = "holdfast"
    health = "/health"
    native = True

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("holdfast") is None:
            return f"holdfast is not installed for {sys.executable} (make setup-dev; make bench)"
        if importlib.util.find_spec("holdfast.__main__") is None:
            return "holdfast has no __main__ yet"
        return None

    def command(self) -> list[str]:
        config = self.folder / "holdfast.toml"
        models = ", ".join(f'"{model}"' for model in self.models)
        config.write_text(HOLDFAST.format(upstream=self.upstream_port, models=models))
        place = ["--port", str(self.port), "--data", str(self.folder / "data"), "--config", str(config)]
        return [sys.executable, "-m", "holdfast", "serve", *place]

    def environment(self) -> dict[str, str]:
        return {"UP_KEY": "bench"}


HOLDFAST = """
[[providers]]
name = "up"
dialect = "openai"
base_url = "http://127.0.0.1:{upstream}/v1"
api_key_env = "UP_KEY"
models = [{models}]
"""


class Stub(Target):
    """Bytes spliced in Python, with just enough of the native API to try `stop`. Not measured by default."""

    name = "stub"
    health = "/health"
    native = True

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.stub", str(self.port), str(self.upstream_port)]


TARGETS: dict[str, type[Target]] = {target.name: target for target in (Direct, Nginx, Holdfast, Stub)}
DEFAULT = ["direct", "nginx", "holdfast"]


def _nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
