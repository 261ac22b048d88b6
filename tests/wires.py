"""Every wire as data: what renders a run, where a run is watched, and what its frames tell, brought to one form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.asks import ResponseAsk
from holdfast.events import Event
from holdfast.log.segment import segment_of
from holdfast.server.kit.run_responses import Rendering
from holdfast.wires import ag_ui, ai_sdk, native
from holdfast.wires.anthropic import messages as anthropic_messages
from holdfast.wires.openai import chat as openai_chat
from holdfast.wires.openai import responses as openai_responses
from tests.support.http import Frame, FrameParser

RUN, MODEL, CREATED = "run_0", "up/m", 1_700_000_000.0


@dataclass
class Reading:
    """What a client of a wire was told: all text, and in the wire's own words how it ended."""

    text: str
    reasoning: str
    outcome: str | None
    """As our own field says it; None where there is none."""
    success: bool
    """What a stranger's client takes it for, who knows nothing of ours."""
    words: set[str] = field(default_factory=set)
    """The words of the ending, as the table in docs/wires has them."""
    calls: dict[str, str] | None = None
    """The arguments of each tool call, as far as they were written; None where that is not read here."""


@dataclass(frozen=True)
class Wire:
    """One dialect."""

    name: str
    render: Callable[[], Rendering]
    watch: Callable[[str], str]
    read: Callable[[list[Frame]], Reading]


def parsed(data: bytes) -> list[Frame]:
    """Bytes as frames; whole ones only."""
    parser = FrameParser()
    frames = parser.feed(data)
    assert "" == parser.unfinished
    return frames


# Native.


class _Native:
    """Our own dialect numbers its frames, so that a reader resumes by the number: here it is made to count."""

    def __init__(self) -> None:
        self._seq = 0

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        render, first = native.frames(RUN), self._seq + 1
        self._seq += len(events)
        return [render(seq, segment_of([event])) for seq, event in enumerate(events, first)]


def _read_native(frames: list[Frame]) -> Reading:
    events = [(frame.event, frame.json()) for frame in frames]
    settlement = events[-1][1]["settlement"]
    extras = {name for name in ("by", "error") if settlement[name] is not None}
    return Reading(
        text="".join(event["text"] for kind, event in events if kind == "text.delta" and not event.get("choice")),
        reasoning="".join(
            event["text"] for kind, event in events if kind == "reasoning.delta" and not event.get("choice")
        ),
        outcome=settlement["outcome"],
        success=settlement["outcome"] == "completed",
        words={settlement["outcome"], *extras},
    )


# Chat completions.


def _read_chat(frames: list[Frame]) -> Reading:
    assert "[DONE]" == frames[-1].data or "error" in frames[-1].json()
    chunks = [frame.json() for frame in frames if frame.data != "[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ()) if choice["index"] == 0]
    last = next((chunk for chunk in chunks if "holdfast" in chunk), {})
    reason = next((choice["finish_reason"] for choice in choices if choice["finish_reason"]), None)
    return Reading(
        text="".join(choice["delta"].get("content") or choice["delta"].get("refusal") or "" for choice in choices),
        reasoning="".join(choice["delta"].get("reasoning") or "" for choice in choices),
        outcome=last["holdfast"]["outcome"] if last else None,
        success=reason in ("stop", "tool_calls", "function_call") and not any("error" in chunk for chunk in chunks),
        words={word for word in (reason, "holdfast" if last else None) if word}
        | {"error" for chunk in chunks if "error" in chunk},
    )


# Responses.


def _read_responses(frames: list[Frame]) -> Reading:
    events = [frame.json() for frame in frames]
    assert list(range(len(events))) == [event["sequence_number"] for event in events]
    last = events[-1]["response"]

    def deltas(*kinds: str) -> str:
        types = {f"response.{kind}.delta" for kind in kinds}
        return "".join(event["delta"] for event in events if event["type"] in types)

    extras = {name for name in ("incomplete_details", "error", "holdfast") if last.get(name)}
    return Reading(
        text=deltas("output_text", "refusal"),
        reasoning=deltas("reasoning_summary_text"),
        outcome=last["holdfast"]["outcome"] if "holdfast" in last else None,
        success=events[-1]["type"] == "response.completed",
        words={last["status"], *extras},
    )


# Anthropic's Messages API.


def _read_anthropic(frames: list[Frame]) -> Reading:
    """Also checks that blocks come one after the other, as its SDKs expect."""
    events = [frame.json() for frame in frames]
    opened, running = -1, False
    for event in events:
        if event["type"] == "content_block_start":
            assert (False, opened + 1) == (running, event["index"])
            opened, running = event["index"], True
        elif event["type"] in ("content_block_delta", "content_block_stop"):
            assert (True, opened) == (running, event["index"])
            running = event["type"] == "content_block_delta"
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    calls = {
        block["id"]: "".join(
            event["delta"]["partial_json"]
            for event in events
            if event["type"] == "content_block_delta" and event["index"] == index
        )
        for index, block in enumerate(blocks)
        if block["type"] == "tool_use"
    }
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    ends = [event for event in events if event["type"] == "message_delta"]
    told = (ends or events[-1:])[0]
    reason = ends[0]["delta"]["stop_reason"] if ends else None
    delivered = events[-1]["type"] == "message_stop"
    return Reading(
        text="".join(delta.get("text", "") for delta in deltas),
        reasoning="".join(delta.get("thinking", "") for delta in deltas),
        outcome=told["holdfast"]["outcome"] if "holdfast" in told else None,
        success=delivered and told.get("holdfast", {"outcome": "completed"})["outcome"] == "completed",
        words={word for word in (reason, "holdfast" if "holdfast" in told else None) if word}
        | ({"message_stop"} if delivered else {"error"})
        | ({"stopped"} if events[-1].get("error", {}).get("type") == "stopped" else set()),
        calls=calls,
    )


# AG-UI.


def _check_ag_ui(events: list[dict[str, Any]]) -> None:
    """What is begun is ended once, before the run finishes; nothing is said while the model thinks."""
    open: list[tuple[str, str]] = []
    for event in events:
        kind, _, step = event["type"].rpartition("_")
        id = event.get("toolCallId") or event.get("messageId", "")
        if step == "START":
            assert (kind, id) not in open
            open.append((kind, id))
        elif step == "END":
            open.remove((kind, id))
        elif step in ("CONTENT", "ARGS"):
            assert (kind, id) in open
            assert kind != "TEXT_MESSAGE" or not any(other.startswith("REASONING") for other, _ in open)
    half_written = [id for kind, id in open if kind == "TOOL_CALL"]
    assert len(half_written) == len(open)
    assert not half_written or events[-1]["type"] == "RUN_ERROR"


def _read_ag_ui(frames: list[Frame]) -> Reading:
    events = [frame.json() for frame in frames]
    _check_ag_ui(events)
    last = events[-1]
    calls = {event["toolCallId"]: "" for event in events if event["type"] == "TOOL_CALL_START"}
    for event in events:
        if event["type"] == "TOOL_CALL_ARGS":
            calls[event["toolCallId"]] += event["delta"]
    told = last.get("metadata", {}).get("holdfast", {})
    outcome = last.get("outcome", {}).get("type")
    return Reading(
        text="".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"),
        reasoning="".join(event["delta"] for event in events if event["type"] == "REASONING_MESSAGE_CONTENT"),
        outcome=told.get("outcome"),
        success=last["type"] == "RUN_FINISHED" and outcome == "success",
        words={last["type"], *filter(None, [outcome]), *(["metadata.holdfast"] if told else [])}
        | ({last["code"]} if told.get("outcome") == "truncated" else set()),
        calls=calls,
    )


# The AI SDK's UI message stream.


def _read_ai_sdk(frames: list[Frame]) -> Reading:
    assert "[DONE]" == frames[-1].data
    parts = [frame.json() for frame in frames[:-1]]
    kinds = {part["type"] for part in parts}
    last = parts[-1]
    return Reading(
        text="".join(part["delta"] for part in parts if part["type"] == "text-delta"),
        reasoning="".join(part["delta"] for part in parts if part["type"] == "reasoning-delta"),
        outcome=last["messageMetadata"]["holdfast"]["outcome"],
        success=not kinds & {"error", "abort"} and last["finishReason"] in ("stop", "tool-calls"),
        words={last["type"], last["finishReason"]} | (kinds & {"error", "abort"}),
    )


WIRES = [
    Wire("native", _Native, lambda run: f"/api/runs/{run}/events", _read_native),
    Wire(
        "chat completions",
        lambda: openai_chat.Chunks(RUN, MODEL, CREATED, include_usage=True),
        lambda run: f"/v1/chat/completions/{openai_chat.completion_id(run)}?stream=true",
        _read_chat,
    ),
    Wire(
        "responses",
        lambda: openai_responses.ResponseFrames(openai_responses.Response(RUN, MODEL, CREATED, ResponseAsk())),
        lambda run: f"/v1/responses/{openai_responses.response_id(run)}?stream=true",
        _read_responses,
    ),
    Wire(
        "Anthropic's messages",
        lambda: anthropic_messages.MessageEvents(RUN, MODEL),
        lambda run: f"/v1/messages/{anthropic_messages.message_id(run)}?stream=true",
        _read_anthropic,
    ),
    Wire(
        "AG-UI",
        lambda: ag_ui.AgUiEvents(RUN, MODEL, thread_id="t", state={"n": 1}, cancelled=True),
        lambda run: f"/ag-ui/{run}?protocolVersion=1.0",
        _read_ag_ui,
    ),
    Wire("the AI SDK", lambda: ai_sdk.PartStream(RUN), lambda run: f"/api/chat/{run}/stream", _read_ai_sdk),
]
