"""Agents of other frameworks as sources: pydantic-ai, OpenAI's Agents SDK, LangGraph.

None of them is required: an agent's class names its framework, which is then already imported.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from ...events import (
    FAILED,
    TRUNCATED,
    ErrorInfo,
    Finish,
    Notice,
    Reasoning,
    SourceIterator,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    Yielded,
)
from ...ids import new_id
from ...prompt import AssistantTurn, ResultTurn, UserTurn, calls_in, text_in
from ...prompt.openai_shape import role_of, turns_of
from ..request import AgentRequest

Events = AsyncGenerator[Yielded]


def adapted(agent: Any) -> Callable[[AgentRequest], SourceIterator] | None:
    """Return an agent of a known framework as a function that yields events; None for anything else."""
    made_with = {kind.__module__.partition(".")[0] for kind in type(agent).__mro__}
    if "pydantic_ai" in made_with and hasattr(agent, "run_stream_events"):
        return lambda request: pydantic_ai(agent, request)
    if "agents" in made_with and hasattr(agent, "instructions"):
        return lambda request: openai_agents(agent, request)
    if "langgraph" in made_with and hasattr(agent, "astream"):
        return lambda request: langgraph(agent, request)
    return None


def _out_of_steps(error: Exception) -> list[Yielded]:
    """Return the finish of an agent that its framework has stopped at a limit."""
    return [
        Notice("max_steps", f"The agent has reached its own limit: {type(error).__name__}."),
        Finish("max_steps"),
    ]


def _waits(what: str) -> Finish:
    """Return the finish of an agent that waits for a person."""
    message = (
        f"{what} waits for a person, who cannot be asked here: only agents of the settings ask for approvals. "
        "Let it decide itself, or let its answer be the question."
    )
    return Finish("error", error=ErrorInfo("source_failed", message, status=502))


def _cut_off(reason: Any) -> list[Yielded]:
    """Return the finish reason of a model in any of the frameworks' forms, if it did not complete."""
    finish_reason = str(reason or "").lower()
    return [Finish(finish_reason)] if finish_reason in TRUNCATED or finish_reason in FAILED else []


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


# pydantic-ai


async def pydantic_ai(agent: Any, request: AgentRequest) -> Events:
    """Run a pydantic-ai agent. Closing its stream of events cancels its run."""
    limits: Any = importlib.import_module("pydantic_ai.exceptions").UsageLimitExceeded
    prompt, history = _pydantic_history(request.messages)
    used: Any = importlib.import_module("pydantic_ai.usage").RunUsage()
    has_text = False
    try:
        async with agent.run_stream_events(prompt, message_history=history, usage=used) as events:
            async for event in events:
                for item in _of_pydantic(event, has_text):
                    has_text = isinstance(item, Text) or (has_text and not isinstance(item, ToolResult))
                    yield item
    except limits as error:
        yield _counted(used)
        for item in _out_of_steps(error):
            yield item


def _counted(*used: Any) -> Usage:
    reported = [each for each in used if each is not None]
    return Usage(sum(each.input_tokens or 0 for each in reported), sum(each.output_tokens or 0 for each in reported))


def _pydantic_history(messages: list[dict[str, Any]]) -> tuple[str | None, list[Any]]:
    """Return the newest message, and all others as messages of pydantic-ai."""
    made: Any = importlib.import_module("pydantic_ai.messages")
    turns = list(turns_of(messages))
    prompt = turns.pop() if turns and role_of(turns[-1]) == "user" else None
    names = {call.id: call.name for turn in turns for call in calls_in(turn)}
    history: list[Any] = []
    for turn in turns:
        text = text_in(turn.content)
        match turn:
            case AssistantTurn():
                calls = [made.ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in calls_in(turn)]
                history.append(made.ModelResponse(parts=[*([made.TextPart(text)] if text else []), *calls]))
            case ResultTurn(id):
                history.append(made.ModelRequest(parts=[made.ToolReturnPart(names.get(id, ""), text, tool_call_id=id)]))
            case UserTurn():
                history.append(made.ModelRequest(parts=[made.UserPromptPart(text)]))
            case _:
                history.append(made.ModelRequest(parts=[made.SystemPromptPart(text)]))
    return None if prompt is None else text_in(prompt.content), history


def _of_pydantic(event: Any, has_text: bool) -> Iterator[Yielded]:
    kind = event.event_kind
    if kind == "part_start":
        yield from _of_pydantic_part(event.part.part_kind, getattr(event.part, "content", ""))
    elif kind == "part_delta":
        yield from _of_pydantic_part(event.delta.part_delta_kind, getattr(event.delta, "content_delta", ""))
    elif kind == "function_tool_call":
        yield ToolCall(event.part.tool_call_id, event.part.tool_name, event.part.args_as_json_str())
    elif kind == "function_tool_result":
        part = event.part
        is_error = part.part_kind == "retry-prompt" or getattr(part, "outcome", "success") != "success"
        output = part.model_response_str() if hasattr(part, "model_response_str") else part.model_response()
        yield ToolResult(part.tool_call_id, output, is_error)
    elif kind == "agent_run_result":
        yield from _of_pydantic_end(event.result, has_text)


def _of_pydantic_part(kind: str, content: Any) -> Iterator[Yielded]:
    if content and kind in ("text", "thinking"):
        yield Text(content) if kind == "text" else Reasoning(content)


def _of_pydantic_end(result: Any, has_text: bool) -> Iterator[Yielded]:
    """Yield a result that is not text, the usage, and the finish if the model was cut off or the agent is not done."""
    yield _counted(result.usage() if callable(result.usage) else result.usage)
    if type(result.output).__name__ == "DeferredToolRequests":
        yield _waits("The agent")
    elif result.output is not None and not (has_text and isinstance(result.output, str)):
        yield Text(_json(result.output))
    yield from _cut_off(getattr(result.response, "finish_reason", None))


# OpenAI's Agents SDK


async def openai_agents(agent: Any, request: AgentRequest) -> Events:
    """Run an agent of OpenAI's Agents SDK. Closing the generator cancels its run at once."""
    sdk: Any = importlib.import_module("agents")
    result = sdk.Runner.run_streamed(agent, input=_agents_input(request.messages))
    has_text = False
    try:
        async for event in result.stream_events():
            for item in _of_agents(event):
                if isinstance(item, Finish):  # it raises after that, and has not added the usage of this answer
                    yield _counted(result.context_wrapper.usage, event.data.response.usage)
                has_text = isinstance(item, Text) or (has_text and not isinstance(item, ToolResult))
                yield item
                if isinstance(item, Finish):
                    return  # the SDK then raises an error with less information
        yield _counted(result.context_wrapper.usage)
        if result.interruptions:
            yield _waits("The agent")
        elif not has_text and result.final_output is not None:
            yield Text(_json(result.final_output))
    except sdk.MaxTurnsExceeded as error:
        yield _counted(result.context_wrapper.usage)
        for item in _out_of_steps(error):
            yield item
    finally:
        if not result.is_complete:
            result.cancel()


_FINISH_REASONS = ("finish_reason", "stop_reason", "done_reason")
"""Names of the finish reason: OpenAI's, Anthropic's, Ollama's."""


def _agents_input(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the conversation as items of OpenAI's Responses."""
    items: list[dict[str, Any]] = []
    for turn in turns_of(messages):
        text = text_in(turn.content)
        match turn:
            case ResultTurn(id):
                items.append({"type": "function_call_output", "call_id": id, "output": text})
            case _ if text:
                items.append({"role": role_of(turn), "content": text})
        for call in calls_in(turn):
            called = {"name": call.name, "arguments": call.arguments}
            items.append({"type": "function_call", "call_id": call.id, **called})
    return items


def _of_agents(event: Any) -> Iterator[Yielded]:
    if event.type == "raw_response_event":
        yield from _of_agents_model(event.data)
    elif event.type == "run_item_stream_event" and event.name == "tool_called":
        called = event.item.raw_item
        if getattr(called, "type", "") == "function_call":
            yield ToolCall(called.call_id, called.name, called.arguments)
    elif event.type == "run_item_stream_event" and event.name == "tool_output":
        raw = event.item.raw_item
        id = raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
        if id:
            yield ToolResult(id, _json(event.item.output))


def _of_agents_model(data: Any) -> Iterator[Yielded]:
    if data.type == "response.output_text.delta":
        yield Text(data.delta)
    elif data.type in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        yield Reasoning(data.delta)
    elif data.type in ("response.completed", "response.incomplete") and data.response.status == "incomplete":
        details = data.response.incomplete_details
        yield Finish("content_filter" if details and details.reason == "content_filter" else "length")


# LangGraph


async def langgraph(graph: Any, request: AgentRequest) -> Events:
    """Run a graph whose state has `messages`. Closing its stream cancels it.

    It gets the whole conversation each time, so a graph with a checkpointer has a thread for each run.
    """
    errors: Any = importlib.import_module("langgraph.errors")
    output = _GraphOutput()
    try:
        thread = {"configurable": {"thread_id": request.run_id or new_id("thread")}}
        stream = graph.astream({"messages": request.messages}, thread, stream_mode=["messages", "updates"])
        async with aclosing(stream):
            async for mode, data in stream:
                for item in output.message(data[0]) if mode == "messages" else output.update(data):
                    yield item
        for item in output.end():
            yield item
    except errors.GraphRecursionError as error:
        for item in output.usage():
            yield item
        for item in _out_of_steps(error):
            yield item


class _GraphOutput:
    """The output of a graph so far."""

    def __init__(self) -> None:
        self._input = self._output = 0
        self._finish = ""
        self._calls: set[str] = set()

    def message(self, message: Any) -> Iterator[Yielded]:
        """Yield the events of one chunk of a model's answer."""
        if message.type not in ("ai", "AIMessageChunk"):
            return
        if thought := message.additional_kwargs.get("reasoning_content"):
            yield Reasoning(thought)
        for block in [message.content] if isinstance(message.content, str) else message.content:
            match block:
                case str(text) | {"type": "text", "text": str(text)}:
                    yield Text(text)
                case {"type": "reasoning", "reasoning": str(thought)} | {"type": "thinking", "thinking": str(thought)}:
                    yield Reasoning(thought)

    def update(self, update: dict[str, Any]) -> Iterator[Yielded]:
        """Yield the events of a node's update: calls, results, usage."""
        for node, changed in update.items():
            if node == "__interrupt__":
                yield from self.usage()
                yield _waits("The graph")
            match changed:
                case {"messages": messages}:
                    for message in messages:
                        yield from self._added(message)

    def _added(self, message: Any) -> Iterator[Yielded]:
        kind = getattr(message, "type", "")
        if kind == "ai":
            for call in message.tool_calls:
                self._calls.add(call["id"])
                yield ToolCall(call["id"], call["name"], _json(call["args"]))
            match message.usage_metadata:
                case {"input_tokens": asked, "output_tokens": answered}:
                    self._input += asked
                    self._output += answered
            reasons = (message.response_metadata.get(name) for name in _FINISH_REASONS)
            self._finish = next(filter(None, reasons), "")
        elif kind == "tool" and message.tool_call_id in self._calls:
            yield ToolResult(message.tool_call_id, _json(message.content), message.status == "error")

    def end(self) -> Iterator[Yielded]:
        """Yield the usage, and the finish if a model was cut off."""
        yield from self.usage()
        yield from _cut_off(self._finish)

    def usage(self) -> Iterator[Yielded]:
        """Yield the usage of all models that have reported it."""
        if self._input or self._output:
            yield Usage(self._input, self._output)
