"""Wires are pure: the same log gives the same bytes, however it was read; whoever was cut off gets exactly the rest."""

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Completed, Failed, Stopped, Text, Truncated
from holdfast.events import (
    ApprovalDecided,
    ApprovalRequested,
    ErrorInfo,
    Event,
    Interrupted,
    Notice,
    OutcomeDecided,
    OutcomeRequested,
    Reasoning,
    RunStarted,
    Settled,
    Steered,
    ToolCall,
    ToolDelta,
    ToolProgress,
    ToolResult,
    Usage,
)
from holdfast.log.segment import Segment, segment_of
from holdfast.wires import ai_sdk, llama_cpp
from holdfast.wires.openai import chat as openai_chat
from tests.requirements import requirement

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(["🌊", "\n\n", "é"])
CALLS = st.sampled_from(["call_1", "call_2"])
EVENTS = st.one_of(
    TEXTS.map(Text),
    TEXTS.map(Reasoning),
    st.builds(ToolDelta, st.integers(0, 1), CALLS | st.just(""), st.sampled_from(["add", ""]), TEXTS),
    st.builds(ToolCall, CALLS, st.just("add"), st.sampled_from(['{"a":1}', "", "not json"])),
    st.builds(ToolResult, CALLS, TEXTS, st.booleans()),
    st.builds(ToolProgress, CALLS, TEXTS),
    st.builds(Notice, st.just("retry"), TEXTS),
    st.builds(ApprovalRequested, st.just("apr_1"), st.just("add"), st.just("{}")),
    st.builds(ApprovalDecided, st.just("apr_1"), st.sampled_from(["allow", "deny"]), st.sampled_from(["", "no"])),
    st.builds(Steered, st.just("msg_2"), TEXTS),
    st.just(Usage(1, 2)),
)
ERROR = ErrorInfo("upstream_broke", "It broke.")
ENDINGS = st.sampled_from(
    [
        Completed(finish_reason="stop"),
        Completed(finish_reason="tool_calls"),
        Truncated(finish_reason="length"),
        Truncated(finish_reason="content_filter"),
        Stopped(by="user"),
        Failed(error=ERROR),
        Interrupted(error=ERROR),
    ]
)
LOGS = st.builds(
    lambda events, end: [RunStarted("up/m", "msg_1"), *events, Settled(end)], st.lists(EVENTS, max_size=20), ENDINGS
)
WIRES: dict[str, Callable[[], Any]] = {
    "chunks": lambda: openai_chat.Chunks("run_1", "up/m", 1.0, include_usage=True),
    "ui": lambda: ai_sdk.PartStream("run_1"),
}


def in_batches(log: Sequence[Event], cuts: set[int]) -> list[Segment]:
    """A log as it may have been read: cut at some places."""
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < len(log)), len(log)]
    return [segment_of(log[a:b]) for a, b in itertools.pairwise(edges)]


def whole_of(wire: str, log: Sequence[Event]) -> list[bytes]:
    frames: list[bytes] = WIRES[wire]().frames(log)
    return frames


@pytest.mark.parametrize("wire", WIRES)
@requirement("llama.byte-exact", "ui.start-index", "sub.resume-exact")
@settings(max_examples=60, deadline=None)
@given(log=LOGS, cuts=st.sets(st.integers(1, 20)), data=st.data())
def test_a_prefix_and_the_rest_are_the_whole_wherever_it_was_cut(wire, log, cuts, data):
    """Any prefix of any log's bytes, read in any batches, and the rest from there."""
    whole = b"".join(whole_of(wire, log))
    offsets = data.draw(st.lists(st.integers(0, len(whole) + 1), min_size=20, max_size=20))

    for offset in offsets:
        rendering = WIRES[wire]()
        rest = llama_cpp.FromByte(lambda first, events, made=rendering: b"".join(made.frames(events)), offset)
        assert whole[offset:] == b"".join(rest.render(0, batch) for batch in in_batches(log, cuts))


@requirement("ui.shape")
@settings(max_examples=300, deadline=None)
@given(log=LOGS)
def test_the_parts_of_any_log_are_ones_that_the_sdks_client_can_take_in(log):
    """It throws at a delta without its start, at a result without its call; and it waits for what is never ended."""
    frames = whole_of("ui", log)
    parts = [json.loads(frame.removeprefix(b"data: ")) for frame in frames[:-1]]
    open_blocks: set[str] = set()
    calls: dict[str, str] = {}

    for part in parts:
        kind, _, step = part["type"].rpartition("-")
        if kind in ("text", "reasoning"):
            assert (part["id"] in open_blocks) is (step != "start")
            open_blocks ^= {part["id"]} if step != "delta" else set()
            assert len(open_blocks) <= 1
        elif part["type"] in ("tool-input-start", "tool-input-available"):
            calls[part["toolCallId"]] = part["type"]
        elif part["type"].startswith("tool-") and "toolCallId" in part and part["type"] != "tool-input-error":
            assert part["toolCallId"] in calls
    types = [part["type"] for part in parts]
    settled = log[-1].settlement

    assert set() == open_blocks
    assert ("start", "finish", b"data: [DONE]\n\n") == (types[0], types[-1], frames[-1])
    assert types.count("start-step") == types.count("finish-step") + isinstance(settled, (Stopped, Failed, Interrupted))
    assert (types.count("error"), types.count("abort")) == (
        isinstance(settled, (Failed, Interrupted)),
        isinstance(settled, Stopped),
    )
    assert isinstance(settled, Completed) is (parts[-1]["finishReason"] in ("stop", "tool-calls"))


def parts_of(*events: Event) -> list[dict[str, Any]]:
    """The parts between the start and the finish."""
    log = [RunStarted("up/m", "msg_1"), *events, Settled(Completed(finish_reason="stop"))]
    return [json.loads(frame.removeprefix(b"data: ")) for frame in whole_of("ui", log)[2:-3]]


@requirement("ui.shape")
def test_what_follows_the_results_of_tools_is_a_step_of_its_own():
    """The SDK asks of the last step whether all of its calls have results."""
    parts = parts_of(
        Text("Let me see."),
        ToolCall("call_1", "add", '{"a":1}'),
        ApprovalRequested("apr_1", "add", '{"a":1}'),
        ApprovalDecided("apr_1", "allow", "Go on."),
        ToolProgress("call_1", "half", 0.5),
        ToolResult("call_1", "3"),
        Text("It is 3."),
    )

    assert [
        {"type": "text-start", "id": "text-1"},
        {"type": "text-delta", "id": "text-1", "delta": "Let me see."},
        {"type": "text-end", "id": "text-1"},
        {"type": "tool-input-available", "toolCallId": "call_1", "toolName": "add", "input": {"a": 1}},
        {"type": "tool-approval-request", "approvalId": "apr_1", "toolCallId": "call_1"},
        {"type": "tool-approval-response", "approvalId": "apr_1", "approved": True, "reason": "Go on."},
        {
            "type": "data-tool-progress",
            "id": "call_1",
            "data": {"toolCallId": "call_1", "message": "half", "fraction": 0.5},
            "transient": True,
        },
        {"type": "tool-output-available", "toolCallId": "call_1", "output": "3"},
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "text-start", "id": "text-2"},
        {"type": "text-delta", "id": "text-2", "delta": "It is 3."},
        {"type": "text-end", "id": "text-2"},
    ] == parts


@requirement("ui.shape")
def test_a_call_that_was_only_told_in_pieces_is_whole_when_the_run_completed():
    """A source of one's own may say no more than that; the page would wait for the call's input for ever."""
    parts = parts_of(ToolDelta(0, "call_1", "add", '{"a":'), ToolDelta(0, "", "", "1}"), ToolDelta(1, "call_2", "now"))

    assert [
        {"type": "tool-input-available", "toolCallId": "call_1", "toolName": "add", "input": {"a": 1}},
        {"type": "tool-input-available", "toolCallId": "call_2", "toolName": "now", "input": {}},
    ] == parts[-2:]


@requirement("ui.shape")
def test_an_approval_is_asked_for_the_very_call_that_it_is_for():
    """Two calls of one tool may wait at once, and only one of them was meant."""
    calls = [ToolCall("call_1", "add", "{}"), ToolCall("call_2", "add", "{}")]
    parts = parts_of(*calls, ApprovalRequested("apr_1", "add", "{}", "call_1"), ApprovalRequested("apr_2", "add", "{}"))

    assert [("apr_1", "call_1"), ("apr_2", "call_2")] == [
        (part["approvalId"], part["toolCallId"]) for part in parts if part["type"] == "tool-approval-request"
    ]


@requirement("ui.shape", "crash.effects")
def test_every_question_to_a_person_is_a_part():
    """A client that shows nothing for it would wait for ever, and not know why."""
    asked = OutcomeRequested("out_1", "send", "{}", "call_1", "eff_1", 1.0)
    parts = parts_of(ToolCall("call_1", "send", "{}", own=True), asked, OutcomeDecided("out_1", "ran"))

    told = [(part["type"], part["id"]) for part in parts if part["type"].startswith("data-")]
    assert [("data-asked", "out_1"), ("data-answered", "out_1")] == told
    assert "send" == next(part["data"]["tool"] for part in parts if part["type"] == "data-asked")


@requirement("ui.shape")
def test_arguments_that_are_no_json_and_tools_that_fail_are_told_as_errors():
    """A page that is given them as input would run the tool with nonsense."""
    parts = parts_of(
        ToolCall("call_1", "add", "{a"), ToolCall("call_2", "add", ""), ToolResult("call_2", "No such file", True)
    )

    assert ["tool-input-error", "tool-input-available", "tool-output-error"] == [part["type"] for part in parts]
    assert ("{a", {}, "No such file") == (parts[0]["input"], parts[1]["input"], parts[2]["errorText"])


def test_every_choice_that_was_said_is_in_the_whole_answer():
    """However far apart their numbers are, and whether or not each of them said how it ended."""
    answer = openai_chat.ChatAnswer("run_1", "up/m", 0.0, choices=2)
    answer.add([Text("a"), Text("b", 1), Text("c", 2**40)])
    body = answer.body(Completed(text="a", finish_reason="stop", finish_reasons=("stop", "length")))

    told = [(choice["index"], choice["message"]["content"], choice["finish_reason"]) for choice in body["choices"]]
    assert [(0, "a", "stop"), (1, "b", "length"), (2**40, "c", "stop")] == told
