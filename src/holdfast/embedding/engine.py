"""The engine of a program: starts runs, and lets their owners find, read and stop them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import get_args

from ..concurrency.signals import heard_at_signals
from ..engine.core import Core
from ..errors import RunNotFound
from ..events import Source
from ..runs.run import Interrupt, Limits, Observe, Run, StopResult
from ..store import Lifetime, Store
from ..store.opening import open_store
from .sources import take_source


class Engine:
    """Makes runs of async generators. A run goes on without its reader, is numbered event by event, and ends once.

    `Engine("sqlite:./data")` keeps runs in a file, `Engine("postgresql://…")` in a database that several processes
    share, and `Engine()` in memory. It runs inside a block, or for the lifetime of an app:

        async with engine: ...
        app = FastAPI(lifespan=engine.lifespan)

    Each run belongs to an owner, a name that you choose for each of your users. For everyone else it does not exist.
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        limits: Limits | None = None,
        observe: Observe | None = None,
        drain: float = 0.0,
    ) -> None:
        """Opens nothing yet.

        - `store`: what `open_store` takes, opened at the start and closed at the end; or a store that you close.
        - `limits`: durations and numbers.
        - `observe`: called once with each run that has settled in this process. It must not block.
        - `drain`: seconds for runs to end by themselves when the engine is closed, before they are stopped.
        """
        if not (store is None or isinstance(store, str) or callable(getattr(store, "create_run", None))):
            raise TypeError(f"`store` is a text such as 'sqlite:./data', or a store, not {store!r}")
        if not (limits is None or isinstance(limits, Limits)):
            raise TypeError(f"`limits` is a Limits, such as Limits(runs=100), not {limits!r}")
        self._given, self._limits, self._observe, self._drain = store, limits, observe, drain
        self._core: Core | None = None
        self._opened = AsyncExitStack()
        self._ending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Engine:
        """Open the store, and settle the runs that a killed process left as `interrupted`."""
        if self._core is not None:
            raise RuntimeError("this engine has been started already")
        async with AsyncExitStack() as opened:
            store = self._given
            if isinstance(store, str):
                store = await asyncio.to_thread(open_store, store)  # waits for the disk
                opened.push_async_callback(store.close)
            core = Core(store, limits=self._limits, observe=self._observe)
            await core.__aenter__()
            opened.callback(self._forget)
            opened.push_async_callback(self.close)
            self._core, self._opened = core, opened.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the engine, and then the store that it has opened."""
        await self._opened.aclose()

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Run the engine as long as an ASGI app: `FastAPI(lifespan=engine.lifespan)`.

        At Ctrl-C or SIGTERM it is closed at once. So every open event stream ends with the settlement of its run, and
        the server, which waits for open responses, can end.
        """
        async with self:
            with heard_at_signals(self._end):
                yield

    async def close(self) -> None:
        """Start no new runs, give runs `drain` seconds, stop the rest, and wait for every settlement.

        Leaving the block does this, and so does the lifespan. Runs can still be opened and read until then.
        """
        await self._end()

    def _end(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.create_task(self._running.close(drain=self._drain))
        return self._ending

    def _forget(self) -> None:
        self._core = self._ending = None

    @property
    def _running(self) -> Core:
        if self._core is None:
            raise RuntimeError(
                "this engine is not running: use it within `async with engine`, or give your app "
                "lifespan=engine.lifespan"
            )
        return self._core

    @property
    def store(self) -> Store:
        """The store of a running engine, to delete old runs for example. RuntimeError if runs are only in memory."""
        store = self._running.store
        if store is None:
            raise RuntimeError('this engine has no store: give it one, such as Engine("sqlite:./data")')
        return store

    async def start(
        self,
        source: Source,
        *,
        owner: str = "",
        key: str | None = None,
        digest: str = "",
        keep: bool | None = None,
        lifetime: Lifetime = "detached",
        interrupt: Interrupt | None = None,
        think: bool = True,
        model: str = "",
    ) -> Run:
        """Start a run, and return it at once.

        - `source`: an async generator of text or events, or a push source. TypeError if it is none.
        - `owner`: to whom the run belongs.
        - `key`: your name for the run. If the owner has a run of that name, it is returned, and `source` is closed
          unread.
        - `digest`: a text that stands for what was asked. A key with another digest than before raises
          `IdempotencyConflict`, and `source` is closed unread.
        - `keep`: whether to save each event before it is shown. Default: yes, if the engine has a store.
        - `lifetime`: `"attached"` stops the run when the first client that reads its events leaves.
        - `interrupt`: called once, with the reason, when the run is told to end, for work in a thread or elsewhere.
        - `think`: whether a leading `<think>…</think>` is reasoning.
        - `model`: a name for the log and the record.
        """
        core = self._running
        _check_owner(owner)
        if lifetime not in get_args(Lifetime):
            raise ValueError(f"lifetime is {' or '.join(map(repr, get_args(Lifetime)))}, not {lifetime!r}")
        if keep and core.store is None:
            raise ValueError('keep=True needs a store, such as Engine("sqlite:./data")')
        take_source(source)
        return await core.start(
            source,
            owner=owner,
            key=key,
            digest=digest,
            keep=core.store is not None if keep is None else keep,
            lifetime=lifetime,
            interrupt=interrupt,
            think=think,
            model=model,
            kind="program",
        )

    async def open(self, run_id: str, *, owner: str = "") -> Run:
        """Return a run of an owner by its id, running or ended. `RunNotFound` if it does not exist or is another's."""
        _check_owner(owner)
        run = await self._running.open(run_id)
        if run.record.owner != owner:
            raise RunNotFound(run_id)
        return run

    async def find(self, key: str, *, owner: str = "") -> Run | None:
        """Return the run that an owner's key has started; None if there is none."""
        _check_owner(owner)
        return await self._running.find(key, owner=owner)

    async def list(self, *, owner: str = "", before: str | None = None, limit: int = 50) -> list[Run]:
        """Return runs of an owner, the newest first. With a store these are the runs that are kept.

        `before` is the id of the last run of the page before. A page may be short: only an empty one is the end.
        """
        _check_owner(owner)
        return await self._running.list_runs(owner, before=before, limit=limit)

    async def stop(self, run_id: str, *, owner: str = "") -> StopResult:
        """Stop a run of an owner. Return its settlement, and whether this call ended it."""
        return await (await self.open(run_id, owner=owner)).stop(by="user")


def _check_owner(owner: str) -> None:
    if not isinstance(owner, str):
        raise TypeError(f"owner must be a string, the name of one of your users, not {owner!r}")
