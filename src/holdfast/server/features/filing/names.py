"""Names of folders and tags: one line of letters that are all visible, and not too long."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ....errors import BadRequest
from ....store.filing import MOST_TAGS
from ...kit.request import check_name

LONGEST_FOLDER, LONGEST_TAG = 64, 40
"""Maximum number of characters of a name."""
_UNSEEN = re.compile("[\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Line ends, and signs that turn the direction of the text around a name."""


def chat_folder(given: str) -> str:
    """Return a folder's name as it is stored; empty for none."""
    return _name(given, "folder", LONGEST_FOLDER)


def tag_names(given: Sequence[str], param: str = "tags") -> tuple[str, ...]:
    """Return the names of tags as they are stored, each once."""
    if len(given) > MOST_TAGS:
        raise BadRequest(f"A chat has {MOST_TAGS} tags at most.", param=param)
    return tuple(sorted({name for tag in given if (name := _name(tag, param, LONGEST_TAG))}))


def _name(given: str, param: str, longest: int) -> str:
    name = unicodedata.normalize("NFC", " ".join(given.split()))
    if not name:
        return ""
    if len(name) > longest or _UNSEEN.search(name):
        raise BadRequest(f"A name in {param} has {longest} characters at most, all of them visible.", param=param)
    return check_name(name, param)
