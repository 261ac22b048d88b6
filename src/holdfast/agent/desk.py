"""Where people reach an agent at work: to steer it, and to allow or deny what it asks for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from ..errors import CannotSteer, RunSettled, SourceFailed, StaleApproval
from ..events import ApprovalDecided, ApprovalRequested, Steered, ToolCall
from ..ids import new_id
from .outbox import Outbox

Scope = Literal["once", "session", "always"]


class ApprovalExpired(SourceFailed):
    """Nobody has decided in time."""

    code = "approval_expired"
    status = 504

    def __init__(self, tool: str, seconds: float) -> None:
        super().__init__(f"Nobody allowed or denied {tool} within {seconds:g} s.")


class Decision(msgspec.Struct, frozen=True):
    """What a person has said to an approval, and for how long it holds."""

    decision: Literal["allow", "deny"]
    note: str = ""
    scope: Scope = "once"


class Place(Protocol):
    """The run that the work belongs to, as far as the work knows it."""

    waits: bool
    """It only waits for a person."""
    refused: list[str]
    """What did not end when it was told to."""

    async def saved(self) -> None:
        """Wait until all that was said is saved."""
        ...


class Nowhere:
    """A place for work that belongs to no run."""

    def __init__(self) -> None:
        self.waits = False
        self.refused: list[str] = []

    async def saved(self) -> None:
        """Nothing is saved here."""


class Desk:
    """One for each agent at work. Costs nothing while nobody asks."""

    def __init__(
        self,
        outbox: Outbox,
        place: Place,
        run_id: str = "",
        *,
        on_waiting: Callable[[bool], None] = lambda is_waiting: None,
    ) -> None:
        self._outbox = outbox
        self._place = place
        self._run_id = run_id
        self._on_waiting = on_waiting
        self._steered: list[str] = []
        self._answers: dict[str, asyncio.Future[Decision]] = {}
        self._decided: dict[str, asyncio.Future[None]] = {}
        self._busy = 0
        self._is_finishing = False

    @property
    def is_waiting(self) -> bool:
        """Whether a person is asked something."""
        return bool(self._answers)

    # steering

    async def steer(self, text: str) -> None:
        """Put a message into the work. It is saved when this returns; the model sees it at its next boundary."""
        if self._is_finishing:
            raise CannotSteer(f"Run {self._run_id} is finishing and asks its model no more. Send it as a new message.")
        self._steered.append(text)
        try:
            await self._outbox.tell(Steered(new_id("msg"), text))
            await self._place.saved()
        except RunSettled:
            raise CannotSteer(f"Run {self._run_id} ended before the message reached it.") from None

    def take(self) -> list[str]:
        """Return what was put in since the last boundary."""
        taken, self._steered = self._steered, []
        return taken

    def finish(self) -> bool:
        """Say that the work is about to end; False where something was put in that the model has not seen."""
        self._is_finishing = not self._steered
        return self._is_finishing

    def close(self) -> None:
        """Send everyone away: the work is over."""
        self._is_finishing = True
        self._place.waits = False
        for answer in self._answers.values():
            answer.cancel()
        for decided in self._decided.values():
            decided.cancel()

    # approvals

    async def ask(self, call: ToolCall, within: float | None) -> Decision:
        """Ask a person whether a tool may be called, and wait for the answer."""
        expires = None if within is None else time.time() + within
        asked = ApprovalRequested(new_id("apr"), call.name, call.arguments, call.id, expires)
        answer = self._expect(asked)
        await self._outbox.tell(asked)
        return await self._answered(asked, answer, within)

    async def ask_again(self, asked: ApprovalRequested, within: float | None) -> Decision:
        """Go on waiting for an answer that was asked for before a restart."""
        return await self._answered(asked, self._expect(asked), within)

    def _expect(self, asked: ApprovalRequested) -> asyncio.Future[Decision]:
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._answers[asked.id] = answer
        return answer

    async def _answered(
        self, asked: ApprovalRequested, answer: asyncio.Future[Decision], within: float | None
    ) -> Decision:
        await self._place.saved()
        self._change_busy(-1)
        left = within if asked.expires_at is None else max(0.0, asked.expires_at - time.time())
        try:
            async with asyncio.timeout(left):
                said = await answer
        except TimeoutError:
            raise ApprovalExpired(asked.tool, within or 0.0) from None
        finally:
            self._answers.pop(asked.id, None)
            self._change_busy(+1)
        await self._outbox.tell(ApprovalDecided(asked.id, said.decision, said.note))
        await self._place.saved()
        if decided := self._decided.pop(asked.id, None):
            decided.set_result(None)
        return said

    async def decide(self, approval_id: str, said: Decision) -> None:
        """Answer an approval. It is saved when this returns. `StaleApproval` where it waits for no answer any more."""
        answer = self._answers.get(approval_id)
        if answer is None or answer.done():
            raise StaleApproval(approval_id)
        self._decided[approval_id] = decided = asyncio.get_running_loop().create_future()
        answer.set_result(said)
        await asyncio.wait({decided})
        if decided.cancelled():
            raise StaleApproval(approval_id)

    # what goes on meanwhile

    def begin(self) -> None:
        """Say that something is done for which nobody waits on a person."""
        self._change_busy(+1)

    def done(self) -> None:
        """Say that it is done."""
        self._change_busy(-1)

    def _change_busy(self, by: int) -> None:
        self._busy += by
        is_waiting = self._busy == 0 and bool(self._answers)
        if is_waiting != self._place.waits:
            self._place.waits = is_waiting
            self._on_waiting(is_waiting)
