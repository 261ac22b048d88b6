"""Sessions, and the runs in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ....store import RunRecord
from ...kit.calls import Http
from ...kit.feature import Feature
from ...running.running import Running
from ..accounts.people.people import People
from ..files.api import FilesApi
from ..filing.api import FilingApi
from ..presets.kinds import Preset
from ..presets.library import Library
from ..sharing.reach import Reach
from ..sharing.shares import Shares
from .feed import FeedApi
from .queue import QueueApi
from .run_json import PaneInfo, RunViews
from .runs import RunsApi
from .session_runs import SessionRunsApi
from .session_transfer import SessionTransferApi
from .sessions import SessionsApi


class SessionsFeature(Feature):
    """Sessions, their runs, queues and feeds, and files that wait for a message."""

    def __init__(
        self,
        http: Http,
        running: Running,
        reach: Reach,
        shares: Shares,
        people: People,
        pane_of: Callable[[RunRecord], Awaitable[PaneInfo]],
        presets: Library[Preset],
    ) -> None:
        bodies, streams, _ = http
        self.views = views = RunViews(running.prices, pane_of)
        engine, store, agents, prices = running.engine, running.store, running.agents, running.prices
        runs = RunsApi(bodies, streams, views, reach, agents, engine, store)
        self.sessions = SessionsApi(
            bodies, views, reach, running.models, people, shares, engine, store, prices, presets
        )
        self.inner = (
            runs,
            SessionRunsApi(bodies, streams, views, reach, running.starting, agents, runs, engine, store),
            self.sessions,
            SessionTransferApi(bodies, reach, engine, store),
            FilingApi(bodies, engine, store, self.sessions.delete_with_grants),
            QueueApi(bodies, reach, engine, store),
            FeedApi(streams, reach, engine, store, prices),
            FilesApi(bodies, running.reader, running.uploads),
        )
