"""The official openai-python client on `/v1/responses`: what it puts together, what it raises, how it comes back."""

import asyncio

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.e2e.clients import KEY, setting
from tests.requirements import requirement
from tests.support.upstream import REASONING, TEXT, answer
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = "What is the wave?"
ADD = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    "strict": False,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("openai-python-responses")) as here:
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    """As people make it: with its own two retries."""
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY, timeout=LONG) as client:
        yield client


async def ended(client: AsyncOpenAI, response_id: str) -> Response:
    """Ask again and again, as OpenAI's own guide does."""
    async with asyncio.timeout(LONG):
        while (found := await client.responses.retrieve(response_id)).status in ("queued", "in_progress"):  # noqa: ASYNC110 - it polls
            await asyncio.sleep(0.05)
    return found


def valid(response: Response) -> Response:
    """Check it against the SDK's own types, which it does not do by itself."""
    Response.model_validate(response.to_dict() | {"error": None})  # our codes are more than its short list
    return response


@requirement("resp.events")
@pytest.mark.parametrize("model", ["end:completed", "end:think", "two-tools", "end:length", "end:content-filter"])
async def test_an_answer_is_what_the_sdks_types_say(client, model):
    """Every field that they promise is there, and of their type."""
    whole = valid(await client.responses.create(model=f"up/{model}", input=ASKED, tools=[ADD]))

    assert whole._request_id
    assert ("response", f"up/{model}") == (whole.object, whole.model)
    assert ("" if model == "two-tools" else TEXT) == whole.output_text
    assert whole == valid(await client.responses.retrieve(whole.id))


@requirement("resp.events", "start.reasoning-apart")
async def test_its_stream_helper_puts_the_answer_together(client):
    """It raises where an event comes out of order, or where the end is another than what was said."""
    async with client.responses.stream(model="up/end:think", input=ASKED) as stream:
        events = [event async for event in stream]
        whole = await stream.get_final_response()

    assert (TEXT, TEXT) == (whole.output_text, [event for event in events if hasattr(event, "snapshot")][-1].snapshot)
    assert REASONING == whole.output[0].summary[0].text
    assert list(range(len(events))) == [event.sequence_number for event in events]


@requirement("resp.events")
async def test_calls_are_put_together_and_answered_by_their_outputs(here, client):
    """The whole round, as a program makes it."""
    async with client.responses.stream(model="up/two-tools", input=ASKED, tools=[ADD]) as stream:
        called = await stream.until_done() and await stream.get_final_response()
    outputs = [{"type": "function_call_output", "call_id": item.call_id, "output": "3"} for item in called.output]
    answered = await client.responses.create(
        model="up/echo:done", input=outputs, tools=[ADD], previous_response_id=called.id
    )
    shown = here.up.requests[-1].body["messages"]

    assert [("call_1", '{"a": 1, "b": 2}'), ("call_2", '{"a": 3, "b": 4}')] == [
        (item.call_id, item.arguments) for item in called.output
    ]
    assert ("done", ["user", "assistant", "tool", "tool"]) == (
        answered.output_text,
        [message["role"] for message in shown],
    )


class Wave(BaseModel):
    height: int


@requirement("resp.asked")
async def test_parsed_answers_work(here, client):
    """`responses.parse` sends a schema and reads what comes back by it."""
    here.up.models["wave"] = answer('{"height": 3}')

    parsed = await client.responses.parse(model="up/wave", input=ASKED, text_format=Wave)

    assert Wave(height=3) == parsed.output_parsed
    sent = here.up.requests[-1].body["response_format"]
    assert ("json_schema", "Wave", True) == (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["strict"])


@requirement("resp.background", "resp.cancel")
async def test_background_poll_and_cancel(client):
    """OpenAI's own guide, line by line."""
    done = await ended(client, (await client.responses.create(model="up/pausing", input=ASKED, background=True)).id)
    running = await client.responses.create(model="up/hanging", input=ASKED, background=True)
    cancelled = [valid(await client.responses.cancel(running.id)) for _ in range(2)]

    assert ("completed", f"{TEXT}!", True) == (done.status, done.output_text, done.background)
    assert ("queued", "cancelled") == (running.status, cancelled[0].status)
    assert cancelled[0] == cancelled[1] == await ended(client, running.id)


@requirement("resp.resume")
@pytest.mark.parametrize("kept", [{"background": True}, {"store": True}])
async def test_a_stream_is_resumed_after_any_event(client, kept):
    """Also one that was not created in the background."""
    stream = await client.responses.create(model="up/pausing", input=ASKED, stream=True, **kept)
    seen = []
    async for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    again = await client.responses.retrieve(seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number)
    rest = [event async for event in again]
    whole = [event async for event in await client.responses.retrieve(seen[0].response.id, stream=True)]

    numbered = [{event.sequence_number: event for event in reversed(events)} for events in (whole, [*seen, *rest])]
    assert numbered[0] == numbered[1], "but for heartbeats, which repeat the number before them"
    assert ("response.completed", f"{TEXT}!") == (whole[-1].type, whole[-1].response.output_text)


@requirement("resp.resume")
async def test_its_stream_helper_can_come_back_too(client):
    """It reads from the start and shows what follows."""
    first = await client.responses.create(model="up/end:completed", input=ASKED, background=True)
    async with client.responses.stream(response_id=first.id, starting_after=5) as stream:
        numbers = [event.sequence_number async for event in stream]
        whole = await stream.get_final_response()

    assert (list(range(6, 6 + len(numbers))), TEXT) == (numbers, whole.output_text)


@requirement("resp.cancel", "stop.terminal-event")
async def test_a_cancelled_stream_is_no_completed_one(client):
    """It ends with an event of its own; the helper raises rather than give an answer that is none."""
    stream = await client.responses.create(model="up/hanging", input=ASKED, stream=True)
    seen = []
    async for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta" and len(seen) > 5:
            await client.responses.cancel(seen[0].response.id)
    helper = client.responses.stream(response_id=seen[0].response.id)
    with pytest.raises(RuntimeError, match=r"response\.completed"):
        async with helper as stream_again:
            await stream_again.get_final_response()

    last = Response.model_validate(
        seen[-1].response
    )  # of a type that it does not know, it leaves the fields as they are
    assert ("response.cancelled", "cancelled", TEXT) == (seen[-1].type, last.status, last.output_text)


@requirement("truth.in-band-error", "truth.eof", "truth.cut", "truth.clients-see-failure")
@pytest.mark.parametrize(
    ("model", "code"),
    [("end:in-band-error", "upstream_error"), ("end:eof", "upstream_broke"), ("late-cut", "upstream_broke")],
)
async def test_what_fails_in_its_middle_has_failed(here, client, model, code):
    """It raises, streaming or not, also for programs that look at the text alone; the model is not run again."""
    before = here.calls(model)
    said: list[str] = []

    async def read() -> None:
        async for event in await client.responses.create(model=f"up/{model}", input=ASKED, stream=True):
            said.extend([event.delta] if event.type == "response.output_text.delta" else [])

    with pytest.raises(openai.APIError) as streamed:
        await read()
    with pytest.raises(openai.APIStatusError) as raised:
        await client.responses.create(model=f"up/{model}", input=ASKED)
    kept = await client.responses.retrieve(f"resp_{raised.value.response.headers['x-run-id'].removeprefix('run_')}")

    assert (code, TEXT) == (streamed.value.code, "".join(said))
    assert (406, code, "failed", TEXT) == (raised.value.status_code, raised.value.code, kept.status, kept.output_text)
    assert 2 == here.calls(model) - before


@requirement("start.early-failure-status")
@pytest.mark.parametrize("stream", [True, False])
async def test_an_early_failure_raises_its_own_type(here, client, stream):
    """The client's retries are the client's: one call here for each of its own."""
    for model, kind, code in [
        ("up/end:400", openai.BadRequestError, "upstream_rejected"),
        ("fixed/m", openai.NotFoundError, "model_not_found"),
        ("up/end:500", openai.InternalServerError, "upstream_error"),
    ]:
        with pytest.raises(kind) as raised:
            await client.responses.create(model=model, input=ASKED, stream=stream)
        assert code == raised.value.code
    before = here.calls("end:429")
    with pytest.raises(openai.RateLimitError):
        await client.with_options(max_retries=0).responses.create(model="up/end:429", input=ASKED, stream=stream)
    assert 1 == here.calls("end:429") - before


@requirement("resp.refused")
async def test_a_tool_that_no_model_here_can_have_raises_a_bad_request_that_names_it(client):
    """The client would wait for calls that never come."""
    with pytest.raises(openai.BadRequestError) as raised:
        await client.responses.create(model="up/m", input=ASKED, tools=[{"type": "local_shell"}])

    assert ("unsupported", "tools[0].type") == (raised.value.code, raised.value.param)


@requirement("resp.stored")
async def test_input_items_are_listed_and_a_response_deleted(client):
    """By its pagers, and gone for its own type of error."""
    items = [{"role": "user", "content": f"{n}"} for n in range(3)]
    made = await client.responses.create(model="up/echo:x", input=items)
    listed = [item async for item in client.responses.input_items.list(made.id, limit=1, order="asc")]
    await client.responses.delete(made.id)

    assert ["0", "1", "2"] == [item.content[0].text for item in listed]
    with pytest.raises(openai.NotFoundError) as raised:
        await client.responses.retrieve(made.id)
    assert "response_not_found" == raised.value.code


async def test_the_synchronous_client_reads_the_same(here):
    """Half of its users never see an event loop."""

    def read() -> tuple[str, str]:
        with OpenAI(base_url=here.base_url, api_key=KEY) as client:
            whole = client.responses.create(model="up/end:completed", input=ASKED)
            with client.responses.stream(model="up/end:completed", input=ASKED) as stream:
                return whole.output_text, stream.get_final_response().output_text

    assert (TEXT, TEXT) == await asyncio.to_thread(read)


@requirement("resp.events")
async def test_heartbeats_do_not_break_it(client):
    """Comments between events, which this client has stumbled over before."""
    async with client.responses.stream(model="up/pausing", input=ASKED) as stream:
        assert f"{TEXT}!" == (await stream.get_final_response()).output_text
