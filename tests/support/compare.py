"""Comparisons in a few verbs, for tests on whatever asks for them."""

from collections import defaultdict
from typing import Any

from tests.support.http import Client, Frame, Response

EVENTS = {"Accept": "text/event-stream"}


class Compare:
    """`compare = Compare(client)`: comparisons, their panes and their votes."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def begin(self, models: list[str], prompt: Any = "Which wave?", **more: Any) -> "Watched":
        """Start a comparison and read its first event."""
        body = {"prompt": prompt, "models": models, **more}
        return await self.watch("/api/comparisons", body)

    async def watch(self, path: str, body: dict[str, Any]) -> "Watched":
        response = await self.client.post(path, body, headers=EVENTS)
        assert 200 == response.status, await response.text()
        watched = Watched(response)
        first = await watched.next()
        assert first is not None
        assert "comparison.started" == first.event
        watched.comparison = first.json()["comparison"]
        return watched

    async def whole(self, models: list[str], prompt: Any = "Which wave?", **more: Any) -> dict[str, Any]:
        """Compare without a stream; the comparison once every pane has settled."""
        return await self.post("/api/comparisons", {"prompt": prompt, "models": models, **more})

    async def post(self, path: str, body: Any = None, status: int = 200) -> dict[str, Any]:
        response = await self.client.post(path, {} if body is None else body)
        assert status == response.status, f"{response.status}: {await response.text()}"
        answer: dict[str, Any] = await response.json()
        return answer

    async def refused(self, path: str, body: Any = None, method: str = "POST") -> tuple[int, str]:
        """Ask for what must be refused; the status and the code."""
        response = await self.client.request(method, path, json={} if body is None else body)
        return response.status, (await response.json())["error"]["code"]

    async def get(self, comparison_id: str) -> dict[str, Any]:
        response = await self.client.get(f"/api/comparisons/{comparison_id}")
        assert 200 == response.status, await response.text()
        kept: dict[str, Any] = await response.json()
        return kept

    async def vote(self, kept: dict[str, Any], winner: int | str) -> dict[str, Any]:
        return await self.post(f"/api/comparisons/{kept['id']}/vote", {"winner": winner})


class Watched:
    """One connection with all panes of a comparison, read as far as the test asks."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.comparison: dict[str, Any] = {}
        self.frames: list[Frame] = []
        self.texts: defaultdict[int, str] = defaultdict(str)
        self.runs: dict[int, str] = {}

    @property
    def path(self) -> str:
        return f"/api/comparisons/{self.comparison['id']}"

    async def next(self) -> Frame | None:
        frame = await self.response.next_event()
        if frame is None:
            return None
        self.frames.append(frame)
        said = frame.json()
        if "pane" in said:
            self.runs[said["pane"]] = said["run"]
        if frame.event == "text.delta":
            self.texts[said["pane"]] += said["text"]
        if frame.event == "comparison.settled":
            self.comparison = said["comparison"]
        return frame

    async def until(self, kind: str, pane: int | None = None) -> dict[str, Any]:
        """Read to an event of a kind; what it says."""
        while (frame := await self.next()) is not None:
            said: dict[str, Any] = frame.json()
            if frame.event == kind and pane in (None, said.get("pane")):
                return said
        raise AssertionError(f"the stream ended without {kind} of pane {pane}")

    async def said(self, pane: int, text: str) -> None:
        """Read until a pane has said a text."""
        while text not in self.texts[pane]:
            assert await self.next() is not None, f"the stream ended after {dict(self.texts)}"

    async def end(self) -> dict[str, Any]:
        """Read to the end of the stream; the comparison as its last event has it."""
        while await self.next() is not None:
            pass
        assert "comparison.settled" == self.frames[-1].event
        return self.comparison
