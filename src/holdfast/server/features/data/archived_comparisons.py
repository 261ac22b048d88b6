"""Comparisons of an archive: checked, and with their new ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from ....access import Payer
from ....compare.model import DOCUMENT, MOST_PANES, Comparison, Pane, PaneAnswer, PromptContent, Synthesis
from ....errors import BadRequest
from ...kit.request import check_size

COMPARISONS = f"documents/{DOCUMENT}/"
_LONGEST_KIND = 64

NewIdFor = Callable[[str, str], str]
"""Returns the new id of an object, by its prefix and its old id."""


class ArchivedComparison(msgspec.Struct, frozen=True):
    """A comparison as its archive has it."""

    id: str
    body: Comparison


def checked_comparison(data: bytes) -> Comparison | None:
    """Return a comparison of an archive; None for one that was still running: its answers are incomplete."""
    try:
        found = msgspec.json.decode(data, type=ArchivedComparison).body
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"The comparison is not valid: {error}.") from None
    if found.status != "settled" or any(pane.latest.status != "settled" for pane in found.panes):
        return None
    check_size(found.params)
    numbers = list(range(len(found.panes)))
    is_sound = found.prompts and 1 <= len(numbers) <= MOST_PANES and len(found.kind) <= _LONGEST_KIND
    if not is_sound or numbers != [pane.pane for pane in found.panes]:
        raise BadRequest("The comparison lacks prompts or panes, or has too many of them.")
    if found.vote is not None and found.vote.winner not in (*numbers, "tie", "none"):
        raise BadRequest("The vote of the comparison is for none of its panes.")
    return found


def sessions_of(comparison: Comparison) -> list[str]:
    """Return the ids of the sessions of all panes, including those of earlier models."""
    made = [] if comparison.synthesis is None else [comparison.synthesis.session_id]
    return [*(id for pane in comparison.panes for id in (*pane.left, pane.session_id)), *made]


def moved(comparison: Comparison, owner: str, new: NewIdFor, with_files: Callable[[Any], Any]) -> Comparison:
    """Return a comparison with a new owner and new ids, and without its payer."""
    return replace(
        comparison,
        id=new("cmp", comparison.id),
        owner=owner,
        prompts=tuple(_content(prompt, with_files) for prompt in comparison.prompts),
        panes=tuple(_pane(pane, new) for pane in comparison.panes),
        synthesis=None if comparison.synthesis is None else _synthesis(comparison.synthesis, new),
        blind_runs={new("run", run): model for run, model in comparison.blind_runs.items()},
        is_stopping=False,
        key=None,
        payer=Payer(),
    )


def _content(prompt: PromptContent, with_files: Callable[[Any], Any]) -> PromptContent:
    return prompt if isinstance(prompt, str) else [with_files(part) for part in prompt]


def _pane(pane: Pane, new: NewIdFor) -> Pane:
    return replace(
        pane,
        session_id=new("ses", pane.session_id),
        left=tuple(new("ses", id) for id in pane.left),
        run_id=_run(pane, new),
        later=None if pane.later is None else replace(pane.later, run_id=_run(pane.later, new)),
    )


def _synthesis(made: Synthesis, new: NewIdFor) -> Synthesis:
    panes = tuple((pane, new("run", run)) for pane, run in made.panes)
    return replace(made, run_id=new("run", made.run_id), session_id=new("ses", made.session_id), panes=panes)


def _run(answer: PaneAnswer, new: NewIdFor) -> str | None:
    return None if answer.run_id is None else new("run", answer.run_id)
