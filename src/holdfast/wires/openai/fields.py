"""Rules for the fields of requests to OpenAI's chat completions and Responses API."""

from __future__ import annotations

from ...fields import PASSED_ON, USED, Kinds, Rule, Shape, Table, harmless, refused, used

CHAT_FIELDS: Table = {
    # read by us
    "model": USED,
    "messages": USED,
    "stream": USED,
    "stream_options": used(
        Shape({"include_usage": USED, "include_obfuscation": harmless("It only controls padding.")}, PASSED_ON)
    ),
    # ours
    "session_id": USED,
    "background": USED,
    "if_busy": USED,
    # for the model's upstream, which may refuse it: see the table of each upstream
    **dict.fromkeys(
        (
            "audio",
            "frequency_penalty",
            "function_call",
            "functions",
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "max_tokens",
            "metadata",
            "modalities",
            "moderation",
            "n",
            "parallel_tool_calls",
            "prediction",
            "presence_penalty",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
            "reasoning_effort",
            "response_format",
            "safety_identifier",
            "seed",
            "service_tier",
            "stop",
            "store",
            "temperature",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "user",
            "verbosity",
            "web_search_options",
        ),
        PASSED_ON,
    ),
}
"""Chat completions. A field that is not known here is passed on. The fields of messages and tools are passed on too."""

# Responses.

_ON_THEIR_MACHINES = "OpenAI does it on its own machines."
_ELSEWHERE = "A conversation is a chain of responses here: send previous_response_id, or a conversation."
_CHEAPER = harmless("It makes a later request cheaper.")
_NOT_SHOWN = harmless("Earlier reasoning is not sent to the model.")
_EARLIER = harmless("It describes how an earlier answer ended, or its sources.")
_ASYNC = refused("Calls are answered in order.", False)
_CALLER = refused("No model here calls tools from code.", {"type": "direct"})
_CALLERS = refused("No model here calls tools from code.", [], ["direct"])
_UPLOADED = refused("There are no uploaded files. Send the file itself.")
_NOT_KNOWN = refused("This server does not know it.")

_PARTS = Kinds(
    "type",
    {
        "input_text": Shape({"type": USED, "text": USED, "prompt_cache_breakpoint": _CHEAPER}, _NOT_KNOWN),
        "output_text": Shape({"type": USED, "text": USED, "annotations": _EARLIER, "logprobs": _EARLIER}, _NOT_KNOWN),
        "text": Shape({"type": USED, "text": USED}, _NOT_KNOWN),
        "refusal": Shape({"type": USED, "refusal": USED}, _NOT_KNOWN),
        "input_image": Shape(
            {
                "type": USED,
                "image_url": USED,
                "detail": USED,
                "file_id": _UPLOADED,
                "prompt_cache_breakpoint": _CHEAPER,
            },
            _NOT_KNOWN,
        ),
        "input_file": Shape(
            {
                "type": USED,
                "file_data": USED,
                "filename": USED,
                "file_id": _UPLOADED,
                "file_url": refused("Files are not fetched. Send the file itself."),
                "detail": harmless("It only affects how many tokens a file costs."),
                "prompt_cache_breakpoint": _CHEAPER,
            },
            _NOT_KNOWN,
        ),
        "input_audio": Shape({"type": USED, "input_audio": USED}, _NOT_KNOWN),
    },
    _NOT_KNOWN,
)
_CALL: Table = {
    "type": USED,
    "id": USED,
    "call_id": USED,
    "name": USED,
    "namespace": USED,
    "status": USED,
    "caller": _CALLER,
    "async": _ASYNC,
}
_CALL_OUTPUT: Table = {
    "type": USED,
    "id": USED,
    "call_id": USED,
    "output": used(_PARTS),
    "status": _EARLIER,
    "name": harmless("The call contains it."),
    "namespace": harmless("The call contains it."),
    "caller": _CALLER,
}
_ITEMS = Kinds(
    "type",
    {
        "message": Shape(
            {
                "type": USED,
                "id": USED,
                "role": USED,
                "content": used(_PARTS),
                "status": _EARLIER,
                "phase": _EARLIER,
            },
            _NOT_KNOWN,
        ),
        "function_call": Shape({**_CALL, "arguments": USED}, _NOT_KNOWN),
        "function_call_output": Shape(_CALL_OUTPUT, _NOT_KNOWN),
        "custom_tool_call": Shape({**_CALL, "input": USED}, _NOT_KNOWN),
        "custom_tool_call_output": Shape(_CALL_OUTPUT, _NOT_KNOWN),
        "reasoning": _NOT_SHOWN,
        "item_reference": Shape({"type": USED, "id": USED}, _NOT_KNOWN),
        "compaction": Shape({"type": USED, "id": USED, "encrypted_content": USED}, _NOT_KNOWN),
    },
    refused(_ON_THEIR_MACHINES),
    default="message",
)

_OWN_TOOL: Table = {
    "type": USED,
    "name": USED,
    "description": USED,
    "async": _ASYNC,
    "allowed_callers": _CALLERS,
    "defer_loading": harmless("The model gets the tool from the start."),
}
_FUNCTION = Shape(
    {
        **_OWN_TOOL,
        "parameters": USED,
        "strict": USED,
        "output_schema": harmless("The model sees the output itself."),
    },
    _NOT_KNOWN,
)
_CUSTOM = Shape(
    {
        **_OWN_TOOL,
        "format": used(
            Kinds(
                "type",
                {
                    "text": Shape({"type": USED}, _NOT_KNOWN),
                    "grammar": Shape({"type": USED, "syntax": USED, "definition": USED}, _NOT_KNOWN),
                },
                _NOT_KNOWN,
            )
        ),
    },
    _NOT_KNOWN,
)
RUN_BY_OPENAI = (
    "code_interpreter",
    "file_search",
    "image_generation",
    "mcp",
    "programmatic_tool_calling",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)
"""Tools that OpenAI runs on its own machines. Coding agents declare them with every request, so they are left out; a
`tool_choice` that asks for one is refused."""
_LEFT_OUT = harmless("Coding agents declare it with every request. A tool_choice that asks for it is refused.")
_TOOLS: dict[str, Shape | Rule] = {
    "function": _FUNCTION,
    "custom": _CUSTOM,
    **dict.fromkeys(RUN_BY_OPENAI, _LEFT_OUT),
}
_TOOL_NOT_KNOWN = refused("Supported: tools of type function and custom.")
_IN_A_NAMESPACE = Kinds("type", _TOOLS, _TOOL_NOT_KNOWN)
_NAMESPACE = Shape(
    {
        "type": USED,
        "name": USED,
        "tools": used(_IN_A_NAMESPACE),
        "description": harmless("Each of its tools is described."),
    },
    _NOT_KNOWN,
)

RESPONSES: Table = {
    # read by us
    "background": USED,
    "conversation": used(Shape({"id": USED}, _NOT_KNOWN)),
    "include": USED,
    "input": used(_ITEMS),
    "instructions": USED,
    "max_output_tokens": USED,
    "metadata": USED,
    "model": USED,
    "previous_response_id": USED,
    "reasoning": used(
        Shape(
            {
                "effort": USED,
                "summary": USED,
                "generate_summary": USED,
                "context": _NOT_SHOWN,
                "mode": refused("The model's upstream decides how it thinks.", "auto", "standard"),
            },
            _NOT_KNOWN,
        )
    ),
    "store": USED,
    "stream": USED,
    "text": used(
        Shape(
            {
                "format": used(
                    Kinds(
                        "type",
                        {
                            "text": Shape({"type": USED}, _NOT_KNOWN),
                            "json_object": Shape({"type": USED}, _NOT_KNOWN),
                            "json_schema": Shape(
                                {"type": USED, "name": USED, "schema": USED, "strict": USED, "description": USED},
                                _NOT_KNOWN,
                            ),
                        },
                        refused("Supported: text, json_object and json_schema."),
                        default="text",
                    )
                ),
                "verbosity": USED,
            },
            _NOT_KNOWN,
        )
    ),
    "tool_choice": USED,
    "tools": used(Kinds("type", {**_TOOLS, "namespace": _NAMESPACE}, _TOOL_NOT_KNOWN)),
    "top_logprobs": USED,
    # the same in a chat
    "parallel_tool_calls": PASSED_ON,
    "prompt_cache_key": PASSED_ON,
    "prompt_cache_options": PASSED_ON,
    "prompt_cache_retention": PASSED_ON,
    "safety_identifier": PASSED_ON,
    "service_tier": PASSED_ON,
    "temperature": PASSED_ON,
    "top_p": PASSED_ON,
    "user": PASSED_ON,
    # left out
    "client_metadata": harmless("It identifies the client program to OpenAI."),
    "max_tool_calls": harmless("It counts calls of tools that OpenAI runs, and there are none."),
    "stream_options": harmless("It only controls padding."),
    # what is done elsewhere
    "access_programs": refused(_ON_THEIR_MACHINES),
    "context_management": refused(_ON_THEIR_MACHINES, []),
    "if_busy": refused(_ELSEWHERE, ""),
    "image": refused(_ON_THEIR_MACHINES),
    "moderation": refused(_ON_THEIR_MACHINES),
    "prompt": refused(_ON_THEIR_MACHINES),
    "session_id": refused(_ELSEWHERE, ""),
    "truncation": refused("The model's upstream refuses input that is too long.", "disabled"),
}
"""Responses. A field that is not known is passed on, as it may be the upstream's. One inside a field is refused."""
OVER_WEBSOCKET: Table = {
    "type": USED,
    "stream_id": USED,
    "generate": USED,
    "stream": refused("Every response is streamed here.", True),
    "background": refused("A response with `store: true` continues without its client.", False),
}
"""Responses over a WebSocket: the fields of a message that HTTP does not have, or treats differently."""
AS_OVER_HTTP = Rule("used", "As over HTTP.")

# Conversations.

CONVERSATIONS: Table = {"items": used(_ITEMS), "metadata": USED}
NOT_OF_A_CONVERSATION = refused("A conversation has items and metadata.")
