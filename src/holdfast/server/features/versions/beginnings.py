"""What a fork takes over of an earlier answer: its log up to an event, or a text that a person has chosen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from ....asks import Beginning
from ....errors import BadRequest, CannotFork, ResumeGap
from ....events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    LegStarted,
    Picture,
    Reasoning,
    Settled,
    Steered,
    StepFinished,
    StepStarted,
    Text,
    ToolCall,
    ToolDelta,
    ToolResult,
    Usage,
)
from ....history import Message, text_of
from ....ids import ModelName
from ....log.steps import Steps
from ....runs.run import Run
from ...config.settings import AGENT

OF_STEPS = (
    StepStarted,
    StepFinished,
    Text,
    Reasoning,
    ToolCall,
    ToolResult,
    ApprovalRequested,
    ApprovalDecided,
    Steered,
)
"""The events that are the steps of an agent."""


async def beginning_from(run: Run, after: int | None, text: str | None) -> Beginning:
    """Return what a run's answer has said up to an event, with another text if one is given."""
    events = await _log(run, after)
    is_agent = run.record.kind == AGENT
    if is_agent and text is not None:
        raise BadRequest("The text of an agent's steps cannot be changed in a fork: leave `text` out.", param="text")
    kept = _of_agent(events) if is_agent else _of_chat(events)
    before = Beginning(events=kept, model=run.record.model)
    model = next((event.model for event in reversed(kept) if isinstance(event, LegStarted)), run.record.model)
    if text is not None and text != before.text:
        kept = (*(event for event in kept if isinstance(event, Reasoning)), Text(text, earlier=True))
        return Beginning(events=kept, model=model, run_id=run.id, after=after, edited=True)
    return Beginning(events=kept, model=model, run_id=run.id, after=after)


def beginning_with(message: Message, text: str | None) -> Beginning:
    """Return a message's text as the beginning of another answer, or the text that a person has made of it."""
    if message.role != "assistant":
        raise BadRequest("Only a response of a model can be forked.", param="message_id")
    if not isinstance(message.content, str):
        raise CannotFork("This response has pictures, which no other model can go on with. Fork the chat after it.")
    if message.steps or message.tool_calls:
        raise CannotFork("This response has tool calls. Fork its run after one of its steps.")
    kept = message.content if text is None else text
    thoughts = [Reasoning(message.reasoning, earlier=True)] if message.reasoning else []
    return Beginning(
        events=(*thoughts, Text(kept, earlier=True)),
        model=message.model or ModelName(""),
        run_id=message.run_id or "",
        edited=message.edited or kept != text_of(message.content),
    )


async def _log(run: Run, after: int | None) -> list[Event]:
    """Return the events of a run up to `after`, or all of them so far."""
    found: list[Event] = []
    try:
        while (after is None or len(found) < after) and (events := await run.log.batch(len(found))):
            found += events
    except ResumeGap:
        raise CannotFork(
            f"The log of run {run.id} is no longer kept. Fork its message instead, with the text that is to stay."
        ) from None
    if after is not None and after > len(found):
        raise BadRequest(f"Run {run.id} has only {len(found)} events.", param="after")
    return [event for event in found[:after] if not isinstance(event, Settled)]


def _of_chat(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the text and the reasoning of a model, and where another one went on."""
    kept: list[Event] = []
    for seq, event in enumerate(events, 1):
        if isinstance(event, (ToolDelta, ToolCall, Picture)):
            what = "is a picture" if isinstance(event, Picture) else "belongs to a tool call"
            raise CannotFork(
                f"Event {seq} {what}, behind which no model can go on. Fork after event {seq - 1}, or before it."
            )
        if isinstance(event, (Text, Reasoning)):
            if event.choice:
                raise CannotFork(
                    "A run with several choices has no single text with which another response could begin."
                )
            kept.append(event)
        elif isinstance(event, LegStarted):
            kept.append(msgspec.structs.replace(event, usage=Usage()))  # another run has paid for it
    return tuple(_joined(kept))


def _of_agent(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the finished steps of an agent with their results. Refuse a place within one."""
    boundary, is_open, steps = 0, False, Steps()
    for seq, event in enumerate(events, 1):
        steps.take_in(event)
        is_open = isinstance(event, StepStarted) or (is_open and not isinstance(event, StepFinished))
        boundary = seq if isinstance(event, StepFinished) else boundary
    if is_open:
        where = f"after event {boundary}, where the step before ended" if boundary else "before its first step, after 1"
        raise CannotFork(
            f"Event {len(events)} is within step {steps.number} of the agent, and its calls would be made again. "
            f"Fork {where}."
        )
    if steps.is_answered:
        raise CannotFork("The agent had ended its response there: send a new message, or fork after an earlier step.")
    return tuple(_joined([event for event in events if boundary and isinstance(event, OF_STEPS)]))


def _joined(events: Sequence[Event]) -> list[Event]:
    """Return events with neighbouring texts as one, marked as written earlier."""
    joined: list[Event] = []
    for kind, group in groupby(events, type):
        if kind in (Text, Reasoning):
            text = "".join(event.text for event in group if isinstance(event, (Text, Reasoning)))
            joined.append(Text(text, earlier=True) if kind is Text else Reasoning(text, earlier=True))
        else:
            joined += group
    return joined
