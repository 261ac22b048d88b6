"""A response that is sent at the end of an operation, if its client is still connected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from ..events import StoppedBy
from .client import RequestClient, finish


class DelayedResponse(ABC):
    """Waits for the end of an operation, then sends the response. If the client leaves before, nothing is sent."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        with RequestClient(scope, receive) as client:
            stayed = False
            try:
                stayed = await self.ended(client)
            finally:
                if not stayed:
                    await finish(self.left(client.left_by))
            if client.is_revoked:
                raise client.end_error()
            if stayed:
                await (await self.response())(scope, receive, send)

    @abstractmethod
    async def ended(self, client: RequestClient) -> bool:
        """Wait for the end; False if the client has left before."""

    @abstractmethod
    async def left(self, by: StoppedBy) -> None:
        """Handle that the client has left before the end. A cancel does not interrupt it."""

    @abstractmethod
    def response(self) -> Awaitable[ASGIApp]:
        """Return the response."""
