"""What can happen in a run, and the five ways it can end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias, overload

import msgspec

StoppedBy = Literal["user", "disconnect", "replaced", "budget", "shutdown"]


class Usage(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="usage"):
    """The tokens a run has used. `source` says whether the provider counted them or we estimated."""

    input_tokens: int = 0
    output_tokens: int = 0
    source: Literal["provider", "estimated"] = "provider"
    cached_tokens: int = 0
    """Of the input, what the provider says it had read before, and..."""
    reasoning_tokens: int = 0
    """...of the output, what it says were thoughts."""

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class ErrorInfo(msgspec.Struct, frozen=True):
    """Why a run failed, as it is stored and shown. `code` never changes once published."""

    code: str
    message: str
    type: str = "server_error"
    param: str | None = None
    status: int = 500
    retry_after: float | None = None


class Receipt(msgspec.Struct, frozen=True):
    """When a stop was asked for, when the upstream was closed, and when the run settled (Unix seconds)."""

    stop_requested_at: float
    upstream_closed_at: float | None
    settled_at: float
    refused: tuple[str, ...] = ()
    """What did not end when it was told to, in words: a process that had to be killed, a thread that goes on."""


# How a run ended. Each ending has only the fields that are true of it.


class Settlement(msgspec.Struct, frozen=True, kw_only=True, tag_field="outcome"):
    """How a run ended: exactly one of the five classes below. `text` is all of the visible text."""

    text: str = ""
    usage: Usage = Usage(source="estimated")
    finish_reason: str | None = None
    finish_reasons: tuple[str, ...] = ()
    """One for each choice, where a request asked for several."""
    answered_by: str | None = None
    """The model that answered, where it was not the one that was asked."""


class Completed(Settlement, frozen=True, kw_only=True, tag="completed"):
    """The source ended, and said why."""


class Truncated(Settlement, frozen=True, kw_only=True, tag="truncated"):
    """It hit a limit or a filter."""


class Stopped(Settlement, frozen=True, kw_only=True, tag="stopped"):
    """Someone stopped it."""

    by: StoppedBy
    receipt: Receipt | None = None


class Failed(Settlement, frozen=True, kw_only=True, tag="failed"):
    """The source raised, or the upstream broke, lied or fell silent."""

    error: ErrorInfo


class Interrupted(Settlement, frozen=True, kw_only=True, tag="interrupted"):
    """Its server died, and nobody could continue it."""

    error: ErrorInfo = ErrorInfo(
        code="server_died",
        message="The server ended while this run was going on. What had been shown is kept.",
        status=502,
    )


AnySettlement: TypeAlias = Completed | Truncated | Stopped | Failed | Interrupted


# What a log holds.


class RunStarted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="run.started"):
    """The first event of every run."""

    model: str = ""
    message_id: str | None = None


class Text(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="text.delta"):
    """Visible text. `choice` counts the answers where a request asked for several."""

    text: str
    choice: int = 0
    logprobs: Any = None


class Reasoning(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="reasoning.delta"):
    """What the model thinks before it answers: never part of the visible text."""

    text: str
    choice: int = 0


class ToolDelta(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.delta"):
    """A piece of a tool call while the model is still writing it."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    choice: int = 0


class ToolCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.call"):
    """A whole tool call; `arguments` is the JSON text that the model wrote.

    An agent calls its `own` tools itself: such a call is not for the client to answer.
    """

    id: str
    name: str
    arguments: str
    choice: int = 0
    own: bool = False


class ToolProgress(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.progress"):
    """A long tool tells how far it is."""

    id: str
    message: str = ""
    fraction: float | None = None


class ToolResult(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool.result"):
    """What a tool gave back, and how many seconds it worked; `cut` where the output was too long to be kept whole."""

    id: str
    output: str
    is_error: bool = False
    seconds: float | None = None
    cut: bool = False
    content: tuple[dict[str, Any], ...] | msgspec.UnsetType = msgspec.UNSET
    """What is no text, where there is any: pictures and the like, in MCP's shape. No model is shown it."""
    waited: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds that a person took to allow or deny the call, where one was asked."""


class ApprovalRequested(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="approval.requested"):
    """The run waits for a person to allow a tool call, until a time (Unix seconds) if it has to be by then."""

    id: str
    tool: str
    arguments: str
    call: str = ""
    expires_at: float | None = None


class ApprovalDecided(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="approval.decided"
):
    """A person has allowed or denied it."""

    id: str
    decision: Literal["allow", "deny"]
    note: str = ""


class StepStarted(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="step.started"):
    """An agent asks its model, for the nth time in this run."""

    step: int


class StepFinished(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="step.finished"):
    """The model has answered and every tool that it called has ended: what was done up to here is never done again."""

    step: int
    seconds: float


class Steered(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="run.steered"):
    """A person has put a message into the run: the model sees it at its next boundary."""

    id: str
    text: str


class Notice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="notice"):
    """Something the reader should know that is not part of the answer: a retry, a fallback model.

    With a `model` it says who answers from here on, in place of the model that was asked.
    """

    code: str
    message: str
    model: str = ""


class Snapshot(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="snapshot"):
    """All that was visible up to a seq: what a reader gets instead of events that were trimmed."""

    text: str
    reasoning: str = ""


class Settled(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="run.settled"):
    """The last event of every run."""

    settlement: AnySettlement


Event: TypeAlias = (
    RunStarted
    | Text
    | Reasoning
    | ToolDelta
    | ToolCall
    | ToolProgress
    | ToolResult
    | ApprovalRequested
    | ApprovalDecided
    | StepStarted
    | StepFinished
    | Steered
    | Usage
    | Notice
    | Snapshot
    | Settled
)
"""One numbered fact in a run's log."""


class Finish(msgspec.Struct, frozen=True, gc=False):
    """A source says how it ended. It is judged, not logged: the settlement is its place."""

    reason: str
    choice: int = 0
    error: ErrorInfo | None = None


class Thought(msgspec.Struct, frozen=True):
    """What a model has thought, sealed by its provider, which wants it back as it was with the results of its calls.

    It is for the agent that asked. It is not logged: `Reasoning` is what people are shown.
    """

    block: dict[str, Any]


Yielded: TypeAlias = Event | Finish | Thought | str


class Flow(Protocol):
    """Events that are handed over in the call that brings them, so that no task wakes for a token.

    Only the server's own sources yield one, to an engine that is known to read them.
    """

    is_over: bool
    """Nothing more will come: whoever yielded it goes on."""
    has_said: bool
    """Whether anything came."""

    async def pour(self, take: Callable[[Sequence[Yielded]], bool]) -> None:
        """Hand over what comes, until `take` says that it is enough for now, or until it is over."""
        ...


Source: TypeAlias = AsyncIterator[Yielded | Sequence[Yielded]]
"""What a run consumes: events, plain strings (they become `Text`), or several at once where they arrived together."""


class Words(Sequence[Text]):
    """Visible text of the first answer, in pieces that came together: they become events when somebody looks.

    Most who handle a burst of tokens need no more than its texts.
    """

    __slots__ = ("are_simple", "texts")

    def __init__(self, texts: Sequence[str], *, are_simple: bool = False) -> None:
        self.texts = texts
        self.are_simple = are_simple
        """Whoever made them knows that JSON has all of them as they are."""

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, place: int) -> Text: ...

    @overload
    def __getitem__(self, place: slice) -> Words: ...

    def __getitem__(self, place: int | slice) -> Text | Words:
        if isinstance(place, slice):
            return Words(self.texts[place], are_simple=self.are_simple)
        return Text(self.texts[place])

    def __iter__(self) -> Iterator[Text]:
        return map(Text, self.texts)


def are_words(events: Iterable[object]) -> bool:
    """Tell whether all of these are visible text, in one pass that the interpreter has no part in."""
    return type(events) is Words or {*map(type, events)} == _WORDS


_WORDS = {Text}


def plain_texts(events: Sequence[Yielded]) -> Sequence[str] | None:
    """Return the texts of events that are visible text of the first answer and say nothing else; None for others."""
    if type(events) is Words:
        return events.texts
    if are_words(events) and not [True for said in events if said.choice or said.logprobs is not None]:  # type: ignore[union-attr]
        return [said.text for said in events]  # type: ignore[union-attr]
    return None


def needs_no_escape(text: str) -> bool:
    """Tell whether JSON has a text as it is, between two quotation marks."""
    return len(encode_event(text)) == len(text.encode()) + 2


def stand_as_they_are(events: Sequence[Event], texts: Sequence[str]) -> bool:
    """Tell whether JSON has the texts of these events as they are."""
    return (type(events) is Words and events.are_simple) or needs_no_escape("".join(texts))


def encode_events(events: Sequence[Event]) -> bytes:
    """Return events as a JSON array, and words by a shorter way: each is its text alone."""
    if type(events) is not Words:
        return encode_event(events)
    if not stand_as_they_are(events, events.texts):
        return encode_event(events.texts)
    return b'["%b"]' % '","'.join(events.texts).encode() if events.texts else b"[]"


def decode_events(body: bytes) -> Sequence[Event]:
    """Return what was encoded."""
    return Words(_decode_texts(body)) if body.startswith(b'["') else _decode_events(body)


encode_event = encode_settlement = msgspec.json.Encoder().encode
_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode
decode_settlement = msgspec.json.Decoder(AnySettlement).decode
