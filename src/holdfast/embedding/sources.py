"""Tells what is no source at the call that was given it, and what to pass instead."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable
from typing import Any
from weakref import WeakSet

_taken: WeakSet[Any] = WeakSet()
"""The generators that were given to a run: only one can read each."""

_WANTED = "start() needs an async generator, such as story(), or an async function that takes an Outlet"


def take_source(source: Any) -> None:
    """Raise TypeError if a run could not read a source. A generator is then that of one run."""
    name = getattr(source, "__name__", None) or type(source).__name__
    if inspect.isasyncgenfunction(source):
        raise TypeError(f"{_WANTED}. {name} was not called: pass {name}(…)")
    if inspect.iscoroutine(source):
        source.close()  # otherwise Python warns that nobody awaited it
        raise TypeError(
            f"{_WANTED}. {name}() is a coroutine: let {name} yield text, or pass {name} itself if it takes an Outlet"
        )
    if inspect.isgenerator(source):
        raise TypeError(f"{_WANTED}. {name}() is a plain generator: write `async def {name}`")
    if inspect.isgeneratorfunction(source):
        raise TypeError(f"{_WANTED}. {name} is a plain generator function: write `async def {name}`, and call it")
    if callable(source):
        _check_takes_outlet(source, name)
    elif not isinstance(source, AsyncIterable):
        raise TypeError(f"{_WANTED}, not {'an' if name[0] in 'aeiou' else 'a'} {name}")
    elif getattr(source, "ag_frame", source) is None:
        raise TypeError(f"{_WANTED}. This one has ended: call {name}(…) again for each run")
    elif inspect.isasyncgen(source):
        if source in _taken:
            raise TypeError(f"{_WANTED}. A run reads this one already: call {name}(…) again for each run")
        _taken.add(source)


def _check_takes_outlet(source: Any, name: str) -> None:
    """Check a function that is called with an outlet. One that is no `async def` may still return an awaitable."""
    if isinstance(source, type):
        raise TypeError(f"{_WANTED}. {name} is a class")
    try:
        inspect.signature(source).bind(None)
    except TypeError:
        raise TypeError(f"{_WANTED}. {name} does not take an Outlet as its only argument") from None
    except ValueError:
        pass  # a function of C without a signature
