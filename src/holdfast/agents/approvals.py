"""The desk of a running agent: messages that steer it, and what it asks a person and waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec

from ..errors import BadRequest, CannotSteer, HoldfastError, RunSettled, SourceFailed, StaleApproval
from ..events import (
    ApprovalDecided,
    ApprovalRequested,
    FormField,
    InputDecided,
    InputRequested,
    OutcomeDecided,
    OutcomeRequested,
    Outlet,
    Question,
    Steered,
    ToolCall,
)
from ..ids import new_id
from ..log.steps import CallProgress
from .tools import Tool
from .tools.forms import misfit_of

Scope = Literal["once", "session", "always"]
ReplyCheck = Callable[["DeskReply"], str]
"""Returns what is wrong with a reply; empty if nothing is."""
GRACE = 5.0
"""Seconds that a reader of the events has to come before nobody is there to be asked."""


class ApprovalExpired(SourceFailed):
    """A person has not answered in time."""

    code = "approval_expired"
    status = 504

    def __init__(self, request: Question, seconds: float) -> None:
        did = "allowed or denied" if isinstance(request, ApprovalRequested) else "said what became of"
        super().__init__(f"No person {did} {request.tool} within {seconds:g} s.")


class NobodyToAsk(SourceFailed):
    """A call needs a person, and there is none where the agent is at work."""

    code = "nobody_to_ask"
    status = 409

    def __init__(self, tool: str, place: str) -> None:
        super().__init__(
            f"{tool} needs an approval, and {place} has nobody to ask. Allow it always in a chat, or in the settings."
        )


class Decision(msgspec.Struct, frozen=True, tag_field="to", tag="approval"):
    """The decision on an approval, and its scope."""

    decision: Literal["allow", "deny"]
    note: str = ""
    scope: Scope = "once"
    arguments: str = ""
    """The arguments that the person has written in place of the model's, as JSON; empty to leave them."""
    beginning: str = ""
    """What is allowed for longer: calls that begin so. Empty for all calls of the tool."""

    def decided(self, request_id: str) -> ApprovalDecided:
        """Return the event."""
        return ApprovalDecided(request_id, self.decision, self.note, self.arguments)


class CallEnding(msgspec.Struct, frozen=True, tag_field="to", tag="outcome"):
    """What a person says about a call that a crash has interrupted."""

    decision: Literal["ran", "again", "skip"]
    note: str = ""

    def decided(self, request_id: str) -> OutcomeDecided:
        """Return the event."""
        return OutcomeDecided(request_id, self.decision, self.note)


class FormReply(msgspec.Struct, frozen=True, tag_field="to", tag="input"):
    """What a person has filled in, or that they did not."""

    decision: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = {}
    note: str = ""

    def decided(self, request_id: str) -> InputDecided:
        """Return the event."""
        return InputDecided(request_id, self.decision, self.content, self.note)


DeskReply: TypeAlias = Decision | CallEnding | FormReply
"""The answer of a person to what a run has asked."""


class Grants(Protocol):
    """Grants: approvals for longer than one call."""

    async def allows(self, tool: Tool, arguments: dict[str, Any]) -> bool:
        """Return whether a call needs no approval."""
        ...

    async def grant(self, tool: str, scope: Scope, beginning: str = "") -> None:
        """Save a grant for a tool, or for its calls that begin so: for the session or always."""
        ...


class NoGrants:
    """No grants: every call needs an approval."""

    async def allows(self, tool: Tool, arguments: dict[str, Any]) -> bool:
        """Return False: there are no grants."""
        return False

    async def grant(self, tool: str, scope: Scope, beginning: str = "") -> None:
        """Save nothing."""


class Place(Protocol):
    """The run of an agent, as its work sees it."""

    waits: bool
    """True while the run waits for nothing but a person."""
    quiet: Callable[[], bool] | None
    """Returns whether the idle limit is suspended."""
    survivors: list[str]
    """Descriptions, for the receipt, of work that did not end at a stop."""

    async def saved(self) -> None:
        """Wait until all emitted events are saved."""
        ...


class Nowhere:
    """The place of work without a run."""

    def __init__(self) -> None:
        self.waits = False
        self.quiet: Callable[[], bool] | None = None
        self.survivors: list[str] = []

    async def saved(self) -> None:
        """Return at once: nothing is saved."""


_Reply = TypeVar("_Reply", Decision, CallEnding, FormReply)


def _misfit(fields: Sequence[FormField], reply: DeskReply) -> str:
    return misfit_of(fields, reply.content) if isinstance(reply, FormReply) and reply.decision == "accept" else ""


def _until(within: float | None) -> float | None:
    return None if within is None else time.time() + within


def _asked_before(
    before: CallProgress, message: str, fields: tuple[FormField, ...]
) -> InputRequested | InputDecided | None:
    """Return the answer to a question that a call has asked before a restart, or the open question, each once."""
    for place, (asked, told) in enumerate(before.inputs):
        if (asked.message, asked.fields) == (message, fields):
            before.inputs = before.inputs[:place] + before.inputs[place + 1 :]
            return told or asked
    return None


class Desk:
    """The steering of one running agent, and its questions."""

    def __init__(
        self,
        out: Outlet,
        place: Place,
        run_id: str = "",
        *,
        grants: Grants | None = None,
        on_waiting: Callable[[bool], None] = lambda is_waiting: None,
        unattended: str = "",
    ) -> None:
        """`unattended` says where the agent is at work if nobody can be asked there."""
        self._attended = asyncio.Event()
        self._out = out
        self._place = place
        self._grants = grants or NoGrants()
        self._run_id = run_id
        self._on_waiting = on_waiting
        self._unattended = unattended
        self._steered: list[str] = []
        self._answers: dict[str, asyncio.Future[DeskReply]] = {}
        self._takes: dict[str, type[DeskReply]] = {}
        self._decided: dict[str, asyncio.Future[None]] = {}
        self._busy = 0
        self._is_finishing = False

    @property
    def is_waiting(self) -> bool:
        """Whether a person is asked."""
        return bool(self._answers)

    # steering

    async def steer(self, text: str) -> None:
        """Add a message. It is saved when this returns; the model gets it before its next step."""
        if self._is_finishing:
            raise CannotSteer(
                f"Run {self._run_id} is finishing, and will not call its model again. Send it as a new message."
            )
        self._steered.append(text)
        try:
            self._out.emit([Steered(new_id("msg"), text)])
            await self._place.saved()
        except RunSettled:
            raise CannotSteer(f"Run {self._run_id} ended before the message reached it.") from None

    def take(self) -> list[str]:
        """Return the messages that were added since the last step."""
        taken, self._steered = self._steered, []
        return taken

    def finish(self) -> bool:
        """Close the desk for steering, and return True. False if a message waits that the model has not seen."""
        self._is_finishing = not self._steered
        return self._is_finishing

    def close(self) -> None:
        """Cancel all waiters: the agent has ended."""
        self._is_finishing = True
        self._place.waits = False
        for answer in self._answers.values():
            answer.cancel()
        for decided in self._decided.values():
            decided.cancel()

    def attend(self) -> None:
        """Note that somebody reads what is asked."""
        self._attended.set()

    # questions

    async def ask(self, approval: ApprovalRequested, within: float | None, check: ReplyCheck) -> Decision:
        """Ask for an approval of a call, and wait for the decision."""
        if self._unattended:
            raise NobodyToAsk(approval.tool, self._unattended)
        request = msgspec.structs.replace(approval, id=new_id("apr"), expires_at=_until(within))
        answer = self._expect(request, Decision)
        self._out.emit([request])
        return await self._answered(request, answer, within, check)

    async def ask_again(self, request: ApprovalRequested, within: float | None, check: ReplyCheck) -> Decision:
        """Wait again for an approval that was requested before a restart."""
        return await self._answered(request, self._expect(request, Decision), within, check)

    async def ask_outcome(self, request: OutcomeRequested, within: float | None) -> OutcomeDecided:
        """Wait for a person to say what became of a call; the request is in the log."""
        reply = await self._answered(request, self._expect(request, CallEnding), within)
        return reply.decided(request.id)

    async def ask_input(
        self,
        call: ToolCall,
        message: str,
        fields: Sequence[FormField],
        within: float | None,
        before: CallProgress,
    ) -> InputDecided:
        """Ask the person something for a call that runs, and wait for the answer.

        A call that is made again after a restart finds the same question, or its answer. In time, or where nobody is
        there, the answer says so: the call has to go on.
        """
        known = _asked_before(before, message, tuple(fields))
        if isinstance(known, InputDecided):
            return known
        request = known or InputRequested(new_id("inp"), call.name, call.id, message, tuple(fields), _until(within))
        answer = self._expect(request, FormReply)
        if known is None:
            self._out.emit([request])
        try:
            if not await self._is_attended():
                return await self._decided_alone(InputDecided(request.id, "decline", note="Nobody is there to ask."))
            reply = await self._answered(request, answer, within, lambda told: _misfit(fields, told))
            return reply.decided(request.id)
        except ApprovalExpired:
            late = InputDecided(request.id, "cancel", note=f"Nobody answered within {within:g} s.")
            return await self._decided_alone(late)

    async def _is_attended(self) -> bool:
        if self._unattended:
            return False
        try:
            await asyncio.wait_for(self._attended.wait(), GRACE)
        except TimeoutError:
            return False
        return True

    async def _decided_alone(self, decided: InputDecided) -> InputDecided:
        """Answer in the place of a person."""
        self._answers.pop(decided.id, None)
        self._out.emit([decided])
        await self._place.saved()
        return decided

    def _expect(self, request: Question, kind: type[_Reply]) -> asyncio.Future[_Reply]:
        answer: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._answers[request.id] = cast("asyncio.Future[DeskReply]", answer)
        self._takes[request.id] = kind
        return answer

    async def _answered(
        self, request: Question, answer: asyncio.Future[_Reply], within: float | None, check: ReplyCheck = lambda _: ""
    ) -> _Reply:
        await self._place.saved()
        try:
            reply = await self._await_reply(request, answer, within)
            while (error := await self._refusal(request, reply, check)) is not None:
                answer = self._expect(request, type(reply))
                self._refuse(request.id, error)
                reply = await self._await_reply(request, answer, within)
            self._out.emit([reply.decided(request.id)])
            await self._place.saved()
            if decided := self._decided.pop(request.id, None):
                decided.set_result(None)
            return reply
        finally:
            if decided := self._decided.pop(request.id, None):  # the call has ended meanwhile
                decided.cancel()

    async def _await_reply(self, request: Question, answer: asyncio.Future[_Reply], within: float | None) -> _Reply:
        """Wait for the reply. Meanwhile the run counts as waiting for a person."""
        self._change_busy(-1)
        left = within if request.expires_at is None else max(0.0, request.expires_at - time.time())
        try:
            async with asyncio.timeout(left):
                return await answer
        except TimeoutError:
            raise ApprovalExpired(request, within or 0.0) from None
        finally:
            self._answers.pop(request.id, None)
            self._change_busy(+1)

    async def _refusal(self, request: Question, reply: DeskReply, check: ReplyCheck) -> HoldfastError | None:
        """Return why a reply cannot be taken: then the question stays open. A grant that outlives the call is saved."""
        if wrong := check(reply):
            return BadRequest(wrong)
        if isinstance(reply, Decision) and reply.decision == "allow" and reply.scope != "once":
            try:
                await self._grants.grant(request.tool, reply.scope, reply.beginning)
            except HoldfastError as error:
                return error
        return None

    def _refuse(self, request_id: str, error: HoldfastError) -> None:
        """Give the error to the caller of `decide`, which may have disconnected."""
        decided = self._decided.pop(request_id)
        decided.set_exception(error)
        decided.exception()  # marks it as retrieved

    async def decide(self, request_id: str, reply: DeskReply) -> None:
        """Answer what a person was asked. The reply, and its grant, are saved when this returns.

        Raises `StaleApproval` if the request is no longer open, and the store's error if the grant cannot be saved.
        """
        answer = self._answers.get(request_id)
        if answer is None or answer.done() or not isinstance(reply, self._takes[request_id]):
            raise StaleApproval(request_id)
        self._decided[request_id] = decided = asyncio.get_running_loop().create_future()
        answer.set_result(reply)
        await asyncio.wait({decided})
        if decided.cancelled():
            raise StaleApproval(request_id)
        decided.result()

    # work beside questions

    def begin(self) -> None:
        """Count work in progress: then the run does not only wait for a person."""
        self._change_busy(+1)

    def done(self) -> None:
        """Count the work as finished."""
        self._change_busy(-1)

    def _change_busy(self, by: int) -> None:
        self._busy += by
        is_waiting = self._busy == 0 and bool(self._answers)
        if is_waiting != self._place.waits:
            self._place.waits = is_waiting
            self._on_waiting(is_waiting)
