"""The matrix of clients in docs/clients: it is what the table says, and the table names what there is."""

import importlib.metadata

import pytest

from tests.e2e.matrix.client import CELLS, MATRIX, Client
from tests.e2e.matrix.page import PAGE, ROOT, version, with_matrix
from tests.e2e.matrix.table import CLIENTS

MANY = 45


def test_the_page_is_what_the_table_says():
    """`python -m tests.e2e.matrix.page` writes it again, after a change of the table and after an update."""
    page = PAGE.read_text(encoding="utf-8")

    assert with_matrix(page) == page


def test_the_matrix_has_many_clients():
    """A client with two of our APIs is one client."""
    assert len({(client.package, client.environment) for client in CLIENTS}) >= MANY


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.id)
def test_a_row_names_what_there_is(client: Client):
    """Its driver, its tests and its cells exist, and each cell is said once."""
    said = [*client.checked(), *client.shown, *client.lacks.split()]
    files = {test: (ROOT / test.file).read_text(encoding="utf-8") for test in client.shown.values()}

    assert sorted(set(said)) == sorted(said)
    assert set(said) <= set(CELLS)
    assert set(client.fails) <= set(client.checked())
    assert bool(client.checked()) == bool(client.driver)
    assert not client.driver or (MATRIX / client.driver).exists()
    assert all(test.name in text for test, text in files.items())
    assert version(client)


def test_rows_are_told_apart():
    """Their tests are named by them."""
    ids = [client.id for client in CLIENTS]

    assert sorted(set(ids)) == sorted(ids)


def test_a_version_is_the_one_that_is_installed():
    """The version of a client of the development environment is not written down twice."""
    openai = next(client for client in CLIENTS if client.package == "openai" and client.environment == "dev")

    assert importlib.metadata.version("openai") == version(openai)
