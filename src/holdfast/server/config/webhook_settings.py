"""The settings of webhooks."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

BackgroundEvent: TypeAlias = Literal[
    "response.completed", "response.incomplete", "response.failed", "response.cancelled"
]
"""How a response in the background has ended."""
RunEvent: TypeAlias = Literal[
    "run.completed", "run.truncated", "run.stopped", "run.failed", "run.interrupted", "run.waiting"
]
"""How a run of a chat or an agent has ended, or that it waits for a person."""


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[webhooks]]` table: an address that is called when a response in the background, or any run, has ended."""

    url: str
    secret_env: str
    events: tuple[BackgroundEvent | RunEvent, ...] = get_args(BackgroundEvent)
