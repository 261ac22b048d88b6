"""Discovery of model servers on this machine, for a start with no providers in the settings.

Any user of a machine can listen on these ports. So the owner of the port is checked: a server is used if it belongs to
root, to our user, or to a user called `ollama`. Only Linux names the owner; on other systems none is refused.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ...upstreams.profiles import PROFILES, ProfileName
from ..config.settings import DISCOVERED, ProviderSettings, Settings, load_with_sources
from .port_owner import strangers_at

LIMIT = 0.2
"""Timeout of all requests of the discovery, in seconds. They are sent at once, and the start waits no longer."""

_ENOUGH = 64 * 1024  # bytes of a response that are read: its beginning identifies the server


class _Answer(NamedTuple):
    """The response of an address."""

    status: int
    server: str
    body: bytes

    def field(self, name: str) -> Any:
        """Return a field of the body, if that is a JSON object."""
        try:
            body = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None
        return body.get(name) if isinstance(body, dict) else None


class _Place(NamedTuple):
    """The address of a kind of server, and the check that tells it from another on the same port."""

    name: ProfileName
    variable: str
    """The environment variable that names another address."""
    path: str
    is_it: Callable[[_Answer], bool]


def _is_ollama(answer: _Answer) -> bool:
    return answer.status == 200 and isinstance(answer.field("version"), str)


def _is_llama_server(answer: _Answer) -> bool:
    """Recognise llama-server by its name: many servers use port 8080. While it loads its model it answers 503."""
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
    """Return the settings; if discovery is on, with the servers of this machine among the providers."""
    settings, sources = load_with_sources(flags, environ, file)
    looks = settings.discover
    if looks == "auto":
        looks = sources.get("providers") == DISCOVERED and not (settings.api_key or settings.keys)
    if not looks:
        return settings
    keyed = [provider for provider in settings.providers if provider.dialect not in ("local", "scripted")]
    always = [provider for provider in settings.providers if provider.dialect in ("local", "scripted")]
    return msgspec.structs.replace(settings, providers=(*keyed, *listening(environ, within), *always))


class Around(NamedTuple):
    """The servers that were found on this machine."""

    found: tuple[ProviderSettings, ...]
    """A provider for each server that was recognised and may be used."""
    strangers: dict[str, int]
    """Servers whose port belongs to another user: their names, with that user's id."""


def around(environ: Mapping[str, str], known: Sequence[ProviderSettings] = (), within: float = LIMIT) -> Around:
    """Send a request to every address, within `within` seconds in total. `known` are the servers found before."""
    answering: dict[str, ProviderSettings] = {}
    deadline = time.monotonic() + within
    for thread in list(_looking(environ, answering, within)):
        thread.join(max(0.0, deadline - time.monotonic()))
    seen = {each.name: each for each in (*known, *answering.copy().values())}
    uids = strangers_at([each.base_url for each in seen.values()])
    strangers = {name: uids[each.base_url] for name, each in seen.items() if each.base_url in uids}
    names = [place.name for place in PLACES if place.name in answering and place.name not in strangers]
    return Around(tuple(answering[name] for name in names), strangers)


def listening(environ: Mapping[str, str], within: float = LIMIT) -> tuple[ProviderSettings, ...]:
    """Return a provider for each server that is recognised and may be used, within `within` seconds in total."""
    return around(environ, within=within).found


def _looking(
    environ: Mapping[str, str], found: dict[str, ProviderSettings], within: float
) -> Iterable[threading.Thread]:
    """Start a request to each address. A thread that hangs in a name resolution is abandoned."""
    for place in PLACES:
        given = environ.get(place.variable, "")
        thread = threading.Thread(target=_look, args=[place, given, found, within], daemon=True)
        thread.start()
        yield thread


def _look(place: _Place, given: str, found: dict[str, ProviderSettings], within: float) -> None:
    try:
        address = _address(given, PROFILES[place.name].base_url)
        answer = _request(address + place.path, within)
    except (OSError, ValueError, http.client.HTTPException):
        return  # no server, or another one
    if place.is_it(answer):
        found[place.name] = ProviderSettings(place.name, profile=place.name, base_url=f"{address}/v1")


def _address(given: str, usual: str) -> str:
    """Return a server's address without a path. `OLLAMA_HOST` may be a bare host, a bare port, or a listen address."""
    default = urlsplit(usual)
    if not given.strip():
        return f"{default.scheme}://{default.netloc}"
    parts = urlsplit(given.strip() if "://" in given else f"{default.scheme}://{given.strip()}")
    host = parts.hostname or default.hostname or ""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # an address to listen on, not to connect to
    port = parts.port or default.port
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _request(url: str, within: float) -> _Answer:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=within)
    try:
        connection.request("GET", parts.path, headers={"User-Agent": "holdfast"})
        response = connection.getresponse()
        return _Answer(response.status, response.headers.get("Server", ""), response.read(_ENOUGH))
    finally:
        connection.close()
