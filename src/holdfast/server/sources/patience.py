"""How long a model may be silent: before its first word, and between two.

A model on a machine of one's own reads its weights, and a long prompt for minutes. A service answers at once, or fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...history import estimate_tokens
from ...ids import ModelName
from ...silence import ModelAsked
from ...upstreams import ChatRequest, FoundModel, Provider
from ..config.model_limits import ModelLimits

LOADING = 2.5
"""How many times the idle limit a local model has before its first word, besides what its prompt needs."""
PER_TOKEN = 0.1
"""Seconds that a local model has for each token of a prompt: large ones read ten in a second on a small machine."""


class Patience:
    """The limits of the settings: of a model, of a provider (`up/*`), or of all (`*`). `idle` is for all others."""

    def __init__(self, chosen: Mapping[str, ModelLimits], idle: float | None) -> None:
        self._chosen, self._idle = chosen, idle
        self._known: dict[ModelName, tuple[Provider, ModelAsked, float]] = {}

    def with_request(self, found: FoundModel, request: ChatRequest) -> ModelAsked:
        """Return the limits of a model that is asked something."""
        if found.name not in self._known or self._known[found.name][0] is not found.provider:
            self._known[found.name] = self._limits(found)
        _, limits, per_token = self._known[found.name]
        if not per_token or limits.first is None:
            return limits
        return replace(limits, first=limits.first + per_token * estimate_tokens(request.messages))

    def _limits(self, found: FoundModel) -> tuple[Provider, ModelAsked, float]:
        """Return a model's provider, its limits for an empty prompt, and what a token adds to the first."""
        is_local = bool(getattr(found.provider, "is_local", False))
        names = (found.name, f"{found.provider.name}/*", "*")
        chosen = [self._chosen[name] for name in names if name in self._chosen]
        silence = next((each.silence for each in chosen if each.silence is not None), self._idle)
        usual = LOADING * self._idle if is_local and self._idle else silence
        first = next((each.first_token for each in chosen if each.first_token is not None), usual)
        rate = next((each.per_token for each in chosen if each.per_token is not None), PER_TOKEN if is_local else 0.0)
        asked = ModelAsked(found.name, first=first or None, silence=silence or None, is_local=is_local)
        return found.provider, asked, rate
