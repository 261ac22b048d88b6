"""An MCP server of an older protocol, which asks back in the middle of a call. By stdio; one tool, `elicit`."""

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
TOOL = {"name": "elicit", "inputSchema": {"type": "object", "properties": {}}}
INFO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
ANSWERS: dict[str, dict[str, Any]] = {"initialize": INFO, "tools/list": {"tools": [TOOL]}, "ping": {}}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


calls: list[Any] = []
for line in sys.stdin:
    said = json.loads(line)
    method, id = said.get("method"), said.get("id")
    if method in ANSWERS:
        send(id=id, result=ANSWERS[method])
    elif method == "tools/call":
        calls.append(id)
        send(id="ask", method="elicitation/create", params={"message": "Are you sure?", "requestedSchema": SCHEMA})
    elif method is None and id == "ask":
        result = said.get("result") or {"action": said["error"]["message"]}
        text = f"action='{result['action']}' data={result.get('content')}"
        send(id=calls.pop(), result={"content": [{"type": "text", "text": text}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "Method not found"})
