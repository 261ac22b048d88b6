"""The settings of an MCP server, and its errors without secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ...errors import HoldfastError
from ...redaction import REDACTED, redact
from ..tools import Approval

SHORTEST_SECRET = 8
"""Minimum length, in characters, of a variable or header that is redacted."""


class ToolServerAway(HoldfastError):
    """An MCP server cannot be reached, so an agent would lack its tools."""

    code = "tool_server_away"
    status = 502


class ToolServerNotConnected(ToolServerAway):
    """The owner of a run has no account at an MCP server that needs one, or has it no longer."""

    code = "tool_server_not_connected"
    status = 403
    type = "permission_error"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"MCP server {name} needs an account. Connect yours in the settings of the page, and try again."
        )


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an MCP server: a command to start, or an address."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    tools: tuple[str, ...] | None = None
    """The tools that agents may have, by the server's own names; None for all."""
    approval: Approval = "ask"
    timeout: float | None = 60.0
    shared: bool = False
    """All owners have the same connection."""
    oauth: bool = False
    """Each owner has a token of its own, or all have one if it is shared."""
    oauth_client: str = ""
    """The client that was given for it; empty if Holdfast registers itself."""
    oauth_secret: str = ""
    """The secret of that client; empty if it has none."""

    def redacted(self, text: str) -> str:
        """Return an error message of the server or the connection without secrets."""
        return redact(text, self._secrets())

    def hidden(self, text: str) -> str:
        """Return text of the server's program or tools without the secrets from its settings."""
        for secret in self._secrets():
            text = text.replace(secret, REDACTED) if len(secret) >= SHORTEST_SECRET else text
        return text

    def _secrets(self) -> list[str]:
        values = [
            *self.env.values(),
            *self.headers.values(),
            self.oauth_secret,
            *(value for _, value in parse_qsl(urlsplit(self.url).query)),
        ]
        return [*values, *(value.removeprefix("Bearer ") for value in values)]


Bearer = Callable[[str], Awaitable[str]]
"""Returns the token of an owner for one MCP server: another one than the given one, which was refused, or is empty.
Raises `ToolServerAway`."""
Bearers = Callable[[McpServer, str, str], Awaitable[str]]
"""The same for all servers and owners: a server, the owner (empty for all), and the token that was refused."""
