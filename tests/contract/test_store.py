"""The contract of every store, check by check, for each of them: those of `holdfast_lab.contracts.stores`."""

import asyncio
import sys

import pytest

if "holdfast_lab.contracts.stores" not in sys.modules:  # else another test has imported it: asserts say less
    pytest.register_assert_rewrite("holdfast_lab.contracts.stores")

from holdfast.store.memory import MemoryStore
from holdfast.store.opening import open_store
from holdfast_lab.contracts import STORE_CHECKS, OpenStore, check_store, run_check


@pytest.fixture(scope="module")
def shared_database(postgres) -> str:
    """A database for all checks: a new one for each would take longer than the checks."""
    return postgres.new_url()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opening(request, tmp_path) -> OpenStore:
    """Opens the store on a medium that lasts for one test."""
    if request.param == "postgres":
        url = request.getfixturevalue("shared_database")

        async def open_postgres():
            return await asyncio.to_thread(open_store, url)

        return open_postgres
    memory = MemoryStore()

    async def open_memory():
        return memory

    async def open_sqlite():
        return await asyncio.to_thread(open_store, f"sqlite:{tmp_path}")

    return open_memory if request.param == "memory" else open_sqlite


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
async def test_store(check, opening):
    """What a check is about stands in its docstring."""
    await run_check(check, opening)


@pytest.mark.parametrize("opening", ["memory", "sqlite"], indirect=True)  # on PostgreSQL they share one as it is
async def test_the_checks_can_share_one_medium(opening):
    """`check_store` is for those who write a store of their own, and a database is not made anew for each check."""
    await check_store(opening)


async def test_a_store_that_breaks_a_promise_fails():
    """A suite that nothing can fail would prove nothing."""

    class Forgetful(MemoryStore):
        async def get_run(self, run_id):
            return None

    async def open_forgetful():
        return Forgetful()

    with pytest.raises(AssertionError):
        await check_store(open_forgetful)
