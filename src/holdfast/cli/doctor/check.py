"""The result of a check of `holdfast doctor`."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """The result of one check. `state` is `ok`, `note` (worth knowing), or `bad` (a problem)."""

    state: str
    what: str
    advice: str = ""
