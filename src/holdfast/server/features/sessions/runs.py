"""`/api/runs`: list, read, stop, steer, approve."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp

from ....access import CHAT, CHAT_SHARED, READ, READ_SHARED
from ....agents import approvals as desks
from ....asgi import last_seen
from ....asks import chat_ask
from ....engine.core import Core
from ....errors import BadRequest, NotFound, StoreUnavailable
from ....events import ApprovalRequested, InputRequested, OutcomeRequested, Question, StoppedBy
from ....history import text_of
from ....runs.run import Run
from ....store import RunRecord, Store
from ....wires import native
from ....wires.shapes import ListedRunJson
from ...kit.caller import access_of, owner_of
from ...kit.feature import Endpoint, Feature
from ...kit.http.errors import json_of
from ...kit.request import Bodies, decode, whole_number
from ...kit.streams import Streams
from ...sources.agents import AgentSources
from ..audit.audit import note_of
from ..sharing.reach import Reach
from .run_json import RunViews, answer_of_start, run_headers

OUTCOMES = ("completed", "truncated", "stopped", "failed", "interrupted")
MOST_LOOKED_AT = 2000
"""Maximum number of runs that one request for runs of an outcome looks at."""
STOP_PATIENCE = 8.0  # timeout of a stop, in seconds, while the store is not reachable


class ApprovalDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision on a tool approval."""

    decision: Literal["allow", "deny"]
    note: str = ""
    scope: Literal["once", "session", "always"] = "once"
    arguments: dict[str, Any] | None = None
    """With these arguments the call runs, in place of the model's."""
    beginning: str = ""
    """For longer than once, allow only calls that begin so."""


class CallOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a tool call that a crash has interrupted."""

    decision: Literal["ran", "again", "skip"]
    note: str = ""


class FormAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to what a tool asks while it runs."""

    decision: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = {}
    note: str = ""


class Steering(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for a running agent."""

    input: str


class RunsApi(Feature):
    """Runs: to read, stop and steer them."""

    def __init__(
        self,
        bodies: Bodies,
        streams: Streams,
        views: RunViews,
        reach: Reach,
        agents: AgentSources,
        engine: Core,
        store: Store,
    ) -> None:
        self._bodies, self._streams, self._views, self._reach = bodies, streams, views, reach
        self._agents, self._engine, self._store = agents, engine, store

    @Endpoint(
        "GET",
        "/api/runs",
        who=READ,
        query={
            "status": "queued, running or settled",
            "outcome": "how the runs ended: completed, truncated, stopped, failed or interrupted",
            "session_id": "",
            "prefix": "the beginning of the id",
            "before": "",
            "limit": "1 to 200",
        },
    )
    async def list_runs(self, request: Request) -> ASGIApp:
        """List stored runs, the newest first. A page has fewer if few runs have the outcome; `next` goes on then."""
        query = request.query_params
        status, outcome = query.get("status"), query.get("outcome")
        if status not in (None, "queued", "running", "settled"):
            raise BadRequest("status is queued, running or settled.", param="status")
        if outcome is not None and outcome not in OUTCOMES:
            raise BadRequest(f"outcome is one of {', '.join(OUTCOMES)}.", param="outcome")
        limit = whole_number(request, "limit", 50, 200)
        before, session_id, looked = query.get("before"), query.get("session_id"), 0
        found: list[RunRecord] = []
        while len(found) < limit and looked < MOST_LOOKED_AT:
            page = await self._store.list_runs(
                owner=owner_of(request),
                session_id=session_id,
                status=status,  # type: ignore[arg-type]
                prefix=query.get("prefix", ""),
                before=before,
                limit=limit - len(found),
            )
            if not page:
                return json_of({"runs": await self._listed(found), "next": None})
            found += [record for record in page if outcome in (None, _outcome(record))]
            before, looked = page[-1].id, looked + len(page)
        return json_of({"runs": await self._listed(found), "next": before})

    async def _listed(self, records: Sequence[RunRecord]) -> list[ListedRunJson]:
        """Return runs for a list, each with what was asked and the title of its chat."""
        ids = dict.fromkeys(record.session_id for record in records if record.session_id)
        sessions = [await self._store.get_session(id) for id in ids]
        titles = {session.id: session.title for session in sessions if session is not None and session.kind == "chat"}
        return [
            {
                **native.listed_run(await self._views.revealed(self._engine.run_of(record))),
                "question": native.beginning(await self._question(record)),
                "session_title": titles.get(record.session_id or ""),
            }
            for record in records
        ]

    async def _question(self, record: RunRecord) -> str:
        """Return the text that a run answers: of its message in the session, or the last one of its request."""
        if record.input:
            return text_of(record.input[-1].content)
        if record.session_id and record.parent_id:
            message = await self._store.get_message(record.session_id, record.parent_id)
            return "" if message is None else text_of(message.content)
        sent = chat_ask(record.ask).messages
        return text_of(sent[-1].get("content")) if sent else ""

    @Endpoint("GET", "/api/runs/{run_id}", who=READ_SHARED)
    async def get_run(self, request: Request) -> ASGIApp:
        """Return a run, while it runs and after."""
        run = await self._reach.run(request)
        return json_of(await self._views.revealed(run), run.text, headers=run_headers(run))

    @Endpoint(
        "GET",
        "/api/runs/{run_id}/events",
        who=READ_SHARED,
        query={"after": "the last seq seen, or snapshot"},
        answers={200: "events, live to the settlement", 204: "all were seen", 410: "the log was trimmed"},
        streams=True,
    )
    async def read_events(self, request: Request) -> ASGIApp:
        """Send every event after a cursor, then live ones, to the settlement."""
        run = await self._engine.at(await self._reach.run(request), last_seen(request))
        self._agents.attend(run)
        return self._streams.of_run(run, request)

    @Endpoint("GET", "/api/runs/{run_id}/timeline", who=READ_SHARED)
    async def read_timeline(self, request: Request) -> ASGIApp:
        """Return the times of the events, to replay a run at its pace."""
        run = await self._reach.run(request)
        times = [[seq, native.moment(at)] for seq, at in await run.times() if at]
        return json_of({"run": run.id, "times": times, "ttft_ms": await self._ttft(run)}, headers=run_headers(run))

    async def _ttft(self, run: Run) -> float | None:
        """Return the time to first token as the answer of a run has it; None while it runs, or without an answer."""
        record = run.record
        if record.session_id is None or record.message_id is None:
            return None
        answer = await self._store.get_message(record.session_id, record.message_id)
        return None if answer is None or answer.figures is None else answer.figures.ttft_ms

    @Endpoint("POST", "/api/runs/{run_id}/stop", who=CHAT_SHARED, stores=False)
    async def stop_run(self, request: Request) -> ASGIApp:
        """Stop a run and return it settled. The first ending stands."""
        run = await self._reach.run(request)
        await stop_within(run)
        return json_of(await self._views.revealed(run), run.text, headers=run_headers(run))

    @Endpoint(
        "POST",
        "/api/runs/{run_id}/steer",
        who=CHAT,
        takes=Steering,
        answers={202: "the run; it has the message", 409: "it cannot be steered, and why"},
    )
    async def steer_run(self, request: Request) -> ASGIApp:
        """Send a message to a running agent: its model gets it before its next step."""
        run = await self._reach.run(request)
        body = decode(await self._bodies.read(request), Steering)
        return await self.steer(request, run, body.input)

    async def steer(self, request: Request, run: Run, text: str) -> ASGIApp:
        """Add a message to a run, and return when it is saved."""
        if not text.strip():
            raise BadRequest("The input is empty.", param="input")
        await self._agents.steer(run, access_of(request), text)
        return answer_of_start(await self._views.revealed(run))

    @Endpoint(
        "POST",
        "/api/runs/{run_id}/approvals/{approval_id}",
        who=CHAT,
        audit="approval.decide",
        stores=False,
        takes=ApprovalDecision,
        answers={409: "the approval is no longer open"},
    )
    async def decide(self, request: Request) -> ASGIApp:
        """Decide a tool approval: once, for the session, or always; also with other arguments."""
        run = await self._reach.run(request)
        body = decode(await self._bodies.read(request), ApprovalDecision)
        is_edited = body.arguments is not None
        note_of(request).details = {"decision": body.decision, "scope": body.scope}
        if is_edited:
            note_of(request).details["edited"] = "arguments"
        _check_scope(run, body)
        arguments = msgspec.json.encode(body.arguments).decode() if is_edited else ""
        reply = desks.Decision(body.decision, body.note, body.scope, arguments, body.beginning)
        return await self._reply(request, run, request.path_params["approval_id"], reply)

    @Endpoint(
        "POST",
        "/api/runs/{run_id}/outcomes/{outcome_id}",
        who=CHAT,
        audit="outcome.decide",
        stores=False,
        takes=CallOutcome,
        answers={404: "no such run, or it has not asked this", 409: "it is no longer open"},
    )
    async def decide_outcome(self, request: Request) -> ASGIApp:
        """Say what became of a tool call that a crash has interrupted: it ran, run it again, or leave it out."""
        run = await self._reach.run(request)
        body = decode(await self._bodies.read(request), CallOutcome)
        note_of(request).details = {"decision": body.decision}
        return await self._reply(
            request, run, request.path_params["outcome_id"], desks.CallEnding(body.decision, body.note)
        )

    @Endpoint(
        "POST",
        "/api/runs/{run_id}/inputs/{input_id}",
        who=CHAT,
        audit="input.decide",
        stores=False,
        takes=FormAnswer,
        answers={
            400: "bad input, or it does not fit the form",
            404: "no such run, or it has not asked this",
            409: "it is no longer open",
        },
    )
    async def answer_form(self, request: Request) -> ASGIApp:
        """Answer what a tool asks while it runs: fill its form in, decline, or put the question away."""
        run = await self._reach.run(request)
        body = decode(await self._bodies.read(request), FormAnswer)
        note_of(request).details = {"decision": body.decision}
        content = body.content if body.decision == "accept" else {}
        return await self._reply(
            request, run, request.path_params["input_id"], desks.FormReply(body.decision, content, body.note)
        )

    async def _reply(self, request: Request, run: Run, asked: str, reply: desks.DeskReply) -> ASGIApp:
        """Answer what a run has asked, and return the run when the reply is saved."""
        if not await _has_asked(run, asked, _KINDS[type(reply)]):
            raise NotFound(f"Run {run.id} has not asked {asked!r}.")
        await self._agents.decide(run, access_of(request), asked, reply)
        return json_of(await self._views.revealed(run), run.text, headers=run_headers(run))


_KINDS: dict[type[desks.DeskReply], type[Question]] = {
    desks.Decision: ApprovalRequested,
    desks.CallEnding: OutcomeRequested,
    desks.FormReply: InputRequested,
}
"""What each kind of reply answers."""


def _outcome(record: RunRecord) -> str | None:
    return None if record.settlement is None else record.settlement.outcome


async def stop_within(run: Run, by: StoppedBy = "user") -> None:
    """Stop a run; raise an error if its settlement cannot be saved in time."""
    try:
        async with asyncio.timeout(STOP_PATIENCE):
            await run.stop(by=by)
    except TimeoutError:
        raise StoreUnavailable(
            f"Run {run.id} is stopping, but its settlement cannot be saved yet. It is saved when the store is back."
        ) from None


def _check_scope(run: Run, body: ApprovalDecision) -> None:
    if body.arguments is not None and body.decision == "deny":
        raise BadRequest("Only a call that is allowed can have other arguments.", param="arguments")
    if body.beginning and body.scope == "once":
        raise BadRequest("A beginning is for more calls than one: give a scope too.", param="beginning")
    if body.scope != "once" and body.decision == "deny":
        raise BadRequest("Only allow can apply for longer than once.", param="scope")
    if body.scope == "session" and run.record.session_id is None:
        raise BadRequest("This run has no session: allow the call once, or always.", param="scope")


async def _has_asked(run: Run, asked: str, kind: type[Question]) -> bool:
    after = run.log.oldest - 1
    while events := await run.log.batch(after):
        if any(isinstance(event, kind) and event.id == asked for event in events):
            return True
        after += len(events)
        await asyncio.sleep(0)
    return False
