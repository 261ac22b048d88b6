"""The lab's upstream: misbehaves as a tag in the prompt says, and records each request by the tag's word.

A request without a tag (a title, a check of health) gets a short whole answer.
"""

from __future__ import annotations

from collections import defaultdict
from types import TracebackType

from .misbehaving.exchange import Recorded
from .misbehaving.server import ScriptedUpstream
from .misbehaving.steps import Script, Status
from .scripts import Tag, script_named, tagged

__all__ = ["Upstream"]

HEALTH = ("/health", "/health_generate", "/model_info", "/server_info")
"""Paths that routers ask before they use an upstream; any object will do."""


class Upstream(ScriptedUpstream):
    """`async with Upstream(port=9100) as upstream:` listens until the block is left."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, models: tuple[str, ...] = ("m",)) -> None:
        super().__init__(script_named("hello"), host=host, port=port)
        self.listed = list(models)
        self.tagged: defaultdict[str, list[Recorded]] = defaultdict(list)
        """Requests for completions by the word of their tag."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.errors.clear()  # the judged server may send anything
        await super().__aexit__(kind, error, trace)

    def record(self, request: Recorded) -> None:
        """Take note of a request, by its tag."""
        tag = tagged(request.raw) if _is_completion(request) else None
        if tag is not None:
            self.tagged[tag.token].append(request)

    def script_for(self, request: Recorded) -> Script:
        """Return the script that the tag names."""
        if _is_completion(request):
            tag = tagged(request.raw)
            return (script_named(tag.script) if tag else None) or self.script
        path = request.path.partition("?")[0]
        if request.method == "GET" and path.endswith(("/models", *HEALTH)):
            return [Status(200, self.model_list())]
        return [Status(404, {"error": {"message": f"Unknown request URL: {path}", "code": "unknown_url"}})]

    async def seen(self, tag: Tag, timeout: float) -> Recorded:
        """Wait for the first request of a tag."""
        await self.until(lambda: bool(self.tagged[tag.token]), timeout)
        return self.tagged[tag.token][0]

    async def all_left(self, tag: Tag, timeout: float) -> float | None:
        """Wait until no request of a tag is open, and return when the last client left; None if one stays open."""
        requests = self.tagged[tag.token]
        try:
            await self.until(lambda: all(each.finished or each.closed_at for each in requests), timeout)
        except TimeoutError:
            return None
        left = (each.closed_at if each.left_early else each.received_at for each in requests)
        return max((moment for moment in left if moment is not None), default=None)


def _is_completion(request: Recorded) -> bool:
    return request.method == "POST" and request.path.partition("?")[0].endswith("/chat/completions")
