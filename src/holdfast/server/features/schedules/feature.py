"""Schedules and triggers: their calls, and the work behind them."""

from __future__ import annotations

from ...kit.calls import Http
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...running.running import Running
from ...secrets.sealer import Sealer
from ..presets.feature import PresetsFeature
from .api import AskedCheck, SchedulesApi
from .schedules import Schedules
from .triggers import Triggers
from .triggers_api import TriggersApi
from .unattended import Unattended


class SchedulesFeature(Feature):
    """Schedules and triggers."""

    def __init__(self, http: Http, running: Running, presets: PresetsFeature, sealer: Sealer) -> None:
        engine, store, library = running.engine, running.store, presets.presets
        starts = Unattended(store, engine, running.starting, running.agents, running.owners, running.budgets, library)
        self.schedules = Schedules(store, engine, starts)
        self.triggers = Triggers(store, engine, starts, sealer)
        check = AskedCheck(running.models, library, store)
        self.inner = (
            SchedulesApi(http.bodies, self.schedules, check, engine),
            TriggersApi(http.bodies, self.triggers, check),
        )

    def begin(self, chores: Chores) -> None:
        """Take up the schedules that no node has, and forget old calls."""
        chores.by_one_node("schedules", 60.0, self.schedules.jobs.take_up_all)
        chores.by_one_node("old calls of triggers", 3600.0, self.triggers.forget_old)
