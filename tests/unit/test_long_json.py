"""A long text in the store: no step of encoding or decoding handles all of it, since the event loop waits for each."""

import msgspec
import pytest

from holdfast.events import Completed, Failed, Text, decode_settlement, encode_settlement
from holdfast.events import ErrorInfo as Info
from holdfast.history import Message
from holdfast.json_pieces import PIECE
from holdfast.log.segment import decode_segment
from holdfast.store import Append
from holdfast.store.rows.long_json import decode_ending, decode_message, encode_ending, encode_message, string_pieces
from holdfast.store.rows.structs import rows_of
from tests.requirements import requirement

TEXTS = {
    "plain": "x" * 300_000,
    "backslashes": "\\" * 300_001,
    "quotes": '"text":"\\"' * 40_000,
    "controls": "\x00\x1f\n" * 90_000,
    "wide": "ü漢🌊" * 90_000,
    "mixed": 'a "b" \\ c\nd \x00, ü, 漢, 🌊, "content":"" ' * 9_000,
    "short": "x",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_long_text_is_decoded_in_pieces(text):
    """Of any characters: an escape or a character of several bytes may be at the end of a piece."""
    for string in (msgspec.json.encode(text), ascii_json(text)):
        pieces = [*string_pieces(memoryview(string))]

        assert text == "".join(pieces)
        assert max(map(len, pieces)) <= PIECE


def ascii_json(text):
    """The same string as another encoder writes it, with surrogates."""
    units = text.encode("utf-16-be")
    return b'"%b"' % b"".join(b"\\u%02x%02x" % (units[at], units[at + 1]) for at in range(0, len(units), 2))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_stored_bytes_are_those_of_any_other_version(text):
    """A database is read by the versions before and after."""
    reason = '"text":"'
    for ending in (Completed(text=text, finish_reason=reason), Failed(text=text, error=Info(reason, "m"))):
        assert encode_settlement(ending) == encode_ending(ending)
        assert ending == decode_ending(encode_ending(ending)) == decode_settlement(encode_ending(ending))
    part = [{"type": "text", "content": text}]
    for content in (text, part, None):
        message = Message(id="m", role="assistant", content=content, reasoning=text)
        assert msgspec.json.encode(message) == encode_message(message)
        assert message == decode_message(encode_message(message))


@requirement("store.damaged-rows")
@pytest.mark.parametrize("place", [5, 300_000, -5])
def test_a_long_text_that_is_damaged_is_not_decoded(place):
    """It is then shown as damaged: half of an answer is never taken for the whole."""
    stored = bytearray(encode_ending(Completed(text="x" * 1_000_000)))
    stored[place] = 0xFF

    with pytest.raises(msgspec.DecodeError):
        decode_ending(bytes(stored))


def test_a_row_of_a_log_has_few_long_events():
    """A reader decodes whole rows: 512 events of 64 kB would be 32 MB in one step."""
    texts = ["x" * 65_000, "y"] * 300
    events = [*map(Text, texts)]
    rows = [*rows_of(1, 1, Append("run_1", 1, 1, events))]

    assert texts == [event.text for row in rows for event in decode_segment(row[3])]
    assert [row[1] for row in rows] == [1 + sum(row[2] for row in rows[:at]) for at in range(len(rows))]
    assert max(len(row[3]) for row in rows) <= 300_000
