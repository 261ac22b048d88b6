"""What every test gets: the requirement marker, and an error where our code blocks the event loop.

What only some get: a second try, where processes that are not ours to schedule take part.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

# How long an example takes says nothing on a busy machine; pytest-timeout catches what hangs.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")

SECOND_TRY = ("browser", "e2e", "faults")
"""Suites that drive other processes: a browser, node, other people's servers. A machine can starve those for a while.
In every other suite a test that fails once has found something."""
LIMIT = pytest.StashKey[Any]()


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
    config.addinivalue_line("markers", "requirement(*ids): the promises of tests/requirements.py that the test proves")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.usepdb:
        return  # who debugs wants the first failure
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in SECOND_TRY:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    item.stash[LIMIT] = settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A second try has as long as the first: pytest-timeout takes its timer away at the first failure."""
    if getattr(item, "execution_count", 1) > 1 and LIMIT in item.stash:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[LIMIT])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test that failed has left in an upstream that others share is not for the next one, or its second try."""
    report = yield
    if report.when == "call" and report.failed:
        for value in (getattr(item, "funcargs", None) or {}).values():
            if hasattr(value, "start_over"):
                value.start_over()
    return report


@pytest.fixture(scope="session", autouse=True)
def blocking_is_an_error() -> Iterator[BlockBuster]:
    """A blocking call on the event loop, made by holdfast itself, raises `BlockingError`."""
    with blockbuster_ctx("holdfast") as watch:
        yield watch
