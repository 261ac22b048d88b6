"""OpenAI's older text completions: chunks and the finished object, each a pure function of the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ...events import AnySettlement, ErrorInfo, Event, Failed, Interrupted, Picture, Settled, Text
from ...fields import PASSED_ON, USED, Shape, Table, harmless, refused, used
from .. import native, sse
from ..outcome import finish_reason, verdict
from .chat import chat_usage

_encode = msgspec.json.Encoder().encode

COMPLETION: Table = {
    "model": USED,
    "prompt": USED,
    "n": PASSED_ON,
    "stream": USED,
    "stream_options": used(
        Shape({"include_usage": USED, "include_obfuscation": harmless("It only controls padding.")}, PASSED_ON)
    ),
    **dict.fromkeys(
        (
            "best_of",
            "echo",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "max_tokens",
            "presence_penalty",
            "seed",
            "stop",
            "suffix",
            "temperature",
            "top_p",
            "user",
        ),
        PASSED_ON,
    ),
}
"""Completions, to an upstream of OpenAI's dialect. A field that is not known here is passed on."""

_NO_CHAT = "A chat cannot do it, and this model's upstream can only chat."
COMPLETION_AS_CHAT: Table = {
    **COMPLETION,
    "best_of": refused(_NO_CHAT, 0, 1),
    "echo": refused(_NO_CHAT, False),
    "logprobs": refused(_NO_CHAT, 0),
    "suffix": refused(_NO_CHAT, ""),
}
"""Completions, to every other upstream: the prompt is the user's message."""


def completed_id(run_id: str) -> str:
    """Return the text completion id of a run."""
    return "cmpl-" + run_id.removeprefix("run_")


class TextChunks:
    """Renders one run as chunks, in order from its first event: the same log always gives the same bytes."""

    def __init__(self, run: str, model: str, created: float, *, choices: int, include_usage: bool) -> None:
        self._run = run
        self._choices = choices
        self._include_usage = include_usage
        self._has_output = False
        self._head = _head(run, model, created)

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the frames of the next events, one by one."""
        out: list[bytes] = []
        for event in events:
            if isinstance(event, Text):
                self._has_output = True
                out.append(self._chunk(event.choice, event.text, logprobs=event.logprobs))
            elif isinstance(event, Picture):
                self._has_output = True
                out.append(self._chunk(event.choice, "", images=[event.url]))
            elif isinstance(event, Settled):
                out += self._ending(event.settlement)
        return out

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the frame that ends the stream, not its run, with the reason."""
        return sse.data(_encode({"error": native.error(info)}))

    def _ending(self, settled: AnySettlement) -> list[bytes]:
        ending = verdict(settled, self._run)
        error = [sse.data(_encode(ending))] if isinstance(settled, (Failed, Interrupted)) else []
        if error and not self._has_output:
            return error
        reasons = settled.finish_reasons or (settled.finish_reason,) * self._choices
        ends = [
            self._chunk(choice, "", finish=finish_reason(settled, reason), extra=ending if choice == 0 else {})
            for choice, reason in enumerate(reasons)
        ]
        if self._include_usage:
            ends.append(sse.data(_encode({**self._head, "choices": [], "usage": chat_usage(settled.usage)})))
        return [*ends, *error, sse.DONE]

    def _chunk(
        self,
        choice: int,
        text: str,
        *,
        finish: str | None = None,
        logprobs: Any = None,
        extra: dict[str, Any] | None = None,
        **more: Any,
    ) -> bytes:
        part = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": finish, **more}
        return sse.data(_encode({**self._head, "choices": [part], **(extra or {})}))


def _head(run: str, model: str, created: float) -> dict[str, Any]:
    return {"id": completed_id(run), "object": "text_completion", "created": int(created), "model": model}


class TextAnswer:
    """Builds the finished object from the events of a run."""

    def __init__(self, run: str, model: str, created: float, *, choices: int) -> None:
        self._run = run
        self._head = _head(run, model, created)
        self._texts: dict[int, list[Text]] = {index: [] for index in range(choices)}
        self._images: dict[int, list[str]] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Add the next events."""
        for event in events:
            if isinstance(event, Text):
                self._texts.setdefault(event.choice, []).append(event)
            elif isinstance(event, Picture):
                self._images.setdefault(event.choice, []).append(event.url)

    def body(self, settled: AnySettlement | None) -> dict[str, Any]:
        """Return the object so far."""
        by_choice = sorted(self._texts.items())
        reasons = settled.finish_reasons if settled else ()
        choices = [
            {
                "index": index,
                "text": "".join(event.text for event in texts),
                "logprobs": _joined([event.logprobs for event in texts if isinstance(event.logprobs, dict)]),
                "finish_reason": finish_reason(settled, reason) if settled else None,
                **({"images": self._images[index]} if index in self._images else {}),
            }
            for (index, texts), reason in zip_longest(by_choice, reasons[: len(by_choice)])
        ]
        ending = verdict(settled, self._run) if settled else {"holdfast": {"outcome": None, "run_id": self._run}}
        usage = {"usage": chat_usage(settled.usage)} if settled else {}
        return {**self._head, "choices": choices, **usage, **ending}


def _joined(logprobs: Sequence[dict[str, Any]]) -> dict[str, list[Any]] | None:
    """Return logprobs: lists of tokens, offsets and probabilities of the same length."""
    if not logprobs:
        return None
    whole: dict[str, list[Any]] = {}
    for piece in logprobs:
        for name, values in piece.items():
            whole.setdefault(name, []).extend(values if isinstance(values, list) else ())
    return whole
