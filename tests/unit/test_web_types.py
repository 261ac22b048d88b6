"""The types of the browser UI are those of what the server sends."""

import json
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from holdfast import events
from holdfast.wires import native, shapes
from scripts import web_types
from tests.requirements import requirement

SAMPLES: list[events.Event] = [
    events.RunStarted("m", "msg_1"),
    events.Text("a", choice=1, logprobs=[], refusal=True),
    events.Reasoning("a", choice=1),
    events.Picture("data:image/png;base64,iVBORw0KGgo=", 1),
    events.ToolDelta(0, "call", "tool", "{}", 1, "custom"),
    events.ToolCall("call", "tool", "{}", 1, True, "custom"),
    events.ToolProgress("call", "half", 0.5),
    events.ToolResult("call", "out", True, 1.5, True, ({"type": "image"},), 2.5),
    events.ApprovalRequested("ap", "tool", "{}", "call", 1.0, "a diff", "git status"),
    events.ApprovalDecided("ap", "allow", "no", "{}"),
    events.ToolStarted("call", "eff", 1.0, "keyed"),
    events.OutcomeRequested("out", "tool", "{}", "call", "eff", 1.0, "half", "no answer", 2.0),
    events.OutcomeDecided("out", "ran", "no"),
    events.InputRequested(
        "in",
        "tool",
        "call",
        "Which?",
        (events.FormField("a", "array", "A", "b", True, (events.FormOption("x", "X"),), ["x"], "date", 1.0, 2.0),),
        2.0,
    ),
    events.InputDecided("in", "accept", {"a": ["x"]}, "no"),
    events.StepStarted(1),
    events.StepFinished(1, 0.5),
    events.Steered("st", "left"),
    events.Usage(1, 2),
    events.Notice("retry", "again", "other"),
    events.LegStarted(2, "up/m", "other/m", "prefill", "upstream_broke", 7, events.Usage(1, 2)),
    events.ProviderData("anthropic", {"type": "signature_delta", "signature": "s"}, 1),
    events.Snapshot("a", "b"),
    events.Settled(events.Failed(error=events.ErrorInfo("source_failed", "no"))),
    events.Settled(
        events.Stopped(by="user", receipt=events.Receipt(1.0, 2.0, 3.0, ("a process",)), text="a", answered_by="other")
    ),
]
BARE: list[events.Event] = [
    events.RunStarted(),
    events.Text("a"),
    events.ToolDelta(0),
    events.ToolProgress("call"),
    events.ToolResult("call", "out"),
    events.Notice("retry", "again"),
    events.ProviderData("openai", {"annotations": []}),
    events.Settled(events.Completed()),
]


def sent(event: events.Event) -> dict[str, Any]:
    """An event's own fields, as a reader gets them."""
    _, rest = native.body(event)
    fields: dict[str, Any] = json.loads(b"{" + rest)
    return fields


@requirement("ui.build")
def test_the_types_of_the_page_are_current():
    """They are written by a script: the page is checked against what the server sends today."""
    assert web_types.generated() == web_types.FILE.read_text(encoding="utf-8"), "run: python scripts/web_types.py"


def test_there_is_a_sample_of_every_event():
    """A new event cannot be left out below."""
    assert {*get_args(events.Event)} == {type(event) for event in SAMPLES}


@pytest.mark.parametrize("event", SAMPLES + BARE, ids=lambda event: str(event.__struct_config__.tag))
def test_an_event_is_sent_with_the_fields_of_its_type(event):
    """The page narrows by `type` and then reads fields: each must be there, or be marked as optional."""
    info = msgspec.inspect.type_info(web_types.SENT_AS.get(type(event), type(event)))
    fields = {field.encode_name: web_types.is_always_sent(info, field) for field in info.fields}  # type: ignore[attr-defined]
    said = sent(event)

    assert {*said} <= {*fields, "type"}
    assert {name for name, is_always in fields.items() if is_always} <= {*said}


def test_every_field_of_a_settlement_has_its_declared_type():
    """The dictionary is made by hand: a type checker sees its keys, this sees its values as JSON."""
    for event in SAMPLES + BARE:
        if isinstance(event, events.Settled):
            said = sent(event)

            assert said == msgspec.convert(said, shapes.SettledEventJson)
            assert {*said["settlement"]} == {*get_type_hints(shapes.SettlementJson)}
