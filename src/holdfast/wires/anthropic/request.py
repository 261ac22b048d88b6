"""Requests to Anthropic's Messages API, translated to OpenAI's chat completions.

Pure. `native` means that the upstream speaks Anthropic's dialect. The rules of the fields, for such an upstream and for
every other, are in `fields.py`. A native upstream also gets the conversation as it was sent (`as_sent`), so that no
block is lost. Other models do not get thinking blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ...errors import BadRequest
from ...fields import PASSED_ON, check_fields, passed_on
from ...pricing import tokens_in
from ...prompt.openai_shape import PLACED, openai_thoughts
from .fields import FOR_ANTHROPIC, FOR_OTHERS, THREAD, UNKNOWN

_Block = dict[str, Any]
_Content = str | list[_Block]


class MessageParam(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: _Content


class Thread(msgspec.Struct, frozen=True):
    """A conversation that the server stores: it begins with a request, or continues after a message."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class CountBody(msgspec.Struct, frozen=True):
    """The request of a token count."""

    messages: list[MessageParam]
    model: str | None = None
    system: _Content | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


class MessagesBody(CountBody, frozen=True):
    """A request, with the fields that are checked here. `session_id` and `background` are ours."""

    max_tokens: int | None = None
    stream: bool | None = False
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    thread: Thread | None = None
    session_id: str | None = None
    background: bool = False
    if_busy: Literal["reject", "queue", "interrupt"] = "reject"


_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_THOUGHTS = ("thinking", "redacted_thinking")
_OWN_THREADS = "message-threads-"
"""The beta of conversations that the server stores, which is supported."""


def to_chat(body: MessagesBody, fields: Mapping[str, Any], *, native: bool, betas: str | None = None) -> dict[str, Any]:
    """Return the request in OpenAI's shape.

    `fields` are all fields of the request: `body` has those that are read here. `betas` is its
    `anthropic-beta` header.
    """
    table, unknown = (FOR_ANTHROPIC, PASSED_ON) if native else (FOR_OTHERS, UNKNOWN)
    check_fields(fields, table, unknown)
    check_fields(fields.get("thread") or {}, THREAD, UNKNOWN, "thread.")
    if body.max_tokens is not None and body.max_tokens < 1:
        raise BadRequest("max_tokens is at least 1.", param="max_tokens")
    chat: dict[str, Any] = {
        "model": body.model,
        "messages": chat_messages(body, native=native),
        "session_id": body.session_id,
        "background": body.background,
        "if_busy": body.if_busy,
    }
    chat |= passed_on(fields, table, unknown)
    if native and betas:
        names = [name.strip() for name in betas.split(",")]
        chat["anthropic_beta"] = [name for name in names if name and not name.startswith(_OWN_THREADS)]
    return chat | _params(body, native) | _tools(body, native) | ({} if native else _output(body))


def as_sent(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conversation as it was sent, for a native upstream.

    Thinking without a signature is left out: it comes from another model, and Anthropic would refuse it.
    """
    sent = {name: fields[name] for name in ("system", "tools", "tool_choice") if fields.get(name)}
    return sent | {"messages": [_without_unsigned(message) for message in fields["messages"]]}


def _without_unsigned(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    kept = [block for block in content if not (block.get("type") == "thinking" and not block.get("signature"))]
    return message if len(kept) == len(content) else {**message, "content": kept}


def _params(body: MessagesBody, native: bool) -> dict[str, Any]:
    user = (body.metadata or {}).get("user_id")
    params = {
        "max_tokens": body.max_tokens,
        "stop": body.stop_sequences or None,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "user": user if isinstance(user, str) else None,
        "top_k": body.top_k,
        "thinking": body.thinking if native else None,
        "service_tier": body.service_tier if native else None,
    }
    return {name: value for name, value in params.items() if value is not None}


# The form of the answer, for upstreams of OpenAI's dialect.

DEFAULT_EFFORT = "high"
"""The effort of Anthropic's models by default. Claude Code sends it in every request, so it is not passed on."""


def _output(body: MessagesBody) -> dict[str, Any]:
    config = body.output_config or {}
    output: dict[str, Any] = {}
    if form := config.get("format") or body.output_format:
        output["response_format"] = _response_format(form)
    if config.get("effort") not in (None, DEFAULT_EFFORT):
        output["reasoning_effort"] = config["effort"]
    return output


def _response_format(form: Any) -> dict[str, Any]:
    match form:
        case {"type": "json_schema", "schema": dict(schema)}:
            return {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}
    raise BadRequest("A format has the type json_schema and a schema.", param="output_config.format")


# Tools.


def _tools(body: MessagesBody, native: bool) -> dict[str, Any]:
    if not body.tools:
        return {}
    tools = [_tool(tool, f"tools[{place}]", native) for place, tool in enumerate(body.tools)]
    choice = body.tool_choice or {}
    fields: dict[str, Any] = {"tools": tools}
    if choice:
        fields["tool_choice"] = _tool_choice(choice)
    if choice.get("disable_parallel_tool_use") is True:
        fields["parallel_tool_calls"] = False
    return fields


def _tool(tool: _Block, param: str, native: bool) -> _Block:
    name, schema = tool.get("name"), tool.get("input_schema")
    if isinstance(name, str) and isinstance(schema, dict):
        return _function(tool, native)
    if native and isinstance(tool.get("type"), str):
        return tool
    raise BadRequest(
        "A tool has a name and an input_schema. Tools that Anthropic runs itself need one of its own models.",
        param=param,
    )


def _function(tool: _Block, native: bool) -> _Block:
    """Return a tool of the client; for Anthropic's models with the fields that only they know."""
    described = {"description": tool["description"]} if isinstance(tool.get("description"), str) else {}
    strict = {"strict": True} if tool.get("strict") is True else {}
    function = {"name": tool["name"], **described, "parameters": tool["input_schema"], **strict}
    if native:
        translated = ("type", "name", "description", "input_schema", "strict")
        return {**{name: value for name, value in tool.items() if name not in translated}, **_as_function(function)}
    if isinstance(examples := tool.get("input_examples"), list) and examples:
        text = "\n".join(["Examples of its input:", *(json.dumps(example, ensure_ascii=False) for example in examples)])
        function["description"] = "\n\n".join(filter(None, [function.get("description"), text]))
    return _as_function(function)


def _as_function(function: _Block) -> _Block:
    return {"type": "function", "function": function}


def _tool_choice(choice: _Block) -> Any:
    kind = choice.get("type")
    if kind == "tool" and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": choice["name"]}}
    if not isinstance(kind, str) or kind not in _TOOL_CHOICES:
        raise BadRequest("tool_choice.type is auto, any, none, or tool with a name.", param="tool_choice")
    return _TOOL_CHOICES[kind]


# Messages.


def chat_messages(body: CountBody, *, native: bool) -> list[dict[str, Any]]:
    """Return the system message and the turns."""
    messages: list[dict[str, Any]] = []
    if body.system:
        messages.append({"role": "system", "content": _content(_blocks(body.system), "system", native)})
    for place, message in enumerate(body.messages):
        messages += _turn(message, f"messages[{place}].content", native)
    return messages


def _blocks(content: _Content) -> list[_Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _turn(message: MessageParam, where: str, native: bool) -> list[dict[str, Any]]:
    blocks = _blocks(message.content)
    if message.role == "assistant":
        chat = _assistant(blocks, where, native)
        return [chat] if blocks and (chat["content"] is None or chat["content"] or len(chat) > 2) else []
    results = [_result(block, where, native) for block in blocks if block.get("type") == "tool_result"]
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    if message.role == "system":
        return [{"role": "system", "content": _content(rest, where, native), **(PLACED if native else {})}]
    return [*results, {"role": "user", "content": _content(rest, where, native)}] if rest or not results else results


def _assistant(blocks: Sequence[_Block], where: str, native: bool) -> dict[str, Any]:
    """Return an assistant message with its calls; for Anthropic's models with its thinking."""
    thoughts = [block for block in blocks if block.get("type") in _THOUGHTS]
    calls = [_call(block, where, native) for block in blocks if block.get("type") == "tool_use"]
    rest = [block for block in blocks if block.get("type") not in (*_THOUGHTS, "tool_use")]
    if all(block.get("type") == "text" for block in rest):
        content: Any = "".join(_text(block, where) for block in rest) or (None if calls else "")
    else:
        content = [_part(block, where, native) for block in rest]
    message: dict[str, Any] = {"role": "assistant", "content": content}
    signed = [block for block in thoughts if block.get("signature") or block.get("data")] if native else []
    return message | openai_thoughts(signed) | ({"tool_calls": calls} if calls else {})


def _call(block: _Block, where: str, native: bool) -> dict[str, Any]:
    id, name, arguments = block.get("id"), block.get("name"), block.get("input", {})
    if not isinstance(id, str) or not isinstance(name, str):
        raise BadRequest("A tool_use block has an id and a name.", param=where)
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))},
        **_cache_mark(block, native),
    }


def _result(block: _Block, where: str, native: bool) -> dict[str, Any]:
    """Return a tool's result. A failure is a prefix of the text: OpenAI has no field for it."""
    id, content = block.get("tool_use_id"), block.get("content") or ""
    if not isinstance(id, str) or not isinstance(content, (str, list)):
        raise BadRequest("A tool_result block has a tool_use_id, and text or blocks as content.", param=where)
    result = _content(_checked(_blocks(content), where), where, native)
    if block.get("is_error") is True:
        result = f"Error: {result}" if isinstance(result, str) else [{"type": "text", "text": "Error:"}, *result]
    return {"role": "tool", "tool_call_id": id, "content": result, **_cache_mark(block, native)}


def _checked(blocks: list[Any], where: str) -> list[_Block]:
    if not all(isinstance(block, dict) for block in blocks):
        raise BadRequest("A block is an object with a type.", param=where)
    return blocks


def _content(blocks: Iterable[_Block], where: str, native: bool) -> _Content:
    """Return blocks as OpenAI's parts, or as a string if they are text alone.

    Anthropic's models get the blocks unchanged: joined blocks would miss its prompt cache.
    """
    parts = [_part(block, where, native) for block in blocks]
    if native and len(parts) > 1:
        return parts
    if all(part.keys() == {"type", "text"} for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _part(block: _Block, where: str, native: bool) -> _Block:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": _text(block, where), **_cache_mark(block, native)}
    if kind == "image" and (url := _image(block)):
        return {"type": "image_url", "image_url": {"url": url}, **_cache_mark(block, native)}
    if native and isinstance(kind, str):
        return block
    if kind == "document":
        return _document(block, where)
    if kind == "search_result":
        return _search_result(block, where)
    if kind == "image":
        raise BadRequest("An image's source is base64 with a media_type, or a url.", param=where)
    raise BadRequest(f"A block of type {kind!r} cannot be sent here.", param=where)


def _cache_mark(block: _Block, native: bool) -> _Block:
    """Return Anthropic's cache mark of a block. Other upstreams do not know it."""
    return {"cache_control": block["cache_control"]} if native and block.get("cache_control") else {}


def _text(block: _Block, where: str) -> str:
    text = block.get("text")
    if not isinstance(text, str):
        raise BadRequest("A text block has a text.", param=where)
    return text


def _image(block: _Block) -> str | None:
    """Return an image as a URL; None if its source is of another kind."""
    match block.get("source"):
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return f"data:{kind};base64,{data}"
        case {"type": "url", "url": str(url)}:
            return url
    return None


def _document(block: _Block, where: str) -> _Block:
    """Return a document of text as text."""
    match block.get("source"):
        case {"type": "text", "data": str(text)}:
            heading = [part for name in ("title", "context") if isinstance(part := block.get(name), str)]
            return {"type": "text", "text": "\n\n".join([*heading, text])}
    raise BadRequest("Documents other than text need one of Anthropic's own models.", param=where)


def _search_result(block: _Block, where: str) -> _Block:
    """Return a search result of the client as text."""
    texts = [_text(part, where) for part in _checked(block.get("content") or [], where)]
    heading = [part for name in ("title", "source") if isinstance(part := block.get(name), str)]
    return {"type": "text", "text": "\n\n".join([*heading, *texts])}


def estimated_tokens(chat: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None) -> int:
    """Return about how many tokens a request has."""
    return tokens_in(sum(len(json.dumps(each, ensure_ascii=False)) for each in [*chat, *(tools or ())]))
