"""Requests to Anthropic's Messages API, translated to OpenAI's chat completions.

Pure. `native` means that the upstream speaks Anthropic's dialect. The rules of the fields, for such an upstream and for
every other, are in `fields.py`. A native upstream also gets the conversation as it was sent (`OwnMessages`), so that no
block is lost. Other models do not get thinking blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ...asks.own import OwnMessages
from ...errors import BadRequest
from ...fields import PASSED_ON, check_fields, passed_on
from ...pricing import tokens_in
from ...prompt.openai_shape import PLACED, openai_thoughts
from .blocks import (
    AnyBlock,
    DocumentBlock,
    ImageBlock,
    OtherBlock,
    ResultBlock,
    SearchResult,
    TextBlock,
    Thinking,
    ToolUse,
    is_unsigned,
    read_blocks,
)
from .fields import FOR_ANTHROPIC, FOR_OTHERS, THREAD, UNKNOWN

_Fields = dict[str, Any]
_Content = str | list[_Fields]


class MessageParam(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: _Content


class Thread(msgspec.Struct, frozen=True):
    """A conversation that the server stores: it begins with a request, or continues after a message."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class ChoiceParam(msgspec.Struct, frozen=True):
    """The choice of a tool."""

    type: Any = None
    name: Any = None
    disable_parallel_tool_use: Any = None


class Metadata(msgspec.Struct, frozen=True):
    """What a client says about its request."""

    user_id: Any = None


class OutputConfig(msgspec.Struct, frozen=True):
    """The format of the answer, and its effort."""

    format: Any = None
    effort: Any = None


class CountBody(msgspec.Struct, frozen=True):
    """The request of a token count."""

    messages: list[MessageParam]
    model: str | None = None
    system: _Content | None = None
    tools: list[_Fields] | None = None
    tool_choice: ChoiceParam | None = None
    thinking: dict[str, Any] | None = None


class MessagesBody(CountBody, frozen=True):
    """A request, with the fields that are checked here. `session_id` and `background` are ours."""

    max_tokens: int | None = None
    stream: bool | None = False
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: Metadata | None = None
    service_tier: str | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None
    thread: Thread | None = None
    session_id: str | None = None
    background: bool = False
    if_busy: Literal["reject", "queue", "interrupt"] = "reject"


_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
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


def own_messages(fields: Mapping[str, Any]) -> OwnMessages:
    """Return the conversation as it was sent, for a native upstream.

    Thinking without a signature is left out: it comes from another model, and Anthropic would refuse it.
    """
    rest = {name: fields[name] for name in ("system", "tools", "tool_choice") if fields.get(name)}
    return OwnMessages(messages=[_without_unsigned(message) for message in fields["messages"]], **rest)


def _without_unsigned(message: Any) -> Any:
    match message:
        case {"content": list(blocks)}:
            return {**message, "content": [block for block in blocks if not is_unsigned(block)]}
    return message


def _params(body: MessagesBody, native: bool) -> dict[str, Any]:
    user = body.metadata and body.metadata.user_id
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
    config = body.output_config or OutputConfig()
    output: dict[str, Any] = {}
    if form := config.format or body.output_format:
        output["response_format"] = _response_format(form)
    if config.effort not in (None, DEFAULT_EFFORT):
        output["reasoning_effort"] = config.effort
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
    fields: dict[str, Any] = {"tools": tools}
    if body.tool_choice is not None:
        fields |= _tool_choice(body.tool_choice)
    return fields


class _Tool(msgspec.Struct, frozen=True):
    """A tool of the client."""

    name: str
    input_schema: _Fields
    description: Any = None
    strict: Any = None
    input_examples: Any = None


def _tool(fields: _Fields, param: str, native: bool) -> _Fields:
    try:
        tool = msgspec.convert(fields, _Tool)
    except msgspec.ValidationError:
        match fields:
            case {"type": str()} if native:
                return fields
        raise BadRequest(
            "A tool has a name and an input_schema. Tools that Anthropic runs itself need one of its own models.",
            param=param,
        ) from None
    translated = ("type", *_Tool.__struct_fields__[:-1])
    own = {name: value for name, value in fields.items() if name not in translated} if native else {}
    return {**own, "type": "function", "function": _function(tool, native)}


def _function(tool: _Tool, native: bool) -> _Fields:
    """Return a tool as a function. Anthropic's models get its examples as they were sent."""
    texts = [tool.description] if isinstance(tool.description, str) else []
    if not native and isinstance(tool.input_examples, list) and tool.input_examples:
        examples = [json.dumps(example, ensure_ascii=False) for example in tool.input_examples]
        texts = [*filter(None, texts), "\n".join(["Examples of its input:", *examples])]
    described = {"description": "\n\n".join(texts)} if texts else {}
    strict = {"strict": True} if tool.strict is True else {}
    return {"name": tool.name, **described, "parameters": tool.input_schema, **strict}


def _tool_choice(choice: ChoiceParam) -> _Fields:
    match choice:
        case ChoiceParam("tool", str(name)):
            chosen: Any = {"type": "function", "function": {"name": name}}
        case ChoiceParam(str(kind)) if kind in _TOOL_CHOICES:
            chosen = _TOOL_CHOICES[kind]
        case _:
            raise BadRequest("tool_choice.type is auto, any, none, or tool with a name.", param="tool_choice")
    in_turn = {"parallel_tool_calls": False} if choice.disable_parallel_tool_use is True else {}
    return {"tool_choice": chosen, **in_turn}


# Messages.


def chat_messages(body: CountBody, *, native: bool) -> list[dict[str, Any]]:
    """Return the system message and the turns."""
    messages: list[dict[str, Any]] = []
    if body.system:
        blocks = read_blocks(body.system, "system", "system", native=native)
        messages.append({"role": "system", "content": _content(blocks, native)})
    for place, message in enumerate(body.messages):
        messages += _turn(message, f"messages[{place}].content", native)
    return messages


def _turn(message: MessageParam, where: str, native: bool) -> list[_Fields]:
    blocks = read_blocks(message.content, message.role, where, native=native)
    if message.role == "assistant":
        chat = _assistant(blocks, native)
        return [chat] if blocks and (chat["content"] is None or chat["content"] or len(chat) > 2) else []
    results = [_result(block, where, native) for block in blocks if isinstance(block, ResultBlock)]
    rest = [block for block in blocks if not isinstance(block, ResultBlock)]
    if message.role == "system":
        return [{"role": "system", "content": _content(rest, native), **(PLACED if native else {})}]
    return [*results, {"role": "user", "content": _content(rest, native)}] if rest or not results else results


def _assistant(blocks: Sequence[AnyBlock], native: bool) -> _Fields:
    """Return an assistant message with its calls; for Anthropic's models with its thinking."""
    calls = [_call(block, native) for block in blocks if isinstance(block, ToolUse)]
    rest = [block for block in blocks if not isinstance(block, Thinking | ToolUse)]
    if all(isinstance(block, TextBlock) for block in rest):
        content: Any = "".join(block.text for block in rest if isinstance(block, TextBlock)) or (None if calls else "")
    else:
        content = [_part(block, native) for block in rest]
    signed = [block.sent for block in blocks if isinstance(block, Thinking) and block.is_signed] if native else []
    message: _Fields = {"role": "assistant", "content": content}
    return message | openai_thoughts(signed) | ({"tool_calls": calls} if calls else {})


def _call(block: ToolUse, native: bool) -> _Fields:
    arguments = json.dumps(block.input, ensure_ascii=False, separators=(",", ":"))
    function = {"name": block.name, "arguments": arguments}
    return {"id": block.id, "type": "function", "function": function, **_cache_mark(block.cache_control, native)}


def _result(block: ResultBlock, where: str, native: bool) -> _Fields:
    """Return a tool's result. A failure is a prefix of the text: OpenAI has no field for it."""
    result = _content(read_blocks(block.content or "", "result", where, native=native), native)
    if block.is_error is True:
        result = f"Error: {result}" if isinstance(result, str) else [{"type": "text", "text": "Error:"}, *result]
    marked = _cache_mark(block.cache_control, native)
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": result, **marked}


def _content(blocks: Iterable[AnyBlock], native: bool) -> _Content:
    """Return blocks as OpenAI's parts, or as a string if they are text alone.

    Anthropic's models get the blocks unchanged: joined blocks would miss its prompt cache.
    """
    parts = [part for block in blocks for part in _parts(block, native)]
    if native and len(parts) > 1:
        return parts
    if all(part.keys() == {"type", "text"} for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _parts(block: AnyBlock, native: bool) -> list[_Fields]:
    match block:
        case DocumentBlock(file=dict(file), context=context):
            return [*([{"type": "text", "text": context}] if isinstance(context, str) else []), file]
    return [_part(block, native)]


def _part(block: AnyBlock, native: bool) -> _Fields:
    match block:
        case TextBlock(text):
            return {"type": "text", "text": text, **_cache_mark(block.cache_control, native)}
        case ImageBlock(source):
            return {"type": "image_url", "image_url": {"url": source.url}, **_cache_mark(block.cache_control, native)}
        case DocumentBlock() | SearchResult():
            return {"type": "text", "text": "\n\n".join(text for text in block.texts if isinstance(text, str))}
        case OtherBlock(sent) | Thinking(sent):
            return sent
    raise TypeError("a call or a result is no part of a message")


def _cache_mark(mark: Any, native: bool) -> _Fields:
    """Return Anthropic's cache mark of a block. Other upstreams do not know it."""
    return {"cache_control": mark} if native and mark else {}


def estimated_tokens(chat: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None) -> int:
    """Return about how many tokens a request has."""
    return tokens_in(sum(len(json.dumps(each, ensure_ascii=False)) for each in [*chat, *(tools or ())]))
