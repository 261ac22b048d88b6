"""What every store decides in the same way: how messages are chained, what the feed says, what a search finds."""

from __future__ import annotations

import unicodedata
from collections.abc import Container, Iterable, Sequence
from typing import Any

import msgspec

from ..errors import Conflict
from ..events import AnySettlement
from ..history import Message, Session, outcome, title_from
from . import HEAD, Append, RunRecord

CHANGEABLE = frozenset({"title", "model", "system", "params", "pinned", "head_id"})
_MOST_WORDS = 16  # of a query: beyond that, more words find nothing more precise and only cost time
_LONGEST_WORD = 64  # nobody searches for more of a word, and a pasted key need not be indexed whole

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


def refuse_unknown(changes: Iterable[str]) -> None:
    """A session's id, owner and times are not the caller's to change."""
    if unknown := sorted(set(changes) - CHANGEABLE):
        raise ValueError(f"a session's {', '.join(unknown)} cannot be changed")


def differs(session: Session, changes: dict[str, Any]) -> bool:
    """Tell whether changes would change anything: what was done already is not done again."""
    return any(getattr(session, name) != value for name, value in changes.items())


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
    found: dict[str, None] = {}
    word: list[str] = []
    for char in unicodedata.normalize("NFKD", text).casefold():
        if unicodedata.combining(char):
            continue
        if char.isalnum() and not _stands_alone(char):
            word.append(char)
            continue
        _finish(word, found)
        if char.isalnum():
            found[char] = None
    _finish(word, found)
    return list(found)


def sought(query: str) -> list[str]:
    """Return the words that a query looks for; none where it only has signs that nothing can match."""
    return words(query)[:_MOST_WORDS]


def _finish(word: list[str], found: dict[str, None]) -> None:
    if word:
        found["".join(word[:_LONGEST_WORD])] = None
        word.clear()


def _stands_alone(char: str) -> bool:
    """Chinese characters and kana; NFKD has taken Korean syllables apart into letters that do form words."""
    return "\u3041" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or char >= "\U00020000"
