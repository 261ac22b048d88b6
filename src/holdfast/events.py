"""What can happen in a run, and the five ways it can end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import msgspec

StoppedBy = Literal["user", "disconnect", "replaced", "budget", "shutdown", "revoked"]

Outcome = Literal["completed", "truncated", "stopped", "failed", "interrupted"]
"""How a run ended, as a word."""

CallKind = Literal["function", "custom", "function_call"]
"""What a model called: a function, a custom tool, which takes any text, or a function in OpenAI's older way."""


class Usage(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="usage"):
    """The tokens a run has used. `source` says whether the provider counted them or we estimated."""

    input_tokens: int = 0
    output_tokens: int = 0
    source: Literal["provider", "estimated"] = "provider"
    cached_tokens: int = 0
    """Of the input, what the provider read from its prompt cache."""
    reasoning_tokens: int = 0
    """Of the output, what the provider counted as reasoning."""
    cache_write_tokens: int = 0
    """Of the input, what the provider wrote to its prompt cache."""
    cost: float | None = None
    """Cost at the prices of the time when the run settled; None if the model has no price, or the run goes on."""

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
    """How a run ended: exactly one of the five classes below. `text` is all of the visible text.

    `outcome` is the class as a word. A type checker narrows by it: with `"failed"` there is an `error`.
    """

    outcome: ClassVar[Outcome]
    text: str = ""
    usage: Usage = Usage(source="estimated")
    finish_reason: str | None = None
    finish_reasons: tuple[str, ...] = ()
    """One for each choice, where a request asked for several."""
    answered_by: str | None = None
    """The model that answered, where it was not the one that was asked."""
    stop_sequence: str | None = None
    """The stop sequence that ended the answer, if the upstream told which one."""


class Completed(Settlement, frozen=True, kw_only=True, tag="completed"):
    """The source ended, and said why."""

    outcome: ClassVar[Literal["completed"]] = "completed"


class Truncated(Settlement, frozen=True, kw_only=True, tag="truncated"):
    """It hit a limit or a filter."""

    outcome: ClassVar[Literal["truncated"]] = "truncated"


class Stopped(Settlement, frozen=True, kw_only=True, tag="stopped"):
    """Someone stopped it."""

    outcome: ClassVar[Literal["stopped"]] = "stopped"

    by: StoppedBy
    receipt: Receipt | None = None


class Failed(Settlement, frozen=True, kw_only=True, tag="failed"):
    """The source raised, or the upstream broke, lied or fell silent."""

    outcome: ClassVar[Literal["failed"]] = "failed"

    error: ErrorInfo


class Interrupted(Settlement, frozen=True, kw_only=True, tag="interrupted"):
    """Its server died, and nobody could continue it."""

    outcome: ClassVar[Literal["interrupted"]] = "interrupted"

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
    """Visible text. `choice` counts the answers where a request asked for several.

    `refusal` is true if the model gives the reason why it does not answer, and its provider keeps that apart.
    """

    text: str
    choice: int = 0
    logprobs: Any = None
    refusal: bool = False


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
    kind: CallKind = "function"


class ToolCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.call"):
    """A whole tool call; `arguments` is the JSON text that the model wrote, or any text if it is a custom tool's.

    An agent calls its `own` tools itself: such a call is not for the client to answer.
    """

    id: str
    name: str
    arguments: str
    choice: int = 0
    own: bool = False
    kind: CallKind = "function"


class ToolProgress(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="tool.progress"):
    """How far a long tool is: its last line, the share that is done, and its output since the report before."""

    id: str
    message: str = ""
    fraction: float | None = None
    output: str = ""


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
    preview: str = ""
    """What the call would change, as a unified diff of whole files; empty if the tool has none."""


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


class ProviderData(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="provider.data"):
    """Part of an answer that exists in one dialect alone: a citation, a signature, a block of a provider's own tool.

    Clients of that dialect get `data` as it came. On all other wires it is left out.
    """

    dialect: Literal["anthropic", "openai"]
    data: dict[str, Any]
    choice: int = 0


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
    | ProviderData
    | Snapshot
    | Settled
)
"""One numbered fact in a run's log."""

SPOKEN = frozenset({Text, Reasoning, ToolDelta, ToolCall, ProviderData})
"""Events that are part of an answer: with the first of them a model has begun to answer."""


class Finish(msgspec.Struct, frozen=True, gc=False):
    """A source says how it ended. It is judged, not logged: the settlement is its place."""

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
    "pause_turn": ("truncated", "length"),  # Anthropic's own tools took too many steps: there is more to say
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
"""Words of upstreams for the end of an answer: what it amounts to, and OpenAI's word for it.

This is the one table of them. A word that is not in it ends a whole answer, and is `stop` in OpenAI's words.
"""

TRUNCATED = frozenset(word for word, (outcome, _) in FINISH_REASONS.items() if outcome == "truncated")
"""Reasons of a `Finish` by which an answer was cut off: the last thing in it may be incomplete."""

FAILED = frozenset(word for word, (outcome, _) in FINISH_REASONS.items() if outcome == "failed")
"""Reasons of a `Finish` by which a source says that it failed."""


def openai_reason(word: str, otherwise: str = "stop") -> str:
    """Return OpenAI's word for the end of an answer."""
    return FINISH_REASONS[word][1] if word in FINISH_REASONS else otherwise


class Thought(msgspec.Struct, frozen=True):
    """What a model has thought, sealed by its provider, which wants it back as it was with the results of its calls.

    It is for the agent that asked. It is not logged: `Reasoning` is what people are shown.
    """

    block: dict[str, Any]


class AnswerBegins(msgspec.Struct, frozen=True, gc=False):
    """A source says that a model's answer begins, and how its thinking is told. It is not logged.

    With `think` a leading `<think>…</think>` is reasoning, as it is for every source that says nothing of it. Without,
    such tags are text: the source means them, or has told the two apart itself.
    """

    think: bool = True


Yielded: TypeAlias = Event | Finish | Thought | AnswerBegins | str


SourceIterator: TypeAlias = AsyncIterator[Yielded | Sequence[Yielded]]
"""An async generator of events, plain strings (they become `Text`), or several at once if they arrived together."""


class Outlet(Protocol):
    """Where a push source puts its events."""

    def emit(self, events: Sequence[Yielded]) -> bool:
        """Take events that arrived together. False: enough for now, `await room()` before the next."""
        ...

    async def room(self) -> None:
        """Wait until the store, or the client of an attached run, has caught up."""
        ...


async def put(out: Outlet, events: Sequence[Yielded]) -> None:
    """Emit events, and wait for room if that was enough for now."""
    if not out.emit(events):
        await out.room()


PushSource: TypeAlias = Callable[[Outlet], Awaitable[None]]
"""A source that emits its events in the call that brings them, so that no task wakes for a token."""

Source: TypeAlias = SourceIterator | PushSource
"""What a run consumes."""


async def push_all(items: SourceIterator, out: Outlet) -> None:
    """Emit all that an iterator yields, at the pace of the outlet."""
    async for item in items:
        if not out.emit(item if isinstance(item, (list, tuple)) else (item,)):
            await out.room()


def from_iterator(items: SourceIterator) -> PushSource:
    """Make a push source of an async iterator. The task that iterates a generator also closes it."""

    async def push(out: Outlet) -> None:
        try:
            await push_all(items, out)
        finally:
            if (close := getattr(items, "aclose", None)) is not None:
                await close()

    return push


encode_event = encode_settlement = msgspec.json.Encoder().encode
decode_settlement = msgspec.json.Decoder(AnySettlement).decode
