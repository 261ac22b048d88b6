"""What every test gets: the requirement marker, and an error where our code blocks the event loop."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

# How long an example takes says nothing on a busy machine; pytest-timeout catches what hangs.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requirement(*ids): the promises of tests/requirements.py that the test proves")


@pytest.fixture(scope="session", autouse=True)
def blocking_is_an_error() -> Iterator[BlockBuster]:
    """A blocking call on the event loop, made by holdfast itself, raises `BlockingError`."""
    with blockbuster_ctx("holdfast") as watch:
        yield watch
