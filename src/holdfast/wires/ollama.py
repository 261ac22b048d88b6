"""Ollama's API for clients: requests translated to OpenAI's chat completions, and runs as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from ..asks.own import OwnOllama
from ..error_help import help_at
from ..errors import BadRequest
from ..events import (
    AnySettlement,
    Completed,
    ErrorInfo,
    Event,
    Failed,
    Interrupted,
    Picture,
    Reasoning,
    Settled,
    Stopped,
    Text,
    ToolCall,
    Truncated,
)
from ..fields import PASSED_ON, USED, Rule, Shape, Table, harmless, refused, used
from .outcome import cost_of, finish_reason, verdict
from .tool_calls import json_arguments

_encode = msgspec.json.Encoder().encode

# Requests.


class OllamaFunction(msgspec.Struct, frozen=True):
    """The function that a call names."""

    name: str
    arguments: Any = {}


class OllamaCall(msgspec.Struct, frozen=True):
    """A call of a tool. Ollama's own have no ids."""

    function: OllamaFunction
    id: str | msgspec.UnsetType | None = msgspec.UNSET


class OllamaMessage(msgspec.Struct, frozen=True):
    """A message of a chat."""

    role: Any = None
    content: Any = None
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    name: str | None = None


class OwnFields(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of every request that only an Ollama knows."""

    options: dict[str, Any] | None = None
    think: Any = None
    keep_alive: Any = None
    truncate: Any = None
    shift: Any = None


class OllamaBody(OwnFields, frozen=True, kw_only=True):
    """A request to chat or to generate, with the fields that are read here."""

    model: str
    messages: list[OllamaMessage] | None = None
    prompt: str | None = None
    system: Any = None
    images: list[str] | None = None
    stream: bool | None = None
    format: Any = None
    tools: Any = None
    tool_choice: Any = None


_LOADED = harmless("It controls how a model is loaded, which is up to the upstream.")
_CUT = harmless("The model's upstream refuses input that is too long.")
_OPTIONS: Table = {
    **dict.fromkeys(("temperature", "top_p", "seed", "stop", "num_predict"), USED),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "top_k", "min_p", "repeat_penalty"), USED),
    **dict.fromkeys(
        ("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "use_mmap", "use_mlock", "numa"),
        _LOADED,
    ),
    "low_vram": _LOADED,
    "vocab_only": _LOADED,
}
UNKNOWN_OF_OLLAMA: Rule = refused("This server does not know it.")
"""The rule of unknown fields."""
_ONLY_OLLAMAS = refused("Only a model of an Ollama takes it.")
_TEMPLATE = refused("The model's upstream has its own template.", False, "")
OLLAMA_CHAT: Table = {
    "model": USED,
    "messages": used(
        Shape(
            {
                **dict.fromkeys(("role", "content", "images", "tool_calls", "tool_name", "tool_call_id"), USED),
                "name": USED,
                "thinking": harmless("Earlier reasoning is not sent to the model."),
            },
            UNKNOWN_OF_OLLAMA,
        )
    ),
    "tools": USED,
    "tool_choice": USED,  # not Ollama's, but sent to it by the AI SDK's provider
    "stream": USED,
    "format": USED,
    "options": used(Shape(_OPTIONS, _ONLY_OLLAMAS)),
    "think": Rule("used", "A text is the effort. `true` and `false` are left out: the model's upstream decides."),
    "keep_alive": _LOADED,
    "truncate": _CUT,
    "shift": _CUT,
    "logprobs": refused("Ask /v1/chat/completions for them.", False),
    "top_logprobs": refused("Ask /v1/chat/completions for them.", 0),
}
"""Requests to `/api/chat`, for models of other upstreams."""
OLLAMA_GENERATE: Table = {
    **{name: rule for name, rule in OLLAMA_CHAT.items() if name not in ("messages", "tools", "tool_choice")},
    "prompt": USED,
    "system": USED,
    "images": USED,
    "suffix": refused("Ask /v1/completions for it.", ""),
    "raw": _TEMPLATE,
    "template": _TEMPLATE,
    "context": refused("Send the conversation to /api/chat.", []),
}
"""Requests to `/api/generate`, for models of other upstreams."""
OWN_FIELDS: Table = dict.fromkeys(("options", "think", "keep_alive", "truncate", "shift"), PASSED_ON)
"""Fields that an upstream which is an Ollama itself gets as they were sent, in place of the rules above."""
OLLAMA_EMBED: Table = {
    **dict.fromkeys(("model", "input", "prompt", "dimensions"), USED),
    "options": used(Shape(_OPTIONS, _ONLY_OLLAMAS)),
    "keep_alive": _LOADED,
    "truncate": _CUT,
}
"""Requests to `/api/embed` and `/api/embeddings`, for models of other upstreams."""

_PARAMS = {"num_predict": "max_tokens", "repeat_penalty": "repeat_penalty"}
_MAGIC = {"/9j/": "jpeg", "iVBOR": "png", "R0lG": "gif", "UklGR": "webp"}


def chat_of(body: OllamaBody) -> dict[str, Any]:
    """Return a request in OpenAI's shape."""
    chat = {"model": plain_name(body.model), "messages": _messages(body), "stream": body.stream is not False}
    tools = {"tools": body.tools} if body.tools else {}
    choice = {"tool_choice": body.tool_choice} if body.tool_choice else {}
    return chat | tools | choice | _format(body.format) | _options(body.options or {}) | _effort(body.think)


def own_fields(body: OwnFields) -> OwnOllama:
    """Return what an upstream that is an Ollama itself gets as it was sent."""
    return OwnOllama(**{name: getattr(body, name) for name in OWN_FIELDS})


def plain_name(model: Any) -> Any:
    """Return a model's name without the tag `latest`, which Ollama's clients add to every name."""
    return model.removesuffix(":latest") if isinstance(model, str) else model


def _format(form: Any) -> dict[str, Any]:
    if not form:
        return {}
    if form == "json":
        return {"response_format": {"type": "json_object"}}
    if not isinstance(form, dict):
        raise BadRequest('format is "json" or a JSON schema.', param="format")
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": form}}}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in options.items() if value is not None}
    kept = {_PARAMS.get(name, name): value for name, value in values.items() if _OPTIONS.get(name) == USED}
    return {name: value for name, value in kept.items() if not (name == "max_tokens" and value < 0)}


def _effort(think: Any) -> dict[str, Any]:
    """Return the reasoning effort, if the request has one. Whether to think at all is up to the model's upstream."""
    return {"reasoning_effort": think} if isinstance(think, str) else {}


def _messages(body: OllamaBody) -> list[dict[str, Any]]:
    if body.messages is None or body.prompt is not None:
        system = [{"role": "system", "content": body.system}] if body.system else []
        return [*system, _chat_message("user", body.prompt, body.images)]
    waiting = list[_Waiting]()
    return [_turn(message, waiting) for message in body.messages]


class _Waiting(NamedTuple):
    """A call without a result so far. `was_named`: its id is the client's, not ours."""

    id: str
    name: str
    was_named: bool


def _turn(message: OllamaMessage, waiting: list[_Waiting]) -> dict[str, Any]:
    """Return a message in OpenAI's shape."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": _answered(message, waiting), "content": message.content or ""}
    chat = _chat_message(message.role, message.content, message.images)
    if message.tool_calls:
        chat["tool_calls"] = [_call(call, place, waiting) for place, call in enumerate(message.tool_calls)]
        chat["content"] = chat["content"] or None
    return chat


def _answered(result: OllamaMessage, waiting: list[_Waiting]) -> str:
    """Return the id of the call that a result belongs to, which then waits no longer.

    A result belongs to the call with its id. If the calls have no ids (Ollama's own have none, and LiteLLM leaves them
    out), it belongs to the first call of its name that waits.
    """
    id, name = result.tool_call_id, result.tool_name or result.name
    fits = [call for call in waiting if id is not None and call.id == id]
    fits = fits or [call for call in waiting if name in (None, call.name) and (id is None or not call.was_named)]
    if not fits:
        return id or ""
    waiting.remove(fits[0])
    return fits[0].id


def _chat_message(role: Any, content: Any, images: Sequence[str] | None) -> dict[str, Any]:
    text = content or ""
    if not images:
        return {"role": role, "content": text}
    parts = [{"type": "image_url", "image_url": {"url": _data_url(image)}} for image in images]
    return {"role": role, "content": [{"type": "text", "text": text}, *parts] if text else parts}


def _data_url(image: str) -> str:
    kind = next((kind for magic, kind in _MAGIC.items() if image.startswith(magic)), "png")
    return image if image.startswith(("data:", "http")) else f"data:image/{kind};base64,{image}"


def _call(call: OllamaCall, place: int, waiting: list[_Waiting]) -> dict[str, Any]:
    id = call.id or f"call_{len(waiting)}_{place}"
    waiting.append(_Waiting(id, call.function.name, was_named=call.id is not msgspec.UNSET))
    arguments = call.function.arguments
    text = arguments if isinstance(arguments, str) else _encode(arguments).decode()
    return {"id": id, "type": "function", "function": {"name": call.function.name, "arguments": text}}


# Responses.


class OllamaLines:
    """Renders one run as lines of JSON, in order from its first event. `is_chat` is false for `/api/generate`."""

    def __init__(
        self, run: str, model: str, created: float, *, is_chat: bool, settled_at: Callable[[], float | None]
    ) -> None:
        self._run = run
        self._created = created
        self._settled_at = settled_at
        self._is_chat = is_chat
        self._head = {"model": model, "created_at": datetime.fromtimestamp(created, UTC).isoformat()}

    def frames(self, events: Sequence[Event]) -> list[bytes]:
        """Return the lines of the next events, one by one."""
        return [_encode(line) + b"\n" for event in events for line in self._lines(event)]

    def heartbeat(self) -> bytes:
        """Return a piece without text: lines of JSON have no comments."""
        return _encode(self._piece("")) + b"\n"

    def broken(self, info: ErrorInfo) -> bytes:
        """Return the line that ends the stream, not its run, with the reason."""
        return _encode(ollama_refusal(info)) + b"\n"

    def _lines(self, event: Event) -> Iterator[dict[str, Any]]:
        if isinstance(event, Text) and event.choice == 0:
            yield self._piece(event.text)
        elif isinstance(event, Reasoning) and event.choice == 0:
            yield self._piece("", thinking=event.text)
        elif isinstance(event, Picture) and event.choice == 0:
            yield self._piece("", images=[event.url.partition(";base64,")[2] or event.url])
        elif isinstance(event, ToolCall) and event.choice == 0 and not event.own and self._is_chat:
            yield self._piece("", tool_calls=[_called(event)])
        elif isinstance(event, Settled):
            yield self.end(event.settlement)

    def _piece(self, text: str, **more: Any) -> dict[str, Any]:
        if self._is_chat:
            return {**self._head, "message": {"role": "assistant", "content": text, **more}, "done": False}
        return {**self._head, "response": text, **more, "done": False}

    def end(self, settled: AnySettlement) -> dict[str, Any]:
        """Return the last line: `done` if the answer completed or was cut off, else an error, which clients raise."""
        if isinstance(settled, (Completed, Truncated)):
            reason = finish_reason(settled)
            done = {"done": True, "done_reason": "stop" if reason == "tool_calls" else reason}
            return {**self._piece(""), **done, **self._spent(settled), **verdict(settled, self._run)}
        return ollama_error(settled, self._run)

    def _spent(self, settled: AnySettlement) -> dict[str, Any]:
        took = max(1, int(((self._settled_at() or self._created) - self._created) * 1e9))
        return {
            "total_duration": took,
            "load_duration": 0,
            "prompt_eval_count": settled.usage.input_tokens,
            "prompt_eval_duration": 1,
            "eval_count": settled.usage.output_tokens,
            "eval_duration": took,
            **cost_of(settled.usage),
        }

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """Return all events of a run as one object."""
        pieces = [line for event in events for line in self._lines(event)]
        last = dict(pieces.pop() if pieces and "error" in pieces[-1] else {})
        if last:
            return {**last, "holdfast": {**last["holdfast"], "partial": self._joined(pieces)}}
        return self._joined(pieces)

    def _joined(self, pieces: Sequence[dict[str, Any]]) -> dict[str, Any]:
        last = dict(pieces[-1]) if pieces else self._piece("")
        messages = [piece["message"] if self._is_chat else piece for piece in pieces]
        field = "content" if self._is_chat else "response"
        joined: dict[str, Any] = {field: "".join(each[field] for each in messages if field in each)}
        if thoughts := "".join(each["thinking"] for each in messages if "thinking" in each):
            joined["thinking"] = thoughts
        if calls := [call for each in messages if "tool_calls" in each for call in each["tool_calls"]]:
            joined["tool_calls"] = calls
        if images := [image for each in messages for image in _images(each)]:
            joined |= {"images": images}
        return {**last, "message": {**last["message"], **joined}} if self._is_chat else {**last, **joined}


def _images(piece: dict[str, Any]) -> list[str]:
    match piece:
        case {"images": list(images)}:
            return images
    return []


def _called(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = msgspec.json.decode(json_arguments(call).encode("utf-8", "replace") or b"{}")
    except (msgspec.DecodeError, RecursionError):
        arguments = {"arguments": call.arguments}
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments}}


def ollama_error(settled: Stopped | Failed | Interrupted, run: str) -> dict[str, Any]:
    """Return the error of a settlement without a delivered answer. Ollama's errors are plain text."""
    ending = verdict(settled, run)["holdfast"]
    if isinstance(settled, Stopped):
        return {"error": f"The run was stopped: {settled.by}.", "holdfast": ending}
    return {"error": settled.error.message, "holdfast": ending}


def ollama_refusal(info: ErrorInfo) -> dict[str, Any]:
    """Return the error of a request. Clients read `error` as text, and ignore the rest."""
    return {"error": info.message, "holdfast": {"code": info.code, "param": info.param, "help": help_at(info.code)}}
