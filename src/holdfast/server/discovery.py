"""Local model servers that are listening right now, for a start with no providers in the settings."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ..providers.profiles import PROFILES, ProfileName
from .settings import ProviderSettings, Settings, load_with_sources

LIMIT = 0.2
"""Seconds that a server on this machine has to answer: all are asked at once, and the start waits no longer."""

_ENOUGH = 64 * 1024  # bytes of an answer: what tells one server from another stands at its beginning


class _Answer(NamedTuple):
    """What came back from an address."""

    status: int
    server: str
    body: bytes

    def field(self, name: str) -> Any:
        """Return a field of the body, where that is a JSON object."""
        try:
            body = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None
        return body.get(name) if isinstance(body, dict) else None


class _Place(NamedTuple):
    """Where a kind of server is looked for, and how it is known from another on the same port."""

    name: ProfileName
    variable: str
    """Names another address."""
    path: str
    is_it: Callable[[_Answer], bool]


def _is_ollama(answer: _Answer) -> bool:
    return answer.status == 200 and isinstance(answer.field("version"), str)


def _is_llama_server(answer: _Answer) -> bool:
    """Tell it by its own name: port 8080 is everybody's. While it loads its model it answers 503."""
    return answer.server == "llama.cpp"


def _is_lm_studio(answer: _Answer) -> bool:
    return answer.status == 200 and isinstance(answer.field("data"), list)


PLACES = (
    _Place("ollama", "OLLAMA_HOST", "/api/version", _is_ollama),
    _Place("llamacpp", "LLAMACPP_URL", "/v1/models", _is_llama_server),
    _Place("lmstudio", "LMSTUDIO_URL", "/v1/models", _is_lm_studio),
)


def load_and_look(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: str | os.PathLike[str] | None = None,
    *,
    within: float = LIMIT,
) -> Settings:
    """Return the settings. Where they name no providers, the servers that listen on this machine are among them."""
    settings, sources = load_with_sources(flags, environ, file)
    if sources.get("providers") != "discovered":
        return settings
    keyed = [provider for provider in settings.providers if provider.dialect not in ("local", "scripted")]
    always = [provider for provider in settings.providers if provider.dialect in ("local", "scripted")]
    return msgspec.structs.replace(settings, providers=(*keyed, *listening(environ, within), *always))


def listening(environ: Mapping[str, str], within: float = LIMIT) -> tuple[ProviderSettings, ...]:
    """Return a provider for each server that answers as itself, within so many seconds in all."""
    found: dict[str, ProviderSettings] = {}
    deadline = time.monotonic() + within
    for thread in list(_looking(environ, found, within)):
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(found[place.name] for place in PLACES if place.name in found)


def _looking(
    environ: Mapping[str, str], found: dict[str, ProviderSettings], within: float
) -> Iterable[threading.Thread]:
    """Start to look at each place. A thread that hangs, in a name that does not resolve, is left to itself."""
    for place in PLACES:
        given = environ.get(place.variable, "")
        thread = threading.Thread(target=_look, args=[place, given, found, within], daemon=True)
        thread.start()
        yield thread


def _look(place: _Place, given: str, found: dict[str, ProviderSettings], within: float) -> None:
    try:
        address = _address(given, PROFILES[place.name].base_url)
        answer = _ask(address + place.path, within)
    except (OSError, ValueError, http.client.HTTPException):
        return  # nobody is there, or somebody else
    if place.is_it(answer):
        found[place.name] = ProviderSettings(place.name, profile=place.name, base_url=f"{address}/v1")


def _address(given: str, usual: str) -> str:
    """Return a server's address without a path. `OLLAMA_HOST` may be a bare host, a bare port, or where it binds."""
    default = urlsplit(usual)
    if not given.strip():
        return f"{default.scheme}://{default.netloc}"
    parts = urlsplit(given.strip() if "://" in given else f"{default.scheme}://{given.strip()}")
    host = parts.hostname or default.hostname or ""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # where it listens, not where it is
    port = parts.port or default.port
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _ask(url: str, within: float) -> _Answer:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=within)
    try:
        connection.request("GET", parts.path, headers={"User-Agent": "holdfast"})
        response = connection.getresponse()
        return _Answer(response.status, response.headers.get("Server", ""), response.read(_ENOUGH))
    finally:
        connection.close()
