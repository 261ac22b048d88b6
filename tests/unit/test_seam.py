"""The joint of two legs: hostile and unlucky continuations, piece by piece."""

import pytest

from holdfast.server.sources.breaks.seam import NotJoined, PrefillJoint, TurnJoint, anchor_of

LONG = "The keeper counted the tides, and wrote each of them down in the evening, with the hour and the colour."


def joined(joint, pieces):
    """What the pieces of a continuation add."""
    return "".join([*(joint.feed(piece) for piece in pieces), joint.end()])


@pytest.mark.parametrize("joint", [PrefillJoint, TurnJoint])
def test_white_space_without_end_is_not_held_back(joint):
    """An upstream that sends nothing else would fill the memory."""
    made = joint(LONG)
    begin = anchor_of(LONG) if joint is TurnJoint else ""
    made.feed(f"{begin} ")

    assert [" "] * 1000 == [made.feed(" ") for _ in range(1000)]


@pytest.mark.parametrize("joint", [PrefillJoint, TurnJoint])
def test_an_answer_that_ends_in_a_million_spaces_is_joined_in_time(joint):
    """The comparison of white space is bounded, or it would hold up every other run."""
    text = LONG + " " * 1_000_000
    begin = anchor_of(text) if joint is TurnJoint else ""

    assert "And so on." == joined(joint(text), [begin, " " * 64, "And so on."]).lstrip()


@pytest.mark.parametrize(
    ("text", "pieces", "added"),
    [
        ("The", ["The", " end"], " end"),
        ("The", ["  The", " end"], " end"),
        ("A b", ["A ", "b", "c"], "c"),
    ],
)
def test_a_short_beginning_is_found_where_the_continuation_begins(text, pieces, added):
    """There is no more to repeat yet."""
    assert added == joined(TurnJoint(text), pieces)


@pytest.mark.parametrize("continuation", ["Sure! Then he left.", "In the end", "x" * 2_000])
def test_a_short_beginning_is_not_found_in_the_middle(continuation):
    """`The` stands in many a word: joined there, the answer would be made up."""
    with pytest.raises(NotJoined):
        joined(TurnJoint("The"), [continuation])


@pytest.mark.parametrize("cut", range(len(LONG) + 1))
def test_wherever_a_continuation_is_cut_into_pieces_it_adds_the_same(cut):
    """The pieces of a network are not those of the model."""
    text, rest = LONG[:70], LONG[70:]
    told = f"Here it is: {anchor_of(text)}{text[len(text.rstrip()) :]}{rest}"

    assert rest == joined(PrefillJoint(text), [rest[:cut], rest[cut:]])
    assert rest == joined(TurnJoint(text), [told[:cut], told[cut:]])
