"""What every test gets: the requirement marker, and an error where our code blocks the event loop."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

from tests.support.forked import stop_starter
from tests.support.long import EVERYTHING
from tests.support.order import VARIABLE, choose_seed, in_order, seed
from tests.support.postgres import Postgres, shared_postgres, stop_shared_postgres
from tests.support.served import NO_HOME
from tests.support.server import NODES

# A run starts Python more than a thousand times. Without cached bytecode each start compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell lets what it starts in the background ignore Ctrl-C, and each process passes that on to those it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting the tests makes a million objects that stay, and the collector would look at them again and again.
gc.disable()

# How long an example takes says nothing on a busy machine; pytest-timeout catches what hangs.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/protocol --url http://…/v1` lets the lab judge that server instead of our own (docs/lab.md)."""
    group = parser.getgroup("lab", "the fault lab, at a server that is not started by the tests")
    group.addoption("--url", help="The judged server, as OpenAI's clients would be given it.")
    group.addoption("--model", default="m", help="The model that the lab's upstream plays there.")
    group.addoption("--api-key", default=None, help="A key for the judged server.")
    group.addoption("--wire", action="append", default=[], help="A wire to judge; all of them without it.")
    group.addoption("--server", default="any", help="Which server it is: what it promises.")
    group.addoption("--upstream-port", type=int, default=9100, help="Where the lab's upstream listens.")


def pytest_configure(config: pytest.Config) -> None:
    choose_seed()
    config.addinivalue_line("markers", "requirement(*ids): the promises of tests/requirements.py that the test proves")
    config.addinivalue_line("markers", "one_server(reason): it is not run with several nodes (HOLDFAST_TEST_NODES)")
    config.addinivalue_line("markers", "long(reason): only `make test-all` runs it (docs/testing.md says what is long)")


FIRST = (
    "tests/protocol/test_openapi.py",
    "tests/nodes/test_faults.py",
    "tests/e2e/test_markdown_time.py",
    "tests/faults/test_simulation.py",
    "tests/e2e/test_doctor_cluster.py",
    "tests/unit/test_programs.py",
)
"""The files that take longest. Files are handed out in order, so one that comes last would let the others wait."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest files first, and leave out what is for `make test-all`, or for one server."""
    items[:] = in_order(items, FIRST, seed())
    left_out = (["long"] if not EVERYTHING else []) + (["one_server"] if NODES > 1 else [])
    others = [item for item in items if any(item.get_closest_marker(mark) for mark in left_out)]
    if others:
        config.hook.pytest_deselected(items=others)
        out = {*others}
        items[:] = [item for item in items if item not in out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if seed():
        terminalreporter.write_line(f"Tests ran in a random order. To repeat it: {VARIABLE}={seed()}")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the tests and all that they import: there are ten thousand of them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test that failed has left in an upstream that others share is not for the next one."""
    report = yield
    if report.when == "call" and report.failed:
        for value in (getattr(item, "funcargs", None) or {}).values():
            if hasattr(value, "start_over"):
                value.start_over()
    return report


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """The PostgreSQL server of this test process. Each test makes a database of its own."""
    return shared_postgres()


def pytest_sessionfinish() -> None:
    """End what this process has started for all its tests."""
    stop_starter()
    stop_shared_postgres()


@pytest.fixture(scope="module", autouse=True)
def an_empty_data_folder() -> Iterator[None]:
    """For servers without a folder of their own. One file's settings are not another's."""
    home = Path(NO_HOME["XDG_DATA_HOME"])
    (home / "holdfast").mkdir(mode=0o700, parents=True, exist_ok=True)
    yield
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def blocking_is_an_error() -> Iterator[BlockBuster]:
    """A blocking call on the event loop, made by holdfast itself, raises `BlockingError`."""
    with blockbuster_ctx("holdfast") as watch:
        for function in watch.functions.values():  # asyncpg looks for ~/.pgpass and certificates when it connects
            function.can_block_in("asyncpg/connect_utils.py", {"_parse_connect_dsn_and_args"})
            # a store in memory has no disk
            function.can_block_in("holdfast/store/memory/__init__.py", {"__init__", "_read", "transact"})
        yield watch
