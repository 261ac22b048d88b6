"""What people have seen, and what people and programs are told of."""

from __future__ import annotations

from collections.abc import Mapping

from ...config.settings import Settings
from ...kit.calls import Http
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...running.running import Running
from ...secrets.sealer import Sealer
from ..sharing.reach import Reach
from .api import NotificationsApi
from .deliveries import Deliveries
from .listeners import listener_of
from .people import Persons
from .posting import Posting
from .push import Pushes
from .seen import SeenApi

CONTACT = "mailto:postmaster@localhost"
"""Whom a push service may write to about this server, if that has no `public_url`."""


class NotificationsFeature(Feature):
    """What people have seen, and what people and programs are told of."""

    def __init__(
        self,
        http: Http,
        running: Running,
        reach: Reach,
        sealer: Sealer,
        settings: Settings,
        environ: Mapping[str, str],
    ) -> None:
        engine, store = running.engine, running.store
        posting = Posting(environ, engine.now, is_private_allowed=settings.notify_private)
        listeners = [listener_of(each, environ, posting) for each in settings.webhooks]
        persons = Persons(store, sealer, engine.now)
        pushes = Pushes(store, persons, posting, sealer, settings.public_url or CONTACT)
        self.deliveries = Deliveries(store, engine, listeners, persons, pushes, posting)
        running.starting.told = self.deliveries
        self.inner = (
            SeenApi(http.bodies, reach, engine, store, self.deliveries),
            NotificationsApi(http.bodies, persons, pushes.keys, posting, self.deliveries, engine),
        )

    def begin(self, chores: Chores) -> None:
        """Go on with the deliveries that are left."""
        chores.once("deliveries", self.deliveries.jobs.take_up_all)
