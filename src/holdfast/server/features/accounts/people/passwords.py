"""Passwords: their rules, and argon2id. Hashing is slow on purpose, so it runs in threads, a few at a time."""

from __future__ import annotations

import asyncio
import importlib
import secrets
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Self, TypeVar

from .....errors import BadRequest, HoldfastError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

T = TypeVar("T")

SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 256
AT_ONCE = 2
"""Maximum number of concurrent hashes of a queue: each takes 64 MiB for a tenth of a second."""
MOST_WAITING = 50
"""Maximum number of waiting requests of a queue. Further ones are refused."""


class TooManySignIns(HoldfastError):
    """Too many sign-ins wait for a password check."""

    code = "too_many_sign_ins"
    status = 503
    retry_after = 2.0
    message = "Too many people are signing in at once. Try again in a few seconds."


class PasswordQueue:
    """Requests that wait for a hash, in order."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    @property
    def is_full(self) -> bool:
        """True if the maximum number of requests is waiting."""
        return self._waiting >= MOST_WAITING

    @contextmanager
    def place(self) -> Iterator[Self]:
        """Take a place, for as long as the block lasts. `TooManySignIns` if there is none."""
        if self.is_full:
            raise TooManySignIns
        self._waiting += 1
        try:
            yield self
        finally:
            self._waiting -= 1

    async def hashed(self, work: Callable[[], T]) -> T:
        """Do the work in a thread, when its turn comes."""
        async with self._turn:
            return await asyncio.to_thread(work)


class Passwords:
    """Hashes passwords, and checks them. A flood of strangers fills their own queue only."""

    def __init__(self) -> None:
        self.strangers = PasswordQueue()
        self.known = PasswordQueue()
        """The queue of people in browsers that have signed in before, and of new passwords."""

    async def hash(self, password: str, *others: str) -> str:
        """Return the hash of a new password, which must not be one of `others`: names of the person."""
        with self.known.place() as queue:
            await asyncio.to_thread(refuse_weak, password, others)
            return await queue.hashed(lambda: _hasher().hash(_normal(password)))

    async def is_right(self, hashed: str, password: str, queue: PasswordQueue) -> bool:
        """Return whether a password has this hash. False for an empty hash, after the same time.

        The caller has a place in the queue.
        """
        return await queue.hashed(lambda: _matches(hashed, password))


def _matches(hashed: str, password: str) -> bool:
    of_no_one = _of_no_one()  # always computed, so that an unknown name takes no longer than a known one
    refused = importlib.import_module("argon2.exceptions")
    try:
        _hasher().verify(hashed or of_no_one, _normal(password[:LONGEST_PASSWORD]))
    except (refused.VerificationError, refused.InvalidHashError):
        return False
    return bool(hashed) and len(password) <= LONGEST_PASSWORD


@cache
def _hasher() -> PasswordHasher:
    """Return what hashes. It is loaded by the first password: most servers of one person have none."""
    hasher: PasswordHasher = importlib.import_module("argon2").PasswordHasher()
    return hasher


@cache
def _of_no_one() -> str:
    return _hasher().hash(secrets.token_urlsafe(32))


def _normal(password: str) -> str:
    """Return a password in Unicode normal form, independent of the keyboard."""
    return unicodedata.normalize("NFKC", password)


def refuse_weak(password: str, others: tuple[str, ...] = ()) -> None:
    """Refuse a password that is too short, too long, a common one, or the person's own name."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise _weak(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.")
    lowered = password.lower()
    if lowered in _common() or lowered.strip("0123456789!?.-_ ") in _common() or len(set(lowered)) < 4:
        raise _weak("This password is one of the most common ones. Choose another.")
    if any(lowered == other.lower() for other in others if other):
        raise _weak("A password must not be the name or e-mail address of its account.")


def _weak(message: str) -> BadRequest:
    return BadRequest(message, param="password", code="weak_password")


@cache
def _common() -> frozenset[str]:
    """Return the 30,000 most common passwords. They are loaded when the first password is set."""
    from zxcvbn.frequency_lists import FREQUENCY_LISTS  # type: ignore[import-untyped]  # noqa: PLC0415 - megabytes that most processes never need

    return frozenset(FREQUENCY_LISTS["passwords"])
