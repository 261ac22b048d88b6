"""What every store decides in the same way: how messages are chained, what the feed says, what a search finds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from ..errors import Conflict, StaleDocument
from ..events import AnySettlement
from ..history import Message, Session, outcome, title_from
from . import HEAD, Append, Document, RunRecord

CHANGEABLE = frozenset({"title", "model", "system", "params", "pinned", "head_id"})
_MOST_WORDS = 16  # of a query: beyond that, more words find nothing more precise and only cost time
_LONGEST_WORD = 64  # nobody searches for more of a word, and a pasted key need not be indexed whole
_MOST_TEXT = 50_000  # characters of a message: a pasted book is found by its beginning
_ACCENTS = re.compile("[\u0300-\u036f\u3099\u309a]+")
_ALONE = re.compile("[\u3041-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")  # kana and Chinese characters
_WORD = re.compile(
    r"[\w\u0900-\u0963\u0966-\u109f\u1780-\u17ff]+"
)  # in India and around, vowels are signs, not letters
_TO_WORDS = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}

FeedItem = tuple[str, dict[str, Any]]


# messages


def chained(messages: Sequence[Message], parent_id: str | None) -> tuple[Message, ...]:
    """Return the messages one after the other, the first of them after `parent_id`."""
    placed: list[Message] = []
    for message in messages:
        placed.append(msgspec.structs.replace(message, parent_id=parent_id))
        parent_id = message.id
    return tuple(placed)


def resolve(parent: str | None, head_id: str | None) -> str | None:
    """Return the message that `parent` means: HEAD is whatever the head is now."""
    return head_id if parent == HEAD else parent


def refuse_known(messages: Iterable[Message], known: Container[str]) -> None:
    """A message id stands for one message of its session."""
    seen: set[str] = set()
    for message in messages:
        if message.id in known or message.id in seen:
            raise Conflict(f"The session has a message {message.id!r} already.")
        seen.add(message.id)


def title_for(title: str, messages: Iterable[Message]) -> str:
    """Return the title, or the one that the first user message gives."""
    return title or next((title_from(message.content) for message in messages if message.role == "user"), "")


def changed(session: Session, changes: dict[str, Any]) -> Session:
    """Return the session with changes, of which its id, owner and times cannot be any."""
    if unknown := sorted(changes.keys() - CHANGEABLE):
        raise ValueError(f"a session's {', '.join(unknown)} cannot be changed")
    return msgspec.convert({**msgspec.structs.asdict(session), **changes}, Session)


# documents


def put(document: Document, known: Document | None, expected_version: int | None) -> Document:
    """Return what a put leaves in the store; it is `known` itself where the put is a repeated one."""
    expected = expected_version or 0
    created_at = document.created_at if known is None else known.created_at
    after = msgspec.structs.replace(document, version=expected + 1, created_at=created_at, body=plain(document.body))
    if after == known:
        return known
    if expected != (0 if known is None else known.version) or (known is not None and known.owner != document.owner):
        raise StaleDocument(document.kind, document.id)
    return after


# logs


def end_of(entry: Append, end: int) -> int:
    """Return where a log ends once an entry is in it. What is there already is not added again; a hole is refused."""
    if entry.first > end + 1:
        raise ValueError(f"the log of run {entry.run_id} ends at {end}: {entry.first} cannot be its next event")
    return max(end, entry.first + len(entry.events) - 1)


def refuse_other_end(run: RunRecord, seq: int) -> None:
    """A settlement comes right after the last event, never over one."""
    if seq != run.seq + 1:
        raise ValueError(f"the log of run {run.id} ends at {run.seq}: it cannot be settled as event {seq}")


# the feed


def added(message: Message) -> FeedItem:
    """A message has entered the session."""
    return "message.added", {"message": plain(message)}


def started(run: RunRecord) -> FeedItem:
    """A run has started."""
    return "run.started", {
        "run_id": run.id,
        "message_id": run.message_id,
        "parent_id": run.parent_id,
        "model": run.model,
    }


def queued(run: RunRecord) -> FeedItem:
    """A run waits for its turn."""
    return "run.queued", _waiting(run)


def queue_changed(run: RunRecord) -> FeedItem:
    """A waiting run will say something else."""
    return "queue.changed", _waiting(run)


def may_adopt(run: RunRecord, epoch: int, keeper: str) -> bool:
    """Tell whether a run is still in nobody's hands, or in the right ones already."""
    return run.status == "running" and run.epoch == epoch and run.keeper in ("", keeper)


def continued(before: Message, now: Message) -> Message:
    """Return a message with all that was said of it by now, where it was."""
    return msgspec.structs.replace(now, parent_id=before.parent_id, created_at=before.created_at)


def went_on(message: Message) -> FeedItem:
    """A run went on with a message that was cut off."""
    return "message.changed", {"message": plain(message)}


def settled(run_id: str, settlement: AnySettlement, message: Message | None) -> FeedItem:
    """A run has ended. Its text is in the message, if it left one."""
    return "run.settled", {
        "run_id": run_id,
        "message_id": None if message is None else message.id,
        "outcome": outcome(settlement),
    }


def _waiting(run: RunRecord) -> dict[str, Any]:
    return {"run_id": run.id, "queue_number": run.queue_number, "input": plain(run.input)}


def plain(value: Any) -> Any:
    """Return what JSON makes of a value, so that every store gives back the same."""
    return msgspec.json.decode(msgspec.json.encode(value))


# search


def text_of(message: Message) -> str:
    """Return the text of a message that can be searched."""
    if isinstance(message.content, str):
        return message.content
    parts = (part.get("text") for part in message.content or () if isinstance(part, dict))
    return " ".join(part for part in parts if isinstance(part, str))


def words(text: str) -> list[str]:
    """Return the different words of a text, in small letters and without accents.

    Scripts that do not put spaces between words give one word for each character.
    """
    text, alone = text[:_MOST_TEXT], []
    if text.isascii():
        found = text.translate(_TO_WORDS).split()  # a third of the time that a search for words takes
    else:
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).replace("_", " ")
        alone = _ALONE.findall(text)
        found = _WORD.findall(_ALONE.sub(" ", text).casefold())
    different = dict.fromkeys([*found, *alone])
    if max(map(len, different), default=0) > _LONGEST_WORD:
        different = dict.fromkeys(word[:_LONGEST_WORD] for word in different)
    return list(different)


def sought(query: str) -> list[str]:
    """Return the words that a query looks for; none where it has only signs that nothing can match."""
    return words(query)[:_MOST_WORDS]
