"""Rules for the fields of requests of the AI SDK's `useChat`, and of AG-UI's clients."""

from __future__ import annotations

from ..fields import USED, Kinds, Shape, Table, harmless, refused, used

THE_PAGE = harmless("Only the page uses it.")
"""The rule of unknown fields of the AI SDK: its `body` may add any."""
NOT_KNOWN = refused("This server does not know it.")
"""The rule of unknown fields of AG-UI."""

_NOT_SHOWN = harmless("Earlier reasoning is not sent to the model.")
_FOR_THE_PAGE = harmless("It is shown to people, not to the model.")
_TOOL_PART = Shape(
    {
        "type": USED,
        "toolCallId": USED,
        "toolName": USED,
        "state": USED,
        "input": USED,
        "output": USED,
        "errorText": USED,
    },
    THE_PAGE,
)
_UI_PARTS = Kinds(
    "type",
    {
        "text": Shape({"type": USED, "text": USED}, THE_PAGE),
        "file": Shape({"type": USED, "url": USED, "mediaType": USED, "filename": USED}, THE_PAGE),
        "tool-*": _TOOL_PART,
        "dynamic-tool": _TOOL_PART,
        "step-start": USED,
        "reasoning": _NOT_SHOWN,
        "reasoning-file": _NOT_SHOWN,
        "source-url": _FOR_THE_PAGE,
        "source-document": _FOR_THE_PAGE,
        "custom": _FOR_THE_PAGE,
        "data-*": _FOR_THE_PAGE,
    },
    refused("Supported: text, file, tool, reasoning, source and data."),
)

AI_SDK: Table = {
    "id": USED,
    "messages": used(Shape({"id": USED, "role": USED, "parts": used(_UI_PARTS), "metadata": THE_PAGE}, THE_PAGE)),
    "trigger": USED,
    "messageId": USED,
    "model": USED,
    "system": USED,
    "if_busy": USED,
    "params": USED,
}
"""Requests of the AI SDK's transport, with the fields that its `body` may add for us."""

_ABOUT = harmless("It is metadata of the message.")
_SOURCE = Kinds(
    "type",
    {
        "data": Shape({"type": USED, "value": USED, "mimeType": USED}, NOT_KNOWN),
        "url": Shape({"type": USED, "value": USED, "mimeType": harmless("The URL determines it.")}, NOT_KNOWN),
    },
    refused("Send the image itself, or its URL."),
)
_DATA = Kinds(
    "type",
    {"data": Shape({"type": USED, "value": USED, "mimeType": USED}, NOT_KNOWN)},
    refused("Send the document itself."),
)
_AG_UI_PARTS = Kinds(
    "type",
    {
        "text": Shape({"type": USED, "text": USED, "id": _ABOUT, "metadata": _ABOUT}, NOT_KNOWN),
        "image": Shape({"type": USED, "source": used(_SOURCE), "id": _ABOUT, "metadata": _ABOUT}, NOT_KNOWN),
        "document": Shape({"type": USED, "source": used(_DATA), "id": _ABOUT, "metadata": _ABOUT}, NOT_KNOWN),
        "binary": Shape({**dict.fromkeys(("type", "mimeType", "data", "filename"), USED), "id": _ABOUT}, NOT_KNOWN),
    },
    refused("Supported: text, images and documents."),
)
_MESSAGE_FIELDS: Table = {
    "id": USED,
    "role": USED,
    "content": used(_AG_UI_PARTS),
    "name": USED,
    "metadata": _ABOUT,
    "encryptedValue": _NOT_SHOWN,
    "subagentRunId": _ABOUT,
}
_MESSAGE = Shape(_MESSAGE_FIELDS, NOT_KNOWN)
_CALL = Shape(
    {
        "id": USED,
        "type": USED,
        "function": used(Shape({"name": USED, "arguments": USED}, NOT_KNOWN)),
        "encryptedValue": _NOT_SHOWN,
        "metadata": _ABOUT,
    },
    NOT_KNOWN,
)
_TOOL = Shape({"name": USED, "description": USED, "parameters": USED, "metadata": _ABOUT}, NOT_KNOWN)

AG_UI: Table = {
    "threadId": USED,
    "runId": USED,
    "messages": used(
        Kinds(
            "role",
            {
                "developer": _MESSAGE,
                "system": _MESSAGE,
                "user": _MESSAGE,
                "assistant": Shape({**_MESSAGE_FIELDS, "toolCalls": used(_CALL)}, NOT_KNOWN),
                "tool": Shape({**_MESSAGE_FIELDS, "toolCallId": USED, "error": USED}, NOT_KNOWN),
                "activity": _FOR_THE_PAGE,
                "reasoning": _NOT_SHOWN,
            },
            USED,
        )
    ),
    "tools": used(_TOOL),
    "context": used(Shape({"value": USED, "description": USED}, NOT_KNOWN)),
    "state": USED,
    "forwardedProps": USED,
    "protocolVersion": USED,
    "parentRunId": harmless("The thread has the runs in their order."),
    "resume": refused("No run here waits for an interrupt of this protocol.", []),
}
"""AG-UI's `RunAgentInput`. Properties in `forwardedProps` that are not ours are the application's own."""
