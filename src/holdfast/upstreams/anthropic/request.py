"""Renders a prompt for Anthropic's Messages API.

Pure. `PARAMS` has a rule for each parameter. A parameter that would change the answer (a penalty, several choices) is
refused, unless its value has no effect. Parts in Anthropic's own shape are passed on.

- All system and developer messages go to `system`.
- Consecutive messages of one role become one message. Results of tools have the role `user` and come first, as
  Anthropic requires.
- Blank blocks, and messages without blocks, are left out: Anthropic refuses both.
- Thoughts come before the calls that they led to. If they were lost (by a restart, or by a client that does not keep
  them), the request with the results of those calls does not ask for thinking: Anthropic would refuse it.
- A last message of the assistant is continued, and must not end in white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...asks.own import OwnMessages
from ...errors import Unsupported
from ...fields import PASSED_ON, passed_on
from ...prompt import (
    AnyTool,
    AnyTurn,
    AssistantTurn,
    Call,
    ChosenTool,
    FilePart,
    Format,
    ImagePart,
    Opaque,
    Part,
    Prompt,
    ResultTurn,
    SystemTurn,
    TextPart,
    ToolChoice,
)
from ...prompt.openai_shape import turns_of
from .. import ChatRequest
from ..params import checked_prompt
from ..parts import arguments_object, calls_of, content_parts, inline_data, speaker_first, thoughts_of
from .fields import MESSAGE_RULES, PARAMS

__all__ = ["betas_of", "body_of", "end_of_prefill"]

_Block = dict[str, Any]

_EFFORTS = {"minimal": "low"}
_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_SERVICE_TIERS = ("auto", "standard_only")
_NATIVE_BLOCKS = frozenset({"image", "document", "search_result", "thinking", "redacted_thinking", "tool_use"})
_THOUGHTS = ("thinking", "redacted_thinking")
_BETA = re.compile(r"[\w.-]{1,100}", re.ASCII)
_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def body_of(request: ChatRequest, *, max_tokens: int) -> dict[str, Any]:
    """Return the body of a request. `max_tokens` is the default limit, since Anthropic requires one."""
    own = request.own if isinstance(request.own, OwnMessages) else None
    prompt = checked_prompt(request, PARAMS, PASSED_ON, MESSAGE_RULES if own is None else {})
    params = msgspec.convert(prompt.extra, _Params)
    body = passed_on(prompt.extra, PARAMS, PASSED_ON)
    conversation = _conversation_fields(prompt, params) if own is None else own.fields()
    match body:
        case {"thinking": {"type": "enabled"}} if _thoughts_are_gone(conversation["messages"]):
            body = _without_thinking(body)
    return (
        body
        | _output(prompt, params)
        | _service_tier(params)
        | _limits(params, max_tokens)
        | _metadata(params)
        | conversation
        | {"model": request.model, "stream": True}
    )


class _Params(msgspec.Struct, frozen=True):
    """The parameters that are rendered here. A wrong value is Anthropic's to refuse."""

    max_tokens: Any = None
    max_completion_tokens: Any = None
    stop: Any = None
    metadata: Any = None
    user: Any = None
    service_tier: Any = None
    parallel_tool_calls: Any = None
    output_config: Any = None
    thinking: Any = None
    anthropic_beta: Any = None


def _conversation_fields(prompt: Prompt, params: _Params) -> dict[str, Any]:
    system, messages = _conversation(prompt.turns)
    return {"messages": messages} | ({"system": system} if system else {}) | _tools(prompt, params)


# parameters


def betas_of(params: Mapping[str, Any]) -> list[str]:
    """Return the betas that a request asks for. They are validated, because they go into a header."""
    betas = msgspec.convert(params, _Params).anthropic_beta or []
    names = betas.split(",") if isinstance(betas, str) else betas
    if not isinstance(names, list) or not all(isinstance(name, str) and _BETA.fullmatch(name) for name in names):
        raise Unsupported("A beta has a name of letters, digits, dots, dashes and underscores.", "anthropic_beta")
    return names


def _without_thinking(body: Mapping[str, Any]) -> _Block:
    """Remove thinking from a request, and edits that clear it: Anthropic refuses those edits without thinking."""
    rest = {name: value for name, value in body.items() if name not in ("thinking", "context_management")}
    match body:
        case {"context_management": {"edits": list(edits), **more}}:
            edits = [edit for edit in edits if not _clears_thoughts(edit)]
            return rest | ({"context_management": {**more, "edits": edits}} if edits or more else {})
        case {"context_management": management}:
            return rest | {"context_management": management}
    return rest


def _clears_thoughts(edit: Any) -> bool:
    match edit:
        case {"type": kind}:
            return str(kind).startswith("clear_thinking_")
    return False


def _output(prompt: Prompt, params: _Params) -> dict[str, Any]:
    """Return the format of the answer and the reasoning effort."""
    config, effort = params.output_config, prompt.effort
    output: dict[str, Any] = dict(config) if isinstance(config, dict) else {}
    if prompt.format is not None and prompt.format.kind != "text":
        output["format"] = _format(prompt.format)
    if effort not in (None, "none"):
        output["effort"] = _EFFORTS.get(effort, effort)
    no_thinking = {"thinking": {"type": "disabled"}} if effort == "none" and params.thinking is None else {}
    return no_thinking | ({"output_config": output} if output else {})


def _format(form: Format | Opaque) -> dict[str, Any]:
    if isinstance(form, Format) and form.kind == "json_schema":
        return {"type": "json_schema", "schema": form.schema}
    raise Unsupported("Anthropic's models take a response_format of the type text or json_schema.", "response_format")


def _service_tier(params: _Params) -> dict[str, Any]:
    """Return the tier if it is one of Anthropic's. One of OpenAI's only affects speed and price, and is left out."""
    return {"service_tier": params.service_tier} if params.service_tier in _SERVICE_TIERS else {}


def _limits(params: _Params, max_tokens: int) -> dict[str, Any]:
    stop, given = params.stop or [], (params.max_completion_tokens, params.max_tokens, max_tokens)
    limits = {"max_tokens": next(limit for limit in given if limit is not None)}
    return limits | ({"stop_sequences": [stop] if isinstance(stop, str) else stop} if stop else {})


def _tools(prompt: Prompt, params: _Params) -> dict[str, Any]:
    """Return the tools and the tool choice. Anthropic refuses a choice without tools."""
    if not prompt.tools:
        return {}
    choice = _tool_choice(prompt.choice)
    match choice:
        case {"type": "none"}:
            pass
        case _ if params.parallel_tool_calls is False:
            choice = {"type": "auto"} | choice | {"disable_parallel_tool_use": True}
    return {"tools": [_tool(tool) for tool in prompt.tools]} | ({"tool_choice": choice} if choice else {})


def _tool(tool: AnyTool) -> Any:
    match tool:
        case Opaque({"custom": dict()}):
            raise Unsupported("Anthropic's models take no custom tools. Send a function with one string.", "tools")
        case Opaque():
            return tool.data  # in Anthropic's shape, or invalid: then Anthropic returns the error
    described = {"name": tool.name, "description": tool.description, "strict": tool.strict}
    schema = tool.parameters or {"type": "object", "properties": {}}
    return tool.extra | {name: value for name, value in described.items() if value} | {"input_schema": schema}


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    match choice:
        case str():
            return {"type": _TOOL_CHOICES[choice]}
        case ChosenTool(name):
            return {"type": "tool", "name": name}
        case Opaque(str(kind)):
            return {"type": kind}
        case Opaque(dict(own)):
            return own
    return {}


def _metadata(params: _Params) -> dict[str, Any]:
    """Return the user id. Other metadata of OpenAI's is left out, because Anthropic refuses it."""
    if isinstance(params.metadata, dict) and "user_id" in params.metadata:
        return {"metadata": params.metadata}
    return {"metadata": {"user_id": params.user}} if params.user else {}


# messages


def _conversation(given: Sequence[AnyTurn]) -> tuple[str | list[_Block], list[_Block]]:
    """Return the system prompt, and the turns of user and assistant.

    A system turn that is `placed` keeps its place: its client speaks this dialect, and sent it there.
    """
    system: list[_Block] = []
    turns: list[_Block] = []
    for turn in given:
        role, blocks = _role_and_blocks(turn)
        if isinstance(turn, SystemTurn) and not (turns and turn.placed):
            system += blocks
        elif turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for rendered in turns:
        rendered["content"].sort(key=_comes_later)
    _end_well(turns, given)
    return _plain(system), turns


def _comes_later(block: _Block) -> bool:
    """Return the sort key of a block: Anthropic requires tool results first, right after their calls."""
    return bool(block["type"] != "tool_result")


def _role_and_blocks(turn: AnyTurn) -> tuple[str, list[_Block]]:
    match turn:
        case SystemTurn():
            return "system", _blocks(content_parts(turn.content))
        case AssistantTurn():
            thoughts = thoughts_of(turn, *_THOUGHTS)
            said = _blocks((*content_parts(turn.content), TextPart(turn.refusal)))
            return "assistant", [*thoughts, *said, *map(_tool_use, calls_of(turn))]
        case ResultTurn():
            return "user", [_tool_result(turn)]
    return "user", _blocks(speaker_first(turn))


def _thoughts_are_gone(turns: Sequence[_Block]) -> bool:
    """Return whether the last turn has results of calls without a thought before them."""
    if len(turns) < 2 or _first_kind(turns[-1]) != "tool_result":
        return False
    return _first_kind(turns[-2]) not in _THOUGHTS


def _first_kind(turn: _Block) -> Any:
    match turn:
        case {"content": [{"type": kind}, *_]}:
            return kind
    return None


def _plain(system: list[_Block]) -> str | list[_Block]:
    """Return the system prompt as a string, unless a block has more than text."""
    is_plain = all(block.keys() == {"type", "text"} for block in system)
    return "\n\n".join(block["text"] for block in system) if is_plain else system


def _end_well(turns: list[_Block], given: Sequence[AnyTurn]) -> None:
    """Strip the white space after a last message of the assistant. Raise if the user's message after it was empty."""
    if not turns or turns[-1]["role"] != "assistant":
        return
    if not isinstance(given[-1], AssistantTurn | SystemTurn):
        raise Unsupported("Anthropic's models cannot be asked with an empty message.", "messages")
    blocks = turns[-1]["content"]
    if blocks[-1]["type"] == "text":
        blocks[-1] = blocks[-1] | {"text": blocks[-1]["text"].rstrip()}


def end_of_prefill(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the white space at the end of a message that is continued. It is not sent to Anthropic."""
    match list(turns_of(messages[-1:])):
        case [AssistantTurn(str(text), ())] if text.strip():
            return text[len(text.rstrip()) :]
    return ""


# blocks


def _blocks(parts: Iterable[Part]) -> list[_Block]:
    """Return parts as blocks, without the blank ones."""
    return [block for part in parts if not _is_blank(block := _block(part))]


def _is_blank(block: _Block) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def _block(part: Part) -> _Block:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, **_cache_mark(part.extra)}
        case ImagePart():
            return {"type": "image", "source": _image_source(part.url), **_cache_mark(part.extra)}
        case FilePart():
            return _document(part)
        case Opaque() if part.kind in _NATIVE_BLOCKS:
            return dict(part.data)
    raise Unsupported(f"Anthropic's models take no part of the type {part.kind!r}.", "messages")


def _cache_mark(fields: Mapping[str, Any]) -> _Block:
    match fields:
        case {"cache_control": mark} if mark:
            return {"cache_control": mark}
    return {}


def _image_source(url: str) -> _Block:
    if image := inline_data(url):
        return {"type": "base64", "media_type": image.media_type, "data": image.data}
    if url.lower().startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    raise Unsupported("An image's URL must be http(s), or data: in base64.", "messages")


def _document(file: FilePart) -> _Block:
    """Return a PDF file as a document."""
    pdf = inline_data(file.data)
    if pdf is None or pdf.media_type != "application/pdf":
        raise Unsupported("Anthropic's models take a file as a PDF in file_data, a data: URL in base64.", "messages")
    source = {"type": "base64", "media_type": pdf.media_type, "data": pdf.data}
    match file.more:
        case {"filename": str(name)}:
            return {"type": "document", "source": source, "title": name}
    return {"type": "document", "source": source}


def _tool_use(call: Call) -> _Block:
    called = {"id": _id(call.id), "name": call.name, "input": arguments_object(call.arguments)}
    return {"type": "tool_use", **called, **_cache_mark(call.extra)}


def _tool_result(turn: ResultTurn) -> _Block:
    content = _blocks(content_parts(turn.content))
    result = {"type": "tool_result", "tool_use_id": _id(turn.call_id), **_cache_mark(turn.extra)}
    return result | ({"content": _result_content(content)} if content else {})


def _result_content(blocks: list[_Block]) -> str | list[_Block]:
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} else blocks


def _id(id: str) -> str:
    """Return an id in the characters that Anthropic allows: a call in the history may be another model's."""
    return _NOT_IN_AN_ID.sub("_", id) or "call"
