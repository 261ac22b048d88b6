"""OpenAI's Responses as a function of the log: any log, however it is cut up, gives one stream, and a sound one."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from holdfast.asks import ResponseAsk
from holdfast.events import (
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Notice,
    Reasoning,
    RunStarted,
    Settled,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolResult,
    Truncated,
    Usage,
)
from holdfast.wires.openai import responses as openai_responses
from holdfast.wires.openai.responses import Response, ResponseFrames
from tests.requirements import requirement

RUN = "run_00d1w9mkhn0hjk59zss7jm4nwcd3t6kvr8x0"
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
said = st.one_of(
    st.builds(Text, texts),
    st.builds(Text, texts, st.just(0), st.just({"content": [{"token": "a", "logprob": -0.1}]})),
    st.builds(Text, texts, st.just(1)),
    st.builds(Reasoning, texts),
    st.builds(ToolDelta, st.integers(0, 2), st.just(""), st.just(""), texts),
    st.builds(Notice, st.just("retry"), texts),
    st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
    st.builds(ToolResult, st.just("call_0"), texts),
)
settlements = st.sampled_from(
    [
        Completed(finish_reason="stop"),
        Completed(finish_reason="tool_calls", answered_by="other/m"),
        Truncated(finish_reason="length"),
        Truncated(finish_reason="safety"),
        Stopped(by="user"),
        Failed(error=ErrorInfo("upstream_broke", "It broke.")),
        Interrupted(),
    ]
)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A log as engines write it: a call is begun with its id, and whole calls come at the end."""
    events: list[Event] = [RunStarted("up/m", "msg_1")]
    begun: dict[int, str] = {}
    for event in draw(st.lists(said, max_size=25)):
        if isinstance(event, ToolDelta) and event.index not in begun:
            begun[event.index] = f"call_{event.index}"
            event = ToolDelta(event.index, begun[event.index], "add", event.arguments)
        events.append(event)
    settled = draw(settlements)
    if isinstance(settled, Completed) and draw(st.booleans()):
        events += [ToolCall(id, "add", "") for id in begun.values()]
    return [*events, Settled(settled)]


def rendering() -> ResponseFrames:
    return ResponseFrames(Response(RUN, "up/m", 1.5, ResponseAsk()))


def parsed(frames: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(frame.partition(b"data: ")[2]) for frame in frames]


@requirement("resp.resume")
@settings(max_examples=200, deadline=None)
@given(logs(), st.data())
def test_a_log_gives_the_same_frames_however_it_arrives(log, data):
    """One event at a time or all at once: so the rest after any cut is the rest of the first rendering."""
    whole = rendering().frames(log)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=5)))
    pieces = [log[start:end] for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    again = rendering()

    assert whole == [frame for piece in pieces for frame in again.frames(piece)]
    assert all(frame.startswith((b"event: response.", b"event: error\n")) for frame in whole)
    assert all(frame.endswith(b"}\n\n") for frame in whole)
    assert all(frame.count(b"\n") == 3 for frame in whole)


@requirement("resp.events")
@settings(max_examples=200, deadline=None)
@given(logs())
def test_every_stream_is_one_that_clients_can_follow(log):
    """Numbers without gaps; an item begins before anything is said of it, and nothing is said of it after its end."""
    events = parsed(rendering().frames(log))
    open_items: dict[int, str] = {}
    begun: list[int] = []
    for event in events[2 : -2 if events[-1]["type"] == "response.failed" else -1]:
        place = event["output_index"]
        if event["type"] == "response.output_item.added":
            assert place == len(begun)
            begun.append(place)
            open_items[place] = event["item"]["id"]
        else:
            assert open_items[place] == event.get("item_id", event.get("item", {}).get("id"))
        if event["type"] == "response.output_item.done":
            del open_items[place]
    last = events[-1]["response"]

    assert ["response.created", "response.in_progress"] == [event["type"] for event in events[:2]]
    assert list(range(len(events))) == [event["sequence_number"] for event in events]
    assert [last["output"][place]["type"] for place in open_items] == ["function_call"] * len(open_items)
    assert not open_items or last["status"] != "completed"
    assert "in_progress" not in {item["status"] for item in last["output"]}


@requirement("resp.events")
@settings(max_examples=200, deadline=None)
@given(logs())
def test_the_deltas_are_what_the_object_has(log):
    """Put together from the stream or fetched: the same items, and the same as a response that only gathers."""
    events = parsed(rendering().frames(log))
    gathered = Response(RUN, "up/m", 1.5, ResponseAsk())
    gathered.add(log)
    last = events[-1]["response"]
    built: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            built[event["output_index"]] = built.get(event["output_index"], "") + event["delta"]

    assert json.loads(json.dumps(gathered.body(log[-1].settlement))) == last
    for place, item in enumerate(last["output"]):
        parts = [*item.get("content", ()), *item.get("summary", ())]
        held = parts[0]["text"] if parts else item.get("arguments", "")
        assert built.get(place, "") == held
    assert "".join(event.text for event in log if isinstance(event, Text) and event.choice == 0) == "".join(
        item["content"][0]["text"] for item in last["output"] if item["type"] == "message"
    )


WORDS = [
    (Completed(finish_reason="stop"), "completed", None),
    (Truncated(finish_reason="length"), "incomplete", {"reason": "max_output_tokens"}),
    (Truncated(finish_reason="refusal"), "incomplete", {"reason": "content_filter"}),
    (Stopped(by="disconnect"), "cancelled", None),
    (Failed(error=ErrorInfo("upstream_broke", "It broke.")), "failed", None),
    (Interrupted(), "failed", None),
]


@requirement("truth.completed")
@pytest.mark.parametrize(("settled", "word", "details"), WORDS)
def test_only_a_completed_run_is_a_completed_response(settled, word, details):
    """One table, for the object and for the last event."""
    (*_, last) = parsed(rendering().frames([RunStarted(), Text("x"), Settled(settled)]))

    assert (f"response.{word}", word, details) == (
        last["type"],
        last["response"]["status"],
        last["response"]["incomplete_details"],
    )
    assert (word == "failed") is (last["response"]["error"] is not None)


def test_a_run_that_was_dropped_from_a_queue_has_a_beginning_too():
    """Its log is a settlement and nothing else, and clients begin with `response.created`."""
    events = parsed(rendering().frames([Settled(Stopped(by="user"))]))

    assert ["response.created", "response.in_progress", "response.cancelled"] == [event["type"] for event in events]


def test_ids_lead_from_a_response_to_its_run_and_from_an_item_to_both():
    """A client has only these."""
    response = openai_responses.response_id(RUN)
    (_, _, added, *_) = parsed(rendering().frames([RunStarted(), Text("x")]))

    assert RUN == openai_responses.run_id_of_response(response)
    assert (response, RUN) == openai_responses.run_of_item(added["item"]["id"])
    assert "chatcmpl-x" == openai_responses.run_id_of_response("chatcmpl-x")
