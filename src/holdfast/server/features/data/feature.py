"""The data of people: export, import, deletion and retention."""

from __future__ import annotations

from ....compare.runs import Rounds
from ....evals.runner import BatchRunner
from ...config.current import CurrentSettings
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...kit.request import Bodies
from ...running.running import Running
from ..accounts.api.sign_in import SigningIn
from ..accounts.keys import Keys
from ..accounts.people.people import People
from ..audit.audit import Audit
from ..importing.api import ImportsApi
from ..sessions.sessions import SessionsApi
from ..sharing.shares import Shares
from .api import AccountDataApi
from .erasing import Erasing
from .retention import Retention


class DataFeature(Feature):
    """The data of people, until it is deleted."""

    def __init__(
        self,
        bodies: Bodies,
        running: Running,
        current: CurrentSettings,
        people: People,
        keys: Keys,
        shares: Shares,
        audit: Audit,
        sessions: SessionsApi,
        rounds: Rounds,
        batches: BatchRunner,
    ) -> None:
        engine, store, signing_in = running.engine, running.store, SigningIn(current.now, people)
        self.erasing = erasing = Erasing(store, engine, people, keys, rounds, batches, audit, shares)
        self.retention = Retention(current, people, sessions, engine, store, batches, rounds)
        self.inner = (
            AccountDataApi(bodies, signing_in, people, running.budgets, erasing, engine, store),
            ImportsApi(running.budgets, engine, store),
        )

    def begin(self, chores: Chores) -> None:
        """Delete what is too old, and what people have asked to delete."""
        chores.by_one_node("log trimming", 3600.0, self.retention.delete_old)
        chores.every("erasures", 60.0, self.erasing.look)
