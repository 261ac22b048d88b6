"""Tells which process of a server a request belongs to, by its bytes.

What is stored, and everything that is not known to be otherwise, is the owner's: the process that has the data folder.
A run that nobody keeps is in the process that its id names. What asks a model and leaves nothing behind is anyone's.
"""

from __future__ import annotations

import logging
import re
from typing import Any, NamedTuple

import msgspec

from ..ids import mark_of
from ..providers.anthropic import Anthropic
from ..providers.openai_compatible import OpenAICompatible
from .board import Board
from .configured import Configured
from .settings import Settings, SettingsError

logger = logging.getLogger("holdfast")

OWNER = 0
"""The process that has the data folder."""
LONGEST_BODY = 1024 * 1024
"""Bytes of a body that is looked into to find out whose it is. A longer one is the owner's."""
ROOM = 16
"""Runs below the limit from which on only the owner starts any: two processes at once cannot exceed it."""

_ANYONE = re.compile(rb"POST /v1/(?:chat/completions|messages) HTTP/1\.1\r\n")
_RUN = re.compile(rb"[A-Z]+ [^ ?\r]*?(?:run_|chatcmpl-|resp_)([0-9a-z]+)(?=[/ ?])")
_TELLING = re.compile(
    rb"\r\n(content-length|transfer-encoding|upgrade|expect|idempotency-key|x-session-id|x-conversation-id)"
    rb"[ \t]*:[ \t]*([^\r]*)",
    re.IGNORECASE,
)


class Head(NamedTuple):
    """What the head of a request tells."""

    process: int | None
    """Whose it is; None where its body tells whether it is anyone's."""
    length: int | None
    """How long its body is; None where that cannot be known before it has come."""


class Asked(msgspec.Struct):
    """What of a body tells whether it leaves anything behind."""

    model: str = ""
    session_id: Any = None
    background: Any = None


class Whose:
    """Tells which process a request belongs to, as the settings are now."""

    def __init__(self, board: Board, settings: Settings, configured: Configured, *, has_agents: bool) -> None:
        self._board = board
        self._settings = settings
        self._configured = configured
        self._has_agents = has_agents
        self._page = board.page

    def head(self, head: bytes) -> Head:
        """Tell what a head tells. It ends with the end of its last line, and may begin with empty ones."""
        head = head.lstrip(b"\r\n")
        told = {name.lower(): value.strip() for name, value in _TELLING.findall(head)}
        length = _length(told)
        if _ANYONE.match(head) and told.keys() <= {b"content-length"} and length is not None:
            is_long = length > min(LONGEST_BODY, self._settings.body_limit)  # which may be refused at once
            is_counted = self._settings.starts_per_minute > 0  # which only one can do
            return Head(OWNER if is_long or is_counted else None, length)
        run = _RUN.match(head)
        process = mark_of(run[1].decode()) if run else 0
        return Head(process if self._board.is_there(process) else OWNER, length)

    def is_anyones(self, body: bytes | bytearray) -> bool:
        """Tell whether any process may answer a request with this body."""
        try:
            asked = msgspec.json.decode(body, type=Asked)
            self._look_at_settings()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, SettingsError):
            return False  # the owner says what is wrong
        if asked.session_id is not None or asked.background not in (None, False):
            return False
        if self._board.is_ending or not self._board.is_up(self._board.me):
            return False  # the owner refuses it, or goes on without this process
        return self._is_upstream(asked.model) and self._board.runs + ROOM <= self._settings.max_runs

    def _look_at_settings(self) -> None:
        """Take in what was set in the meantime. The page is turned after it was saved."""
        if (page := self._board.page) != self._page:
            self._configured.read_again()
            self._page = page

    def _is_upstream(self, model: str) -> bool:
        """Tell whether the answer comes from an upstream alone: no limit of its own, nobody who stands in for it."""
        if self._has_agents and "/" not in model:
            return False  # it may be an agent's name as well
        known = self._configured.providers.at_once(model)
        if known is None:
            return False
        provider, name = known
        return type(provider) in (OpenAICompatible, Anthropic) and not (
            {model, f"{provider.name}/{name}"} & self._configured.fallbacks.keys()
        )


def _length(told: dict[bytes, bytes]) -> int | None:
    if b"transfer-encoding" in told or b"upgrade" in told:
        return None
    length = told.get(b"content-length", b"0")
    return int(length) if length.isdigit() and len(length) < 16 else None
