"""The sessions and runs that a caller may use."""

from __future__ import annotations

from starlette.requests import Request

from ....access import ACCESS, RULE
from ....engine.core import Core
from ....errors import RunNotFound, SessionNotFound
from ....history import Session
from ....runs.run import Run
from ....store import Store
from ...kit.caller import access_of
from .shares import Shares


class Reach:
    """The sessions and runs that a caller reaches: its own, and those that are shared with it.

    A shared one gives the request a loan. It ends with the share, and so do the responses that depend on it.
    """

    def __init__(self, store: Store, engine: Core, shares: Shares) -> None:
        self._store, self._engine, self._shares = store, engine, shares

    async def session(self, request: Request, session_id: str | None = None) -> Session:
        """Return the session of the path: the caller's, or one that is shared with the caller as the endpoint's rule
        says.

        All others, and panes of comparisons, are not found.
        """
        session_id = request.path_params["session_id"] if session_id is None else session_id
        session = await self._store.get_session(session_id)
        owner = session.owner if session is not None and session.kind == "chat" else None
        if not await self._reaches(request, owner, session_id) or session is None:
            raise SessionNotFound(session_id)
        return session

    async def run(self, request: Request, run_id: str | None = None) -> Run:
        """Return the run of the path: the caller's, or one of a session that is shared with the caller."""
        run_id = request.path_params["run_id"] if run_id is None else run_id
        try:
            run = await self._engine.open_anywhere(run_id)
        except RunNotFound:
            await self._reaches(request, None, run_id)  # takes as long as for a run of others
            raise
        session_id = run.record.session_id
        owner = run.record.owner
        if not await self._reaches(request, owner, session_id or run_id):
            raise RunNotFound(run_id)
        return run

    async def _reaches(self, request: Request, owner: str | None, session_id: str) -> bool:
        """Return whether the caller reaches a thing of an owner; `owner` is None if there is no such thing."""
        access, whose = access_of(request), request.scope[RULE].whose
        if owner == access.owner:
            return True
        if whose not in ("readable", "writable"):
            return False
        share = await self._shares.find_group(access, session_id, "write" if whose == "writable" else "read")
        if share is None or owner is None:
            return False
        request.scope[ACCESS] = self._shares.lend(access, share)
        return True
