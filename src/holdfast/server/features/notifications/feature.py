"""What people have seen, and what they are told of."""

from __future__ import annotations

from ...kit.calls import Http
from ...kit.feature import Feature
from ...running.running import Running
from ..sharing.reach import Reach
from .seen import SeenApi


class NotificationsFeature(Feature):
    """What people have seen, and what they are told of."""

    def __init__(self, http: Http, running: Running, reach: Reach) -> None:
        self.inner = (SeenApi(http.bodies, reach, running.engine, running.store),)
