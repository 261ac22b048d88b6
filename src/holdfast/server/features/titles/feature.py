"""Gives a chat a title after its first response: the model of `title_model` is asked when nobody else needs it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from ....asks import ChatAsk
from ....concurrency.tasks import OwnedTasks
from ....engine.core import Core
from ....errors import HoldfastError
from ....events import Completed, Truncated
from ....history import Message, Session, branch, text_of, title_from
from ....runs.run import Run
from ....store import RunRecord
from ....upstreams import Provider
from ....upstreams.efforts import efforts_of
from ...config.settings import AGENT
from ...kit.feature import Feature
from ...live.live_settings import Configured
from ...running.running import Running
from ...sources.compacting import is_compaction
from ...starting.starting import AllowedStart, Starting
from ..accounts.owners import Owners
from ..budgets.budgets import Budgets
from ..observe.metrics.observers import Observers

KIND = "title"
"""The kind of the runs. They are not stored: only what they have used is."""
PATIENCE = 600.0
"""Seconds that a title waits for a quiet moment of a model on this machine."""
DEADLINE = 120.0
MOST_TOKENS = 2_000
"""Of the answer with its reasoning, which needs many more than the title."""
_MOST_READ = 2_000
"""Characters of each message that the model is shown."""
_TRIES = 3
_PROMPT = """Write a title of at most six words for the conversation below, in its language. \
Answer with the title alone: no quotation marks, no Markdown, no full stop.

<conversation>
{}
</conversation>"""
_PREFIX = re.compile(r"(?:title|titel|titre|título|titolo|العنوان)\s*:\s*", re.IGNORECASE)
_AROUND = "\"'`*_#«»„“”‚‘’「」『』 \t"
_JOINERS = "\u200c\u200d"  # in words of Persian, and in emoji


class TitleWriter:
    """Writes titles as runs of their own: rights, budgets, limits and prices are those of every run."""

    def __init__(
        self, engine: Core, starting: Starting, owners: Owners, budgets: Budgets, configured: Configured
    ) -> None:
        self._engine, self._starting, self._owners = engine, starting, owners
        self._budgets, self._configured = budgets, configured
        self._alone = asyncio.Lock()
        self._moved = asyncio.Event()

    def notice(self, _: RunRecord) -> None:
        """Look again whether something runs: a run has begun or ended."""
        self._moved.set()

    async def write(self, record: RunRecord, messages: Sequence[Message]) -> str:
        """Return a title for the session of a run; empty if there is none.

        Raises a `HoldfastError` if its payer may not use the model, or has nothing left for it, and a `TimeoutError` if
        the model is never idle.
        """
        access = await self._owners.access(record.payer.owner or record.owner, record.payer.key)
        if access is None:
            return ""
        payer = await self._budgets.payer_now(record.payer)
        allowed = await self._starting.allow_for(access, payer, self._configured.title_model)
        if self._starting.kind_of(allowed.model.name, KIND) != KIND:
            return ""  # an agent would act
        ask = ChatAsk(messages=[{"role": "user", "content": prompt_for(messages)}], params=self._params(allowed))
        start = partial(self._start, allowed, ask, record.owner)
        if not self._is_near(allowed.model.found.provider):
            return await _title_of(await start())
        async with asyncio.timeout(PATIENCE), self._alone:
            return await self._when_idle(start)

    def _params(self, allowed: AllowedStart) -> dict[str, str | int]:
        """Return parameters with which a model reasons as little as it can."""
        found = allowed.model.found
        efforts = efforts_of(found.provider, found.model)
        effort: dict[str, str | int] = {"reasoning_effort": efforts[0]} if efforts else {}
        return {self._configured.limit_of_tokens(found.provider.name): MOST_TOKENS, **effort}

    def _is_near(self, provider: Provider) -> bool:
        """Return whether a provider has few slots: it is on this machine or in its network, or limited to some runs."""
        described = self._configured.described(provider.name)
        is_limited = described is not None and (described.max_runs > 0 or is_in_own_network(described.address()))
        return is_limited or bool(getattr(provider, "is_local", False))

    async def _start(self, allowed: AllowedStart, ask: ChatAsk, owner: str) -> Run:
        title = allowed.record(ask, owner=owner, kind=KIND, lifetime="attached")  # without long retries
        return await allowed.start(title, keep=False, deadline=DEADLINE)

    async def _when_idle(self, start: Callable[[], Awaitable[Run]]) -> str:
        """Return a title that is written while nothing else runs. A run that begins meanwhile gets the model."""
        for _ in range(_TRIES):
            await self._until(lambda: not self._engine.live())
            run = await start()
            await self._until(partial(self._is_over, run))
            if run.settlement is not None:
                return await _title_of(run)
            await run.stop("replaced")
        return ""

    def _is_over(self, run: Run) -> bool:
        """Return whether a run has ended, or is no longer alone."""
        return run.settlement is not None or len(self._engine.live()) > 1

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._moved.clear()
            await self._moved.wait()


def prompt_for(messages: Sequence[Message]) -> str:
    """Return the request for a title of a conversation: its first messages, each cut."""
    texts = ((message.role, text_of(message.content)[:_MOST_READ].strip()) for message in messages[:4])
    return _PROMPT.format("\n\n".join(f"{role}: {text}" for role, text in texts if text))


def title_in(answer: str) -> str:
    """Return the title that a model has answered with: one line, without what models put around it."""
    lines = [line.strip() for line in answer.splitlines() if line.strip(_AROUND)]
    if len(lines) > 1 and lines[0].endswith(":"):
        lines = lines[1:]
    line = _PREFIX.sub("", lines[0].strip(_AROUND), count=1).strip(_AROUND + ".") if lines else ""
    return title_from("".join(each for each in line if each.isprintable() or each in _JOINERS))


async def _title_of(run: Run) -> str:
    settlement = await run.settled()
    return title_in(settlement.text) if isinstance(settlement, Completed) else ""


def is_in_own_network(address: str) -> bool:
    """Return whether a URL is one of this machine or its network, as far as the URL tells."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost"


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
