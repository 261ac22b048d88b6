"""Who is told how runs end, and what they must have heard: every end, and none twice unless a server died."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.events import AnySettlement, Stopped
from holdfast.server.features.notifications.deliveries import KIND
from holdfast.server.features.notifications.news import News
from holdfast.server.features.notifications.people import Device, Persons
from holdfast.store import RunRecord, Store

from .checker import is_accepted
from .store import peek

if TYPE_CHECKING:
    from .world import World

OWNER = "me"


class Pager:
    """Hears of runs, and is out of reach now and then."""

    name = place = "the pager"
    hears_waits = False
    pause = 0.0
    gives_up = 1e9

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: list[tuple[str, str]] = []
        """The runs that it was told of, and the ids of the events."""

    def expects(self, record: RunRecord) -> bool:
        """It wants to hear of every run."""
        return True

    async def tell(self, news: News) -> bool:
        """Hear of a run, unless it is out of reach."""
        await asyncio.sleep(0.05)
        if self.world.random() < 0.2:
            return False
        self.world.say(f"the pager hears of {news.run.id}: {news.type}")
        self.heard.append((news.run.id, news.id))
        return True

    def has_waited_for_all(self) -> bool:
        """Tell whether nothing is left to be told."""
        return not self.world.medium.sql("SELECT 1 FROM documents WHERE kind = :kind", kind=KIND)

    def check(self) -> Iterator[str]:
        """Yield what was not told, or told twice."""
        for run in self.world.history.runs.values():
            record = peek(self.world.medium.get_run(run.id))
            if not run.is_told_of or not is_accepted(record):
                continue
            ids = [id for run_id, id in self.heard if run_id == run.id]
            if not ids:
                yield f"{run.id}: nobody was told of its end"
            elif len(set(ids)) > 1:
                yield f"{run.id}: its end was told under several ids: {ids}"
            elif len(ids) > 1 and not self.world.disturbed:
                yield f"{run.id}: its end was told {len(ids)} times"


class Browsers:
    """The browsers of a person, behind a push service that is out of reach now and then."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.names = [f"browser {number}" for number in range(world.scenario.devices)]
        self.heard: Counter[tuple[str, str]] = Counter()
        """How often each of them was told of a session."""

    def subscribe(self) -> None:
        """Let the person choose notifications in each browser."""
        persons = self.of_server(self.world.medium).persons
        for name in self.names:
            peek(persons.add_device(OWNER, Device(name, "", "", "", name, "en", 0.0)))

    def of_server(self, store: Store) -> Pushing:
        """Return what sends the messages of a server."""
        return Pushing(self, store)

    def check(self) -> Iterator[str]:
        """Yield what was not told, or told twice."""
        for session_id in {run.session_id for run in self.world.history.runs.values() if run.is_told_of}:
            if session_id is not None and session_id not in self.world.history.deleted:
                yield from self._check(session_id)

    def _check(self, session_id: str) -> Iterator[str]:
        runs = [run for run in self.world.history.runs.values() if run.session_id == session_id and run.is_told_of]
        records = [peek(self.world.medium.get_run(run.id)) for run in runs]
        ends = [record.settlement for record in records if record is not None and record.settlement is not None]
        is_news = any(is_accepted(record) and _is_news(record.settlement) for record in records)
        is_read = any(f"ses_{reader.session}" == session_id for reader in self.world.scenario.readers)
        for name in self.names:
            told = self.heard[name, session_id]
            if told > len(ends) and not self.world.disturbed:
                yield f"{session_id}: a browser was told {told} times of {len(ends)} ends"
            elif is_news and not told and not is_read:
                yield f"{session_id}: {name} was told of no end"


def _is_news(end: AnySettlement | None) -> bool:
    return end is not None and not (isinstance(end, Stopped) and end.by == "user")


class Pushing:
    """Sends the push messages of one server."""

    def __init__(self, browsers: Browsers, store: Store) -> None:
        nobody: Any = None  # no webhook of a person is sealed
        self.browsers, self.store = browsers, store
        self.persons = Persons(store, nobody, browsers.world.clock)

    async def send(self, device: Device, message: bytes, topic: str) -> int | None:
        """Send a message, unless the service is out of reach."""
        await asyncio.sleep(0.05)
        if self.browsers.world.random() < 0.2:
            return None
        session_id = json.loads(message)["session"]
        self.browsers.world.say(f"{device.name} hears of {session_id}")
        self.browsers.heard[device.name, session_id] += 1
        return 201
