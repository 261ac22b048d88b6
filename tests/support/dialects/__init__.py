"""Every dialect of an upstream as its documentation shows it, byte for byte: frames, endings, and a provider for it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from holdfast.upstreams import Provider
from holdfast.upstreams.kinds import ProviderSetup, kind_of
from holdfast_lab.contracts import PLAYED, Ending, UpstreamUnderTest
from tests.support.upstream import Cut, Eof, Hang, Raw, Script, Upstream


@dataclass(frozen=True)
class Dialect:
    """What an upstream of a dialect sends in each ending, as whole bodies in bytes, and where its provider finds it."""

    name: str
    base: str
    """What follows the host in the base URL."""
    begin: bytes
    """The answer up to its end: PLAYED's text and nothing else."""
    bodies: Mapping[Ending, bytes]
    error: Script
    """What a request that is refused gets."""
    malformed: bytes
    cannot: frozenset[Ending] = frozenset()

    def script(self, ending: Ending) -> Script:
        if ending in self.bodies:
            return [Raw(self.bodies[ending])]
        return {
            "error_first": self.error,
            "cut": [Raw(self.begin), Cut()],
            "no_end": [Raw(self.begin), Eof()],
            "malformed": [Raw(self.begin + self.malformed)],
            "silence_first": [Hang()],
            "silence_later": [Raw(self.begin), Hang()],
        }[ending]

    def setup(self, up: Upstream, **more) -> ProviderSetup:
        """What a provider for an upstream is made from."""
        base_url = f"http://{up.host}:{up.port}{self.base}"
        given = {"name": "up", "base_url": base_url, "api_key": PLAYED.secret, "linger": 0.2} | more
        return ProviderSetup(**{"options": kind_of(self.name).options_from({})} | given)

    def provider(self, up: Upstream, **more) -> Provider:
        return kind_of(self.name).make(self.setup(up, **more))

    def open(self) -> "Callable[[], asynccontextmanager[UpstreamUnderTest]]":
        """For `check_provider`."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[UpstreamUnderTest]:
            async with Upstream() as up:
                provider = self.provider(up)
                try:
                    yield Played(self, up, provider, self.cannot)
                finally:
                    await provider.close()

        return opened


@dataclass
class Played:
    """U with a dialect, as `check_provider` wants it."""

    dialect: Dialect
    up: Upstream
    provider: Provider
    cannot: frozenset[Ending] = field(default_factory=frozenset)

    async def play(self, ending: Ending) -> None:
        self.up.enqueue(self.dialect.script(ending))

    async def left(self) -> None:
        for recorded in self.up.requests:
            if not recorded.finished:
                await recorded.wait_closed()

    @property
    def asked(self) -> int:
        return len(self.up.requests)
