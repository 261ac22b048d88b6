"""The address of the list of responses, where WebSockets begin, too."""

from __future__ import annotations

import importlib
from typing import NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT
from ....concurrency.closing import Closing
from ....engine.core import Core
from ...config.current import CurrentSettings
from ...kit.feature import Endpoint, Feature
from ...kit.http.connections import OFFER
from ...kit.request import Bodies
from ...starting.starting import Starting
from .openai_responses import ResponsesApi


class SocketServices(NamedTuple):
    """What a connection needs."""

    bodies: Bodies
    starting: Starting
    responses: ResponsesApi
    engine: Core
    closing: Closing
    current: CurrentSettings


class ResponsesSocketApi(Feature):
    """The list of responses, and the connections for new ones, which share a path."""

    def __init__(self, services: SocketServices) -> None:
        self._services = services

    @Endpoint(
        "GET",
        "/v1/responses",
        who=CHAT,
        query={"limit": "1 to 100", "after": "the response to go on from"},
        answers={400: "a bad query, or a bad handshake"},
    )
    async def connect_or_list(self, request: Request) -> ASGIApp:
        """List stored responses, the newest first. A client that offers WebSocket gets a connection for new ones."""
        if OFFER in request.scope:
            sockets = importlib.import_module(".websocket", __package__)  # needs websockets: 1 MB
            connection: ASGIApp = sockets.ResponsesSocket(self._services, request)
            return connection
        return await self._services.responses.list_responses(request)
