"""Who may set up what starts programs: it has the rights of the server's own user on its machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request

from ....access import Access
from ...kit.caller import access_of
from ...kit.http.errors import NotAllowed, SignInAgain
from ...live.port_owner import stranger_behind


class ProgramsRefused(NotAllowed):
    """The caller may not set up what starts programs on the machine of the server."""

    code = "programs_refused"
    message = (
        "This starts programs on the server's machine. Only an admin who is signed in, or the user of this machine "
        "who runs the server, can set it up here. Otherwise write it in the settings file."
    )


class Programs:
    """Decides who may set up programs: MCP servers with a command, and agents with a shell.

    An API key may not, whatever its rights: it lies in scripts. A sign-in must be fresh, as a stolen cookie must not be
    enough. Without accounts the caller must be the user who runs the server, not another user of the same machine.
    """

    def __init__(self, is_fresh: Callable[[Access], Awaitable[bool]]) -> None:
        self._is_fresh = is_fresh

    async def require(self, request: Request) -> None:
        """Refuse a caller that may not set them up."""
        access = access_of(request)
        if access.via == "sign_in":
            if not await self._is_fresh(access):
                raise SignInAgain
        elif access.via != "local" or await self._is_stranger(request):
            raise ProgramsRefused

    async def _is_stranger(self, request: Request) -> bool:
        match request.scope:
            case {"client": (_, int(port)), "server": (_, int(own))}:
                return await asyncio.to_thread(stranger_behind, port, own) is not None
        return False
