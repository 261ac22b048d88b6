"""Rules for OpenAI's parameters, messages and tools in dialects into which they are translated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Unsupported
from ..fields import PASSED_ON, USED, Kinds, Rule, Shape, Table, harmless, refusal, refused, used
from ..prompt import Prompt
from ..prompt.openai_shape import OUR_OWN, prompt_of
from . import ChatRequest

__all__ = ["ONLY_OPENAIS", "WITH_PICTURES", "checked_prompt", "message_rules", "part_rules", "wants_pictures"]

_CHEAPER = harmless("It only makes a response cheaper.")

ONLY_OPENAIS: Table = {
    "prediction": harmless("It only makes a response quicker."),
    "prompt_cache_key": _CHEAPER,
    "prompt_cache_options": _CHEAPER,
    "prompt_cache_retention": _CHEAPER,
    "safety_identifier": harmless("It identifies the user to OpenAI."),
    "store": harmless("It controls what OpenAI stores."),
    "stream_options": harmless("The answer is always streamed with its usage."),
}
"""Parameters that only OpenAI's service uses. Without them, the answer of another service is the same."""

WITH_PICTURES = refused(
    "Only text and pictures can be passed on.", ["text"], ["image"], ["text", "image"], ["image", "text"]
)
"""What becomes of `modalities` where a model can answer with pictures."""


def wants_pictures(params: Mapping[str, Any]) -> bool:
    """Return whether a checked request asks for pictures."""
    match params:
        case {"modalities": [*kinds]}:
            return "image" in kinds
    return False


_OURS = {**dict.fromkeys(OUR_OWN, USED), "cache_control": _CHEAPER}
_ORDER = harmless("The order of the calls determines it.")
_DETAIL = harmless("It only affects how many tokens an image costs.")
_OF_A_PART: Table = {"type": USED, "cache_control": _CHEAPER, "prompt_cache_breakpoint": _CHEAPER}


def part_rules(who: str, *, detail: Rule = _DETAIL, sound: bool = False, files: bool = False) -> Kinds:
    """Return the rules of the parts of a message: text and pictures, and sound and files if the dialect has them."""
    unknown = refused(f"{who} does not have it.")

    def part(**fields: Rule) -> Shape:
        return Shape({**_OF_A_PART, **fields}, unknown)

    picture = Shape({"url": USED, "detail": detail}, unknown)
    shapes: dict[str, Shape | Rule] = {
        "text": part(text=USED),
        "refusal": part(refusal=USED),
        "image_url": part(image_url=used(picture)),
        "input_audio": refused(f"{who} accepts no audio."),
        "file": refused(f"{who} takes no files."),
    }
    if sound:
        shapes["input_audio"] = part(input_audio=used(Shape({"data": USED, "format": USED}, unknown)))
    if files:
        file_fields = {"file_data": USED, "filename": harmless("The file itself is sent.")}
        shapes["file"] = part(file=used(Shape({**file_fields, "file_id": refused("Send the file itself.")}, unknown)))
    return Kinds("type", shapes, unknown)


def message_rules(
    who: str, parts: Kinds, *, strict: Rule, custom: bool = False, call: Mapping[str, Rule] | None = None
) -> Table:
    """Return the rules of messages and tools for a dialect into which they are translated.

    `custom` means that the dialect has custom tools. `strict` is the rule of a function's field `strict`, and `call`
    has the rules of further fields of a tool call.
    """
    unknown = refused(f"{who} does not have it.")
    customs = USED if custom else refused(f"{who} takes no custom tools. Send a function with one string.")
    function = used(Shape({"name": USED, "arguments": USED}, unknown))
    described = used(Shape({"name": USED, "description": USED, "parameters": USED, "strict": strict}, unknown))
    beside = {"type": USED, "cache_control": _CHEAPER}
    calls: dict[str, Shape | Rule] = {
        "function": Shape({**beside, "id": USED, "index": _ORDER, "function": function, **(call or {})}, unknown),
        "custom": customs,
    }
    tools: dict[str, Shape | Rule] = {"function": Shape({**beside, "function": described}, unknown), "custom": customs}
    return {
        "messages": used(_messages(who, parts, Kinds("type", calls, unknown, default="function"))),
        "tools": used(Kinds("type", tools, PASSED_ON)),
    }


def _messages(who: str, parts: Kinds, calls: Kinds) -> Kinds:
    unknown = refused(f"{who} does not have it.")
    name, thought = harmless("The role is enough."), harmless("Earlier reasoning is not sent back.")
    fields: dict[str, Rule] = {"role": USED, "content": used(parts), **_OURS}
    system = Shape({**fields, "name": name}, unknown)
    assistant: dict[str, Rule] = {
        **fields,
        "name": name,
        "refusal": USED,
        "tool_calls": used(calls),
        "audio": refused(f"{who} produces no audio.", {}),
        "function_call": refused(f"{who} takes no function_call. Send it in tool_calls."),
        "annotations": harmless("They name the sources of a text."),
        **dict.fromkeys(("reasoning", "reasoning_content", "reasoning_details"), thought),
    }
    roles: dict[str, Shape | Rule] = {
        "system": system,
        "developer": system,
        "user": Shape({**fields, "name": USED}, unknown),
        "assistant": Shape(assistant, unknown),
        "tool": Shape({**fields, "tool_call_id": USED, "name": harmless("The call contains the name.")}, unknown),
        "function": refused(f"{who} takes no role function. Send the role tool."),
    }
    return Kinds("role", roles, unknown)


def checked_prompt(request: ChatRequest, params: Table, unknown: Rule, rules: Table) -> Prompt:
    """Return the prompt. Raise `Unsupported` if a parameter, or a field of a message or a tool, is refused."""
    problem = refusal(request.params, params, unknown)
    if problem is None:
        asked = {name: value for name, value in request.params.items() if name == "tools"}
        problem = refusal({"messages": request.messages, **asked}, rules, PASSED_ON)
    if problem is not None:
        raise Unsupported(problem.message, problem.field)
    prompt = prompt_of(request.messages, request.params)
    for name in ("tools", "reasoning_effort"):
        if name in prompt.extra:
            raise Unsupported(f"{name} is not valid.", name)
    return prompt
