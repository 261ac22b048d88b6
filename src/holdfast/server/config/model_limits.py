"""`[limits]`: how long models may be silent."""

from __future__ import annotations

from typing import Annotated

import msgspec


class ModelLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a model may be silent: one entry of `[limits]`."""

    first_token: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds without a byte before its first output; 0 for no limit."""
    per_token: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds that each token of the prompt adds to `first_token`."""
    silence: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds without a byte after its first output; 0 for no limit."""
