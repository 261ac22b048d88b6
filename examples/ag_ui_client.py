"""Runs a thread on a Holdfast server with AG-UI, loses the connection, resumes, and stops the run.

Run it as `python ag_ui_client.py http://127.0.0.1:8787 scripted/lorem:200:50`.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import httpx2
from ag_ui.core import PROTOCOL_VERSION, Event, RunAgentInput, RunFinishedEvent, TextMessageContentEvent, UserMessage
from pydantic import TypeAdapter

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


async def events_of(answer: httpx2.Response) -> AsyncIterator[Event]:
    """Read a stream of AG-UI's events."""
    answer.raise_for_status()
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield EVENT.validate_json(line.removeprefix("data: "))


async def start(http: httpx2.AsyncClient, model: str, question: str) -> tuple[str, int]:
    """Start a run that outlives its client; disconnect after five events. Return its id, and the number of events."""
    asked = RunAgentInput(
        thread_id="example",
        run_id="mine",
        protocol_version=PROTOCOL_VERSION,
        messages=[UserMessage(id="1", content=question)],
        forwarded_props={"model": model, "background": True},
    )
    seen = 0
    async with http.stream("POST", "/ag-ui", json=asked.model_dump(mode="json", by_alias=True)) as answer:
        async for _ in events_of(answer):
            seen += 1
            if seen == 5:
                break
    return answer.headers["x-run-id"], seen


async def resume_and_stop(http: httpx2.AsyncClient, run_id: str, seen: int) -> str:
    """Resume after the first `seen` events, stop the run at the next text, and return the outcome."""
    where = {"starting_after": str(seen), "protocolVersion": PROTOCOL_VERSION}
    async with http.stream("GET", f"/ag-ui/{run_id}", params=where) as answer:
        async for event in events_of(answer):
            if isinstance(event, TextMessageContentEvent):
                await http.post(f"/api/runs/{run_id}/stop")
            if isinstance(event, RunFinishedEvent):
                return event.outcome.type
    return "not finished"


async def main(base_url: str, model: str) -> None:
    """Start, disconnect, resume, stop."""
    async with httpx2.AsyncClient(base_url=base_url) as http:
        run_id, seen = await start(http, model, "Tell me something")
        print(await resume_and_stop(http, run_id, seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
