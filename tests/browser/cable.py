"""The network between a browser and the server, as a cable that can be cut; and a watched place elsewhere."""

import asyncio

from tests.support.tcp_proxy import Listener, Relay


class Cable(Relay):
    """Carries bytes to a port and back, until it is cut, or falls silent: then no end learns that they are lost."""

    def __init__(self, to: int) -> None:
        super().__init__(to)
        self._is_silent = False
        self._silenced = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fall_silent(self) -> None:
        """Swallow all bytes from now on."""
        self._is_silent = True

    def speak_again(self) -> None:
        """Carry what new connections bring. Those of before stay silent for ever."""
        self._silenced = self.count if self._is_silent else self._silenced
        self._is_silent = False

    async def carries(self, data: bytes, number: int) -> bool:
        return not self._is_silent and number > self._silenced


class Elsewhere(Listener):
    """Every host whose name ends in `.example`, as far as the browser knows. It says nothing and counts who comes."""

    def __init__(self) -> None:
        super().__init__()
        self.visits = 0
        self.visited = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        self.visited.set()
