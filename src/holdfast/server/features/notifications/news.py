"""What is told of a run, and to whom it can be told."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from ....events import AnySettlement, Failed
from ....runs.run import Run
from ....wires import native
from ....wires.openai import webhooks


class News(NamedTuple):
    """What is told of a run: how it ended, or that it waits for a person."""

    run: Run
    settled: AnySettlement | None
    """None for a run that waits."""
    at: float
    waits: int = 0
    """How often the run has waited by now."""

    @property
    def type(self) -> str:
        """The name of the event."""
        return "run.waiting" if self.settled is None else f"run.{self.settled.outcome}"

    @property
    def id(self) -> str:
        """The id of the event. A repeated delivery has the same."""
        return webhooks.event_id(self.run.id) + (f"_{self.waits}" if self.settled is None else "")

    def payload(self) -> bytes:
        """Return the event as Standard Webhooks recommends it: the ids, the outcome, and no text of the chat."""
        record, settled = self.run.record, self.settled
        data = {
            "run_id": record.id,
            "session_id": record.session_id,
            "model": record.model,
            "error": settled.error.code if isinstance(settled, Failed) else None,
        }
        return msgspec.json.encode({"type": self.type, "timestamp": native.moment(self.at), "data": data})


class Target(Protocol):
    """One that is told of a run."""

    place: str
    """Its name in logs, without secrets."""
    hears_waits: bool
    """Whether it is told each time that the run waits for a person."""
    pause: float
    """Seconds between what happens and the first attempt, in which a page may show it to the person."""
    gives_up: float
    """Seconds after which nobody wants to hear it any more."""

    async def tell(self, news: News) -> bool:
        """Tell once. False: not heard, try again later."""
        ...
