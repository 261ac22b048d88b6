"""The calls of OpenAI's API that are no chats, with OpenAI's own client: completions, embeddings, pictures, speech."""

import anthropic
import openai
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.e2e.clients import KEY, Setting
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.server import Server, provider
from tests.support.upstream import Chunk, Cut, Done, Gate, Hang, Headers, Status, Upstream, UsageChunk

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "The sea"
LOGPROBS = {"tokens": [" is"], "token_logprobs": [-0.1], "top_logprobs": None, "text_offset": [7]}


def piece(text: str = "", finish: str | None = None, index: int = 0, logprobs: object = None) -> Chunk:
    return Chunk({"choices": [{"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}]})


EMBEDDING = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}],
    "model": "embeds",
}
MODERATED = {
    "id": "modr_1",
    "model": "moderates",
    "results": [{"flagged": False, "categories": {}, "category_scores": {}}],
}
PICTURE = {"created": 1, "data": [{"b64_json": "AAAA"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with Upstream() as up:
        up.models |= {
            "completes": [piece(" is"), piece(" wide."), piece("", "stop"), UsageChunk(), Done()],
            "two": [piece("a", "stop"), piece("b", "stop", index=1), UsageChunk(), Done()],
            "likely": [piece(" is", logprobs=LOGPROBS), piece("", "length"), UsageChunk(), Done()],
            "breaks": [piece(" is"), Gate("breaks"), Cut()],
            "hangs": [piece(" is"), Hang()],
            "embeds": [Status(200, {**EMBEDDING, "usage": {"prompt_tokens": 2, "total_tokens": 2}})],
            "moderates": [Status(200, MODERATED)],
            "paints": [Status(200, PICTURE)],
            "speaks": [Status(200, b"ID3 sound", {"Content-Type": "audio/mpeg"})],
            "refuses": [Status(401)],
            "silent": [Headers(), Hang()],
        }
        providers = [provider(up.base_url, models=None), {"name": "scripted", "dialect": "scripted"}]
        folder = tmp_path_factory.mktemp("more-endpoints")
        async with Server(folder, providers, env={"HOLDFAST_API_KEY": KEY}) as server:
            yield Setting(server, up)


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def http(here):
    async with Client(here.server.url, headers={"authorization": f"Bearer {KEY}"}) as client:
        yield client


# Completions.


@requirement("wire.completions")
async def test_a_prompt_reaches_the_upstream_as_it_is_and_is_completed(here, client):
    """Not as a chat: a template around it would make another prompt of it."""
    whole = await client.completions.create(model="up/completes", prompt=PROMPT, max_tokens=5, echo=False)

    sent = here.up.requests[-1]
    assert ("/v1/completions", PROMPT, 5) == (sent.path, sent.body["prompt"], sent.body["max_tokens"])
    assert "messages" not in sent.body
    assert (" is wide.", "stop") == (whole.choices[0].text, whole.choices[0].finish_reason)
    assert (3, 5) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert whole.id.startswith("cmpl-")


@requirement("wire.completions")
async def test_a_stream_of_a_completion_is_read_chunk_by_chunk(client):
    """With its usage at the end, if it is asked for."""
    options = {"include_usage": True}
    stream = await client.completions.create(model="up/completes", prompt=PROMPT, stream=True, stream_options=options)
    chunks = [chunk async for chunk in stream]

    assert [" is", " wide.", ""] == [chunk.choices[0].text for chunk in chunks[:-1]]
    assert ("stop", 5) == (chunks[-2].choices[0].finish_reason, chunks[-1].usage.completion_tokens)


@requirement("wire.completions")
async def test_several_prompts_have_an_answer_each(client):
    """As many tools for evaluation send them."""
    whole = await client.completions.create(model="up/two", prompt=["One", "Two"])

    assert ["a", "b"] == [choice.text for choice in whole.choices]


@requirement("wire.completions")
async def test_likelihoods_come_back(client):
    """Evaluations by likelihood look at nothing else."""
    whole = await client.completions.create(model="up/likely", prompt=PROMPT, logprobs=1)

    assert ([" is"], "length") == (whole.choices[0].logprobs.tokens, whole.choices[0].finish_reason)


@requirement("wire.completions", "truth.clients-see-failure")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_that_breaks_off_raises_and_is_run_once(here, client, stream):
    """It is no end of the model's own."""
    before = here.calls("breaks")
    here.up.open("breaks")

    async def read() -> None:
        answered = await client.completions.create(model="up/breaks", prompt=PROMPT, stream=stream)
        if stream:
            assert [chunk async for chunk in answered]

    with pytest.raises(openai.APIError):
        await read()
    assert 1 == here.calls("breaks") - before


@requirement("wire.completions", "gone.attached")
async def test_leaving_a_completion_closes_the_upstream(here, client):
    """As with every other answer."""
    async with await client.completions.create(model="up/hangs", prompt=PROMPT, stream=True) as stream:
        async for _ in stream:
            break
    (request,) = [request for request in here.up.requests if request.model == "hangs"]
    await request.wait_closed()

    assert request.left_early


@requirement("wire.completions", "wire.no-silent-drop")
async def test_a_model_that_can_only_chat_completes_a_prompt_as_a_chat_or_says_why_not(client):
    """llama-index asks so unless it is told otherwise."""
    whole = await client.completions.create(model="scripted/echo", prompt=PROMPT)
    for more in ({"echo": True}, {"suffix": "x"}, {"prompt": ["a", "b"]}):
        with pytest.raises(openai.BadRequestError) as raised:
            await client.completions.create(**{"model": "scripted/echo", "prompt": PROMPT, **more})
        assert ("unsupported", next(iter(more))) == (raised.value.code, raised.value.param)

    assert PROMPT in whole.choices[0].text


# Handed on.


@requirement("wire.pass-through")
async def test_embeddings_and_moderations_are_handed_to_the_provider(here, client):
    """With the model's own name, and the provider's own key."""
    embedded = await client.embeddings.create(model="up/embeds", input="Hi", encoding_format="float")
    moderated = await client.moderations.create(model="up/moderates", input="Hi")

    assert ([0.1, 0.2], 2) == (embedded.data[0].embedding, embedded.usage.total_tokens)
    assert [False] == [result.flagged for result in moderated.results]
    assert ["embeds", "moderates"] == [request.body["model"] for request in here.up.requests[-2:]]
    assert KEY not in str(here.up.requests[-1].headers)


@requirement("wire.pass-through")
async def test_pictures_and_speech_are_handed_on_as_they_are(here, client):
    """Also as a form with a file in it."""
    painted = await client.images.generate(model="up/paints", prompt="The sea")
    spoken = await client.audio.speech.create(model="up/speaks", voice="alloy", input="Hi")
    here.up.enqueue([Status(200, {"text": "Hello."})])
    heard = await client.audio.transcriptions.create(model="up/hears", file=("a.wav", b"RIFF\r\n--x", "audio/wav"))

    assert ("AAAA", b"ID3 sound", "Hello.") == (painted.data[0].b64_json, spoken.content, heard.text)
    sent = here.up.requests[-1]
    assert b'name="model"\r\n\r\nhears\r\n' in sent.raw
    assert b"RIFF\r\n--x" in sent.raw


@requirement("wire.pass-through")
async def test_what_is_handed_on_fails_with_a_status_of_its_own(here, client, http):
    """Keys, unknown models, refusals and providers that can only chat."""
    async with AsyncOpenAI(base_url=here.base_url, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.embeddings.create(model="up/embeds", input="Hi")
    answers = [
        await http.post("/v1/embeddings", {"model": "up/refuses", "input": "Hi"}),
        await http.post("/v1/embeddings", {"model": "nobody/m", "input": "Hi"}),
        await http.post("/v1/embeddings", {"model": "scripted/echo", "input": "Hi"}),
        await http.post("/v1/audio/speech", {"model": "up/speaks", "input": "Hi", "stream_format": "sse"}),
    ]

    found = [(answer.status, (await answer.json())["error"]["code"]) for answer in answers]
    assert [(502, "upstream_auth"), (404, "model_not_found"), (400, "unsupported"), (400, "unsupported")] == found


@requirement("wire.pass-through")
@pytest.mark.parametrize(
    ("path", "named"),
    [("/v1/files", "/v1/chat/completions"), ("/v1/vector_stores", "/v1/responses"), ("/chat/completions", "/v1")],
)
async def test_what_is_not_there_is_told_and_what_is(http, path, named):
    """In the shape that OpenAI's clients read."""
    answer = await http.post(path, {})
    error = (await answer.json())["error"]

    assert (404, "not_found") == (answer.status, error["code"])
    assert named in error["message"]


@requirement("wire.pass-through")
async def test_what_is_not_there_is_told_in_the_words_of_each_dialect(here, http, client):
    """OpenAI's and Anthropic's own clients raise their own error; Ollama's read `error` as a text."""
    with pytest.raises(openai.NotFoundError) as files:
        await client.files.list()
    async with AsyncAnthropic(base_url=here.server.url, api_key=KEY, max_retries=0) as other:
        with pytest.raises(anthropic.NotFoundError) as batches:
            await other.messages.batches.create(requests=[])
        with pytest.raises(anthropic.NotFoundError) as skills:
            await other.skills.list()
    pulled = await http.post("/api/pull", {"model": "x"})
    text = (await pulled.json())["error"]
    there = [path.rstrip(".,") for path in text.split() if path.startswith("/api/") and "pull" not in path]
    found = [(await http.request("PUT", path)).status for path in there]

    assert "not_found" == files.value.code
    assert ["not_found_error"] * 2 == [each.value.body["error"]["type"] for each in (batches, skills)]
    assert "/v1/messages" in str(batches.value)
    assert (404, 6) == (pulled.status, len(there))
    assert [405] * 6 == found
