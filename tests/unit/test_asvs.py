"""The table of OWASP's ASVS: complete, and each line that is said to be tested names lines of the requirements."""

import re
from collections import Counter
from pathlib import Path

from tests.requirements import REQUIREMENTS

TABLE = Path(__file__).parents[2] / "docs" / "asvs.md"
ROW = re.compile(r"^\| (\d+\.\d+\.\d+) \| [^|]+ \| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
IN_ALL = 253
"""Requirements of version 5.0.0 at the levels 1 and 2."""


def test_every_requirement_is_assessed_once_and_the_counts_are_right():
    """A line that is missing would look as if it were held."""
    text = TABLE.read_text()
    rows = ROW.findall(text)
    counts = Counter(verdict for _, verdict, _, _ in rows)
    stated = {name: int(count) for name, count in re.findall(r"- \*\*([\w ,]+)\*\* \((\d+)\)", text)}

    assert (IN_ALL, IN_ALL) == (len(rows), len({number for number, *_ in rows}))
    assert counts == stated


def test_what_is_said_to_be_tested_names_what_shows_it():
    """And what is not held says why."""
    for number, verdict, why, shown in ROW.findall(TABLE.read_text()):
        named = re.findall(r"`([^`]+)`", shown)
        assert set(named) <= REQUIREMENTS.keys(), number
        assert bool(named) == (verdict == "held, tested"), number
        assert verdict not in ("not held", "not applicable") or why.strip(), number
