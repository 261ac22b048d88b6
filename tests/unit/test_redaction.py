"""What an upstream says about itself is shown only without the keys that it quotes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.redaction import LONGEST, REDACTED, redact
from tests.requirements import requirement

KEY = "sk-proj-Abc123Def456Ghi789Jkl012Mno345"


@requirement("truth.redacted")
@pytest.mark.parametrize(
    "said",
    [
        f"Incorrect API key provided: {KEY}. You can find yours in settings.",
        f"key={KEY}",
        f"Authorization: Bearer {KEY}",
        f"{KEY}{KEY}",
        f"(\x1b[31m{KEY}\x1b[0m)",
        f"{KEY[:12]} is not valid",
        f"the key that ends in {KEY[-12:]}",
        f"...{KEY[6:-6]}...",
    ],
)
def test_the_providers_own_key_is_hidden_wherever_and_however_much_of_it_is_quoted(said):
    """Upstreams quote keys in full, and a key that lost its ends is still most of a key."""
    shown = redact(said, [KEY])

    assert REDACTED in shown
    assert not any(KEY[at : at + 8] in shown for at in range(len(KEY) - 7))


@requirement("truth.redacted")
@pytest.mark.parametrize("masked", ["sk-pr***o345", "sk-proj-*****o345", "***o345", "sk-p…345", "sk-...345", "sk***"])
def test_masked_forms_of_a_key_are_hidden(masked):
    """OpenAI shows the first and last characters of a key: enough to find it in a leak."""
    assert f"Incorrect API key provided: {REDACTED}." == redact(f"Incorrect API key provided: {masked}.", [KEY])


@requirement("truth.redacted")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("use sk-live_0123456789", f"use {REDACTED}"),
        ("Bearer abc.def/ghi", f"Bearer {REDACTED}"),
        ("Basic dXNlcjpwYXNzd29yZA==", f"Basic {REDACTED}"),
        ("GET /v1?api_key=12345&x=1", f"GET /v1?api_key={REDACTED}&x=1"),
        ('{"token":"0123456789abcdef"}', f'{{"token":"{REDACTED}"}}'),
        ("at https://me:hunter2@example.org/v1", f"at https://{REDACTED}@example.org/v1"),
        ("AIzaSyA0123456789abcdefghijk", REDACTED),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", REDACTED),
    ],
)
def test_what_looks_like_a_key_is_hidden_although_it_is_not_ours(said, shown):
    """A gateway quotes the keys of those behind it."""
    assert shown == redact(said)


@pytest.mark.parametrize(
    "said",
    [
        "The model `m` does not exist.",
        "Invalid value for 'temperature': 3. It must be at most 2.",
        "This key is risk-averse, its token limit is 4096 tokens: basic requests only.",
        "Please wait... and **read** the docs.",
        "Größe überschritten: 10 € 🌊",
    ],
)
def test_an_ordinary_message_stays_as_it_is(said):
    """A message that hides everything helps nobody."""
    assert said == redact(said, [KEY])


def test_control_characters_are_dropped_and_line_ends_become_spaces():
    """What is shown in a terminal or a log must not steer it, nor forge a line of its own."""
    assert "a b [2Jcd" == redact("a\r\n\tb \x1b[2J\x00c\u202ed\ud83d")


def test_a_long_message_is_cut():
    """An upstream may answer with a page; five hundred characters say enough."""
    shown = redact("x " * 5000)

    assert LONGEST == len(shown)
    assert shown.endswith("…")


def test_a_key_at_the_cut_is_hidden_before_the_cut():
    """Half a key that is left over by cutting is half a key too many."""
    assert "sk-" not in redact("." * (LONGEST - 10) + " " + KEY, [KEY])


@pytest.mark.parametrize(
    ("secret", "said", "shown"),
    [
        ("x", "x-ray x", f"{REDACTED}-ray {REDACTED}"),
        ("", "as is", "as is"),
        ("no-key-required", "field required", "field required"),
        ("no-key-required", "not no-key-required", f"not {REDACTED}"),
    ],
)
def test_a_placeholder_for_a_key_does_not_ruin_every_word(secret, said, shown):
    """Local servers need no key, so people write `x`."""
    assert shown == redact(said, [secret])


@requirement("truth.redacted")
@given(
    secret=st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=60),
    before=st.text(max_size=30),
    after=st.text(max_size=30),
)
def test_no_secret_survives_in_any_surroundings(secret, before, after):
    """Whatever stands around it."""
    assert secret not in redact(before + secret + after, [secret])


@requirement("safe.redos")
@pytest.mark.parametrize(
    "hostile", ["sk-" * 100_000, "*" * 300_000, "key=" * 75_000, "a" * 300_000, "Bearer " * 40_000]
)
def test_hostile_messages_take_no_time(hostile):
    """An upstream chooses the text, so it must not choose the time."""
    begin = time.process_time()
    redact(hostile, [KEY])

    assert time.process_time() - begin < 2  # a hundredth of it as a rule, and minutes if it grew with the square
