"""Folders, tags and the archive."""

from __future__ import annotations

from holdfast.errors import BadRequest
from holdfast.store.filing import MOST_TAGS, Filing, Filter

from .case import Case, Checks, raised

CHECKS = Checks()


async def _names(case: Case, filter: Filter, query: str = "") -> list[str]:
    found = await case.store.list_sessions(case.owner, filter=filter, query=query)
    return [session.id.partition(".")[0] for session in found]


@CHECKS.add
async def sessions_are_found_by_folder_tag_and_archive(case: Case) -> None:
    """No tag is found in a longer one, and no sign in a name is one of the query language."""
    for at, (name, folder, tags, archived) in enumerate(
        (
            ("a", "Work", ("red", "x%"), False),
            ("b", "Work", ("redder",), True),
            ("c", "", ("red",), False),
            ("d", "work", (), False),
        )
    ):
        await case.session(name, folder=folder, tags=tags, archived=archived, updated_at=float(at), title="same word")

    assert ["b", "a"] == await _names(case, Filter(folder="Work"))
    assert ["a"] == await _names(case, Filter(folder="Work", archived=False))
    assert ["c"] == await _names(case, Filter(folder=""))
    assert ["c", "a"] == await _names(case, Filter(tag="red"), "word")
    assert ["a"] == await _names(case, Filter(tag="x%"))
    assert [] == await _names(case, Filter(tag="%"))
    assert ["b"] == await _names(case, Filter(archived=True))
    assert ["d", "c", "b", "a"] == await _names(case, Filter())


@CHECKS.add
async def sessions_are_filed_all_or_none(case: Case) -> None:
    """Those of another owner, and those that do not exist, are left out. Time and feed stay as they are."""
    await case.session("a", tags=("old",), updated_at=1.0)
    await case.session("b", updated_at=2.0)
    await case.session("foreign", owner=case.id("stranger"))
    ids = [case.id(name) for name in ("b", "a", "a", "foreign", "gone")]
    filed = await case.store.file_sessions(
        case.owner, ids, Filing(folder="Work", add_tags=("new",), remove_tags=("old",), archived=True)
    )

    assert [(case.id("a"), ("new",), 1.0), (case.id("b"), ("new",), 2.0)] == [
        (session.id, session.tags, session.updated_at) for session in filed
    ]
    assert all(session.folder == "Work" and session.archived for session in filed)
    assert filed == [await case.store.get_session(case.id("a")), await case.store.get_session(case.id("b"))]
    assert [] == await case.store.read_feed(case.id("a"), 0)
    foreign = await case.store.get_session(case.id("foreign"))
    assert foreign is not None
    assert "" == foreign.folder
    many = tuple(map(str, range(MOST_TAGS)))
    await case.store.file_sessions(case.owner, [case.id("b")], Filing(tags=()))
    await raised(BadRequest, case.store.file_sessions(case.owner, ids, Filing(add_tags=many, folder="")))
    assert ["b", "a"] == await _names(case, Filter(folder="Work"))


@CHECKS.add
async def the_folders_and_tags_of_an_owner_are_counted(case: Case) -> None:
    """Those that only archived chats have count nothing, and panes have none."""
    await case.session("a", folder="Work", tags=("red", "big"))
    await case.session("b", folder="Work", tags=("red",), archived=True)
    await case.session("c", folder="Past", archived=True)
    await case.session("d")
    await case.session("pane", kind="pane", folder="No", tags=("no",))
    await case.session("foreign", owner=case.id("stranger"), folder="Theirs")
    labels = await case.store.labels(case.owner)

    assert {"Past": 0, "Work": 1} == labels.folders
    assert {"big": 1, "red": 1} == labels.tags
    assert 2 == labels.archived
