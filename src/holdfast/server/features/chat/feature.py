"""Chats in the dialects of other vendors."""

from __future__ import annotations

from ...kit.calls import Http
from ...kit.feature import Feature
from ...live.live_settings import Configured
from ...running.running import Running
from ..sessions.run_json import RunViews
from ..sharing.reach import Reach
from .ag_ui import AgUi
from .ai_sdk import AiSdk
from .anthropic import AnthropicMessages
from .completions import TextCompletions
from .conversations import RunNames
from .llama_cpp import NamedStreams
from .ollama import OllamaApi
from .ollama_embeddings import OllamaEmbeddings
from .openai_chat import ChatCompletions, ChatStarts
from .pass_through import PassThrough
from .threads import Threads


class ChatFeature(Feature):
    """Runs without a session, or in one that the client names."""

    def __init__(
        self, http: Http, running: Running, reach: Reach, views: RunViews, configured: Configured, idle: float
    ) -> None:
        bodies, streams, answers = http
        starting, models, engine, store = running.starting, running.models, running.engine, running.store
        names = RunNames(store, engine)
        chats = ChatStarts(names, store, engine)
        ollama = OllamaApi(bodies, answers, starting, models, configured, chats)
        passing = PassThrough(bodies, starting, models, running.budgets, idle)
        self.inner = (
            ChatCompletions(bodies, answers, reach, starting, chats),
            TextCompletions(bodies, answers, starting, configured),
            passing,
            AnthropicMessages(bodies, answers, reach, starting, models, configured, chats, Threads(reach)),
            AgUi(bodies, answers, reach, starting, chats, store),
            AiSdk(bodies, answers, views, reach, starting, chats, ollama, engine, store),
            NamedStreams(bodies, streams, names),
            ollama,
            OllamaEmbeddings(bodies, models, configured, passing),
        )
