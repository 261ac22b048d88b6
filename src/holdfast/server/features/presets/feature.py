"""Presets and prompts: their calls, and what else uses them."""

from __future__ import annotations

from ...kit.calls import Http
from ...kit.feature import Feature
from ...running.running import Running
from ..accounts.people.people import People
from .api import PresetsApi, PromptsApi
from .kinds import Preset, SavedPrompt
from .library import Library
from .transfer import TransferApi


class PresetsFeature(Feature):
    """Presets and prompts."""

    def __init__(self, http: Http, running: Running, people: People) -> None:
        bodies, store, models = http.bodies, running.store, running.models
        self.presets = Library(store, Preset, people, now=running.engine.now)
        prompts = Library(store, SavedPrompt, people, now=running.engine.now)
        self.inner = (
            PresetsApi(bodies, self.presets, models, store),
            PromptsApi(bodies, prompts),
            TransferApi(bodies, self.presets, prompts, models),
        )
