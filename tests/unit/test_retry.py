"""Tries again: the pauses between two tries, and calls to a store that is away."""

import asyncio
from itertools import count

import pytest

from holdfast.concurrency.retry import Backoff, Retry
from holdfast.errors import RunNotFound, StoreUnavailable
from tests.support.waiting import LONG


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_success():
    """A server that is away for a moment is found again at once, and one that is away for hours is left in peace."""
    backoff = Backoff(0.5, 3.0)

    pauses = [backoff.next() for _ in range(5)]
    backoff.reset()

    assert [0.5, 1.0, 2.0, 3.0, 3.0] == pauses
    assert 0.5 == backoff.next()


def test_spread_pauses_differ_within_their_factors():
    """Clients that lost a server at the same moment return at different ones; the spread does not add up."""
    firsts = {Backoff(1.0, 1.0, spread=(0.8, 1.2)).next() for _ in range(50)}
    backoff = Backoff(1.0, 1.0, spread=(0.8, 1.2))

    assert 1 < len(firsts)
    assert all(0.8 <= pause <= 1.2 for pause in (*firsts, *(backoff.next() for _ in range(50))))


async def test_a_call_is_repeated_while_the_store_is_away():
    """The caller gets the answer, and `waiting` counts it meanwhile."""
    retry, calls, waiting = Retry(), count(1), []

    async def ask() -> int:
        waiting.append(retry.waiting)
        if (call := next(calls)) < 3:
            raise StoreUnavailable("away")
        return call

    assert 3 == await asyncio.wait_for(retry(ask), LONG)
    assert [0, 1, 1] == waiting
    assert 0 == retry.waiting


async def test_any_other_error_is_raised_at_once():
    """A refusal is an answer."""
    calls = count()

    async def ask() -> None:
        next(calls)
        raise RunNotFound("run_1")

    with pytest.raises(RunNotFound):
        await Retry()(ask)
    assert 1 == next(calls)


async def test_a_closed_retry_tries_once_more_and_gives_up():
    """A server that ends does not wait for a store that may be away for hours."""
    retry, calls = Retry(), count()

    async def ask() -> None:
        if next(calls) == 2:
            retry.close()
        raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(retry(ask), LONG)
    assert 3 == next(calls)
    assert 0 == retry.waiting
