"""What is in progress, by its id and by its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

V = TypeVar("V")


class InProgress(dict[str, V]):
    """What is in progress, by its id. What belongs to a group is found without a look at the others.

    A value stays in its group for as long as it is here.
    """

    def __init__(self, group_of: Callable[[V], str | None]) -> None:
        """`group_of` returns the group of a value; None if it has none."""
        super().__init__()
        self._group_of = group_of
        self._groups: dict[str, dict[str, V]] = {}

    def __setitem__(self, id: str, value: V) -> None:
        super().__setitem__(id, value)
        if (group := self._group_of(value)) is not None:
            self._groups.setdefault(group, {})[id] = value

    def __delitem__(self, id: str) -> None:
        group = self._group_of(self[id])
        super().__delitem__(id)
        if group is not None:
            del self._groups[group][id]
            if not self._groups[group]:
                del self._groups[group]

    def of(self, group: str) -> list[V]:
        """Return the values of a group."""
        return [*self._groups.get(group, {}).values()]
