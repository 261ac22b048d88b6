"""WebSocket messages on a connection that was upgraded from HTTP (RFC 6455, without extensions)."""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import sha1

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from ....errors import BadRequest
from .http_protocol import Protocol as HttpConnection

MOST_FRAGMENTS = 1000
"""Maximum number of fragments of a message. Each costs time, however short it is."""
_SLICE = 4096
"""Bytes that are parsed before what they hold is looked at: an excess ends the connection soon."""
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455


class InvalidHandshake(BadRequest):
    """A client offers WebSocket, but its request cannot be accepted."""

    code = "invalid_handshake"


def accepting_head(headers: Mapping[bytes, bytes], more: Mapping[str, str]) -> bytes:
    """Return the head that accepts a client's handshake, with more headers; or raise `InvalidHandshake`."""
    if b"content-length" in headers or b"transfer-encoding" in headers:
        raise InvalidHandshake("A WebSocket handshake has no body.")
    if headers.get(b"sec-websocket-version") != b"13":
        raise InvalidHandshake("The WebSocket version is 13. Send Sec-WebSocket-Version: 13.")
    key = headers.get(b"sec-websocket-key", b"")
    if not _is_key(key):
        raise InvalidHandshake("Sec-WebSocket-Key has 16 bytes in base64.")
    accepted = b64encode(sha1(key + _GUID, usedforsecurity=False).digest())
    lines = [b"HTTP/1.1 101 Switching Protocols", b"upgrade: websocket", b"connection: Upgrade"]
    lines += [b"sec-websocket-accept: " + accepted, *(f"{name}: {value}".encode() for name, value in more.items())]
    return b"\r\n".join([*lines, b"", b""])


def _is_key(key: bytes) -> bool:
    try:
        return len(b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def text_frame(message: bytes) -> bytes:
    """Return a text message as a frame of a server."""
    return Frame(Opcode.TEXT, message).serialize(mask=False)


class WebSocket:
    """The messages of one client. Costs no task: `take` is called with each message when it is complete.

    A message is limited in size like the body of a request, and in time too. A client that sends control frames and
    does not read the answers is cut off.
    """

    def __init__(self, connection: HttpConnection, limit: int, take: Callable[[bytes], None]) -> None:
        self._connection = connection
        self._framing = Protocol(Side.SERVER, max_size=limit)
        self._take = take
        self._message = bytearray()
        self._fragments = 0
        self._is_incomplete = False

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._framing.state is State.OPEN and not self._connection.is_lost

    def received(self, data: bytes) -> bool:
        """Handle received bytes. True if a message is incomplete."""
        has_frame = False
        for at in range(0, len(data), _SLICE):
            self._framing.receive_data(data[at : at + _SLICE])
            frames = [event for event in self._framing.events_received() if isinstance(event, Frame)]
            has_frame = has_frame or bool(frames)
            self._flush()
            for frame in frames:
                self._add(frame)
            if not self.is_open:
                return False
        return self._is_incomplete or not has_frame

    def _add(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY:
            self.close(CloseCode.UNSUPPORTED_DATA, "Messages are text.")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT) and self.is_open:
            self._is_incomplete = not frame.fin
            self._message += frame.data
            self._fragments += 1
            if frame.fin:
                message, self._message, self._fragments = bytes(self._message), bytearray(), 0
                self._take(message)
            elif self._fragments >= MOST_FRAGMENTS:
                self.close(CloseCode.POLICY_VIOLATION, f"A message has at most {MOST_FRAGMENTS} fragments.")

    def too_slow(self) -> None:
        """End the connection: a message does not arrive in time."""
        self.close(CloseCode.POLICY_VIOLATION, "The message did not arrive in time.")

    async def send(self, frames: bytes, timeout: float) -> None:
        """Send whole frames. A client that does not read for as long as the timeout is cut off."""
        if not self.is_open:
            return
        self._connection.write(frames)
        try:
            async with asyncio.timeout(timeout):
                await self._connection.drained()
        except TimeoutError:
            self._connection.abort()

    def ping(self) -> None:
        """Send a ping, so that no proxy takes a silent connection for a dead one."""
        if self.is_open and not self._connection.is_congested:
            self._framing.send_ping(b"")
            self._flush()

    def close(self, code: CloseCode, reason: str) -> None:
        """Say why the connection ends, and end it."""
        if self.is_open:
            self._framing.send_close(code, reason)
            self._flush()
            self._connection.hang_up()

    def _flush(self) -> None:
        """Send what the framing has to say: answers to control frames, and the end after an error."""
        written = self._framing.data_to_send()
        if written and self._connection.is_congested:
            self._connection.abort()
            return
        for data in written:
            if data:
                self._connection.write(data)
            elif self._framing.close_rcvd is None:
                self._connection.hang_up()  # unread bytes would reset the connection, and lose the reason
            else:
                self._connection.close()
