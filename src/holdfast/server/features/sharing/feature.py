"""Sharing: links, and sessions that groups share."""

from __future__ import annotations

from ...config.settings import Settings
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...kit.streams import Http
from ...running.running import Running
from ..accounts.people.people import People
from .api import SharesApi
from .links import LinksApi
from .reach import Reach
from .shares import Shares


class Sharing(Feature):
    """Links, and sessions that groups share."""

    def __init__(
        self, http: Http, running: Running, reach: Reach, people: People, shares: Shares, settings: Settings
    ) -> None:
        engine, store = running.engine, running.store
        self._shares = shares
        self.inner = (
            SharesApi(http.bodies, reach, people, shares, engine, store, settings),
            LinksApi(http.streams, people, shares, engine, store),
        )

    def begin(self, chores: Chores) -> None:
        """Delete links that have expired."""
        chores.by_one_node("old links", 3600.0, self._shares.forget_expired)
