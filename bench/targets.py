"""The systems under test: each is started on its own core, in a folder that goes away, with the upstream behind it."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import AbstractContextManager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from bench import machine
from bench.instruments import Failed, Http, Load, background, run_client


class Target:
    """A server between the load client and the upstream. `pid` is None where there is none."""

    name: ClassVar[str]
    health: ClassVar[str] = "/v1/models"
    prefix: ClassVar[str] = "/v1"
    api_key: str = ""
    native: ClassVar[bool] = False
    """Whether it has our API, with runs that can be stopped by name."""
    patience: ClassVar[float] = 120
    """Seconds it may take to start."""
    within: ClassVar[float] = 600
    """Seconds any load on it may take before it counts as too slow."""
    warm_up: ClassVar[dict[str, Any]] = {"streams": 50, "requests": 400, "timeout": 10}
    """The load before each measurement, which is not counted."""

    live_streams: ClassVar[int] = 20
    """Streams it holds beside the peers while clients leave."""
    longer: ClassVar[float] = 1
    """How many times longer than others it is measured beside the peers: the slow need time to say anything."""

    def __init__(self, upstream_port: int, models: list[str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-")
        self.folder = Path(self._folder.name)
        self.upstream_port, self.models = upstream_port, models
        self.port = free_port()
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
    def base_url(self) -> str:
        """What an OpenAI SDK is given."""
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    @property
    def model(self) -> str:
        """What requests have to ask for; the first model of those it was started with reaches the upstream."""
        return self.models[0]

    @property
    def headers(self) -> dict[str, str]:
        """What each request carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    @property
    def upstream(self) -> str:
        return f"http://127.0.0.1:{self.upstream_port}"

    def request(self) -> dict[str, Any]:
        """What the load client must know to ask it: `path`, `header`, `body`."""
        return {}

    def ready(self) -> bool:
        """Whether it takes requests by now."""
        http = Http(self.port)
        try:
            return http.call("GET", self.health)[0] == 200
        except (OSError, HTTPException):
            return False
        finally:
            http.close()

    def load(self, **options: Any) -> dict[str, Any]:
        """Runs the load client against it to the client's end."""
        return run_client(self.port, self.within, **self.request(), **options)

    def background(self, **options: Any) -> AbstractContextManager[Load]:
        """Keeps a load up while the block runs."""
        return background(self.port, **self.request(), **options)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def pids(self) -> list[int]:
        """The processes that it consists of, each with all below it."""
        return [self.pid] if self.pid else []

    def cpu_seconds(self) -> float:
        return sum(map(machine.cpu_seconds, self.pids))

    def pause(self) -> None:
        """Suspend it, so that it takes no time from the target that is measured."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Lets it go on after a pause."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        self.wake()
        if self._process:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(15)
        self.kill()
        self._output.close()
        self._folder.cleanup()

    def kill(self) -> None:
        """Ends it and all that it started, as a crash would: nothing of it gets a last word."""
        self._signal(signal.SIGKILL)
        if self._process:
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To it and to all that it started."""
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def restart(self) -> None:
        """Starts it again, after a kill, with the port and the folder it had."""
        self._process = self._start()
        self.started_in = self._wait_ready()

    def _start(self) -> subprocess.Popen[bytes] | None:
        return subprocess.Popen(
            self.command(),
            cwd=machine.ROOT,
            env=_own_environment() | self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            preexec_fn=machine.become_target,
        )

    def _wait_ready(self) -> float:
        start = time.monotonic()
        while time.monotonic() < start + self.patience:
            if self._process and self._process.poll() is not None:
                break
            if self.ready():
                return time.monotonic() - start
            time.sleep(0.002)
        tail = "\n".join(self.output().strip().splitlines()[-3:])
        self.stop()
        raise Failed(f"{self.name} did not become ready in {self.patience:.0f} s: {tail}")

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
worker_rlimit_nofile 19000;
pid {folder}/pid;
error_log {folder}/error warn;
events {{ worker_connections 18000; }}
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
    python: ClassVar[str] = sys.executable
    data: ClassVar[Path | None] = None
    """A data folder that is there already, for servers that have been in use for long."""

    @classmethod
    def on(cls, data: Path) -> "type[Holdfast]":
        """The same server on such a folder."""
        return type("HoldfastOn", (cls,), {"data": data})

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
        place = ["--port", str(self.port), "--data", str(self.data or self.folder / "data"), "--config", str(config)]
        return [self.python, "-m", "holdfast", "serve", *place]

    def environment(self) -> dict[str, str]:
        """One client starts all of the load, which is more than one user should have."""
        return {"UP_KEY": "bench", "HOLDFAST_MAX_RUNS": "20000", "HOLDFAST_MAX_RUNS_PER_OWNER": "20000"}


class OtherPython(Holdfast):
    """The same server, run by the interpreter that `HOLDFAST_BENCH_PYTHON` names: Debian's, for example."""

    name = "holdfast-python"
    python = os.environ.get("HOLDFAST_BENCH_PYTHON", "")

    @classmethod
    def missing(cls) -> str | None:
        return super().missing() if cls.python else "HOLDFAST_BENCH_PYTHON names no interpreter"


class Measured(Holdfast):
    """The same server with metrics."""

    name = "holdfast-metrics"

    def environment(self) -> dict[str, str]:
        return super().environment() | {"HOLDFAST_METRICS": "true"}


class Traced(Holdfast):
    """The same server with traces, which it sends to a collector that reads them and forgets them."""

    name = "holdfast-traces"

    def __init__(self, upstream_port: int, models: list[str]) -> None:
        self._collector = ThreadingHTTPServer(("127.0.0.1", 0), _Forgetful)
        threading.Thread(target=self._collector.serve_forever, daemon=True).start()
        super().__init__(upstream_port, models)

    def environment(self) -> dict[str, str]:
        collector = f"http://127.0.0.1:{self._collector.server_port}"
        return super().environment() | {"HOLDFAST_TRACES": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": collector}

    def stop(self) -> None:
        super().stop()
        self._collector.shutdown()
        self._collector.server_close()


class _Forgetful(BaseHTTPRequestHandler):
    """Answers every span with 200."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


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


TARGETS: dict[str, type[Target]] = {
    target.name: target for target in (Direct, Nginx, Holdfast, OtherPython, Measured, Traced, Stub)
}
DEFAULT = ["direct", "nginx", "holdfast"]


def _nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def _own_environment() -> dict[str, str]:
    """The environment without what would tell a server of other providers, keys or folders than the bench's."""
    foreign = ("HOLDFAST_", "OPENAI_", "ANTHROPIC_", "LITELLM_", "HERMES_", "NANOBOT_", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(foreign)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
