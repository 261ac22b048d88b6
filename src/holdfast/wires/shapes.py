"""The JSON objects of the native API, as types.

The functions of `wires.native` return them, so that a type checker compares both. The types of the browser UI are
written from them, and from those of comparisons, by `scripts/web_types.py`.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, Required, TypeAlias, TypedDict

from ..asks import OnBreak
from ..events import CallKind, LegHow, Outcome, StoppedBy, UsageSource

OutcomeJson = Outcome
UsageSourceJson = UsageSource


class ErrorInfoJson(TypedDict):
    """Why a request or a run failed."""

    message: str
    """What happened, for people. It may change."""
    type: str
    """The kind of error, as OpenAI's API has it."""
    code: str
    """The code. It never changes."""
    param: str | None
    """The field of the request that is wrong."""
    help: str | None
    """The path, on this server, of a page with the cause and what to do."""


class UsageJson(TypedDict):
    """The tokens that a run has used."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    source: UsageSourceJson
    cached_tokens: NotRequired[int]
    cache_write_tokens: NotRequired[int]
    reasoning_tokens: NotRequired[int]


class ReceiptJson(TypedDict):
    """When a stop was requested, and when it was done."""

    stop_requested_at: str
    upstream_closed_at: str | None
    settled_at: str
    refused: NotRequired[list[str]]
    """Descriptions of what did not end when the run was stopped."""


class LegJson(TypedDict):
    """One of the calls of models that have written an answer together."""

    model: str
    at: int
    """The number of characters of the visible text before it."""
    how: LegHow | None
    """How it goes on with the answer; null for the first one."""
    reason: str | None
    """The code of the error that has ended the call before; null for the first one."""
    usage: UsageJson


class SettlementJson(TypedDict):
    """How a run ended."""

    outcome: OutcomeJson
    by: StoppedBy | None
    """Who or what stopped the run, if it was stopped."""
    finish_reason: str | None
    """The reason that the upstream gave."""
    partial: bool
    """Whether there is text, and it is not a complete answer."""
    text: str
    """All of the visible text."""
    error: ErrorInfoJson | None
    """Why the run failed or was interrupted."""
    usage: UsageJson
    receipt: ReceiptJson | None
    """The times of a stop."""
    answered_by: str | None
    """The model that answered, if it was not the requested one."""
    legs: list[LegJson]
    """The calls that have written the answer, if there was more than one."""


class WaitsForJson(TypedDict):
    """What a run waits for: that a local model has read its prompt, for the first token, or for more."""

    model: str
    what: Literal["prompt", "first_token", "more"]
    since: str


class RunJson(TypedDict):
    """A run, while it runs and after."""

    id: str
    session_id: str | None
    comparison_id: str | None
    """The comparison of a pane, or of a synthesis."""
    message_id: str | None
    parent_id: str | None
    model: str
    kind: str
    lifetime: Literal["detached", "attached"]
    status: Literal["queued", "running", "settled"]
    seq: int
    text: str
    created_at: str
    started_at: str | None
    settled_at: str | None
    settlement: SettlementJson | None
    cost: float | None
    needs_approval: bool
    waits_for: WaitsForJson | None
    """Null if it waits for no model, or another node works on it."""


class ListedRunJson(RunJson):
    """A run in a list: with the beginnings of its text and of what was asked, and the title of its chat."""

    question: str
    session_title: str | None


class ImageUrlJson(TypedDict):
    """The address of a picture."""

    url: str


class FileJson(TypedDict, total=False):
    """A file. `file_data` is a reference, `holdfast-file:` and a hash, once the server keeps it."""

    filename: str
    file_data: str
    read_as: str


class PartJson(TypedDict, total=False):
    """One part of a message's content. `type` decides which of the other fields there are."""

    type: Required[str]
    text: str
    image_url: ImageUrlJson
    file: FileJson


ContentJson: TypeAlias = str | list[PartJson]


class MessageCallJson(TypedDict):
    """A tool call for the client to answer."""

    id: str
    name: str
    arguments: str
    kind: NotRequired[CallKind]


class StepCallJson(TypedDict):
    """A tool call of an agent, with its result."""

    id: str
    name: str
    arguments: str
    output: str | None
    is_error: bool
    seconds: float | None
    decision: Literal["allow", "deny"] | None
    edited: str | None
    """The arguments with which it ran, if a person has changed them."""
    unfinished: bool


class StepJson(TypedDict):
    """One step of an agent: its text, its tool calls, and the messages that a person sent after them."""

    text: str
    tool_calls: list[StepCallJson]
    inputs: list[str]


class FiguresJson(TypedDict):
    """Tokens, times and cost of an answer, as the server measured them."""

    input_tokens: int
    output_tokens: int
    usage_source: UsageSourceJson
    ttft_ms: float | None
    duration_ms: float | None
    tokens_per_second: float | None
    cost: float | None
    thought_ms: float | None


class MessageJson(TypedDict):
    """A message of a session. `siblings` is present only if the whole session was requested."""

    id: str
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: ContentJson | None
    run_id: str | None
    model: str | None
    partial: bool
    outcome: OutcomeJson | None
    reasoning: str | None
    parent_id: str | None
    created_at: str
    siblings: NotRequired[list[str]]
    tool_calls: NotRequired[list[MessageCallJson]]
    tool_call_id: NotRequired[str]
    steps: NotRequired[list[StepJson]]
    figures: NotRequired[FiguresJson]
    legs: NotRequired[list[LegJson]]
    author: NotRequired[str]
    automatic: NotRequired[bool]
    compacts: NotRequired[bool]
    edited: NotRequired[bool]


class SessionHeadJson(TypedDict):
    """The fields of a session that a list has too."""

    id: str
    title: str
    model: str | None
    pinned: bool
    folder: str
    """Empty if it is in none."""
    tags: list[str]
    archived: bool
    head_id: str | None
    created_at: str
    updated_at: str


class SessionJson(SessionHeadJson):
    """A session without its messages."""

    system: str | None
    params: dict[str, Any]
    preset: str | None
    """The name of the preset that it was set up with."""
    on_break: OnBreak | None
    """What is done if a response breaks off; null for what the settings say."""


class ExcerptJson(TypedDict):
    """A piece of the sentence that a search has found."""

    text: str
    match: bool


class SearchHitJson(TypedDict):
    """The message that a search has found, and the position of the first word of the sentence in its text."""

    message_id: str
    excerpt: list[ExcerptJson]
    offset: int


class ListedSessionJson(SessionHeadJson):
    """A session in a list. `hit` is set only in the results of a search, and null if only the title matched."""

    active_run: str | None
    needs_approval: bool
    unread: OutcomeJson | None
    """How the last response ended, if the caller has not seen that on any device."""
    hit: SearchHitJson | None


class QueuedJson(TypedDict):
    """A message that waits for its turn."""

    n: int
    run_id: str
    input: ContentJson | None
    model: str
    created_at: str


class SharedJson(TypedDict):
    """How a session of another person is shared with the caller. `owner` is the person's name."""

    owner: str
    may: Literal["read", "write"]


class OpenSessionJson(SessionJson):
    """A session with its messages. `feed` is the cursor of the last feed entry that it includes.

    `shared` is null for the caller's own sessions.
    """

    messages: list[MessageJson]
    active_run: RunJson | None
    queued: list[QueuedJson]
    feed: str
    shared: SharedJson | None


# A session as a link shows it.


class SharedRunJson(TypedDict):
    """The run that writes the next message."""

    message_id: str | None
    model: str
    started_at: str | None


class SharedSessionJson(TypedDict):
    """A session as a link shows it. `cursor` is the position of the last event that it includes."""

    title: str
    owner: str | None
    system: str | None
    messages: list[MessageJson]
    active_run: SharedRunJson | None
    follows: bool
    expires_at: str | None
    cursor: str


class SharedSettlementJson(TypedDict):
    """How a run ended."""

    outcome: OutcomeJson
    partial: bool
    text: str


class SharedSettledJson(TypedDict):
    """The end of a run, among the events of a link."""

    seq: int
    type: Literal["run.settled"]
    settlement: SharedSettlementJson


class ShareJson(TypedDict):
    """A share of a session: a link, or a group that may read or write it."""

    id: str
    session_id: str
    title: str
    group: str | None
    group_name: str | None
    may: Literal["read", "write"]
    follows: bool
    message_id: str | None
    include: list[Literal["tools", "reasoning", "system", "names"]]
    sign_in: bool
    created_at: str
    expires_at: str | None


class NewLinkJson(ShareJson):
    """A share that was made. A link's token is shown only here."""

    token: str | None


class GroupNameJson(TypedDict):
    """A group that the caller can share with."""

    id: str
    name: str


class SharedListJson(SessionHeadJson):
    """A session of another person in the list of what is shared with the caller."""

    shared: SharedJson


# Events of a run whose JSON is not that of their struct.


class UsageEventJson(UsageJson):
    """The tokens that a run has used."""

    type: Literal["usage"]


class SettledEventJson(TypedDict):
    """The last event of every run."""

    type: Literal["run.settled"]
    settlement: SettlementJson


# Entries of a session's feed.


class MessageAddedJson(TypedDict):
    """A message entered the session."""

    n: int
    type: Literal["message.added"]
    message: MessageJson


class MessageChangedJson(TypedDict):
    """A message was continued."""

    n: int
    type: Literal["message.changed"]
    message: MessageJson


class RunQueuedJson(TypedDict):
    """A run waits for its turn, or its input has changed."""

    n: int
    type: Literal["run.queued", "queue.changed"]
    run_id: str
    queue_number: int
    input: list[MessageJson]


class RunBeganJson(TypedDict):
    """A run started. Its own events follow."""

    n: int
    type: Literal["run.started"]
    run_id: str
    message_id: str | None
    parent_id: str | None
    model: str


class RunEndedJson(TypedDict):
    """A run ended. There is no `settlement` if the run was deleted meanwhile."""

    n: int
    type: Literal["run.settled"]
    run_id: str
    message_id: str | None
    outcome: OutcomeJson
    settlement: NotRequired[SettlementJson]


class SessionChangedJson(TypedDict):
    """Fields of the session that have changed."""

    n: int
    type: Literal["session.changed"]
    title: NotRequired[str]
    pinned: NotRequired[bool]
    model: NotRequired[str | None]
    system: NotRequired[str | None]
    params: NotRequired[dict[str, Any]]
    preset: NotRequired[str]
    on_break: NotRequired[OnBreak | None]
    titled: NotRequired[str]
    head_id: NotRequired[str]


FeedEntryJson: TypeAlias = (
    MessageAddedJson | MessageChangedJson | RunQueuedJson | RunBeganJson | RunEndedJson | SessionChangedJson
)


class SessionDeletedJson(TypedDict):
    """A session was deleted, or does not exist."""

    type: Literal["session.deleted"]
    session_id: str


# Changes of an owner's list of sessions.


class SessionListedJson(TypedDict):
    """A session of the list has changed: this is what the list shows of it now."""

    type: Literal["session.listed"]
    session: ListedSessionJson


class SessionsChangedJson(TypedDict):
    """More has changed than the server remembers: the list has to be loaded again."""

    type: Literal["sessions.changed"]
