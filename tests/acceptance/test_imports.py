"""Exports of ChatGPT, Open WebUI and LibreChat are imported as they are, with a truthful report."""

import asyncio
import hashlib
import io
import json
import tempfile
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast.server.config.settings import KeySettings
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.exports import PNG, archive, chatgpt, conversation, librechat, node, open_webui
from tests.support.http import Client
from tests.support.native import Native
from tests.support.upstream import Upstream, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory) -> AsyncIterator[Any]:
    async with Upstream() as up, serving(up, tmp_path_factory.mktemp("imports")) as served:
        yield served


async def send(api: Native, data: bytes | Any, status: int = 200, **headers: str) -> Any:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    response = await api.client.request("POST", "/api/imports", body=body, headers=headers)
    assert status == response.status, await response.text()
    return await response.json() if not headers else response


async def chats(api: Native, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get(f"/api/sessions?query={query}"))["sessions"]
    return found


async def opened(api: Native, query: str) -> dict[str, Any]:
    (found,) = await chats(api, query)
    return await api.session(found["id"])


@requirement("imports.chatgpt")
async def test_a_chat_of_chatgpt_comes_with_its_branches_pictures_and_programs(world):
    """What is hidden stays out, marks of citations become links, and what has no place here is counted."""
    export = archive(**{"conversations.json": [chatgpt()], "user.json": {"id": "u"}, "file_abc123-sea.png": PNG})
    report = await send(world.api, export)
    chat = await opened(world.api, "tides")
    question, reply, poem, canvas = chat["messages"]

    assert (1, 1, 0, 0, ["chatgpt"]) == tuple(
        report[name] for name in ("found", "added", "known", "refused", "sources")
    )
    assert 1 == report["left_out"]
    assert ["image_url", "text"] == [part["type"] for part in question["content"]]
    assert (
        "```python\nprint(6 * 7)\n```\n\n```\n42\n```\n\nThe moon. ([NASA](https://nasa.example/)) And the sun."
        == reply["content"]
    )
    assert ("gpt-5", "The moon pulls.", 2) == (reply["model"], reply["reasoning"], len(reply["siblings"]))
    assert ("A poem, please.", "**Poem**\n\nO sea", "gpt-4o") == (poem["content"], canvas["content"], canvas["model"])
    assert "2023-11-14T22:13:20.500Z" == question["created_at"]


@requirement("imports.chatgpt", "files.answers")
async def test_a_picture_that_a_model_made_is_part_of_its_response(world):
    """It is a message of a tool in the export, and no other program shows it there."""
    pointer = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_def456"}
    made = conversation(
        node("q", "root", "user", "Draw the bay."),
        node("t", "q", "tool", content={"content_type": "multimodal_text", "parts": [pointer]}, name="t2uay3k.sj1i4kz"),
        node("a", "t", "assistant", "Here it is."),
        head="a",
        title="The bay",
        conversation_id="drawn",
    )
    report = await send(world.api, archive(**{"conversations.json": [made], "file_def456-bay.png": PNG}))
    _, reply = (await opened(world.api, "bay"))["messages"]
    picture = {"url": f"holdfast-file:{hashlib.sha256(PNG).hexdigest()}"}

    assert (1, 0) == (report["added"], report["left_out"])
    assert [{"type": "image_url", "image_url": picture}, {"type": "text", "text": "Here it is."}] == reply["content"]


@requirement("imports.chatgpt")
async def test_the_zip_of_2026_has_many_files_and_no_metadata(world):
    """Others say that it was imported, and nothing is there."""
    many = {}
    for number in range(52):
        nodes = node("q", "root", "user", f"Question {number}"), node("a", "q", "assistant", f"Answer {number}")
        title = f"Number{number} of fifty-two"
        many[f"conversations-{number:03}.json"] = [
            conversation(*nodes, head="a", title=title, conversation_id=f"n-{number}")
        ]
    report = await send(world.api, archive(**many))
    chat = await opened(world.api, "number51")

    assert (52, 52, 0) == (report["found"], report["added"], report["refused"])
    assert [("user", "Question 51"), ("assistant", "Answer 51")] == [
        (said["role"], said["content"]) for said in chat["messages"]
    ]


@requirement("imports.others")
async def test_a_chat_of_open_webui_comes_with_its_branches_reasoning_and_tags(world):
    """As its list of all chats has it."""
    report = await send(world.api, [open_webui()])
    chat = await opened(world.api, "salty")
    question, reply = chat["messages"]

    assert (1, ["open-webui"]) == (report["added"], report["sources"])
    assert ("The sea?", "notes.md") == (question["content"][0]["text"], question["content"][1]["file"]["filename"])
    assert ("It is salty.", "Salt & sun", "llama3", 2) == (
        reply["content"],
        reply["reasoning"],
        reply["model"],
        len(reply["siblings"]),
    )
    assert ("Sea", "Be brief.", ["salt"], True) == (chat["title"], chat["system"], chat["tags"], chat["archived"])


@requirement("imports.others")
async def test_a_chat_of_librechat_comes_as_a_list_and_as_a_tree(world):
    """Both are the same chat, so the second is known already."""
    listed = await send(world.api, librechat(is_recursive=False))
    tree = await send(world.api, librechat(is_recursive=True))
    chat = await opened(world.api, "fish")
    question, reply = chat["messages"]

    assert [(1, 0), (0, 1)] == [(report["added"], report["known"]) for report in (listed, tree)]
    assert ("Fish?", "Blub.", "gpt-4o", 2) == (
        question["content"],
        reply["content"],
        reply["model"],
        len(reply["siblings"]),
    )


@requirement("imports.report")
async def test_an_export_that_is_imported_again_adds_nothing(world):
    """And a chat that was imported goes on with any model."""
    chat = conversation(
        node("q", "root", "user", "Again?"), node("a", "q", "assistant", "Again."), head="a", title="Twice told"
    )
    reports = [await send(world.api, [chat]) for _ in range(2)]
    (found,) = await chats(world.api, "twice")
    world.up.enqueue(answer("And on."))
    await world.api.settled(await world.api.start(found["id"], "Go on", "up/m"))

    assert [(1, 0), (0, 1)] == [(report["added"], report["known"]) for report in reports]
    assert "And on." == (await world.api.session(found["id"]))["messages"][-1]["content"]


@requirement("imports.report")
async def test_a_chat_that_cannot_be_read_is_named_and_the_others_are_added(world):
    """Each chat is imported as a whole or not at all."""
    circle = conversation(node("x", "y", "user", "a"), node("y", "x", "assistant", "b"), head="y", title="Round")
    wrong: dict[str, Any] = {"title": "Wrong", "conversationId": "w", "messages": 7}
    empty = conversation(head="root", title="Nothing said", conversation_id="e")
    good = conversation(node("q", "root", "user", "Good"), head="q", title="Good among bad", conversation_id="g")
    half = conversation(node("h", "root", "user", "Cut \ud83d off"), head="h", title="Half \udc00", conversation_id="h")
    shapeless = {**conversation(head="root", title="Shapeless", conversation_id="s"), "mapping": "none"}
    report = await send(world.api, [circle, wrong, empty, half, shapeless, good])

    assert (6, 2, 1, 3) == tuple(report[name] for name in ("found", "added", "empty", "refused"))
    whys = ("circle", "no list of messages", "its messages cannot be read")
    assert ["Round", "Wrong", "Shapeless"] == [
        refusal["title"] for refusal, why in zip(report["refusals"], whys, strict=True) if why in refusal["why"]
    ]
    assert 1 == len(await chats(world.api, "among"))
    assert "Cut ? off" == (await opened(world.api, "half"))["messages"][0]["content"]


def bomb(size: int = 500 * 1024 * 1024) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as entries, entries.open("conversations.json", "w") as entry:
        for _ in range(size // (1024 * 1024)):
            entry.write(b" " * 1024 * 1024)
    return made.getvalue()


def deep() -> bytes:
    return b'[{"mapping": ' + b"[" * 200_000 + b"]" * 200_000 + b"}]"


@requirement("imports.hostile")
@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "unreadable_export", "is not valid JSON"),
        (b"\x00\x01\x02", "unreadable_export", "is not valid JSON"),
        (b'{"a": 1}', "no_chats", "no chats"),
        (b"[]", "no_chats", "no chats"),
        (b'[{"mapping": {}', "unreadable_export", "is not valid JSON"),
        ('[{"title": "Grüße"}]'.encode("latin-1"), "unreadable_export", "is no export: it is not text in UTF-8."),
        (archive(**{"chat.html": b"<p>"}), "no_chats", "no chats"),
        (b"PK\x03\x04 and then nothing", "unreadable_export", "The file is no ZIP"),
        (bomb(), "unreadable_export", "conversations.json is larger than 400 MB."),
        (deep(), "unreadable_export", "is not valid JSON"),
        (archive(**{f"../../etc/{n}.json": {"a": n} for n in range(3)}), "no_chats", "no chats"),
    ],
    ids=[
        "empty",
        "bytes",
        "other-json",
        "no-chat",
        "cut",
        "latin-1",
        "no-json",
        "cut-zip",
        "bomb",
        "deep",
        "traversal",
    ],
)
async def test_a_hostile_file_is_refused_with_words_and_leaves_nothing(world, data, code, words):
    """It is read in a process with limits, and the server goes on."""
    before = (await world.api.get("/api/sessions?archived=any&limit=200"))["sessions"]
    told = await send(world.api, data, 400)

    assert code == told["error"]["code"]
    assert words in told["error"]["message"]
    assert before == (await world.api.get("/api/sessions?archived=any&limit=200"))["sessions"]


@requirement("imports.report")
async def test_slow_uploads_keep_no_others_from_importing(tmp_path):
    """Two who send nothing more would else hold all places of a server, for hours."""
    digests = {name: hashlib.sha256(f"key-of-{name}".encode()).hexdigest() for name in ("ann", "bob", "eve")}
    keys = tuple(KeySettings(name, sha256=digest) for name, digest in digests.items())
    async with Upstream() as up, serving(up, tmp_path, settings={"keys": keys}) as world, AsyncExitStack() as opened:
        host, port = world.api.client.host, world.api.client.port
        ann, bob, eve = [
            await opened.enter_async_context(
                Client(f"http://{host}:{port}", {"Authorization": f"Bearer key-of-{name}"})
            )
            for name in digests
        ]
        for client, name in ((ann, "ann"), (bob, "bob")):
            _, writer = await asyncio.open_connection(host, port)
            opened.callback(writer.close)
            writer.write(
                f"POST /api/imports HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer key-of-{name}\r\n"
                "Content-Length: 1000000\r\n\r\n[".encode()
            )
            async with asyncio.timeout(LONG):
                while (await client.post("/api/imports", body=b"[]")).status != 409:
                    pass  # it has not begun yet
        nodes = node("q", "root", "user", "Slow?"), node("a", "q", "assistant", "No.")
        done = await eve.post("/api/imports", body=json.dumps([conversation(*nodes, head="a")]).encode())
        report = await done.json()

    assert (200, 1) == (done.status, report["added"])


@requirement("imports.report")
async def test_progress_is_told_while_chats_are_added(world):
    """The last event has the whole report."""
    many = [
        conversation(node("q", "root", "user", f"Progress {n}"), head="q", title=f"P{n}", conversation_id=f"p-{n}")
        for n in range(30)
    ]
    response = await send(world.api, many, accept="text/event-stream")
    named = [*Path(tempfile.gettempdir()).glob("*holdfast-import*")]
    events = [(frame.event, frame.json()) for frame in await response.all_events()]

    assert [] == named, "a crash would leave the whole export behind"
    assert {"import.progress"} == {event for event, _ in events[:-1]}
    assert "import.ended" == events[-1][0]
    assert (30, 30) == (events[-1][1]["report"]["found"], events[-1][1]["report"]["added"])
