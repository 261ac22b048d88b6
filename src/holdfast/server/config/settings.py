"""All settings, and the source of each value: a flag, the environment, the file, or the default."""

from __future__ import annotations

import math
import os
import pathlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from ...access import NO_BUDGET, Budget, FactorFor
from ...asks import OnBreak
from ...errors import HoldfastError
from ...pricing import Price
from ...store.place import is_postgres
from ...upstreams.kinds import KindError, ProviderKind, kind_names, kind_of
from ...upstreams.profiles import PROFILES, Profile, ProfileName, Unlisted, profile_of
from .model_limits import ModelLimits
from .settings_errors import explain, not_in_full, suggestion
from .settings_file import choose, make_absolute, tables_of, user_folder
from .sign_in_settings import KeySettings, OidcSettings, ProxySettings, about_sign_in
from .webhook_settings import WebhookSettings

PREFIX = "HOLDFAST_"
AGENT = "agent"
"""The name before the slash of an agent's model."""
USUAL = ("openai", "local", "scripted")
"""Dialects that are built in."""
KEYED_KINDS = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
"""Services with their own dialect, found by their key in the environment."""


class SettingsError(HoldfastError):
    """A setting has an invalid value."""

    code = "bad_settings"


class ProviderSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[providers]]` table."""

    name: str
    dialect: str = "openai"
    """The kind of provider: the API of the upstream."""
    profile: ProfileName | None = None
    """The kind of upstream, which gives the defaults of the fields below."""
    base_url: str = ""
    api_key_env: str = ""
    api_key: str = ""
    models: tuple[str, ...] | None = None
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    """Parameters in the URL of each request, such as `api-version`."""
    key_header: str | None = None
    """The header that holds the key, if it is not the dialect's own: `api-key`."""
    options: dict[str, Any] = {}
    """Settings of its dialect alone."""
    max_runs: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Maximum number of concurrent responses; further ones wait. 0 for no limit."""
    alternate: bool | None = None
    """Join adjacent messages of one role, for upstreams that require user and assistant to alternate."""
    prefills: bool | None = None
    """It continues the assistant's last message (llama-server, Ollama and others do; OpenAI does not)."""
    think: bool | None = None
    """Treat a leading <think>…</think> as reasoning."""
    usage: bool | None = None
    """Request token counts with `stream_options`."""
    attaches: bool | None = None
    """It keeps generating when Holdfast disconnects, and lets it reconnect, as llama-server does."""
    proxy: str | None = None
    """The proxy that leads to it, as `http://user:password@host:port`; empty for none. Left out: as `HTTPS_PROXY`,
    `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` say."""
    ca_file: str = ""
    """A PEM file with the only CAs that its certificate may be signed by. Empty: those of the system."""
    cert: str = ""
    """A PEM file with the client certificate that it asks for."""
    cert_key: str = ""
    """A PEM file with the private key of `cert`, if that is not in the same file."""
    tools: bool | None = None
    """Its models can call tools. If not, an agent with tools refuses to start."""
    unlisted: Unlisted | None = None
    """`pass`: ask it for models that its list lacks. `refuse`: they are not found."""

    def key_env(self) -> str:
        """Return the variable with the key. A service's own variable is used only for its own address."""
        if self.api_key_env or self.base_url or self.api_key:
            return self.api_key_env
        return profile_of(self.profile).key_env or self.kind().key_env

    def key(self, environ: Mapping[str, str]) -> str | None:
        """Return the key to call the upstream with."""
        return environ.get(self.key_env()) or self.api_key or None

    def kind(self) -> ProviderKind:
        """Return the kind of provider. Raises `SettingsError` if there is none of that name."""
        try:
            return kind_of(self.dialect)
        except KindError as error:
            raise SettingsError(f"Provider {self.name!r}: {error}.") from error

    def address(self) -> str:
        """Return the address of the upstream."""
        return self.base_url or profile_of(self.profile).base_url or self.kind().base_url

    def behaviour(self) -> Profile:
        """Return the profile of the upstream, overridden by the fields of the table."""
        named = ("alternate", "prefills", "think", "usage", "attaches", "tools", "unlisted")
        given = {name: value for name in named if (value := getattr(self, name)) is not None}
        known = profile_of(self.profile)
        return msgspec.structs.replace(known, base_url=self.base_url or known.base_url, **given)


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[agents]]` table: a model with tools, which is a model `agent/<name>` for every client."""

    name: str
    model: str
    """Its model: `provider/model`, one that can call tools if the agent has any."""
    system: str = ""
    """Its system prompt, unless the session has one."""
    users: tuple[str, ...] | None = None
    """Names of the keys that may use it, besides those with admin rights: `["*"]` for all, `[]` for no others. Default:
    all, and no others if one of its tools could write or run something."""
    tools: tuple[str, ...] = ()
    """`files`, `shell`, `ask_user`, `mcp:name` for those of an `[[mcp]]` server, or `module:name` for one or a list in
    Python."""
    modules: str = ""
    """The folder with the Python modules of `tools`, besides installed packages. Default: that of the settings file."""
    folder: str = ""
    """The folder of `files` and `shell`, which all owners share. Default: one for each owner, in the data folder."""
    env_from: tuple[str, ...] = ()
    """Names of Holdfast's own variables that its tools' processes have too, besides harmless ones such as `PATH`."""
    approvals: dict[str, Literal["allow", "ask", "deny"]] = {}
    """Override a tool's own approval: `shell = "allow"`."""
    replay: dict[str, Literal["safe", "keyed", "never"]] = {}
    """Override whether a tool may be called again after a crash, if it may have run: `mail__send = "keyed"`."""
    max_steps: Annotated[int, msgspec.Meta(ge=1)] = 25
    """Model calls in one run; then the run is truncated, and can be continued."""
    max_seconds: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    """Seconds of one run, without the time that it waits for a person; 0 for no limit."""
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens of one run, in and out; 0 for no limit."""
    max_cost: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Cost of one run by the model's `prices`; 0 for no limit."""
    approval_timeout: Annotated[float, msgspec.Meta(ge=0)] = 86_400.0
    """Seconds that a person has to allow or deny a call; 0 for no limit."""
    params: dict[str, Any] = {}
    """Parameters for the model: `temperature = 0`."""
    on_restart: Literal["settle", "continue"] = "settle"
    """A run whose server was killed is interrupted, or goes on by itself. Only harmless calls are made twice."""


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[mcp]]` table: an MCP server, whose tools an agent has that names `mcp:<name>` among its `tools`."""

    name: str
    """Letters, digits and `-`, at most 24. Its tools are called `name__tool`."""
    command: str = ""
    """A program that speaks MCP on its input and output; `python` is the interpreter of the server. Or use `url`."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Variables for the program. Of Holdfast's own it has only harmless ones, such as `PATH` and `HOME`."""
    env_from: tuple[str, ...] = ()
    """Names of Holdfast's own variables that the program gets too, so that keys need not be in the file."""
    folder: str = ""
    """The folder in which the program is started. Default: the folder of the settings file."""
    url: str = ""
    """An address that speaks MCP's streamable HTTP, in place of `command`."""
    headers: dict[str, str] = {}
    api_key_env: str = ""
    """The variable whose value goes to the address as `Authorization: Bearer`."""
    tools: tuple[str, ...] | None = None
    """The tools that agents may have, by the server's own names. Left out: all."""
    approval: Literal["allow", "ask", "deny"] = "ask"
    """Whether its tools may be called. An agent's `approvals` can override it for one tool."""
    timeout: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    """Seconds that a call may take; 0 for no limit."""
    shared: bool = False
    """One connection for all owners, who can then see each other's data on the server. Default: one for each."""
    auth: Literal["", "oauth"] = ""
    """`oauth`: each person connects an account in the page; with `shared` an admin connects one for all."""
    oauth_client: str = ""
    """The id of Holdfast at the server that grants the tokens. Default: Holdfast registers itself there."""
    oauth_secret: str = ""
    oauth_secret_env: str = ""
    """The variable with the secret of `oauth_client`, if it has one."""
    scopes: tuple[str, ...] = ()
    """What the tokens are to allow. Default: what the MCP server asks for."""

    def client_secret(self, environ: Mapping[str, str]) -> str:
        """Return the secret of `oauth_client`; empty if it has none."""
        return environ.get(self.oauth_secret_env) or self.oauth_secret


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting. A scalar one named `x_y` can also be given as `HOLDFAST_X_Y`."""

    host: str = "127.0.0.1"
    """The address to listen on. On any address but loopback, clients need a key or an account."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8787
    """The port to listen on; 0 for any free port."""
    tls_cert: str = ""
    """A PEM file with the certificate of this server and the intermediate ones: turns on HTTPS. Changes are noticed."""
    tls_key: str = ""
    """A PEM file with the private key of `tls_cert`. Default: it is in the same file."""
    data: str = ""
    """The data folder. Default: your user's folder for such data."""
    store: str = ""
    """A PostgreSQL that several servers share: `postgresql://user@host:port/dbname`. Default: SQLite in the folder."""
    cluster_key: str = ""
    """A secret of at least 16 characters that all servers of one `store` share, by which they trust each other."""
    node_address: str = ""
    """`host:port` at which the other servers of the `store` reach this one. Default: its host, and its port + 1."""
    public_url: str = ""
    """The URL of this server for people, such as `https://chat.example.com`, if it is behind a proxy. Links have this
    address, and with https cookies are sent over HTTPS only."""
    sign_in_hours: Annotated[float, msgspec.Meta(gt=0, le=2160)] = 12.0
    """Hours without a request after which a sign-in ends."""
    stay_signed_in_days: Annotated[float, msgspec.Meta(gt=0, le=90)] = 30.0
    """Days without a request after which a sign-in with *stay signed in* ends."""
    second_factor: FactorFor = "nobody"
    """Who must have a second factor to sign in with a password: `nobody`, `admins` or `all`."""
    link_days: Annotated[float, msgspec.Meta(gt=0, le=3660)] = 30.0
    """Days after which a link to a session ends, unless another time is named, or `"expires_in": null` for no end."""
    secret_key: str = ""
    """The key that encrypts stored secrets: at least 32 characters. To rotate it, set several, separated by commas: the
    first encrypts, all of them decrypt. Default: the `cluster_key` with a `store`, else a key in the data folder."""
    secret_key_file: str = ""
    """A file with the `secret_key`, one key on each line."""
    api_key: str = ""
    """A key that clients must send as `Authorization: Bearer …`."""
    local_model: str = ""
    """A GGUF file to use in place of the built-in demo model."""
    offline: bool = False
    """Never download the built-in model's weights."""
    default_model: str = ""
    """The model of requests and sessions that name none. Default: the first model of a configured provider, else the
    only agent, else the first model of a discovered local server, else a demo model."""
    title_model: str = ""
    """The model that titles chats after their first response. Default: none; a title is the beginning of a message."""
    discover: bool | Literal["auto"] = "auto"
    """Discover model servers on this machine (Ollama, llama-server, LM Studio). `auto`: only if the settings name no
    providers and the server needs no key."""
    default_providers: bool = True
    """If the settings name providers, also offer the providers of API keys in the environment, the built-in model and
    the scripted models."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that a request may have in its `Host` header, besides the server's own address."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may call this server, such as `https://example.com`."""
    idle_limit: float = 120.0
    """Seconds without a byte of its upstream after which a run fails. Comments and pings are bytes."""
    deadline: float = 3600.0
    """Maximum duration of a run in seconds."""
    grace: float = 1.0
    """Seconds that a stopped run may take to close its upstream before it is abandoned."""
    drain: float = 60.0
    """Seconds that runs may continue at a shutdown. A second signal ends the wait."""
    notify_private: bool = False
    """Whether notifications and people's webhooks may go to addresses of the own network, and without TLS."""
    max_runs: int = 2000
    """Maximum number of concurrent runs."""
    max_runs_per_owner: int = 1000
    """Maximum number of concurrent runs of one owner."""
    max_queue: int = 32
    """Maximum number of queued messages in one session."""
    starts_per_minute: int = 0
    """Runs that one owner may start in a minute; 0 for no limit."""
    body_limit: int = 20 * 1024 * 1024
    """Maximum size of a request body in bytes."""
    head_timeout: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """Timeout of a request head in seconds; 0 for no limit."""
    body_timeout: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """Seconds within which each 1 kB of a request body must arrive; 0 for no limit."""
    max_connections: Annotated[int, msgspec.Meta(ge=0)] = 10_000
    """Maximum number of open connections; 0 for no limit."""
    max_connections_per_address: Annotated[int, msgspec.Meta(ge=0)] = 1_000
    """Maximum number of open connections from one address, except loopback; 0 for no limit."""
    heartbeat: float = 10.0
    """Seconds of silence after which an event stream sends a heartbeat."""
    send_timeout: float = 30.0
    """Seconds after which a client that does not read is disconnected."""
    failed_status: Literal[406, 502] = 406
    """HTTP status of a response without streaming that failed after output: 406, which few clients retry, or 502."""
    retry_patience: float = 30.0
    """Seconds that a detached run may spend on retries before its first output."""
    event_days: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """Days after which the events of an ended run are deleted; its text stays. `inf` keeps them."""
    retention_days: Annotated[float, msgspec.Meta(ge=0)] = math.inf
    """Days after which an ended run outside of a session, and an unused conversation, is deleted. `inf` keeps them."""
    session_days: Annotated[float, msgspec.Meta(gt=0)] = math.inf
    """Days since its last change or import after which a chat that is not pinned is deleted. `inf` keeps chats."""
    idempotency_days: Annotated[float, msgspec.Meta(gt=0)] = math.inf
    """Days after the end of its run after which an idempotency key is forgotten: a repeated request starts another run.
    `inf` keeps it as long as the run."""
    audit_days: Annotated[float, msgspec.Meta(ge=1)] = 365.0
    """Days after which an entry of the audit log is deleted. `inf` keeps entries."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The log level: `debug`, `info`, `warning` or `error`."""
    log_format: Literal["text", "json"] = "text"
    """`text` or `json`: one line of JSON for each entry of the log, with ids as fields."""
    access_log: bool = False
    """Log each request: method, path without its query, status and client."""
    metrics: bool = False
    """Turn on metrics, and serve `/metrics` for Prometheus to callers with admin rights."""
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """A separate port that serves `/metrics` without a key, and turns metrics on; 0 for none."""
    metrics_host: str = "127.0.0.1"
    """The address of `metrics_port`. Only Prometheus should be able to reach it."""
    budget: Budget = NO_BUDGET  # of every owner who has no other
    traces: bool = False
    """Send traces to an OpenTelemetry collector, which the standard `OTEL_*` variables set."""
    traces_content: bool = False
    """Also send prompts, responses, and the arguments and results of tools, which may be private."""
    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")] = "USD"
    """Currency of all `prices`, as its ISO 4217 code. The page and reports show costs in it."""
    providers: tuple[ProviderSettings, ...] = ()
    keys: tuple[KeySettings, ...] = ()
    proxy: ProxySettings = ProxySettings()
    oidc: OidcSettings | None = None
    webhooks: tuple[WebhookSettings, ...] = ()
    agents: tuple[AgentSettings, ...] = ()
    mcp: tuple[McpSettings, ...] = ()
    agent_users: dict[str, tuple[str, ...]] = {}
    """The `users` of agents that are published with `--agent` or `create_app(agents=...)`. Default: all."""
    agent_think: dict[str, bool] = {}
    """Whether a leading `<think>…</think>` of a published agent is reasoning. Default: yes."""
    fallbacks: dict[str, str] = {}
    """The fallback of a model: `"up/m" = "other/m"`."""
    on_break: dict[str, OnBreak] = {}
    """What is done if a response of a model breaks off: `"up/m" = "continue"`, for `"up/*"` and `"*"` too."""
    limits: dict[str, ModelLimits] = {}
    """How long a model may be silent: `"up/m" = { first_token = 600, silence = 60 }`, for `"up/*"` and `"*"` too."""
    aliases: dict[str, str] = {}
    """Other names of models: `gpt-4o = "local/smollm2"`."""
    log_levels: dict[str, Literal["debug", "info", "warning", "error"]] = {}
    """Log levels of modules, by the names of their loggers: `"holdfast.runs" = "debug"`."""
    prices: dict[str, Price] = {}
    """The price of a model for a million tokens: `"up/m" = {input = 0.5, output = 1.5}`. `"up/*"`: all its others."""


TABLES = (
    *["providers", "keys", "proxy", "oidc", "webhooks", "agents", "mcp", "agent_users", "agent_think"],
    *["fallbacks", "on_break", "limits", "aliases", "log_levels", "prices", "budget"],
)
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
    *,
    here: bool = False,
) -> tuple[Settings, dict[str, str]]:
    """Return the settings, and the source of each one that was given.

    With `here`, the file of the current folder is used if no other is given or found.
    """
    values, sources = gather(flags, environ, file, here=here)
    settings = _convert(values, sources)
    for problem in complaints(settings, sources, environ):
        raise SettingsError(problem)
    return with_default_providers(settings, sources, environ)


def gather(
    flags: Mapping[str, Any] | None,
    environ: Mapping[str, str],
    file: str | os.PathLike[str] | None,
    *,
    here: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of file, environment and flags, unchecked, and the source of each."""
    path = choose(environ, file, here=here).path
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for found, where in (
        (_from_file(path) if path else {}, str(path and path.absolute())),
        (_from_environment(environ), "environment"),
        ({name: value for name, value in (flags or {}).items() if value is not None}, "flag"),
    ):
        values |= found
        sources |= dict.fromkeys(found, where)
    return values, sources


def complaints(settings: Settings, sources: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems of settings whose types are right."""
    yield from _about_store(settings)
    yield from _about_dialects(settings.providers, sources.get("providers", ""))
    if settings.tls_key and not settings.tls_cert:
        yield "The setting `tls_key` needs `tls_cert`, the certificate."
    if settings.port and settings.metrics_port == settings.port:
        yield f"The settings `port` and `metrics_port` are both {settings.port}. Set another `metrics_port`."
    yield from about_sign_in(settings.proxy, settings.oidc, settings.public_url)
    yield from _about_variables(environ, settings)
    yield from not_in_full({each.name: each.model for each in settings.agents}, settings.aliases, settings.prices)


DISCOVERED = "discovered"
"""The source of providers that are not in the settings."""


def with_default_providers(
    settings: Settings, sources: dict[str, str], environ: Mapping[str, str]
) -> tuple[Settings, dict[str, str]]:
    """Add the providers that the settings do not name, each with its own source."""
    if not settings.providers:
        sources["providers"] = DISCOVERED
    if settings.providers and not settings.default_providers:
        return settings, sources
    named = {provider.name for provider in settings.providers}
    added = tuple(provider for provider in discovered(environ) if provider.name not in named)
    sources |= {source_name(provider): DISCOVERED for provider in added}
    return msgspec.structs.replace(settings, providers=(*settings.providers, *added)), sources


def source_name(provider: ProviderSettings) -> str:
    """Return the name of a provider in the sources of the settings."""
    return f"providers.{provider.name}"


def _from_file(path: pathlib.Path) -> dict[str, Any]:
    """Return the values of a settings file. A relative path in it is relative to the folder of the file."""
    values = _read(path)
    make_absolute(values, ("data", "local_model", "secret_key_file", "tls_cert", "tls_key"), path)
    for provider in tables_of(values, "providers"):
        make_absolute(provider, ("ca_file", "cert", "cert_key"), path)
    for agent in tables_of(values, "agents"):
        agent.setdefault("modules", ".")
        make_absolute(agent, ("folder", "modules"), path)
    for server in tables_of(values, "mcp"):
        if server.get("command"):
            server.setdefault("folder", ".")
        make_absolute(server, ("folder",), path)
    return values


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise SettingsError(f"Settings file not found: {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"Cannot read the settings file {path}: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in SCALARS:
        value = environ.get(PREFIX + field.name.upper())
        if value is not None:
            found[field.name] = tuple(value.split(",")) if field.name.startswith("allowed_") else value
    return found


def _convert(values: dict[str, Any], sources: Mapping[str, str]) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(explain(error, Settings, sources, PREFIX)) from error


def _about_variables(environ: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """Complain about a variable that is no setting: it was misspelt, or belongs to another version."""
    for variable in unknown_variables(environ, settings):
        name = variable.removeprefix(PREFIX).lower()
        if name in TABLES:
            yield f"{variable} cannot be set by a variable. Set {name!r} in the settings file."
        else:
            hint = suggestion(name.upper(), (field.name.upper() for field in SCALARS), PREFIX)
            yield f"Unknown variable {variable}.{hint or ' It is not a setting: unset it.'}"


def unknown_variables(environ: Mapping[str, str], settings: Settings) -> list[str]:
    """Return the `HOLDFAST_…` variables that are no setting, and that no table of the settings names."""
    known = {PREFIX + field.name.upper() for field in SCALARS} | OTHER_VARIABLES | set(_named_variables(settings))
    return sorted(
        name
        for name in environ
        if name.startswith(PREFIX) and name not in known and not name.startswith(OF_TESTS) and not _OF_A_SERVICE(name)
    )


CLIENT_KEY = "HOLDFAST_CLIENT_KEY"  # what the command line sends; a server demands its setting `api_key`
OTHER_VARIABLES = {"HOLDFAST_CONFIG", "HOLDFAST_URL", CLIENT_KEY, "HOLDFAST_LAB_KEY", "HOLDFAST_CALL"}
"""Variables that are no settings: of the command line, of the conformance lab, and of tools' processes."""
OF_TESTS = ("HOLDFAST_TEST_", "HOLDFAST_BENCH_")
_OF_A_SERVICE = re.compile(r"\w+_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)").fullmatch
"""Matches the variables that Kubernetes sets for a service whose name begins with `holdfast`."""


def _named_variables(settings: Settings) -> Iterator[str]:
    """Yield the variables that the tables of the settings name."""
    yield from (provider.api_key_env for provider in settings.providers)
    yield from (key.key_env for key in settings.keys)
    if settings.oidc is not None:
        yield settings.oidc.client_secret_env
    yield from (webhook.secret_env for webhook in settings.webhooks)
    yield from (name for agent in settings.agents for name in agent.env_from)
    for server in settings.mcp:
        yield from (*server.env_from, server.api_key_env, server.oauth_secret_env)


SHORTEST_CLUSTER_KEY = 16
"""Minimum length of a cluster key, in characters. It gives access to all runs and to providers' keys."""


def _about_store(settings: Settings) -> Iterator[str]:
    """Complain about a store that is no URL of PostgreSQL. It is not shown: it may hold a password."""
    if settings.store and not is_postgres(settings.store):
        yield (
            "The setting `store` must be postgresql://user@host:port/dbname. To store in SQLite, leave it out, and "
            "name the folder with `data`."
        )
    if 0 < len(settings.cluster_key) < SHORTEST_CLUSTER_KEY:
        yield (
            f"The setting `cluster_key` has fewer than {SHORTEST_CLUSTER_KEY} characters, so it can be guessed. "
            "`openssl rand -hex 16` makes a longer one."
        )
    if settings.cluster_key and not settings.node_address and settings.port == 0:
        yield "With a `cluster_key` and port 0, set `node_address` to the host:port for other nodes."
    host, _, port = settings.node_address.rpartition(":")
    if settings.node_address and not (host and port.isdecimal() and 0 < int(port) < 65536):
        yield f"The setting `node_address` must be host:port, not {settings.node_address!r}."


def _about_dialects(providers: Sequence[ProviderSettings], where: str) -> Iterator[str]:
    """Complain about a dialect that is not installed. None is loaded for that."""
    for wrong in [each for each in providers if each.dialect not in USUAL and each.dialect not in kind_names()]:
        known = ", ".join(kind_names())
        yield (
            f"Provider {wrong.name!r} in {where}: unknown dialect {wrong.dialect!r}. Use one of {known}, or "
            "install the package that provides it."
        )


def discovered(environ: Mapping[str, str]) -> tuple[ProviderSettings, ...]:
    """Return the providers whose keys are in the environment, the built-in model, and the scripted one."""
    keyed = [_keyed(name, environ) for name, known in PROFILES.items() if known.key_env and environ.get(known.key_env)]
    keyed += [_own_kind(name, environ) for name, key in KEYED_KINDS.items() if environ.get(key)]
    return (*keyed, ProviderSettings("local", dialect="local"), ProviderSettings("scripted", dialect="scripted"))


def _own_kind(name: str, environ: Mapping[str, str]) -> ProviderSettings:
    """Return the provider of a service with its own dialect, if its key is in the environment."""
    kind = kind_of(name)
    elsewhere = environ.get(kind.url_env, "") if kind.url_env else ""
    return ProviderSettings(name, dialect=name, base_url=elsewhere, api_key_env=kind.key_env)


def _keyed(name: ProfileName, environ: Mapping[str, str]) -> ProviderSettings:
    """Return the provider that a key belongs to. At another address only its dialect is known."""
    known = PROFILES[name]
    elsewhere = environ.get("OPENAI_BASE_URL", "") if name == "openai" else ""
    return ProviderSettings(
        name,
        profile=None if elsewhere else name,
        base_url=elsewhere or known.base_url,
        api_key_env=known.key_env,
    )


def store_url(settings: Settings, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the store: it may hold a password."""
    return settings.store or f"sqlite:{data_folder(settings, environ)}"


def node_address(settings: Settings) -> str:
    """Return the address at which other servers of the same store reach this one."""
    return settings.node_address or f"{settings.host}:{settings.port + 1}"


def data_folder(settings: Settings, environ: Mapping[str, str] = os.environ) -> pathlib.Path:
    """Return the data folder."""
    if settings.data:
        return pathlib.Path(settings.data).expanduser()
    return user_folder(environ, "XDG_DATA_HOME", "~/.local/share") / "holdfast"
