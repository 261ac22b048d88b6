"""The peers beside us: servers that others stand between a client and a model with, started as their documents say.

The lab and the bench start them with the same few lines::

    with started("litellm", upstream_port, ["some-model"]) as peer:
        ...  # peer.base_url, peer.api_key, peer.headers, peer.model
        peer.kill()  # -9
        peer.restart()  # the same port, the same data folder

Each has one process, pinned to the target's core, and a home of its own that goes away with it.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any, ClassVar

from bench import installs
from bench.installs import FromNpm, FromPyPI, Source
from bench.instruments import Failed, Http
from bench.targets import TARGETS, Target, free_port

SECRET = "sk-bench-0123456789abcdef0123456789abcdef"


class Peer(Target):
    """A server by others. `version` was the newest that could be installed on `PINNED`."""

    version: ClassVar[str]
    language: ClassVar[str] = "Python"
    source: ClassVar[Source]
    patience = 180
    within = 60
    warm_up: ClassVar[dict[str, Any]] = {"streams": 4, "requests": 8, "timeout": 40}
    api_key: str = SECRET
    extra: ClassVar[dict[str, str]] = {}
    """What its requests need besides."""
    chooses_model: ClassVar[bool] = False
    """Whether it asks its upstream for one configured model, whatever the request says."""

    @classmethod
    def missing(cls) -> str | None:
        return None if installs.installed(cls.name, cls.source) else "not installed (make bench-peers)"

    @classmethod
    def facts(cls) -> dict[str, str]:
        """What a table says of it."""
        return {"version": cls.version, "language": cls.language}

    def request(self) -> dict[str, Any]:
        return {
            "path": f"{self.prefix}/chat/completions",
            "header": [f"{name}: {value}" for name, value in self.headers.items()],
            "body": self._body(),
        }

    def _body(self) -> str:
        """The text says whose request it is, as some drop `user`, and what to play, as some choose the model."""
        text = "Say something. play=%MODEL% marker=%MARKER%"
        body = {
            "model": self.model if self.chooses_model else "%MODEL%",
            "stream": "%STREAM%",
            "user": "%MARKER%",
            "messages": [{"role": "user", "content": text}],
        }
        return json.dumps(body | self.extra).replace('"%STREAM%"', "%STREAM%")

    def environment(self) -> dict[str, str]:
        """Its own home folder, and no telemetry."""
        home = {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}
        return home | {"NO_PROXY": "127.0.0.1,localhost", "DO_NOT_TRACK": "1", "PYTHONUNBUFFERED": "1"}

    def program(self, name: str) -> str:
        return str(installs.PLACE / self.name / "bin" / name)


class Router(Peer):
    """Passes bytes on and balances between servers of models, of which it has one here."""

    language = "Rust"
    warm_up = Target.warm_up
    verb: ClassVar[tuple[str, ...]] = ()
    flags: ClassVar[tuple[str, ...]]

    def command(self) -> list[str]:
        return [
            *(self.program(self.name), *self.verb),
            *("--host", "127.0.0.1", "--port", str(self.port), "--worker-urls", self.upstream),
            *("--prometheus-port", str(free_port()), "--worker-startup-check-interval", "1"),
            *self.flags,
        ]


class VllmRouter(Router):
    """Between vLLM servers."""

    name = "vllm-router"
    version = "0.1.16"
    source = FromPyPI((f"vllm-router=={version}",))
    health = "/health"
    flags = ("--max-concurrent-requests", "20000", "--log-level", "warning")


class SglangRouter(Router):
    """Between SGLang servers."""

    name = "sglang-router"
    version = "0.3.2"
    source = FromPyPI((f"sglang-router=={version}",))
    health = "/readiness"
    verb = ("launch",)
    flags = ("--log-level", "warn")


class Portkey(Peer):
    """On Node. A request's headers say where it goes."""

    name = "portkey"
    language = "TypeScript"
    version = "1.15.2"
    source = FromNpm((("@portkey-ai/gateway", version),), overrides=(("@hono/node-server", "1.13.8"),))
    # With a node-server after 1.13, which a plain install brings, each stream is a 500 (Portkey-AI/gateway#1389).
    health = "/"

    @property
    def headers(self) -> dict[str, str]:
        return super().headers | {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{self.upstream}/v1"}

    def command(self) -> list[str]:
        script = installs.PLACE / self.name / "node_modules/@portkey-ai/gateway/build/start-server.js"
        return [installs.node() or "node", str(script), f"--port={self.port}", "--headless"]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost", "NODE_ENV": "production"}


class LiteLLM(Peer):
    """The proxy, with a list of models and no database."""

    name = "litellm"
    longer = 2
    version = "1.106.2"
    source = FromPyPI((f"litellm[proxy]=={version}",))
    health = "/health/readiness"

    def command(self) -> list[str]:
        config = self.folder / "litellm.yaml"
        place = {"api_base": f"{self.upstream}/v1", "api_key": SECRET}
        models = [{"model_name": each, "litellm_params": {"model": f"openai/{each}", **place}} for each in self.models]
        config.write_text(json.dumps({"model_list": models, "general_settings": OPEN}))
        where = ["--config", str(config), "--host", "127.0.0.1", "--port", str(self.port)]
        return [self.program("litellm"), *where, "--num_workers", "1", "--telemetry", "False"]

    def environment(self) -> dict[str, str]:
        """Without its limit of a hundred equal chunks: those that are sent together carry the same time."""
        quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        return super().environment() | quiet | {"REPEATED_STREAMING_CHUNK_LIMIT": "1000000000"}


OPEN = {"dangerously_permit_weak_or_unset_master_key": True}
"""It refuses to start without a strong key; on loopback no other target asks for one either."""


class OpenWebUI(Peer):
    """A chat application; its API takes a token of the user that is created if no sign-in is needed."""

    name = "open-webui"
    version = "0.12.4"
    source = FromPyPI((f"open-webui=={version}",), first=("torch==2.13.0",))
    health = "/ready"
    patience = 300
    prefix = "/api"
    api_key = ""

    def ready(self) -> bool:
        if not super().ready():
            return False
        http = Http(self.port)
        try:
            status, user = http.call("POST", "/api/v1/auths/signin", {"email": "", "password": ""})
            if status != 200:
                return False
            self.api_key = user["token"]
            return http.call("GET", "/api/models", headers=self.headers)[0] == 200
        except (OSError, HTTPException):
            return False
        finally:
            http.close()

    def command(self) -> list[str]:
        return [self.program("open-webui"), "serve", "--host", "127.0.0.1", "--port", str(self.port)]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "DATA_DIR": str(self.folder / "data"),
            "WEBUI_SECRET_KEY": SECRET,
            "WEBUI_AUTH": "False",
            "OFFLINE_MODE": "True",
            "HF_HUB_OFFLINE": "1",
            "BYPASS_EMBEDDING_AND_RETRIEVAL": "True",
            "ENABLE_OLLAMA_API": "False",
            "OPENAI_API_BASE_URL": f"{self.upstream}/v1",
            "OPENAI_API_KEY": SECRET,
            "OPENAI_API_CONFIGS": json.dumps({"0": {"enable": True, "model_ids": self.models}}),
        }


class Nanobot(Peer):
    """An agent whose API takes one message of one model, in a session."""

    name = "nanobot"
    longer = 3
    extra: ClassVar[dict[str, str]] = {"session_id": "%MARKER%"}
    version = "0.3.5"
    source = FromPyPI((f"nanobot-ai[api]=={version}",))
    health = "/health"
    chooses_model = True

    def command(self) -> list[str]:
        config = self.folder / "nanobot.json"
        workspace = str(self.folder / "workspace")
        defaults = {"workspace": workspace, "model": self.model, "provider": "custom"}
        provider = {"custom": {"apiKey": SECRET, "apiBase": f"{self.upstream}/v1"}}
        config.write_text(json.dumps({"agents": {"defaults": defaults}, "providers": provider}))
        where = ["--config", str(config), "--workspace", workspace, "--host", "127.0.0.1", "--port", str(self.port)]
        return [self.program("nanobot"), "serve", *where]


class HermesAgent(Peer):
    """An agent whose gateway has an API server; its limit of ten runs at once is lifted."""

    name = "hermes-agent"
    longer = 3
    live_streams = 2  # it has a thread for each run, and six of them on two cores
    version = "0.19.0"
    source = FromPyPI((f"hermes-agent=={version}", "aiohttp==3.14.1"))
    health = "/health"
    chooses_model = True

    def command(self) -> list[str]:
        place = {"default": self.models[0], "provider": "custom", "base_url": f"{self.upstream}/v1", "api_key": SECRET}
        config = {"model": place, "gateway": {"api_server": {"max_concurrent_runs": 0}}}
        (self.folder / "config.yaml").write_text(json.dumps(config))
        return [self.program("hermes"), "gateway", "run"]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "HERMES_HOME": str(self.folder),
            "API_SERVER_ENABLED": "true",
            "API_SERVER_KEY": SECRET,
            "API_SERVER_HOST": "127.0.0.1",
            "API_SERVER_PORT": str(self.port),
            "API_SERVER_MODEL_NAME": self.model,
        }


PINNED = "2026-11-16"
PEERS: dict[str, type[Peer]] = {
    peer.name: peer for peer in (VllmRouter, SglangRouter, Portkey, LiteLLM, OpenWebUI, Nanobot, HermesAgent)
}


@contextmanager
def started(name: str, upstream_port: int, models: Sequence[str] = ("bench",)) -> Iterator[Target]:
    """A peer, or a target of ours, with this upstream behind it, until the block ends."""
    kind = (TARGETS | PEERS)[name]
    if reason := kind.missing():
        raise Failed(f"{name}: {reason}")
    target = kind(upstream_port, list(models))
    try:
        yield target
    finally:
        target.stop()
