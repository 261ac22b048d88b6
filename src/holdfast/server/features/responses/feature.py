"""The Responses API."""

from __future__ import annotations

from ....concurrency.tasks import OwnedTasks
from ...config.current import CurrentSettings
from ...kit.calls import Http
from ...kit.feature import Feature
from ...live.live_settings import Configured
from ...running.running import Running
from ..sharing.reach import Reach
from .conversation_turns import ConversationTurns
from .conversations_api import ConversationsApi
from .openai_responses import ResponsesApi
from .socket_api import ResponsesSocketApi, SocketServices


class ResponsesFeature(Feature):
    """Responses and conversations, over HTTP and WebSockets."""

    def __init__(
        self,
        http: Http,
        running: Running,
        reach: Reach,
        configured: Configured,
        current: CurrentSettings,
        tasks: OwnedTasks,
    ) -> None:
        bodies, streams, answers = http
        starting, engine, store = running.starting, running.engine, running.store
        turns = ConversationTurns(store, engine, tasks)
        responses = ResponsesApi(bodies, answers, reach, starting, configured, turns, engine, store)
        socket = SocketServices(bodies, starting, responses, engine, streams.closing, current)
        self.inner = responses, ResponsesSocketApi(socket), ConversationsApi(bodies, turns, store)
