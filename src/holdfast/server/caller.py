"""The caller of a request: its owner, its rights, its models, and the sessions and runs that it may use."""

from __future__ import annotations

from starlette.requests import Request

from ..access import ACCESS, Access
from ..engine.run import Run
from ..errors import RunNotFound, SessionNotFound
from ..history import Session
from ..upstreams import Providers
from .config.settings import AGENT
from .services import Parts


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


async def default_model(parts: Parts, request: Request) -> str | None:
    """Return the default model of the caller; None if there is no model."""
    return await parts.default_model.name(providers_of(parts, request), set_default(parts, request))


async def model_of(parts: Parts, request: Request, named: str | None) -> str:
    """Return the model of a run: the one that is named, or the default.

    The bare name of an agent becomes `agent/<name>`, and the default model has its full name, so that the answer names
    it. Any other name stays as the client wrote it.
    """
    providers = providers_of(parts, request)
    if not named:
        return await parts.default_model.use(providers, set_default(parts, request))
    provider, model = await providers.find(named)
    return f"{AGENT}/{model}" if provider.name == AGENT else named


def set_default(parts: Parts, request: Request) -> str:
    """Return the default model of the settings; empty if there is none, or if the caller may not use it."""
    named = parts.configured.default_model
    return "" if named and parts.agents.is_hidden(named, access_of(request)) else named


async def own_session(parts: Parts, request: Request) -> Session:
    """Return the session of the path. One of another owner, or of a pane, is not found."""
    session_id = request.path_params["session_id"]
    session = await parts.store.get_session(session_id)
    if session is None or session.owner != owner_of(request) or session.kind != "chat":
        raise SessionNotFound(session_id)
    return session


async def own_run(parts: Parts, request: Request, run_id: str | None = None) -> Run:
    """Return the run of the path. One of another owner is not found."""
    run_id = request.path_params["run_id"] if run_id is None else run_id
    run = await parts.engine.open_anywhere(run_id)
    if run.record.owner != owner_of(request):
        raise RunNotFound(run_id)
    return run
