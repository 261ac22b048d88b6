"""What `holdfast doctor` reports."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """The result of one check. `state` is `ok`, `note` for what is worth knowing, or `bad` for a problem."""

    state: str
    what: str
    advice: str = ""
