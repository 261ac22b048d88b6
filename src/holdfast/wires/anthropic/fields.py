"""Rules for the fields of requests to Anthropic's Messages API, for Anthropic's models and for all others."""

from __future__ import annotations

from ...fields import PASSED_ON, USED, Kinds, Rule, Shape, Table, harmless, refused, used

FOR_ANTHROPIC: Table = {
    # read by us, and sent as they are
    "model": USED,
    "messages": USED,
    "max_tokens": USED,
    "system": USED,
    "stream": USED,
    "stop_sequences": USED,
    "temperature": USED,
    "top_p": USED,
    "top_k": USED,
    "metadata": USED,
    "tools": USED,
    "tool_choice": USED,
    "thinking": USED,
    "service_tier": USED,
    # ours
    "session_id": USED,
    "background": USED,
    "if_busy": USED,
    "thread": USED,
    # Anthropic's own
    "output_config": PASSED_ON,
    "output_format": PASSED_ON,
    "cache_control": PASSED_ON,
    "context_management": PASSED_ON,
    "mcp_servers": PASSED_ON,
    "container": PASSED_ON,
    "inference_geo": PASSED_ON,
    "speed": PASSED_ON,
    "diagnostics": PASSED_ON,
    "fallback_credit_token": PASSED_ON,
    "compaction": refused("A message of this server has no compaction block. Send the whole conversation."),
    "fallbacks": refused(
        "The response could not name the model that answered. Name fallbacks in the server's settings."
    ),
}
"""For an upstream that speaks this dialect itself. A field that is not known here is passed on."""

UNKNOWN = refused("This server does not know it, and the model's upstream is not Anthropic's.")
"""The rule of unknown fields, for every other upstream."""

_CHEAPER = harmless("It makes a later request cheaper.")
_NOT_SHOWN = harmless("Earlier reasoning is not sent to the model.")
_ONLY_THEIRS = "Only Anthropic's own models have it."
_CALLED_FROM_CODE = refused("Only Anthropic's own models call tools from code.", {"type": "direct"})
_CITES = used(Shape({"enabled": refused("An answer of this server has no place for citations.", False)}, UNKNOWN))

_TEXT = Shape(
    {
        "type": USED,
        "text": USED,
        "cache_control": _CHEAPER,
        "citations": harmless("They name the sources of an earlier answer."),
    },
    UNKNOWN,
)
_IMAGE = Shape(
    {
        "type": USED,
        "source": used(
            Kinds(
                "type",
                {
                    "base64": Shape({"type": USED, "media_type": USED, "data": USED}, UNKNOWN),
                    "url": Shape({"type": USED, "url": USED}, UNKNOWN),
                },
                refused("Send the image itself, or its URL."),
            )
        ),
        "cache_control": _CHEAPER,
        "transformations": harmless("It only concerns images that are too large for Anthropic."),
    },
    UNKNOWN,
)
_DOCUMENT = Shape(
    {
        "type": USED,
        "source": used(
            Kinds(
                "type",
                dict.fromkeys(("text", "base64"), Shape({"type": USED, "media_type": USED, "data": USED}, UNKNOWN)),
                refused("Such documents need one of Anthropic's own models."),
            )
        ),
        "title": USED,
        "context": USED,
        "citations": _CITES,
        "cache_control": _CHEAPER,
    },
    UNKNOWN,
)
_SEARCH_RESULT = Shape(
    {
        "type": USED,
        "title": USED,
        "source": USED,
        "content": used(Kinds("type", {"text": _TEXT}, UNKNOWN)),
        "citations": _CITES,
        "cache_control": _CHEAPER,
    },
    UNKNOWN,
)
_CONTENT = {"text": _TEXT, "image": _IMAGE, "document": _DOCUMENT, "search_result": _SEARCH_RESULT}
_BLOCKS = Kinds(
    "type",
    {
        **_CONTENT,
        "thinking": _NOT_SHOWN,
        "redacted_thinking": _NOT_SHOWN,
        "tool_use": Shape(
            {
                "type": USED,
                "id": USED,
                "name": USED,
                "input": USED,
                "caller": _CALLED_FROM_CODE,
                "toolset_name": refused(_ONLY_THEIRS),
                "cache_control": _CHEAPER,
            },
            UNKNOWN,
        ),
        "tool_result": Shape(
            {
                "type": USED,
                "tool_use_id": USED,
                "content": used(Kinds("type", _CONTENT, refused(_ONLY_THEIRS))),
                "is_error": USED,
                "toolset_name": refused(_ONLY_THEIRS),
                "cache_control": _CHEAPER,
            },
            UNKNOWN,
        ),
    },
    refused("A block of this type needs one of Anthropic's own models."),
)
_MESSAGE = Shape({"role": USED, "content": used(_BLOCKS)}, UNKNOWN)
_OF_THE_SYSTEM = {"clear_at": refused(_ONLY_THEIRS), "output_config": refused(_ONLY_THEIRS, {})}
_MESSAGES = Kinds(
    "role",
    {"user": _MESSAGE, "assistant": _MESSAGE, "system": Shape({**_MESSAGE.fields, **_OF_THE_SYSTEM}, UNKNOWN)},
    USED,
)

_CLIENT_TOOL: Table = {
    "type": USED,
    "name": USED,
    "description": USED,
    "input_schema": USED,
    "input_examples": USED,
    "strict": USED,
    "cache_control": _CHEAPER,
    "eager_input_streaming": harmless("It only affects how soon the input of a call arrives."),
    "defer_loading": harmless("The model gets the tool from the start."),
    "allowed_callers": refused("Only Anthropic's own models call tools from code.", [], ["direct"]),
}
_THEIR_TOOL = refused("A tool that Anthropic has defined needs one of its own models.")
_TOOLS = Kinds("type", {"custom": Shape(_CLIENT_TOOL, UNKNOWN)}, _THEIR_TOOL, default="custom")
_PARALLEL = {"type": USED, "disable_parallel_tool_use": USED}

FOR_OTHERS: Table = {
    **FOR_ANTHROPIC,
    "messages": used(_MESSAGES),
    "system": used(Kinds("type", {"text": _TEXT}, UNKNOWN)),
    "tools": used(_TOOLS),
    "tool_choice": used(
        Kinds(
            "type",
            {
                "auto": Shape(_PARALLEL, UNKNOWN),
                "any": Shape(_PARALLEL, UNKNOWN),
                "tool": Shape({**_PARALLEL, "name": USED}, UNKNOWN),
                "none": Shape({"type": USED}, UNKNOWN),
            },
            USED,
        )
    ),
    "metadata": used(Shape({"user_id": USED}, UNKNOWN)),
    "output_config": used(
        Shape(
            {
                "format": used(Shape({"type": USED, "schema": USED}, UNKNOWN)),
                "effort": Rule(
                    "used", "`high` is left out: it is Anthropic's default, and Claude Code always sends it."
                ),
                "task_budget": refused("Only Anthropic's own models keep a budget."),
            },
            UNKNOWN,
        )
    ),
    "output_format": USED,
    "context_management": used(
        Shape(
            {
                "edits": used(
                    Kinds(
                        "type",
                        {"clear_thinking_*": _NOT_SHOWN},
                        refused("Only Anthropic's own models edit their context."),
                    )
                )
            },
            UNKNOWN,
        )
    ),
    "cache_control": _CHEAPER,
    "thinking": harmless("It is a budget. Other models reason as their settings say."),
    "service_tier": harmless("It only affects speed and price."),
    "speed": harmless("It only affects speed and price."),
    "diagnostics": harmless("It asks for diagnostics of the cache."),
    "fallback_credit_token": harmless("It only affects the price."),
    "mcp_servers": refused("Only Anthropic's own models connect to MCP servers by themselves.", []),
    "container": refused("Only Anthropic's own models have containers."),
    "inference_geo": refused("The region of other upstreams cannot be chosen."),
}
"""For every other upstream. A field that is not known here is refused."""

THREAD: Table = {"type": USED, "previous_message_id": USED}
"""The fields of `thread`."""
