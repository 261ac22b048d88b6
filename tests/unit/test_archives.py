"""Archives that are made to harm the server that reads them."""

import io
import json
import zipfile
from collections.abc import Callable

import pytest

from holdfast.server.features.data.bringing_in import BadArchive, BroughtIn, Importing
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement

SESSION = json.dumps({"messages": [{"id": "a", "role": "user", "content": "Hi"}]})


def archive(fill: Callable[[zipfile.ZipFile], None]) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("holdfast.json", json.dumps({"format": "holdfast-person", "version": 1}))
        fill(made)
    return file


async def brought_in(file: io.BytesIO, **limits: int) -> BroughtIn:
    return await Importing(file, MemoryStore(), "ada", lambda: 1.0, **limits).bring_in(dry_run=True)


@requirement("people.import")
@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_a_file_that_would_be_unpacked_at_once_is_refused(how: int):
    """Python bounds what it unpacks of deflate alone: a few kilobytes of bzip2 would take all memory."""
    file = archive(lambda made: made.writestr("sessions/a.json", SESSION, compress_type=how))
    result = await brought_in(file)

    assert (0, 1) == (result.sessions, result.refused)
    assert "deflate" in result.reason


@requirement("people.import")
async def test_a_list_of_files_that_does_not_fit_is_refused():
    """It is in memory as a whole, and each of its files again."""

    def fill(made: zipfile.ZipFile) -> None:
        for number in range(600):
            info = zipfile.ZipInfo(f"runs/{number}.json")
            info.comment = b"x" * 65535
            made.writestr(info, b"")

    with pytest.raises(BadArchive, match="too many files"):
        await brought_in(archive(fill))


@requirement("people.import")
async def test_what_is_read_of_an_archive_is_bounded_in_all():
    """Each file may be small, and all of them together far larger than the archive."""

    def fill(made: zipfile.ZipFile) -> None:
        for number in range(5):
            made.writestr(f"sessions/{number}.json", SESSION)

    result = await brought_in(archive(fill), most=3 * len(SESSION))

    assert (3, 2) == (result.sessions, result.refused)
    assert "more in it" in result.reason


@requirement("people.import")
async def test_a_file_with_a_password_is_left_out():
    """It cannot be read, and that is no fault of the server."""
    file = archive(lambda made: made.writestr("sessions/a.json", SESSION))
    data = bytearray(file.getvalue())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.rindex(mark) + offset] |= 1
    result = await brought_in(io.BytesIO(bytes(data)))

    assert (0, 1) == (result.sessions, result.refused)
