"""What all upstreams that are reached by HTTP have in common: how they are asked, read, left, and asked again.

Whatever ends a stream also ends the upstream's work: the last step of each way out is an abort of the socket that
awaits nothing, so neither a second cancel nor a peer that does not read can keep it open. A connection is used again
only after an answer that was read to its end.

Requests are repeated only before the first event of an answer, within the caller's patience, and with a notice. One
thing is repeated without: a request on a kept-alive connection that was closed before any answer came, as the
upstream had given it up already.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import chain
from typing import Any, ClassVar, Protocol, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import msgspec

from ..errors import ProviderBroke, ProviderError, ProviderRefused, ProviderUnreachable
from ..events import Notice, Usage, Yielded
from . import ChatRequest
from .connections import Broken, Connections, NotHTTP, NotThere, Reply, head_of, with_length
from .openai_stream import loosely, told
from .redaction import redact

__all__ = [
    "Catalogue",
    "HTTPUpstream",
    "Refused",
    "encode_body",
    "estimate_tokens",
    "model_names",
    "retry_after",
]

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Answers after which the same request may succeed a little later."""

LONGEST_RETRY_AFTER = 3600.0
MODELS_RETRY = 10.0
"""Seconds at most after which the models are looked up again when a look-up has failed."""

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 8.0
_ERROR_BODY = 64 * 1024
_END_OF_BODY_SECONDS = 0.05  # the last bytes of HTTP framing follow the last event at once, or it is not kept
_DROPPING = 1.0  # seconds in which an upstream must have heard that an answer is not wanted any more

_TELLING_NAMES = ("auth", "key", "token", "secret", "cookie", "sig", "password")


class Answer(Protocol):
    """Turns the bytes of one response into events. `error` and `finished` are as `AnswerDecoder` has them."""

    over: bool
    finished: bool
    error: ProviderError | None

    def feed(self, data: bytes) -> list[Sequence[Yielded]]:
        """Return the events that one more read completes, in order: as sequences, of which some may be empty."""
        ...

    def end(self, *, cut: bool = False) -> list[Yielded]:
        """Return what is left when the upstream has ended: of its own accord, or `cut` off."""
        ...


Asked: TypeAlias = Reply | ProviderError
"""A response whose status says that an answer follows, or what is wrong."""


class HTTPUpstream:
    """One upstream, its headers and its secrets.

    `key` is the header that holds the API key. `linger` is how long is waited for the rest when the main thing has been
    said: what follows the finish reason, the body after an error's status.

    Costs one connection for each stream.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        key: Mapping[str, str],
        headers: Mapping[str, str],
        connect_timeout: float,
        linger: float,
    ) -> None:
        self.name = name
        self._url = _Url(base_url)
        self._headers = _merged(key, headers)
        self.secrets = _secrets(self._headers, self._url)
        self._connect_timeout = connect_timeout
        self._linger = linger
        self.answered: bool | None = None
        """Whether there was an answer when something was last looked up, be it that there is nothing to find."""
        self._heads: dict[tuple[str, str], bytes] = {}
        self._connections = Connections(self._url.of(""), connect_timeout=connect_timeout)
        self._open: set[Reply] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def stream(
        self, request: ChatRequest, ask: Callable[[ChatRequest], Awaitable[Asked]], answer: Answer
    ) -> AsyncGenerator[list[Yielded]]:
        """Yield the events of each read together; raise a `ProviderError` unless the upstream said how it ended.

        Where the request `flows`, the answer is one `Flow`.
        """
        if request.messages:
            yield [Usage(estimate_tokens(request.messages), 0, "estimated")]
        patience = _Patience(request.patience)
        while isinstance(answered := await ask(request), ProviderError):
            pause = patience.pause_after(answered)
            if pause is None:
                raise answered
            yield [Notice("retry", f"Trying again in {pause:.1f} s, because {answered}")]
            await asyncio.sleep(pause)
        try:
            self._open.add(answered)
            if request.flows:
                yield cast(list[Yielded], AnswerFlow(answered, answer))
            while not answer.over:
                if events := await self._next(answered, answer):
                    yield events
            if answer.error is not None:
                raise answer.error
            if not answered.is_whole:
                await _read_to_end(answered)
        finally:
            self._open.discard(answered)
            answered.close()

    async def _next(self, answered: Reply, answer: Answer) -> list[Yielded]:
        """Return the events of the next read, or of the end."""
        try:
            if answer.finished:
                async with asyncio.timeout(self._linger):
                    data = await answered.read()
            else:
                data = await answered.read()
        except (Broken, TimeoutError):
            return answer.end(cut=True)
        return [*chain.from_iterable(answer.feed(data))] if data else answer.end()

    async def ask(
        self, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, again: str = ""
    ) -> Asked:
        """Return the response if its status says that an answer follows, and else what is wrong.

        `again` is the query by which an answer is found that was asked for before.
        """
        try:
            response = await self._send("GET" if again else "POST", path, body, headers, again)
        except ProviderError as error:
            return error
        if response.status == HTTPStatus.OK and not _is_compressed(response):
            return response
        try:
            return await self._refusal(response)
        finally:
            response.close()

    async def _send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, query: str = ""
    ) -> Reply:
        try:
            return await self._connections.send(self._head(method, path, query, headers, len(body)), body)
        except NotHTTP as error:
            raise ProviderBroke(f"{self.name} answered with something that is not HTTP.") from error
        except Broken as error:
            raise ProviderBroke(f"{self.name} closed the connection before it answered.") from error
        except NotThere as error:
            why = _why_not_there(error.__cause__, self._connect_timeout)
            raise ProviderUnreachable(f"{self.name} could not be reached: {why}.") from error

    def _head(self, method: str, path: str, query: str, headers: Mapping[str, str] | None, length: int) -> bytes:
        """Return the first part of a request; what is the same for all requests there is put together once."""
        if query or headers:
            return head_of(method, self._url.of(path, query), {**self._headers, **(headers or {})}, length)
        if (head := self._heads.get((method, path))) is None:
            head = self._heads[method, path] = head_of(method, self._url.of(path), self._headers, None)
        return with_length(head, length, always=method == "POST")

    async def _refusal(self, response: Reply) -> ProviderError:
        if response.status == HTTPStatus.OK:
            return ProviderBroke(f"{self.name} sent a compressed answer, which was not asked for.")
        if 300 <= response.status < 400:
            return Refused(f"{self.name} redirects to another address, which is not followed.", response)
        body = b"" if _is_compressed(response) else await _read_error(response, self._linger)
        value = loosely(body)
        said = told(value)
        message = f"{self.name} answered {response.status}: {redact(said, self.secrets) or _phrase(response.status)}"
        return Refused(message, response, unredacted=said, param=_param(value, self.secrets))

    def path_to(self, path: str) -> str:
        """Return a path under `/v1`, whether or not the base URL ends with that."""
        return path if self._url.is_versioned else f"/v1{path}"

    def drop(self, path: str, query: str, *, again_after: Sequence[float] = ()) -> None:
        """Have something deleted by a task that no end of a run can interrupt, and once more after each pause."""
        task = asyncio.create_task(self._delete(path, query, again_after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, path: str, query: str, again_after: Sequence[float]) -> None:
        for pause in (0.0, *again_after):
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(_DROPPING):
                    (await self._send("DELETE", path, query=query)).close()
            except (ProviderError, TimeoutError):
                pass  # it is away, or does not know how: nothing more can be done from here

    async def get(self, path: str, limit: int, query: str = "") -> Any:
        """Return the JSON of up to `limit` bytes that is found there; None where there is none now."""
        answered, body = False, b""
        try:
            response = await self._send("GET", path, query=query)
            answered = response.status < 500 and response.status not in (401, 403)
        except ProviderError:
            return None
        finally:
            self.answered = answered
        try:
            if response.status == HTTPStatus.OK:
                body = await response.read_upto(limit)
        except Broken:
            return None
        finally:
            response.close()
        return loosely(body)

    async def close(self) -> None:
        """End the streams that still go on, and let go of the connections."""
        for response in tuple(self._open):
            response.close()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._connections.close()


class AnswerFlow:
    """What a response has to say, decoded and handed over as it arrives: a `Flow`."""

    def __init__(self, answered: Reply, answer: Answer) -> None:
        self.is_over = False
        self.has_said = False
        """Whether anything came of it."""
        self._answered = answered
        self._answer = answer

    async def pour(self, take: Callable[[Sequence[Yielded]], bool]) -> None:
        """Hand over what comes."""
        answer = self._answer

        def sink(data: bytes) -> bool:
            goes_on = True
            for events in answer.feed(data):
                if events:
                    self.has_said = True
                    goes_on = take(events) and goes_on
            # What follows the last word is waited for in another way.
            return goes_on and not (answer.finished or answer.over)

        await self._answered.pour(sink)
        self.is_over = answer.finished or answer.over or self._answered.has_ended


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return a request's body as JSON, whatever its strings hold."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half an emoji: JSON can escape it, UTF-8 cannot hold it
        return json.dumps(body).encode()


class Refused(ProviderRefused):
    """The upstream's status is no success. `answered` is that status, `status` what it means to our own client."""

    _MEANING: ClassVar = {
        400: (400, "upstream_rejected"),
        413: (413, "upstream_rejected"),
        422: (422, "upstream_rejected"),
        404: (404, "upstream_not_found"),
        401: (502, "upstream_auth"),
        403: (502, "upstream_auth"),
        429: (429, "upstream_rate_limited"),
    }

    def __init__(self, message: str, response: Reply, *, unredacted: str = "", param: str | None = None) -> None:
        status, code = self._MEANING.get(response.status, (502, "upstream_error"))
        super().__init__(message, code=code, status=status, retry_after=retry_after(response.headers, time.time()))
        self.answered = response.status
        self.param = param
        self._unredacted = unredacted

    def is_about(self, field: str) -> bool:
        """Tell whether the upstream refuses the request because of a field that it does not know."""
        return self.answered in (400, 422) and field in self._unredacted


class _Patience:
    """How long retries may still go on. Pauses double, with some chance in them so that clients do not come in step."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE

    def pause_after(self, error: ProviderError) -> float | None:
        """Return how long to wait before the next try; None where there is to be none."""
        if not isinstance(error, ProviderUnreachable) and getattr(error, "answered", 0) not in RETRIED:
            return None
        pause = max(self._pause * random.uniform(1.0, 1.5), error.retry_after or 0.0)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return pause if time.monotonic() + pause <= self._deadline else None


class Catalogue:
    """The models that an upstream offers, looked up by one task for all who ask, and remembered for a while."""

    def __init__(self, look_up: Callable[[], Awaitable[list[str] | None]], timeout: float, fresh: float) -> None:
        self._look_up = look_up
        self._timeout = timeout
        self._fresh = fresh
        self._names: list[str] | None = None
        self._due = 0.0
        self._task: asyncio.Task[None] | None = None

    async def names(self) -> list[str]:
        """Return the last list at once, or the first when it is there. A look-up that is due goes on meanwhile."""
        if self._task is None and time.monotonic() >= self._due:
            self._task = asyncio.create_task(self._renew())
        if self._names is None and self._task is not None:
            await asyncio.wait({self._task})
        return list(self._names or ())

    async def _renew(self) -> None:
        names = None
        try:
            async with asyncio.timeout(self._timeout):
                names = await self._look_up()
        except TimeoutError:
            pass  # the last list stands
        finally:
            self._task = None
        self._due = time.monotonic() + (min(MODELS_RETRY, self._fresh) if names is None else self._fresh)
        self._names = self._names if names is None else names

    async def close(self) -> None:
        """Give up a look-up that is going on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


class _Url:
    """A base URL, checked once. A query (some gateways want one) stays at the end."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url.strip())
        if parts.scheme not in ("http", "https") or not _is_host(parts.hostname):
            raise ValueError(f"base_url must begin with http:// or https:// and name a host, unlike {base_url!r}")
        if parts.username is not None:
            raise ValueError("base_url must not hold a name or password: use api_key or headers")
        self._parts = parts

    def of(self, path: str, query: str = "") -> str:
        query = "&".join(part for part in (self._parts.query, query) if part)
        return urlunsplit(self._parts._replace(path=self._parts.path.rstrip("/") + path, query=query, fragment=""))

    @property
    def is_versioned(self) -> bool:
        return self._parts.path.rstrip("/").endswith("/v1")

    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(self._parts.query)


def _is_host(name: str | None) -> bool:
    try:
        return bool(name and name.encode("idna"))
    except UnicodeError:
        return False


_COUNTED = frozenset({"content", "text", "tool_calls", "function", "name", "arguments"})


def estimate_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return about how many tokens the messages are: four characters to each, and nothing for images."""
    return -(-sum(map(_characters, messages)) // 4)


def _characters(value: Any) -> int:
    """Count the characters of a message's own text, the text of its parts and the arguments of its calls."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_characters, value))
    if not isinstance(value, dict):
        return 0
    return sum([_characters(inner) for field, inner in value.items() if field in _COUNTED])


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that an upstream asks to be left alone: 0 to an hour; None where it asks nothing sensible."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_until(value, now)
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None


def _seconds_until(date: str, now: float) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - now
    except (ValueError, OverflowError):
        return math.nan


async def _read_error(response: Reply, within: float) -> bytes:
    """Read as much of an error's body as is worth it; the status has said the main thing."""
    try:
        async with asyncio.timeout(within):
            return await response.read_upto(_ERROR_BODY)
    except (Broken, TimeoutError):
        return b""


async def _read_to_end(response: Reply) -> None:
    """Read what follows the last event, so that the connection can be used again; if that takes long it is not."""
    try:
        async with asyncio.timeout(_END_OF_BODY_SECONDS):
            while await response.read():
                pass
    except (Broken, TimeoutError):
        pass  # the answer is whole all the same


def _why_not_there(error: BaseException | None, within: float) -> str:
    """Return why no connection could be made. The host is left out: not every reader may know it."""
    match error:
        case TimeoutError():
            return f"nothing was there within {within:g} s"
        case socket.gaierror() | UnicodeError():
            return "its name could not be resolved"
        case ssl.SSLError():
            return "TLS failed"
        case OSError(errno=int(number)):
            return os.strerror(number).lower()
        case _:
            return "the connection failed"


def _merged(key: Mapping[str, str], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of each request; those that were configured stand before ours."""
    ours = {
        "User-Agent": "holdfast",
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        **key,
    }
    given = {name.lower() for name in headers}
    merged = {name: value for name, value in ours.items() if name.lower() not in given} | dict(headers)
    for name, value in merged.items():
        if not value.isprintable():
            raise ValueError(f"the value of the header {name!r} holds a control character")
    return merged


def _secrets(headers: Mapping[str, str], url: _Url) -> tuple[str, ...]:
    """Return what must never be shown: keys in headers and in the URL's query."""
    named = [*headers.items(), *url.query()]
    telling = [value for name, value in named if any(part in name.lower() for part in _TELLING_NAMES)]
    return tuple(value.removeprefix("Bearer ").strip() for value in telling)


def _is_compressed(response: Reply) -> bool:
    return "content-encoding" in response.headers and response.headers["content-encoding"].strip().lower() not in (
        "",
        "identity",
    )


def _phrase(status: int) -> str:
    try:
        return f"{HTTPStatus(status).phrase}."
    except ValueError:
        return "it did not say why."


def _param(value: Any, secrets: Sequence[str]) -> str | None:
    """Return the parameter that an upstream complains of."""
    error = value.get("error") if isinstance(value, dict) else None
    param = error.get("param") if isinstance(error, dict) else None
    return redact(param, secrets) if isinstance(param, str) else None


def model_names(value: Any) -> list[str] | None:
    """Return the ids in a list of models, each once; None where there is no list."""
    listed = value.get("data", value.get("models")) if isinstance(value, dict) else value
    if not isinstance(listed, list):
        return None
    ids = [entry.get("id") or entry.get("name") for entry in listed if isinstance(entry, dict)]
    return list(dict.fromkeys(id for id in ids if isinstance(id, str)))
