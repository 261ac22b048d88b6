"""`/v1/responses` over a WebSocket: a response for each `response.create`, in order on each of the client's lanes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from websockets.frames import CloseCode

from ....asgi.client import CONNECTION, HEADERS, RequestClient, finish
from ....asgi.cursor import RunFrames
from ....asgi.event_stream import info_of
from ....asks import response_ask
from ....concurrency.tasks import OwnedTasks
from ....errors import BadRequest, HoldfastError
from ....events import Completed, ErrorInfo, Failed, Interrupted, Settled, Usage
from ....fields import check_fields
from ....ids import new_id
from ....log.segment import Segment
from ....runs.run import Run
from ....store import RunRecord
from ....wires.openai import responses as openai_responses
from ....wires.openai.fields import AS_OVER_HTTP, OVER_WEBSOCKET
from ....wires.openai.response_items import Item
from ....wires.openai.response_messages import ResponseMessages, refusal_message, steer_message
from ....wires.openai.responses_request import ResponseBody
from ...kit.http.http_protocol import Protocol
from ...kit.http.websocket import InvalidHandshake, WebSocket, accepting_head, text_frame
from ...kit.request import BodyTooLarge, check_name, convert, decode_object
from ...kit.run_responses import FirstWord
from .openai_responses import checked, response_of
from .socket_api import SocketServices
from .steering import STEER, ActiveResponse, Steer, SteerCode, SteerRefused, steer_of

logger = logging.getLogger(__name__)

LONGEST = 60 * 60.0
"""Maximum age of a connection in seconds. A running response is finished first."""
MOST_UNANSWERED = 16
"""Maximum number of running and waiting requests of one connection."""
MOST_LANES = 32
"""Maximum number of named lanes of one connection."""


class TooManyUnanswered(HoldfastError):
    """A client sends requests faster than they are answered."""

    code = "websocket_response_limit_reached"
    status = 429
    type = "rate_limit_error"
    message = f"{MOST_UNANSWERED} responses are unanswered on this connection. Wait for one of them."


class TooManyLanes(BadRequest):
    """A client uses more lanes than a connection has."""

    code = "websocket_stream_limit_reached"
    param = "stream_id"
    message = f"A connection has at most {MOST_LANES} named streams. Open another connection."


class ConnectionTooOld(BadRequest):
    """A connection has reached its maximum age. At this code clients connect again."""

    code = "websocket_connection_limit_reached"
    message = f"A connection lasts {LONGEST / 60:.0f} minutes. Open another one."


class ClientEvent(msgspec.Struct, frozen=True):
    """A message of a client, with the fields that HTTP requests do not have."""

    type: Literal["response.create"]
    stream_id: str | None = None
    generate: bool | None = None
    previous_response_id: str | None = None


class _Known(msgspec.Struct, frozen=True):
    """The items up to a response that is not stored: the connection can continue it."""

    response_id: str
    items: list[Item]
    size: int
    """Size of their messages and outputs in bytes."""


class _Request(msgspec.Struct, frozen=True):
    """A decoded request, and its size in bytes. A successor has the input that steered the response before it."""

    decoded: dict[str, Any]
    size: int
    steers: Sequence[Steer] = ()


class _Lane:
    """Requests that are answered one after the other, and the last response that is not stored."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.waiting: deque[_Request] = deque()
        """The first is being answered."""
        self.active: ActiveResponse | None = None
        self.known: _Known | None = None


class ResponsesSocket:
    """One client's connection. Costs its request's task, and a task for each lane that has a request.

    A response that is not stored can be continued only on its connection, and only the last one of each lane. A
    response stops when its client disconnects, unless it was requested with `store: true`.
    """

    def __init__(self, services: SocketServices, request: Request) -> None:
        self._services = services
        self._request = request
        self._lanes: dict[str | None, _Lane] = {}
        self._tasks = OwnedTasks("a WebSocket")
        self._inbox: deque[bytes] = deque()
        self._unanswered = self._refusals = self._steered = 0
        self._wake = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept the upgrade, and serve the connection until it ends."""
        connection = scope.get(CONNECTION)
        head = accepting_head(scope[HEADERS], {"x-request-id": new_id("req")})
        assert isinstance(connection, Protocol)  # only our protocol sets the offer
        self._socket = WebSocket(connection, self._services.current.now.body_limit, self._take)
        if not connection.upgrade(send, head, self._socket):
            raise InvalidHandshake("Bytes followed the handshake, or the origin is another one: there is no upgrade.")
        self._receive = receive
        with RequestClient(scope, receive) as client:
            await self._serve(client)
            await self._tasks.wait()  # without a client they end soon

    # The connection.

    async def _serve(self, client: RequestClient) -> None:
        """Dispatch the messages as they arrive, until the client disconnects or is disconnected."""
        closing, ends_at = self._services.closing, asyncio.get_running_loop().time() + LONGEST
        client.on_leaving(self._wake.set)
        unwatch = closing.watch(self._wake.set)
        try:
            while not client.has_left and not closing.has_begun:
                self._wake.clear()
                while self._inbox:
                    await self._hand_out(self._inbox.popleft())
                if asyncio.get_running_loop().time() > ends_at and not self._unanswered:
                    await self._refuse(ConnectionTooOld().info(), None)
                    break
                await self._pause()
        finally:
            unwatch()
        await self._end(client)

    async def _pause(self) -> None:
        """Wait for a message or a finished request. Send a ping at intervals of silence."""
        try:
            async with asyncio.timeout(self._services.current.now.heartbeat):
                await self._wake.wait()
        except TimeoutError:
            self._socket.ping()

    async def _end(self, client: RequestClient) -> None:
        if client.is_revoked:
            error = client.end_error().info()
            await self._refuse(error, None)
            self._socket.close(CloseCode.POLICY_VIOLATION, error.message)
        elif self._services.closing.has_begun:
            await self._tasks.wait()
            self._socket.close(CloseCode.GOING_AWAY, "The server ends.")
        else:
            self._socket.close(CloseCode.NORMAL_CLOSURE, "The connection is too old.")

    def _take(self, message: bytes) -> None:
        """Queue a message. If a client sends too many, they are refused undecoded."""
        self._wake.set()
        waiting = sum(map(len, self._inbox)) + sum(each.size for lane in self._lanes.values() for each in lane.waiting)
        if self._unanswered >= MOST_UNANSWERED:
            self._refuse_unread(TooManyUnanswered())
        elif waiting and waiting + len(message) > self._services.current.now.body_limit:
            self._refuse_unread(BodyTooLarge(self._services.current.now.body_limit))
        else:
            self._unanswered += 1
            self._inbox.append(message)

    def _refuse_unread(self, error: HoldfastError) -> None:
        """Refuse a message undecoded. A client that sends many of them at once is disconnected."""
        if self._refusals >= MOST_UNANSWERED:
            self._socket.close(CloseCode.POLICY_VIOLATION, "Too many messages.")
            return
        self._refusals += 1
        self._tasks.start(self._refused(error))

    async def _refused(self, error: HoldfastError) -> None:
        try:
            await self._refuse(error.info(), None)
        finally:
            self._refusals -= 1

    async def _hand_out(self, message: bytes) -> None:
        """Append a request to its lane."""
        try:
            await self._services.bodies.check(message)
            decoded = decode_object(message)
            if decoded.get("type") == STEER:
                self._unanswered -= 1
                await self._steer(decoded, len(message))
                return
            lane = self._lane(convert(decoded, ClientEvent).stream_id)
        except HoldfastError as error:
            self._unanswered -= 1
            await self._refuse(error.info(), None)
            return
        lane.waiting.append(_Request(decoded, len(message)))
        if len(lane.waiting) == 1:
            self._tasks.start(self._answer_all(lane))

    def _lane(self, name: str | None) -> _Lane:
        if name in self._lanes:
            return self._lanes[name]
        if name is not None:
            check_name(name, "stream_id")
            if len(self._lanes) - (None in self._lanes) >= MOST_LANES:
                raise TooManyLanes
        return self._lanes.setdefault(name, _Lane(name))

    async def _refuse(self, info: ErrorInfo, lane: str | None) -> None:
        await self._send(text_frame(refusal_message(info, lane)))

    async def _send(self, frames: bytes) -> None:
        await self._socket.send(frames, self._services.current.now.send_timeout)

    # One request.

    async def _answer_all(self, lane: _Lane) -> None:
        while lane.waiting:
            if self._socket.is_open:
                await self._answer(lane, lane.waiting[0])
            await self._end_active(lane)
            lane.waiting.popleft()
            self._unanswered -= 1
        self._wake.set()

    async def _answer(self, lane: _Lane, request: _Request) -> None:
        """Answer one request. If it fails, the response that it was to continue is dropped too."""
        event = convert(request.decoded, ClientEvent)
        try:
            with RequestClient(self._request.scope, self._receive) as client:
                await self._respond(client, lane, event, request)
        except Exception as error:
            if not isinstance(error, HoldfastError):
                logger.error("a request on a WebSocket failed", exc_info=error)
            self._forget(event.previous_response_id)
            await self._refuse_request(lane, request, info_of(error))

    async def _respond(self, client: RequestClient, lane: _Lane, event: ClientEvent, request: _Request) -> None:
        decoded = request.decoded
        check_fields(decoded, OVER_WEBSOCKET, AS_OVER_HTTP)
        followed = self._find(event.previous_response_id)
        fields = {name: value for name, value in decoded.items() if name not in _ENVELOPE} | {"stream": True}
        body = checked(fields)
        allowed = await self._services.starting.allow_new(self._request, body.model)
        before = None if followed is None else followed.items
        record = await self._services.responses.prepared(allowed, body, fields, before)
        size = request.size + (followed.size if followed else 0)
        if event.generate is False:
            await self._prepare_only(lane, record, size)
            return
        run = await self._services.responses.begun(allowed, body, record)
        lane.active = ActiveResponse(run, decoded)
        messages = ResponseMessages(run.id, response_of(run), lane.name)
        try:
            failed = await FirstWord(run).failure(client)
            if failed is None:
                await self._copy(client, run, messages)
        finally:
            if run.settlement is None:
                await finish(_left(run, client, messages))
        if failed is not None:
            await self._refuse_request(lane, request, failed.error)
        self._remember(lane, body, run, messages, event, size)

    async def _refuse_request(self, lane: _Lane, request: _Request, info: ErrorInfo) -> None:
        """Send the error of a request. For a successor, which was not requested, return its input instead."""
        if request.steers:
            await self._return_input(lane, request.steers, "successor_creation_failed", info.message)
        else:
            await self._refuse(info, lane.name)

    async def _copy(self, client: RequestClient, run: Run, messages: ResponseMessages) -> None:
        """Send the messages of a run, until its end or until the client disconnects."""

        def render(_: int, segment: Segment) -> bytes:
            return b"".join(map(text_frame, messages.frames(segment)))

        frames = RunFrames(
            run,
            render,
            pieces=lambda _, event: map(text_frame, messages.ending(event)),
            attached=run.take_hold(),
        )
        grew = asyncio.Event()
        client.on_leaving(grew.set)
        unwatch = frames.watch(grew.set)
        try:
            while not client.has_left and self._socket.is_open and not frames.is_over:
                grew.clear()
                if body := await frames.next():
                    await self._send(body)
                    await asyncio.sleep(0)
                elif not frames.is_over:
                    await grew.wait()
        finally:
            unwatch()

    # Steering.

    async def _steer(self, decoded: dict[str, Any], size: int) -> None:
        """Accept input for the successor of a response that is being answered, or return it."""
        target = decoded.get("previous_response_id")
        active = {lane.active.id: lane for lane in self._lanes.values() if lane.active is not None}
        lane = active.get(target) if isinstance(target, str) else None
        try:
            event = steer_of(decoded)
            if lane is None or lane.active is None:
                raise SteerRefused("response_not_found", f"{target} is not being answered on this connection.")
            steer = lane.active.accept(event, size, self._services.current.now.body_limit)
        except SteerRefused as error:
            given = {name: decoded.get(name) for name in ("input", "previous_response_id")}
            await self._send_input_event("failed", lane, steer=given, error=_steer_error(error.code, str(error)))
        else:
            accepted = {"id": steer.id, "previous_response_id": steer.previous_response_id}
            await self._send_input_event("accepted", lane, steer=accepted)

    async def _end_active(self, lane: _Lane) -> None:
        """Answer the successor of a response next, if input waits for it. If there can be none, return the input."""
        active, lane.active = lane.active, None
        if active is None or not active.accepted or not self._socket.is_open:
            return
        if active.can_go_on():
            size = sum(steer.size for steer in active.accepted)
            lane.waiting.insert(1, _Request(active.successor(), size, active.accepted))
            self._unanswered += 1
            return
        reason = "The response did not complete, or waits for results of tools. Send the input with the next request."
        await self._return_input(lane, active.accepted, "response_not_active", reason)

    async def _return_input(self, lane: _Lane, steers: Sequence[Steer], code: SteerCode, message: str) -> None:
        for steer in steers:
            given = {"id": steer.id, "input": steer.input, "previous_response_id": steer.previous_response_id}
            await self._send_input_event("failed", lane, steer=given, error=_steer_error(code, message))

    async def _send_input_event(self, outcome: str, lane: _Lane | None, **details: Any) -> None:
        number, self._steered = self._steered, self._steered + 1
        await self._send(text_frame(steer_message(outcome, number, None if lane is None else lane.name, **details)))

    # Responses that are not stored.

    async def _prepare_only(self, lane: _Lane, record: RunRecord, size: int) -> None:
        """Answer a request without generation: its items are kept for this connection."""
        ask = msgspec.structs.replace(response_ask(record.ask), store=False)
        now = self._services.engine.now()
        response = openai_responses.Response(record.id, record.echo, now, ask, settled_at=lambda: now)
        messages = ResponseMessages(record.id, response, lane.name)
        nothing = messages.frames([Settled(Completed(text="", usage=Usage(source="estimated")))])
        self._keep(lane, record, [], size)
        await self._send(b"".join(map(text_frame, nothing)))

    def _remember(
        self, lane: _Lane, body: ResponseBody, run: Run, messages: ResponseMessages, event: ClientEvent, size: int
    ) -> None:
        if isinstance(run.settlement, (Failed, Interrupted)):
            self._forget(event.previous_response_id)
        elif run.settlement is not None and not body.is_stored:
            output = messages.output()
            self._keep(lane, run.record, output, size + len(msgspec.json.encode(output)))

    def _keep(self, lane: _Lane, record: RunRecord, output: list[Item], size: int) -> None:
        """Keep the items up to a response, unless they are larger than a request may be."""
        ask = response_ask(record.ask)
        items = [*(ask.before or ()), *ask.input, *output]
        fits = size <= self._services.current.now.body_limit
        lane.known = _Known(openai_responses.response_id(record.id), items, size) if fits else None

    def _find(self, response_id: str | None) -> _Known | None:
        known = (lane.known for lane in self._lanes.values())
        return next((each for each in known if each is not None and each.response_id == response_id), None)

    def _forget(self, response_id: str | None) -> None:
        for lane in self._lanes.values():
            if lane.known is not None and lane.known.response_id == response_id:
                lane.known = None


def _steer_error(code: SteerCode, message: str) -> dict[str, str]:
    return {"type": "invalid_request_error", "code": code, "message": message}


_ENVELOPE = ("type", "stream_id", "generate", "stream", "background")


async def _left(run: Run, client: RequestClient, messages: ResponseMessages) -> None:
    """End a response whose client disconnected: if it is attached, or if the client has not got its id."""
    if run.record.lifetime == "attached" or not messages.event_count:
        await run.stop(client.left_by)
