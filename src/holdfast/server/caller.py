"""The caller of a request: its owner, its rights, its models, and the sessions and runs that it may use."""

from __future__ import annotations

from starlette.requests import Request

from ..access import ACCESS, RULE, Access
from ..errors import RunNotFound, SessionNotFound
from ..history import Session
from ..runs.run import Run
from ..upstreams import Providers
from .services import Parts
from .starting.starting import AskedModel


def owner_of(request: Request) -> str:
    """Return the owner of a request."""
    owner: str = request.scope[ACCESS].owner
    return owner


def is_admin(request: Request) -> bool:
    """Return whether the caller has admin rights."""
    admin: bool = request.scope[ACCESS].admin
    return admin


def access_of(request: Request) -> Access:
    """Return the access of the caller."""
    access: Access = request.scope[ACCESS]
    return access


def author_of(request: Request) -> str:
    """Return the name that the caller's messages carry; empty if the caller is no person with an account."""
    access = access_of(request)
    return access.name if access.account else ""


def address_of(request: Request) -> str:
    """Return the address that a request came from; empty if it is not known."""
    client = request.client
    return client.host if client is not None else ""


def is_secure(parts: Parts, request: Request) -> bool:
    """Return whether a browser reaches the server over HTTPS, itself or through a proxy."""
    return request.scope.get("scheme") == "https" or parts.settings.public_url.startswith("https://")


def providers_of(parts: Parts, request: Request) -> Providers:
    """Return the providers that the caller may use. Every model of a request is looked up in them."""
    return parts.agents.providers_for(access_of(request))


async def model_of(parts: Parts, request: Request, named: str | None) -> AskedModel:
    """Return the model that is named, or the default, for a request that starts no run."""
    return await parts.models.find(access_of(request), named)


async def own_session(parts: Parts, request: Request, session_id: str | None = None) -> Session:
    """Return the session of the path: the caller's, or one that is shared with the caller as the endpoint's rule says.

    All others, and panes of comparisons, are not found.
    """
    session_id = request.path_params["session_id"] if session_id is None else session_id
    session = await parts.store.get_session(session_id)
    owner = session.owner if session is not None and session.kind == "chat" else None
    if not await _reaches(parts, request, owner, session_id) or session is None:
        raise SessionNotFound(session_id)
    return session


async def own_run(parts: Parts, request: Request, run_id: str | None = None) -> Run:
    """Return the run of the path: the caller's, or one of a session that is shared with the caller."""
    run_id = request.path_params["run_id"] if run_id is None else run_id
    try:
        run = await parts.engine.open_anywhere(run_id)
    except RunNotFound:
        await _reaches(parts, request, None, run_id)  # takes as long as for a run of others
        raise
    session_id = run.record.session_id
    owner = run.record.owner
    if not await _reaches(parts, request, owner, session_id or run_id):
        raise RunNotFound(run_id)
    return run


async def _reaches(parts: Parts, request: Request, owner: str | None, session_id: str) -> bool:
    """Return whether the caller reaches a thing of an owner. If a share allows it, the request has a loan from here on.

    The loan ends with the share, and so do the responses that depend on it. `owner` is None if there is no such thing.
    """
    access, whose = access_of(request), request.scope[RULE].whose
    if owner == access.owner:
        return True
    if whose not in ("readable", "writable"):
        return False
    share = await parts.shares.find_group(access, session_id, "write" if whose == "writable" else "read")
    if share is None or owner is None:
        return False
    request.scope[ACCESS] = parts.shares.lend(access, share)
    return True
