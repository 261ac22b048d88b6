"""The file that `holdfast config init` writes, made from the settings themselves by `make reference`."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from holdfast.access import Budget
from holdfast.pricing import Price
from holdfast.server.config import settings
from holdfast.server.config.settings import SCALARS, TABLES
from holdfast.server.config.sign_in_settings import KeySettings, OidcSettings, ProxySettings
from scripts.docs_settings import described_in

FILE = Path(settings.__file__).parent / "example.toml"
WIDTH = 110
HEAD = """\
# The settings of Holdfast: every one, as a comment with its default. Take the sign away from what you change.
# Tables are examples. `holdfast config check` checks the file; docs/settings.md has more about each setting.
# The file must be writable by you alone: its author can run commands as you.
"""
HEADINGS = {
    "host": "where it listens",
    "data": "where it stores",
    "public_url": "people",
    "secret_key": "secrets and keys",
    "local_model": "models",
    "allowed_hosts": "pages that may call the server",
    "idle_limit": "limits",
    "event_days": "how long things are kept",
    "log_level": "log, metrics and traces",
    "currency": "money",
}
"""Titles, by the setting that comes first below each."""
STRUCTS: dict[str, tuple[type[Any], ...]] = {
    "providers": (settings.ProviderSettings,),
    "keys": (KeySettings,),
    "proxy": (ProxySettings,),
    "oidc": (OidcSettings,),
    "webhooks": (settings.WebhookSettings,),
    "agents": (settings.AgentSettings,),
    "mcp": (settings.McpSettings,),
    "budget": (Budget,),
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "providers": {
        "name": "gpu",
        "profile": "vllm",
        "base_url": "https://gpu.example:8000/v1",
        "api_key_env": "GPU_KEY",
        "models": ["qwen3"],
        "headers": {"x-team": "blue"},
        "query": {"tenant": "eu"},
        "key_header": "api-key",
        "alternate": False,
        "prefills": False,
        "think": True,
        "usage": True,
        "attaches": False,
        "proxy": "http://proxy.example:3128",
        "tools": True,
        "unlisted": "refuse",
    },
    "keys": {"name": "ada", "key_env": "ADA_KEY"},
    "proxy": {
        "create": "member",
        "roles": {"chat-admins": "admin"},
        "groups": {"research": "writers"},
        "addresses": ["10.0.0.5"],
        "user_header": "X-Forwarded-User",
        "groups_header": "X-Forwarded-Groups",
    },
    "oidc": {
        "create": "member",
        "roles": {"chat-admins": "admin"},
        "groups": {"research": "writers"},
        "issuer": "https://id.example.com",
        "client_id": "holdfast",
        "client_secret_env": "OIDC_SECRET",
    },
    "webhooks": {"url": "https://example.com/hooks", "secret_env": "HOOK_SECRET"},
    "agents": {
        "name": "helper",
        "model": "gpu/qwen3",
        "system": "You keep notes.",
        "users": ["ada"],
        "tools": ["files", "mcp:time"],
        "approvals": {"files_write": "allow"},
        "params": {"temperature": 0},
    },
    "mcp": {"name": "time", "command": "mcp-server-time", "tools": ["get_current_time"]},
    "budget": dict.fromkeys(Budget.__struct_fields__, 100),
}
"""Values of the fields that need one to be an example."""
LEFT_OUT = {"mcp": ("url", "api_key_env"), "keys": ("sha256",)}
"""Fields that cannot stand beside the others of their example. Their line is a comment within the comment."""
MAPS = {
    "agent_users": ("Who may use an agent of `serve --agent`, besides admins. Default: all.", {"counter": ["ada"]}),
    "agent_think": (
        "Whether a leading <think>…</think> of such an agent is reasoning. Default: yes.",
        {"counter": False},
    ),
    "fallbacks": ("The model that responds if another fails before its first word.", {"gpu/qwen3": "scripted/echo"}),
    "on_break": (
        "What is done if a response breaks off: `settle`, or `continue` by another call. `gpu/*`, `*`: for all others.",
        {"gpu/qwen3": "continue"},
    ),
    "limits": (
        "How long a model may be silent, in seconds; `per_token` is added to `first_token` for each token of a prompt.",
        {"gpu/qwen3": {"first_token": 300, "per_token": 0.1, "silence": 120}},
    ),
    "aliases": ("Other names of models.", {"gpt-4o": "gpu/qwen3"}),
    "log_levels": ("Log levels of modules.", {"holdfast.runs": "debug"}),
    "prices": (
        "Prices for a million tokens; `call` is that of a call which is passed on. `gpu/*` is for all others.",
        {"gpu/qwen3": {"input": 0.25, "cached_input": 0.025, "output": 2.0, "call": 0.0}},
    ),
}


def text() -> str:
    """Return the whole file."""
    assert not set(TABLES) - STRUCTS.keys() - MAPS.keys()
    assert set(Price.__struct_fields__) <= {*MAPS["prices"][1]["gpu/qwen3"]}
    return "\n".join([HEAD.rstrip(), *_scalars(), *(line for name in TABLES for line in _table(name)), ""])


def _scalars() -> Iterator[str]:
    said = described_in(settings.Settings)
    for field in SCALARS:
        if field.name in HEADINGS:
            yield f"\n\n# --- {HEADINGS[field.name]} ---"
        yield ""
        yield from _comment(said[field.name])
        yield f"# {field.name} = {toml(field.default)}"


def _table(name: str) -> Iterator[str]:
    if name in MAPS:
        about, values = MAPS[name]
        yield f"\n\n# --- {name} ---\n"
        yield from _comment(about)
        yield f"# [{name}]"
        yield from (f"# {json.dumps(key)} = {toml(value)}" for key, value in values.items())
        return
    yield f"\n\n# --- {name} ---\n"
    (struct,) = STRUCTS[name]
    yield from _comment((struct.__doc__ or "").strip().partition("\n\n")[0])
    is_list = name in ("providers", "keys", "webhooks", "agents", "mcp")
    yield f"# [[{name}]]" if is_list else f"# [{name}]"
    yield from _fields(name, struct)


def _fields(name: str, struct: type[Any]) -> Iterator[str]:
    said = {field: text for each in reversed(struct.__mro__) for field, text in _said(each).items()}
    for field in msgspec.structs.fields(struct):
        value = EXAMPLES[name].get(field.name, field.default)
        if value is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            value = field.default_factory()
        yield from _comment(said.get(field.name, ""))
        assert value is not msgspec.NODEFAULT, (name, field.name)
        assert value is not None, (name, field.name)
        sign = "# #" if field.name in LEFT_OUT.get(name, ()) else "#"
        yield f"{sign} {field.name} = {toml(value)}"


def _said(struct: type[Any]) -> dict[str, str]:
    return described_in(struct) if struct.__module__.startswith("holdfast.") else {}


def _comment(said: str) -> Iterator[str]:
    yield from textwrap.wrap(" ".join(said.split()), WIDTH, initial_indent="# ", subsequent_indent="#   ")


def toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {toml(each)}' for name, each in value.items())} }}".replace(
            "{  }", "{}"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return "inf" if value == math.inf else f"{value:g}"
    return json.dumps(value, ensure_ascii=False)
