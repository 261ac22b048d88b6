"""The context of sessions."""

from __future__ import annotations

from ...kit.calls import Http
from ...kit.feature import Feature
from ...running.running import Running
from ..sessions.run_json import RunViews
from ..sharing.reach import Reach
from .api import ContextApi


class ContextFeature(Feature):
    """How full the window of a session's model is, and summaries that make room."""

    def __init__(self, http: Http, running: Running, reach: Reach, views: RunViews) -> None:
        engine, store = running.engine, running.store
        self.inner = (ContextApi(http.bodies, views, reach, running.starting, running.models, engine, store),)
