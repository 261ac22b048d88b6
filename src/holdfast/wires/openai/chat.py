"""OpenAI's chat completions: chunks and the finished object, each a pure function of the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ...events import (
    AnySettlement,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    OpenCall,
    Picture,
    ProviderData,
    Reasoning,
    RunStarted,
    Settled,
    Text,
    ToolDelta,
    Usage,
)
from ...history import called
from ...log.segment import Segment, needs_no_escape
from .. import native, sse
from ..outcome import cost_of, finish_reason, verdict

_encode = msgspec.json.Encoder().encode


def completion_id(run_id: str) -> str:
    """Return the completion id of a run."""
    return "chatcmpl-" + run_id.removeprefix("run_")


def run_id_of_completion(completion_id: str) -> str:
    """Return the run of a completion id."""
    return "run_" + completion_id.removeprefix("chatcmpl-")


def chat_usage(used: Usage) -> dict[str, Any]:
    """Return the usage in OpenAI's shape."""
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        **cost_of(used),
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

    def render(self, first: int, segment: Segment) -> bytes:
        """Return the frames of the next segment, by a shorter way if it is plain text."""
        if segment.kind is not Text:
            return b"".join(self.frames(segment))
        self._has_output, texts = True, segment.texts
        if len(texts) == 1:
            return b"".join((self._text_head, _encode(texts[0]), self._text_tail))
        if needs_no_escape("".join(texts)):
            return b'%b"%b"%b' % (self._text_head, self._between_texts.join(texts).encode(), self._text_tail)
        return self._text_head + self._between.join(map(_encode, texts)) + self._text_tail

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        head, tail = self._text_head, self._text_tail
        out: list[bytes] = []
        for event in events:
            if type(event) is Text and not (event.choice or event.refusal or event.logprobs is not None):
                self._has_output = True
                out.append(b"%b%b%b" % (head, _encode(event.text), tail))
            else:
                out.extend(self._other(event))
        return out

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        return sse.data(_encode({"error": native.error(info)}))

    def _other(self, event: Event) -> list[bytes]:
        if isinstance(event, RunStarted):
            return [self._delta(choice, {"role": "assistant", "content": ""}) for choice in range(self._choices)]
        if isinstance(event, Settled):
            return self._ending(event.settlement)
        if isinstance(event, Text):
            self._has_output = True
            field = "refusal" if event.refusal else "content"
            return [self._delta(event.choice, {field: event.text}, logprobs=event.logprobs)]
        if isinstance(event, Reasoning):
            self._has_output = True
            # Clients read either name.
            return [self._delta(event.choice, {"reasoning": event.text, "reasoning_content": event.text})]
        if isinstance(event, Picture):
            self._has_output = True
            return [self._delta(event.choice, {"images": [_image(event)]})]
        if isinstance(event, ToolDelta):
            self._has_output = True
            return [self._delta(event.choice, _call_delta(event))]
        if isinstance(event, ProviderData) and event.dialect == "openai":
            return [self._delta(event.choice, event.data)]
        return []

    def _ending(self, settled: AnySettlement) -> list[bytes]:
        told = verdict(settled, self._run)
        # Some clients ignore the other fields of a chunk with `choices`: they need a frame without.
        error = [sse.data(_encode(told))] if isinstance(settled, (Failed, Interrupted)) else []
        if error and not self._has_output:
            return error
        reasons = settled.finish_reasons or (settled.finish_reason,) * self._choices
        ends = [
            self._delta(choice, {}, finish=finish_reason(settled, said), extra=told if choice == 0 else {})
            for choice, said in enumerate(reasons)
        ]
        if self._include_usage:
            ends.append(self._chunk({"choices": [], "usage": chat_usage(settled.usage)}))
        return [*ends, *error, sse.DONE]

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


def _image(event: Picture) -> dict[str, Any]:
    """Return a picture of an answer as gateways send it: OpenAI's own API has none here."""
    return {"type": "image_url", "image_url": {"url": event.url}}


def _call_delta(event: ToolDelta) -> dict[str, Any]:
    """Return a piece of a call in the shape of its kind."""
    name = {"name": event.name} if event.name else {}
    if event.kind == "function_call":
        return {"function_call": {**name, "arguments": event.arguments}}
    written = {"input" if event.kind == "custom" else "arguments": event.arguments, **name}
    begins = {"id": event.id, "type": event.kind} if event.id else {}
    return {"tool_calls": [{"index": event.index, event.kind: written, **begins}]}


_OF_A_CHOICE = frozenset({Text, Reasoning, Picture, ToolDelta, ProviderData})


class ChatAnswer:
    """Builds the finished object from the events of a run."""

    def __init__(self, run: str, model: str, created: float, *, choices: int = 1) -> None:
        self._run = run
        self._head = {"id": completion_id(run), "object": "chat.completion", "created": int(created), "model": model}
        self._choices = {index: _Choice() for index in range(choices)}

    def add(self, events: Sequence[Event]) -> None:
        """Add the next events."""
        for event in events:
            if type(event) in _OF_A_CHOICE:
                index: int = event.choice  # type: ignore[union-attr]
                if index not in self._choices:
                    self._choices[index] = _Choice()
                self._choices[index].add(event)  # type: ignore[arg-type]

    def body(self, settled: AnySettlement | None) -> dict[str, Any]:
        """Return the object so far."""
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
        spent = {"usage": chat_usage(settled.usage)} if settled else {}
        return {**self._head, "choices": choices, **spent, **told}


class _Choice(msgspec.Struct):
    """One choice, as it is built."""

    _text: list[str] = []
    _refusal: list[str] = []
    _reasoning: list[str] = []
    _images: list[dict[str, Any]] = []
    _calls: dict[int, OpenCall] = {}
    _logprobs: list[Any] = []
    _own: dict[str, list[Any]] = {}

    def add(self, event: Text | Reasoning | Picture | ToolDelta | ProviderData) -> None:
        if isinstance(event, Text):
            (self._refusal if event.refusal else self._text).append(event.text)
            if event.logprobs is not None:
                self._logprobs.extend(tokens_of(event.logprobs))
        elif isinstance(event, Reasoning):
            self._reasoning.append(event.text)
        elif isinstance(event, Picture):
            self._images.append(_image(event))
        elif isinstance(event, ProviderData):
            for name, values in event.data.items() if event.dialect == "openai" else ():
                self._own.setdefault(name, []).extend(values)
        else:
            call = self._calls.setdefault(event.index, OpenCall(kind=event.kind))
            call.add(event.arguments, event.name, event.id)

    def message(self) -> dict[str, Any]:
        text = "".join(self._text)
        has_more = self._calls or self._refusal
        said: dict[str, Any] = {"role": "assistant", "content": text or (None if has_more else ""), **self._own}
        said["refusal"] = "".join(self._refusal) or None
        if self._reasoning:
            said["reasoning"] = said["reasoning_content"] = "".join(self._reasoning)
        if self._images:
            said |= {"images": self._images}
        return {**said, **self._called()} if self._calls else said

    def _called(self) -> dict[str, Any]:
        calls = [call.whole() for _, call in sorted(self._calls.items())]
        tools = [called(call) for call in calls if call.kind != "function_call"]
        told: dict[str, Any] = {"tool_calls": tools} if tools else {}
        for call in calls:
            if call.kind == "function_call":
                told["function_call"] = {"name": call.name, "arguments": call.arguments}
        return told

    def logprobs(self) -> dict[str, Any] | None:
        return {"content": self._logprobs, "refusal": None} if self._logprobs else None


def tokens_of(logprobs: Any) -> list[Any]:
    """Return the tokens of logprobs, which are as the upstream sent them."""
    match logprobs:
        case {"content": list(tokens)}:
            return tokens
    return []
