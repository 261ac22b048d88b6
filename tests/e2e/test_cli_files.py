"""Files on the command line: attached to a prompt and to a chat, and a chat that is compacted."""

import pytest

from tests.e2e.test_cli_presets import done
from tests.e2e.test_cli_presets import server as server
from tests.e2e.test_cli_presets import shell as shell
from tests.e2e.test_cli_presets import up as up
from tests.requirements import requirement
from tests.support.pdfs import text_pdf
from tests.support.upstream import answer

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
