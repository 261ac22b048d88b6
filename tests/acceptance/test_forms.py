"""Chat completions as forms with files: the same request as in JSON, without base64."""

import pytest

from tests.acceptance.test_attachments import MODEL, attached
from tests.acceptance.test_pictures import a_picture, data_url
from tests.acceptance.test_pictures import world as world
from tests.acceptance.test_safety import World
from tests.requirements import requirement
from tests.support.http import Response

pytestmark = pytest.mark.asyncio(loop_scope="module")

Part = tuple[str, str | bytes]


def form(*parts: Part) -> bytes:
    """The bytes of a form. The name of a field is followed by that of its file, if it has one."""
    body = b""
    for name, content in parts:
        field, _, filename = name.partition("; ")
        file = f'; filename="{filename}"' if filename else ""
        data = content if isinstance(content, bytes) else content.encode()
        body += f'--edge\r\nContent-Disposition: form-data; name="{field}"{file}\r\n\r\n'.encode() + data + b"\r\n"
    return body + b"--edge--\r\n"


async def posted(world: World, *parts: Part) -> Response:
    headers = {"content-type": "multipart/form-data; boundary=edge"}
    sent = await world.alice.client.send("POST", "/v1/chat/completions", body=form(*parts), headers=headers)
    return await sent.head()


@requirement("files.form")
async def test_a_form_is_the_same_request_as_json(world: World):
    """Numbers stay numbers, and the files stand before the question."""
    data = a_picture("form")
    parts: list[Part] = [
        ("model", MODEL),
        ("message", "Summarise it."),
        ("temperature", "0.5"),
        ("files; ../notes.md", "from a form"),
        ("files; cat.png", data),
    ]
    answered = await (await posted(world, *parts)).json()
    asked = world.up.requests[-1].body
    said = [attached(b"from a form"), attached(data, "cat.png"), {"type": "text", "text": "Summarise it."}]
    await world.alice.client.post(
        "/v1/chat/completions", {"model": MODEL, "temperature": 0.5, "messages": [{"role": "user", "content": said}]}
    )

    assert "I see." == answered["choices"][0]["message"]["content"]
    assert asked == world.up.requests[-1].body
    assert 0.5 == asked["temperature"]
    text, picture, question = asked["messages"][-1]["content"]
    assert '<file name="notes.md">\nfrom a form\n</file>' == text["text"]
    assert data_url(data) == picture["image_url"]["url"]
    assert "Summarise it." == question["text"]


@requirement("files.form")
async def test_messages_and_a_session_are_fields_too(world: World):
    """A name of digits stays a name."""
    messages = '[{"role": "user", "content": "Read it."}]'
    more: list[Part] = [("model", MODEL), ("session_id", "007"), ("stream", "true")]
    answered = await posted(world, ("messages", messages), *more, ("files; a.txt", "of a session"))
    frames = await answered.all_events()

    asked = {"model": MODEL, "session_id": "007", "messages": [{"role": "user", "content": "Again."}]}
    await world.alice.client.post("/v1/chat/completions", asked)

    assert "[DONE]" == frames[-1].data
    assert "of a session" in world.up.requests[-1].body["messages"][0]["content"]


@requirement("files.form")
@pytest.mark.parametrize(
    "parts",
    [
        [("message", "a"), ("message", "b")],
        [("message", "a"), ("messages", "[]")],
        [("files; a.txt", "alone")],
        [("messages", "7"), ("files; a.txt", "x")],
        [("messages", "[" * 100_000)],
        [("message", "a"), ("files; a.zip", b"PK\x03\x04")],
        [("message", "a"), ("files; a.txt", b"")],
        [("message", "a"), ("stream", "perhaps")],
    ],
    ids=["twice", "both", "no question", "no messages", "too deep", "an archive", "an empty file", "a wrong value"],
)
async def test_a_bad_form_is_refused_with_words_and_asks_no_model(world: World, parts: list[Part]):
    """As bad JSON is."""
    before, kept = len(world.up.requests), world.stored()
    response = await posted(world, ("model", MODEL), *parts)

    assert response.status in (400, 413, 415)
    assert (await response.json())["error"]["message"]
    assert (before, kept) == (len(world.up.requests), world.stored())
