"""Requests to an ASGI app in the test's own process: thousands of them in seconds, through the app's own gate."""

import asyncio
import itertools
import json as jsonlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.waiting import LONG

_ADDRESSES = (f"127.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in itertools.count(2))
"""Each request comes from an address of its own: a server lets an address wait that sends many wrong keys."""


@dataclass(frozen=True)
class Answer:
    """What an app answered. Of a stream it is what came before the client left."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return jsonlib.loads(self.body)

    @property
    def code(self) -> str | None:
        """The code of an error, in the shape of any wire."""
        try:
            error = self.json().get("error")
        except (ValueError, AttributeError):
            return None
        found = error.get("code") if isinstance(error, dict) else None
        return str(found) if found else None


async def ask(
    app: Any, method: str, path: str, *, json: Any = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """Call an app once. The client sends its body and leaves: so no stream lasts."""
    body = b"" if json is None else jsonlib.dumps(json).encode()
    plain, _, query = path.partition("?")
    given = {"host": "127.0.0.1", "content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": plain,
        "raw_path": plain.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": (next(_ADDRESSES), 50000),
        "server": ("127.0.0.1", 8787),
        "state": {},
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with asyncio.timeout(LONG):
        await app(scope, receive, send)
    if not sent:
        return Answer(0, {}, b"")  # the app was about to answer when the client left
    start = sent[0]
    named: dict[str, str] = {}
    for name, value in start["headers"]:
        named.setdefault(name.decode(), value.decode("latin-1"))
    return Answer(start["status"], named, b"".join(message.get("body", b"") for message in sent[1:]))
