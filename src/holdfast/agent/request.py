"""What an agent that somebody else wrote is asked."""

from __future__ import annotations

from typing import Any

import msgspec


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is asked."""

    messages: list[dict[str, Any]]
    """The conversation in OpenAI's shape, the newest message last."""
    params: dict[str, Any] = {}
    """Everything else that the caller said: temperature and so on."""
    run_id: str = ""
    session_id: str | None = None
    owner: str = ""

    @property
    def text(self) -> str:
        """The words of the newest message of the user."""
        asked = [said for said in self.messages if said.get("role") == "user"]
        return text_of(asked[-1].get("content")) if asked else ""


def text_of(content: Any) -> str:
    """Return the words of a message's content, be it a string or parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or () if isinstance(part, dict))
