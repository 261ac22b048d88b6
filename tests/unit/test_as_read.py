"""Messages as a person reads them: a response that was continued is one."""

from holdfast.cli.chat.as_read import as_read
from holdfast.cli.lists.inspect import markdown


def said(role: str, content: str, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, "partial": False, "outcome": None, **more}


CONTINUED = [
    said("user", "A story"),
    said("assistant", "Once upon ", partial=True, outcome="stopped"),
    said("user", "Go on.", automatic=True),
    said("assistant", "a ", partial=True, outcome="stopped"),
    said("user", "Go on.", automatic=True),
    said("assistant", "time.", outcome="completed"),
    said("user", "Thanks"),
]


def test_the_parts_of_a_response_are_joined_and_the_turns_between_them_left_out():
    """The server wrote those turns; an answer in three pieces is hard to read."""
    assert [("user", "A story"), ("assistant", "Once upon a time."), ("user", "Thanks")] == [
        (message["role"], message["content"]) for message in as_read(CONTINUED)
    ]


def test_a_turn_that_nothing_came_of_leaves_the_response_as_it_was():
    """Its next message is the user's own, and joins nothing."""
    shown = as_read([*CONTINUED[:3], said("user", "Never mind"), said("assistant", "Fine.")])

    assert ["A story", "Once upon ", "Never mind", "Fine."] == [message["content"] for message in shown]
    assert shown[1]["partial"]


def test_an_export_as_markdown_shows_one_response_with_its_last_outcome():
    """What was cut off and then completed is complete."""
    text = markdown({"title": "Tale", "messages": CONTINUED})

    assert "## assistant\n\nOnce upon a time.\n" in text
    assert "(stopped)" not in text
    assert 2 == text.count("## user")
