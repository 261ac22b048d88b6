"""A newer version of Holdfast, made up: this source with another version number and one more migration."""

import shutil
from pathlib import Path

from holdfast import __version__
from tests.support.server import ROOT

NEWER = "99.0.0"
STEP = """-- works with {last}
ALTER TABLE sessions ADD COLUMN colour text;
ALTER TABLE runs ADD COLUMN colour text;
"""


def newer_version(folder: Path) -> Path:
    """Return a folder with this source as a newer version, whose tables have more columns."""
    package = folder / "holdfast"
    shutil.copytree(ROOT / "src" / "holdfast", package, ignore=shutil.ignore_patterns("__pycache__"))
    init = package / "__init__.py"
    init.write_text(init.read_text().replace(f'__version__ = "{__version__}"', f'__version__ = "{NEWER}"'))
    for steps in (package / "store" / "sql" / "postgres", package / "store" / "sql" / "sqlite"):
        last = len([*steps.iterdir()])
        (steps / f"{last + 1:04}_colour.sql").write_text(STEP.format(last=last))
    return folder
