"""Files on the command line: attached to a prompt and to a chat, and a chat that is compacted."""

import base64

import pytest

from tests.e2e.test_cli_presets import done
from tests.e2e.test_cli_presets import server as server
from tests.e2e.test_cli_presets import shell as shell
from tests.e2e.test_cli_presets import up as up
from tests.requirements import requirement
from tests.support.pdfs import text_pdf
from tests.support.upstream import Chunk, Cut, Delta, Done, Finish, Headers, Role, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@requirement("cli.files")
async def test_files_go_with_a_prompt_and_are_measured_first(shell, up):
    """With a session and without: whole, with their names, before the question."""
    (shell.home / "notes.md").write_text("the moon pulls")
    (shell.home / "paper.pdf").write_bytes(text_pdf("tides and more"))
    for more in ([], ["--keep"]):
        up.enqueue(answer("Fine."))
        ended = await shell("run", "Why?", "-a", "notes.md", "--attach", "paper.pdf", *more)
        sent = up.requests[-1].body["messages"][-1]["content"]

        assert (0, True) == (ended.code, "Fine." in ended.out), ended.err
        assert "notes.md: 14 bytes, about" in ended.err
        assert "1 page" in ended.err
        assert sent.startswith('<file name="notes.md">\nthe moon pulls\n</file>')
        assert "tides and more" in sent
        assert sent.endswith("Why?")


@requirement("cli.files")
async def test_what_cannot_be_attached_is_said_and_nothing_is_sent(shell, up):
    """A mistake of the command line, or of the file."""
    (shell.home / "old.doc").write_bytes(b"\xd0\xcf\x11\xe0 old")
    before = len(up.requests)
    missing = await shell("run", "Why?", "-a", "nowhere.md")
    refused = await shell("run", "Why?", "-a", "old.doc")

    assert (2, True) == (missing.code, "nowhere.md" in missing.err)
    assert (1, True) == (refused.code, "is an old Office document" in refused.err)
    assert before == len(up.requests)


@requirement("cli.files")
async def test_a_chat_attaches_and_compacts(shell, up):
    """The file goes with one message. After the summary the model is shown it in place of what was before."""
    (shell.home / "one.md").write_text("first file")
    (shell.home / "two.md").write_text("second file")
    up.enqueue(answer("One."), answer("Two."), answer("All in short."), answer("Three."))
    said = "/attach nowhere.md\nread it\n/attach ~/two.md\nand this\n/compact\ngo on\n"
    ended = await done(shell, "chat", "-m", "up/m", "-a", "one.md", stdin=said)
    first, second, _, last = [request.body["messages"] for request in up.requests[-4:]]

    assert "All in short." in ended
    assert ["first file" in first[-1]["content"], "second file" in first[-1]["content"]] == [True, False]
    assert ["first file" in second[-1]["content"], "second file" in second[-1]["content"]] == [False, True]
    assert "All in short." in last[0]["content"]
    assert "first file" not in str(last)


PICTURE = b"\x89PNG\r\n\x1a\n" + b"a cat"


def drawing(finish="stop"):
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    delta = {"images": [{"type": "image_url", "image_url": {"url": url}}]}
    drawn = Chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    return [Headers(), Role(), Delta("Here it is."), drawn, *([Finish(finish), Done()] if finish else [Cut()])]


@requirement("cli.output")
async def test_a_response_is_written_to_a_file_with_its_pictures_beside_it(shell, up):
    """The text is that of standard output, which stays free; what had the name is replaced."""
    (shell.home / "cat.md").write_text("old")
    up.enqueue(drawing())
    ended = await shell("run", "Draw a cat.", "-o", "cat.md")

    assert (0, "") == (ended.code, ended.out), ended.err
    assert "Wrote cat.md, cat-1.png." in ended.err
    assert "Here it is.\n" == (shell.home / "cat.md").read_text()
    assert PICTURE == (shell.home / "cat-1.png").read_bytes()
    assert not list(shell.home.glob("*.part"))


@requirement("cli.output")
async def test_a_written_response_touches_no_file_that_was_not_named(shell, up):
    """Neither one whose name a picture would get, nor one beside it that is half way there, nor who may read it."""
    others = {"cat-1.png": "my own", "cat.md.part": "half of my own"}
    for name, text in {**others, "cat.md": "old"}.items():
        (shell.home / name).write_text(text)
    (shell.home / "cat.md").chmod(0o600)
    up.enqueue(drawing())
    ended = await shell("run", "Draw a cat.", "-o", "cat.md")

    assert "Wrote cat.md, cat-2.png." in ended.err
    assert others == {name: (shell.home / name).read_text() for name in others}
    assert (PICTURE, "Here it is.\n") == ((shell.home / "cat-2.png").read_bytes(), (shell.home / "cat.md").read_text())
    assert 0o600 == (shell.home / "cat.md").stat().st_mode & 0o777
    for path in shell.home.glob("cat*"):
        path.unlink()


@requirement("cli.output")
async def test_an_export_follows_no_link(shell, up):
    """Somebody else may have put a link under the name: to where the export would be read, or do harm."""
    (shell.home / "all.zip").symlink_to(shell.home / "elsewhere")
    linked = await shell("export", "all.zip")
    written = await shell("export", "other.zip")
    again = await shell("export", "other.zip")

    assert (1, 0, 1) == (linked.code, written.code, again.code), written.err
    assert all("exists already. Choose another name." in each.err for each in (linked, again))
    assert not (shell.home / "elsewhere").exists()
    assert 0o600 == (shell.home / "other.zip").stat().st_mode & 0o777


@requirement("cli.output", "truth.cut")
@pytest.mark.parametrize(("finish", "code"), [("", 1), ("length", 3)])
async def test_a_response_that_did_not_complete_is_no_file(shell, up, finish, code):
    """Half of an answer under the name of a whole one would be taken for it. What was there stays."""
    (shell.home / "kept.md").write_text("old")
    for name in ("kept.md", "new.md"):
        up.enqueue(drawing(finish))
        ended = await shell("run", "Draw a cat.", "-o", name)

        assert (code, "") == (ended.code, ended.out), ended.err
        assert "See the run with: holdfast runs show" in ended.err
    assert "old" == (shell.home / "kept.md").read_text()
    assert ["kept.md"] == sorted(path.name for path in shell.home.iterdir() if path.name.startswith(("kept", "new")))


@requirement("cli.output")
async def test_a_file_that_cannot_be_written_is_said_before_anything_is_sent(shell, up):
    """An answer that was paid for must have a place."""
    before = len(up.requests)
    (shell.home / "folder").mkdir()
    for name in ("nowhere/cat.md", "folder", "/dev/null"):
        ended = await shell("run", "Draw a cat.", "-o", name)

        assert 2 == ended.code, ended.err
    assert before == len(up.requests)
