"""Sharing: links, and sessions that groups share."""

from __future__ import annotations

from ...config.settings import Settings
from ...kit.calls import Http
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...running.running import Running
from ..accounts.people.people import People
from .api import SharesApi
from .links import LinksApi
from .reach import Reach
from .shares import Shares


class SharingFeature(Feature):
    """Links, and sessions that groups share."""

    def __init__(self, http: Http, running: Running, people: People, settings: Settings) -> None:
        engine, store = running.engine, running.store
        self.shares = Shares(store, people.callers.is_disabled)
        self.reach = Reach(store, engine, self.shares)
        self.inner = (
            SharesApi(http.bodies, self.reach, people, self.shares, engine, store, settings),
            LinksApi(http.streams, people, self.shares, engine, store),
        )

    def begin(self, chores: Chores) -> None:
        """Delete links that have expired."""
        chores.by_one_node("old links", 3600.0, self.shares.forget_expired)
