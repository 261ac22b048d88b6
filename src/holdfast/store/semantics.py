"""Rules that are the same in every store: the chain of messages, the feed, versions of documents, search, budgets."""

from __future__ import annotations

import bisect
import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..access import LOCAL, is_of_settings
from ..errors import Conflict, KeyExists, KeyLimitReached, LogBehind, OwnerTaken, StaleDocument
from ..events import AnySettlement
from ..history import Message, Session, text_of, title_from
from ..ids import BLIND, ModelName
from . import (
    HEAD,
    Append,
    Cap,
    CapKind,
    Charge,
    Document,
    Draw,
    DrawResult,
    FeedEntry,
    IfBusy,
    KeyRecord,
    RunRecord,
    SearchHit,
    Spent,
)

CHANGEABLE = frozenset({"title", "titled", "model", "system", "params", "preset", "on_break", "pinned", "head_id"})
_MOST_WORDS = 16  # maximum number of words of a query that are used
_LONGEST_WORD = 64  # maximum number of characters of a word that are indexed
_MOST_TEXT = 1_000_000  # maximum number of characters of a message that are indexed
_MOST_WORD_BYTES = 300_000
"""Maximum bytes of the words of a message that are indexed. With their prefixes they fit into a tsvector, of 1 MB."""
_ACCENTS = re.compile("[\u0300-\u036f\u3099\u309a]+")
_ALONE = re.compile("[\u3041-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")  # kana and Chinese characters
_WORD = re.compile(
    r"[\w\u0900-\u0963\u0966-\u109f\u1780-\u17ff]+"
)  # in India and around, vowels are signs, not letters
_TOKEN = re.compile(rf"{_ALONE.pattern}|(?:(?!{_ALONE.pattern}|_){_WORD.pattern[:-1]}|{_ACCENTS.pattern[:-1]})+")
"""A word in its original form. `words` returns it in lower case and without accents."""
_SENTENCE_END = re.compile(r"[.!?…。！？]\s|\n")
_BEFORE, _AFTER = 60, 120  # characters of an excerpt before and after the first matching word
_MOST_MARKED = 200  # maximum number of places of a word that are compared for the best excerpt
_PART = re.compile(r"(?s).{1,4000}(?!\S)|.{1,4000}")  # of a text, cut between two words if possible
_TO_WORDS = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}

FeedItem = tuple[str, dict[str, Any]]


# messages


def chained(messages: Sequence[Message], parent_id: str | None) -> tuple[Message, ...]:
    """Return the messages as a chain, each the parent of the next; the first follows `parent_id`."""
    placed: list[Message] = []
    for message in messages:
        placed.append(msgspec.structs.replace(message, parent_id=parent_id))
        parent_id = message.id
    return tuple(placed)


def resolve_parent(parent: str | None, head_id: str | None) -> str | None:
    """Return the id of the parent: HEAD stands for the current head."""
    return head_id if parent == HEAD else parent


def refuse_known(messages: Iterable[Message], known: Container[str]) -> None:
    """Refuse a message id that the session already has."""
    seen: set[str] = set()
    for message in messages:
        if message.id in known or message.id in seen:
            raise Conflict(f"The session has a message {message.id!r} already.")
        seen.add(message.id)


def title_for(title: str, messages: Iterable[Message]) -> str:
    """Return the title; if it is empty, one from the first user message."""
    return title or next((title_from(message.content) for message in messages if message.role == "user"), "")


def changed(session: Session, changes: dict[str, Any]) -> Session:
    """Return the changed session. Its id, owner and times cannot be changed."""
    if unknown := sorted(changes.keys() - CHANGEABLE):
        raise ValueError(f"a session's {', '.join(unknown)} cannot be changed")
    after = msgspec.convert({**msgspec.structs.asdict(session), **changes}, Session)
    is_overruled = session.titled == "person" and after.titled == "model"  # a model never replaces what a person wrote
    return session if is_overruled else after


# documents


def after_put(document: Document, known: Document | None, expected_version: int | None) -> Document:
    """Return the document as a put stores it; `known` itself if the put is repeated."""
    expected = expected_version or 0
    created_at = document.created_at if known is None else known.created_at
    after = msgspec.structs.replace(
        document, version=expected + 1, created_at=created_at, body=plain_json(document.body)
    )
    if after == known:
        return known
    if expected != (0 if known is None else known.version) or (known is not None and known.owner != document.owner):
        raise StaleDocument(document.kind, document.id)
    return after


# logs


def extends(entry: Append, end: int) -> bool:
    """Return whether an append adds events to a log that ends at `end`. False if there would be a gap."""
    return entry.first <= end + 1 < entry.first + len(entry.events)


def refuse_other_end(run: RunRecord, seq: int) -> None:
    """Refuse a settlement that does not directly follow the last event."""
    if seq != run.seq + 1:
        raise LogBehind(run.id, run.seq)


# the feed


def started(run: RunRecord) -> FeedItem:
    """The feed entry of a run that has started."""
    return "run.started", {
        "run_id": run.id,
        "message_id": run.message_id,
        "parent_id": run.parent_id,
        "model": run.model,
    }


def queued_entry(run: RunRecord) -> FeedItem:
    """The feed entry of a run that was queued."""
    return "run.queued", _waiting(run)


def reordered(waiting: Sequence[RunRecord], run_id: str, place: int) -> list[RunRecord]:
    """Return the queued runs that get another number if one of them comes to a place, from 1 on."""
    moved = next(run for run in waiting if run.id == run_id)
    order = [run for run in waiting if run is not moved]
    order.insert(place - 1, moved)
    numbered = zip(order, waiting, strict=True)
    return [replace(run, queue_number=there.queue_number) for run, there in numbered if run is not there]


def queue_changed(run: RunRecord) -> FeedItem:
    """The feed entry of a queued run whose input was changed."""
    return "queue.changed", _waiting(run)


def continued(before: Message, now: Message) -> Message:
    """Return a message that a run has continued, with the parent and the time of the old one.

    What a person has changed in it stays marked.
    """
    edited = before.edited or now.edited
    return msgspec.structs.replace(now, parent_id=before.parent_id, created_at=before.created_at, edited=edited)


def settled_entry(run_id: str, settlement: AnySettlement, message: Message | None) -> FeedItem:
    """The feed entry of a settled run. Its text is in the message, if there is one."""
    return "run.settled", {
        "run_id": run_id,
        "message_id": None if message is None else message.id,
        "outcome": settlement.outcome,
    }


def active_run(entries: Iterable[FeedEntry]) -> str | None:
    """Return the run that has started by the last of these entries, and has not settled."""
    active: str | None = None
    for entry in entries:
        if entry.type == "run.started":
            active = entry.data.get("run_id")
        elif entry.type == "run.settled" and entry.data.get("run_id") == active:  # not a dropped one
            active = None
    return active


def _waiting(run: RunRecord) -> dict[str, Any]:
    return {"run_id": run.id, "queue_number": run.queue_number, "input": plain_json(run.input)}


def plain_json(value: Any) -> Any:
    """Return a value after a round trip through JSON, so that every store returns the same."""
    return msgspec.json.decode(msgspec.json.encode(value))


# search


def words(text: str) -> list[str]:
    """Return the distinct words of a text, in lower case and without accents, as far as they are indexed.

    In scripts without spaces between words, each character is a word.
    """
    text, alone = text[:_MOST_TEXT], []
    if text.isascii():
        found = text.translate(_TO_WORDS).split()  # takes a third of the time of the pattern below
    else:
        text = _unaccented(text).replace("_", " ")
        alone = _ALONE.findall(text)
        found = _WORD.findall(_ALONE.sub(" ", text).casefold())
    different = dict.fromkeys([*found, *alone])
    if max(map(len, different), default=0) > _LONGEST_WORD:
        different = dict.fromkeys(word[:_LONGEST_WORD] for word in different)
    return _first_bytes(list(different))


def _unaccented(text: str) -> str:
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text))


def _first_bytes(words: list[str]) -> list[str]:
    """Return as many of the words as one entry of the index can have."""
    if len(words) * _LONGEST_WORD * 4 <= _MOST_WORD_BYTES:
        return words
    sizes = itertools.accumulate(len(word.encode("utf-8", "surrogatepass")) for word in words)
    return words[: bisect.bisect_right(list(sizes), _MOST_WORD_BYTES)]


def sought(query: str) -> list[str]:
    """Return the words of a query; none if it has only punctuation."""
    return words(query)[:_MOST_WORDS]


def best_hit(messages: Iterable[Message], sought: Sequence[str]) -> SearchHit | None:
    """Return the first message with the most of the words; None if none has any."""
    best, most = None, 0
    for message in messages:
        found = matched(text_of(message.content), sought)
        if found > most:
            best, most = message, found
        if most == len(sought):
            break
    return None if best is None else _hit(best.id, text_of(best.content), sought)


def matched(text: str, sought: Sequence[str]) -> int:
    """Return how many of the words a text has."""
    found: set[str] = set()
    for word, _ in _tokens(text, sought):
        found.update(start for start in sought if word.startswith(start))
        if len(found) == len(sought):
            break
    return len(found)


def _hit(message_id: str, text: str, sought: Sequence[str]) -> SearchHit:
    """Return the sentence with the most of the words, in pieces, and its place in the message."""
    best = _best_sentence(text, sought)
    marks = _marks(text[best.start : best.end], sought)
    pieces: list[tuple[str, bool]] = [(best.before, False)]
    start = best.start
    for mark in marks:
        at = best.start + mark.start
        pieces += (text[start:at], False), (text[at : best.start + mark.end], True)
        start = best.start + mark.end
    pieces.append((text[start : best.end].rstrip() + best.after, False))
    excerpt = tuple((_one_line(piece), is_mark) for piece, is_mark in pieces if piece)
    return SearchHit(message_id, excerpt, best.start + marks[0].start)


def _best_sentence(text: str, sought: Sequence[str]) -> _Sentence:
    """Return the first sentence with the most of the words. The text has at least one of them."""
    best, most = None, 0
    for sentence in dict.fromkeys(_sentence(text, mark) for mark in _marks(text, sought)):
        found = matched(text[sentence.start : sentence.end], sought)
        if best is None or found > most:
            best, most = sentence, found
        if most == len(sought):
            break
    assert best is not None
    return best


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


class _Mark(NamedTuple):
    """The position of a matching word in a text."""

    start: int
    end: int


class _Sentence(NamedTuple):
    """Start and end of a sentence, or of its visible part, and the ellipses if it is cut."""

    start: int
    end: int
    before: str
    after: str


def _marks(text: str, sought: Sequence[str]) -> list[_Mark]:
    """Return the matching words, in the order of the text: of each word of the query the first `_MOST_MARKED`."""
    marks: list[_Mark] = []
    seen = dict.fromkeys(sought, 0)
    for word, token in _tokens(text, sought):
        starts = [start for start in sought if word.startswith(start) and seen[start] < _MOST_MARKED]
        seen.update((start, seen[start] + 1) for start in starts)
        if starts:
            marks.append(_Mark(token.start(), min(token.end(), token.start() + _LONGEST_WORD)))
    return marks


def _tokens(text: str, sought: Sequence[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the words of a text, as `words` returns them and as they are written.

    Parts of the text without any of the words of a query are left out: to look at each of their words would take long.
    """
    for part in _PART.finditer(text, 0, _MOST_TEXT):
        folded = part[0].lower() if part[0].isascii() else _unaccented(part[0]).casefold()
        if any(word in folded for word in sought):
            for token in _TOKEN.finditer(text, part.start(), part.end()):
                written = token[0]
                yield written.lower() if written.isascii() else next(iter(words(written)), ""), token


def _sentence(text: str, mark: _Mark) -> _Sentence:
    """Return the sentence around a word. A long one is cut between two words."""
    start = max(0, mark.start - _BEFORE)
    ends = [found.end() for found in _SENTENCE_END.finditer(text, start, mark.start)]
    is_cut = not ends and start > 0
    start = ends[-1] if ends else text.find(" ", start, mark.start) + 1 or start if is_cut else start
    end = min(len(text), mark.end + _AFTER)
    ending = _SENTENCE_END.search(text, mark.end, end)
    if ending is not None:
        return _Sentence(start, ending.end(), "…" if is_cut else "", "")
    is_cut_after = end < len(text)
    end = max(text.rfind(" ", mark.end, end), mark.end) if is_cut_after else end
    return _Sentence(start, end, "…" if is_cut else "", "…" if is_cut_after else "")


def waiting(run: RunRecord, if_busy: IfBusy) -> RunRecord:
    """Return the queued form of a run. One that interrupts is started by its own node, which stops the running one."""
    ahead = if_busy == "interrupt"
    return msgspec.structs.replace(
        run, status="queued", node_id=run.node_id if ahead else "", started_at=None, ahead=ahead
    )


def is_refusable(run: RunRecord, node_id: str) -> bool:
    """Return whether the start of a run can be refused: it waits, or was to start on this node and has not."""
    unstarted = run.status == "running" and run.node_id == node_id and run.epoch == 1 and run.seq == 0
    return run.status == "queued" or unstarted


# rates


def starts_left(rest: float, age: float, starts: int, per_minute: int) -> tuple[float, float]:
    """Take starts from a bucket that had `rest` of them `age` seconds ago, and fills evenly over a minute.

    Returns the rest and 0.0; or, if there are too few, their number and the seconds until there are enough. A larger
    batch takes a full bucket.
    """
    starts = min(starts, per_minute)
    rest = min(float(per_minute), rest + max(age, 0.0) * per_minute / 60)
    return (rest - starts, 0.0) if rest >= starts else (rest, (starts - rest) * 60 / per_minute)


# usage and budgets


def is_blind(run: RunRecord) -> bool:
    """Return whether a run is a pane of a blind comparison: its model has a name that hides it."""
    return run.kind == "pane" and run.model.startswith(f"{BLIND}/")


def charged_model(run: RunRecord) -> ModelName:
    """Return the model that the usage of a run is listed under.

    Panes of blind comparisons are listed together: the cost of one would tell its model.
    """
    return ModelName(BLIND) if is_blind(run) else run.model


def charge_of(run: RunRecord, settlement: AnySettlement) -> Charge:
    """Return the charge of an ended run."""
    usage = settlement.usage
    return Charge(
        id=run.id,
        owner=run.payer.owner or run.owner,
        model=settlement.answered_by or charged_model(run),
        started_at=run.created_at,
        payer=run.payer,
        node_id=run.node_id,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=usage.cost,
    )


def added_charge(total: Charge, charge: Charge) -> Charge:
    """Return the sum of two charges of the same payer, model and day."""
    is_priced = total.cost is not None or charge.cost is not None
    return replace(
        total,
        runs=total.runs + charge.runs,
        input_tokens=total.input_tokens + charge.input_tokens,
        output_tokens=total.output_tokens + charge.output_tokens,
        cost=(total.cost or 0.0) + (charge.cost or 0.0) if is_priced else None,
    )


def shared_out(draw: Draw, spent: Sequence[Spent]) -> DrawResult:
    """Return how much of its budgets a run may use. `spent` has the usage of the other runs, for each of its caps.

    A run holds no more than the rest of each budget. So all runs together exceed a budget at most by the usage of each
    before its next draw: one segment.
    """
    both = list(zip(draw.caps, spent, strict=True))
    left_tokens, left_cost = _left(both, draw.charge)
    if draw.opens:
        refusal = next(((kind, cap) for cap, total in both if (kind := _full(draw, cap, total)) is not None), None)
        tokens, cost = draw.tokens or None, draw.cost or None
    else:
        refusal, tokens, cost = _held(draw, both)
    if refusal is not None:
        kind, cap = refusal
        is_spent = (left_tokens if kind == "tokens" else left_cost) == 0
        return DrawResult(refused=kind, cap=cap, is_spent=is_spent, left_tokens=left_tokens, left_cost=left_cost)
    return DrawResult(tokens=tokens, cost=cost, left_tokens=left_tokens, left_cost=left_cost)


_Both = Sequence[tuple[Cap, Spent]]


def _full(draw: Draw, cap: Cap, total: Spent) -> CapKind | None:
    """Return why a run may not start; None if it may. One that holds something needs what others do not hold."""
    if cap.runs is not None and total.running >= cap.runs:
        return "runs"
    if cap.requests is not None and total.recent >= cap.requests:
        return "requests"
    if cap.tokens is not None and (total.held_tokens if draw.tokens else total.tokens) >= cap.tokens:
        return "tokens"
    taken = total.held_cost if draw.cost else total.cost
    return "cost" if cap.cost is not None and taken >= cap.cost else None


def _left(both: _Both, charge: Charge) -> tuple[int | None, float | None]:
    """Return the tokens and the cost that are left."""
    tokens = [max(0, cap.tokens - total.tokens - charge.tokens) for cap, total in both if cap.tokens is not None]
    own = charge.cost or 0.0
    costs = [max(0.0, cap.cost - total.cost - own) for cap, total in both if cap.cost is not None]
    return min(tokens, default=None), min(costs, default=None)


def _held(draw: Draw, both: _Both) -> tuple[tuple[CapKind, Cap] | None, int | None, float | None]:
    """Return the first budget of which nothing is left to hold, or the tokens and the cost that the run holds."""
    used, cost, held_tokens, held_cost = draw.charge.tokens, draw.charge.cost or 0.0, None, None
    for cap, total in both:
        if cap.tokens is not None:
            room = cap.tokens - total.held_tokens - used
            if room <= 0:
                return ("tokens", cap), used, cost
            share = used + min(draw.tokens, room, max(_LEAST_TOKENS, room // _SHARES))
            held_tokens = share if held_tokens is None else min(held_tokens, share)
        if cap.cost is not None:
            rest = cap.cost - total.held_cost - cost
            if rest <= 0:
                return ("cost", cap), used, cost
            portion = cost + min(max(draw.cost, cap.cost / _PORTIONS), rest, max(cap.cost / _PORTIONS, rest / _SHARES))
            held_cost = portion if held_cost is None else min(held_cost, portion)
    return None, held_tokens, held_cost


_SHARES = 8  # one run holds at most this part (1/8) of the rest of a budget, so that others get some too
_LEAST_TOKENS = 16
_PORTIONS = 1000  # 1/1000 of a budget in money is the smallest share


# owners and keys


def check_claim(owner: str, known: str | None, account: str) -> None:
    """Refuse the claim of an account on an owner that is not free. `known` is the account that the owner has."""
    if known not in (None, "", account) or is_of_settings(owner):
        raise OwnerTaken(owner)


def check_key(key: KeyRecord, known: str | None, others: Iterable[KeyRecord], most: int | None) -> None:
    """Refuse a new key whose owner is not its own, whose name is taken, or which is one too many.

    `known` is the account that its owner has, `others` are the keys of its account, or those of all services.
    """
    is_claimed_elsewhere = (known or "") != key.account or (key.owner == LOCAL and not key.account)
    if not key.owner or is_of_settings(key.owner) or is_claimed_elsewhere:
        raise OwnerTaken(key.owner)
    active = [other for other in others if other.revoked_at is None]
    if any(other.name == key.name for other in active):
        raise KeyExists(key.name)
    if most is not None and sum(_lasts(other, key.created_at) for other in active) >= most:
        raise KeyLimitReached(most)


def _lasts(key: KeyRecord, now: float) -> bool:
    return key.details.expires_at is None or key.details.expires_at > now
