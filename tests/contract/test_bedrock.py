"""What Bedrock's Converse API is asked, how a request is signed, and how its frames are read."""

from datetime import UTC, datetime

import pytest

from holdfast.errors import ProviderBroke, ProviderError, Unsupported
from holdfast.events import Finish, Thought, ToolCall, Usage
from holdfast.server.config.settings import ProviderSettings, Settings, SettingsError
from holdfast.server.live.provider_factory import make_provider
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.bedrock.decoder import ConverseDecoder
from holdfast.upstreams.bedrock.event_stream import EventStreamDecoder
from holdfast.upstreams.bedrock.request import body_with
from holdfast.upstreams.bedrock.signing import AwsCredentials, signed_headers
from holdfast.upstreams.sse import EventTooLarge
from holdfast_lab.contracts import PLAYED
from tests.contract.test_provider import listen
from tests.requirements import requirement
from tests.support.dialects.bedrock import BEDROCK, START, TEXT, block, end, event, exception, header, message
from tests.support.upstream import Raw, Status, Upstream

MODEL = "anthropic.claude-3-5-sonnet-20240620-v1:0"
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "AWS_SESSION_TOKEN": "t0ken-12345678",
}


@pytest.fixture
async def up():
    async with Upstream([Raw(START + TEXT + end())]) as up:
        yield up


@pytest.fixture
async def provider(up):
    provider = BEDROCK.provider(up)
    yield provider
    await provider.close()


def request(*messages, model=MODEL, **params):
    messages = list(messages) or [{"role": "user", "content": "Hello"}]
    return ChatRequest(model=model, messages=messages, params=params, patience=0.0)


def body(*messages, **params):
    return body_with(request(*messages, **params))


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def play(up, provider, data):
    up.enqueue([Raw(data)])
    return await listen(provider, request())


# what is asked


def test_a_conversation_is_said_in_bedrocks_words():
    """Neighbours of one role are one turn, and results are the user's."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
    asked = body(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Add."}, picture]},
        {"role": "assistant", "content": "I will.", "tool_calls": [call("c1", "add", '{"a": 1}')]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "user", "content": "And now?"},
    )

    assert [{"text": "Be brief."}] == asked["system"]
    assert [
        {"role": "user", "content": [{"text": "Add."}, {"image": {"format": "png", "source": {"bytes": "aaaa"}}}]},
        {
            "role": "assistant",
            "content": [{"text": "I will."}, {"toolUse": {"toolUseId": "c1", "name": "add", "input": {"a": 1}}}],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "3"}]}}, {"text": "And now?"}],
        },
    ] == asked["messages"]


def test_parameters_are_said_in_bedrocks_words():
    """What only some models have is passed on where Bedrock wants it."""
    tools = [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
    ]
    asked = body(
        max_tokens=7,
        temperature=0.5,
        stop="END",
        tools=tools,
        tool_choice="required",
        additionalModelRequestFields={"k": 1},
    )

    assert {"maxTokens": 7, "temperature": 0.5, "stopSequences": ["END"]} == asked["inferenceConfig"]
    spec = {"name": "add", "description": "Adds.", "inputSchema": {"json": {"type": "object"}}}
    assert {"tools": [{"toolSpec": spec}], "toolChoice": {"any": {}}} == asked["toolConfig"]
    assert {"k": 1} == asked["additionalModelRequestFields"]
    assert "toolConfig" not in body(tools=tools, tool_choice="none")


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize("field", ["n", "reasoning_effort", "response_format", "some_new_thing"])
def test_what_bedrock_cannot_do_is_refused_by_name(field):
    """Nothing is left out in silence."""
    with pytest.raises(Unsupported) as refused:
        body(**{field: 2})

    assert field == refused.value.param


# who asks


def test_a_request_is_signed_as_aws_publishes_it():
    """The vector `get-vanilla` of AWS's own suite for signatures of version 4."""
    credentials = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    moment = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    signed = signed_headers(
        "https://example.amazonaws.com/", b"", credentials, "us-east-1", "service", method="GET", now=moment
    )

    assert "20150830T123600Z" == signed["x-amz-date"]
    assert (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    ) == signed["Authorization"]


async def test_a_key_of_bedrock_is_sent_and_nothing_is_signed(up, provider):
    """The name of a model stands in the path, with its colon escaped."""
    await listen(provider, request())

    [asked] = up.requests
    assert "/model/anthropic.claude-3-5-sonnet-20240620-v1%3A0/converse-stream" == asked.path
    assert f"Bearer {PLAYED.secret}" == asked.headers["authorization"]


@requirement("truth.redacted")
async def test_without_a_key_requests_are_signed_and_no_secret_is_told(up):
    """The credentials are those of AWS's own tools."""
    up.enqueue(
        [Status(403, {"message": f"Invalid token {AWS['AWS_SESSION_TOKEN']} of {AWS['AWS_SECRET_ACCESS_KEY']}"})]
    )
    described = ProviderSettings(
        "up", "bedrock", base_url=f"http://{up.host}:{up.port}", models=("m",), options={"region": "eu-central-1"}
    )
    provider = make_provider(described, Settings(), AWS)
    heard = await listen(provider, request(model="m"))
    await provider.close()

    [asked] = up.requests
    assert "/eu-central-1/bedrock/aws4_request" in asked.headers["authorization"]
    assert AWS["AWS_SESSION_TOKEN"] == asked.headers["x-amz-security-token"]
    assert not any(AWS[name] in str(heard.error) for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
    assert "upstream_auth" == heard.error.code


@pytest.mark.parametrize(
    ("environ", "base_url", "words"),
    [
        ({}, "", "there is no API key, and AWS_ACCESS_KEY_ID"),
        (AWS, "http://gateway.example", "options.region is not set"),
    ],
)
def test_what_is_missing_is_said_at_the_start(environ, base_url, words):
    """And not when the first question comes."""
    with pytest.raises(SettingsError, match=words):
        make_provider(ProviderSettings("up", "bedrock", base_url=base_url), Settings(), environ)


def test_the_region_is_that_of_the_host():
    """It need not be set twice."""
    make_provider(ProviderSettings("up", "bedrock", models=("m",)), Settings(), AWS)


# what is answered


@requirement("truth.content-filter", "truth.failed-result")
@pytest.mark.parametrize(
    ("word", "reason"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("content_filtered", "content_filter")],
)
async def test_stop_reasons_are_said_in_openais_words(up, provider, word, reason):
    """As those of the models behind it."""
    heard = await play(up, provider, START + TEXT + end(word))

    assert (PLAYED.text, [Finish(reason)], None) == (heard.text, heard.all(Finish), heard.error)


@requirement("truth.in-band-error")
@pytest.mark.parametrize("data", [exception("modelStreamErrorException", "It broke."), end("malformed_tool_use")])
async def test_an_exception_in_the_stream_is_a_failure(up, provider, data):
    """What came before it is kept."""
    heard = await play(up, provider, START + TEXT + data)

    assert isinstance(heard.error, ProviderError)
    assert (PLAYED.text, []) == (heard.text, heard.all(Finish))


async def test_signed_reasoning_goes_back_with_the_results(up, provider):
    """Models that think refuse the results of calls without it."""
    thought = block(0, {"reasoningContent": {"text": "Hm."}}, {"reasoningContent": {"signature": "c2ln"}})
    used = block(1, {"toolUse": {"input": "{}"}}, start={"toolUse": {"toolUseId": "t1", "name": "now"}})
    heard = await play(up, provider, START + thought + used + end("tool_use"))
    [sealed], [made] = heard.all(Thought), heard.all(ToolCall)
    asked = body({"role": "assistant", "thoughts": [sealed.block], "tool_calls": [call(made.id, "now", "{}")]})

    assert {"reasoningText": {"text": "Hm.", "signature": "c2ln"}} == asked["messages"][0]["content"][0][
        "reasoningContent"
    ]


async def test_tokens_of_the_cache_are_counted_as_input(up, provider):
    """Bedrock counts them apart."""
    usage = {"inputTokens": 1, "outputTokens": 5, "cacheReadInputTokens": 2, "cacheWriteInputTokens": 4}
    heard = await play(
        up, provider, START + TEXT + event("messageStop", stopReason="end_turn") + event("metadata", usage=usage)
    )

    assert Usage(7, 5, "provider", 2, 0, 4) in heard.all(Usage)


def test_any_cutting_of_the_bytes_gives_the_same_answer():
    """Where the network cuts says nothing."""
    data = START + TEXT + end()

    def heard(*reads):
        decoder = ConverseDecoder("up")
        return [event for read in reads for events in decoder.feed(read) for event in events], decoder.over

    whole = heard(data)
    for cut in range(len(data)):
        assert whole == heard(data[:cut], data[cut:])


@pytest.mark.parametrize("at", [0, 9, 20, -1], ids=["length", "prelude", "headers", "checksum"])
async def test_a_damaged_frame_is_a_failure(up, provider, at):
    """A byte that was turned on the way must not become a word."""
    damaged = bytearray(event("contentBlockDelta", contentBlockIndex=0, delta={"text": "wrong"}))
    damaged[at] ^= 0xFF
    heard = await play(up, provider, START + TEXT + bytes(damaged) + end())

    assert isinstance(heard.error, ProviderBroke)
    assert PLAYED.text == heard.text


def test_headers_of_every_type_are_passed_over():
    """AWS may add any."""
    others = b"".join(
        [
            b"\x01a\x00",
            b"\x01b\x02\x07",
            b"\x01c\x04" + bytes(4),
            b"\x01d\x08" + bytes(8),
            b"\x01e\x09" + bytes(16),
            b"\x01f\x06\x00\x02xy",
        ]
    )
    told = EventStreamDecoder(1000).feed(message(others + header(":event-type", "metadata"), b"{}"))

    assert [(b"metadata", b"{}")] == told


def test_a_frame_that_is_too_large_is_given_up():
    """Its length is known before it is read."""
    with pytest.raises(EventTooLarge):
        EventStreamDecoder(100).feed(event("contentBlockDelta", delta={"text": "x" * 200})[:20])
