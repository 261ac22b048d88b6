"""Every cell of the matrix in docs/clients, by the real client in an environment of its own.

The table is tests/e2e/matrix/table.py. Rows of clients that `make setup-dev` does not install are long.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count

import pytest
import pytest_asyncio

from tests.e2e.clients import KEY, Setting, setting
from tests.e2e.matrix import models
from tests.e2e.matrix.driving import Driver, Learnt, driven
from tests.e2e.matrix.installs import NotInstalledError
from tests.e2e.matrix.table import CLIENTS, Client
from tests.requirements import requirement
from tests.support.upstream import ENDINGS, REASONING, TEXT, Script
from tests.support.waiting import SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBERS = count()
BEFORE_TEXT = "400"
AFTER_TEXT = ["in-band-error", "eof"]
OURS = ("AttributeError", "TypeError", "KeyError", "IndexError", "NameError", "ReferenceError")
"""What a mistake of a driver raises: no client has learnt of a failure by it."""


class Bench:
    """One client in front of the server, and the model behind it that a check gives its lines to."""

    def __init__(self, client: Client, driver: Driver, here: Setting) -> None:
        self.client, self.driver, self.here = client, driver, here

    def model(self, script: Script | Callable[..., Script]) -> str:
        """A model of a new name that says this."""
        name = f"m{next(NUMBERS)}"
        self.here.up.models[name] = script
        return name

    async def ask(self, script: Script | Callable[..., Script], *, stream: bool, **options) -> Learnt:
        return await self.driver.do("ask", f"up/{self.model(script)}", stream=stream, **options)

    @property
    def ways(self) -> list[bool]:
        """Streaming or not, as far as the client can."""
        return [False] * self.client.whole + [True] * ("stream" in self.client.checked())

    def requests(self, model: str) -> list[dict]:
        return [request.body for request in self.here.up.requests if request.model == model]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory) -> AsyncIterator[Setting]:
    async with setting(tmp_path_factory.mktemp("matrix")) as here:
        yield here


class Drivers:
    """The process of one client at a time: the cells of a client stand together, so each is started once."""

    def __init__(self, here: Setting, folders: pytest.TempPathFactory) -> None:
        self._here, self._folders = here, folders
        self._client: Client | None = None
        self._stack = AsyncExitStack()
        self._driver: Driver | None = None

    async def of(self, client: Client) -> Driver:
        if self._driver is None or self._client != client:
            await self.close()
            folder = self._folders.mktemp("client")
            started = driven(client, folder, self._here.server.url, KEY)
            self._driver, self._client = await self._stack.enter_async_context(started), client
        return self._driver

    async def close(self) -> None:
        self._driver = None
        await self._stack.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def drivers(here, tmp_path_factory) -> AsyncIterator[Drivers]:
    drivers = Drivers(here, tmp_path_factory)
    yield drivers
    await drivers.close()


async def stream(bench: Bench) -> None:
    """Each piece is handed out when it comes: the second is only sent when the first was heard."""
    gate = f"matrix {next(NUMBERS)}"
    learnt = await bench.ask(models.gated(gate), stream=True, on_piece=lambda: bench.here.up.open(gate))

    assert TEXT == learnt.text.strip(), learnt
    assert len(learnt.pieces) >= 2


async def tools(bench: Bench) -> None:
    """Two calls at once reach the program, and both results the model."""
    model = bench.model(models.adding)
    learnt = await bench.driver.do("tools", f"up/{model}")

    assert "The sums: 3 and 7." in str(learnt.answer), learnt


async def structured(bench: Bench) -> None:
    """The schema reaches the model, and its answer the program as an object."""
    model = bench.model(models.describing)
    learnt = await bench.driver.do("structured", f"up/{model}")

    assert models.CITY == learnt.answer, learnt
    assert "inhabitants" in str(bench.requests(model)[0])


async def pictures(bench: Bench) -> None:
    """A picture reaches the model byte by byte."""
    model = bench.model(models.reasoned())
    learnt = await bench.driver.do("picture", f"up/{model}", picture=models.png())

    assert "" == learnt.raised, learnt
    assert models.png() in str(bench.requests(model)[0]["messages"])


async def reasoning(bench: Bench) -> None:
    """It is told apart from the answer."""
    learnt = await bench.ask(models.reasoned(), stream=bench.ways[-1])

    assert (TEXT, REASONING) == (learnt.text, (learnt.answer or {}).get("reasoning", "").strip()), learnt


async def usage(bench: Bench) -> None:
    """The upstream's own figures, not an estimate."""
    learnt = await bench.ask(models.reasoned(), stream=bench.ways[0])

    assert list(models.USAGE) == (learnt.answer or {}).get("usage"), learnt


async def leaving(bench: Bench) -> None:
    """The connection to the model is closed while the client's process is still there."""
    model = bench.model(models.hanging())
    await bench.driver.do("ask", f"up/{model}", stream=True, leave=True)
    (asked,) = [request for request in bench.here.up.requests if request.model == model]
    await asked.wait_closed(SOON)

    assert asked.left_early


async def failures(bench: Bench) -> None:
    """Streaming or not, before and after text: the program learns of it, and no half answer is asked for again."""
    for ending in [BEFORE_TEXT, *AFTER_TEXT]:
        for streams in bench.ways:
            model = bench.model(ENDINGS[ending])
            learnt = await bench.driver.do("ask", f"up/{model}", stream=streams)
            word = (learnt.answer or {}).get("word")

            assert learnt.raised or (word and word not in models.COMPLETED), f"{ending}, {streams}: {learnt}"
            assert not learnt.raised.startswith(OURS), learnt
            asked = len(bench.requests(model))
            assert asked == 1 or (asked > 1 and ending == BEFORE_TEXT), f"{ending}, {streams}: asked {asked} times"


CHECKS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    check.__name__: check for check in (stream, tools, structured, pictures, reasoning, usage, leaving, failures)
}


def cells() -> list:
    """Each client and each cell that its driver shows; what is known to fail must fail."""
    params = []
    for client in CLIENTS:
        for cell in client.checked():
            marks = [] if client.is_light else [pytest.mark.long("installs the client")]
            if reason := client.fails.get(cell):
                marks.append(pytest.mark.xfail(reason=reason, raises=(AssertionError, TimeoutError), strict=True))
            params.append(pytest.param(client, cell, id=f"{client.id}, {cell}", marks=marks))
    return params


@requirement("truth.clients-see-failure", "wire.no-useless-retry")
@pytest.mark.parametrize(("client", "cell"), cells())
async def test_cell(here, drivers, client: Client, cell: str) -> None:
    """See the check of that name above."""
    try:
        driver = await drivers.of(client)
    except NotInstalledError as missing:
        pytest.skip(f"not installed: {missing}")
    await CHECKS[cell](Bench(client, driver, here))
