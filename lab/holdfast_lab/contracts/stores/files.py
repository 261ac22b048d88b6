"""Pictures of messages, kept as files."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from msgspec.structs import replace

from holdfast.errors import BadRequest
from holdfast.events import Stopped
from holdfast.history import Message, Session
from holdfast.store import StoredFile
from holdfast.store.files import REFERENCE, with_files

from .case import Case, Checks, raised

CHECKS = Checks()

PNG = b"\x89PNG\r\n\x1a\n"


def _picture(case: Case, name: str = "picture") -> bytes:
    """Return the bytes of a picture that no other check has."""
    return PNG + case.id(name).encode()


def _url(data: bytes, type: str = "image/png") -> str:
    return f"data:{type};base64,{base64.b64encode(data).decode()}"


def _shows(url: str) -> list[Any]:
    return [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@CHECKS.add
async def a_picture_is_kept_apart_from_its_message_and_comes_back_as_it_was(case: Case) -> None:
    """A session that is opened a hundred times sends its pictures once."""
    data = _picture(case)
    await case.session()
    await case.start("r", case.user("a", _shows(_url(data))))
    await case.reopen()
    (message,) = await case.store.messages(case.id("s"))

    assert _shows(REFERENCE + _hash(data)) == message.content
    assert {_hash(data): StoredFile(type="image/png", data=data)} == await case.store.read_files(
        case.id("s"), [_hash(data), "0" * 64]
    )
    (whole,) = await with_files(case.store, case.id("s"), [message])
    assert _shows(_url(data)) == whole.content


@CHECKS.add
async def the_feed_and_the_queue_refer_to_pictures_too(case: Case) -> None:
    """A queued message is sent to every tab, and again when it starts."""
    one, two = _picture(case, "one"), _picture(case, "two")
    await case.session()
    first = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b", _shows(_url(one))), if_busy="queue")
    await case.store.change_queued(queued.id, [case.user("c", _shows(_url(two)))])
    (waiting,) = await case.store.queued(case.id("s"))

    assert _shows(REFERENCE + _hash(one)) == queued.input[0].content
    assert _shows(REFERENCE + _hash(two)) == waiting.input[0].content
    contents = [entry.data["input"][0]["content"] for entry in await case.feed() if "input" in entry.data]
    assert [_shows(REFERENCE + _hash(one)), _shows(REFERENCE + _hash(two))] == contents
    await case.settle(first)
    await case.store.start_queued(case.id("s"), node_id=case.id("k"), now=7.0)
    assert _shows(REFERENCE + _hash(two)) == (await case.store.messages(case.id("s")))[-1].content
    assert [_hash(two)] == [*await case.store.read_files(case.id("s"), [_hash(two)])]


@CHECKS.add
async def a_picture_of_an_answer_is_kept_apart_from_it_too(case: Case) -> None:
    """A model that draws sends more bytes than any person."""
    data = _picture(case)
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.settle(run, message=replace(case.answer(run), content=_shows(_url(data))))
    (_, answer) = await case.store.messages(case.id("s"))

    assert _shows(REFERENCE + _hash(data)) == answer.content
    assert [_hash(data)] == [*await case.store.read_files(case.id("s"), [_hash(data)])]
    await case.store.delete_session(case.id("s"))
    assert {} == await case.store.read_files(case.id("s"), [_hash(data)])


@CHECKS.add
async def a_hash_opens_no_picture_of_another_session(case: Case) -> None:
    """Neither by reading the file, nor by a message that refers to it: in a new run, a queued one, or a copy."""
    data = _picture(case)
    await case.session()
    await case.session("other")
    await case.start("r", case.user("a", _shows(_url(data))))
    guess = case.user("b", _shows(REFERENCE + _hash(data)))

    assert {} == await case.store.read_files(case.id("other"), [_hash(data)])
    await raised(BadRequest, case.start("r2", guess, session="other"))
    await case.start("r3", case.user("c"), session="other")
    queued = await case.start("r4", case.user("d"), session="other", if_busy="queue")
    await raised(BadRequest, case.store.change_queued(queued.id, [guess]))
    await raised(BadRequest, case.store.copy_session(Session(id=case.id("copy"), owner=case.owner), [guess]))
    assert await case.store.get_session(case.id("copy")) is None
    assert {} == await case.store.read_files(case.id("other"), [_hash(data)])
    assert {} == await case.store.read_files(case.id("unknown"), [_hash(data)])


@CHECKS.add
async def a_message_may_refer_to_a_picture_that_its_session_has(case: Case) -> None:
    """An edited message keeps its picture without sending it again."""
    data = _picture(case)
    await case.session()
    run = await case.start("r", case.user("a", _shows(_url(data))))
    await case.store.settle(run.id, run.epoch, seq=1, settlement=Stopped(text="", by="user"), message=None, now=3.0)
    edited = case.user("b", _shows(REFERENCE + _hash(data)))
    await case.start("r2", edited, parent=None)

    assert edited.content == (await case.store.messages(case.id("s")))[-1].content


@CHECKS.add
async def a_picture_goes_with_the_last_session_that_uses_it(case: Case) -> None:
    """And not before: a copy of a session has its own reference to it."""
    data = _picture(case)
    await case.session()
    await case.start("r", case.user("a", _shows(_url(data))))
    copy = Session(id=case.id("copy"), owner=case.owner)
    await case.store.copy_session(copy, [case.user("b", _shows(_url(data)))])

    await case.store.delete_session(case.id("s"))
    assert [_hash(data)] == [*await case.store.read_files(copy.id, [_hash(data)])]
    await case.store.delete_session(copy.id)
    assert {} == await case.store.read_files(copy.id, [_hash(data)])


@CHECKS.add
async def what_is_no_picture_of_a_known_type_stays_in_its_message(case: Case) -> None:
    """Otherwise a script could be stored as a picture, or a URL would be returned in a different form."""
    png = _url(_picture(case))
    odd = [
        _url(b"<svg/>", "image/svg+xml"),
        _url(b"<script/>", "image/png"),
        _url(PNG, "text/html"),
        "data:image/png,plain",
        "data:image/png;base64,not base64",
        png.replace("data:image/png", "data:image/png;charset=utf-8"),
        f"{png}\n",
        "https://example.com/a.png",
    ]
    await case.session()
    messages = [Message(id=case.id(str(n)), role="user", content=_shows(url)) for n, url in enumerate(odd)]
    await case.start("r", *messages)

    assert [_shows(url) for url in odd] == [message.content for message in await case.store.messages(case.id("s"))]
