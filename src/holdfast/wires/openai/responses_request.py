"""Requests to the Responses API, translated to the parameters of chat completions: flat tools as nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from ...asks.own import OwnResponse
from ...errors import BadRequest
from ...fields import PASSED_ON, check_fields, passed_on
from .fields import RESPONSES, RUN_BY_OPENAI
from .response_items import CUSTOM_INPUT, Given, flat_name, unsupported


class ReasoningOptions(msgspec.Struct, frozen=True):
    """Options of reasoning."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    """The older name of `summary`."""


class TextOptions(msgspec.Struct, frozen=True):
    """Options of text."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ConversationName(msgspec.Struct, frozen=True):
    """The conversation that a response is added to."""

    id: str


class ResponseBody(msgspec.Struct, frozen=True):
    """A request, with the fields that are checked here. Unknown fields are passed to the upstream."""

    input: str | list[dict[str, Any]] | None = None
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationName | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[str] | None = None

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the response is added to."""
        return self.conversation.id if isinstance(self.conversation, ConversationName) else self.conversation or None

    @property
    def is_stored(self) -> bool:
        """Whether it is stored, which is the default."""
        return self.store is not False or bool(self.background)

    @property
    def follows(self) -> bool:
        """Whether there are items before its input."""
        return self.previous_response_id is not None or self.conversation_id is not None

    @property
    def is_detached(self) -> bool:
        """Whether it outlives its client: in the background, or as a stream with `store` set to true.

        A stream that is stored only by default ends with its client: SDKs abort by closing the connection.
        """
        return bool(self.background) or (self.store is True and bool(self.stream))


def params_of(body: ResponseBody, decoded: Mapping[str, Any], limit: str = "max_tokens") -> dict[str, Any]:
    """Return the parameters of a chat for this request; `limit` is the upstream's name of the token limit."""
    check_fields(decoded, RESPONSES, PASSED_ON)
    params = passed_on(decoded, RESPONSES, PASSED_ON)
    if body.max_output_tokens is not None:
        params[limit] = body.max_output_tokens
    if body.reasoning is not None and body.reasoning.effort:
        params["reasoning_effort"] = body.reasoning.effort
    return params | _format(body.text or TextOptions()) | _logprobs(body) | _tools(body)


def own_fields_of(body: ResponseBody) -> OwnResponse:
    """Return the fields that an upstream of this API gets as they were sent."""
    asked = body.reasoning or ReasoningOptions()
    summaries = {"summary": asked.summary, "generate_summary": asked.generate_summary}
    summary = {name: value for name, value in summaries.items() if value}
    return OwnResponse(reasoning=summary or None, include=body.include or None)


def _format(text: TextOptions) -> dict[str, Any]:
    params: dict[str, Any] = {"verbosity": text.verbosity} if text.verbosity else {}
    match text.format:
        case {"type": "json_object"}:
            params["response_format"] = {"type": "json_object"}
        case {"type": "json_schema", **described}:
            given = {name: value for name, value in described.items() if value is not None}
            params["response_format"] = {"type": "json_schema", "json_schema": given}
        case {"type": other} if other != "text":
            raise unsupported(f"A format of type {other!r}", "text.format.type")
    return params


def _logprobs(body: ResponseBody) -> dict[str, Any]:
    count = body.top_logprobs
    if count is None and "message.output_text.logprobs" not in (body.include or ()):
        return {}
    return {"logprobs": True} | ({} if count is None else {"top_logprobs": count})


def _tools(body: ResponseBody) -> dict[str, Any]:
    tools = [function for tool in known_tools(body.tools) if (function := tool.chat) is not None]
    allowed, choice = _choice(body.tool_choice)
    if not tools:
        return {}
    if allowed is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
    return {"tools": tools} | ({} if choice is None else {"tool_choice": choice})


class KnownTool(NamedTuple):
    """One tool of a request: its name for the client, and its declaration for the model."""

    kind: str
    """`function` or `custom`, or the type of a tool that OpenAI runs."""
    name: str
    namespace: str | None = None
    chat: dict[str, Any] | None = None
    """The function of a chat. None for a tool that OpenAI runs, which the model does not get."""


def known_tools(tools: Any, param: str = "tools", namespace: str | None = None) -> list[KnownTool]:
    """Return the tools of a request: namespaces are flattened, and a custom tool is a function with one string."""
    if not isinstance(tools or [], list):
        raise BadRequest("The tools are a list.", param=param)
    found: list[KnownTool] = []
    for place, tool in enumerate(tools or ()):
        found += _known_tools(tool, f"{param}[{place}]", namespace)
    return found


class _Declared(msgspec.Struct, frozen=True):
    """The fields of a tool, or of a namespace of tools, that are read here."""

    name: Given
    tools: Any = None
    format: Any = None


def _known_tools(tool: Any, where: str, namespace: str | None) -> list[KnownTool]:
    """Return a tool, or all tools of a namespace."""
    match tool:
        case {"type": "namespace"} if namespace is None:
            declared = _declared(tool, where)
            return known_tools(declared.tools, f"{where}.tools", declared.name)
        case {"type": "function" | "custom" as kind}:
            declared = _declared(tool, where)
            flat = flat_name(declared.name, namespace)
            return [KnownTool(kind, declared.name, namespace, _as_function(tool, declared, flat))]
        case {"type": str(kind)} if kind in RUN_BY_OPENAI:
            return [KnownTool(kind, kind)]
        case {"type": str(kind)}:
            instead = "Supported: tools of type function and custom."
            raise unsupported(f"A tool of type {kind!r}", f"{where}.type", instead)
    raise BadRequest("A tool is an object with a type.", param=f"{where}.type")


def _declared(tool: Mapping[str, Any], where: str) -> _Declared:
    try:
        return msgspec.convert(tool, _Declared)
    except msgspec.ValidationError:
        raise BadRequest("A tool has a name.", param=f"{where}.name") from None


def _as_function(tool: Mapping[str, Any], declared: _Declared, name: str) -> dict[str, Any]:
    described = {field: value for field, value in tool.items() if field in _OF_A_TOOL and value is not None}
    if tool["type"] == "custom":
        described |= {"parameters": _custom_parameters(declared.format)}
    return {"type": "function", "function": described | {"name": name}}


def _custom_parameters(form: Any) -> dict[str, Any]:
    """Return the parameters of a custom tool as a function. Its grammar is described, not enforced."""
    text = {}
    match form:
        case {"type": "grammar", "syntax": syntax, "definition": str(grammar)}:
            text = {"description": f"Text of this {syntax} grammar:\n{grammar}"}
        case {"type": "grammar", "definition": str(grammar)}:
            text = {"description": f"Text of this grammar:\n{grammar}"}
    return {"type": "object", "properties": {CUSTOM_INPUT: {"type": "string", **text}}, "required": [CUSTOM_INPUT]}


_OF_A_TOOL = ("name", "description", "parameters", "strict")


class _Named(msgspec.Struct, frozen=True):
    """A tool by its name."""

    name: str
    namespace: Any = None

    @property
    def flat(self) -> str:
        return flat_name(self.name, self.namespace)


def _choice(choice: Any) -> tuple[set[str] | None, Any]:
    """Return the allowed tools, if not all are, and the tool choice of a chat."""
    match choice:
        case None | "auto" | "none" | "required":
            return None, choice
        case {"type": "function" | "custom", "name": str()}:
            return None, {"type": "function", "function": {"name": msgspec.convert(choice, _Named).flat}}
        case {"type": "allowed_tools", "tools": list(tools), **more}:
            named = [msgspec.convert(tool, _Named) for tool in tools if _is_named(tool)]
            return {tool.flat for tool in named}, more.get("mode", "auto")
    raise unsupported(
        "This tool_choice", "tool_choice", "auto, none, required, a function, a custom tool and allowed_tools are."
    )


def _is_named(tool: Any) -> bool:
    match tool:
        case {"name": str()}:
            return True
    return False


def with_defaults(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool with OpenAI's defaults for a function."""
    return {"strict": None, "parameters": None, **tool} if tool["type"] == "function" else tool
