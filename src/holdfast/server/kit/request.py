"""The headers, query and body of a request: read within limits, and decoded into a struct."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.requests import Request

from ...access import ACCESS, Access
from ...asgi.client import CONNECTION, HEADERS, ClientConnection
from ...asgi.idempotency import request_digest
from ...errors import BadRequest
from ...store import Idempotency
from ..config.current import CurrentSettings
from .caller import owner_of
from .http.json_size import MOST_VALUES, SMALL, TooManyValues, check_values

DEEPEST = 100
"""Maximum nesting depth of a body."""

T = TypeVar("T")


def header(request: Request, name: bytes) -> str | None:
    """Return a header of the request by its name in lower case."""
    value: bytes | None = request.scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


class BodyTooLarge(BadRequest):
    """The body is larger than the limit."""

    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than the limit of {limit} bytes.", status=413)


class Bodies:
    """Reads the bodies of requests, within the limits."""

    def __init__(self, current: CurrentSettings) -> None:
        self._current = current
        self._one_large = asyncio.Lock()
        """Held while a large body is checked and decoded."""

    async def read(self, request: Request) -> bytes:
        """Return the JSON body: at most `body_limit` bytes, and at most `MOST_VALUES` values.

        Large bodies are checked one at a time, and the caller decodes its body before the next one is checked: other
        requests are served in between.
        """
        body = await _received(request, self._current.now.body_limit)
        if len(body) > SMALL:
            await self.check(body)
        return body

    async def check(self, body: bytes) -> None:
        """Refuse JSON with too many values. A body of up to `SMALL` bytes cannot have them."""
        async with self._one_large:
            await _check_values(body)

    async def read_bytes(self, request: Request, most: int | None = None) -> bytes:
        """Return a body that is no JSON: at most `most` bytes, or `body_limit`."""
        limit = self._current.now.body_limit
        return await _received(request, limit if most is None else min(most, limit))


async def _check_values(body: bytes) -> None:
    try:
        await check_values(body)
    except TooManyValues:
        message = f"The body has more than {MOST_VALUES:,} values. Send it in several requests."
        raise BadRequest(message, code="invalid_json") from None


class EncodedBody(BadRequest):
    """The body is compressed."""

    code = "unsupported_encoding"

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"A body with Content-Encoding {encoding!r} is not supported. Send it uncompressed.", status=415
        )


async def _received(request: Request, limit: int) -> bytes:
    headers = request.scope[HEADERS]
    if (encoding := headers.get(b"content-encoding")) and encoding != b"identity":
        raise EncodedBody(encoding.decode("latin-1"))
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(limit)
    connection: ClientConnection | None = request.scope.get(CONNECTION)
    body = None if connection is None else connection.whole_body(request.receive)
    if body is None:
        body = await _received_in_parts(request, limit)
    elif len(body) > limit:
        raise BodyTooLarge(limit)
    access: Access = request.scope[ACCESS]
    if access.is_revoked:  # a slow sender must not begin anything later than that
        raise access.end_error()
    return body


async def _received_in_parts(request: Request, limit: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("The client disconnected before it had sent its whole request.")
        body += message.get("body", b"")
        if len(body) > limit:
            raise BodyTooLarge(limit)
        more = message.get("more_body", False)
    return bytes(body)


def decode(body: bytes, kind: type[T]) -> T:
    """Return the body as a struct, or refuse it with the path of what is wrong."""
    return convert(decode_object(body), kind)


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the body as a JSON object."""
    if not body:
        raise BadRequest("The body is empty. Send a JSON object.", code="invalid_json")
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(decoded, dict):
        raise BadRequest("The body must be a JSON object.", code="invalid_json")
    if body.count(b"{") + body.count(b"[") > DEEPEST and _is_deeper(decoded, DEEPEST):
        raise _too_deep()
    return decoded


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether containers are nested deeper than that, level by level: JSON must be encodable again."""
    containers = [value]
    for _ in range(levels):
        inner = (each.values() if type(each) is dict else each for each in containers)
        containers = [item for items in inner for item in items if type(item) is dict or type(item) is list]
        if not containers:
            return False
    return True


def _too_deep() -> BadRequest:
    return BadRequest(f"The body is nested too deeply: {DEEPEST} levels are the limit.", code="invalid_json")


def convert(decoded: dict[str, Any], kind: type[T]) -> T:
    """Return a decoded object as a struct."""
    try:
        return msgspec.convert(decoded, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        param = place.strip("`").lstrip(".") or None
        if param is None and message.startswith("Object contains unknown") and issubclass(kind, msgspec.Struct):
            message += f". Its fields are {', '.join(kind.__struct_encode_fields__)}"
        raise BadRequest(f"{message}{f' (at {param})' if param else ''}.", param=param) from None


def idempotency(request: Request, body: bytes) -> Idempotency | None:
    """Return the caller's idempotency key with the digest of the request."""
    key = header(request, b"idempotency-key")
    if key is None:
        return None
    if not key or len(key) > 256 or not key.isprintable():
        raise BadRequest("An Idempotency-Key has 1 to 256 printable characters.", param="Idempotency-Key")
    return Idempotency(owner_of(request), key, request_digest(request, body))


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_name(value: str, param: str) -> str:
    """Return a name that a client gave, or refuse one with control characters."""
    if not value or len(value) > 256 or _CONTROL.search(value):
        raise BadRequest(f"{param} has 1 to 256 characters and no control characters.", param=param)
    return value


System = Annotated[str, msgspec.Meta(max_length=1_000_000)]
"""A system prompt, of at most a million characters."""
LARGEST_PARAMS = 100_000
"""Maximum size of a session's parameters as JSON, in bytes."""


def check_size(params: Mapping[str, Any]) -> None:
    """Refuse parameters that are too large to be stored with a session, a comparison or a batch."""
    if len(msgspec.json.encode(params)) > LARGEST_PARAMS:
        raise BadRequest(f"params may have {LARGEST_PARAMS:,} bytes of JSON at most.", param="params")


_NOT_PARAMS = frozenset({"model", "messages", "stream", "stream_options", "n"})


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse parameters that comparisons and batches set themselves."""
    check_size(params)
    if taken := sorted(_NOT_PARAMS & params.keys()):
        raise BadRequest(f"params cannot have {', '.join(taken)}: the server sets that itself.", param="params")


def whole_number(request: Request, name: str, default: int, most: int) -> int:
    """Return a number of the query, within its bounds."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise BadRequest(f"{name} is a whole number from 1 to {most}.", param=name)
    return int(text)


def wants_events(request: Request) -> bool:
    """Return whether the client asks for an event stream."""
    return "text/event-stream" in request.headers.get("accept", "")
