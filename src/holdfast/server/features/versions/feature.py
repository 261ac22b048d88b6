"""Other versions of answers, and votes on them."""

from __future__ import annotations

from ...kit.calls import Http
from ...kit.feature import Feature
from ...running.running import Running
from ..sessions.run_json import RunViews
from ..sharing.reach import Reach
from .edits import EditsApi
from .forks import ForksApi
from .thumbs_api import ThumbsApi


class VersionsFeature(Feature):
    """Forks from any place in an answer, edits by a person, chats without a message, and votes on answers."""

    def __init__(self, http: Http, running: Running, reach: Reach, views: RunViews) -> None:
        bodies, streams, _ = http
        engine, store = running.engine, running.store
        self.inner = (
            ForksApi(bodies, streams, views, reach, running.starting, running.agents, store),
            EditsApi(bodies, reach, engine, store),
            ThumbsApi(bodies, reach, store),
        )
