"""The pages about extending name few files, and what they show works."""

import importlib
import itertools
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from starlette.applications import Starlette

from holdfast import Engine, HoldfastError
from holdfast.events import AnySettlement, Completed, ErrorInfo, Event, Failed, Settled, Stopped, Text, Truncated
from holdfast.ids import new_id
from holdfast.server.starting.room import Room
from holdfast.store import RunRecord
from tests.support.served import Served

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "extending").glob("*.md"))
MOST_FILES = 3
"""What a newcomer has to touch for one thing more."""
TABLE = re.compile(r"^\| file \| [^|]+ \|\n\| --- \| --- \|\n((?:\|.*\|\n)+)", re.MULTILINE)
BLOCK = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """Imports a module that a page shows."""
    names = []

    def shown(page: str, name: str) -> ModuleType:
        for module, code in BLOCK.findall((ROOT / "docs" / "extending" / page).read_text(encoding="utf-8")):
            (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
            names.append(module)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    monkeypatch.syspath_prepend(str(tmp_path))
    yield shown
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_few_files_in_folders_that_there_are(page):
    """Each file more is one that a newcomer does not find, and that a later change forgets."""
    (table,) = TABLE.findall(page.read_text(encoding="utf-8"))
    rows = table.splitlines()
    paths = re.findall(r"^\| `(\w+/[\w/.]+)`", table, re.MULTILINE)

    assert 1 <= len(rows) <= MOST_FILES
    folders = {path: (ROOT / path).parent for path in paths}
    assert [] == [path for path, folder in folders.items() if not (folder.is_dir() or folder.parent.is_dir())]


def test_there_are_pages():
    """A rule over no page would hold."""
    assert {"dialect", "limit", "upstream"} <= {page.stem for page in PAGES}


LOG = [Text("SO"), Text(" HELP\n"), Text("é")]
ENDINGS: list[tuple[AnySettlement, str]] = [
    (Completed(text="x", finish_reason="stop"), "STOP"),
    (Truncated(text="x", finish_reason="length"), "BROKEN OFF truncated"),
    (Stopped(text="x", by="user"), "BROKEN OFF stopped"),
    (Failed(text="x", error=ErrorInfo("upstream_broke", "It broke.")), "BROKEN OFF failed"),
]


@pytest.mark.parametrize(("settlement", "last"), ENDINGS, ids=lambda value: getattr(value, "outcome", ""))
def test_the_dialect_of_the_page_renders_the_same_however_its_log_is_cut(shown, settlement, last):
    """What tests/wires.py demands of every wire; and only a complete answer looks complete."""
    telegraph = shown("dialect.md", "telegraph")
    events: list[Event] = [*LOG, Settled(settlement)]
    whole = b"".join(telegraph.Lines().frames(events))
    cuts = itertools.product([0, 1, 2, 3, 4], repeat=2)
    pieces = [(events[: min(cut)], events[min(cut) : max(cut)], events[max(cut) :]) for cut in cuts]

    rendered = {b"".join(frame for piece in cut for frame in telegraph.Lines().frames(piece)) for cut in pieces}

    assert {whole} == rendered
    assert last == whole.decode().splitlines()[-1]


async def test_the_dialect_of_the_page_answers_over_http(shown):
    """A field that it does not know is refused, and not dropped."""
    module = shown("dialect.md", "telegraph_app")
    app: Starlette = module.app

    async with module.engine, Served(app, lifespan="off") as served, served.client() as client:
        answered = await client.post("/telegrams", {"telegram": "Send help", "to": "small", "paper": "blue"})
        refused = await client.post("/telegrams", {"telegram": "Send help", "tone": "polite"})
        text, error = await answered.text(), await refused.json()

    assert "SAYS 'Send '\nSAYS 'help '\nSTOP\n" == text
    assert (400, "unsupported", "tone") == (refused.status, error["error"]["code"], error["error"]["param"])


async def test_the_limit_of_the_page_refuses_and_gives_back_what_did_not_start(shown):
    """A start that the next limit, or the engine, refuses must not count. Who has no budget needs no ledger."""
    night_rest = shown("limit.md", "night_rest")
    hour = 23
    async with Engine() as engine:
        room = Room(engine, [night_rest.StartsAtNight(1, lambda: hour)], None)
        async with await room.reserve(_record(), is_counted=False):
            pass  # nothing started
        async with await room.reserve(_record(), is_counted=False) as reserved:
            reserved.pop_all()  # it has started
        with pytest.raises(HoldfastError, match="At most 1 runs"):
            await room.reserve(_record(), is_counted=False)
        hour = 12
        by_day = await room.reserve(_record(), is_counted=False)

    assert not room.is_free(_record().payer)
    assert by_day is not None


def test_a_limit_that_is_not_set_costs_a_start_nothing(shown):
    """A start with a limit runs in a task of its own."""
    room = Room(Engine(), [shown("limit.md", "night_rest").StartsAtNight(0, lambda: 23)], None)

    assert room.is_free(_record().payer)


def _record() -> RunRecord:
    return RunRecord(id=new_id("run"), owner="ann")
