"""The files of one folder, and no others; and the shell."""

import os
import threading

import pytest

from holdfast.agents import ToolContext, ToolError
from holdfast.agents.files import Files
from holdfast.agents.shell import Shell


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    (inside / "notes").mkdir()
    (inside / "notes" / "today.md").write_text("one\nTwo\nthree\n")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "way").symlink_to(tmp_path)
    (inside / "near").symlink_to(inside / "notes")
    os.mkfifo(inside / "pipe")
    return inside


OUTSIDE = [
    "../secret",
    "/etc/passwd",
    "notes/../../secret",
    "link",
    "way/secret",
    "near/today.md",
    "notes/\0",
    "",
    "x" * 5000,
]


@pytest.mark.parametrize("path", OUTSIDE, ids=repr)
@pytest.mark.parametrize("does", ["read", "write"])
def test_no_path_leads_out_of_the_folder(folder, path, does):
    """Neither up, nor absolute, nor by a link; what was outside stays as it was."""
    files = Files(folder)
    with pytest.raises(ToolError) as refused:
        files.read(path) if does == "read" else files.write(path, "mine")

    assert str(folder) not in str(refused.value)
    assert "secret" == (folder.parent / "secret").read_text()
    assert (folder / "link").is_symlink()


@pytest.mark.parametrize("path", ["way", "link", "../", "near"])
def test_no_folder_is_listed_or_searched_through_a_link(folder, path):
    """A listing tells as much as a file."""
    with pytest.raises(ToolError):
        Files(folder).list_folder(path)
    with pytest.raises(ToolError):
        Files(folder).search("secret", path)


def test_a_link_that_is_put_there_during_the_call_is_not_followed(folder):
    """A race between looking and opening is lost by whoever wants out: names are opened one by one, never by path."""
    files, swapping = Files(folder), threading.Event()
    swapping.set()

    def swap() -> None:
        while swapping.is_set():
            os.rename(folder / "notes", folder / "away")
            os.symlink(folder.parent, folder / "notes")
            os.unlink(folder / "notes")
            os.rename(folder / "away", folder / "notes")

    thread = threading.Thread(target=swap)
    thread.start()
    read = set()
    try:
        for _ in range(2000):
            try:
                read.add(files.read("notes/secret"))
            except ToolError:
                continue
    finally:
        swapping.clear()
        thread.join()

    assert set() == read


def test_files_are_read_listed_searched_and_written(folder):
    """What it is for."""
    files = Files(folder)

    assert "one\nTwo\nthree\n" == files.read("notes/today.md")
    assert "Two" == files.read("./notes/today.md", start=2, lines=1)
    assert "today.md (14 bytes)" == files.list_folder("notes")
    assert "notes/" in files.list_folder().split("\n")
    assert "notes/today.md:2: Two" == files.search("two")
    assert "Nothing was found." == files.search("secret")
    assert "5 bytes were written to new/deep/file.txt." == files.write("new/deep/file.txt", "hello")
    assert "hello" == files.read("new/deep/file.txt")
    files.write("new/deep/file.txt", "again")
    assert ["file.txt"] == os.listdir(folder / "new" / "deep")


@pytest.mark.parametrize("path", ["notes", "pipe", "missing"])
def test_what_is_no_file_is_not_read_and_does_not_hold_the_call(folder, path):
    """A pipe without a writer would wait for ever."""
    with pytest.raises(ToolError):
        Files(folder).read(path)


def test_a_folder_or_a_pipe_is_not_replaced_by_a_file(folder):
    """Writing means files."""
    for path in ("notes", "pipe"):
        with pytest.raises(ToolError):
            Files(folder).write(path, "x")


@pytest.mark.parametrize(
    ("command", "output", "is_error"),
    [
        ("echo out; echo err >&2", "out\nerr\n", False),
        ("pwd", "{folder}\n", False),
        ("echo half; exit 3", "half\n[ended with status 3]", True),
        ("kill -9 $$", "[ended by signal 9]", True),
        ("echo $MY_SECRET$MY_WORD$LC_MINE", "mine\n", False),
        (" ", "command is missing.", True),
    ],
)
async def test_a_command_tells_its_output_and_how_it_ended(tmp_path, monkeypatch, command, output, is_error):
    """A failure is reported, and only allowed variables are passed on."""
    monkeypatch.setenv("MY_SECRET", "s3cret")
    monkeypatch.setenv("MY_WORD", "word")
    monkeypatch.setenv("LC_MINE", "mine")
    context = ToolContext()
    given = await Shell(tmp_path).call({"command": command}, context)
    await context.processes.end()

    assert (output.format(folder=tmp_path), is_error) == (given.text, given.is_error)


async def test_of_a_flood_the_head_and_the_tail_are_kept(tmp_path):
    """A command that never stops talking costs bounded memory."""
    context = ToolContext()
    command = "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo last"
    given = await Shell(tmp_path).call({"command": command}, context)
    await context.processes.end()

    assert len(given.text) < 1_600_000
    assert given.text.startswith("first\n")
    assert given.text.endswith("last\n")
    assert "bytes are left out here" in given.text
