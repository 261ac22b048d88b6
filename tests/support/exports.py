"""Made-up exports of other programs, in their formats."""

import io
import json
import zipfile
from typing import Any

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c626001000000ffff03000006000557bfabd40000000049454e44ae426082"
)


def node(id: str, parent: str | None, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    """A node of ChatGPT's mapping."""
    content = more.pop("content", {"content_type": "text", "parts": list(parts)})
    author = {"role": role, "name": more.pop("name", None)}
    message = {"id": id, "author": author, "create_time": 1_700_000_000.5, "content": content, **more}
    return {"id": id, "message": message, "parent": parent, "children": []}


def conversation(*nodes: dict[str, Any], head: str, **more: Any) -> dict[str, Any]:
    """A conversation of ChatGPT's export."""
    root = {"id": "root", "message": None, "parent": None, "children": []}
    return {
        "title": "Tides",
        "create_time": 1_700_000_000.0,
        "conversation_id": "c-1",
        "current_node": head,
        "mapping": {each["id"]: each for each in (root, *nodes)},
        **more,
    }


def archive(**files: Any) -> bytes:
    """A ZIP. What is no bytes is written as JSON."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as entries:
        for name, content in files.items():
            entries.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return made.getvalue()


def chatgpt() -> dict[str, Any]:
    """A chat with a hidden message, a picture, reasoning, a program, a canvas, citations, and two answers."""
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_abc123"}
    code = {"content_type": "code", "language": "unknown", "text": "print(6 * 7)"}
    output = {"content_type": "execution_output", "text": "42"}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Look", "content": "The moon pulls."}]}
    canvas = json.dumps({"name": "Poem", "type": "document", "content": "O sea"})
    cited = "The moon.\ue200cite\ue202turn0search1\ue201 And 【4†source】the sun."
    reference = {"matched_text": "\ue200cite\ue202turn0search1\ue201", "alt": " ([NASA](https://nasa.example/))"}
    return conversation(
        node("s", "root", "system", "You are ChatGPT.", metadata={"is_visually_hidden_from_conversation": True}),
        node(
            "q",
            "s",
            "user",
            picture,
            "Why are there tides?",
            content={"content_type": "multimodal_text", "parts": [picture, "Why are there tides?"]},
        ),
        node("t", "q", "assistant", content=thoughts, metadata={"model_slug": "gpt-5"}),
        node("p", "t", "assistant", content=code, recipient="python"),
        node("o", "p", "tool", content=output, name="python"),
        node(
            "a",
            "o",
            "assistant",
            cited,
            recipient="all",
            metadata={"model_slug": "gpt-5", "content_references": [reference]},
        ),
        node("b", "q", "assistant", "Another answer."),
        node("q2", "a", "user", "A poem, please."),
        node(
            "c", "q2", "assistant", content={"content_type": "code", "text": canvas}, recipient="canmore.create_textdoc"
        ),
        node("w", "c", "tool", "saved", name="web.run"),
        head="w",
        default_model_slug="gpt-4o",
    )


def open_webui() -> dict[str, Any]:
    """A chat of Open WebUI with two answers to one question."""
    thought = (
        '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n'
        "> Salt &amp; sun\n</details>\nIt is salty."
    )
    messages = {
        "u": {
            "id": "u",
            "parentId": None,
            "childrenIds": ["x", "y"],
            "role": "user",
            "content": "The sea?",
            "timestamp": 1_700_000_000,
            "files": [{"type": "file", "name": "notes.md", "file": {"data": {"content": "# Sea"}}}],
        },
        "x": {
            "id": "x",
            "parentId": "u",
            "childrenIds": [],
            "role": "assistant",
            "content": thought,
            "model": "llama3",
        },
        "y": {"id": "y", "parentId": "u", "childrenIds": [], "role": "assistant", "content": "Wet.", "model": "qwen"},
    }
    chat = {"title": "Sea", "history": {"messages": messages, "currentId": "x"}, "params": {"system": "Be brief."}}
    return {"id": "w-1", "title": "Sea", "chat": chat, "meta": {"tags": ["salt"]}, "archived": True, "pinned": False}


def librechat(*, is_recursive: bool) -> dict[str, Any]:
    """A chat of LibreChat with two answers, as a list or as a tree."""
    root = "00000000-0000-0000-0000-000000000000"
    question = {
        "messageId": "m1",
        "parentMessageId": root,
        "sender": "User",
        "isCreatedByUser": True,
        "text": "Fish?",
        "createdAt": "2024-01-02T03:04:05.000Z",
    }
    content = [{"type": "think", "think": "Gills."}, {"type": "text", "text": {"value": "They breathe water."}}]
    answers = [
        {
            "messageId": "m2",
            "parentMessageId": "m1",
            "sender": "GPT",
            "isCreatedByUser": False,
            "text": "",
            "content": content,
            "model": "gpt-5",
        },
        {"messageId": "m3", "parentMessageId": "m1", "sender": "GPT", "isCreatedByUser": False, "text": "Blub."},
    ]
    messages = [{**question, "children": answers}] if is_recursive else [question, *answers]
    return {
        "conversationId": "l-1",
        "title": "Fish",
        "endpoint": "openAI",
        "options": {"model": "gpt-4o"},
        "recursive": is_recursive,
        "messages": messages,
    }
