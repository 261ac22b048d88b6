"""Input of sessions: the content of a message, what a run is asked in one, and the title of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....asks import SessionAsk
from ....errors import BadRequest, HoldfastError
from ....history import Message, Session, plain
from ....ids import new_id
from ....store import RunRecord
from ....store.files import refuse_unknown
from ...config.settings import AGENT
from ...starting.starting import CheckFiles

MessageContent = str | list[dict[str, Any]]


class OwnerOnly(HoldfastError):
    """In a shared session, only its owner or the sender of a message may do this."""

    code = "owner_only"
    status = 403
    type = "permission_error"


def session_ask(session: Session, params: Mapping[str, Any] | None = None, **fields: Any) -> SessionAsk:
    """Return what a run in a session is asked: as the session is set up, and with the parameters of the request."""
    return SessionAsk(params={**session.params, **(params or {})}, on_break=session.on_break, **fields)


def check_agent(record: RunRecord, caller: str) -> None:
    """Refuse an agent's run in a session of another owner: its tools would act with the owner's rights."""
    if record.kind == AGENT and caller != record.owner:
        raise OwnerOnly("Only the owner of a shared chat runs agents in it: their tools act for the owner.")


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
