"""The one table of words by which upstreams end an answer."""

import pytest

from holdfast import Finish, Text
from holdfast.engine.core import Core
from holdfast.events import FINISH_REASONS
from holdfast.wires.outcome import finish_reason
from tests.requirements import requirement


@requirement("truth.length", "truth.content-filter", "truth.failed-result")
@pytest.mark.parametrize("word", FINISH_REASONS)
async def test_a_run_ends_as_the_table_says(word):
    """The outcome of a run and the word that OpenAI's clients read come from the same row."""

    async def source(out):
        out.emit([Text("some"), Finish(word)])

    async with Core() as engine:
        settled = await (await engine.start(source)).settled()

    assert FINISH_REASONS[word] == (settled.outcome, finish_reason(settled))


async def test_a_word_that_is_not_in_the_table_ends_a_whole_answer():
    """Upstreams have many words for it (eos_token, ...)."""

    async def source(out):
        out.emit([Text("some"), Finish("eos_token")])

    async with Core() as engine:
        settled = await (await engine.start(source)).settled()

    assert ("completed", "eos_token", "stop") == (settled.outcome, settled.finish_reason, finish_reason(settled))
