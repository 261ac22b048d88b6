"""What is in progress is found by its id and by its group."""

from holdfast.concurrency.in_progress import InProgress


def things(*names):
    """Things whose group is the beginning of their names; those without a dot have none."""
    found = InProgress(lambda name: name.partition(".")[0] if "." in name else None)
    for name in names:
        found[name] = name
    return found


def test_a_group_has_what_was_added_and_not_removed():
    """A run that has ended must not be stopped with its session."""
    found = things("a.1", "b.1", "a.2", "alone")
    del found["a.1"]

    assert (["a.2"], ["b.1"]) == (found.of("a"), found.of("b"))
    assert ["b.1", "a.2", "alone"] == [*found.values()]


def test_a_value_that_is_added_again_stays_once():
    """A queued run is entered again when it starts."""
    found = things("a.1", "a.1")

    assert ["a.1"] == found.of("a")
