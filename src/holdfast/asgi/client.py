"""The client of a request: its disconnect, and the direct way to its connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from ..access import ACCESS, Access
from ..errors import KeyRevoked
from ..events import StoppedBy

Header = tuple[bytes, bytes]
Watch = Callable[[Callable[[], None]], Callable[[], object]]
"""Registers a callback for changes, and returns the function that removes it."""
CONNECTION = "holdfast.connection"
"""The key of the connection in a request's scope, set by our server."""
HEADERS = "holdfast.headers"
"""The scope's entry for the request headers as a dict. The first of several headers with one name counts."""


class ClientConnection(Protocol):
    """A client's connection: reports its loss, and can be closed if the client never reads."""

    loop: asyncio.AbstractEventLoop
    """The event loop of the server. A lookup of the running loop costs a system call."""
    is_lost: bool
    takes_more: bool
    """Whether `go_on` and `end` may be called: `begin` has begun the response, and the client reads."""

    @property
    def is_read(self) -> bool:
        """Whether the client reads, so that `send` does not wait for it."""
        ...

    def watch_loss(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when the connection is lost, until the returned function is called."""
        ...

    def abort(self) -> None:
        """Close it now."""
        ...

    def whole_body(self, receive: Receive) -> bytes | None:
        """Return the body of the request, once, if all of it has arrived. None: use `receive`."""
        ...

    def answer(self, send: Send, status: int, headers: Sequence[Header], body: bytes) -> bool:
        """Send a whole response now. False if `send` must be used."""
        ...

    def begin(self, send: Send, headers: Sequence[Header], body: bytes) -> bool:
        """Begin a chunked response now, with the first piece of its body if there is one. False: use `send`."""
        ...

    def go_on(self, body: bytes) -> None:
        """Send some more of the body now."""
        ...

    def end(self, body: bytes) -> None:
        """Send the last piece of the body, if there is one, and the end of the response now."""
        ...


class RequestClient:
    """The client of a request. Costs one task, which waits for its disconnect, unless the server is ours.

    No server cancels a waiting handler when its client disconnects, and with ASGI 2.4 none cancels a stream either: so
    this class always listens itself.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._connection: ClientConnection | None = scope.get(CONNECTION)
        self._access: Access | None = scope.get(ACCESS)
        self._receive = receive
        self.loop = asyncio.get_running_loop() if self._connection is None else self._connection.loop
        self._wakers: list[Callable[[], object]] = []
        self.has_left = False
        """True if nothing more is to be sent: the client has disconnected, or its key was revoked."""
        self.is_revoked = False
        """True if its key was revoked."""

    def __enter__(self) -> RequestClient:
        if self._connection is None:
            self._forget: Callable[[], object] = asyncio.create_task(self._listen()).cancel
        else:
            self._forget = self._connection.watch_loss(self._leave)
            self.has_left = self._connection.is_lost
        self._unwatch = self._access.watch(self._revoke) if self._access is not None else None
        if self._access is not None and self._access.is_revoked:
            self._revoke()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        if self._unwatch is not None:
            self._unwatch()
        self._wakers.clear()
        del self._forget, self._unwatch  # break the reference cycle, so that reference counting frees it

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def end_error(self) -> KeyRevoked:
        """Return the error for a client whose key was revoked."""
        return KeyRevoked() if self._access is None else self._access.end_error()

    @property
    def left_by(self) -> StoppedBy:
        """The cause of the stop of an attached run when this client has left."""
        return "revoked" if self.is_revoked else "disconnect"

    def _revoke(self) -> None:
        self.is_revoked = True
        self._leave()

    def _leave(self) -> None:
        self.has_left = True
        for wake in self._wakers:
            wake()

    def on_leaving(self, wake: Callable[[], object]) -> None:
        """Call `wake` when the client leaves."""
        self._wakers.append(wake)

    async def wait_for(self, event: Awaitable[Any], timeout: float | None = None) -> bool:
        """Wait for an awaitable while the client stays. False if it leaves, or the time runs out, first."""
        waiting, over = asyncio.ensure_future(event), asyncio.Event()  # costs a task
        waiting.add_done_callback(lambda _: over.set())
        self.on_leaving(over.set)
        timer = None if timeout is None else self.loop.call_later(timeout, over.set)
        try:
            if not self.has_left:
                await over.wait()
            return waiting.done() and not waiting.cancelled()
        finally:
            waiting.cancel()
            if timer is not None:
                timer.cancel()

    async def wait_until(self, condition: Callable[[], bool], watch: Watch, timeout: float | None = None) -> bool:
        """Wait until a condition is true, checked at each change that `watch` reports, while the client stays.

        Return whether the condition is true.
        """
        if condition() or self.has_left:
            return condition()
        loop = self.loop
        over: asyncio.Future[bool] = loop.create_future()

        def check(ends: bool = False) -> None:
            if not over.done() and ((is_true := condition()) or ends):
                over.set_result(is_true)

        self._wakers.append(partial(check, True))
        unwatch = watch(check)
        timer = None if timeout is None else loop.call_later(timeout, check, True)
        try:
            return await over
        finally:
            unwatch()
            if timer is not None:
                timer.cancel()


async def finish(work: Awaitable[None]) -> None:
    """Finish work even if the request's task is cancelled, once or several times."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
