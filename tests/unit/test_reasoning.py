"""The splitter that tells reasoning from answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.log.reasoning import MAX_LEADING_SPACE, ThinkSplitter
from tests.requirements import requirement

FRAGMENTS = [
    *["<think>", "</think>", "<thinking>", "</thinking>", "<THINK>", "</Think>", "<think", "</thin", "</", "<", ">"],
    *["`", "``", "```", "\n", "\r\n", " ", "\t", " " * MAX_LEADING_SPACE, '"', "'", "a", "answer", "ing>", "K", "ı"],
]
texts = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)
cuts = st.lists(st.integers(0, 400), max_size=30)


def cut(text: str, at: Iterable[int]) -> list[str]:
    places = [0, *sorted(place for place in at if place < len(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(places)]


def split(deltas: Iterable[str], *, open: bool = False, complete: bool = True) -> tuple[str, str]:
    """The whole reasoning and the whole answer."""
    splitter = ThinkSplitter(open=open)
    pieces = [piece for delta in deltas for piece in splitter.feed(delta)] + splitter.finish(complete=complete)
    reasoning = "".join(text for is_reasoning, text in pieces if is_reasoning)
    answer = "".join(text for is_reasoning, text in pieces if not is_reasoning)
    return reasoning, answer


def split_whole(text: str, open: bool) -> tuple[str, str]:
    """What the splitter should do, said again for a text that is all there, without a thought for cost."""
    reasoning, thought = "", False
    while True:
        bare = text.lstrip(" \t\r\n")
        near = thought or len(text) - len(bare) <= MAX_LEADING_SPACE
        tag = re.match("(?ai)<think(ing)?>", bare) if near else None
        if tag:
            text = bare[tag.end() :]
        elif thought or not open:
            return reasoning, bare if thought else text
        closes = list(re.finditer("(?ai)</think(ing)?>", text))
        real = next((close for close in closes if not is_quoted(text, close)), None)
        if not real:
            return reasoning + text, text[closes[0].end() :].lstrip(" \t\r\n") if closes else ""
        reasoning, text, thought = reasoning + text[: real.start()], text[real.end() :], True


def is_quoted(text: str, close: re.Match[str]) -> bool:
    opened = 0
    for mark in re.findall("`+|\n", text[: close.start()]):
        if mark == "\n":
            opened = opened if opened >= 3 else 0
        elif not opened:
            opened = len(mark)
        elif len(mark) == opened or len(mark) > opened >= 3:
            opened = 0
    return opened > 0 and text[close.end() : close.end() + 1] in {"`", '"', "'"}


@requirement("start.reasoning-apart")
@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("The answer is 42", "", "The answer is 42"),
        ("<think>x</think>\nThe answer is 42", "x", "The answer is 42"),
        ("<thinking>x</thinking>42", "x", "42"),
        ("<THINK>x</Think>42", "x", "42"),
        ("\n <think>x</think> \r\n\t42\n", "x", "42\n"),
        ("<think></think>42", "", "42"),
        ("<think>\nx\n</think>42", "\nx\n", "42"),
        ("<think>x</think>\n<think>y</think>\n42", "xy", "42"),
        ("<think>x</think>42<think>y</think>", "x", "42<think>y</think>"),
        ("<think>x<think>y</think>42</think>", "x<think>y", "42</think>"),
        ("<think>x</thinking>42", "x", "42"),
        ("  indented", "", "  indented"),
        (" \n", "", " \n"),
        ("<think>x</think> \n", "x", ""),
        ("", "", ""),
    ],
)
def test_a_leading_think_block_is_reasoning_and_the_rest_is_the_answer(text: str, reasoning: str, answer: str) -> None:
    """Wherever the tags are cut, in every character too, the same words must land on the same side."""
    assert (reasoning, answer) == split([text])
    assert (reasoning, answer) == split(text)


@requirement("start.reasoning-apart")
@pytest.mark.parametrize(
    "text",
    [
        "Use <think> to think.",
        "`<think>x</think>`",
        "```xml\n<think>x</think>\n```",
        "a<think>x</think>",
        "</think>",
        "<thinker>x</thinker>",
        "< think>x</think>",
        "<thin",
        "<",
        "\u00a0<think>x</think>",
        "<th\u0131nk>x",
    ],
)
def test_a_tag_that_does_not_lead_is_text(text: str) -> None:
    """People ask models about these tags, and the answer must not lose half a sentence."""
    assert ("", text) == split([text])
    assert ("", text) == split(text)


@requirement("stop.think")
@pytest.mark.parametrize("text", ["<think>", "<think>x", "<think>x</thin", "<think>x</think", "<think>x</think>"])
def test_reasoning_that_nothing_follows_leaves_no_answer(text: str) -> None:
    """An answer made of reasoning would be shown, stored and sent back to the model."""
    assert "" == split([text])[1]
    assert "" == split(text)[1]


@requirement("start.reasoning-apart")
@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("x</think>\n42", "x", "42"),
        ("\nx</think>42", "\nx", "42"),
        ("</think>42", "", "42"),
        ("<think>x</think>42", "x", "42"),
        ("x</think><think>y</think>42", "xy", "42"),
        ("x</think>42</think>", "x", "42</think>"),
        ("x", "x", ""),
    ],
)
def test_a_template_may_have_opened_the_reasoning(text: str, reasoning: str, answer: str) -> None:
    """Some templates put `<think>` into the prompt; some models then write it again."""
    assert (reasoning, answer) == split([text], open=True)
    assert (reasoning, answer) == split(text, open=True)


@requirement("start.reasoning-apart")
@pytest.mark.parametrize(
    "thought",
    [
        "the `</think>` tag",
        "the `<think></think>` pair",
        "the ``</think>`` tag",
        "so `s.find('</think>')` it is",
        'a fence\n```py\ns.find("</think>")\n```\nends',
    ],
)
def test_a_close_tag_quoted_in_code_does_not_end_the_reasoning(thought: str) -> None:
    """Models that think about tags write them in code, and the thought that follows is no answer."""
    text = f"<think>{thought}</think>\n42"

    assert (thought, "42") == split([text])
    assert (thought, "42") == split(text)


@pytest.mark.parametrize(
    "thought",
    [
        "a stray ` here",
        "a stray ` on a line\nbefore",
        "`code` twice `over`",
        "an unclosed fence\n```py\nprint()\n",
        "so I run `ls`",
    ],
)
@pytest.mark.parametrize("answer", ["42", "`ls` lists files", '"42"', "42 `x`"])
def test_a_close_tag_after_odd_backticks_still_lets_the_answer_out(thought: str, answer: str) -> None:
    """A wrong "quoted" hides an answer, a wrong "close" only shows some reasoning: so nearly every close tag counts."""
    text = f"<think>{thought}</think>\n{answer}"

    assert (thought, answer) == split([text])
    assert (thought, answer) == split(text)


def test_an_answer_behind_a_close_tag_judged_quoted_is_not_lost() -> None:
    """Reasoning that was sent cannot be taken back, but a complete text without an answer can have it shown twice."""
    text = "<think>a stray ` here</think>`ls` lists files"

    assert ("a stray ` here</think>`ls` lists files", "`ls` lists files") == split([text])
    assert split([text]) == split(text)


@requirement("stop.think")
def test_reasoning_cut_off_after_a_quoted_close_tag_has_no_answer() -> None:
    """A model that hit its limit while it thought about tags has said nothing yet."""
    text = "<think>the `</think>` tag ends"

    assert ("the `</think>` tag ends", "") == split([text], complete=False)
    assert ("the `</think>` tag ends", "") == split(text, complete=False)


def test_leading_whitespace_is_held_back_only_so_long() -> None:
    """A model that sends whitespace for ever must cost neither memory nor the sight of it."""
    space = " " * MAX_LEADING_SPACE
    splitter = ThinkSplitter()

    assert [] == splitter.feed(space)
    assert [(False, space + " ")] == splitter.feed(" ")
    assert [(False, "<think>x")] == splitter.feed("<think>x")
    assert ("x", "") == split([space + "<think>x"])


def test_an_answer_that_has_begun_passes_through_untouched() -> None:
    """This is the hot path: the very same string comes out, and an empty delta is no piece."""
    splitter = ThinkSplitter()
    splitter.feed("The")
    delta = " answer <think>"

    ((is_reasoning, text),) = splitter.feed(delta)
    assert not is_reasoning
    assert text is delta
    assert [] == splitter.feed("")
    assert [] == splitter.finish()


@requirement("start.reasoning-apart")
@given(texts, cuts, st.booleans())
@example("<think>`</think>`", [16], False)
@example("<think>``</think>``</think>b", [8, 17, 18], False)
@example("<think>```\n````</think>'a'", [], False)
@example("<think>`</think><think></think>'a'", [], False)
def test_every_way_to_cut_a_text_gives_what_the_whole_gives(text: str, at: list[int], open: bool) -> None:
    """Where an upstream cuts its deltas is chance, and chance must not move a word from answer to reasoning."""
    assert split_whole(text, open) == split(cut(text, at), open=open)


@given(texts, cuts, st.booleans())
def test_pieces_are_merged_and_little_is_held_back(text: str, at: list[int], open: bool) -> None:
    """A delta gives at most one piece of each kind, in order, and what the splitter keeps is bounded."""
    splitter = ThinkSplitter(open=open)
    for delta in cut(text, at):
        pieces = splitter.feed(delta)

        assert [kind for kind, _ in pieces] in ([], [True], [False], [True, False])
        assert all(text for _, text in pieces)
        assert len(splitter._held.lstrip(" \t\r\n")) < 12
        assert len(splitter._held) < MAX_LEADING_SPACE + 12


@given(st.text().filter(lambda text: "think" not in text.lower()), st.booleans())
def test_any_text_without_tags_comes_out_whole(text: str, open: bool) -> None:
    """The splitter may only ever remove tags and the whitespace around them."""
    assert ((text, "") if open else ("", text)) == split(text, open=open)


HOSTILE = {
    "open tags": "<think>",
    "blocks": "<think>a</think>",
    "angle brackets": "<",
    "whitespace": " ",
    "newlines": "\n",
    "backticks": "`",
    "quoted close tags": "`</think>`",
    "unfinished close tags": "</think",
}


@requirement("safe.redos")
@pytest.mark.parametrize("opening", ["", "<think>", "<think>x</think>"])
@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("drip", [False, True], ids=["one delta", "one character each"])
def test_eight_times_the_text_takes_about_eight_times_as_long(opening: str, unit: str, drip: bool) -> None:
    """A pattern that looked fine took 9.5 s for 112 kB of `<think>`; a quadratic one would be 64 times slower here."""
    size = 2_000 if drip else 30_000
    small = opening + unit * (size // len(unit))
    large = opening + unit * (8 * size // len(unit))

    assert seconds_to_split(large, drip) < 4 * 8 * seconds_to_split(small, drip) + 0.01


def seconds_to_split(text: str, drip: bool) -> float:
    def once() -> float:
        deltas = text if drip else [text]
        begin = time.process_time()
        split(deltas)
        return time.process_time() - begin

    return min(once() for _ in range(5))
