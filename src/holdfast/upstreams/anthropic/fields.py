"""Rules for the fields of a request in OpenAI's shape to Anthropic's models."""

from __future__ import annotations

from ...fields import PASSED_ON, USED, Kinds, Rule, Shape, Table, harmless, refused, used
from ..params import ONLY_OPENAIS

_NO_PENALTY = refused("Anthropic's models have no such penalty.", 0)
_NO_LOGPROBS = refused("Anthropic's models do not tell how likely their words were.", 0)

PARAMS: Table = {
    # translated
    "max_tokens": USED,
    "max_completion_tokens": USED,
    "stop": USED,
    "tools": USED,
    "tool_choice": USED,
    "parallel_tool_calls": USED,
    "response_format": USED,
    "reasoning_effort": USED,
    "user": USED,
    "metadata": Rule("used", "It is sent if it has a `user_id`, all that Anthropic knows, and left out otherwise."),
    "service_tier": Rule("used", "`auto` and `standard_only` are sent. Others only affect speed and price: left out."),
    "anthropic_beta": USED,
    # left out
    **ONLY_OPENAIS,
    "seed": harmless("OpenAI promises best effort only."),
    # features that Anthropic's models lack
    "audio": refused("Anthropic's models do not speak."),
    "modalities": refused("Anthropic's models answer in text.", ["text"]),
    "frequency_penalty": _NO_PENALTY,
    "presence_penalty": _NO_PENALTY,
    "logit_bias": refused("Anthropic's models take no bias.", {}),
    "logprobs": _NO_LOGPROBS,
    "top_logprobs": _NO_LOGPROBS,
    "functions": refused("Send tools instead.", []),
    "function_call": refused("Send tool_choice instead.", "auto", "none"),
    "moderation": refused("Only OpenAI has moderation."),
    "n": refused("Anthropic's models give one answer to a request.", 1),
    "verbosity": refused("Anthropic's models have no such setting.", "medium"),
    "web_search_options": refused("Send Anthropic's own web search tool in tools."),
}
"""Rules for OpenAI's parameters. An unknown one is passed on: it may be Anthropic's."""

# Inside messages and tools. Unknown fields are in Anthropic's shape already.

_THE_ROLE = harmless("The role is enough.")
_OF_A_PART: Table = {
    "type": USED,
    "cache_control": USED,
    "prompt_cache_breakpoint": harmless("It only makes a later request cheaper."),
}


def _shape(**fields: Rule) -> Shape:
    return Shape(fields, PASSED_ON)


def _kinds(by: str, default: str = "", **shapes: Shape | Rule) -> Kinds:
    return Kinds(by, shapes, PASSED_ON, default)


_IMAGE = _shape(url=USED, detail=harmless("It only affects how many tokens an image costs."))
_FILE = _shape(file_data=USED, filename=USED, file_id=refused("Send the file itself."))
_PARTS = _kinds(
    "type",
    text=_shape(**_OF_A_PART, text=USED),
    refusal=_shape(**_OF_A_PART, refusal=USED),
    image_url=_shape(**_OF_A_PART, image_url=used(_IMAGE)),
    file=_shape(**_OF_A_PART, file=used(_FILE)),
    input_audio=refused("Anthropic's models do not listen."),
)
_CALLS = _kinds(
    "type",
    "function",
    function=_shape(type=USED, id=USED, function=used(_shape(name=USED, arguments=USED))),
    custom=refused("Anthropic's models take no custom tools. Send a function with one string."),
)
_MESSAGE_FIELDS: Table = {"role": USED, "content": used(_PARTS)}
_OF_THE_SYSTEM = _shape(**_MESSAGE_FIELDS, name=_THE_ROLE)
_MESSAGES = _kinds(
    "role",
    system=_OF_THE_SYSTEM,
    developer=_OF_THE_SYSTEM,
    user=_shape(**_MESSAGE_FIELDS, name=USED),
    assistant=_shape(
        **_MESSAGE_FIELDS,
        name=_THE_ROLE,
        refusal=USED,
        tool_calls=used(_CALLS),
        audio=refused("Anthropic's models do not speak.", {}),
        function_call=refused("Anthropic's models take no function_call. Send it in tool_calls."),
    ),
    tool=_shape(**_MESSAGE_FIELDS, tool_call_id=USED),
    function=refused("Anthropic's models take no role function. Send the role tool."),
)
_FUNCTION = _shape(name=USED, description=USED, parameters=USED, strict=USED)
_TOOLS = _kinds("type", function=_shape(type=USED, function=used(_FUNCTION)), custom=PASSED_ON)
MESSAGE_RULES: Table = {"messages": used(_MESSAGES), "tools": used(_TOOLS)}
"""Rules for the fields of messages and tools."""
