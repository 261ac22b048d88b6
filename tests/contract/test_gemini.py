"""What Gemini is asked, and what is made of the shapes that only Gemini sends."""

import json

import pytest

from holdfast.errors import ProviderError, Unsupported
from holdfast.events import Finish, Notice, Picture, Text, Thought, ToolCall, Usage
from holdfast.server.config.settings import discovered
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.gemini.decoder import GeminiDecoder
from holdfast.upstreams.gemini.provider import GeminiOptions
from holdfast.upstreams.gemini.request import body_to
from holdfast_lab.contracts import PLAYED
from tests.contract.test_provider import listen
from tests.requirements import requirement
from tests.support.dialects.gemini import BEGIN, GEMINI, called, end, error, event, response, said
from tests.support.upstream import Raw, Status, Upstream

PNG = "iVBORw0KGgo="


@pytest.fixture
async def up():
    async with Upstream([Raw(BEGIN + end())]) as up:
        yield up


@pytest.fixture
async def provider(up):
    provider = GEMINI.provider(up)
    yield provider
    await provider.close()


def request(*messages, model="gemini-2.5-flash", **params):
    messages = list(messages) or [{"role": "user", "content": "Hello"}]
    return ChatRequest(model=model, messages=messages, params=params, patience=0.0)


def body(*messages, model="gemini-2.0-flash", thoughts=True, **params):
    return body_to(request(*messages, model=model, **params), thoughts=thoughts)


def call(id, name, arguments, **more):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} | more


async def play(up, provider, data, asked=None):
    up.enqueue([Raw(data)])
    return await listen(provider, asked or request())


# what is asked


@requirement("safe.secrets")
async def test_the_key_is_in_a_header_and_never_in_the_url(up, provider):
    """URLs are logged on the way."""
    await listen(provider, request(model="models/gemini-2.5-flash"))

    [asked] = up.requests
    assert "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse" == asked.path
    assert PLAYED.secret == asked.headers["x-goog-api-key"]


def test_a_conversation_is_said_in_geminis_words():
    """System messages are the instruction, neighbours of one role one content, results the user's."""
    asked = body(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add."},
        {"role": "user", "content": [{"type": "text", "text": "1 and 2"}]},
        {"role": "assistant", "content": None, "tool_calls": [call("c1", "add", '{"a": 1}'), call("c2", "now", "")]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"sum": 3}'},
        {"role": "tool", "tool_call_id": "c2", "content": "noon"},
        {"role": "developer", "content": "In German."},
    )

    assert {"parts": [{"text": "Be brief."}, {"text": "In German."}]} == asked["systemInstruction"]
    assert [
        {"role": "user", "parts": [{"text": "Add."}, {"text": "1 and 2"}]},
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "add", "args": {"a": 1}, "id": "c1"}},
                {"functionCall": {"name": "now", "args": {}, "id": "c2"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "add", "response": {"sum": 3}}},
                {"functionResponse": {"id": "c2", "name": "now", "response": {"result": "noon"}}},
            ],
        },
    ] == asked["contents"]


def test_pictures_sound_and_files_are_sent_as_they_are():
    """In the message, or by their address."""
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/jpg;base64,{PNG}", "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
    ]
    [content] = body({"role": "user", "content": parts})["contents"]

    assert [
        {"inlineData": {"mimeType": "image/jpeg", "data": PNG}},
        {"fileData": {"fileUri": "https://pictures.example/a.png"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
    ] == content["parts"]


def test_parameters_are_said_in_geminis_words():
    """What is Gemini's own stays as it is."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    asked = body(
        temperature=0.5,
        top_p=0.9,
        max_completion_tokens=7,
        stop="END",
        seed=3,
        response_format=form,
        safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        generationConfig={"topK": 5},
    )

    assert {
        "topK": 5,
        "temperature": 0.5,
        "topP": 0.9,
        "seed": 3,
        "maxOutputTokens": 7,
        "stopSequences": ["END"],
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    } == asked["generationConfig"]
    assert "BLOCK_NONE" == asked["safetySettings"][0]["threshold"]


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "add"}}, {"mode": "ANY", "allowedFunctionNames": ["add"]}),
    ],
)
def test_tools_and_how_they_are_chosen(choice, config):
    """Functions are declared; a tool of Google's stays as it is."""
    add = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    asked = body(tools=[{"type": "function", "function": add}, {"googleSearch": {}}], tool_choice=choice)

    declared = {"name": "add", "description": "Adds.", "parametersJsonSchema": {"type": "object"}}
    assert [{"functionDeclarations": [declared]}, {"googleSearch": {}}] == asked["tools"]
    assert {"functionCallingConfig": config} == asked["toolConfig"]


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-2.0-flash", None, None),
        ("gemini-2.5-flash", None, {"includeThoughts": True}),
        ("gemini-2.5-flash-image", None, None),
        ("gemini-2.5-pro", "low", {"includeThoughts": True, "thinkingBudget": 1024}),
        ("gemini-2.5-flash", "none", {"includeThoughts": True, "thinkingBudget": 0}),
        ("gemini-3-pro-preview", "high", {"includeThoughts": True, "thinkingLevel": "high"}),
    ],
)
def test_effort_is_a_level_or_a_budget_by_the_model(model, effort, thinking):
    """Models that do not think refuse to be asked for it."""
    given = {} if effort is None else {"reasoning_effort": effort}
    asked = body(model=model, **given)

    assert thinking == asked.get("generationConfig", {}).get("thinkingConfig")


def test_thoughts_are_not_asked_for_if_the_settings_say_so():
    """They cost tokens that not everybody wants to pay for."""
    assert "generationConfig" not in body(model="gemini-2.5-flash", thoughts=False)
    assert GeminiOptions().thoughts


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"reasoning_effort": "none", "model": "gemini-3-pro-preview"}, "reasoning_effort"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [{"type": "function", "function": {}}]}, "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}]}, "tools[0].type"),
    ],
)
def test_what_gemini_cannot_do_is_refused_by_name(params, field):
    """Nothing is left out in silence."""
    with pytest.raises(Unsupported) as refused:
        body(**params)

    assert field == refused.value.param


# thoughts


async def test_the_signature_of_a_call_goes_back_with_it(up, provider):
    """Gemini refuses the result of a call that it has not signed."""
    heard = await play(up, provider, end("STOP", called("add", {"a": 1}, thoughtSignature="c2lnbmVk")))
    [made], [thought] = heard.all(ToolCall), heard.all(Thought)
    asked = body(
        {"role": "user", "content": "Add."},
        {"role": "assistant", "tool_calls": [call(made.id, "add", made.arguments)], "thoughts": [thought.block]},
        {"role": "tool", "tool_call_id": made.id, "content": "3"},
        model="gemini-3-pro-preview",
    )

    assert "c2lnbmVk" == asked["contents"][1]["parts"][0]["thoughtSignature"]


def test_a_client_may_bring_the_signature_back_itself():
    """In the way of Google's own endpoint for OpenAI's dialect."""
    signed = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    asked = body({"role": "assistant", "tool_calls": [call("c", "add", "{}", **signed)]})

    assert "c2ln" == asked["contents"][0]["parts"][0]["thoughtSignature"]


def test_gemini_3_is_told_to_skip_the_check_of_a_signature_that_is_gone():
    """After a restart, or with a client that does not keep it, the conversation goes on."""
    calls = {"role": "assistant", "tool_calls": [call("a", "add", "{}"), call("b", "now", "{}")]}
    newer, older = body(calls, model="gemini-3-pro-preview"), body(calls, model="gemini-2.5-flash")

    assert [True, False] == ["thoughtSignature" in part for part in newer["contents"][0]["parts"]]
    assert [False, False] == ["thoughtSignature" in part for part in older["contents"][0]["parts"]]


# what is answered


@requirement("truth.content-filter", "truth.length", "truth.failed-result")
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("SOMETHING_NEW", "SOMETHING_NEW"),
    ],
)
async def test_finish_reasons_are_said_in_openais_words(up, provider, word, reason):
    """One that is not known is passed on: what it means is judged elsewhere."""
    heard = await play(up, provider, BEGIN + end(word))

    assert (PLAYED.text, [Finish(reason)], None) == (heard.text, heard.all(Finish), heard.error)


@requirement("truth.failed-result")
@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER"])
async def test_an_answer_that_ended_with_a_fault_has_failed(up, provider, word):
    """Gemini's own message says more than its word."""
    heard = await play(up, provider, BEGIN + end(word, finishMessage="Malformed call: print(add(a=1))"))

    assert isinstance(heard.error, ProviderError)
    assert "up failed: Malformed call: print(add(a=1))" == str(heard.error)
    assert [] == heard.all(Finish)


@requirement("truth.content-filter")
async def test_a_blocked_prompt_is_filtered_and_a_notice_says_why(up, provider):
    """There is no candidate, so there is no answer: that is no success."""
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 3}}
    heard = await play(up, provider, event(blocked))

    assert ("", [Finish("content_filter")], None) == (heard.text, heard.all(Finish), heard.error)
    assert [Notice("prompt_blocked", "up blocked the prompt: PROHIBITED_CONTENT")] == heard.all(Notice)


async def test_thoughts_are_counted_as_output_and_told_apart(up, provider):
    """Gemini counts them beside the answer; every frame counts anew, and only the last counts."""
    usage = {
        "promptTokenCount": 10,
        "toolUsePromptTokenCount": 2,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 7,
    }
    heard = await play(up, provider, BEGIN + end(usage=usage))

    assert [Usage(12, 12, "provider", 4, 7)] == [used for used in heard.all(Usage) if used.source == "provider"]


async def test_a_picture_is_one_of_the_answer_and_sound_is_left_out_with_a_notice(up, provider):
    """What the bytes are counts, not what they are called. A picture of a thought is none of the answer."""
    picture = {"inlineData": {"mimeType": "image/jpeg", "data": PNG}}
    sound = {"inlineData": {"mimeType": "audio/wav", "data": "UklGRgAAAABXQVZF"}}
    heard = await play(up, provider, BEGIN + response(picture) + response({**picture, "thought": True}) + end())
    spoken = await play(up, provider, BEGIN + response(sound) + end())

    assert ([Picture(f"data:image/png;base64,{PNG}")], []) == (heard.all(Picture), heard.all(Notice))
    assert (PLAYED.text, "content_left_out") == (spoken.text, spoken.all(Notice)[-1].code)


async def test_pictures_are_asked_for(up, provider):
    """Not every model answers with them by itself."""
    asked = body(modalities=["text", "image"])

    assert ["TEXT", "IMAGE"] == asked["generationConfig"]["responseModalities"]


async def test_a_wrong_key_is_no_fault_of_the_request(up, provider):
    """Gemini answers 400 to it, which a client would take for its own."""
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    told = error(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", details=details)
    up.enqueue([Status(400, told)])
    heard = await listen(provider, request())

    assert (502, "upstream_auth") == (heard.error.status, heard.error.code)


async def test_a_prompt_that_is_too_long_is_told_as_such(up, provider):
    """Clients act on that code: they cut their history."""
    words = "The input token count (1048580) exceeds the maximum number of tokens allowed (1048576)."
    up.enqueue([Status(400, error(400, "INVALID_ARGUMENT", words))])
    heard = await listen(provider, request())

    assert (400, "context_length_exceeded") == (heard.error.status, heard.error.code)


async def test_an_error_outside_of_the_event_stream_is_told(up, provider):
    """Without `alt=sse`, as some gateways ask, Gemini answers with a list."""
    up.enqueue([Status(200, json.dumps([error(500, "INTERNAL", "An internal error has occurred.")]))])
    heard = await listen(provider, request())

    assert "up failed: An internal error has occurred." == str(heard.error)


def test_any_cutting_of_the_bytes_gives_the_same_answer():
    """Where the network cuts says nothing."""
    whole = response({"text": "I wonder.", "thought": True}) + said("Héllo 🌊") + end("STOP", called("add", {"a": 1}))
    expected = told(whole)
    for cut in range(len(whole)):
        assert expected == told(whole[:cut], whole[cut:])


def told(*reads):
    decoder = GeminiDecoder("up")
    events = [event for read in reads for events in decoder.feed(read) for event in events]
    events = [msg if not isinstance(msg, ToolCall) else msg.arguments for msg in events]
    return [event for event in events if not hasattr(event, "id")], decoder.finished, decoder.error


# models


async def test_models_that_answer_are_listed_page_by_page(up, provider):
    """Those that embed are for something else."""
    answers = {"supportedGenerationMethods": ["generateContent", "countTokens"]}
    pages = {
        "": {"models": [{"name": "models/gemini-2.5-pro", **answers}], "nextPageToken": "two"},
        "two": {
            "models": [
                {"name": "models/text-embedding-004", "supportedGenerationMethods": ["embedContent"]},
                {"name": "models/gemini-2.5-flash", **answers},
            ]
        },
    }
    up.at["GET /v1beta/models"] = lambda asked: [Status(200, pages[asked.query("pageToken")])]

    assert ["gemini-2.5-pro", "gemini-2.5-flash"] == await provider.list_models()
    assert await provider.answers()
    assert all("key" not in asked.path for asked in up.others)


def test_a_key_in_the_environment_is_enough():
    """The provider is there as `gemini`, and the key goes to Google alone."""
    [found] = [each for each in discovered({"GEMINI_API_KEY": "g"}) if each.dialect == "gemini"]

    assert ("gemini", "g") == (found.name, found.key({"GEMINI_API_KEY": "g"}))
    assert "https://generativelanguage.googleapis.com/v1beta" == found.address()


async def test_text_is_shown_as_text(up, provider):
    """The reader sees the answer, and no part of a frame."""
    heard = await play(up, provider, said("<b>", "&amp;") + end())

    assert ["<b>", "&amp;"] == [piece.text for piece in heard.all(Text)]
