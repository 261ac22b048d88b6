"""How long a model may be silent: before its first word, and between two.

A model on a machine of one's own reads its weights, and a long prompt for minutes. A service answers at once, or fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...history import estimate_tokens
from ...silence import ModelAsked
from ...upstreams import ChatRequest, FoundModel
from ..config.model_limits import ModelLimits

LOADING = 2.5
"""How many times the idle limit a local model has before its first word, besides what its prompt needs."""
PER_TOKEN = 0.1
"""Seconds that a local model has for each token of a prompt: large ones read ten in a second on a small machine."""


class Patience:
    """The limits of the settings: of a model, of a provider (`up/*`), or of all (`*`). `idle` is for all others."""

    def __init__(self, chosen: Mapping[str, ModelLimits], idle: float | None) -> None:
        self._chosen, self._idle = chosen, idle

    def with_request(self, found: FoundModel, request: ChatRequest) -> ModelAsked:
        """Return the limits of a model that is asked something."""
        is_local = bool(getattr(found.provider, "is_local", False))
        names = (found.name, f"{found.provider.name}/*", "*")
        chosen = [self._chosen[name] for name in names if name in self._chosen]
        silence = next((each.silence for each in chosen if each.silence is not None), self._idle or math.inf)
        usual = LOADING * (self._idle or math.inf) if is_local else silence
        first = next((each.first_token for each in chosen if each.first_token is not None), usual)
        rate = next((each.per_token for each in chosen if each.per_token is not None), PER_TOKEN if is_local else 0.0)
        if rate and first and math.isfinite(first):
            first += rate * estimate_tokens(request.messages)
        return ModelAsked(found.name, first=_limit(first), silence=_limit(silence), is_local=is_local)


def _limit(seconds: float) -> float | None:
    return seconds if seconds and math.isfinite(seconds) else None
