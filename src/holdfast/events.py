"""The events of a run, and its five possible settlements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import msgspec

from .ids import ModelName
from .questions import Answered as Answered
from .questions import ApprovalDecided as ApprovalDecided
from .questions import ApprovalRequested as ApprovalRequested
from .questions import FormField as FormField
from .questions import FormOption as FormOption
from .questions import InputDecided as InputDecided
from .questions import InputRequested as InputRequested
from .questions import OutcomeDecided as OutcomeDecided
from .questions import OutcomeRequested as OutcomeRequested
from .questions import Question as Question
from .silence import ModelAsked

StoppedBy = Literal["user", "disconnect", "replaced", "budget", "shutdown", "revoked"]

LEFT_TO_OTHERS = "another node goes on with it"
"""The message of the cancel of a source if another node continues its run: the upstream must not be stopped."""

Outcome = Literal["completed", "truncated", "stopped", "failed", "interrupted"]
"""The name of how a run ended."""

UsageSource = Literal["provider", "estimated"]

CallKind = Literal["function", "custom", "function_call"]
"""The kind of a tool call: a function, a custom tool (which takes any text), or a function of OpenAI's older API."""


class Usage(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="usage"):
    """The tokens that a run has used. `source`: counted by the provider, or estimated by Holdfast."""

    input_tokens: int = 0
    output_tokens: int = 0
    source: UsageSource = "provider"
    cached_tokens: int = 0
    """Input tokens that the provider read from its prompt cache."""
    reasoning_tokens: int = 0
    """Output tokens that the provider counted as reasoning."""
    cache_write_tokens: int = 0
    """Input tokens that the provider wrote to its prompt cache."""
    cost: float | None = None
    """Cost by the prices at the end of the run; None if the model has no price, or the run has not ended."""

    @property
    def is_whole(self) -> bool:
        """Whether the provider has counted the output too. Some count the input when an answer begins."""
        return self.source == "provider" and self.output_tokens > 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


NOT_AGAIN = "upstream_error"
"""The type of an error after which the same request must not be sent again by itself: a model may have worked on it.

Coding agents send a request again at the type `server_error`, whatever the status and the headers say.
"""
_AGAIN = frozenset({"server_error", "rate_limit_error"})
_MAY_PASS = frozenset({429, 503, 529})


class ErrorInfo(msgspec.Struct, frozen=True):
    """Why a run failed, as it is stored and shown. `code` never changes once published."""

    code: str
    message: str
    type: str = "server_error"
    param: str | None = None
    status: int = 500
    retry_after: float | None = None

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed a little later, and has reached no model so far."""
        return self.status in _MAY_PASS and self.type != NOT_AGAIN

    def final(self) -> ErrorInfo:
        """Return the error with a type at which no client repeats its request. A mistake of the request stays one."""
        return msgspec.structs.replace(self, type=NOT_AGAIN) if self.type in _AGAIN else self


class Receipt(msgspec.Struct, frozen=True):
    """The times of a stop, in Unix seconds: requested, upstream closed, run settled."""

    stop_requested_at: float
    upstream_closed_at: float | None
    settled_at: float
    refused: tuple[str, ...] = ()
    """Descriptions of work that did not end at the stop: a process that had to be killed, a thread that still runs."""


LegHow = Literal["prefill", "turn", "anew"]
"""How a further leg goes on: it continues the message, continues in a turn after it, or answers from the beginning."""


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """One of the calls of models that have written a response together."""

    model: ModelName
    at: int = 0
    """The number of characters of the visible text before it."""
    how: LegHow | None = None
    """How it continues the leg before; None for the first leg."""
    reason: str | None = None
    """The code of the error that has ended the leg before; None for the first leg."""
    usage: Usage = Usage(source="estimated")


class Settlement(msgspec.Struct, frozen=True, kw_only=True, tag_field="outcome"):
    """How a run ended: exactly one of the five classes below, each with only the fields that are true of it.

    `text` is all of the visible text. `outcome` names the class, by which a type checker narrows it.
    """

    outcome: ClassVar[Outcome]
    text: str = ""
    usage: Usage = Usage(source="estimated")
    finish_reason: str | None = None
    finish_reasons: tuple[str, ...] = ()
    """One reason for each choice, if the request asked for several."""
    answered_by: ModelName | None = None
    """The model that answered, if it was not the requested one."""
    stop_sequence: str | None = None
    """The stop sequence that ended the response, if the upstream named it."""
    legs: tuple[Leg, ...] = ()
    """The calls that have written the response, if there was more than one."""


class Completed(Settlement, frozen=True, kw_only=True, tag="completed"):
    """The source ended, with a reason."""

    outcome: ClassVar[Literal["completed"]] = "completed"


class Truncated(Settlement, frozen=True, kw_only=True, tag="truncated"):
    """The response was cut off by a limit or a filter."""

    outcome: ClassVar[Literal["truncated"]] = "truncated"


class Stopped(Settlement, frozen=True, kw_only=True, tag="stopped"):
    """The run was stopped; `by` is the reason."""

    outcome: ClassVar[Literal["stopped"]] = "stopped"

    by: StoppedBy
    receipt: Receipt | None = None


class Failed(Settlement, frozen=True, kw_only=True, tag="failed"):
    """The source raised an error, or the upstream broke, sent something invalid, or fell silent."""

    outcome: ClassVar[Literal["failed"]] = "failed"

    error: ErrorInfo


class Interrupted(Settlement, frozen=True, kw_only=True, tag="interrupted"):
    """The server died during the run, and the run could not be continued."""

    outcome: ClassVar[Literal["interrupted"]] = "interrupted"

    error: ErrorInfo = ErrorInfo(
        code="server_died",
        message="The server stopped unexpectedly during this run. All text that was shown is saved.",
        type=NOT_AGAIN,
        status=502,
    )


AnySettlement: TypeAlias = Completed | Truncated | Stopped | Failed | Interrupted


class RunStarted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="run.started"):
    """The first event of every run."""

    model: str = ""
    message_id: str | None = None


class Text(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="text.delta"):
    """Visible text. `choice` is the number of the response, if the request asked for several.

    `refusal` is true if the text is the model's reason for not answering, and the provider marks it as such. `earlier`
    is true for the text with which a response begins that goes on with another one: no model has written it here.
    """

    text: str
    choice: int = 0
    logprobs: Any = None
    refusal: bool = False
    earlier: bool = False


class Reasoning(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="reasoning.delta"):
    """The model's reasoning before its response. It is never part of the visible text."""

    text: str
    choice: int = 0
    earlier: bool = False


class Picture(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="picture"):
    """A picture of the response: a `data:` URL, unless the provider has sent an address."""

    url: str
    choice: int = 0


class ToolDelta(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.delta"):
    """A piece of a tool call while the model is still writing it."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    choice: int = 0
    kind: CallKind = "function"


class ToolCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.call"):
    """A whole tool call. `arguments` is the JSON text that the model wrote, or any text for a custom tool.

    An agent runs its `own` tools itself: the client must not answer such a call.
    """

    id: str
    name: str
    arguments: str
    choice: int = 0
    own: bool = False
    kind: CallKind = "function"


class OpenCall:
    """A tool call while it is written: the only type that joins pieces, for upstreams and for wires."""

    def __init__(self, id: str = "", name: str = "", kind: CallKind = "function", place: int = 0) -> None:
        self.id = id
        self.name = name
        self.kind = kind
        self.place = place
        self._pieces: list[str] = []

    @property
    def is_new(self) -> bool:
        """Whether no piece has come yet."""
        return not self._pieces

    @property
    def arguments(self) -> str:
        """What is written of the arguments."""
        return "".join(self._pieces)

    def add(self, arguments: str, name: str = "", id: str = "") -> None:
        """Add a piece. The first id stays, and a name may come in pieces too."""
        self.id = self.id or id
        self.name += name
        self._pieces.append(arguments)

    def whole(self, choice: int = 0) -> ToolCall:
        """Return the call so far."""
        return ToolCall(self.id, self.name, self.arguments, choice, kind=self.kind)


class ToolProgress(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.progress"):
    """Progress of a running tool: its last line, the share that is done, and its output since the last report."""

    id: str
    message: str = ""
    fraction: float | None = None
    output: str = ""


class ToolResult(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool.result"):
    """The output of a tool, and the seconds it took. `cut` is true if the output was too long to keep whole."""

    id: str
    output: str
    is_error: bool = False
    seconds: float | None = None
    cut: bool = False
    content: tuple[dict[str, Any], ...] | msgspec.UnsetType = msgspec.UNSET
    """Content other than text, such as pictures, in MCP's format. It is not sent to the model."""
    waited: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds until a person allowed or denied the call, if approval was needed."""


Replay = Literal["safe", "keyed", "never"]
"""Whether a tool may be called again if nobody knows whether the first call has run: a call of it changes nothing; its
effect id keeps the effect from happening twice; or only after a person says so."""


class ToolStarted(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool.started"):
    """A tool is about to run. It is saved before that: a call without this event has certainly not run.

    `effect_id` stays the same if the call is made again. `at` is the time in Unix seconds.
    """

    id: str
    effect_id: str
    at: float
    replay: Replay = "never"


class StepStarted(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="step.started"):
    """An agent calls its model for the nth time in this run."""

    step: int


class StepFinished(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="step.finished"):
    """The model has answered and every tool that it called has ended. A continued run repeats nothing before this."""

    step: int
    seconds: float


class Steered(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="run.steered"):
    """A person has added a message to the run. The model gets it with its next step."""

    id: str
    text: str


class Notice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="notice"):
    """Something the reader should know that is not part of the response: a retry, a fallback model.

    `model`, if set, is the model that answers from here on, in place of the requested one.
    """

    code: str
    message: str
    model: ModelName = ModelName("")


class LegStarted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="leg.started"):
    """Another call of a model goes on with the response from here: the call before has broken off.

    `at` is the number of characters of the visible text before it, `reason` the code of the error that has ended the
    leg before (or `forked`: a person had another answer begin there), and `before` the model of that leg. `usage` is
    what all legs before it have used.
    """

    leg: int
    before: ModelName
    model: ModelName
    how: LegHow
    reason: str
    at: int
    usage: Usage


class ProviderData(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="provider.data"):
    """Part of a response that only one dialect has: a citation, a signature, a block of a provider's own tool.

    Clients of that dialect get `data` unchanged. All other APIs leave it out.
    """

    dialect: Literal["anthropic", "openai"]
    data: dict[str, Any]
    choice: int = 0


class Snapshot(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="snapshot"):
    """Everything visible up to a seq. A reader gets it in place of events that were trimmed."""

    text: str
    reasoning: str = ""


class Settled(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="run.settled"):
    """The last event of every run."""

    settlement: AnySettlement


Event: TypeAlias = (
    RunStarted
    | Text
    | Reasoning
    | Picture
    | ToolDelta
    | ToolCall
    | ToolStarted
    | ToolProgress
    | ToolResult
    | ApprovalRequested
    | ApprovalDecided
    | OutcomeRequested
    | OutcomeDecided
    | InputRequested
    | InputDecided
    | StepStarted
    | StepFinished
    | Steered
    | Usage
    | Notice
    | LegStarted
    | ProviderData
    | Snapshot
    | Settled
)
"""One numbered fact in a run's log."""

SPOKEN = frozenset({Text, Reasoning, Picture, ToolDelta, ToolCall, ProviderData})
"""Events that are part of an answer. The first of them means that the model has begun to answer."""

ANSWERS = SPOKEN - {Reasoning}
"""Events that answer. An answer without any of them is none: reasoning alone tells a reader nothing."""


class Finish(msgspec.Struct, frozen=True, gc=False):
    """How a source ended, as the source reports it. It is not logged: it becomes part of the settlement."""

    reason: str
    choice: int = 0
    error: ErrorInfo | None = None
    stop_sequence: str | None = None


FINISH_REASONS: dict[str, tuple[Literal["completed", "truncated", "failed"], str]] = {
    "stop": ("completed", "stop"),
    "end_turn": ("completed", "stop"),
    "stop_sequence": ("completed", "stop"),
    "tool_calls": ("completed", "tool_calls"),
    "tool_use": ("completed", "tool_calls"),
    "function_call": ("completed", "function_call"),
    "length": ("truncated", "length"),
    "max_tokens": ("truncated", "length"),
    "max_steps": ("truncated", "length"),
    "model_context_window_exceeded": ("truncated", "length"),
    "pause_turn": ("truncated", "length"),  # Anthropic's own tools took too many steps: the answer is incomplete
    "content_filter": ("truncated", "content_filter"),
    "safety": ("truncated", "content_filter"),
    "refusal": ("truncated", "content_filter"),
    "max_output_tokens": ("truncated", "length"),
    "content_filtered": ("truncated", "content_filter"),  # Bedrock's, and the next three
    "guardrail_intervened": ("truncated", "content_filter"),
    "malformed_model_output": ("failed", "error"),
    "malformed_tool_use": ("failed", "error"),
    # Gemini's
    "STOP": ("completed", "stop"),
    "MAX_TOKENS": ("truncated", "length"),
    "TOO_MANY_TOOL_CALLS": ("truncated", "length"),
    "SAFETY": ("truncated", "content_filter"),
    "RECITATION": ("truncated", "content_filter"),
    "LANGUAGE": ("truncated", "content_filter"),
    "BLOCKLIST": ("truncated", "content_filter"),
    "PROHIBITED_CONTENT": ("truncated", "content_filter"),
    "SPII": ("truncated", "content_filter"),
    "IMAGE_SAFETY": ("truncated", "content_filter"),
    "IMAGE_PROHIBITED_CONTENT": ("truncated", "content_filter"),
    "IMAGE_RECITATION": ("truncated", "content_filter"),
    "MALFORMED_FUNCTION_CALL": ("failed", "error"),
    "UNEXPECTED_TOOL_CALL": ("failed", "error"),
    "MISSING_THOUGHT_SIGNATURE": ("failed", "error"),
    "MALFORMED_RESPONSE": ("failed", "error"),
    "NO_IMAGE": ("failed", "error"),
    "IMAGE_OTHER": ("failed", "error"),
    "OTHER": ("failed", "error"),
    "FINISH_REASON_UNSPECIFIED": ("failed", "error"),
    "error": ("failed", "error"),
    "failed": ("failed", "error"),
    "abort": ("failed", "error"),
    "insufficient_system_resource": ("failed", "error"),
}
"""Finish reasons of upstreams, with OpenAI's name. One that is not here counts as complete: `stop` in OpenAI's API."""

TRUNCATED = frozenset(word for word, (outcome, _) in FINISH_REASONS.items() if outcome == "truncated")
"""Reasons of a `Finish` for an answer that was cut off: its last part may be incomplete."""

FAILED = frozenset(word for word, (outcome, _) in FINISH_REASONS.items() if outcome == "failed")
"""Reasons of a `Finish` for a source that failed."""


def openai_reason(reason: str, otherwise: str = "stop") -> str:
    """Return OpenAI's name for a finish reason."""
    return FINISH_REASONS[reason][1] if reason in FINISH_REASONS else otherwise


class Thought(msgspec.Struct, frozen=True):
    """Reasoning that the provider has signed or encrypted. It must be sent back unchanged with the tool results.

    It is for the agent only, and is not logged: people see `Reasoning`.
    """

    block: dict[str, Any]


class AnswerBegins(msgspec.Struct, frozen=True, gc=False):
    """A source emits this when a model's answer begins, to say how it is read. It is not logged.

    With `think` a leading `<think>…</think>` is reasoning, which is also the default for sources that emit no such
    event. Without `think` such tags are text: the source means them literally, or separates reasoning itself.

    With `is_owed` a run that ends with neither text nor a tool call has failed (`no_answer`).
    """

    think: bool = True
    is_owed: bool = False


Yielded: TypeAlias = Event | Finish | Thought | AnswerBegins | ModelAsked | str


SourceIterator: TypeAlias = AsyncIterator[Yielded | Sequence[Yielded]]
"""An async generator of events, plain strings (they become `Text`), or several at once if they arrived together."""


class Outlet(Protocol):
    """Receives the events of a push source."""

    def emit(self, events: Sequence[Yielded]) -> bool:
        """Add events that arrived together. False means backpressure: `await room()` before the next call.

        No events are a sign of life: the source is not silent.
        """
        ...

    async def room(self) -> None:
        """Wait until the store, or the client of an attached run, has caught up."""
        ...


async def put(out: Outlet, events: Sequence[Yielded]) -> None:
    """Emit events, and wait for room if the outlet is full."""
    if not out.emit(events):
        await out.room()


PushSource: TypeAlias = Callable[[Outlet], Awaitable[None]]
"""A source that emits events in the call that receives them, so that no task has to wake up for each token."""

Source: TypeAlias = SourceIterator | PushSource
"""Any source that a run accepts."""


async def push_all(items: SourceIterator, out: Outlet) -> None:
    """Emit all that an iterator yields, at the pace of the outlet."""
    async for item in items:
        if not out.emit(item if isinstance(item, (list, tuple)) else (item,)):
            await out.room()


encode_event = encode_settlement = msgspec.json.Encoder().encode
decode_settlement = msgspec.json.Decoder(AnySettlement).decode
