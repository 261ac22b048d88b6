"""Gives a chat a title after its first response, by the model of the setting `title_model`."""

from __future__ import annotations

import logging

from ....concurrency.tasks import OwnedTasks
from ....errors import HoldfastError
from ....events import Completed, Truncated
from ....history import Message, Session, branch
from ....runs.run import Run
from ....store import RunRecord
from ...config.settings import AGENT
from ...kit.feature import Feature
from ...live.live_settings import Configured
from ...running.running import Running
from ...sources.compacting import is_compaction
from ..observe.metrics.observers import Observers
from .writer import TitleWriter

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 50
"""Maximum number of titles that are being written, or wait for it. Further chats keep the beginning of a message."""
MOST_QUESTIONS = 2
"""A chat that has no title of a model after so many messages of a person gets none."""


class TitlesFeature(Feature):
    """Titles that a model writes. They are no part of a response: nothing waits for one."""

    def __init__(self, running: Running, observers: Observers, configured: Configured) -> None:
        self._engine, self._store, self._configured = running.engine, running.store, configured
        self._tasks = OwnedTasks("titles")
        self._writer = TitleWriter(running.engine, running.starting, running.owners, running.budgets, configured)
        observers.listen(begun=self._writer.notice, settled=self._settled)

    async def close(self) -> None:
        """Drop the titles that are not written yet."""
        await self._tasks.cancel()

    def _settled(self, run: Run) -> None:
        """Begin a title, if the run was the response of a chat."""
        record = run.record
        self._writer.notice(record)
        if record.session_id is None or not self._configured.title_model:
            return
        is_answer = record.kind in ("chat", AGENT) and not is_compaction(record)
        is_whole = isinstance(run.settlement, Completed | Truncated) and bool(run.settlement.text.strip())
        if is_answer and is_whole and len(self._tasks) < MOST_AT_ONCE:
            self._tasks.start(self._title(record))

    async def _title(self, record: RunRecord) -> None:
        """Write the title of a run's session, if it has none. Without a right or a budget for it there is none."""
        try:
            if (found := await self._untitled(record)) is None:
                return
            session, messages = found
            if not (title := await self._writer.write(record, messages)):
                return
            changes = {"title": title, "titled": "model"}
            if await self._store.update_session(session.id, changes, self._engine.now()) is not None:
                self._engine.touch(session.id, session.owner)
        except TimeoutError:
            logger.info("No title for session %s: its model was never idle", record.session_id)
        except HoldfastError as error:
            logger.info("No title for session %s: %s", record.session_id, error)

    async def _untitled(self, record: RunRecord) -> tuple[Session, list[Message]] | None:
        """Return the session of a run with its messages; None if it needs no title."""
        session = await self._store.get_session(record.session_id or "")
        if session is None or session.kind != "chat" or session.titled:
            return None
        messages = branch(await self._store.messages(session.id), session.head_id)
        asked = sum(message.role == "user" and not message.automatic for message in messages)
        return (session, messages) if asked <= MOST_QUESTIONS else None
