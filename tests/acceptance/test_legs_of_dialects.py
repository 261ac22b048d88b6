"""Upstreams of every dialect break off wherever they can, and their answers are joined exactly."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.acceptance.test_legs import ANCHOR, TEXT, TOKENS
from tests.requirements import requirement
from tests.support.dialects import anthropic, bedrock, gemini, ollama, openai, responses
from tests.support.long import EVERYTHING
from tests.support.native import Native
from tests.support.served import NO_HOME, Served
from tests.support.upstream import Cut, Eof, Hang, Raw, Upstream


def of_anthropic(tokens, *, ends):
    pieces = [{"type": "text_delta", "text": token} for token in tokens]
    block = anthropic.block(0, {"type": "text", "text": ""}, *pieces)
    return anthropic.START + (block + anthropic.end() if ends else block[: block.rindex(b"event: content_block_stop")])


def of_bedrock(tokens, *, ends):
    pieces = [bedrock.event("contentBlockDelta", contentBlockIndex=0, delta={"text": token}) for token in tokens]
    return bedrock.START + b"".join(pieces) + (bedrock.block(1) + bedrock.end() if ends else b"")


def of_responses(tokens, *, ends):
    told = responses.told().text(*tokens)
    return told.end().bytes() if ends else told.up_to_the_text if tokens else responses.told().bytes()


class Spoken(NamedTuple):
    """A dialect: how it writes tokens, and where a request has its messages."""

    base: str
    write: Callable[..., bytes]
    broken: bytes
    """An error that is sent as part of a stream."""
    malformed: bytes
    text_of: Callable[[Any], str] = lambda content: content if isinstance(content, str) else content[0]["text"]
    messages: str = "messages"
    content: str = "content"


SPOKEN = {
    "openai": Spoken(
        "/v1",
        lambda tokens, ends: (
            openai.ROLE + b"".join(openai.chunk(content=token) for token in tokens) + (openai.end() if ends else b"")
        ),
        openai.OPENAI.bodies["error_later"][len(openai.BEGIN) :],
        openai.OPENAI.malformed,
    ),
    "anthropic": Spoken(
        "", of_anthropic, anthropic.event("error", error=anthropic.ERROR), anthropic.ANTHROPIC.malformed
    ),
    "openai-responses": Spoken(
        "/v1", of_responses, responses.frame(responses.ERROR), responses.RESPONSES.malformed, messages="input"
    ),
    "gemini": Spoken(
        "/v1beta",
        lambda tokens, ends: gemini.said(*tokens) + (gemini.end() if ends else b""),
        gemini.event(gemini.error(503, "UNAVAILABLE", "no")),
        gemini.GEMINI.malformed,
        messages="contents",
        content="parts",
    ),
    "ollama": Spoken(
        "",
        lambda tokens, ends: ollama.said(*tokens) + (ollama.end() if ends else b""),
        b'{"error":"no"}\n',
        ollama.OLLAMA.malformed,
    ),
    "bedrock": Spoken("", of_bedrock, bedrock.exception("throttlingException", "no"), bedrock.BEDROCK.malformed),
}
PATHS = [
    "POST /v1/chat/completions",
    "POST /v1/messages",
    "POST /v1/responses",
    "POST /v1beta/models/m:streamGenerateContent",
    "POST /api/chat",
    "POST /model/m/converse-stream",
]
STEP = 1 if EVERYTHING else 11
"""Every token in `make test-all`: the joints are the same for all dialects, and test_legs.py tries each of them."""
BREAKS = {
    "cut": lambda spoken: [Cut()],
    "end": lambda spoken: [Eof()],
    "error": lambda spoken: [Raw(spoken.broken), Eof()],
    "malformed": lambda spoken: [Raw(spoken.malformed), Hang()],
    "stall": lambda spoken: [Hang()],
}
IDLE = 2.5
"""Seconds after which a silent run fails. At once: a stall lasts as long as this at every token."""
ASKED = re.compile(r"Tell me (\d+)")


class Models:
    """Write the story in a dialect. Each request says how much of it is told before the first call breaks off."""

    def __init__(self, spoken, breaks) -> None:
        self.spoken, self.breaks = spoken, breaks
        self.broken: set[int] = set()

    def __call__(self, request):
        spoken = self.spoken
        said = [(m.get("role"), spoken.text_of(m[spoken.content])) for m in request.body[spoken.messages]]
        cut = int(ASKED.search(said[0][1])[1])
        if cut not in self.broken:
            self.broken.add(cut)
            return [Raw(spoken.write(TOKENS[:cut], ends=False)), *self.breaks]
        role, last = said[-1]
        if role in ("assistant", "model"):
            rest = TEXT[len(last) :]
        else:
            asked = ANCHOR.search(last)
            assert asked, last
            rest = TEXT[TEXT.rindex(asked[1], 0, len(said[-2][1]) + 1) :]
        return [Raw(spoken.write(re.findall(r"\s*\S{1,4}|\s+", rest), ends=True))]


@requirement("legs.joined")
@pytest.mark.parametrize("prefills", [True, False], ids=["prefill", "turn"])
@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.parametrize("dialect", SPOKEN)
async def test_an_answer_of_any_dialect_is_joined_exactly_at_every_token(tmp_path, dialect, kind, prefills):
    """What is true of one dialect's decoder may not be of another's: where its text ends, how it breaks off."""
    spoken = SPOKEN[dialect]
    async with Upstream() as up:
        base_url = f"http://{up.host}:{up.port}{spoken.base}"
        provider = ProviderSettings(
            "up", dialect=dialect, base_url=base_url, api_key="k:s", models=("m",), prefills=prefills
        )
        settings = Settings(data=str(tmp_path), providers=(provider,), retry_patience=0.0, drain=0.0, idle_limit=IDLE)
        async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
            api, models = Native(client), Models(spoken, BREAKS[kind](spoken))
            up.at = dict.fromkeys(PATHS, models)

            async def told(cut):
                session_id = await api.new_session()
                headers = {"holdfast-on-break": "continue"}
                return await api.settled(await api.start(session_id, f"Tell me {cut}", "up/m", headers=headers))

            cuts = range(1, len(TOKENS) + 1, STEP)
            settled = await asyncio.gather(*map(told, cuts))

    assert {*cuts} == models.broken
    for cut, settlement in zip(cuts, settled, strict=True):
        assert (TEXT, "completed", 2) == (settlement["text"], settlement["outcome"], len(settlement["legs"])), cut
