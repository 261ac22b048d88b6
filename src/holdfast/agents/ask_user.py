"""A tool with which the model asks the person a question, with choices or without."""

from __future__ import annotations

from typing import Any

import msgspec

from ..events import FormField, FormOption, InputDecided, Replay
from .tools import Approval, ToolContext, ToolOutput

MOST_CHOICES = 20
ANSWER, WORDS = "answer", "words"


class AskUser:
    """Asks the person a question, and returns the answer."""

    name = "ask_user"
    approval: Approval = "allow"
    timeout: float | None = None
    replay: Replay = "safe"
    description = (
        "Ask the user a question and wait for the answer. Use it when you cannot go on without a decision that is "
        "theirs. Offer choices where you can: the user may also answer in their own words, or decline."
    )
    parameters: dict[str, Any] = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "the question, in the user's language"},
            "choices": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MOST_CHOICES,
                "description": "answers to choose from",
            },
            "several": {"type": "boolean", "description": "whether several of them can be chosen"},
        },
        "required": ["question"],
        "additionalProperties": False,
    }

    def misfit(self, arguments: dict[str, Any]) -> str:
        """Return the error in the arguments."""
        try:
            asked = msgspec.convert(arguments, _Asked)
        except msgspec.ValidationError as error:
            return f"The arguments do not fit: {error}"
        return "" if asked.question.strip() else "The arguments do not fit: question is empty."

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Ask, and return what the person said."""
        asked = msgspec.convert(arguments, _Asked)
        return _told(await context.ask(asked.question, asked.fields()))


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    question: str
    choices: tuple[str, ...] = ()
    several: bool = False

    def fields(self) -> tuple[FormField, ...]:
        words = FormField(WORDS, "string", title="")
        chosen = tuple(dict.fromkeys(choice for choice in self.choices if choice.strip()))[:MOST_CHOICES]
        if not chosen:
            return (msgspec.structs.replace(words, required=True),)
        options = tuple(FormOption(choice, choice) for choice in chosen)
        return FormField(ANSWER, "array" if self.several else "string", title="", options=options), words


def _told(answer: InputDecided) -> ToolOutput:
    """Return an answer for the model."""
    if answer.decision != "accept":
        did = "declined to answer" if answer.decision == "decline" else "has not answered"
        return ToolOutput(f"The user {did}. {answer.note}".strip(), is_error=True)
    chosen = answer.content.get(ANSWER) or []
    said = [chosen] if isinstance(chosen, str) else list(chosen)
    return ToolOutput("\n".join([*said, *filter(None, [answer.content.get(WORDS)])]) or "(nothing)")
