"""Every surface on which an answer can be asked for, and what its client is told there, brought to one form."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.http import Client, Frame, Response
from tests.support.server import Server
from tests.support.upstream import Recorded, Upstream

QUESTION = "What is the wave?"
NEXT_QUESTION = "And the sea?"


@dataclass
class Told:
    """What a client was told. `outcome` is None where a surface could not say how the run ended."""

    status: int
    outcome: str | None
    text: str
    reasoning: str = ""
    finish_reason: str | None = None
    error: dict[str, Any] | None = None
    partial: bool | None = None
    run_id: str = ""
    done: bool | None = None
    """Whether `[DONE]` came; None where no stream was begun."""
    retry_after: str | None = None
    should_retry: str | None = None
    usage: dict[str, Any] | None = None
    body: Any = None
    frames: list[Frame] = field(default_factory=list)

    @property
    def code(self) -> str | None:
        return self.error["code"] if self.error else None

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The `holdfast` field, where there is one."""
        bodies = self.body if isinstance(self.body, list) else [self.body or {}]
        found = [{**body["holdfast"]} for body in bodies if "holdfast" in body]
        for each in found:
            each.pop("partial", None)
        assert all(each == found[0] for each in found), "a repeated ending says the same"
        return found[0] if found else None


class World:
    """A server, its upstream, and a client who keeps every byte of every answer."""

    def __init__(self, up: Upstream, server: Server, client: Client) -> None:
        self.up = up
        self.server = server
        self.client = client
        self.answers: list[Response] = []

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.client.request(method, path, json=body, headers=named)
        self.answers.append(response)
        return response

    async def get(self, path: str) -> Any:
        response = await self.call("GET", path)
        body = await response.json()
        assert 200 == response.status, body
        return body

    async def chat(self, model: str, /, question: str = QUESTION, **more: Any) -> Response:
        messages = [{"role": "user", "content": question}]
        return await self.call("POST", "/v1/chat/completions", {"model": model, "messages": messages, **more})

    async def respond(self, model: str, /, question: Any = QUESTION, **more: Any) -> Response:
        return await self.call("POST", "/v1/responses", {"model": model, "input": question, **more})

    async def new_session(self) -> str:
        response = await self.call("POST", "/api/sessions", {})
        created: dict[str, Any] = await response.json()
        assert 201 == response.status
        return str(created["id"])

    async def send(self, session_id: str, model: str, question: str = QUESTION, **headers: str) -> Response:
        path = f"/api/sessions/{session_id}/runs"
        return await self.call("POST", path, {"input": question, "model": model}, **headers)

    async def events(self, run_id: str, after: int = 0) -> list[Frame]:
        response = await self.call("GET", f"/api/runs/{run_id}/events?after={after}")
        assert 200 == response.status
        return await response.all_events()

    async def settled(self, run_id: str) -> dict[str, Any]:
        """The run, once it has ended."""
        await self.events(run_id)
        run: dict[str, Any] = await self.get(f"/api/runs/{run_id}")
        return run

    async def messages(self, session_id: str) -> list[dict[str, Any]]:
        session = await self.get(f"/api/sessions/{session_id}")
        messages: list[dict[str, Any]] = session["messages"]
        return messages

    async def shown_next(self, session_id: str, mark: str) -> list[dict[str, Any]]:
        """Take another turn in a session; what the model was shown for it."""
        started = await (await self.send(session_id, f"up/echo:{mark}", NEXT_QUESTION)).json()
        run = await self.settled(started["id"])
        assert ("completed", mark) == (run["settlement"]["outcome"], run["text"])
        shown: list[dict[str, Any]] = self.request_for(f"echo:{mark}").body["messages"]
        return shown

    def request_for(self, model: str) -> Recorded:
        """The one request that U got for a model."""
        (request,) = [request for request in self.up.requests if request.model == model]
        return request

    def every_byte(self) -> bytes:
        """All that this world's client was ever told, headers included."""
        return b"\n".join(bytes(answer.raw_bytes) + repr(answer.headers.pairs).encode() for answer in self.answers)


# Reading answers.


def of_chunks(response: Response, frames: list[Frame]) -> Told:
    """A chat stream, or the rest of one."""
    datas = [frame.data for frame in frames]
    done = bool(datas) and datas[-1] == "[DONE]"
    chunks = [json.loads(data) for data in (datas[:-1] if done else datas)]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.get("choices", ())]
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk.get("choices", ())]
    ends = [chunk for chunk in chunks if any(choice["finish_reason"] for choice in chunk.get("choices", ()))]
    last = ends[-1] if ends else chunks[-1]
    return Told(
        status=response.status,
        outcome=_outcome(last, next((reason for reason in reasons if reason), None)),
        text="".join(delta.get("content") or "" for delta in deltas),
        reasoning="".join(delta.get("reasoning") or "" for delta in deltas),
        finish_reason=next((reason for reason in reasons if reason), None),
        error=last.get("error"),
        run_id=response.headers["x-run-id"],
        done=done,
        body=chunks,
        frames=frames,
    )


def of_object(response: Response, body: dict[str, Any]) -> Told:
    """A finished completion, or an error in its place."""
    said = body.get("holdfast", {}).get("partial", body)
    choice = said["choices"][0] if "choices" in said else {"message": {"content": ""}, "finish_reason": None}
    return Told(
        status=response.status,
        outcome=_outcome(body, choice["finish_reason"]),
        text=choice["message"]["content"] or "",
        reasoning=choice["message"].get("reasoning", ""),
        finish_reason=choice["finish_reason"],
        error=body.get("error"),
        run_id=response.headers["x-run-id"],
        retry_after=response.headers.get("retry-after"),
        should_retry=response.headers.get("x-should-retry"),
        usage=said.get("usage"),
        body=body,
    )


def _outcome(told: dict[str, Any], finish_reason: str | None) -> str | None:
    """How a client of OpenAI's dialect learns the outcome: our field, or the absence of it beside a finish reason."""
    if "holdfast" in told:
        outcome: str = told["holdfast"]["outcome"]
        return outcome
    return "completed" if finish_reason in ("stop", "tool_calls") and not told.get("error") else None


async def _of_any(response: Response) -> Told:
    if response.headers["content-type"].startswith("text/event-stream"):
        return of_chunks(response, await response.all_events())
    return of_object(response, await response.json())


def of_settlement(status: int, run_id: str, settlement: dict[str, Any], **more: Any) -> Told:
    return Told(
        status=status,
        outcome=settlement["outcome"],
        text=settlement["text"],
        finish_reason=settlement["finish_reason"],
        error=settlement["error"],
        partial=settlement["partial"],
        run_id=run_id,
        usage=settlement["usage"],
        **more,
    )


def of_events(response: Response, frames: list[Frame]) -> Told:
    """A run's own events."""
    events = [(frame.event, frame.json()) for frame in frames]
    kind, last = events[-1]
    assert "run.settled" == kind
    told = of_settlement(response.status, last["run"], last["settlement"], frames=frames)
    deltas = "".join(event["text"] for kind, event in events if kind == "text.delta")
    assert told.text == deltas, "the settlement must have exactly the text that was streamed"
    told.reasoning = "".join(event["text"] for kind, event in events if kind == "reasoning.delta")
    return told


def of_parts(response: Response, frames: list[Frame]) -> Told:
    """The AI SDK's UI message stream. What its clients see of a failure is `error`, of a stop `abort`."""
    assert "[DONE]" == frames[-1].data
    parts = [frame.json() for frame in frames[:-1]]
    types = [part["type"] for part in parts]
    last = parts[-1]
    assert ("finish", 1) == (last["type"], types.count("finish")), "every ending is said, once"
    told = last["messageMetadata"]["holdfast"]
    failed, stopped = types.count("error"), types.count("abort")
    word = "failed" if failed else "stopped" if stopped else _ENDS[last["finishReason"]]
    assert word == told["outcome"], "the parts and the metadata agree"
    errors = [{"message": part["errorText"], "type": "error"} for part in parts if part["type"] == "error"]
    return Told(
        status=response.status,
        outcome=word,
        text="".join(part["delta"] for part in parts if part["type"] == "text-delta"),
        reasoning="".join(part["delta"] for part in parts if part["type"] == "reasoning-delta"),
        finish_reason=last["finishReason"],
        error={**errors[0], "code": told["code"]} if errors else None,
        run_id=told["runId"],
        done=True,
        body=parts,
        frames=frames,
    )


_ENDS = {"stop": "completed", "tool-calls": "completed", "length": "truncated", "content-filter": "truncated"}


# The surfaces. Each asks a model once.

Surface = Callable[[World, str], Awaitable[Told]]


async def chat_stream(world: World, model: str) -> Told:
    return await _of_any(await world.chat(model, stream=True))


async def chat_object(world: World, model: str) -> Told:
    return await _of_any(await world.chat(model))


async def chat_stream_in_session(world: World, model: str) -> Told:
    return await _of_any(await world.chat(model, stream=True, session_id=f"streaming {model}"))


async def chat_object_in_session(world: World, model: str) -> Told:
    return await _of_any(await world.chat(model, session_id=f"at once {model}"))


async def background_stream(world: World, model: str) -> Told:
    return await _of_any(await world.chat(model, background=True, stream=True))


async def background_object(world: World, model: str) -> Told:
    """Started in the background, waited for by its stream, then fetched."""
    started = await (await world.chat(model, background=True)).json()
    await (await world.call("GET", f"/v1/chat/completions/{started['id']}?stream=true")).body()
    return await _of_any(await world.call("GET", f"/v1/chat/completions/{started['id']}"))


async def background_resumed(world: World, model: str) -> Told:
    """What follows the first data frame, which only says that the assistant speaks."""
    started = await (await world.chat(model, background=True)).json()
    path = f"/v1/chat/completions/{started['id']}?stream=true&starting_after=1"
    return await _of_any(await world.call("GET", path))


async def named_stream(world: World, model: str) -> Told:
    """Under a name, in llama.cpp's way."""
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": model, "messages": messages, "stream": True}
    return await _of_any(await world.call("POST", "/v1/chat/completions", body, X_Conversation_Id=f"named {model}"))


async def named_resumed(world: World, model: str) -> Told:
    """Started under a name, and read again from its first byte."""
    name = f"resumed%20{model.replace('/', '%2F')}"
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": model, "messages": messages, "background": True}
    await world.call("POST", "/v1/chat/completions", body, X_Conversation_Id=f"resumed {model}")
    return await _of_any(await world.call("GET", f"/v1/stream?conv_id={name}&from=0"))


async def run_stream(world: World, model: str) -> Told:
    """The native API with the events at once."""
    response = await world.send(await world.new_session(), model, Accept="text/event-stream")
    assert 200 == response.status
    return of_events(response, await response.all_events())


async def run_events(world: World, model: str) -> Told:
    """Started, then subscribed to."""
    started = await (await world.send(await world.new_session(), model)).json()
    response = await world.call("GET", f"/api/runs/{started['id']}/events")
    return of_events(response, await response.all_events())


async def run_status(world: World, model: str) -> Told:
    """Looked at after its end."""
    started = await (await world.send(await world.new_session(), model)).json()
    run = await world.settled(started["id"])
    assert ("settled", run["settlement"]["text"]) == (run["status"], run["text"])
    return of_settlement(200, run["id"], run["settlement"])


async def session_messages(world: World, model: str) -> Told:
    """What the session shows of it: the message, and nothing where nothing was visible."""
    session_id = await world.new_session()
    started = await (await world.send(session_id, model)).json()
    run = await world.settled(started["id"])
    said = [message for message in await world.messages(session_id) if message["role"] == "assistant"]
    assert len(said) <= 1, "an answer is kept once"
    if not said:
        return of_settlement(200, run["id"], run["settlement"] | {"text": ""})
    (message,) = said
    assert started["message_id"] == message["id"], "the message id is given out before the first token"
    return Told(
        status=200,
        outcome=message["outcome"],
        text=message["content"],
        reasoning=message["reasoning"] or "",
        finish_reason=run["settlement"]["finish_reason"],
        error=run["settlement"]["error"],
        partial=message["partial"],
        run_id=message["run_id"],
    )


async def session_feed(world: World, model: str) -> Told:
    """What a second tab sees."""
    session_id = await world.new_session()
    await (await world.send(session_id, model)).json()
    feed = await world.call("GET", f"/api/sessions/{session_id}/events")
    deltas = ""
    async for frame in feed.events(comments=False):
        event = frame.json()
        if frame.event == "text.delta":
            deltas += event["text"]
        if frame.event == "run.settled":
            feed.leave()
            assert deltas == event["settlement"]["text"]
            return of_settlement(feed.status, event["run_id"], event["settlement"])
    raise AssertionError("the feed ended by itself")


# Anthropic's Messages API.


def of_message_events(response: Response, frames: list[Frame]) -> Told:
    """A stream of Anthropic's events."""
    events = [frame.json() for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in events]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    last = events[-1]
    ends = [event for event in events if event["type"] == "message_delta"]
    delivered = last["type"] == "message_stop"
    reason = ends[0]["delta"]["stop_reason"] if ends else None
    ending = ends[0] if ends else last
    return Told(
        status=response.status,
        outcome=_anthropic_outcome(ending, reason) if delivered or last["type"] == "error" else None,
        text="".join(delta.get("text", "") for delta in deltas),
        reasoning="".join(delta.get("thinking", "") for delta in deltas),
        finish_reason=reason,
        error=last.get("error") if ending.get("holdfast", {}).get("outcome") != "stopped" else None,
        run_id=response.headers["x-run-id"],
        done=delivered,
        body=events,
        frames=frames,
    )


def of_message(response: Response, body: dict[str, Any]) -> Told:
    """A finished message, or an error in its place or around it."""
    said = body.get("holdfast", {}).get("partial", body)
    blocks = said.get("content", [])
    return Told(
        status=response.status,
        outcome=_anthropic_outcome(body, said.get("stop_reason")),
        text="".join(block.get("text", "") for block in blocks),
        reasoning="".join(block.get("thinking", "") for block in blocks),
        finish_reason=said.get("stop_reason"),
        error=body.get("error"),
        run_id=response.headers["x-run-id"],
        retry_after=response.headers.get("retry-after"),
        should_retry=response.headers.get("x-should-retry"),
        usage=said.get("usage"),
        body=body,
    )


def _anthropic_outcome(told: dict[str, Any], stop_reason: str | None) -> str | None:
    if "holdfast" in told:
        outcome: str = told["holdfast"]["outcome"]
        return outcome
    return "completed" if stop_reason in ("end_turn", "tool_use") and told["type"] != "error" else None


async def _of_any_message(response: Response) -> Told:
    if response.headers["content-type"].startswith("text/event-stream"):
        return of_message_events(response, await response.all_events())
    return of_message(response, await response.json())


async def ask_message(world: World, model: str, **more: Any) -> Response:
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    body = {"model": model, "max_tokens": 100, "messages": messages, **more}
    return await world.call("POST", "/v1/messages", body)


async def message_stream(world: World, model: str) -> Told:
    return await _of_any_message(await ask_message(world, model, stream=True))


async def message_object(world: World, model: str) -> Told:
    return await _of_any_message(await ask_message(world, model))


async def message_watched(world: World, model: str) -> Told:
    """Started on the native API, watched on this wire after its first two frames."""
    started = await (await world.send(await world.new_session(), model)).json()
    path = f"/v1/messages/msg_{started['id']}?stream=true&starting_after=2"
    return await _of_any_message(await world.call("GET", path))


# Responses.


def _parts(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [*item.get("content", ()), *item.get("summary", ())]


def of_response(response: Response, body: dict[str, Any], **more: Any) -> Told:
    """A response, or an error in its place."""
    said = body.get("holdfast", {}).get("partial", body)
    parts = [(item["type"], part["text"]) for item in said.get("output", ()) for part in _parts(item)]
    return Told(
        status=response.status,
        outcome=_outcome(body, "stop" if body.get("status") == "completed" else None),
        text="".join(text for kind, text in parts if kind == "message"),
        reasoning="".join(text for kind, text in parts if kind == "reasoning"),
        finish_reason=said.get("status"),
        error=body.get("error"),
        run_id=response.headers["x-run-id"],
        retry_after=response.headers.get("retry-after"),
        should_retry=response.headers.get("x-should-retry"),
        usage=said.get("usage"),
        body=body,
        **more,
    )


def of_response_events(response: Response, frames: list[Frame], first: int = 0) -> Told:
    """The stream of a response, or the rest of one. What its deltas say must be what its last event has."""
    events = [frame.json() for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in events]
    assert list(range(first, first + len(events))) == [event["sequence_number"] for event in events]
    told = of_response(response, events[-1]["response"], frames=frames)
    assert events[-1]["type"] == f"response.{told.finish_reason}"
    for kind, text in (("output_text", told.text), ("reasoning_summary_text", told.reasoning)):
        deltas = [event["delta"] for event in events if event["type"] == f"response.{kind}.delta"]
        assert text == "".join(deltas), "the last event has exactly the text that was streamed"
    return told


async def _of_any_response(response: Response, first: int = 0) -> Told:
    if response.headers["content-type"].startswith("text/event-stream"):
        return of_response_events(response, await response.all_events(), first)
    return of_response(response, await response.json())


async def responses_stream(world: World, model: str) -> Told:
    return await _of_any_response(await world.respond(model, stream=True))


async def responses_object(world: World, model: str) -> Told:
    return await _of_any_response(await world.respond(model))


async def responses_stream_unstored(world: World, model: str) -> Told:
    return await _of_any_response(await world.respond(model, stream=True, store=False))


async def responses_polled(world: World, model: str) -> Told:
    """Started in the background, waited for by its stream, then fetched."""
    started = await (await world.respond(model, background=True)).json()
    await (await world.call("GET", f"/v1/responses/{started['id']}?stream=true")).body()
    return await _of_any_response(await world.call("GET", f"/v1/responses/{started['id']}"))


async def responses_resumed(world: World, model: str) -> Told:
    """What follows the first three events, which only say that it was asked for."""
    started = await (await world.respond(model, background=True)).json()
    path = f"/v1/responses/{started['id']}?stream=true&starting_after=2"
    return await _of_any_response(await world.call("GET", path), first=3)


# AG-UI.


def of_ag_ui(response: Response, frames: list[Frame]) -> Told:
    """A stream of AG-UI's events."""
    events = [frame.json() for frame in frames]
    last = events[-1]
    verdict = last.get("metadata", {}).get("holdfast", {})
    success = last["type"] == "RUN_FINISHED" and last["outcome"]["type"] == "success"
    outcome = verdict.get("outcome", "completed" if success else None)
    failed = last["type"] == "RUN_ERROR" and outcome in ("failed", "interrupted")
    return Told(
        status=response.status,
        outcome=outcome,
        text="".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"),
        reasoning="".join(event["delta"] for event in events if event["type"] == "REASONING_MESSAGE_CONTENT"),
        finish_reason=last.get("code"),
        error={"message": last["message"], "code": last["code"], "type": last["type"]} if failed else None,
        run_id=response.headers["x-run-id"],
        done=success,
        body=[*events, {"holdfast": verdict}] if verdict else events,
        frames=frames,
    )


def ag_ui_input(thread_id: str, model: str, **more: Any) -> dict[str, Any]:
    messages = [{"id": "m1", "role": "user", "content": QUESTION}]
    named = {"threadId": thread_id, "runId": "r1", "protocolVersion": "1.0"}
    return {**named, "messages": messages, "tools": [], "context": [], "forwardedProps": {"model": model}, **more}


async def ag_ui_stream(world: World, model: str) -> Told:
    response = await world.call("POST", "/ag-ui", ag_ui_input(f"ag-ui {model}", model))
    return of_ag_ui(response, await response.all_events())


async def ag_ui_watched(world: World, model: str) -> Told:
    """Started on the native API, watched on this wire after its first frame."""
    started = await (await world.send(await world.new_session(), model)).json()
    response = await world.call("GET", f"/ag-ui/{started['id']}?starting_after=1")
    return of_ag_ui(response, await response.all_events())


# The AI SDK.


def _ui_chat(model: str, chat_id: str | None) -> dict[str, Any]:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}
    return {"id": chat_id, "messages": [message], "trigger": "submit-message", "model": model}


async def ui_chat(world: World, model: str) -> Told:
    """The AI SDK's transport in a chat."""
    response = await world.call("POST", "/api/chat", _ui_chat(model, f"ui {model.replace('/', ' ')}"))
    return of_parts(response, await response.all_events())


async def ui_chat_resumed(world: World, model: str) -> Told:
    """Outside of any chat, left at once, and read from its start by the run's id."""
    started = await world.call("POST", "/api/chat", _ui_chat(model, None))
    started.leave()
    run_id = started.headers["x-workflow-run-id"]
    response = await world.call("GET", f"/api/chat/{run_id}/stream?startIndex=0")
    return of_parts(response, await response.all_events())


CHAT: dict[str, Surface] = {
    "chat-stream": chat_stream,
    "chat-object": chat_object,
    "chat-stream-in-session": chat_stream_in_session,
    "chat-object-in-session": chat_object_in_session,
    "background-stream": background_stream,
    "background-object": background_object,
    "background-resumed": background_resumed,
    "named-stream": named_stream,
    "named-resumed": named_resumed,
}
NATIVE: dict[str, Surface] = {
    "run-stream": run_stream,
    "run-events": run_events,
    "run-status": run_status,
    "session-messages": session_messages,
    "session-feed": session_feed,
}
WIRES: dict[str, Surface] = {
    "message-stream": message_stream,
    "message-object": message_object,
    "message-watched": message_watched,
    "ag-ui-stream": ag_ui_stream,
    "ag-ui-watched": ag_ui_watched,
}
"""Other dialects, which say what did not complete in their own words and in a `holdfast` field."""
RESPONSES: dict[str, Surface] = {
    "responses-stream": responses_stream,
    "responses-object": responses_object,
    "responses-stream-unstored": responses_stream_unstored,
    "responses-polled": responses_polled,
    "responses-resumed": responses_resumed,
}
AI_SDK: dict[str, Surface] = {
    "ui-chat": ui_chat,
    "ui-chat-resumed": ui_chat_resumed,
}
SURFACES = CHAT | NATIVE | WIRES | RESPONSES | AI_SDK
RESUMED = ("background-resumed", "named-resumed")
STREAMS = ("chat-stream", "chat-stream-in-session", "background-stream", "named-stream", *RESUMED)
OBJECTS = ("chat-object", "chat-object-in-session", "background-object")
