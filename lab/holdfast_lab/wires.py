"""The wires that the lab speaks: how each starts, stops, resumes and fetches an answer, and what its frames mean."""

from __future__ import annotations

import secrets
from typing import Any, ClassVar

from .http import Http, Reply
from .reading import Reader, follow

__all__ = ["WIRES", "Wire"]

TOOL = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}


class Wire:
    """One dialect, spoken to one server. `can` is what the dialect itself has; nothing else is asked of a server."""

    name: ClassVar[str]
    can: ClassVar[frozenset[str]] = frozenset()
    reader: ClassVar[type[Reader]]

    def __init__(self, http: Http, model: str, session: str = "") -> None:
        self.http, self.model, self.session = http, model, session

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        """Ask. With `keep` the answer outlives its client, else it lives by the connection."""
        raise NotImplementedError

    async def stop(self, reader: Reader) -> None:
        """Stop the answer by name."""
        raise NotImplementedError

    async def again(self, reader: Reader) -> Reply:
        """Come back to the answer, after what the reader has seen."""
        raise NotImplementedError

    async def kept(self, reader: Reader) -> Reader:
        """Return what the server has kept of the answer."""
        raise NotImplementedError


# OpenAI's chat completions.

CHAT_WORDS = {"length": "truncated", "content_filter": "truncated", "cancelled": "stopped", "error": "failure"}


class ChatReader(Reader):
    """Chunks, or one completion. A finish reason that is not known counts as success: so clients take it."""

    def frame(self, event: str, data: Any) -> None:
        if data.get("error") or event == "error":
            self.end("failure", "an error object")
        for choice in data.get("choices") or ():
            self._piece(choice.get("delta") or {})
            if reason := choice.get("finish_reason"):
                self.end(CHAT_WORDS.get(reason, "success"), f'finish_reason "{reason}"')

    def whole(self, body: Any) -> None:
        if body.get("error"):
            self.end("failure", "an error object")
            return
        choice = body["choices"][0]
        self._piece(choice["message"])
        if reason := choice.get("finish_reason"):
            self.end(CHAT_WORDS.get(reason, "success"), f'finish_reason "{reason}"')

    def _piece(self, piece: Any) -> None:
        self.say(piece.get("content") or "")
        for call in piece.get("tool_calls") or ():
            self.arguments += (call.get("function") or {}).get("arguments") or ""


class Chat(Wire):
    """`/chat/completions`: nothing but an answer, which lives by its connection."""

    name = "openai-chat"
    can = frozenset({"json", "tools", "leave"})
    reader = ChatReader

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        return await self.http.call("POST", f"{self.http.url}/chat/completions", self._body(prompt, stream, tools))

    def _body(self, prompt: str, stream: bool, tools: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": prompt}]}
        body |= {"stream": True} if stream else {}
        body |= {self.session: secrets.token_hex(8)} if self.session else {}
        return body | ({"tools": [{"type": "function", "function": TOOL}]} if tools else {})


# llama.cpp's resumable dialect.


class LlamaCppReader(ChatReader):
    """As chat completions; the name of the conversation is the client's own."""

    def begun(self, reply: Reply) -> None:
        self.run = self.run or reply.name

    def again(self) -> None:
        """Keep half a frame: the next connection begins with the byte after it."""


class LlamaCpp(Chat):
    """Chat completions under a name: read again from any byte, stopped by `DELETE`."""

    name = "llama-cpp"
    can = frozenset({"tools", "stop", "resume"})
    reader = LlamaCppReader

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        name = f"lab-{secrets.token_hex(8)}"
        body = self._body(prompt, stream, tools)
        where = f"{self.http.url}/chat/completions"
        reply = await self.http.call("POST", where, body, {"X-Conversation-Id": name})
        reply.name = name
        return reply

    async def stop(self, reader: Reader) -> None:
        await (await self.http.call("DELETE", f"{self.http.url}/stream?conv_id={reader.run}")).body()

    async def again(self, reader: Reader) -> Reply:
        where = f"{self.http.url}/stream?conv_id={reader.run}&from={reader.bytes}"
        return await self.http.call("GET", where)


# OpenAI's Responses.

RESPONSE_WORDS = {"completed": "success", "incomplete": "truncated", "cancelled": "stopped", "failed": "failure"}


class ResponsesReader(Reader):
    """Events of a response, or the response."""

    number = -1

    def frame(self, event: str, data: Any) -> None:
        kind = str(data.get("type") or event)
        self.number = data.get("sequence_number", self.number)
        self.run = self.run or (data.get("response") or {}).get("id", "")
        if kind == "response.output_text.delta":
            self.say(data["delta"])
        elif kind == "response.function_call_arguments.delta":
            self.arguments += data["delta"]
        elif kind == "error":
            self.end("failure", "an error event")
        elif kind.removeprefix("response.") in RESPONSE_WORDS:
            self._ended(data["response"])

    def whole(self, body: Any) -> None:
        self.run = self.run or body.get("id", "")
        for item in body.get("output") or ():
            self.arguments += item.get("arguments") or ""
            for part in item.get("content") or ():
                self.say(part.get("text") or "" if part.get("type") == "output_text" else "")
        self._ended(body)

    def _ended(self, response: Any) -> None:
        status = response.get("status") or ("failed" if response.get("error") else None)
        if response.get("error"):
            self.end("failure", f'an error object, status "{status}"')
        elif status in RESPONSE_WORDS:
            self.end(RESPONSE_WORDS[status], f'status "{status}"')


class Responses(Wire):
    """`/responses`: answers that can be kept, run in the background, be resumed and cancelled."""

    name = "responses"
    can = frozenset({"json", "tools", "leave", "stop", "resume", "keep"})
    reader = ResponsesReader

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        body: dict[str, Any] = {"model": self.model, "input": prompt, "stream": stream}
        body |= {"background": True, "store": True} if keep else {"store": False}
        body |= {"tools": [{"type": "function", **TOOL}]} if tools else {}
        return await self.http.call("POST", f"{self.http.url}/responses", body)

    async def stop(self, reader: Reader) -> None:
        await (await self.http.call("POST", f"{self.http.url}/responses/{reader.run}/cancel")).body()

    async def again(self, reader: Reader) -> Reply:
        assert isinstance(reader, ResponsesReader)
        where = f"{self.http.url}/responses/{reader.run}?stream=true&starting_after={reader.number}"
        return await self.http.call("GET", where)

    async def kept(self, reader: Reader) -> Reader:
        found = ResponsesReader()
        await follow(await self.http.call("GET", f"{self.http.url}/responses/{reader.run}"), found)
        return found


# Our own API.

OUTCOMES = {"completed": "success", "truncated": "truncated", "stopped": "stopped"}


class NativeReader(Reader):
    """A run's own events, or the run."""

    number = 0

    def frame(self, event: str, data: Any) -> None:
        self.number, self.run = data["seq"], data["run"]
        if event == "text.delta":
            self.say(data["text"])
        elif event == "tool.call":
            self.arguments = data["arguments"] if isinstance(data["arguments"], str) else str(data["arguments"])
        elif event == "run.settled":
            self._settled(data["settlement"])

    def whole(self, body: Any) -> None:
        self.run = body["id"]
        self.say(body["text"])
        if body["settlement"] is not None:
            self._settled(body["settlement"])

    def _settled(self, settlement: Any) -> None:
        outcome = settlement["outcome"]
        self.end(OUTCOMES.get(outcome, "failure"), f'outcome "{outcome}"')


class Native(Wire):
    """Sessions and runs: an answer in a session is kept."""

    name = "native"
    can = frozenset({"tools", "leave", "stop", "resume", "keep"})
    reader = NativeReader

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        created = await (await self.http.call("POST", f"{self.http.root}/api/sessions", {})).json()
        body: dict[str, Any] = {"input": prompt, "model": self.model, "lifetime": "detached" if keep else "attached"}
        body |= {"params": {"tools": [{"type": "function", "function": TOOL}]}} if tools else {}
        where = f"{self.http.root}/api/sessions/{created['id']}/runs"
        return await self.http.call("POST", where, body, {"Accept": "text/event-stream"})

    async def stop(self, reader: Reader) -> None:
        await (await self.http.call("POST", f"{self.http.root}/api/runs/{reader.run}/stop")).body()

    async def again(self, reader: Reader) -> Reply:
        assert isinstance(reader, NativeReader)
        return await self.http.call("GET", f"{self.http.root}/api/runs/{reader.run}/events?after={reader.number}")

    async def kept(self, reader: Reader) -> Reader:
        found = NativeReader()
        await follow(await self.http.call("GET", f"{self.http.root}/api/runs/{reader.run}"), found)
        return found


# Anthropic's messages.

STOP_REASONS = {"max_tokens": "truncated", "refusal": "truncated", "model_context_window_exceeded": "truncated"}


class AnthropicReader(Reader):
    """Anthropic's events, or a message. Only `message_stop` makes an end of what the stop reason says."""

    _reason: str | None = None

    def frame(self, event: str, data: Any) -> None:
        match data.get("type"):
            case "content_block_delta":
                self.say(data["delta"].get("text") or "")
                self.arguments += data["delta"].get("partial_json") or ""
            case "message_delta":
                self._reason = data["delta"].get("stop_reason")
            case "message_stop":
                self._ended(self._reason)
            case "error":
                kind = data["error"].get("type", "")
                self.end("stopped" if kind == "stopped" else "failure", f'an error event "{kind}"')

    def whole(self, body: Any) -> None:
        if body.get("type") == "error":
            self.end("failure", "an error object")
            return
        for block in body["content"]:
            self.say(block.get("text") or "")
            self.arguments += str(block.get("input") or "")
        self._ended(body.get("stop_reason"))

    def _ended(self, reason: str | None) -> None:
        if reason:
            self.end(STOP_REASONS.get(reason, "success"), f'stop_reason "{reason}"')


class Anthropic(Wire):
    """`/messages`."""

    name = "anthropic"
    can = frozenset({"json", "tools", "leave"})
    reader = AnthropicReader

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        body: dict[str, Any] = {"model": self.model, "max_tokens": 1000, "stream": stream}
        body["messages"] = [{"role": "user", "content": prompt}]
        if tools:
            schema = {"input_schema": TOOL["parameters"]}
            body["tools"] = [{"name": TOOL["name"], "description": TOOL["description"], **schema}]
        headers = {"anthropic-version": "2023-06-01"}
        return await self.http.call("POST", f"{self.http.url}/messages", body, headers)


# The AI SDK's UI message stream.

FINISHES = {"stop": "success", "tool-calls": "success", "length": "truncated", "content-filter": "truncated"}


class AiSdkReader(Reader):
    """Parts. A stream that ends without `finish` is taken for success by the SDK, which is why it must come."""

    def begun(self, reply: Reply) -> None:
        self.run = self.run or reply.headers.get("x-workflow-run-id", "")

    def frame(self, event: str, data: Any) -> None:
        match data.get("type"):
            case "text-delta":
                self.say(data["delta"])
            case "tool-input-delta":
                self.arguments += data["inputTextDelta"]
            case "error":
                self.end("failure", "an error part")
            case "abort":
                self.end("stopped", "an abort part")
            case "finish" if self.ending == "unsaid":
                reason = data.get("finishReason")
                self.end(FINISHES.get(reason, "failure"), f'finish "{reason}"')


class AiSdk(Wire):
    """`/api/chat`: leaving is no stop here, so what is promised is coming back."""

    name = "ai-sdk"
    can = frozenset({"tools", "stop", "resume"})
    reader = AiSdkReader

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        message = {"id": f"msg-{secrets.token_hex(8)}", "role": "user", "parts": [{"type": "text", "text": prompt}]}
        body: dict[str, Any] = {"id": f"lab-{secrets.token_hex(8)}", "messages": [message], "model": self.model}
        body |= {"params": {"tools": [{"type": "function", "function": TOOL}]}} if tools else {}
        return await self.http.call("POST", f"{self.http.root}/api/chat", body)

    async def stop(self, reader: Reader) -> None:
        await (await self.http.call("POST", f"{self.http.root}/api/runs/{reader.run}/stop")).body()

    async def again(self, reader: Reader) -> Reply:
        where = f"{self.http.root}/api/chat/{reader.run}/stream?startIndex={reader.frames}"
        return await self.http.call("GET", where)


# AG-UI.


class AgUiReader(Reader):
    """Events of AG-UI 1.0."""

    def frame(self, event: str, data: Any) -> None:
        match data.get("type"):
            case "TEXT_MESSAGE_CONTENT":
                self.say(data["delta"])
            case "TOOL_CALL_ARGS":
                self.arguments += data["delta"]
            case "RUN_FINISHED":
                outcome = (data.get("outcome") or {}).get("type", "success")
                self.end("stopped" if outcome == "cancelled" else "success", f'RUN_FINISHED "{outcome}"')
            case "RUN_ERROR":
                code = data.get("code")
                cut_off = code in ("length", "content_filter")
                self.end("truncated" if cut_off else "failure", f'RUN_ERROR "{code}"')


class AgUi(Wire):
    """`/ag-ui`."""

    name = "ag-ui"
    can = frozenset({"tools", "leave"})
    reader = AgUiReader

    async def start(self, prompt: str, *, stream: bool = True, tools: bool = False, keep: bool = False) -> Reply:
        body: dict[str, Any] = {
            "threadId": secrets.token_hex(8),
            "runId": secrets.token_hex(8),
            "state": {},
            "context": [],
        }
        message = {"id": secrets.token_hex(8), "role": "user", "content": prompt}
        body |= {"messages": [message], "tools": [TOOL] if tools else [], "forwardedProps": {"model": self.model}}
        return await self.http.call("POST", f"{self.http.root}/ag-ui", body, {"Accept": "text/event-stream"})


WIRES: dict[str, type[Wire]] = {wire.name: wire for wire in (Chat, Responses, Native, Anthropic, AiSdk, AgUi, LlamaCpp)}
