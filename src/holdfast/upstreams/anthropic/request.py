"""Translates a request in OpenAI's shape to Anthropic's Messages API.

Pure. `PARAMS` has a rule for each parameter. A parameter that would change the answer (a penalty, several choices) is
refused, unless its value has no effect. Parts in Anthropic's own shape are passed on.

- All system and developer messages go to `system`.
- Consecutive messages of one role become one message. Tool results have the role `user` and come first, as Anthropic
  requires.
- Blank blocks, and messages without blocks, are left out: Anthropic refuses both.
- Thoughts come before the calls that they led to. If they were lost (by a restart, or by a client that does not keep
  them), the request with the results of those calls does not ask for thinking: Anthropic would refuse it.
- A last message of the assistant is continued, and must not end in white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import Unsupported
from ...fields import PASSED_ON, Refusal, passed_on, refusal
from .. import ChatRequest
from ..parts import arguments_object, function_of, inline_data, picture_url
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
    if refused_field := _refused(request):
        raise Unsupported(refused_field.message, refused_field.field)
    params = {name: value for name, value in request.params.items() if value is not None}
    body = passed_on(params, PARAMS, PASSED_ON)
    conversation = _conversation_fields(request, params)
    messages = conversation["messages"]
    if _thoughts_are_gone(messages) and (body.get("thinking") or {}).get("type") == "enabled":
        body = _without_thinking(body)
    return (
        body
        | _output(params)
        | _service_tier(params)
        | _limits(params, max_tokens)
        | _metadata(params)
        | conversation
        | {"model": request.model, "stream": True}
    )


def _refused(request: ChatRequest) -> Refusal | None:
    """Return the first field of the parameters, messages and tools that Anthropic's models do not support."""
    if refused_field := refusal(request.params, PARAMS, PASSED_ON) or request.as_sent.get("anthropic"):
        return refused_field if isinstance(refused_field, Refusal) else None
    fields = {"messages": request.messages, "tools": request.params.get("tools")}
    return refusal(fields, MESSAGE_RULES, PASSED_ON)


def _conversation_fields(request: ChatRequest, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conversation and its tools, unchanged if the client speaks this dialect."""
    if sent := request.as_sent.get("anthropic"):
        return dict(sent)
    system, messages = _conversation(request.messages)
    return {"messages": messages} | ({"system": system} if system else {}) | _tools(params)


# parameters


def betas_of(params: Mapping[str, Any]) -> list[str]:
    """Return the betas that a request asks for. They are validated, because they go into a header."""
    betas = params.get("anthropic_beta") or []
    names = betas.split(",") if isinstance(betas, str) else betas
    if not isinstance(names, list) or not all(isinstance(name, str) and _BETA.fullmatch(name) for name in names):
        raise Unsupported("A beta has a name of letters, digits, dots, dashes and underscores.", "anthropic_beta")
    return names


def _without_thinking(body: Mapping[str, Any]) -> _Block:
    """Remove thinking from a request, and edits that clear it: Anthropic refuses those edits without thinking."""
    rest = {name: value for name, value in body.items() if name not in ("thinking", "context_management")}
    match body.get("context_management"):
        case {"edits": list(edits), **more}:
            edits = [edit for edit in edits if not _clears_thoughts(edit)]
            return rest | ({"context_management": {**more, "edits": edits}} if edits or more else {})
        case None:
            return rest
        case management:
            return rest | {"context_management": management}


def _clears_thoughts(edit: Any) -> bool:
    return isinstance(edit, dict) and str(edit.get("type")).startswith("clear_thinking_")


def _output(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the format of the answer and the reasoning effort."""
    config = params.get("output_config")
    output: dict[str, Any] = dict(config) if isinstance(config, dict) else {}
    if form := _format(params.get("response_format")):
        output["format"] = form
    effort = params.get("reasoning_effort")
    if effort not in (None, "none"):
        output["effort"] = _EFFORTS.get(effort, effort) if isinstance(effort, str) else effort
    no_thinking = {"thinking": {"type": "disabled"}} if effort == "none" and "thinking" not in params else {}
    return no_thinking | ({"output_config": output} if output else {})


def _format(form: Any) -> dict[str, Any] | None:
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return {"type": "json_schema", "schema": schema}
    raise Unsupported("Anthropic's models take a response_format of the type text or json_schema.", "response_format")


def _service_tier(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tier if it is one of Anthropic's. One of OpenAI's only affects speed and price, and is left out."""
    tier = params.get("service_tier")
    return {"service_tier": tier} if tier in _SERVICE_TIERS else {}


def _limits(params: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    stop = params.get("stop") or []
    limits = {"max_tokens": params.get("max_completion_tokens", params.get("max_tokens", max_tokens))}
    return limits | ({"stop_sequences": [stop] if isinstance(stop, str) else stop} if stop else {})


def _tools(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tools and the tool choice. Anthropic refuses a choice without tools."""
    tools = params.get("tools") or []
    if not tools:
        return {}
    choice = _tool_choice(params.get("tool_choice"))
    if params.get("parallel_tool_calls") is False and choice.get("type") != "none":
        choice = {"type": "auto"} | choice | {"disable_parallel_tool_use": True}
    return {"tools": [_tool(tool) for tool in tools]} | ({"tool_choice": choice} if choice else {})


def _tool(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    if isinstance(tool, dict) and isinstance(tool.get("custom"), dict):
        raise Unsupported("Anthropic's models take no custom tools. Send a function with one string.", "tools")
    if not isinstance(function, dict):
        return tool  # in Anthropic's shape, or invalid: then Anthropic returns the error
    described = {"name": function.get("name"), "description": function.get("description")}
    described["strict"] = function.get("strict")
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    beside = {name: value for name, value in tool.items() if name not in ("type", "function")}
    return beside | {name: value for name, value in described.items() if value} | {"input_schema": schema}


def _tool_choice(choice: Any) -> dict[str, Any]:
    if isinstance(choice, str):
        return {"type": _TOOL_CHOICES.get(choice, choice)}
    if not isinstance(choice, dict):
        return {}
    function = choice.get("function")
    return {"type": "tool", "name": function.get("name")} if isinstance(function, dict) else choice


def _metadata(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user id. Other metadata of OpenAI's is left out, because Anthropic refuses it."""
    metadata = params.get("metadata")
    if isinstance(metadata, dict) and "user_id" in metadata:
        return {"metadata": metadata}
    return {"metadata": {"user_id": params["user"]}} if params.get("user") else {}


# messages


def _conversation(messages: Sequence[Mapping[str, Any]]) -> tuple[str | list[_Block], list[_Block]]:
    """Return the system prompt, and the turns of user and assistant.

    A system message with `placed` keeps its place: its client speaks this dialect, and sent it there.
    """
    system: list[_Block] = []
    turns: list[_Block] = []
    for message in messages:
        role, blocks = _role_and_blocks(message)
        if role == "system" and not (turns and message.get("placed")):
            system += blocks
        elif turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        turn["content"].sort(key=_comes_later)
    _end_well(turns, messages)
    return _plain(system), turns


def _comes_later(block: _Block) -> bool:
    """Return the sort key of a block: Anthropic requires tool results first, right after their calls."""
    return bool(block["type"] != "tool_result")


def _role_and_blocks(message: Mapping[str, Any]) -> tuple[str, list[_Block]]:
    """Return the role and the blocks of a message."""
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer":
            return "system", _blocks(content)
        case "assistant":
            thoughts = [thought for thought in message.get("thoughts") or () if thought.get("type") in _THOUGHTS]
            calls = message.get("tool_calls") or ()
            declined = _blocks(message.get("refusal"))
            return "assistant", [*thoughts, *_blocks(content), *declined, *map(_tool_use, calls)]
        case "tool":
            return "user", [_tool_result(message)]
        case _:
            speaker = _blocks(f"{message['name']}:") if message.get("name") else []
            return "user", [*speaker, *_blocks(content)]


def _thoughts_are_gone(turns: Sequence[_Block]) -> bool:
    """Return whether the last turn has results of calls without a thought before them."""
    if len(turns) < 2 or _first_kind(turns[-1]) != "tool_result":
        return False
    return _first_kind(turns[-2]) not in _THOUGHTS


def _first_kind(turn: _Block) -> Any:
    content = turn.get("content")
    return content[0].get("type") if isinstance(content, list) and content and isinstance(content[0], dict) else None


def _plain(system: list[_Block]) -> str | list[_Block]:
    """Return the system prompt as a string, unless a block has more than text."""
    is_plain = all(block.keys() == {"type", "text"} for block in system)
    return "\n\n".join(block["text"] for block in system) if is_plain else system


def _end_well(turns: list[_Block], messages: Sequence[Mapping[str, Any]]) -> None:
    """Strip the white space after a last message of the assistant. Raise if the user's message after it was empty."""
    if not turns or turns[-1]["role"] != "assistant":
        return
    if messages[-1].get("role") not in ("assistant", "system", "developer"):
        raise Unsupported("Anthropic's models cannot be asked with an empty message.", "messages")
    blocks = turns[-1]["content"]
    if blocks[-1]["type"] == "text":
        blocks[-1] = blocks[-1] | {"text": blocks[-1]["text"].rstrip()}


def end_of_prefill(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the white space at the end of a message that is continued. It is not sent to Anthropic."""
    last = messages[-1] if messages else {}
    content = last.get("content")
    if last.get("role") != "assistant" or last.get("tool_calls") or not isinstance(content, str):
        return ""
    return content[len(content.rstrip()) :] if content.strip() else ""


# blocks


def _blocks(content: Any) -> list[_Block]:
    """Return a message's content as blocks, without the blank ones."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content or [], list):
        raise Unsupported("A message's content must be a string or a list of parts.", "messages")
    return [block for part in content or () if not _is_blank(block := _block(part))]


def _is_blank(block: _Block) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def _block(part: Any) -> _Block:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "refusal"):
        return {"type": "text", "text": str(part.get(kind) or ""), **_cache_mark(part)}
    if kind == "image_url":
        return {"type": "image", "source": _image_source(part), **_cache_mark(part)}
    if kind in _NATIVE_BLOCKS:
        return dict(part)
    if kind == "file":
        return _document(part.get("file"))
    raise Unsupported(f"Anthropic's models take no part of the type {kind!r}.", "messages")


def _cache_mark(part: Mapping[str, Any]) -> _Block:
    return {"cache_control": part["cache_control"]} if part.get("cache_control") else {}


def _image_source(part: Mapping[str, Any]) -> _Block:
    url = picture_url(part)
    if image := inline_data(url):
        return {"type": "base64", "media_type": image.media_type, "data": image.data}
    if url.lower().startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    raise Unsupported("An image's URL must be http(s), or data: in base64.", "messages")


def _document(file: Any) -> _Block:
    """Return a PDF file as a document."""
    data, name = (file.get("file_data"), file.get("filename")) if isinstance(file, dict) else (None, None)
    pdf = inline_data(data) if isinstance(data, str) else None
    if pdf is None or pdf.media_type != "application/pdf":
        raise Unsupported("Anthropic's models take a file as a PDF in file_data, a data: URL in base64.", "messages")
    source = {"type": "base64", "media_type": pdf.media_type, "data": pdf.data}
    return {"type": "document", "source": source, **({"title": name} if isinstance(name, str) else {})}


def _tool_use(call: Any) -> _Block:
    function = function_of(call)
    return {
        "type": "tool_use",
        "id": _id(call.get("id")),
        "name": function.get("name"),
        "input": arguments_object(function.get("arguments")),
        **_cache_mark(call),
    }


def _tool_result(message: Mapping[str, Any]) -> _Block:
    content = _blocks(message.get("content"))
    result = {"type": "tool_result", "tool_use_id": _id(message.get("tool_call_id")), **_cache_mark(message)}
    return result | ({"content": _result_content(content)} if content else {})


def _result_content(blocks: Iterable[_Block]) -> str | list[_Block]:
    blocks = list(blocks)
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} else blocks


def _id(id: Any) -> str:
    """Return an id in the characters that Anthropic allows: a call in the history may be another model's."""
    return _NOT_IN_AN_ID.sub("_", str(id or "")) or "call"
