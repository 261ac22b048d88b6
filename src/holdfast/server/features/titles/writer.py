"""Asks a model for the title of a chat, when nobody else needs the model."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from ....asks import ChatAsk
from ....engine.core import Core
from ....events import Completed
from ....history import Message, text_of, title_from
from ....runs.run import Run
from ....store import RunRecord
from ....upstreams import Provider
from ....upstreams.efforts import efforts_of
from ...live.live_settings import Configured
from ...starting.starting import AllowedStart, Starting
from ..accounts.owners import Owners
from ..budgets.budgets import Budgets

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
