"""OpenAI's chat completions: chunks and the finished object, each a pure function of the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ..events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Reasoning,
    RunStarted,
    Settled,
    Settlement,
    Stopped,
    Text,
    ToolDelta,
    Usage,
    plain_texts,
    stand_as_they_are,
)
from ..history import outcome
from . import native, sse

_encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"
_WORDS = {
    "tool_calls": "tool_calls",
    "function_call": "function_call",
    "length": "length",
    "max_tokens": "length",
    "max_steps": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
}
"""Upstreams have words of their own for the end of an answer (eos_token, end_turn, ...): all others are `stop`."""


def completion_id(run_id: str) -> str:
    """Return the id under which OpenAI's clients know a run."""
    return "chatcmpl-" + run_id.removeprefix("run_")


def run_id(completion_id: str) -> str:
    """Return the run that a completion's id stands for."""
    return "run_" + completion_id.removeprefix("chatcmpl-")


def finish_reason(settled: Settlement, said: str | None = None) -> str:
    """Return how an ending is called here: the one table from a settlement to a finish reason.

    `said` is the word for one choice of several: each may have ended in another way.
    """
    if isinstance(settled, Stopped):
        return "cancelled"
    if isinstance(settled, (Failed, Interrupted)):
        return "error"
    return _WORDS.get(said or settled.finish_reason or "stop", "stop")


def verdict(settled: Settlement, run: str) -> dict[str, Any]:
    """Return the fields that an answer carries when its run did not complete, or another model answered; else none."""
    answered_by = {"answered_by": settled.answered_by} if settled.answered_by else {}
    if isinstance(settled, Completed):
        return {"holdfast": {"outcome": "completed", "run_id": run, **answered_by}} if answered_by else {}
    told: dict[str, Any] = {}
    code = outcome(settled)
    if isinstance(settled, (Failed, Interrupted)):
        told["error"] = native.error(settled.error)
        code = settled.error.code
    elif isinstance(settled, Stopped):
        code = f"stopped_by_{settled.by}"
    elif settled.finish_reason:
        code = settled.finish_reason
    return {**told, "holdfast": {"outcome": outcome(settled), "code": code, "run_id": run, **answered_by}}


def usage(used: Usage) -> dict[str, int]:
    """Return the tokens used, in OpenAI's words."""
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
    }


class Chunks:
    """Renders one run as chunks, in order from its first event: the same log always gives the same bytes."""

    def __init__(self, run: str, model: str, created: float, *, choices: int = 1, include_usage: bool = False) -> None:
        self._run = run
        self._choices = choices
        self._include_usage = include_usage
        self._has_output = False
        head = {
            "id": completion_id(run),
            "object": "chat.completion.chunk",
            "created": int(created),
            "model": model,
        }
        self._head = b"data: " + _encode(head)[:-1]
        self._text_head = self._head + b',"choices":[{"index":0,"delta":{"content":'
        self._text_tail = b'},"finish_reason":null}]}\n\n'
        self._between = self._text_tail + self._text_head
        self._between_texts = f'"{self._between.decode()}"'

    def render(self, first: int, events: Sequence[Event]) -> bytes:
        """Return the frames of the next events, by a shorter way where they are one or many and nothing but text."""
        if len(events) == 1 and type(said := events[0]) is Text and not said.choice and said.logprobs is None:
            self._has_output = True
            return self._text_head + _encode(said.text) + self._text_tail
        if not events or (texts := plain_texts(events)) is None:
            return b"".join(self.frames(events))
        self._has_output = True
        if stand_as_they_are(events, texts):
            return b'%b"%b"%b' % (self._text_head, self._between_texts.join(texts).encode(), self._text_tail)
        return self._text_head + self._between.join(map(_encode, texts)) + self._text_tail

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        head, tail = self._text_head, self._text_tail
        out: list[bytes] = []
        for event in events:
            if type(event) is Text and event.choice == 0 and event.logprobs is None:
                self._has_output = True
                out.append(b"%b%b%b" % (head, _encode(event.text), tail))
            else:
                out.extend(self._other(event))
        return out

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that says that the stream, not its run, ends here, and why."""
        return sse.data(_encode({"error": native.error(info)}))

    def _other(self, event: Event) -> list[bytes]:
        if isinstance(event, RunStarted):
            return [self._delta(choice, {"role": "assistant", "content": ""}) for choice in range(self._choices)]
        if isinstance(event, Settled):
            return self._ending(event.settlement)
        if isinstance(event, Text):
            self._has_output = True
            return [self._delta(event.choice, {"content": event.text}, logprobs=event.logprobs)]
        if isinstance(event, Reasoning):
            self._has_output = True
            # Clients read one name or the other.
            return [self._delta(event.choice, {"reasoning": event.text, "reasoning_content": event.text})]
        if isinstance(event, ToolDelta):
            self._has_output = True
            return [self._delta(event.choice, {"tool_calls": [_tool_delta(event)]})]
        return []

    def _ending(self, settled: AnySettlement) -> list[bytes]:
        told = verdict(settled, self._run)
        if isinstance(settled, (Failed, Interrupted)) and not self._has_output:
            return [sse.data(_encode(told))]
        reasons = settled.finish_reasons or (settled.finish_reason,) * self._choices
        ends = [
            self._delta(choice, {}, finish=finish_reason(settled, said), extra=told if choice == 0 else {})
            for choice, said in enumerate(reasons)
        ]
        if self._include_usage:
            ends.append(self._chunk({"choices": [], "usage": usage(settled.usage)}))
        return [*ends, DONE]

    def _delta(
        self,
        choice: int,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        logprobs: Any = None,
        extra: dict[str, Any] | None = None,
    ) -> bytes:
        part: dict[str, Any] = {"index": choice, "delta": delta, "finish_reason": finish}
        if logprobs is not None:
            part["logprobs"] = logprobs
        return self._chunk({"choices": [part], **(extra or {})})

    def _chunk(self, fields: dict[str, Any]) -> bytes:
        return self._head + b"," + _encode(fields)[1:] + b"\n\n"


def _tool_delta(event: ToolDelta) -> dict[str, Any]:
    delta: dict[str, Any] = {"index": event.index, "function": {"arguments": event.arguments}}
    if event.id:
        delta |= {"id": event.id, "type": "function"}
    if event.name:
        delta["function"]["name"] = event.name
    return delta


class Answer:
    """Gathers a run's events into the finished object."""

    def __init__(self, run: str, model: str, created: float, *, choices: int = 1) -> None:
        self._run = run
        self._head = {"id": completion_id(run), "object": "chat.completion", "created": int(created), "model": model}
        self._choices = {index: _Choice() for index in range(choices)}

    def add(self, events: Sequence[Event]) -> None:
        """Take in the next events."""
        for event in events:
            if isinstance(event, (Text, Reasoning, ToolDelta)):
                if event.choice not in self._choices:
                    self._choices[event.choice] = _Choice()
                self._choices[event.choice].add(event)

    def body(self, settled: AnySettlement | None) -> dict[str, Any]:
        """Return the object, as far as the run has come."""
        there = sorted(self._choices.items())
        reasons = settled.finish_reasons if settled else ()
        choices = [
            {
                "index": index,
                "message": choice.message(),
                "logprobs": choice.logprobs(),
                "finish_reason": finish_reason(settled, said) if settled else None,
            }
            for (index, choice), said in zip_longest(there, reasons[: len(there)])
        ]
        told = verdict(settled, self._run) if settled else {"holdfast": {"outcome": None, "run_id": self._run}}
        spent = {"usage": usage(settled.usage)} if settled else {}
        return {**self._head, "choices": choices, **spent, **told}


class _Choice:
    """One answer, while it is put together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._logprobs: list[Any] = []

    def add(self, event: Text | Reasoning | ToolDelta) -> None:
        if isinstance(event, Text):
            self._text.append(event.text)
            if event.logprobs is not None:
                self._logprobs.extend(event.logprobs.get("content") or ())
        elif isinstance(event, Reasoning):
            self._reasoning.append(event.text)
        else:
            call = self._calls.setdefault(event.index, {"id": "", "name": "", "arguments": ""})
            call["id"] = call["id"] or event.id
            call["name"] += event.name
            call["arguments"] += event.arguments

    def message(self) -> dict[str, Any]:
        text = "".join(self._text)
        said: dict[str, Any] = {"role": "assistant", "content": text or (None if self._calls else "")}
        if self._reasoning:
            said["reasoning"] = said["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            said["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for _, call in sorted(self._calls.items())
            ]
        return said

    def logprobs(self) -> dict[str, Any] | None:
        return {"content": self._logprobs} if self._logprobs else None
