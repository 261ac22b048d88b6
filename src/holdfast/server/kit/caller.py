"""The caller of a request: its owner, its rights and its address."""

from __future__ import annotations

from starlette.requests import Request

from ...access import ACCESS, Access


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
