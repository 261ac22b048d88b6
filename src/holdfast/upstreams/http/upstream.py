"""Requests to upstreams over HTTP: sending, reading the answer, cancelling, retrying.

When a stream ends, for any reason, the upstream's work ends too: the last step is always an abort of the socket that
awaits nothing, so neither a second cancellation nor a peer that does not read can keep it open. A connection is reused
only after its response was read to the end.

A request is retried only if no connection could be made, or if it was refused with a status in `RETRIED`: before the
first event of an answer, within the `patience` of the request, and with a notice. A connection that is lost after the
request was sent is a failure, since a model may have worked on it. `http_client/pool.py` has the one exception.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import chain
from typing import Any, ClassVar, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from ...concurrency.retry import Backoff
from ...concurrency.tasks import OwnedTasks
from ...errors import ProviderBroke, ProviderError, ProviderRefused, ProviderUnreachable
from ...events import Notice, Outlet, Usage, Yielded, put
from ...history import estimate_tokens
from ...http_client.connection import Reply
from ...http_client.errors import Broken, NotHTTP, NotThere, ProxyFailed, why_tls_ended
from ...http_client.pool import Connections
from ...http_client.request import head_of, with_length
from ...http_client.route import Route, route_to
from ...redaction import redact
from ...task_context.tracing import TRACER
from .. import ChatRequest, Forwarded
from ..decoding import error_message, loosely
from .address import UpstreamAddress, origin_of, request_headers, secrets_of
from .compression import InflatingDecoder, can_be_inflated, encoding_of, inflated
from .decoder import ResponseDecoder
from .refusals import RecentRefusals

__all__ = [
    "HTTPUpstream",
    "Refused",
    "encode_body",
    "pour",
    "retry_after",
]

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses after which the same request may succeed a little later."""

_OK = HTTPStatus.OK.value  # a plain number: to compare enum members costs a call
REDIRECTS = frozenset({301, 302, 303, 307, 308})

LONGEST_RETRY_AFTER = 3600.0

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 8.0
_ERROR_BODY = 64 * 1024
_END_OF_BODY_SECONDS = 0.05  # for the end of the framing after the last event: later, the connection is not reused
_MAX_REDIRECTS = 4
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")
_OLLAMA_PORT = 11434
_CANCEL_TIMEOUT = 1.0  # timeout of a request that cancels an answer, in seconds

_NOT_RETRIED = " Its model may have worked on the request, so it was not sent again. Ask again for another answer."

_TOO_LONG = {"context_length_exceeded", "exceed_context_size_error"}  # OpenAI's code, and llama-server's type
_TOO_LONG_MESSAGE = re.compile(
    r"exceeds the maximum number of tokens"  # Gemini's
    r"|prompt is too long|exceed context limit"  # Anthropic's
    r"|input is too long for requested model"  # Bedrock's
    r"|maximum (?:context|prompt) length"  # vLLM's, DeepSeek's, Mistral's, OpenRouter's, xAI's
    r"|exceeds? the (?:available )?context (?:size|length|window)"  # llama-server's, Ollama's
    r"|greater than the context length"  # LM Studio's
    r"|reduce the length of the messages",  # Groq's
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"""^model ["'].*["'] not found""")  # Ollama's message
_WRONG_KEY = b'"API_KEY_INVALID"'  # in Gemini's body: its status for a wrong key is 400


Method: TypeAlias = Literal["GET", "POST", "DELETE"]

Asked: TypeAlias = Reply | ProviderError
"""A response with an answer (status 200), or the error."""


class HTTPUpstream:
    """One upstream, its headers and its secrets.

    `key` is the header that holds the API key. `linger` is the time in seconds for the rest of a response: what follows
    the finish reason, the body after an error's status.

    Costs one connection for each stream.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        key: Mapping[str, str],
        headers: Mapping[str, str],
        query: Mapping[str, str] | None = None,
        connect_timeout: float,
        linger: float,
        route: Route | None = None,
    ) -> None:
        self.name = name
        self._url = UpstreamAddress(base_url, query)
        self._headers = request_headers(key, headers)
        route = route or route_to(base_url)
        self.secrets = (*secrets_of(self._headers, self._url), *(route.proxy.secrets if route.proxy else ()))
        self._linger = linger
        self.answered: bool | None = None
        """False if the last GET had no response, a refused key or a 5xx; True even for a 404; None before the first."""
        self.trouble = ""
        """Why the last GET failed, in a sentence without secrets; empty if it did not."""
        self._heads: dict[tuple[str, str], bytes] = {}
        self._connections = Connections(self._url.of(""), route=route, connect_timeout=connect_timeout)
        self._open: set[Reply] = set()
        self._refusals = RecentRefusals()
        self._tasks = OwnedTasks(f"the provider {name}")

    async def answer(
        self,
        request: ChatRequest,
        ask: Callable[[ChatRequest], Awaitable[Asked]],
        decoder: ResponseDecoder,
        out: Outlet,
    ) -> None:
        """Send a request, and emit the events of each read together. Raise `ProviderError` for an incomplete answer."""
        if request.messages:
            out.emit([Usage(estimate_tokens(request.messages), 0, "estimated")])
        deadline = time.monotonic() + request.patience
        asked = await ask(request)
        response = await _retried(asked, deadline, request, ask, out) if isinstance(asked, ProviderError) else asked
        try:
            self._open.add(response)
            if "content-encoding" in response.headers and _encoding(response):
                decoder = InflatingDecoder(decoder, self.name)
            await pour(response, decoder, out)
            while not decoder.over:
                if events := await self._next_events(response, decoder):
                    await put(out, events)
            if decoder.error is not None:
                raise decoder.error
            if not response.is_whole:
                await _read_to_end(response)
        finally:
            self._open.discard(response)
            response.close()

    async def _next_events(self, response: Reply, decoder: ResponseDecoder) -> list[Yielded]:
        """Return the events of the next read, or of the end, once the answer is complete or the response has ended."""
        try:
            async with asyncio.timeout(self._linger if decoder.finished else None):
                data = await response.read()
        except NotHTTP as error:
            events = decoder.end(cut=True)
            if decoder.error is not None:
                decoder.error = ProviderBroke(f"{self.name} sent {error} in the middle of its answer.")
            return events
        except (Broken, TimeoutError):
            return decoder.end(cut=True)
        return [*chain.from_iterable(decoder.feed(data))] if data else decoder.end()

    async def ask(
        self,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        query: str = "",
        method: Method = "POST",
    ) -> Asked:
        """Send a request. Return the response if its status is 200, and the error otherwise.

        `GET` fetches an answer that was requested before.
        """
        if (refusal := self._refusals.of(body)) is not None:
            return refusal
        head, is_repeatable = self._head(method, path, query, headers, len(body)), method != "POST"
        try:
            response = await self._connections.send(head, body, is_repeatable=is_repeatable)
        except (Broken, NotThere) as error:
            return self._failure(error, is_repeatable=is_repeatable)
        is_readable = "content-encoding" not in response.headers or can_be_inflated(_encoding(response))
        if response.status == _OK and is_readable:
            return response
        try:
            refused = await self._refusal(response)
        finally:
            response.close()
        if refused.code == "upstream_auth":
            self._refusals.add(body, refused)
        return refused

    def _failure(self, error: Broken | NotThere, *, is_repeatable: bool) -> ProviderError:
        """Return the error for a request without a response."""
        failure = self._described(error, is_repeatable=is_repeatable)
        failure.__cause__ = error
        return failure

    def _described(self, error: Broken | NotThere, *, is_repeatable: bool) -> ProviderError:
        if isinstance(error, NotHTTP):
            return ProviderBroke(f"{self.name} answered with {error}.")
        if isinstance(error, Broken):
            advice = "" if is_repeatable else _NOT_RETRIED
            return ProviderBroke(f"{self.name} {_why_broken(error)} before it answered.{advice}")
        advice = _advice(error, origin_of(self._url.of("")))
        message = f"{self.name} could not be reached: {error}.{advice}"
        if isinstance(error, ProxyFailed) and error.is_final:
            return ProviderRefused(message, code="proxy_refused", status=HTTPStatus.BAD_GATEWAY)
        return ProviderUnreachable(message)

    def _head(self, method: Method, path: str, query: str, headers: Mapping[str, str] | None, length: int) -> bytes:
        """Return the head of a request. The part that is the same for all requests to a path is cached."""
        if (tracer := TRACER.get()) is not None:
            headers = {**tracer.headers(), **(headers or {})}
        if query or headers:
            return head_of(method, self._url.of(path, query), {**self._headers, **(headers or {})}, length)
        if (head := self._heads.get((method, path))) is None:
            head = self._heads[method, path] = head_of(method, self._url.of(path), self._headers, None)
        return with_length(head, length, always=method == "POST")

    async def _refusal(self, response: Reply) -> ProviderError:
        encoding = _encoding(response)
        if response.status == HTTPStatus.OK:
            return ProviderBroke(f"{self.name} compressed its answer with {encoding[:20]!r}, which was not asked for.")
        if response.status in REDIRECTS:
            return Refused(f"{self.name} {_redirect_text(response)}", response)
        body = inflated(await _read_error(response, self._linger), encoding, _ERROR_BODY)
        value = loosely(body)
        unredacted = error_message(value)
        said = redact(unredacted, self.secrets) or _phrase(response.status)
        error = value.get("error") if isinstance(value, dict) else None
        error = error if isinstance(error, dict) else {}
        codes = {str(error.get("code")), str(error.get("type"))} & _TOO_LONG
        return Refused(
            f"{self.name} answered {response.status}: {said}",
            response,
            said=said,
            unredacted=unredacted,
            param=_param(error, self.secrets),
            is_too_long=bool(codes or _TOO_LONG_MESSAGE.search(unredacted)),
            is_about_the_key=_WRONG_KEY in body,
            is_about_the_model=error.get("code") == "model_not_found" or bool(_NO_MODEL.search(unredacted)),
        )

    async def forward(self, path: str, body: bytes, content_type: str, limit: int) -> Forwarded:
        """Send a request other than a chat, and return its whole response."""
        response = await self.ask(path, body, {"content-type": content_type})
        if isinstance(response, ProviderError):
            raise response
        try:
            whole = inflated(await response.read_upto(limit), _encoding(response), limit)
        except Broken as error:
            raise ProviderBroke(f"{self.name} {_why_broken(error)} in the middle of its response.") from error
        finally:
            response.close()
        if len(whole) >= limit:
            raise ProviderBroke(f"{self.name} sent a response of more than {limit} bytes.")
        return Forwarded(response.headers.get("content-type", "application/json"), whole)

    def url_of(self, path: str) -> str:
        """Return the URL that a request for a path goes to."""
        return self._url.of(path)

    def path_to(self, path: str) -> str:
        """Return a path under `/v1`, whether or not the base URL ends with that."""
        return path if self._url.is_versioned else f"/v1{path}"

    def drop(self, path: str, query: str = "", *, method: Method = "DELETE", again_after: Sequence[float] = ()) -> None:
        """Cancel an answer at the upstream, in a task that outlives the run: now and after each pause.

        `again_after` has the pauses, in seconds.
        """
        self._tasks.start(self._drop(method, path, query, again_after))

    async def _drop(self, method: Method, path: str, query: str, again_after: Sequence[float]) -> None:
        for pause in (0.0, *again_after):
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(_CANCEL_TIMEOUT):
                    head = self._head(method, path, query, None, 0)
                    (await self._connections.send(head, is_repeatable=method != "POST")).close()
            except (Broken, NotThere, TimeoutError):
                pass  # it is unreachable, or cannot cancel: nothing more can be done

    async def get(self, path: str, limit: int, query: str = "") -> Any:
        """Return the JSON at a path, of up to `limit` bytes; None if there is none."""
        answered, trouble, body, encoding = False, f"{self.name} did not answer in time.", b"", ""
        try:
            response = await self._get_redirected(self._url.of(path, query))
            try:
                trouble, encoding = await self._problem_in(response), _encoding(response)
                answered = response.status == HTTPStatus.OK or not trouble
                body = await response.read_upto(limit) if response.status == HTTPStatus.OK else b""
            finally:
                response.close()
        except ProviderError as error:
            trouble = str(error)
        except Broken:
            pass  # an incomplete list is ignored
        finally:
            self.answered, self.trouble = answered, trouble
        return loosely(inflated(body, encoding, limit))

    async def _get_redirected(self, url: str) -> Reply:
        """Return the response at a URL. Redirects are followed on the same origin only: no key is sent elsewhere."""
        for _ in range(_MAX_REDIRECTS):
            try:
                response = await self._connections.send(head_of("GET", url, self._headers), is_repeatable=True)
            except (Broken, NotThere) as error:
                raise self._failure(error, is_repeatable=True) from error
            if response.status not in REDIRECTS:
                return response
            response.close()
            target = self._url.redirected(url, response.headers.get("location", ""))
            if target is None:
                raise Refused(f"{self.name} {_redirect_text(response)}", response)
            url = target
        raise ProviderBroke(f"{self.name} redirects again and again.")

    async def _problem_in(self, response: Reply) -> str:
        """Return the problem that a response shows; empty if there is none. Not all upstreams list their models."""
        if response.status != HTTPStatus.OK:
            refusal = await self._refusal(response)
            if isinstance(refusal, Refused) and refusal.code == "upstream_auth":
                return (
                    f"{self.name} refuses the key ({response.status}): {refusal.said.rstrip('.')}. Check the API key."
                )
            return str(refusal) if response.status >= 500 else ""
        if not can_be_inflated(_encoding(response)):
            return f"{self.name} compresses its list of models with {_encoding(response)[:20]!r}, which cannot be read."
        return ""

    async def close(self) -> None:
        """End the open streams, and close the connections."""
        for response in tuple(self._open):
            response.close()
        await self._tasks.wait()
        self._connections.close()


async def _retried(
    result: Asked, deadline: float, request: ChatRequest, ask: Callable[[ChatRequest], Awaitable[Asked]], out: Outlet
) -> Reply:
    """Send a request again after a failure, while `_pause_after` allows it."""
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, spread=(1.0, 1.5))
    while isinstance(result, ProviderError):
        pause = _pause_after(result, backoff, deadline)
        if pause is None or (request.client_repeats and result.info().may_pass):
            raise result
        out.emit([Notice("retry", f"Trying again in {pause:.1f} s, because {result}")])
        await asyncio.sleep(pause)
        result = await ask(request)
    return result


async def pour(response: Reply, decoder: ResponseDecoder, out: Outlet) -> None:
    """Emit events within the call that receives them, until the answer is complete or the response has ended."""
    has_room, failed = True, None

    def sink(data: bytes) -> bool:
        nonlocal has_room, failed
        is_silent = True
        try:
            for events in decoder.feed(data):
                if events:
                    is_silent = False
                    has_room = out.emit(events) and has_room
            if is_silent:
                out.emit(())  # a comment, an empty delta, half an event: a sign of life
        except Exception as error:  # noqa: BLE001 - raised in the waiting task, not in the connection
            failed = error
        return has_room and failed is None and not (decoder.finished or decoder.over)

    while not (decoder.finished or decoder.over or response.has_ended):
        await response.pour(sink)
        if failed is not None:
            try:
                raise failed
            finally:
                failed = None  # break the reference cycle, so that reference counting frees it
        if not has_room:
            await out.room()
            has_room = True


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return a request's body as JSON, even with lone surrogates in its strings."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # half an emoji: JSON can escape it, UTF-8 cannot hold it
        return json.dumps(body).encode()


class Refused(ProviderRefused):
    """The upstream responded with an error. `answered` is its status, `status` the one for our own client.

    `said` is the upstream's message, without secrets.
    """

    _MEANING: ClassVar = {
        400: (400, "upstream_rejected"),
        413: (413, "upstream_rejected"),
        422: (422, "upstream_rejected"),
        404: (404, "upstream_not_found"),
        401: (502, "upstream_auth"),
        402: (502, "upstream_auth"),
        403: (502, "upstream_auth"),
        429: (429, "upstream_rate_limited"),
        529: (529, "upstream_overloaded"),
    }

    def __init__(
        self,
        message: str,
        response: Reply,
        *,
        said: str = "",
        unredacted: str = "",
        param: str | None = None,
        is_too_long: bool = False,
        is_about_the_key: bool = False,
        is_about_the_model: bool = False,
    ) -> None:
        meaning = HTTPStatus.UNAUTHORIZED if is_about_the_key else response.status
        status, code = self._MEANING.get(meaning, (502, "upstream_error"))
        code = "context_length_exceeded" if is_too_long and code == "upstream_rejected" else code
        if is_about_the_model and code == "upstream_not_found":
            code, param = "model_not_found", "model"
        super().__init__(message, code=code, status=status, retry_after=retry_after(response.headers, time.time()))
        self.answered = response.status
        self.said = said
        self.param = param
        self._unredacted = unredacted

    def is_about(self, field: str) -> bool:
        """Return whether the upstream refuses the request because of a field that it does not know."""
        return self.answered in (400, 422) and field in self._unredacted


def _pause_after(error: ProviderError, backoff: Backoff, deadline: float) -> float | None:
    """Return the seconds before the next try; None if there is to be none."""
    if not isinstance(error, ProviderUnreachable) and getattr(error, "answered", 0) not in RETRIED:
        return None
    pause = max(backoff.next(), error.retry_after or 0.0)
    return pause if time.monotonic() + pause <= deadline else None


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds of a `Retry-After` header, from 0 to an hour; None if it is missing or invalid."""
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
    """Read the start of an error's body, for a limited time: the status matters more."""
    try:
        async with asyncio.timeout(within):
            return await response.read_upto(_ERROR_BODY)
    except (Broken, TimeoutError):
        return b""


async def _read_to_end(response: Reply) -> None:
    """Read the rest after the last event, so that the connection can be reused, unless that takes too long."""
    try:
        async with asyncio.timeout(_END_OF_BODY_SECONDS):
            while await response.read():
                pass
    except (Broken, TimeoutError):
        pass  # the answer is complete anyway


def _advice(error: NotThere, origin: str) -> str:
    """Return what to check of an upstream at `origin`. TLS errors name their setting themselves."""
    if isinstance(error, ProxyFailed):
        return "" if error.status else " Check proxy, HTTPS_PROXY and NO_PROXY."
    match error.__cause__:
        case socket.gaierror() | UnicodeError():
            return " Check the host in base_url."
        case ssl.SSLError():
            return ""
        case ConnectionRefusedError():
            return where_nobody_is(origin)
        case _:
            return " Check base_url, and proxy if a proxy leads there."


def where_nobody_is(origin: str) -> str:
    """Return what to check if a connection was refused. The address is not named: whoever has a key reads it."""
    address = urlsplit(origin)
    is_ollama = address.hostname in _THIS_MACHINE and address.port == _OLLAMA_PORT
    return " Is Ollama running?" if is_ollama else " Check the address and its port."


def _why_broken(error: Broken) -> str:
    """Return how a connection ended. A client certificate is refused after the request was written."""
    tls = error.__cause__
    return f"closed the connection ({why_tls_ended(tls)})" if isinstance(tls, ssl.SSLError) else "closed the connection"


def _encoding(response: Reply) -> str:
    return encoding_of(response.headers.get("content-encoding", ""))


def _redirect_text(response: Reply) -> str:
    """Return where a response redirects to, by its origin alone: a path or a query may hold a secret."""
    origin = origin_of(response.headers.get("location", ""))
    where = f"to {origin}" if origin else "to another address"
    return f"redirects {where} ({response.status}), which is not followed: set base_url to its new address."


def _phrase(status: int) -> str:
    try:
        return f"{HTTPStatus(status).phrase}."
    except ValueError:
        return "it did not say why."


def _param(error: Mapping[str, Any], secrets: Sequence[str]) -> str | None:
    """Return the parameter that an upstream rejects."""
    param = error.get("param")
    return redact(param, secrets) if isinstance(param, str) else None
