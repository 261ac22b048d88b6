"""How long a model may be silent, and what a run waits for meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from ..ids import ModelName


class ModelAsked(msgspec.Struct, frozen=True):
    """A source emits this when it asks a model, to say how long that may be silent. It is not logged.

    `first` is the limit before the first output, `silence` that after it, in seconds without a byte; None for no limit.
    """

    model: ModelName
    """Empty if it must not be told."""
    first: float | None = None
    silence: float | None = None
    is_local: bool = False
    """Whether it reads its prompt on a machine of the operator."""
    give_up: Callable[[], bool] | None = None
    """Ends the call of this model alone, as it is silent for too long. If it returns False, the run ends."""


class WaitsFor(msgspec.Struct, frozen=True):
    """What a run waits for, and since when."""

    model: ModelName
    """Empty if it must not be told."""
    what: Literal["prompt", "first_token", "more"]
    """That a local model has read the prompt, that a model begins to answer, or that it goes on."""
    since: float
    """In Unix seconds."""
