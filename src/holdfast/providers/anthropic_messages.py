"""A request in OpenAI's shape, said in the words of Anthropic's Messages API.

Pure. Parameters without a counterpart (a seed, a penalty, a response format) are left out, as clients send them by
habit; what would be answered wrongly if it were lost (several choices, a part of a message) is refused. Parts that are
in Anthropic's own shape already are passed on.

- System and developer messages go to `system`, wherever they stand.
- Neighbours of one role become one message, and tool results are the user's: they stand first, as Anthropic demands.
- No block is empty or blank, and no message without blocks: Anthropic refuses both.
- Thoughts stand before the calls that they led to. Where they are gone (a restart, a client that does not keep them)
  the results of those calls are sent without asking for thinking: Anthropic would refuse them else.
- An assistant's message that comes last is gone on with, and must not end in white space.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import ProviderRefused
from . import ChatRequest

__all__ = ["body_of", "end_of_prefill"]

Block = dict[str, Any]

SAID_OTHERWISE = frozenset(
    {"max_tokens", "max_completion_tokens", "stop", "tools", "tool_choice", "parallel_tool_calls", "metadata", "user"}
)
"""Parameters that are translated one by one."""

OPENAI_ONLY = frozenset(
    {
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "modalities",
        "n",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "store",
        "stream_options",
        "top_logprobs",
        "verbosity",
        "web_search_options",
    }
)
"""Parameters that Anthropic would refuse. Any other that is not known here is passed on."""

_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_SERVICE_TIERS = ("auto", "standard_only")
_NATIVE_BLOCKS = frozenset({"image", "document", "search_result", "thinking", "redacted_thinking", "tool_use"})
_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)(?:;[^,;]+)*;base64,(?P<data>.*)", re.DOTALL | re.IGNORECASE)
_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def body_of(request: ChatRequest, *, max_tokens: int) -> dict[str, Any]:
    """Return the body of the request; `max_tokens` is for callers who name no limit, since Anthropic wants one."""
    params = {name: value for name, value in request.params.items() if value is not None}
    _refuse_several_choices(params)
    body = {name: value for name, value in params.items() if name not in SAID_OTHERWISE | OPENAI_ONLY}
    if body.get("service_tier") not in _SERVICE_TIERS:
        body.pop("service_tier", None)
    system, messages = _conversation(request.messages)
    if _thoughts_are_gone(messages) and (body.get("thinking") or {}).get("type") == "enabled":
        del body["thinking"]
    return (
        body
        | ({"system": system} if system else {})
        | _limits(params, max_tokens)
        | _tools(params)
        | _metadata(params)
        | {"model": request.model, "messages": messages, "stream": True}
    )


def _unsupported(message: str, param: str) -> ProviderRefused:
    refused = ProviderRefused(message, code="unsupported", status=400)
    refused.param = param
    return refused


# parameters


def _refuse_several_choices(params: Mapping[str, Any]) -> None:
    if params.get("n", 1) != 1:
        raise _unsupported("Anthropic's models give one answer to a request: n must be 1.", "n")


def _limits(params: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    stop = params.get("stop") or []
    limits = {"max_tokens": params.get("max_completion_tokens", params.get("max_tokens", max_tokens))}
    return limits | ({"stop_sequences": [stop] if isinstance(stop, str) else stop} if stop else {})


def _tools(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tools and how they are to be chosen; Anthropic refuses a choice where there are none."""
    tools = params.get("tools") or []
    if not tools:
        return {}
    choice = _tool_choice(params.get("tool_choice"))
    if params.get("parallel_tool_calls") is False and choice.get("type") != "none":
        choice = {"type": "auto"} | choice | {"disable_parallel_tool_use": True}
    return {"tools": [_tool(tool) for tool in tools]} | ({"tool_choice": choice} if choice else {})


def _tool(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        return tool  # in Anthropic's shape already, or nothing that we could say better
    described = {"name": function.get("name"), "description": function.get("description")}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {name: value for name, value in described.items() if value} | {"input_schema": schema}


def _tool_choice(choice: Any) -> dict[str, Any]:
    if isinstance(choice, str):
        return {"type": _TOOL_CHOICES.get(choice, choice)}
    if not isinstance(choice, dict):
        return {}
    function = choice.get("function")
    return {"type": "tool", "name": function.get("name")} if isinstance(function, dict) else choice


def _metadata(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return who asks. OpenAI's metadata may be anything, and Anthropic refuses what is not its own."""
    metadata = params.get("metadata")
    if isinstance(metadata, dict) and "user_id" in metadata:
        return {"metadata": metadata}
    return {"metadata": {"user_id": params["user"]}} if params.get("user") else {}


# messages


def _conversation(messages: Sequence[Mapping[str, Any]]) -> tuple[str | list[Block], list[Block]]:
    """Return the system's words, and the turns of user and assistant."""
    system: list[Block] = []
    turns: list[Block] = []
    for message in messages:
        role, blocks = _said(message)
        if role == "system":
            system += blocks
        elif turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        turn["content"].sort(key=_comes_later)
    _end_well(turns, messages)
    return _plain(system), turns


def _comes_later(block: Block) -> bool:
    """Order the user's blocks (the assistant has no results): Anthropic wants results right after their calls."""
    return bool(block["type"] != "tool_result")


def _said(message: Mapping[str, Any]) -> tuple[str, list[Block]]:
    """Return who says what, as Anthropic sees it."""
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer":
            return "system", _blocks(content)
        case "assistant":
            thoughts, calls = message.get("thoughts") or (), message.get("tool_calls") or ()
            return "assistant", [*thoughts, *_blocks(content), *map(_tool_use, calls)]
        case "tool":
            return "user", [_tool_result(message)]
        case _:
            return "user", _blocks(content)


def _thoughts_are_gone(turns: Sequence[Block]) -> bool:
    """Tell whether results are sent for calls before which no thought stands."""
    if len(turns) < 2 or turns[-1]["content"][0]["type"] != "tool_result":
        return False
    return turns[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _plain(system: list[Block]) -> str | list[Block]:
    """Return a string where a string says all."""
    is_plain = all(block.keys() == {"type", "text"} for block in system)
    return "\n\n".join(block["text"] for block in system) if is_plain else system


def _end_well(turns: list[Block], messages: Sequence[Mapping[str, Any]]) -> None:
    """See to it that the last turn is the caller's last message, and without white space at its end if it goes on."""
    if not turns or turns[-1]["role"] != "assistant":
        return
    if messages[-1].get("role") not in ("assistant", "system", "developer"):
        raise _unsupported("Anthropic's models cannot be asked with an empty message.", "messages")
    blocks = turns[-1]["content"]
    if blocks[-1]["type"] == "text":
        blocks[-1] = blocks[-1] | {"text": blocks[-1]["text"].rstrip()}


def end_of_prefill(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the white space at the end of a message that is gone on with: Anthropic is not told of it."""
    last = messages[-1] if messages else {}
    content = last.get("content")
    if last.get("role") != "assistant" or last.get("tool_calls") or not isinstance(content, str):
        return ""
    return content[len(content.rstrip()) :] if content.strip() else ""


# blocks


def _blocks(content: Any) -> list[Block]:
    """Return a message's content as blocks, without the blank ones."""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content or [], list):
        raise _unsupported("A message's content must be a string or a list of parts.", "messages")
    return [block for part in content or () if not _is_blank(block := _block(part))]


def _is_blank(block: Block) -> bool:
    return block["type"] == "text" and not block["text"].strip()


def _block(part: Any) -> Block:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "refusal"):
        cached = {"cache_control": part["cache_control"]} if part.get("cache_control") else {}
        return {"type": "text", "text": str(part.get(kind) or ""), **cached}
    if kind == "image_url":
        return {"type": "image", "source": _image_source(part.get("image_url"))}
    if kind in _NATIVE_BLOCKS:
        return dict(part)
    raise _unsupported(f"Anthropic's models take no part of the type {kind!r}.", "messages")


def _image_source(image: Any) -> Block:
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise _unsupported("An image must have a URL.", "messages")
    if found := _DATA_URL.fullmatch(url.strip()):
        media_type = found["type"].lower().replace("image/jpg", "image/jpeg")
        return {"type": "base64", "media_type": media_type, "data": found["data"]}
    if url.lower().startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    raise _unsupported("An image's URL must be http(s), or data: in base64.", "messages")


def _tool_use(call: Any) -> Block:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise _unsupported("A tool call must be a call of a function.", "messages")
    return {
        "type": "tool_use",
        "id": _id(call.get("id")),
        "name": function.get("name"),
        "input": _input(function.get("arguments")),
    }


def _input(arguments: Any) -> dict[str, Any]:
    """Return the arguments as the object that Anthropic wants; a model may have written something that is none."""
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {"arguments": arguments}
    if isinstance(arguments, dict):
        return arguments
    return {"arguments": arguments} if arguments else {}


def _tool_result(message: Mapping[str, Any]) -> Block:
    content = _blocks(message.get("content"))
    result = {"type": "tool_result", "tool_use_id": _id(message.get("tool_call_id"))}
    return result | ({"content": _result_content(content)} if content else {})


def _result_content(blocks: Iterable[Block]) -> str | list[Block]:
    blocks = list(blocks)
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0].keys() == {"type", "text"} else blocks


def _id(id: Any) -> str:
    """Return an id with the characters that Anthropic allows: a call may come from another model's history."""
    return _NOT_IN_AN_ID.sub("_", str(id or "")) or "call"
