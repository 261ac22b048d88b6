"""Files sent ahead of a message, and PDFs: what they are is said before they are sent, and a hash is no right."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from holdfast.attachments.pdf import MOST_PAGES
from holdfast.attachments.reading import Reader, Takes
from holdfast.server.features.files.uploads import SECONDS_KEPT, Uploads
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_attachments import files_kept, inline, last_content
from tests.acceptance.test_safety import World, bearer, two_owners
from tests.requirements import requirement
from tests.support.http import Response
from tests.support.native import Native
from tests.support.pdfs import bomb_pdf, encrypted_pdf, text_pdf
from tests.support.upstream import Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "up/echo:I see."
LARGEST = 5_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    data = tmp_path_factory.mktemp("uploads")
    async with Upstream() as up:
        server = two_owners(data, up)
        server.config.write_text(server.config.read_text().replace("body_limit = 20000", f"body_limit = {LARGEST}"))
        async with server, server.client(**bearer("alice")) as alice, server.client(**bearer("bob")) as bob:
            async with server.client() as stranger:
                yield World(server, up, Native(alice), Native(bob), stranger, {})


async def sent(api: Native, data: bytes, name: str = "notes.md", **query: str) -> Response:
    return await api.client.request("POST", "/api/files?" + urlencode({"name": name, **query}), body=data)


async def upload(api: Native, data: bytes, name: str = "notes.md", **query: str) -> dict[str, Any]:
    response = await sent(api, data, name, **query)
    file: dict[str, Any] = await response.json()
    assert response.status in (200, 201), file
    return file


def referring(sha256: str, name: str = "notes.md", **more: str) -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": f"holdfast-file:{sha256}", **more}}


def pdf_part(data: bytes, name: str = "paper.pdf", **more: str) -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": inline(data, "application/pdf"), **more}}


async def ask(api: Native, *parts: dict[str, Any], session: str = "") -> Response:
    input = [*parts, {"type": "text", "text": "What is it?"}]
    return await api.send(session or await api.new_session(), input, MODEL)


async def answered(api: Native, *parts: dict[str, Any]) -> str:
    """A session in which a model has answered a message with these parts."""
    response = await ask(api, *parts)
    run = await response.json()
    assert 202 == response.status, run
    assert "completed" == (await api.settled(run["id"]))["outcome"]
    return str(run["session_id"])


@requirement("files.uploads")
async def test_a_file_is_measured_and_kept_before_its_message_refers_to_it(world: World):
    """Ten megabytes are sent once, with progress, and the message that follows is small."""
    data = b"# Sea\n\nA ship.\n"
    file = await upload(world.alice, data, "../no\u202etes.md")
    await answered(world.alice, referring(file["sha256"]))

    assert {
        "name": "notes.md",
        "type": "text/plain",
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "tokens": 11,
        "pages": None,
        "has_text": True,
    } == {key: value for key, value in file.items() if key != "expires_at"}
    assert '<file name="notes.md">\n# Sea\n\nA ship.\n</file>\n\nWhat is it?' == last_content(world)


@requirement("files.uploads")
async def test_a_chat_without_a_session_and_one_with_a_name_refer_to_uploads_too(world: World):
    """Every call that takes a message takes the reference."""
    file = await upload(world.alice, b"by reference")
    messages = [{"role": "user", "content": [referring(file["sha256"]), {"type": "text", "text": "Sum it."}]}]
    for session in ({}, {"session_id": "uploads"}):
        body = {"model": MODEL, "messages": messages, **session}
        response = await world.alice.client.post("/v1/chat/completions", body)

        assert 200 == response.status, await response.text()
        assert '<file name="notes.md">\nby reference\n</file>\n\nSum it.' == last_content(world)


@requirement("files.uploads", "safe.pictures")
async def test_a_hash_opens_no_file_of_another_owner(world: World):
    """Whoever knows the bytes of a file, or has seen its hash, learns nothing from a server that has it."""
    file = await upload(world.alice, b"Alice's alone")
    asked = await ask(world.bob, referring(file["sha256"]))
    removed = await world.bob.client.request("DELETE", f"/api/files/{file['sha256']}")
    completion = {"model": MODEL, "messages": [{"role": "user", "content": [referring(file["sha256"])]}]}
    told = len(world.up.requests)
    refused = await world.bob.client.post("/v1/chat/completions", completion)
    again = await upload(world.alice, b"Alice's alone")

    assert 400 == asked.status
    assert "has no file" in (await asked.json())["error"]["message"]
    assert 404 == removed.status
    assert 400 == refused.status
    assert told == len(world.up.requests)
    assert file["sha256"] == again["sha256"]


@requirement("files.uploads")
@pytest.mark.one_server("it reads the SQLite file")
async def test_an_upload_that_is_taken_back_is_gone_and_a_message_keeps_its_file(world: World):
    """The bytes are kept once; only the last one who needs them keeps them."""
    file = await upload(world.alice, b"taken back")
    other = await upload(world.alice, b"needed")
    session = await answered(world.alice, referring(other["sha256"]))
    for each in (file, other):
        response = await world.alice.client.request("DELETE", f"/api/files/{each['sha256']}")
        assert 204 == response.status

    assert file["sha256"] not in files_kept(world)
    fetched = await world.alice.client.get(f"/api/sessions/{session}/files/{other['sha256']}")
    assert b"needed" == await fetched.body()


@requirement("files.uploads")
@pytest.mark.one_server("it reads the SQLite file")
async def test_a_file_that_is_only_measured_is_not_kept(world: World):
    """A temporary chat leaves nothing on the server."""
    before = world.stored()
    file = await upload(world.alice, b"a secret of a temporary chat", keep="false")

    assert (14, None) == (file["tokens"], file["expires_at"])
    assert before == world.stored()


@requirement("files.uploads")
async def test_uploads_are_deleted_after_a_day():
    """A tab that was closed before the message was sent leaves nothing behind."""
    clock = [1000.0]
    store = MemoryStore()
    uploads, reader = Uploads(store, lambda: clock[0]), Reader()
    old = await uploads.keep("ann", await reader.inspect("a", b"old"), b"old")
    clock[0] += SECONDS_KEPT / 2
    new = await uploads.keep("ann", await reader.inspect("b", b"new"), b"new")
    clock[0] += SECONDS_KEPT / 2 + 1
    await uploads.delete_old()

    assert await store.get_session(old.id) is None
    assert await store.get_session(new.id) is not None


@requirement("files.pdf")
async def test_a_pdf_reaches_every_model_as_its_text_with_its_pages(world: World):
    """A model that reads only text answers about page two; nothing but text is sent to it."""
    data = text_pdf("About ships.", "About (deep) sea.")
    file = await upload(world.alice, data, "paper.pdf")
    await answered(world.alice, pdf_part(data))

    assert (2, "application/pdf", True) == (file["pages"], file["type"], file["has_text"])
    assert (
        '<file name="paper.pdf">\n[Page 1]\nAbout ships.\n\n[Page 2]\nAbout (deep) sea.\n</file>\n\nWhat is it?'
        == last_content(world)
    )


@requirement("files.pdf")
@pytest.mark.parametrize(
    ("pages", "how"), [(("", ""), {}), (("A", "B"), {"read_as": "pictures"})], ids=["a scan", "by wish"]
)
async def test_a_scan_and_a_pdf_by_wish_are_pictures_of_pages(
    world: World, pages: tuple[str, ...], how: dict[str, str]
):
    """A model that sees reads what no text says. Each page is a PNG of bounded size."""
    data = text_pdf(*pages)
    file = await upload(world.alice, data, "scan.pdf")
    await answered(world.alice, pdf_part(data, "scan.pdf", **how))
    told, first, second, question = last_content(world)

    assert any(pages) == file["has_text"]
    assert "“scan.pdf”" in told["text"]
    assert {"type": "text", "text": "What is it?"} == question
    for part in (first, second):
        picture = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
        assert (1568, 1046) == (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24]))


HOSTILE: dict[str, tuple[bytes, int, str]] = {
    "encrypted": (encrypted_pdf(), 400, "a password only"),
    "not a PDF inside": (b"%PDF-1.7 nonsense", 400, "is damaged"),
    "no pages": (text_pdf(), 400, "is damaged"),
    "10,000 pages": (text_pdf(*[""] * 10_000), 400, f"10,000 pages. {MOST_PAGES:,} are the limit"),
    "a bomb": (bomb_pdf(), 400, "too much time or memory"),
    "zip": (b"PK\x03\x04" + b"\0" * 1000, 415, "a ZIP archive"),
    "empty": (b"", 400, "is empty"),
    "NUL bytes": (b"a\0b" * 100, 415, "is no text"),
    "a program": (b"\x7fELF\2\1\1\0", 415, "is no text"),
    "too large": (b"a" * (LARGEST + 1), 413, f"{LARGEST} bytes"),
}


def children_of_the_server(world: World) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{world.server.pid}/task").iterdir():
        found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


@requirement("files.refused", "files.pdf")
@pytest.mark.one_server("it reads the SQLite file")
@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_file_is_refused_with_words_and_leaves_nothing_behind(world: World, what: str):
    """No process, no row, no file in the temporary folder; and the server answers others meanwhile."""
    data, status, words = HOSTILE[what]
    before, children = world.stored(), children_of_the_server(world)
    name = "<b>a\u202e/../x\u200b.pdf"
    refused = [await sent(world.alice, data, name)]
    if len(data) < LARGEST / 2:
        refused.append(await ask(world.alice, pdf_part(data, name), session=await world.alice.new_session()))
    errors = [(await response.json())["error"] for response in refused]

    assert [status] * len(refused) == [response.status for response in refused], errors
    assert all(words in error["message"] for error in errors)
    assert all("\u202e" not in error["message"] and ".." not in error["message"] for error in errors)
    assert children == children_of_the_server(world)
    assert files_in(before) == files_in(world.stored())


def files_in(stored: dict[str, list[tuple[Any, ...]]]) -> list[Any]:
    return [stored.get(table) for table in ("files", "files_used", "runs", "messages", "documents")]


@requirement("files.refused")
async def test_an_announced_size_beyond_the_limit_is_refused_before_a_byte_of_it_is_read(world: World):
    """200 MB would otherwise be received to be thrown away."""
    headers = {"Content-Length": "200000000"}
    response = await world.alice.client.request("POST", "/api/files?name=a", body=b"a", headers=headers)

    assert 413 == response.status
    assert "body_too_large" == (await response.json())["error"]["code"]


@requirement("files.pdf")
async def test_a_pdf_that_was_sent_stays_readable_when_the_model_changes(world: World):
    """In a chat with a scan, a model that sees nothing is told so in place of the pages: the chat goes on."""
    reader = Reader()
    messages = [{"role": "user", "content": [pdf_part(text_pdf("", ""), "scan.pdf"), {"type": "text", "text": "?"}]}]
    [shown] = await reader.shown(messages, Takes(pictures=False))

    assert "[“scan.pdf” has no text to read" in shown["content"]
    assert shown["content"].endswith("\n\n?")
