"""The Responses API."""

from __future__ import annotations

from collections.abc import Mapping

from ....concurrency.tasks import OwnedTasks
from ...config.current import CurrentSettings
from ...kit.calls import Http
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...live.live_settings import Configured
from ...running.running import Running
from ..notifications.deliveries import Webhooks
from ..sharing.reach import Reach
from .conversation_turns import ConversationTurns
from .conversations_api import ConversationsApi
from .openai_responses import ResponsesApi
from .websocket import ResponsesSocketApi, SocketServices


class ResponsesFeature(Feature):
    """Responses and conversations, over HTTP and WebSockets, and the webhooks that tell of their ends."""

    def __init__(
        self,
        http: Http,
        running: Running,
        reach: Reach,
        configured: Configured,
        current: CurrentSettings,
        environ: Mapping[str, str],
        tasks: OwnedTasks,
    ) -> None:
        bodies, streams, answers = http
        starting, engine, store = running.starting, running.engine, running.store
        self.webhooks = Webhooks(current.now, environ, store, engine)
        turns = ConversationTurns(store, engine, tasks)
        responses = ResponsesApi(bodies, answers, reach, starting, configured, turns, self.webhooks, engine, store)
        socket = SocketServices(bodies, starting, responses, engine, streams.closing, current)
        self.inner = responses, ResponsesSocketApi(socket), ConversationsApi(bodies, turns, store)

    def begin(self, chores: Chores) -> None:
        """Deliver the webhooks that are left."""
        chores.once("webhooks", self.webhooks.jobs.take_up_all)
