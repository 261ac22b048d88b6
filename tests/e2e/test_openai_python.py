"""The official openai-python client against the server: what it reads, what it raises, and how often it asks."""

import asyncio
import time

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI

from tests.e2e.clients import BEGIN, KEY, setting
from tests.requirements import requirement
from tests.support.http import Client
from tests.support.upstream import REASONING, TEXT, Delta, Done, Finish, Gate, answer
from tests.support.waiting import LONG, SOON

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = [{"role": "user", "content": "What is the wave?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("openai-python")) as here:
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    """As people make it: with its own two retries."""
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY, timeout=LONG) as client:
        yield client


async def native(here, method: str, path: str, **options):
    async with Client(here.server.url, {"Authorization": f"Bearer {KEY}"}) as raw:
        response = await raw.request(method, path, **options)
        return response.status, await response.body()


# Reading.


@requirement("start.default-json")
async def test_an_answer_is_read_whole(client):
    """The plainest call there is."""
    completion = await client.chat.completions.create(model="up/end:completed", messages=ASKED)

    (choice,) = completion.choices
    assert ("assistant", TEXT, "stop") == (choice.message.role, choice.message.content, choice.finish_reason)
    assert (3, 5, 8) == (
        completion.usage.prompt_tokens,
        completion.usage.completion_tokens,
        completion.usage.total_tokens,
    )
    assert ("up/end:completed", "chat.completion") == (completion.model, completion.object)
    assert completion._request_id


@requirement("start.stream-shape", "start.text-exact")
async def test_a_stream_is_read_chunk_by_chunk(client):
    """With usage at its end, where it was asked for."""
    stream = await client.chat.completions.create(
        model="up/end:split-utf8", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert TEXT == "".join(delta.content or "" for delta in deltas)
    assert ("assistant", "stop") == (deltas[0].role, chunks[-2].choices[0].finish_reason)
    assert 8 == chunks[-1].usage.total_tokens
    assert 1 == len({chunk.id for chunk in chunks})


async def test_the_synchronous_client_reads_the_same(here):
    """Half of its users never see an event loop."""

    def read() -> tuple[str, str]:
        with OpenAI(base_url=here.base_url, api_key=KEY) as client:
            whole = client.chat.completions.create(model="up/end:completed", messages=ASKED)
            stream = client.chat.completions.create(model="up/end:completed", messages=ASKED, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            return whole.choices[0].message.content, text

    assert (TEXT, TEXT) == await asyncio.to_thread(read)


async def test_models_are_listed_and_found(client):
    """The first call of many programs."""
    listed = [model.id async for model in await client.models.list()]
    found = await client.models.retrieve("up/m")

    assert "up/m" in listed
    assert ("up/m", "model", "up") == (found.id, found.object, found.owned_by)


@requirement("start.reasoning-apart")
@pytest.mark.parametrize("model", ["up/end:think", "up/end:reasoning", "up/end:reasoning-content"])
async def test_reasoning_is_an_attribute_of_its_own(client, model):
    """Programs read `reasoning_content` or `reasoning`, whichever their first provider had."""
    stream = await client.chat.completions.create(model=model, messages=ASKED, stream=True)
    deltas = [chunk.choices[0].delta async for chunk in stream]
    whole = (await client.chat.completions.create(model=model, messages=ASKED)).choices[0].message

    for name in ("reasoning", "reasoning_content"):
        assert REASONING == "".join(getattr(delta, name, None) or "" for delta in deltas)
        assert REASONING == getattr(whole, name)
    assert (TEXT, TEXT) == ("".join(delta.content or "" for delta in deltas), whole.content)


async def test_tool_calls_are_put_together_by_the_sdk(client):
    """Its stream helper joins the pieces by index; ours must come as OpenAI's do."""
    async with client.chat.completions.stream(model="up/two-tools", messages=ASKED, tools=[TOOL]) as stream:
        async for _ in stream:
            pass
        message = (await stream.get_final_completion()).choices[0].message
    whole = await client.chat.completions.create(model="up/two-tools", messages=ASKED, tools=[TOOL])

    expected = [("call_1", "add", '{"a": 1, "b": 2}'), ("call_2", "add", '{"a": 3, "b": 4}')]
    for calls in (message.tool_calls, whole.choices[0].message.tool_calls):
        assert expected == [(call.id, call.function.name, call.function.arguments) for call in calls]
    assert ("tool_calls", None) == (whole.choices[0].finish_reason, whole.choices[0].message.content)


async def test_tools_and_their_results_are_passed_through(here, client):
    """The whole round, as a program makes it."""
    called = await client.chat.completions.create(
        model="up/two-tools", messages=ASKED, tools=[TOOL], tool_choice="auto", parallel_tool_calls=True
    )
    first = here.up.requests[-1].body
    message = called.choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in message.tool_calls]
    messages = [*ASKED, message.model_dump(exclude_none=True), *results]
    answered = await client.chat.completions.create(model="up/echo:done", messages=messages, tools=[TOOL])
    second = here.up.requests[-1].body

    assert ([TOOL], "auto", True) == (first["tools"], first["tool_choice"], first["parallel_tool_calls"])
    assert ["user", "assistant", "tool", "tool"] == [message["role"] for message in second["messages"]]
    assert ["call_1", "call_2"] == [call["id"] for call in second["messages"][1]["tool_calls"]]
    assert "done" == answered.choices[0].message.content


@pytest.mark.parametrize(("model", "reason"), [("end:length", "length"), ("end:content-filter", "content_filter")])
@requirement("truth.length", "truth.content-filter")
async def test_a_truncated_answer_says_so_and_raises_nothing(client, model, reason):
    """It is an answer, and the program can see that there was more to say."""
    whole = await client.chat.completions.create(model=f"up/{model}", messages=ASKED)
    stream = await client.chat.completions.create(model=f"up/{model}", messages=ASKED, stream=True)
    chunks = [chunk async for chunk in stream]

    assert (TEXT, reason) == (whole.choices[0].message.content, whole.choices[0].finish_reason)
    assert reason == chunks[-1].choices[0].finish_reason
    assert "truncated" == whole.model_extra["holdfast"]["outcome"]


@requirement("start.stream-shape")
async def test_heartbeats_do_not_break_it(here, client):
    """Comments between frames, before and after text: this client has stumbled over less."""
    here.up.models["waiting"] = [*BEGIN, Gate("waiting"), Delta("!"), Finish(), Done()]
    asked = {"model": "up/waiting", "messages": ASKED, "stream": True}
    stream = await client.chat.completions.create(**asked)
    async with Client(here.server.url, {"Authorization": f"Bearer {KEY}"}) as raw:
        beside = await raw.post("/v1/chat/completions", asked)
        for _ in range(3):  # they are there
            while (await beside.next_event(comments=True)).kind != "comment":
                pass
    here.up.open("waiting")
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert TEXT + "!" == text


# Raising.


@requirement("safe.key")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_wrong_key_raises_authentication_error(here, stream):
    """Its own type, at once."""
    async with AsyncOpenAI(base_url=here.base_url, api_key="hf-wrong") as stranger:
        with pytest.raises(openai.AuthenticationError) as raised:
            await stranger.chat.completions.create(model="up/echo:never", messages=ASKED, stream=stream)

    assert ("unauthorized", 0) == (raised.value.code, here.calls("echo:never"))


RAISES = {
    "empty messages": ("up/m", [], openai.BadRequestError, "invalid_request"),
    "an unknown model": ("fixed/m", ASKED, openai.NotFoundError, "model_not_found"),
    "the upstream's 400": ("up/end:400", ASKED, openai.BadRequestError, "upstream_rejected"),
    "the upstream's 401": ("up/end:401", ASKED, openai.InternalServerError, "upstream_auth"),
    "the upstream's 404": ("up/end:404", ASKED, openai.NotFoundError, "model_not_found"),
    "a page of HTML": ("up/end:html-200", ASKED, openai.InternalServerError, "upstream_broke"),
}


@requirement("start.early-failure-status")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("name", RAISES)
async def test_an_early_failure_raises_its_own_type_and_the_model_is_asked_once(here, client, name, stream):
    """The client would try a 5xx twice more by itself; `x-should-retry` tells it not to."""
    model, messages, kind, code = RAISES[name]
    before = len(here.up.requests)

    with pytest.raises(kind) as raised:  # `user` makes two requests of the two: one that is repeated is not passed on
        await client.chat.completions.create(model=model, messages=messages, stream=stream, user=f"streams: {stream}")

    assert (code, kind) == (raised.value.code, type(raised.value))
    assert len(here.up.requests) - before == (1 if model.startswith("up/end:") else 0)
    assert raised.value.request_id


@requirement("start.early-failure-status")
@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "not streaming"])
async def test_a_rate_limit_raises_its_own_type_with_the_upstreams_own_pause(here, client, stream):
    """Without retries: one call, one error."""
    before = here.calls("end:429")

    with pytest.raises(openai.RateLimitError) as raised:
        await client.with_options(max_retries=0).chat.completions.create(
            model="up/end:429", messages=ASKED, stream=stream
        )

    assert ("upstream_rate_limited", "7") == (raised.value.code, raised.value.response.headers["retry-after"])
    assert 1 == here.calls("end:429") - before


@requirement("start.early-failure-status")
async def test_the_clients_own_retry_after_a_rate_limit_is_welcome(here, client):
    """No model has run, so it may ask again: after the pause that the upstream wants, and once."""
    here.up.enqueue(here.up.models["limited"], answer("at last"))
    began = time.monotonic()

    completion = await client.chat.completions.create(model="up/limited", messages=ASKED)

    assert "at last" == completion.choices[0].message.content
    assert 2 == here.calls("limited")
    assert time.monotonic() - began >= 1.0


@requirement("truth.in-band-error", "truth.eof", "truth.cut", "truth.clients-see-failure")
@pytest.mark.parametrize(
    ("model", "code"),
    [("end:in-band-error", "upstream_error"), ("end:eof", "upstream_broke"), ("late-cut", "upstream_broke")],
)
async def test_a_run_that_fails_in_mid_stream_raises_after_its_text(here, client, model, code):
    """A bare end of the stream would be taken for success."""
    before, texts = here.calls(model), []
    stream = await client.chat.completions.create(model=f"up/{model}", messages=ASKED, stream=True)

    async def read() -> None:
        async for chunk in stream:
            texts.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError) as raised:
        await read()

    assert (TEXT, code, 1) == ("".join(texts), raised.value.code, here.calls(model) - before)


@requirement("truth.in-band-error", "truth.eof", "truth.cut")
@pytest.mark.parametrize("model", ["end:in-band-error", "end:eof", "late-cut"])
async def test_a_run_that_fails_after_text_is_not_run_again(here, client, model):
    """Not streaming it is a 406 with the partial in it; the client's two retries would pay for three runs."""
    before = here.calls(model)

    with pytest.raises(openai.APIStatusError) as raised:
        await client.chat.completions.create(model=f"up/{model}", messages=ASKED)

    body = raised.value.response.json()
    (choice,) = body["holdfast"]["partial"]["choices"]
    assert (406, TEXT) == (raised.value.status_code, choice["message"]["content"])
    assert ("error", "failed") == (choice["finish_reason"], body["holdfast"]["outcome"])
    assert 1 == here.calls(model) - before


@requirement("busy.reject")
async def test_a_busy_session_raises_conflict_at_once(here, client):
    """The client would try a 409 twice more."""
    first = await client.chat.completions.create(
        model="up/hanging", messages=ASKED, stream=True, extra_body={"session_id": "busy"}
    )
    await anext(first)

    with pytest.raises(openai.ConflictError) as raised:
        await client.chat.completions.create(
            model="up/echo:busy", messages=ASKED, extra_headers={"X-Session-Id": "busy"}
        )
    await first.close()

    assert ("session_busy", 0) == (raised.value.code, here.calls("echo:busy"))
    assert raised.value.body["code"] == "session_busy"
    assert "0" == raised.value.response.request.headers["x-stainless-retry-count"]


# Leaving.


@requirement("gone.attached")
async def test_leaving_a_stream_closes_the_upstream(here, client):
    """`break` and the end of the block: nobody reads, so nobody pays."""
    async with await client.chat.completions.create(model="up/hanging", messages=ASKED, stream=True) as stream:
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    left = time.monotonic()
    request = [request for request in here.up.requests if request.model == "hanging"][-1]

    assert await request.wait_closed() - left < SOON
    assert request.left_early


@requirement("gone.attached")
@pytest.mark.parametrize("way", ["timeout", "cancel"])
async def test_giving_up_on_an_answer_that_does_not_stream_closes_the_upstream(here, client, way):
    """No server cancels a handler whose client left; the model would run on for nobody."""
    model = f"gives up by {way}"
    here.up.models[model] = here.up.models["hanging"]
    impatient = client.with_options(max_retries=0, timeout=6.0 if way == "timeout" else LONG)
    asking = asyncio.create_task(impatient.chat.completions.create(model=f"up/{model}", messages=ASKED))
    while not here.calls(model):
        await here.up.next_request()
    (request,) = [request for request in here.up.requests if request.model == model]

    if way == "cancel":
        asking.cancel()
    await asyncio.wait({asking})
    left = time.monotonic()

    assert asking.cancelled() or isinstance(asking.exception(), openai.APITimeoutError)
    assert await request.wait_closed() - left < SOON
    assert request.left_early


# Coming back.


@requirement("gone.detached")
async def test_a_background_run_goes_on_and_is_fetched_by_its_id(here, client):
    """What the client left is there, whole, when it comes back."""
    here.up.models["behind"] = answer("The ", "whole ", "answer")
    async with await client.chat.completions.create(
        model="up/behind", messages=ASKED, stream=True, extra_body={"background": True}
    ) as stream:
        first = await anext(stream)
    run_id = "run_" + first.id.removeprefix("chatcmpl-")
    await native(here, "GET", f"/api/runs/{run_id}/events")

    fetched = await client.chat.completions.retrieve(first.id)

    assert ("The whole answer", "stop") == (fetched.choices[0].message.content, fetched.choices[0].finish_reason)
    assert 1 == here.calls("behind")


@requirement("stop.terminal-event")
async def test_a_run_that_someone_else_stopped_ends_as_cancelled(here, client):
    """Neither an error nor a success, and the stream ends properly."""
    stream = await client.chat.completions.create(
        model="up/hanging", messages=ASKED, stream=True, extra_body={"session_id": "stopped elsewhere"}
    )
    first = await anext(stream)
    status, _ = await native(here, "POST", f"/api/runs/run_{first.id.removeprefix('chatcmpl-')}/stop")
    chunks = [chunk async for chunk in stream]

    assert (200, "cancelled") == (status, chunks[-1].choices[0].finish_reason)
    assert ("stopped", "stopped_by_user") == (
        chunks[-1].model_extra["holdfast"]["outcome"],
        chunks[-1].model_extra["holdfast"]["code"],
    )
