"""What holds for every wire: a rendering is a function of the log alone, cut and resumed anywhere, and tells the truth.

The logs are random and seeded, with every event and every settlement in them.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import ag_ui.core
import pytest
from pydantic import TypeAdapter

from holdfast.events import (
    AnySettlement,
    ApprovalDecided,
    ApprovalRequested,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Notice,
    Picture,
    Reasoning,
    RunStarted,
    Settled,
    Steered,
    Stopped,
    Text,
    ToolCall,
    ToolDelta,
    ToolProgress,
    ToolResult,
    Truncated,
    Usage,
)
from holdfast.log.segment import Segment, segment_of
from holdfast.server.kit.run_responses import Rendering, Skipping
from holdfast.wires import ai_sdk
from holdfast.wires.llama_cpp import FromByte
from holdfast.wires.openai import chat as openai_chat
from holdfast.wires.tool_calls import json_arguments
from tests.requirements import requirement
from tests.support.long import count
from tests.wires import CREATED, MODEL, RUN, WIRES, Wire, parsed

CUTS = count(2_000, 10_000)
CUTS_OF_ONE_LOG = 10
BY_NAME = {wire.name: wire for wire in WIRES}
AG_UI_EVENT: TypeAdapter[ag_ui.core.Event] = TypeAdapter(ag_ui.core.Event)
WORDS = [
    "wave",
    " sea",
    "é",
    "🌊",
    "\n",
    "\n\ndata: x\n\n",
    "\u2028",
    "\u0085",
    "\r",
    '"',
    "\\",
    "<think>",
    ": ",
    "\x00",
]
ERROR = ErrorInfo("upstream_broke", "It broke.\n\nevent: done", status=502)
ENDINGS: list[Callable[[str], AnySettlement]] = [
    lambda text: Completed(text=text, finish_reason="stop", usage=Usage(3, 5)),
    lambda text: Completed(text=text, finish_reason="tool_calls", usage=Usage(3, 5)),
    lambda text: Completed(text=text, finish_reason="eos_token", answered_by="up/other"),
    lambda text: Truncated(text=text, finish_reason="length"),
    lambda text: Truncated(text=text, finish_reason="content_filter"),
    lambda text: Stopped(text=text, by="user"),
    lambda text: Stopped(text=text, by="disconnect"),
    lambda text: Failed(text=text, error=ERROR),
    lambda text: Interrupted(text=text),
]


CALLS: list[Callable[[str], ToolCall]] = [
    lambda id: ToolCall(id, "add", '{"a":[1,{"b":"}"}]}'),
    lambda id: ToolCall(id, "add", '{"a":[1,{"b":"}"}]}', kind="function_call"),
    lambda id: ToolCall(id, "run", 'print("1" ]}', kind="custom"),
]


# Random logs.


def random_log(rng: random.Random, ending: Callable[[str], AnySettlement] | None = None) -> list[Event]:
    """A log as sources write them: what is said, thought and called, in any order, and one ending."""
    events: list[Event] = [RunStarted(MODEL, rng.choice([None, "msg_1"]))]
    for _ in range(rng.randrange(14)):
        events += rng.choice([said, thought, called, answered, aside])(rng)
    text = "".join(event.text for event in events if isinstance(event, Text) and event.choice == 0)
    events.append(Settled((ending or rng.choice(ENDINGS))(text)))
    return events


def phrase(rng: random.Random) -> str:
    return "".join(rng.choices(WORDS, k=rng.randrange(1, 4)))


def said(rng: random.Random) -> list[Event]:
    refusal = rng.random() < 0.2
    return [Text(phrase(rng), rng.choice([0, 0, 0, 0, 1]), refusal=refusal) for _ in range(rng.randrange(1, 6))]


def thought(rng: random.Random) -> list[Event]:
    return [Reasoning(phrase(rng)) for _ in range(rng.randrange(1, 4))]


def called(rng: random.Random) -> list[Event]:
    """One or two calls, whole or in pieces, one after the other or mixed with the other and with text."""
    calls = [rng.choice(CALLS)(f"call_{rng.randrange(10**9)}") for _ in range(rng.randrange(1, 3))]
    pieces: list[Event] = []
    for index, call in enumerate(calls):
        cut = rng.randrange(len(call.arguments) + 1)
        begin = ToolDelta(index, call.id, call.name, call.arguments[:cut], kind=call.kind)
        end = ToolDelta(index, arguments=call.arguments[cut:], kind=call.kind)
        pieces += [begin, end] if rng.random() < 0.8 else []
    if rng.random() < 0.4 and len(pieces) == 4:
        pieces = [pieces[0], pieces[2], *rng.sample([pieces[1], pieces[3]], 2)]
    if rng.random() < 0.2:
        pieces.insert(rng.randrange(len(pieces) + 1), Text(phrase(rng)))
    if pieces and rng.random() < 0.3:
        return pieces[: rng.randrange(1, len(pieces) + 1)]  # the model was cut off
    return [*pieces, *calls]


def answered(rng: random.Random) -> list[Event]:
    call = ToolCall(f"call_{rng.randrange(10**9)}", "add", "{}")
    return [call, ToolResult(call.id, phrase(rng), is_error=rng.random() < 0.3)]


def aside(rng: random.Random) -> list[Event]:
    return [
        rng.choice(
            [
                Notice("retry", phrase(rng)),
                Picture("data:image/png;base64,iVBORw0KGgo=", rng.choice([0, 0, 1])),
                Picture("https://pictures.test/1.png"),
                Usage(1, 2),
                ToolProgress("call_1", phrase(rng), 0.5),
                ApprovalRequested("apr_1", "add", "{}"),
                ApprovalDecided("apr_1", "allow"),
            ]
        )
    ]


def batches(rng: random.Random, events: Sequence[Event]) -> Iterator[Segment]:
    """The same events as a reader may get them: a few at a time."""
    place = 0
    while place < len(events):
        size = rng.randrange(1, 8)
        yield segment_of(events[place : place + size])
        place += size


def arguments_in(log: Sequence[Event]) -> dict[str, str]:
    """The arguments of each call as JSON, as far as they were written: those of a custom tool once they are whole."""
    found: dict[str, str] = {}
    by_index: dict[int, str] = {}
    for event in log:
        if isinstance(event, ToolDelta) and event.kind != "custom":
            id = by_index[event.index] = event.id or by_index[event.index]
            found[id] = found.get(id, "") + event.arguments
        elif isinstance(event, ToolCall):
            found[event.id] = json_arguments(event)
    return {id: arguments for id, arguments in found.items() if arguments}


def rendered(rendering: Rendering, events: Sequence[Event]) -> list[bytes]:
    return rendering.frames(events)


# Cutting and coming back.


@requirement("wire.deterministic")
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_any_prefix_and_what_is_resumed_after_it_are_the_whole(wire: Wire):
    """A connection breaks at any byte; the client has the frames that were whole, and asks for what follows them."""
    rng = random.Random(wire.name)
    for _ in range(CUTS // len(WIRES) // CUTS_OF_ONE_LOG + 1):
        log = random_log(rng)
        frames = rendered(wire.render(), log)
        whole = b"".join(frames)
        for _ in range(CUTS_OF_ONE_LOG):
            seen = whole[: rng.randrange(len(whole) + 1)]
            kept = seen[: seen.rfind(b"\n\n") + 2] if b"\n\n" in seen else b""
            skipping = Skipping(wire.render(), len(parsed(kept)))

            rest = b"".join(skipping.render(0, batch) for batch in batches(rng, log))

            assert whole == kept + rest


@requirement("wire.deterministic")
def test_byte_offsets_hold_in_llama_cpps_dialect():
    """There a client comes back with the number of bytes that it has seen, in the middle of a frame too."""
    rng = random.Random("bytes")
    for _ in range(CUTS // len(WIRES) // CUTS_OF_ONE_LOG + 1):
        log = random_log(rng)
        whole = b"".join(openai_chat.Chunks(RUN, MODEL, CREATED).frames(log))
        for _ in range(CUTS_OF_ONE_LOG):
            cut = rng.randrange(len(whole) + 1)
            from_there = FromByte(openai_chat.Chunks(RUN, MODEL, CREATED).render, cut)

            rest = b"".join(from_there.render(0, batch) for batch in batches(rng, log))

            assert whole == whole[:cut] + rest


# Truth.


@requirement("wire.truth", "wire.watch-any")
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: f"{ending('').outcome} {ending('').finish_reason}")
def test_every_wire_has_every_word_and_only_completed_looks_like_success(ending):
    """Whatever a run said before it ended: all text, all reasoning, and an ending that nobody can take for another."""
    rng = random.Random(0)
    for _ in range(100):
        log = random_log(rng, ending)
        settled = log[-1].settlement
        reasoning = "".join(event.text for event in log if isinstance(event, Reasoning))

        told = {wire.name: wire.read(parsed(b"".join(rendered(wire.render(), log)))) for wire in WIRES}

        assert dict.fromkeys(told, (settled.text, reasoning)) == {
            name: (reading.text, reading.reasoning) for name, reading in told.items()
        }
        assert dict.fromkeys(told, isinstance(settled, Completed)) == {
            name: reading.success for name, reading in told.items()
        }
        written = {name: reading.calls for name, reading in told.items() if reading.calls is not None}
        assert dict.fromkeys(written, arguments_in(log)) == written
        said = {reading.outcome for reading in told.values()} - {None}
        assert said <= {settled.outcome}
        assert isinstance(settled, Completed) or all(reading.outcome for reading in told.values())


FAILURES: list[AnySettlement] = [Failed(text="wave", error=ERROR), Interrupted(text="wave")]


@requirement("truth.clients-see-failure")
@pytest.mark.parametrize("settled", FAILURES, ids=lambda settled: settled.outcome)
def test_a_failed_stream_has_the_frame_on_which_each_client_raises(settled):
    """OpenAI's SDKs raise on any frame with `error`, and what is built on them looks at nothing else.

    The AI SDK takes a chunk with `choices` for an ordinary one, so it needs a frame without. Codex waits for
    `response.failed`, so that stays the last event.
    """
    log: list[Event] = [RunStarted(MODEL), Text("wave"), Settled(settled)]
    chat, responses = (
        [frame for frame in parsed(b"".join(rendered(BY_NAME[name].render(), log))) if frame.data != "[DONE]"]
        for name in ("chat completions", "responses")
    )
    chunks, events = [frame.json() for frame in chat], [frame.json() for frame in responses]
    (with_choices, alone) = [chunk for chunk in chunks if chunk.get("error")]
    (error,) = [event for event in events if event.get("error")]

    assert with_choices["choices"][0]["finish_reason"] == "error"
    assert {"error", "holdfast"} == set(alone)
    assert (settled.error.code, alone["error"], alone) == (alone["error"]["code"], with_choices["error"], chunks[-1])
    assert ["error", "response.failed"] == [event["type"] for event in events[-2:]]
    assert "error" == responses[-2].event
    assert (settled.error.code, settled.error.message) == (error["code"], error["message"])
    assert error["error"] == events[-1]["response"]["error"] == alone["error"]


@requirement("truth.clients-see-failure")
@pytest.mark.parametrize("settled", [Completed(text="wave"), Truncated(text="wave"), Stopped(text="wave", by="user")])
def test_what_did_not_fail_raises_in_no_client(settled):
    """A stop and a limit are told by their own words."""
    log: list[Event] = [RunStarted(MODEL), Text("wave"), Settled(settled)]
    for name in ("chat completions", "responses"):
        data = [frame.data for frame in parsed(b"".join(rendered(BY_NAME[name].render(), log)))]

        assert not any(json.loads(frame).get("error") for frame in data if frame != "[DONE]")


@requirement("wire.ag-ui")
def test_every_event_of_ag_ui_is_one_that_its_own_types_know():
    """Whatever happens in a run. The types refuse fields that they do not know."""
    rng = random.Random(1)
    for _ in range(100):
        frames = parsed(b"".join(rendered(BY_NAME["AG-UI"].render(), random_log(rng))))

        for frame in frames:
            AG_UI_EVENT.validate_python(frame.json())


@requirement("wire.ag-ui", "busy.steer")
def test_a_message_put_into_an_agent_is_seen_by_who_watches():
    """An answer that suddenly goes elsewhere is not to be understood without it."""
    put_in = Steered("msg_2", "Use metres.")
    log: list[Event] = [
        RunStarted(MODEL),
        Text("5 feet. "),
        put_in,
        Text("1.5 m."),
        Settled(Completed(text="5 feet. 1.5 m.")),
    ]
    events = [frame.json() for frame in parsed(b"".join(rendered(BY_NAME["AG-UI"].render(), log)))]
    [seen] = [event for event in events if event["type"] == "CUSTOM"]
    AG_UI_EVENT.validate_python(seen)
    parts = b"".join(ai_sdk.PartStream("run_1").frames(log))

    assert ("holdfast.run.steered", "Use metres.") == (seen["name"], seen["value"]["text"])
    assert b'{"type":"data-steered","id":"msg_2","data":{"text":"Use metres."}}' in parts


@requirement("wire.anthropic", "wire.ag-ui")
@pytest.mark.parametrize("is_answered", [True, False])
def test_only_a_call_that_nobody_has_answered_is_left_to_the_client(is_answered):
    """A tool that was run here, by an agent, must not be run again by whoever watches."""
    result = [ToolResult("call_1", "3")] if is_answered else []
    ending = Completed(text="", finish_reason="stop" if is_answered else "tool_calls")
    log: list[Event] = [RunStarted(MODEL), ToolCall("call_1", "add", "{}"), *result, Settled(ending)]
    frames = {
        name: parsed(b"".join(rendered(BY_NAME[name].render(), log))) for name in ("AG-UI", "Anthropic's messages")
    }
    pending = frames["AG-UI"][-1].json()["outcome"].get("pendingToolCallIds", [])
    stop_reason = frames["Anthropic's messages"][-2].json()["delta"]["stop_reason"]

    assert (([], "end_turn") if is_answered else (["call_1"], "tool_use")) == (pending, stop_reason)


# The table in the documents.

PAGE = Path(__file__).parents[2] / "docs" / "wires" / "README.md"
COLUMNS = ["completed", "truncated", "stopped", "failed, interrupted"]


def table() -> dict[str, dict[str, str]]:
    """The cells under the second heading, by wire and outcome."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8")
        .partition("## How each outcome looks")[2]
        .partition("\n## ")[0]
        .splitlines()
        if line.startswith("|")
    ]
    assert ["API", *COLUMNS] == rows[0]
    return {
        re.sub(r"\[(.*?)\]\(.*?\)", r"\1", name): dict(zip(COLUMNS, cells, strict=True)) for name, *cells in rows[2:]
    }


def words_of(wire: Wire, column: str) -> set[str]:
    """All words that a wire uses for the endings of a column, with text before them and without a tool call."""
    endings = [make("wave") for make in ENDINGS if not make("").answered_by]
    found: set[str] = set()
    for ending in endings:
        if ending.outcome in column.split(", "):
            is_call = ending.finish_reason == "tool_calls"
            before: list[Event] = [ToolCall("call_1", "add", "{}")] if is_call else []
            log: list[Event] = [RunStarted(MODEL), Text("wave"), *before, Settled(ending)]
            found |= wire.read(parsed(b"".join(rendered(wire.render(), log)))).words
    return found


@requirement("wire.truth")
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("column", COLUMNS)
def test_the_table_of_settlements_says_what_the_wires_say(wire: Wire, column: str):
    """The words in code type are exactly those of the ending as it is rendered, no more and no fewer."""
    cell = table()[wire.name][column]

    assert words_of(wire, column) == set(re.findall(r"`([^`]+)`", cell))


@requirement("wire.truth")
def test_the_table_of_settlements_has_every_wire():
    """A wire that is not in it may say anything."""
    assert {wire.name for wire in WIRES} | {"llama.cpp's resumable dialect"} == set(table())
