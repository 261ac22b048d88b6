"""Schedules and triggers: their calls, and the work behind them."""

from __future__ import annotations

from ...kit.calls import Http
from ...kit.chores import Chores
from ...kit.feature import Feature
from ...running.running import Running
from ..presets.feature import PresetsFeature
from .api import AskedCheck, SchedulesApi
from .schedules import Schedules
from .unattended import Unattended


class SchedulesFeature(Feature):
    """Schedules and triggers."""

    def __init__(self, http: Http, running: Running, presets: PresetsFeature) -> None:
        engine, store, library = running.engine, running.store, presets.presets
        starts = Unattended(store, engine, running.starting, running.agents, running.owners, running.budgets, library)
        self.schedules = Schedules(store, engine, starts)
        check = AskedCheck(running.models, library, store)
        self.inner = (SchedulesApi(http.bodies, self.schedules, check, engine),)

    def begin(self, chores: Chores) -> None:
        """Take up the schedules that no node has."""
        chores.by_one_node("schedules", 60.0, self.schedules.jobs.take_up_all)
