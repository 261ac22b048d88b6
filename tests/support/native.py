"""The native API in a few verbs, for tests whose subject is not the shape of its answers."""

from typing import Any

from tests.support.http import Client, Frame, Response

Content = str | list[dict[str, Any]]


class Native:
    """`api = Native(client)`: sessions, runs and what became of them. Whatever it asks for must succeed."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, path: str, **options: Any) -> Any:
        return await self._succeed(await self.client.get(path, **options))

    async def new_session(self, **fields: Any) -> str:
        session = await self._succeed(await self.client.post("/api/sessions", fields))
        return str(session["id"])

    async def send(self, session_id: str, input: Content, model: str, **more: Any) -> Response:
        """Send a message and wait for the answer's head, whatever it says. `headers` go where headers go."""
        headers = more.pop("headers", None)
        body = {"input": input, "model": model, **more}
        return await self.client.post(f"/api/sessions/{session_id}/runs", body, headers=headers)

    async def start(self, session_id: str, input: Content, model: str, **more: Any) -> str:
        """Send a message; the id of the run that was accepted."""
        run = await self._succeed(await self.send(session_id, input, model, **more))
        return str(run["id"])

    async def run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = await self.get(f"/api/runs/{run_id}")
        return run

    async def events(self, run_id: str, after: int = 0) -> Response:
        """The run's events as they come."""
        response = await self.client.get(f"/api/runs/{run_id}/events?after={after}")
        assert 200 == response.status, await response.text()
        return response

    async def replay(self, run_id: str, after: int = 0) -> list[Frame]:
        """The run's events to the last one. Waits for the settlement."""
        return await (await self.events(run_id, after)).all_events()

    async def settled(self, run_id: str) -> dict[str, Any]:
        """Wait until the run has ended; the settlement that its readers were shown."""
        settlement: dict[str, Any] = (await self.replay(run_id))[-1].json()["settlement"]
        return settlement

    async def shown(self, run_id: str, text: str) -> Response:
        """Wait until a reader has been shown a text; the reader."""
        reader, seen = await self.events(run_id), ""
        while text not in seen:
            frame = await reader.next_event()
            assert frame is not None, f"the run ended after {seen!r}"
            seen += frame.json()["text"] if frame.event == "text.delta" else ""
        return reader

    async def stop(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = await self._succeed(await self.client.post(f"/api/runs/{run_id}/stop"))
        return run

    async def session(self, session_id: str) -> dict[str, Any]:
        session: dict[str, Any] = await self.get(f"/api/sessions/{session_id}")
        return session

    async def session_ids(self) -> list[str]:
        """Which sessions are listed. What else a list says of a session changes when a run of it settles."""
        return sorted(session["id"] for session in (await self.get("/api/sessions"))["sessions"])

    async def transcript(self, session_id: str) -> list[tuple[str, str]]:
        """Who said what. A partial is said by `partial`."""
        messages = (await self.session(session_id))["messages"]
        return [("partial" if said["partial"] else said["role"], said["content"]) for said in messages]

    async def _succeed(self, response: Response) -> Any:
        assert 200 <= response.status < 300, f"{response.status}: {await response.text()}"
        return await response.json()
