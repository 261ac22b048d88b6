"""The request of a published agent, and its stop hooks."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from ..prompt.openai_shape import newest_question

logger = logging.getLogger(__name__)

OnStop = Callable[[str], Any]
"""Called with the reason of a stop, such as `user` or `disconnect`. It may be a coroutine function."""


class AgentStopped(BaseException):
    """The run was stopped. A blocking agent gets it at its next emit, as others get a cancel at an await."""


class Stop:
    """The stop of one run and its hooks. Hooks can be registered in any thread."""

    def __init__(self) -> None:
        self._hooks: list[OnStop] = []
        self._lock = threading.Lock()

    def register(self, hook: OnStop) -> None:
        """Call a hook once, when the run is stopped. Later stops call nothing."""
        with self._lock:
            self._hooks.append(hook)

    async def call(self, reason: str) -> None:
        """Call every hook, once. If one fails, the others are still called."""
        with self._lock:
            hooks, self._hooks = self._hooks, []
        for hook in hooks:
            try:
                if inspect.isawaitable(called := hook(reason)):
                    await called
            except Exception:
                logger.exception("a stop hook of an agent failed")


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request to an agent."""

    messages: list[dict[str, Any]]
    """The conversation in OpenAI's shape, the newest message last."""
    params: dict[str, Any] = {}
    """The other parameters of the request: temperature and so on."""
    run_id: str = ""
    session_id: str | None = None
    session_name: str | None = None
    """The client's name of the conversation: its `X-Session-Id`, `session_id`, chat id or thread."""
    stream: bool = False
    """Whether the client that started the run reads the answer as it comes."""
    owner: str = ""
    stop: Stop = msgspec.field(default_factory=Stop)

    @property
    def text(self) -> str:
        """The text of the newest user message."""
        return newest_question(self.messages)

    def on_stop(self, hook: OnStop) -> None:
        """Call `hook` once, with the reason, when the run is stopped: by a person, a disconnect, a limit.

        It is called in the server's event loop, so it must not block. It can be registered from any thread.
        """
        self.stop.register(hook)
