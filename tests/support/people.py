"""People for tests: browsers that are signed in, through the server's own calls."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.support.http import Client, Response
from tests.support.server import Server

PASSWORD = "correct horse battery"


def browser(server: Server, cookie: str = "", **headers: str) -> AbstractAsyncContextManager[Client]:
    """A client that sends what the page in a browser sends."""
    extra = {"cookie": cookie} if cookie else {}
    return server.client(origin=server.url, **extra, **headers)


def cookie_of(response: Response) -> str:
    """The cookie of the sign-in that an answer sets, as a browser sends it back."""
    return str(response.headers["set-cookie"]).partition(";")[0]


def cookies_of(response: Response) -> dict[str, str]:
    """The cookies that a browser has after an answer: those that were not taken away."""
    given = [value.partition(";")[0].partition("=") for value in response.headers["set-cookie"].split(", ")]
    return {name: value for name, _, value in given if value}


async def sign_in(server: Server, name: str, password: str = PASSWORD, *, stay: bool = False) -> str:
    async with browser(server) as client:
        response = await client.post("/api/sign-in", {"name": name, "password": password, "stay": stay})
        assert 200 == response.status, await response.text()
        return cookie_of(response)


async def first_admin(server: Server, name: str = "ada") -> str:
    """Make the first account of a server on loopback, and return its cookie."""
    async with browser(server) as client:
        response = await client.post("/api/first-admin", {"name": name, "password": PASSWORD})
        assert 200 == response.status, await response.text()
        return cookie_of(response)


async def add_person(server: Server, admin: str, name: str, **fields: Any) -> str:
    """Add a person as an admin does, and return the person's cookie."""
    async with browser(server, admin) as client:
        response = await client.post("/api/admin/people", {"name": name, "password": PASSWORD, **fields})
        assert 201 == response.status, await response.text()
    return await sign_in(server, name)
