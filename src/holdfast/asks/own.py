"""What only an upstream of the client's own dialect gets of a request, as it was sent: nothing else has it."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class _Own(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    def fields(self) -> dict[str, Any]:
        """Return the fields that were sent."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not None}


class OwnMessages(_Own, frozen=True, kw_only=True, tag="anthropic"):
    """A whole conversation in the dialect of Anthropic's Messages API."""

    messages: list[Any]
    system: Any = None
    tools: Any = None
    tool_choice: Any = None


class OwnResponse(_Own, frozen=True, kw_only=True, tag="openai-responses"):
    """Fields of OpenAI's Responses API."""

    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None


class OwnOllama(_Own, frozen=True, kw_only=True, tag="ollama"):
    """Fields of Ollama's API."""

    options: dict[str, Any] | None = None
    think: Any = None
    keep_alive: Any = None
    truncate: Any = None
    shift: Any = None


class OwnPrompt(_Own, frozen=True, kw_only=True, tag="completion"):
    """The prompt of a text completion, which may be several, or tokens."""

    prompt: Any = None


Own: TypeAlias = OwnMessages | OwnResponse | OwnOllama | OwnPrompt
