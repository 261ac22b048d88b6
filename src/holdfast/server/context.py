"""What every endpoint needs: the parts of the server, the caller, and the request's body as a struct."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..asgi import Closing
from ..engine import Engine
from ..errors import BadRequest, HoldfastError, RunNotFound, SessionNotFound
from ..history import Session
from ..ids import marked, new_id
from ..run import Run
from ..store import Idempotency, Store
from ..wire import native
from .agents import AgentSources
from .auth import ADMIN, HEADERS, OWNER
from .batch_runner import BatchRunner
from .board import Board
from .configured import Configured
from .errors import on_any_error, on_holdfast_error
from .keys import digest
from .rounds import Rounds
from .settings import Settings
from .webhooks import Webhooks

DEEPEST = 100
"""Levels to which a body may be nested."""

T = TypeVar("T")
Handler = Callable[["Parts", Request], Awaitable[Response]]


class Parts:
    """The parts of a server, put together once."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        configured: Configured,
        engine: Engine,
        rounds: Rounds,
        agents: AgentSources,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.configured = configured
        self.providers = configured.providers
        self.engine = engine
        self.rounds = rounds
        self.agents = agents
        self.process = 0
        """Which process of the server it is; the first has the store."""
        self.board: Board | None = None
        """What all of them see, where there are several."""
        self.closing = Closing()
        self.prices = settings.prices | {
            f"agent/{agent.name}": settings.prices[agent.model]
            for agent in settings.agents
            if agent.model in settings.prices
        }
        """By the names under which answers are kept: an agent costs what its model does."""
        self.starts = StartRate(settings.starts_per_minute)
        self.webhooks = Webhooks(settings, environ or {}, store, engine)
        self.batches = BatchRunner(store, engine, self.starts.take, settings.prices)


class TooManyStarts(HoldfastError):
    """An owner starts runs faster than the limit allows."""

    code = "rate_limited"
    status = 429
    type = "rate_limit_error"

    def __init__(self, limit: int, wait: float) -> None:
        super().__init__(f"At most {limit} runs may be started in a minute.")
        self.retry_after = wait


class StartRate:
    """Counts what each owner starts: a bucket that fills evenly over the minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, owner: str, starts: int = 1) -> None:
        """Count one start or more, or refuse them and say when there will be room."""
        if not self._per_minute:
            return
        starts = min(starts, self._per_minute)  # who may start fewer in a minute than belong together starts them all
        now, per_second = time.monotonic(), self._per_minute / 60
        left, at = self._buckets.get(owner, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - at) * per_second)
        if left < starts:
            raise TooManyStarts(self._per_minute, (starts - left) / per_second)
        self._buckets[owner] = (left - starts, now)


class Endpoint:
    """One call of the HTTP surface: where it is, what it takes, who answers. Also a line of the OpenAPI description."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        takes: type[msgspec.Struct] | None = None,
        query: dict[str, str] | None = None,
        answers: dict[int, str] | None = None,
        streams: bool = False,
        lists: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.handler = handler
        self.takes = takes
        self.query = query or {}
        self.answers = answers or {200: "done"}
        self.streams = streams
        self.lists = lists

    def route(self, parts: Parts) -> Route:
        """Return the route that calls the handler."""
        handler = self.handler

        async def endpoint(request: Request) -> Response:
            return await handler(parts, request)

        route = Route(self.path, endpoint, methods=[self.method], name=handler.__name__)
        route.methods = {self.method}  # without HEAD, which would open streams that nobody reads
        return route


class Shortcut:
    """Calls an endpoint at once whose path has no parameter, or one as its third part: `/api/runs/{run_id}/stop`.

    That is a look-up in place of a walk along all routes. `app` is all the rest. What stands in its way to an answer
    (a second look at each message that is sent) does not stand in ours, so errors are answered for here too.
    """

    def __init__(self, app: ASGIApp, parts: Parts, endpoints: Sequence[Endpoint]) -> None:
        self._app = app
        self._parts = parts
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._with_parameter: dict[tuple[str, ...], tuple[Handler, str]] = {}
        for endpoint in endpoints:
            if "{" not in endpoint.path:
                self._handlers[endpoint.method, endpoint.path] = endpoint.handler
            elif parameter := _IN_THIRD_PLACE.fullmatch(endpoint.path):
                place = endpoint.path.split("/")
                self._with_parameter[endpoint.method, *place[:3], *place[4:]] = endpoint.handler, parameter[1]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        handler = self._handler(scope) if scope["type"] == "http" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await handler(self._parts, request)
            await response(scope, receive, send)
        except HoldfastError as error:
            await (await on_holdfast_error(request, error))(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - a bug of ours; where an answer has begun, the server cuts it off
            await (await on_any_error(request, error))(scope, receive, send)

    def _handler(self, scope: Scope) -> Handler | None:
        """Return who answers a request, and put down the parameter of its path."""
        method, path = scope["method"], scope["path"]
        if handler := self._handlers.get((method, path)):
            return handler
        place = path.split("/")
        if len(place) < 4 or not place[3]:
            return None
        found = self._with_parameter.get((method, *place[:3], *place[4:]))
        if found is None:
            return None
        scope["path_params"] = {found[1]: place[3]}
        return found[0]


_IN_THIRD_PLACE = re.compile(r"/\w+/\w+/\{(\w+)\}[^{]*")


# The caller.


def owner_of(request: Request) -> str:
    """Return whose request it is."""
    owner: str = request.scope[OWNER]
    return owner


def is_admin(request: Request) -> bool:
    """Tell whether the caller may change what is everybody's."""
    return bool(request.scope[ADMIN])


def header(request: Request, name: bytes) -> str | None:
    """Return a header of the request by its name in lower case."""
    value: bytes | None = request.scope[HEADERS].get(name)
    return None if value is None else value.decode("latin-1")


async def own_session(parts: Parts, request: Request) -> Session:
    """Return the session that the path names. Another owner's is not there, nor is the session of a pane."""
    session_id = request.path_params["session_id"]
    session = await parts.store.get_session(session_id)
    if session is None or session.owner != owner_of(request) or session.kind != "chat":
        raise SessionNotFound(session_id)
    return session


async def own_run(parts: Parts, request: Request, run_id: str | None = None) -> Run:
    """Return the run that the path names. Another owner's is not there."""
    run_id = request.path_params["run_id"] if run_id is None else run_id
    run = await parts.engine.open(run_id)
    if run.record.owner != owner_of(request):
        raise RunNotFound(run_id)
    return run


def shown(parts: Parts, run: Run) -> dict[str, Any]:
    """Return a run as JSON."""
    return native.run(
        run.record, status=run.status, seq=run.seq, text=run.text, settled=run.settlement, prices=parts.prices
    )


async def told(parts: Parts, run: Run) -> dict[str, Any]:
    """Return a run as JSON; a pane of a comparison that was blind with its model, once that may be known."""
    about = await parts.rounds.told_of(run.record)
    return {**shown(parts, run), "model": about.model, **({"cost": about.cost} if about.is_blind else {})}


def run_headers(run: Run) -> dict[str, str]:
    """Return the headers of an answer that belongs to a run."""
    return {"x-run-id": run.id}


# The body.


class BodyTooLarge(BadRequest):
    """The body is larger than the limit."""

    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than the limit of {limit} bytes.", status=413)


async def read_body(parts: Parts, request: Request) -> bytes:
    """Return the body, without ever holding more of it than the limit."""
    limit = parts.settings.body_limit
    announced = request.scope[HEADERS].get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(limit)
    pieces: list[bytes] = []
    size = 0
    is_all = False
    while not is_all:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("The client left before it had sent all of its request.")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise BodyTooLarge(limit)
        is_all = not message.get("more_body", False)
    return b"".join(pieces)


def decode(body: bytes, kind: type[T]) -> T:
    """Return the body as a struct, or say what is wrong with it and where."""
    return convert(decode_object(body), kind)


def decode_object(body: bytes) -> dict[str, Any]:
    """Return the body as a JSON object."""
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
    """Tell whether containers are nested deeper than that, level by level: what is read must be writable too."""
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
        raise BadRequest(f"{message}{f' (at {param})' if param else ''}.", param=param) from None


def idempotency(request: Request, body: bytes) -> Idempotency | None:
    """Return the caller's idempotency key with what it stands for: this path, this session and this body."""
    key = header(request, b"idempotency-key")
    if key is None:
        return None
    if not key or len(key) > 256 or not key.isprintable():
        raise BadRequest("An Idempotency-Key has 1 to 256 printable characters.", param="Idempotency-Key")
    place = f"{request.url.path}\n{header(request, b'x-session-id') or ''}\n"
    return Idempotency(owner_of(request), key, digest(place + body.decode("utf-8", "replace")))


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_name(value: str, param: str) -> str:
    """Return a name that a client gave, or refuse one that could hide something."""
    if not value or len(value) > 256 or _CONTROL.search(value):
        raise BadRequest(f"{param} has 1 to 256 characters and no control characters.", param=param)
    return value


_NOT_PARAMS = frozenset({"model", "messages", "stream", "stream_options", "n"})


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse params with what is decided here, where several models are asked the same."""
    if taken := sorted(_NOT_PARAMS & params.keys()):
        raise BadRequest(f"params cannot have {', '.join(taken)}: that is decided here.", param="params")


def whole_number(request: Request, name: str, default: int, most: int) -> int:
    """Return a number of the query, within its bounds."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise BadRequest(f"{name} is a whole number from 1 to {most}.", param=name)
    return int(text)


def wants_events(request: Request) -> bool:
    """Tell whether the client asks for an event stream."""
    return "text/event-stream" in request.headers.get("accept", "")


def fresh_run_id(parts: Parts) -> str:
    """Return the id of a run that is about to start. It tells which process of the server has the run."""
    fresh = new_id("run")
    return marked(fresh, parts.process) if parts.process else fresh
