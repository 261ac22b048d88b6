"""Input of sessions: the content of a message, and the title of a session."""

from __future__ import annotations

from typing import Any

from ....errors import BadRequest
from ....history import Message, plain
from ....ids import new_id
from ....store.files import refuse_unknown
from ...starting.starting import CheckFiles

MessageContent = str | list[dict[str, Any]]


def user_message(content: MessageContent, param: str = "input") -> Message:
    """Return a user's message, or refuse an empty one."""
    if not content or (isinstance(content, str) and not content.strip()):
        raise BadRequest(f"The {param} is empty.", param=param)
    if not isinstance(content, str) and any(not isinstance(part.get("type"), str) for part in content):
        raise BadRequest(f"Each part of the {param} has a type.", param=param)
    return Message(id=new_id("msg"), role="user", content=content)


async def check_prompt(content: MessageContent, param: str, check_files: CheckFiles) -> None:
    """Refuse an empty prompt, a file that no model can read, or a stored file: there is no session yet."""
    message = user_message(content, param)
    refuse_unknown([message], ())
    await check_files([plain(message)])


def one_line(title: str) -> str:
    """Return a title without line breaks, and not too long."""
    return " ".join(title.split())[:200]
