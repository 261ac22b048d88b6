"""Each kind of upstream as its documentation has it: the shapes it sends, and what it wants to be sent."""

from pathlib import Path
from typing import Any, get_args

import pytest

from holdfast.events import Finish, Reasoning, Text, Usage
from holdfast.log.reasoning import AnswerSplitter
from holdfast.server.config.settings import ProviderSettings, Settings, SettingsError
from holdfast.server.live.provider_factory import make_provider
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.openai.messages import messages_for
from holdfast.upstreams.profiles import PROFILES, ProfileName
from tests.requirements import requirement
from tests.support import outlets
from tests.support import upstream as u
from tests.support.upstream import REASONING, TEXT, Upstream

USER = {"role": "user", "content": "one"}
TWO = [USER, {"role": "user", "content": "two"}]
CUT_OFF = [USER, {"role": "assistant", "content": "Once upon "}]

IN_TEXT = ["openrouter", "groq", "ollama", "llamacpp", "lmstudio", "vllm"]
"""Who may leave `<think>` in the text: by model, by version or by a setting of its own."""
IN_A_FIELD = [(name, known.reasoning) for name, known in PROFILES.items() if known.reasoning]
JOINED = ["deepseek", "llamacpp", "lmstudio", "vllm"]


@pytest.fixture
async def up():
    async with Upstream() as up:
        yield up


async def ask(up: Upstream, profile: str | None, messages=(USER,), goes_on: bool = False, **fields: Any) -> list[Any]:
    """The events of one answer from U, asked as that kind of upstream is asked."""
    described = ProviderSettings("up", profile=profile, base_url=up.base_url, **fields)
    provider = make_provider(described, Settings(), {})
    try:
        request = ChatRequest(model="m", messages=list(messages), goes_on=goes_on)
        events = [event async for events in outlets.answer(provider, request) for event in events]
        return AnswerSplitter(provider.think).feed(events)
    finally:
        await provider.close()


def text(events: list[Any], kind: type = Text) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def counted(events: list[Any]) -> list[Usage]:
    return [event for event in events if isinstance(event, Usage) and event.source == "provider"]


def test_every_profile_can_be_set_and_is_described():
    """A profile that nobody can find is of no use."""
    page = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")

    assert set(get_args(ProfileName)) == set(PROFILES)
    assert [] == [name for name in PROFILES if f"\n| `{name}` |" not in page]


# who sends what


@pytest.mark.parametrize("profile", IN_TEXT)
async def test_thinking_that_is_left_in_the_text_is_taken_out(up, profile):
    """The reader should see the answer, and history must not hold the thoughts."""
    up.script = u.ENDINGS["think"]
    events = await ask(up, profile)

    assert (REASONING, TEXT) == (text(events, Reasoning), text(events))


@pytest.mark.parametrize("profile", ["openai", "deepseek"])
async def test_who_never_sends_tags_is_taken_at_its_word(up, profile):
    """An answer about `<think>` may well begin with it."""
    up.script = u.answer("<think> is a tag of", " some models.")

    assert "<think> is a tag of some models." == text(await ask(up, profile))


@pytest.mark.parametrize(("profile", "field"), [*IN_A_FIELD, ("vllm", "reasoning_content"), ("lmstudio", "reasoning")])
async def test_reasoning_in_a_field_of_its_own_is_reasoning(up, profile, field):
    """Which field it is has changed before: vLLM's had the other name."""
    up.script = u.ODDITIES["reasoning" if field == "reasoning" else "reasoning-content"]
    events = await ask(up, profile)

    assert (REASONING, TEXT) == (text(events, Reasoning), text(events))


async def test_the_comments_of_openrouter_are_no_part_of_the_answer(up):
    """It sends them while the model behind it is silent."""
    processing = u.Raw(b": OPENROUTER PROCESSING\n\n")
    up.script = [u.Headers(), processing, processing, *u.answer(TEXT)[1:]]
    events = await ask(up, "openrouter")

    assert TEXT == text(events)
    assert Finish("stop") in events


async def test_the_usage_of_groq_is_found_where_groq_puts_it(up):
    """It stands in `x_groq` of the last chunk, and nowhere else where it was not asked for."""
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "x_groq": {"id": "req_1", "usage": {"queue_time": 0.1, "prompt_tokens": 3, "completion_tokens": 5}},
    }
    up.script = [u.Headers(), u.Role(), u.Delta(TEXT), u.Chunk(last), u.Done()]

    assert [Usage(3, 5, "provider")] == counted(await ask(up, "groq"))


async def test_what_else_stands_in_x_groq_does_no_harm(up):
    """Its first chunk has an id there."""
    first = {"choices": [{"index": 0, "delta": {"role": "assistant"}}], "x_groq": {"id": "req_1"}}
    up.script = [u.Headers(), u.Chunk(first), *u.answer(TEXT)[2:]]

    assert TEXT == text(await ask(up, "groq"))


@pytest.mark.parametrize("profile", ["lmstudio", "ollama"])
async def test_an_answer_without_usage_is_whole_all_the_same(up, profile):
    """Older versions count nothing in a stream. The engine estimates then."""
    up.script = [u.Headers(), u.Role(), u.Delta(TEXT), u.Finish(), u.Done()]
    events = await ask(up, profile)

    assert ([], TEXT, Finish("stop")) == (counted(events), text(events), events[-1])


@pytest.mark.parametrize("profile", [*PROFILES, None])
async def test_an_upstream_that_refuses_stream_options_is_asked_without_them(up, profile):
    """Whether it takes them depends on its version, and a count of tokens is not worth an answer."""
    refusal = {"error": {"message": "Unrecognized request argument: stream_options", "type": "invalid_request_error"}}
    up.enqueue([u.Status(400, refusal)], u.answer(TEXT))
    events = await ask(up, profile)

    assert TEXT == text(events)
    assert ["stream_options" in request.body for request in up.requests] == [True, False]


async def test_who_is_known_to_refuse_stream_options_is_never_sent_them(up):
    """`usage = false` saves the request that would be refused."""
    await ask(up, "lmstudio", usage=False)

    assert ["stream_options" in request.body for request in up.requests] == [False]


# who wants what


@pytest.mark.parametrize("profile", JOINED)
async def test_messages_in_a_row_are_joined_for_who_insists_on_turns(up, profile):
    """A run that was stopped before its first word leaves two, and those upstreams answer 400 to them."""
    await ask(up, profile, TWO)

    assert [{"role": "user", "content": "one\n\ntwo"}] == up.requests[0].body["messages"]


@pytest.mark.parametrize("profile", [*sorted(set(PROFILES) - set(JOINED)), None])
async def test_messages_in_a_row_are_left_alone_for_all_others(up, profile):
    """What a person wrote as two messages is two, wherever that is allowed."""
    await ask(up, profile, TWO)

    assert TWO == up.requests[0].body["messages"]


async def test_vllm_is_told_to_go_on_with_the_last_message(up):
    """It answers that message else; and add_generation_prompt would contradict."""
    await ask(up, "vllm", CUT_OFF, goes_on=True)
    sent = up.requests[0].body

    assert (True, False) == (sent["continue_final_message"], sent["add_generation_prompt"])
    assert CUT_OFF == sent["messages"]


async def test_deepseek_has_the_last_message_marked(up):
    """On its beta, the only place where it can be done."""
    await ask(up, "deepseek", CUT_OFF, goes_on=True, prefills=True)

    assert [USER, {**CUT_OFF[1], "prefix": True}] == up.requests[0].body["messages"]


@pytest.mark.parametrize("profile", ["ollama", "llamacpp"])
async def test_who_goes_on_by_itself_is_told_nothing(up, profile):
    """The last message says it all."""
    await ask(up, profile, CUT_OFF, goes_on=True)

    assert {"messages", "model", "stream", "stream_options"} == up.requests[0].body.keys()
    assert CUT_OFF == up.requests[0].body["messages"]


@pytest.mark.parametrize("profile", ["vllm", "deepseek"])
async def test_a_new_answer_is_not_asked_to_go_on(up, profile):
    """Else vLLM would refuse: there is nothing to go on with."""
    await ask(up, profile)

    assert {"messages", "model", "stream", "stream_options"} == up.requests[0].body.keys()
    assert [USER] == up.requests[0].body["messages"]


def test_who_goes_on_with_its_own_message_is_known():
    """All others are asked in a turn of their own, which any model can do."""
    assert {"ollama", "llamacpp", "vllm"} == {name for name, known in PROFILES.items() if known.prefills}


# the table and the profile


def test_what_the_table_says_wins_over_the_profile():
    """A profile is what is known of most; its owner knows better."""
    described = ProviderSettings("up", profile="vllm", base_url="http://gpu:8000/v1", alternate=False, prefills=False)
    known = described.behaviour()

    assert ("http://gpu:8000/v1", False, False) == (known.base_url, known.alternate, known.prefills)
    assert PROFILES["vllm"].prefill_params == known.prefill_params


def test_a_profile_brings_its_address_and_its_key():
    """`name` and `profile` are enough."""
    described = ProviderSettings("fast", profile="groq")

    assert "https://api.groq.com/openai/v1" == described.behaviour().base_url
    assert "k" == described.key({"GROQ_API_KEY": "k"})


def test_the_key_of_a_service_is_not_sent_to_another_address():
    """A key that goes astray is a key that has to be changed."""
    environ = {"OPENAI_API_KEY": "secret"}

    assert None is ProviderSettings("up", profile="openai", base_url="http://elsewhere/v1").key(environ)
    assert None is ProviderSettings("up", base_url="http://elsewhere/v1").key(environ)


def test_without_a_profile_an_address_is_needed():
    """To send prompts to OpenAI because a line was forgotten would be a leak."""
    with pytest.raises(SettingsError, match="base_url"):
        make_provider(ProviderSettings("up"), Settings(), {"OPENAI_API_KEY": "k"})


SYSTEM_LATE = [
    {"role": "developer", "content": "Be kind."},
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "system", "content": "It is late."},
    {"role": "user", "content": "And now?"},
]


@requirement("wire.strict-templates")
def test_a_strict_template_gets_one_system_message_and_then_turns():
    """Claude Code sends system messages in mid-conversation, Codex several of a developer; templates raise on both."""
    shown = messages_for(SYSTEM_LATE, strict=True, developer=False, reasoning=False)

    assert [
        {"role": "system", "content": "Be kind.\n\nBe brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "It is late.\n\nAnd now?"},
    ] == shown


@requirement("wire.strict-templates")
def test_only_an_upstream_that_knows_developers_is_sent_their_role():
    """Most servers know only OpenAI's older roles."""
    for knows in (True, False):
        shown = messages_for(SYSTEM_LATE, strict=False, developer=knows, reasoning=False)

        assert ("developer" if knows else "system") == shown[0]["role"]
        assert SYSTEM_LATE[1:] == shown[1:]
