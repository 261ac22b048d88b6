"""What people keep under a name: presets and prompts."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import msgspec

from ....asks import OnBreak
from ....errors import BadRequest
from ...kit.request import System, check_params

PresetName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
PromptText = Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]


class KeptUnderName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has a name, is one owner's, and may be shared with a group of the owner's."""

    noun: ClassVar[str]
    """The word for it in errors."""
    prefix: ClassVar[str]
    """How its ids begin."""

    name: PresetName
    group: str = ""
    """The id of the group that may use it; empty for the owner alone."""

    def check(self) -> None:
        """Refuse what no type can describe."""


class Preset(KeptUnderName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a chat is set up: its model, system prompt and parameters. An agent is a model too, and brings its tools."""

    noun = "preset"
    prefix = "pre"

    model: str | None = None
    system: System | None = None
    params: dict[str, Any] = {}
    on_break: OnBreak | None = None
    """What is done if a response breaks off; null for what the settings say."""

    def check(self) -> None:
        """Refuse parameters that the server sets itself."""
        check_params(self.params)


class SavedPrompt(KeptUnderName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text to begin a message with. `{{topic}}` stands for what is asked when it is used."""

    noun = "prompt"
    prefix = "pmt"

    text: PromptText

    def check(self) -> None:
        """Refuse a name that cannot be typed after a slash."""
        if not _TYPED.fullmatch(self.name):
            message = "A prompt is called by /name: its name has letters, digits, `-`, `_` and `.`, and no spaces."
            raise BadRequest(message, param="name")
        if not self.text.strip():
            raise BadRequest("The text of the prompt is empty.", param="text")


_TYPED = re.compile(r"[\w.-]+")
_VARIABLE = re.compile(r"\{\{\s*([^\W\d][\w -]{0,62}?)\s*\}\}")


def variables_in(text: str) -> list[str]:
    """Return the names of a prompt's variables, each once, in the order in which they appear."""
    return list(dict.fromkeys(_VARIABLE.findall(text)))
