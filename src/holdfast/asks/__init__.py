"""What is stored of the request for a run, in `RunRecord.ask`.

It has what the source of the run needs, now or after a restart, and what the wire of the request needs to render the
run again. A run can be read by every wire: one that finds another kind of ask renders without it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ..events import Event, LegStarted, Text
from ..ids import ModelName
from .own import Own

OnBreak: TypeAlias = Literal["settle", "continue"]
"""What is done if an answer breaks off: its run ends with what there is, or another call goes on with it."""


class _Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    trace: dict[str, str] = {}
    """The headers of the trace of the request: another node may start the run, or take it over."""


class ProgramAsk(_Ask, frozen=True, kw_only=True, tag="program"):
    """A run of a program that embeds the engine. It brings its own sources."""

    data: Any = None
    """The program's own JSON, for making the source again."""


class _ModelAsk(_Ask, frozen=True, kw_only=True):
    params: dict[str, Any] = {}
    own: Own | None = None
    """What an upstream of the client's dialect gets as it was sent."""
    stream: bool = False
    on_break: OnBreak | None = None
    """What is done if the answer breaks off; None for what the settings say."""


class ChatAsk(_ModelAsk, frozen=True, kw_only=True, tag="chat"):
    """A conversation that a client sent, or its new messages in a session."""

    messages: list[dict[str, Any]] = []
    """Empty in a session, which has them."""
    system: str = ""
    """The system prompt of a turn in a session, in place of the session's own."""
    session_name: str | None = None
    """The client's name of the session."""
    n: int = 1
    include_usage: bool = False
    run_name: str | None = None
    """The client's name of the run, which its next run takes over."""


class ThreadAsk(ChatAsk, frozen=True, kw_only=True, tag="thread"):
    """A message of Anthropic's API that a later one may continue."""

    thread: dict[str, Any]
    """The fields of the conversation up to this message, as the client sent them."""


class AgUiAsk(ChatAsk, frozen=True, kw_only=True, tag="ag_ui"):
    """A run of a client of AG-UI, with the client's ids."""

    thread_id: str
    run_id: str
    state: Any = None


class AiSdkAsk(ChatAsk, frozen=True, kw_only=True, tag="ai_sdk"):
    """A turn of a client of the AI SDK."""

    ui_message: str | None = None
    """The client's message that the answer is added to."""


class ResponseAsk(_ModelAsk, frozen=True, kw_only=True, tag="response"):
    """A request of OpenAI's Responses API."""

    input: list[dict[str, Any]] = []
    before: list[dict[str, Any]] | None = None
    """The items before the input, if the response that it follows is not stored."""
    previous_response_id: str | None = None
    conversation_id: str | None = None
    """The conversation that the response is added to."""
    instructions: str | None = None
    tools: list[dict[str, Any]] = []
    background: bool = False
    store: bool = False
    echoed: dict[str, Any] = {}
    """The other fields that the response repeats, as the client sent them."""


class Beginning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an answer begins with that leaves an earlier one at some place, and goes on from there."""

    events: tuple[Event, ...]
    model: ModelName
    """The model that has written the last of it."""
    run_id: str = ""
    """The run of the earlier answer; empty for an answer that has none, such as an imported one."""
    after: int | None = None
    """The seq in that run's log after which the answer leaves it; None if a person has chosen the text."""
    edited: bool = False
    """True if a person has changed the text."""

    @property
    def text(self) -> str:
        """Its visible text."""
        return "".join(event.text for event in self.events if isinstance(event, Text))

    @property
    def legs(self) -> int:
        """The number of its last leg. A leg that said nothing has a number too, and no event."""
        return next((event.leg for event in reversed(self.events) if isinstance(event, LegStarted)), 1)


class SessionAsk(_ModelAsk, frozen=True, kw_only=True, tag="session"):
    """A turn in a session, by our own API."""

    notice: str = ""
    """The text of the notice that begins the answer."""
    default_agent: bool = False
    """Whether the run has the tools of the agent `default`."""
    beginning: Beginning | None = None
    """What the answer begins with, if it is a fork of an earlier one."""
    compacts: bool = False
    """Whether the answer is a summary that takes the place of what is before it."""
    comparison_id: str | None = None
    """The comparison whose answers a synthesis makes one of."""


class PaneAsk(_ModelAsk, frozen=True, kw_only=True, tag="pane"):
    """An answer in a comparison."""

    comparison_id: str


ModelAsk = ChatAsk | ThreadAsk | AgUiAsk | AiSdkAsk | ResponseAsk | SessionAsk | PaneAsk
"""A run of a model or of an agent, whose source this server makes."""
Ask = ModelAsk | ProgramAsk


def chat_ask(ask: Ask) -> ChatAsk:
    """Return what a wire of chats needs to render a run. One that another wire has started has one choice."""
    return ask if isinstance(ask, ChatAsk) else ChatAsk()


def response_ask(ask: Ask) -> ResponseAsk:
    """Return what the Responses API needs to render a run. One that another wire has started has no items."""
    return ask if isinstance(ask, ResponseAsk) else ResponseAsk()


def model_ask(ask: Ask) -> ModelAsk:
    """Return what the source of a run needs. Raise for a run of a program, which has its own source."""
    if isinstance(ask, ProgramAsk):
        raise TypeError("a run of the program's own has no model to ask: start it with a source")
    return ask


def beginning_of(ask: Ask) -> Beginning | None:
    """Return what an answer begins with that goes on from a place in an earlier one."""
    return ask.beginning if isinstance(ask, SessionAsk) else None
