"""What can be set, and where each value comes from: a flag, the environment, the file, or the default."""

from __future__ import annotations

import os
import pathlib
import sys
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from ..comparisons import Price
from ..errors import HoldfastError
from ..providers.profiles import PROFILES, Profile, ProfileName, profile_of

PREFIX = "HOLDFAST_"
MOST_WORKERS = 32


class SettingsError(HoldfastError):
    """A setting makes no sense."""

    code = "bad_settings"


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[providers]]` table."""

    name: str
    dialect: Literal["openai", "anthropic", "local", "scripted"] = "openai"
    profile: ProfileName | None = None
    """What kind of upstream it is. What the fields below leave open is then as that kind has it."""
    base_url: str = ""
    api_key_env: str = ""
    api_key: str = ""
    models: tuple[str, ...] | None = None
    headers: dict[str, str] = {}
    max_runs: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Answers at once; further ones wait their turn. 0 for no such limit."""
    alternate: bool | None = None
    """Join neighbouring messages of one role, for upstreams that insist on taking turns."""
    prefills: bool | None = None
    """Goes on with the assistant's own last message (llama-server, Ollama and others do; OpenAI does not)."""
    think: bool | None = None
    """Take a leading <think>…</think> for reasoning."""
    usage: bool | None = None
    """Ask for a count of the tokens with `stream_options`."""
    attaches: bool | None = None
    """Writes an answer with an `X-Conversation-Id` to its end, and tells it again (llama-server does)."""
    tools: bool | None = None
    """Its models can call tools. Where they cannot, an agent that has tools says so instead of trying."""

    def key_env(self) -> str:
        """Return the variable that holds the key. A profile's own is for its own address only: no key goes astray."""
        return self.api_key_env or ("" if self.base_url or self.api_key else profile_of(self.profile).key_env)

    def key(self, environ: Mapping[str, str]) -> str | None:
        """Return the key to call the upstream with."""
        return environ.get(self.key_env()) or self.api_key or None

    def behaviour(self) -> Profile:
        """Return what is known of the upstream: what the table says, and else what its profile says."""
        named = ("alternate", "prefills", "think", "usage", "attaches", "tools")
        said = {name: getattr(self, name) for name in named}
        given = {name: value for name, value in said.items() if value is not None}
        known = profile_of(self.profile)
        return msgspec.structs.replace(known, base_url=self.base_url or known.base_url, **given)


class KeySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[keys]]` table: who may use the server. Each name is an owner with sessions of its own."""

    name: str
    key_env: str = ""
    sha256: str = ""
    """The key's SHA-256 in hexadecimal: the key itself need not stand in the file."""
    admin: bool = False
    """May change the settings."""


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[webhooks]]` table: who is told when a response in the background has ended."""

    url: str
    secret_env: str
    events: tuple[
        Literal["response.completed", "response.incomplete", "response.failed", "response.cancelled"], ...
    ] = (
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.cancelled",
    )


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[agents]]` table: a model with tools, which is a model `agent/<name>` for every client."""

    name: str
    model: str
    """Who thinks: `provider/model`. It has to be one that can call tools, if there are any."""
    system: str = ""
    """What it is told before everything else. A session's own system prompt counts instead."""
    tools: tuple[str, ...] = ()
    """`files`, `shell`, `mcp:name` for those of an `[[mcp]]` server, or `module:name` for a tool, or a list of them, in
    Python."""
    folder: str = ""
    """The folder of `files` and `shell`. Default: one of the agent's own in the data folder."""
    approvals: dict[str, Literal["allow", "ask", "deny"]] = {}
    """What counts instead of a tool's own: `shell = "allow"`."""
    max_steps: Annotated[int, msgspec.Meta(ge=1)] = 25
    """Questions to the model in one run; then it is truncated, and can be continued."""
    max_seconds: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    """Seconds of one run, without those in which a person is waited for; 0 for no limit."""
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens of one run, in and out; 0 for no limit."""
    max_cost: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """What one run may cost by the model's `prices`; 0 for no limit."""
    approval_timeout: Annotated[float, msgspec.Meta(ge=0)] = 86_400.0
    """Seconds that a person has to allow or deny a call; 0 for as long as it takes."""
    params: dict[str, Any] = {}
    """Parameters for the model: `temperature = 0`."""
    on_restart: Literal["settle", "continue"] = "settle"
    """What becomes of a run whose server was killed: interrupted, or gone on with after its last finished step."""


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[mcp]]` table: an MCP server, whose tools an agent has that names `mcp:<name>` among its `tools`."""

    name: str
    """Letters, digits and `-`, at most 24. Its tools are called `name__tool`."""
    command: str = ""
    """A program to start, which speaks MCP on its input and output; or..."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Variables for the program. Of Holdfast's own it has only harmless ones, such as `PATH` and `HOME`."""
    env_from: tuple[str, ...] = ()
    """Names of Holdfast's own variables that the program has too: keys need not stand in the file."""
    folder: str = ""
    """Where the program is started."""
    url: str = ""
    """...an address that speaks MCP's streamable HTTP."""
    headers: dict[str, str] = {}
    api_key_env: str = ""
    """The variable whose value goes to the address as `Authorization: Bearer`."""
    tools: tuple[str, ...] | None = None
    """The tools that agents may have, by the server's own names. Left out: all."""
    approval: Literal["allow", "ask", "deny"] = "ask"
    """Whether its tools may be called. An agent's `approvals` can say otherwise for one of them."""
    timeout: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    """Seconds that a call may take; 0 for no limit."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting. A scalar one named `x_y` can also be given as `HOLDFAST_X_Y`."""

    host: str = "127.0.0.1"
    """The address to listen on. Any other than loopback needs a key."""
    port: int = 8787
    """The port to listen on; 0 picks a free one."""
    data: str = ""
    """The folder for everything that is kept. Default: a folder of your own for such data."""
    api_key: str = ""
    """A key that clients must send as `Authorization: Bearer …`."""
    model: str = ""
    """A GGUF file that takes the place of the embedded model."""
    offline: bool = False
    """Never fetch the embedded model's weights."""
    default_model: str = ""
    """The model of a session that names none. Default: the first that is there."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which this server is reached, besides its own address: the Host header is checked."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages elsewhere that may call this server, as `https://example.com`."""
    idle_limit: float = 120.0
    """Seconds of silence after which a run has failed."""
    deadline: float = 3600.0
    """Seconds that a run may take in all."""
    grace: float = 1.0
    """Seconds that a stopped run may take to close its upstream before it is abandoned."""
    drain: float = 2.0
    """Seconds that runs may go on when the server is asked to end."""
    max_runs: int = 2000
    """Runs going on at once."""
    max_runs_per_owner: int = 1000
    """Runs of one owner going on at once."""
    max_queue: int = 32
    """Messages waiting in one session."""
    starts_per_minute: int = 0
    """Runs that one owner may start in a minute; 0 for no such limit."""
    body_limit: int = 20 * 1024 * 1024
    """Bytes of a request's body."""
    heartbeat: float = 10.0
    """Seconds of silence after which an event stream says that it is alive."""
    send_timeout: float = 30.0
    """Seconds after which a client that does not read is cut off."""
    retry_patience: float = 30.0
    """Seconds that a detached run may spend on retries before its first word."""
    log_days: float = 30.0
    """Days after which the events of an ended run are forgotten; its text stays. 0 keeps them for good."""
    workers: Annotated[int, msgspec.Meta(ge=0, le=MOST_WORKERS)] = 1
    """Processes that share the work; 0 for one on each core. One has the data folder, others run what nobody keeps."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much the server says."""
    providers: tuple[ProviderSettings, ...] = ()
    keys: tuple[KeySettings, ...] = ()
    webhooks: tuple[WebhookSettings, ...] = ()
    agents: tuple[AgentSettings, ...] = ()
    mcp: tuple[McpSettings, ...] = ()
    fallbacks: dict[str, str] = {}
    """Which model answers instead where one cannot: `"up/m" = "other/m"`."""
    prices: dict[str, Price] = {}
    """What a model costs for each million tokens: `"up/m" = {input = 0.5, output = 1.5}`."""


TABLES = ("providers", "keys", "webhooks", "agents", "mcp", "fallbacks", "prices")
SCALARS = tuple(field for field in msgspec.structs.fields(Settings) if field.name not in TABLES)


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: str | os.PathLike[str] | None = None,
) -> Settings:
    """Return the settings: a flag beats the environment, which beats the file, which beats the default."""
    return load_with_sources(flags, environ, file)[0]


def load_with_sources(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: str | os.PathLike[str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """Return the settings, and for each that was given where it comes from."""
    path = _settings_file(environ, file)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for found, where in (
        (_from_file(path) if path else {}, str(path)),
        (_from_environment(environ), "environment"),
        ({name: value for name, value in (flags or {}).items() if value is not None}, "flag"),
    ):
        values |= found
        sources |= dict.fromkeys(found, where)
    settings = _convert(values, ", ".join(dict.fromkeys(sources.values())))
    if not settings.providers:
        settings = msgspec.structs.replace(settings, providers=discovered(environ))
        sources["providers"] = "discovered"
    return settings, sources


def _settings_file(environ: Mapping[str, str], file: str | os.PathLike[str] | None) -> pathlib.Path | None:
    """Return the file that was named, or `holdfast.toml` where the server is started."""
    named = file or environ.get(PREFIX + "CONFIG")
    if named:
        return pathlib.Path(named).expanduser()
    here = pathlib.Path("holdfast.toml")
    return here if here.is_file() else None


def _from_file(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise SettingsError(f"There is no settings file {path}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in SCALARS:
        value = environ.get(PREFIX + field.name.upper())
        if value is not None:
            found[field.name] = tuple(value.split(",")) if field.name.startswith("allowed_") else value
    return found


def _convert(values: dict[str, Any], where: str) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"In {where}: {error}") from error


def discovered(environ: Mapping[str, str]) -> tuple[ProviderSettings, ...]:
    """Return the providers that the environment's keys speak for, the embedded model, and the scripted one."""
    keyed = [_keyed(name, environ) for name, known in PROFILES.items() if known.key_env and environ.get(known.key_env)]
    if environ.get("ANTHROPIC_API_KEY"):
        keyed.append(_anthropic(environ))
    return (*keyed, ProviderSettings("local", dialect="local"), ProviderSettings("scripted", dialect="scripted"))


def _anthropic(environ: Mapping[str, str]) -> ProviderSettings:
    elsewhere = environ.get("ANTHROPIC_BASE_URL", "")
    return ProviderSettings("anthropic", dialect="anthropic", base_url=elsewhere, api_key_env="ANTHROPIC_API_KEY")


def _keyed(name: ProfileName, environ: Mapping[str, str]) -> ProviderSettings:
    """Return the provider that a key speaks for. At another address nothing is known of it but the dialect."""
    known = PROFILES[name]
    elsewhere = environ.get("OPENAI_BASE_URL", "") if name == "openai" else ""
    return ProviderSettings(
        name,
        profile=None if elsewhere else name,
        base_url=elsewhere or known.base_url,
        api_key_env=known.key_env,
    )


def processes_of(settings: Settings) -> int:
    """Return how many processes the server is made of, or say why that cannot be."""
    if sys.platform == "linux":
        return settings.workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
    if settings.workers > 1:
        raise SettingsError("More than one worker needs Linux. Leave `workers` at 1 here.")
    return 1


def data_folder(settings: Settings, environ: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return the folder for everything that is kept."""
    if settings.data:
        return pathlib.Path(settings.data).expanduser()
    base = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return pathlib.Path(base).expanduser() / "holdfast"
