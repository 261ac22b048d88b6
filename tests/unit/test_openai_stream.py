"""The decoder of OpenAI's dialect: the same bytes give the same events, however they are cut."""

import json
import re
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ProviderBroke, ProviderError
from holdfast.events import Finish, Notice, Reasoning, Text, ToolCall, ToolDelta, Usage
from holdfast.log.reasoning import AnswerSplitter
from holdfast.upstreams.openai.decoder import AnswerDecoder
from tests.requirements import requirement
from tests.support.outlets import as_events

DONE = b"data: [DONE]\n\n"


def frame(value, event=None, newline="\n"):
    data = value if isinstance(value, str) else json.dumps(value)
    head = f"event: {event}{newline}" if event else ""
    return f"{head}data: {data}{newline}{newline}".encode("utf-8", "surrogatepass")


def chunk(delta=None, finish=None, index=0, **more):
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    } | more


def text(content, **more):
    return chunk({"content": content}, **more)


def call(index=0, id=None, name=None, arguments=None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    piece = {"index": index, "id": id, "function": function}
    return chunk({"tool_calls": [{key: value for key, value in piece.items() if value is not None}]})


def custom(index=0, id=None, name=None, input=None):
    given = {key: value for key, value in (("name", name), ("input", input)) if value is not None}
    begin = {"id": id, "type": "custom"} if id else {}
    return chunk({"tool_calls": [{"index": index, "custom": given, **begin}]})


def stream(*chunks, end=DONE):
    return b"".join(map(frame, chunks)) + end


def decode(*reads, cut=False, **options):
    """The events and the error of these reads and of the end after them."""
    decoder = AnswerDecoder("up", **options)
    events = [event for read in reads for said in decoder.feed(read) for event in as_events(said)]
    return events + as_events(decoder.end(cut=cut)), decoder.error


def events_of(*chunks, end=DONE, **options):
    events, error = decode(stream(*chunks, end=end), **options)
    assert error is None
    return events


def said(events, kind=Text, choice=0):
    return "".join(event.text for event in events if isinstance(event, kind) and event.choice == choice)


RECORDED = {
    "openai": stream(
        chunk({"role": "assistant", "content": "", "refusal": None}),
        *(text(word, usage=None, obfuscation="x" * n) for n, word in enumerate(["Hé", "llo ", "wörld", " 🌊", ""])),
        chunk(finish="stop"),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    ),
    "crlf, comments and a byte order mark": b"\xef\xbb\xbf: hello\r\n\r\n"
    + b"".join(frame(text(word), newline="\r\n") + b":\r\n" for word in ["one", "two", "three"])
    + frame(chunk(finish="length"), newline="\r\n"),
    "reasoning": stream(
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning": ", well"}),
        *map(text, ["<th", "ink>let me", " see</thi", "nk>\n", "So: <think> is a tag."]),
        chunk(finish="stop"),
    ),
    "tools": stream(
        call(0, "call_a", "add", ""),
        call(1, "call_b", "mul", '{"x":'),
        call(0, arguments='{"a": "é'),
        call(1, arguments="2}"),
        call(0, arguments='🌊"}'),
        chunk(finish="tool_calls"),
    ),
    "a call in the older way": stream(
        chunk({"content": None, "function_call": {"name": "add", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"a": "é'}}),
        chunk({"function_call": {"arguments": '🌊"}'}}),
        chunk(finish="function_call"),
    ),
    "a call of a custom tool": stream(
        custom(0, "call_a", "run", ""),
        custom(0, input='print("é")'),
        call(1, "call_b", "add", '{"x":2}'),
        custom(0, input=" }]"),
        chunk(finish="tool_calls"),
    ),
    "refusal": stream(
        chunk({"content": None, "refusal": "<think>I "}),
        chunk({"refusal": "can't \ud83c"}),
        chunk({"refusal": "\udf0a</think>"}),
        chunk(finish="stop"),
    ),
    "pictures beside text": stream(text("See: "), chunk({"images": [{"image_url": {"url": "data:"}}]}), text("!")),
    "audio alone": stream(
        chunk({"content": None, "audio": {"id": "a"}}), chunk({"audio": {"data": "QQ=="}}), chunk(finish="stop")
    ),
    "torn emoji": stream(text("a\ud83c"), text("\udf0ab"), text("\ud83c"), text("c"), chunk(finish="stop")),
    "two choices": stream(
        text("a"),
        text("b", index=1),
        text("A"),
        chunk(finish="stop"),
        text("B", index=1),
        chunk(finish="length", index=1),
    ),
    "error": stream(text("so far"), {"error": {"message": "overloaded"}}),
    "error event": frame(text("so far")) + frame({"message": "overloaded"}, event="error"),
    "garbage": stream(text("so far"), "{'not': json}", text("lost")),
    "no end": stream(text("so far"), end=b""),
    "no blank line": stream(text("whole"), chunk(finish="stop"), end=b"data: [DONE]"),
    "whole": json.dumps({"choices": [{"message": {"content": "Hé"}, "finish_reason": "stop"}]}).encode(),
    "html": b"  \n<!doctype html><p>Sign in</p>",
    "json error": b'{"error": {"message": "no"}}',
}


def observe(events, error):
    return [*map(without_made_up_id, events)], type(error), str(error)


def without_made_up_id(event):
    """A call in the older way has no id of its own, so it gets another one each time."""
    is_made_up = getattr(event, "kind", "") == "function_call"
    return msgspec.structs.replace(event, id="") if is_made_up else event


@requirement("start.text-exact")
@pytest.mark.parametrize("name", RECORDED)
def test_byte_by_byte_gives_the_same_events(name):
    """TCP cuts where it likes: inside a character, between CR and LF, inside `[DONE]`."""
    recorded = RECORDED[name]

    assert observe(*decode(recorded)) == observe(*decode(*(recorded[at : at + 1] for at in range(len(recorded)))))


@requirement("start.text-exact")
@given(name=st.sampled_from(sorted(RECORDED)), cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_any_cutting_gives_the_same_events(name, cuts):
    """The same answer must not end differently because a packet was lost on its way."""
    recorded = RECORDED[name]
    places = [0, *sorted(min(cut, len(recorded)) for cut in cuts), len(recorded)]
    reads = [recorded[a:b] for a, b in pairwise(places)]

    assert observe(*decode(recorded)) == observe(*decode(*reads))


def in_the_plainest_way(body):
    """What the answer is, decoded without any short cut."""
    visible = {}
    for line in body.decode().split("\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                content = (choice["delta"] or {}).get("content")
                visible.setdefault(choice["index"], []).extend([content] if content else [])
    return visible


def in_some_order(content, index, beside_text, beside_choices, text_first):
    delta = {"content": content}
    delta = delta | beside_text if text_first else beside_text | delta
    choices = {"choices": [{"index": index, "delta": delta, "finish_reason": None}]}
    return choices | beside_choices if text_first else beside_choices | choices


contents = st.one_of(
    st.sampled_from(["a", "a", "b", '","content":"', '"', "\\", "🌊", "", None]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
shapes = st.tuples(
    st.sampled_from([0, 0, 1]),
    st.sampled_from([{}, {"role": "assistant"}, {"refusal": None}, {"extra": {"content": "z"}}]),
    st.sampled_from([{}, {"usage": None}, {"p": '"content":"y"'}, {"content": "top"}, {"x": {"content": "y"}}]),
    st.booleans(),
)


@requirement("start.text-exact")
@given(runs=st.lists(st.tuples(shapes, st.lists(contents, min_size=1, max_size=12)), max_size=4), spaces=st.booleans())
def test_the_short_way_through_plain_chunks_reads_what_the_long_way_reads(runs, spaces):
    """Chunks are recognised by the bytes around their text; that must never be a guess."""
    chunks = [text("first"), *(in_some_order(content, *shape) for shape, said in runs for content in said)]
    separators = (", ", ": ") if spaces else (",", ":")
    reads = [f"data: {json.dumps(c, ensure_ascii=False, separators=separators)}\n\n".encode() for c in chunks]
    body = b"".join(reads)
    events, error = decode(body + DONE)

    assert error is None
    assert (events, error) == decode(*reads, DONE), "each of them alone is read by the shortest way"
    for choice, deltas in in_the_plainest_way(body).items():
        assert deltas == [event.text for event in events if isinstance(event, Text) and event.choice == choice]


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (text("b", usage={"prompt_tokens": 1, "completion_tokens": 1}), [Text("b"), Finish("length"), Usage(1, 1)]),
        (text("b", finish="stop"), [Text("b"), Finish("stop")]),
        (call(0, "c", "f"), [ToolDelta(0, "c", "f"), Finish("length")]),
        (chunk({"content": "b", "reasoning_content": "hm"}), [Reasoning("hm"), Text("b"), Finish("length")]),
        (text("b", index=1), [Text("b", 1), Finish("length", 0), Finish("stop", 1)]),
    ],
)
def test_a_chunk_that_holds_more_is_not_taken_for_a_plain_one(odd, expected):
    """What a text chunk brings along must not be lost because many before it brought nothing."""
    events = events_of(*[text("a")] * 20, odd, chunk(finish="length"))

    assert [Text("a")] * 20 + expected == events


@requirement("truth.in-band-error")
def test_a_plain_chunk_with_unreadable_bytes_where_nobody_looks_is_read_as_any_other():
    """A field that is not ours may hold anything: only what is shown has to be text."""
    body = b"".join(
        b'data: {"fingerprint":"\xff","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % n for n in range(40)
    )

    for reads in ([body + DONE], [body[:500], body[500:], DONE]):
        events, error = decode(*reads)

        assert error is None
        assert "".join(map(str, range(40))) == "".join(event.text for event in events if isinstance(event, Text))


def test_an_error_event_that_looks_like_a_plain_chunk_is_an_error():
    """The name of the event says what it is."""
    events, error = decode(stream(*[text("a")] * 20, end=b"") + frame(text("a"), event="error"))

    assert [Text("a")] * 20 == events
    assert isinstance(error, ProviderError)


# endings


@requirement("truth.completed")
def test_done_without_a_finish_reason_completes_an_answer():
    """Some servers never give a reason, but `[DONE]` says that they meant to end."""
    assert [Text("hi"), Finish("stop")] == events_of(text("hi"))


@requirement("truth.completed")
@pytest.mark.parametrize("cut", [False, True])
def test_a_finish_reason_without_done_completes_an_answer(cut):
    """The upstream said why it ended; how the connection went away adds nothing to that."""
    events, error = decode(stream(text("hi"), chunk(finish="stop"), end=b""), cut=cut)

    assert ([Text("hi"), Finish("stop")], None) == (events, error)


@requirement("truth.eof")
def test_an_end_that_says_nothing_is_a_failure():
    """A proxy that gave up looks exactly like this."""
    events, error = decode(stream(text("so far"), end=b""))

    assert [Text("so far")] == events
    assert isinstance(error, ProviderBroke)
    assert "up ended its stream before the answer was complete." == str(error)


@requirement("truth.cut")
def test_a_cut_in_the_middle_of_an_event_is_a_cut_and_keeps_what_was_whole():
    """The half event is no garbage: it is where the connection broke."""
    events, error = decode(stream(text("so far"), text("lost"), end=b"")[:-20], cut=True)

    assert [Text("so far")] == events
    assert "up broke off the connection in the middle of its answer." == str(error)


@pytest.mark.parametrize("body", [DONE, frame({"choices": []}) + DONE, frame({"usage": {"prompt_tokens": 1}}) + DONE])
def test_done_without_any_choice_is_a_failure(body):
    """Nothing was said, so nothing was completed."""
    _, error = decode(body)

    assert "up ended its stream without an answer in it." == str(error)


@requirement("truth.in-band-error")
@pytest.mark.parametrize(
    "failure",
    [
        frame({"error": {"message": "overloaded", "code": 503}}),
        frame({"error": "overloaded"}),
        frame({"error": {"message": "overloaded"}, "choices": []}),
        frame({"object": "error", "message": "overloaded", "code": 50001}),
        frame({"error": {"message": "overloaded"}}, event="error"),
        frame({"message": "overloaded"}, event="error"),
        frame("overloaded", event="error"),
        frame({"type": "error", "error": {"message": "overloaded"}}),
    ],
)
def test_an_error_in_the_stream_is_a_failure_in_the_upstreams_words(failure):
    """It is as much a failure as a status of 500 would have been; the text before it stays."""
    events, error = decode(frame(text("so far")) + failure + frame(chunk(finish="stop")) + DONE)

    assert [Text("so far")] == events
    assert ("upstream_error", "up failed: overloaded") == (error.code, str(error))


@requirement("truth.in-band-error")
def test_text_in_the_very_chunk_of_the_error_is_kept():
    """OpenRouter says both in one chunk."""
    events, error = decode(stream(text("so far"), text(" and on", error={"message": "cut"})))

    assert "so far and on" == said(events)
    assert isinstance(error, ProviderError)


def test_a_finish_reason_of_error_is_told_as_an_error():
    """It is the one reason that says a failure, without an error beside it."""
    events = events_of(text("so far"), chunk(finish="error"))

    assert ("error", "upstream_error") == (events[-1].reason, events[-1].error.code)


@requirement("truth.redacted")
def test_what_the_upstream_says_is_redacted():
    """An error in the stream quotes the key as readily as any other."""
    _, error = decode(stream({"error": {"message": "bad key my-own-secret-key"}}), secrets=["my-own-secret-key"])

    assert "up failed: bad key [redacted]" == str(error)


@pytest.mark.parametrize(
    "garbage",
    [
        *("{'choices': []}", '{"choices": [', "null", "1", '"text"', "[]", '{"choices": "x"}', "{}{}", "hello there"),
        r'{"choices": [{"index": "\ud83d", "delta": {"content": "lost"}}]}',
        r'{"\ud83d": 1, "choices": []}',
    ],
)
def test_a_chunk_that_cannot_be_read_is_a_failure(garbage):
    """To skip it would lose text, and nobody would know."""
    events, error = decode(stream(text("so far"), garbage, text("more"), chunk(finish="stop")))

    assert [Text("so far")] == events
    assert isinstance(error, ProviderBroke)
    assert re.fullmatch(r"up sent (something that is not JSON|JSON that is no part of an answer)\.", str(error))


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"choices":' * 100_000, '{"x":' + "[" * 5000 + "]" * 5000 + "}"])
@requirement("safe.redos")
def test_deep_nesting_breaks_the_answer_and_nothing_else(deep):
    """A recursion without limit would end the process."""
    _, error = decode(frame(deep))

    assert isinstance(error, ProviderBroke)


@pytest.mark.parametrize(
    "harmless",
    [
        frame({"choices": None}),
        frame({"choices": []}),
        frame({}),
        frame({"choices": [{"index": 0, "delta": None}]}),
        frame({"choices": [{"index": 0, "delta": {"content": None, "tool_calls": None}, "finish_reason": None}]}),
        frame({"choices": [{"index": None, "delta": {}, "finish_reason": ""}]}),
        frame({"choices": [{"delta": {}, "finish_reason": "null"}], "error": None, "usage": None}),
        frame({"choices": [{"delta": {"role": "assistant"}}]}),
        frame(" "),
        frame("2026-01-01", event="ping"),
        b"id: 7\nretry: 5\n\n: still here\n\ndata\n\n",
    ],
)
def test_an_empty_chunk_changes_nothing(harmless):
    """Real upstreams send all of these."""
    body = (
        frame(text("one")) + harmless + frame(text(" two")) + harmless + frame(chunk(finish="stop")) + harmless + DONE
    )

    assert ([Text("one"), Text(" two"), Finish("stop")], None) == decode(body)


def test_after_its_finish_reason_a_choice_says_nothing_more():
    """The first ending stands."""
    events = events_of(*[text("x")] * 20, chunk(finish="stop"), text("x"), text("late"), chunk(finish="length"))

    assert [*[Text("x")] * 20, Finish("stop")] == events


@pytest.mark.parametrize("last", [frame(chunk(finish="stop")), DONE, frame({"error": {"message": "no"}})])
@pytest.mark.parametrize("before", [1, 60])
def test_what_is_said_after_the_end_is_not_taken_for_more_however_much_it_is(last, before):
    """A long read is not looked at chunk by chunk: the shorter way must end where the longer one does."""
    body = stream(*[text("so far ")] * before, end=last) + stream(*[text("too much ")] * 60)
    for reads in ([body], [body[: len(body) // 3], body[len(body) // 3 :]], [bytes([byte]) for byte in body]):
        assert "so far " * before == said(decode(*reads)[0])


def test_after_done_nobody_says_anything():
    """What follows the end is somebody else's."""
    events, error = decode(stream(text("whole"), chunk(finish="stop")) + frame({"error": "late"}) + b"\xff garbage")

    assert ([Text("whole"), Finish("stop")], None) == (events, error)


def test_a_finish_reason_may_be_any_word():
    """What an unknown word means is not for the provider to say."""
    assert Finish("eos_token") == events_of(text("hi"), chunk(finish="eos_token"))[-1]


# several choices


def test_each_choice_has_its_own_text_and_finish_reason():
    """`n` answers are told apart from the first delta to the last reason."""
    events, error = decode(RECORDED["two choices"], choices=2)

    assert error is None
    assert ("aA", "bB") == (said(events), said(events, choice=1))
    assert [Finish("stop", 0), Finish("length", 1)] == [event for event in events if isinstance(event, Finish)]


@requirement("truth.cut")
def test_one_whole_answer_of_two_is_no_whole_answer():
    """Its `Finish` is held back: the engine would call the run completed although half of it is missing."""
    events, error = decode(stream(text("a"), text("b", index=1), chunk(finish="stop"), end=b""), choices=2, cut=True)

    assert [Text("a"), Text("b", 1)] == events
    assert isinstance(error, ProviderBroke)


@requirement("truth.cut")
def test_one_whole_answer_before_the_second_has_begun_is_no_whole_answer():
    """Some upstreams send one choice after the other; a cut in between takes the second away."""
    events, error = decode(stream(text("a"), chunk(finish="stop"), end=b""), choices=2, cut=True)

    assert [Text("a")] == events
    assert isinstance(error, ProviderBroke)


def test_an_upstream_that_ignores_n_completes_with_what_it_gave():
    """One answer instead of two is what it said it would give, by ending."""
    assert [Text("a"), Finish("stop")] == events_of(text("a"), chunk(finish="stop"), choices=2, end=b"")


# text, reasoning, tools


@requirement("start.reasoning-apart")
def test_reasoning_is_told_from_the_answer():
    """By its own field, by whichever name, and, for whoever reads the answer, by the tags around it."""
    events = AnswerSplitter().feed(decode(RECORDED["reasoning"])[0])

    assert "Hm, welllet me see" == said(events, Reasoning)
    assert "So: <think> is a tag." == said(events)


@requirement("start.reasoning-apart")
def test_reasoning_that_comes_under_both_names_is_shown_once():
    """Another Holdfast says it twice, since clients read one name or the other."""
    events = events_of(chunk({"reasoning": "hm", "reasoning_content": "hm"}), text("hi"))

    assert [Reasoning("hm"), Text("hi"), Finish("stop")] == events


@requirement("start.reasoning-apart")
def test_content_in_parts_is_read_as_text_and_reasoning():
    """Mistral's thinking models send their content as a list."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    events = events_of(text([thinking]), text([{"type": "text", "text": "so"}]), text("!"), chunk(finish="stop"))

    assert [Reasoning("hm"), Text("so"), Text("!"), Finish("stop")] == events


def test_tags_are_left_to_whoever_reads_the_answer():
    """Only there it is known whether an upstream means them."""
    assert "<think>a</think>b" == said(events_of(text("<think>a</think>b")))


@requirement("truth.cut")
def test_what_was_held_back_as_a_possible_tag_is_shown_when_the_answer_breaks():
    """`<th` was part of what the model said."""
    events, error = decode(stream(text("<th"), end=b""))

    assert [Text("<th")] == events
    assert error is not None


@requirement("truth.whole-answer")
def test_a_refusal_is_text_that_says_so():
    """It is what the model said instead of an answer: it must be seen, and clients look for it in its own place."""
    events, error = decode(RECORDED["refusal"])

    assert error is None
    assert "<think>I can't 🌊</think>" == said(events)
    assert {True} == {event.refusal for event in events if isinstance(event, Text)}
    assert Finish("stop") == events[-1]


@requirement("truth.whole-answer")
def test_half_an_emoji_at_the_end_of_a_refusal_is_not_lost():
    """What is held back belongs to the refusal, also where its other half never comes."""
    events = events_of(chunk({"refusal": "No \ud83c"}), chunk(finish="stop"))

    assert "No \ufffd" == said(events)
    assert all(event.refusal for event in events if isinstance(event, Text))


@requirement("truth.whole-answer")
@pytest.mark.parametrize("end", [chunk(finish="function_call"), chunk()], ids=["told", "not told"])
def test_a_call_in_the_older_way_is_a_call(end):
    """`functions` are still in use, and some servers answer `tools` with a `function_call`."""
    events = events_of(
        chunk({"function_call": {"name": "add", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}}), end
    )

    (whole,) = [event for event in events if isinstance(event, ToolCall)]
    assert ("add", "{}", "function_call") == (whole.name, whole.arguments, whole.kind)
    assert whole.id
    assert {"function_call"} == {event.kind for event in events if isinstance(event, ToolDelta)}
    assert Finish("function_call") == events[-1]


@requirement("truth.whole-answer")
def test_a_call_in_the_older_way_is_one_call_whatever_its_server_repeats():
    """There is only one in an answer, so a name that comes again begins no other."""
    piece = chunk({"function_call": {"name": "add", "arguments": "{}"}})
    events = events_of(piece, chunk({"function_call": {"name": "add", "arguments": ""}}), chunk(finish="function_call"))

    assert [("add", "{}")] == [(event.name, event.arguments) for event in events if isinstance(event, ToolCall)]


@requirement("truth.whole-answer")
def test_a_call_of_a_custom_tool_keeps_its_name_and_its_text():
    """Its input is any text, and other calls may stand between its pieces."""
    events, _ = decode(RECORDED["a call of a custom tool"])

    assert [
        ToolCall("call_a", "run", 'print("é") }]', kind="custom"),
        ToolCall("call_b", "add", '{"x":2}'),
    ] == [event for event in events if isinstance(event, ToolCall)]


@requirement("truth.whole-answer")
@pytest.mark.parametrize(
    ("delta", "what"),
    [
        ({"audio": {"id": "a", "transcript": "Hello"}}, "audio"),
        ({"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}, "pictures"),
        ({"images": [{"type": "image_url", "image_url": {"url": "javascript:alert(1)"}}]}, "pictures"),
        ({"content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, "pictures"),
        ({"reasoning": "I draw.", "images": [{}]}, "pictures"),
    ],
)
@pytest.mark.parametrize("end", [[chunk(finish="stop")], []], ids=["with a reason", "without"])
def test_an_answer_that_cannot_be_passed_on_is_no_empty_answer(delta, what, end):
    """Told as completed it would look as if the model had nothing to say."""
    events, error = decode(stream(chunk(delta), *end))

    assert ("unsupported_content", f"up answered with {what} alone, which cannot be passed on. Ask for text.") == (
        error.code,
        str(error),
    )
    assert [] == [event for event in events if isinstance(event, (Text, Finish))]


@requirement("truth.whole-answer")
def test_what_is_left_out_beside_text_is_told():
    """The text is an answer all the same."""
    events, error = decode(RECORDED["pictures beside text"])

    assert ("See: !", None) == (said(events), error)
    assert [Notice("content_left_out", "up sent pictures too, which cannot be passed on.")] == [
        event for event in events if isinstance(event, Notice)
    ]


def test_fields_that_are_there_and_empty_are_nothing():
    """Servers send every field that they know with each chunk."""
    empty = {"refusal": None, "function_call": None, "audio": None, "images": [], "tool_calls": None}

    assert [Text("a"), Text("b"), Text("c"), Finish("stop")] == events_of(
        *(chunk({"content": word, **empty}) for word in "abc"), chunk(finish="stop")
    )


def test_halves_of_an_emoji_are_joined_and_lonely_ones_replaced():
    """A lone surrogate can be neither sent nor stored, and msgspec refuses to read it."""
    events, error = decode(RECORDED["torn emoji"])

    assert error is None
    assert "a🌊b\ufffdc" == said(events)
    assert "a\ufffd" == said(events_of(text("a\ud83c"), chunk(finish="stop")))
    assert "\ufffdb" == said(events_of(text("\udf0ab")))
    assert msgspec.json.encode(events)


def test_halves_of_an_emoji_are_joined_in_each_place_by_itself():
    """Reasoning, arguments and other choices go on in between."""
    events = events_of(
        text("\ud83c"), chunk({"reasoning": "\ud83c"}), call(0, "a", "f", '"\ud83c'), text("x", index=1),
        text("\udf0a"), chunk({"reasoning": "\udf0a"}), call(0, arguments='\udf0a"'),
    )  # fmt: skip

    assert ("🌊", "🌊", "x") == (said(events), said(events, Reasoning), said(events, choice=1))
    assert '"🌊"' == next(event.arguments for event in events if isinstance(event, ToolCall))


def test_bytes_that_are_no_utf8_are_replaced():
    """A stream is not dead because one byte of it is."""
    body = stream(text("a"), end=b"") + b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n' + DONE

    assert "a\ufffd" == said(decode(body)[0])


def test_logprobs_are_kept_as_they_came():
    """Nobody here needs to understand them."""
    logprobs = {"content": [{"token": "hi", "logprob": -0.5}]}
    chunks = [text("a"), text("hi"), text("ho"), chunk(finish="stop")]
    chunks[1]["choices"][0]["logprobs"] = logprobs
    chunks[2]["choices"][0]["logprobs"] = None
    events = events_of(*chunks)

    assert [None, logprobs, None] == [event.logprobs for event in events[:3]]


@pytest.mark.parametrize("odd", [5, "x", [], [1], True, {"content": 5}, {"content": "x"}, {"content": {}}])
def test_logprobs_of_an_odd_shape_are_left_out(odd):
    """The words beside them are what was asked for; every wire reads `content` as a list."""
    chunks = [text("a"), text("b"), chunk(finish="stop")]
    chunks[0]["choices"][0]["logprobs"] = chunks[1]["choices"][0]["logprobs"] = odd
    events = events_of(*chunks)

    assert [("a", None), ("b", None)] == [(event.text, event.logprobs) for event in events[:2]]


@pytest.mark.parametrize("unreadable", [b'"\xff"', b"1e999"])
def test_logprobs_that_cannot_be_read_are_left_out(unreadable):
    """A byte or a number that nobody can make sense of takes neither the words beside it nor the answer away."""
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":%b}]}}]}\n\n'
    events, error = decode(frame(text("a")) + odd % unreadable + stream(chunk(finish="stop")))

    assert ([Text("a"), Text("b"), Finish("stop")], None) == (events, error)


ONE, TWO = ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")
NULL_FUNCTION = chunk({"tool_calls": [{"index": 0, "id": "a", "function": None}]})

CALLS = {
    "in pieces": ([call(0, "a", "f", ""), call(0, arguments="{"), call(0, arguments="}")], [ONE]),
    "in pieces, taking turns": (
        [call(0, "a", "f", "{"), call(1, "b", "g", "{"), call(0, arguments="}"), call(1, arguments="}")],
        [ONE, TWO],
    ),
    "gaps between the numbers": ([call(3, "a", "f", "{}"), call(7, "b", "g", "{}")], [ONE, TWO]),
    "one number for all": ([call(0, "a", "f", "{}"), call(0, "b", "g", "{}")], [ONE, TWO]),
    "no numbers": ([call(None, "a", "f", "{"), call(None, arguments="}"), call(None, "b", "g", "{}")], [ONE, TWO]),
    "name in pieces": ([call(0, "a", "ge"), call(0, name="t"), call(0, arguments="{}")], [ToolCall("a", "get", "{}")]),
    "name and id in each piece": ([call(0, "a", "f", "{"), call(0, "a", "f", "}")], [ONE]),
    "no arguments": ([call(0, "a", "f")], [ToolCall("a", "f", "")]),
    "arguments as an object": ([call(0, "a", "f", {"x": 1})], [ToolCall("a", "f", '{"x":1}')]),
    "arguments that are not JSON": ([call(0, "a", "f", "{oops")], [ToolCall("a", "f", "{oops")]),
    "no function at first": ([NULL_FUNCTION, call(0, name="f", arguments="{}")], [ONE]),
}


@pytest.mark.parametrize(("pieces", "calls"), CALLS.values(), ids=CALLS)
def test_tool_calls_are_assembled(pieces, calls):
    """Each upstream cuts them in its own way."""
    events = events_of(*pieces, chunk(finish="tool_calls"))
    deltas = [event for event in events if isinstance(event, ToolDelta)]

    assert calls == [event for event in events if isinstance(event, ToolCall)]
    assert Finish("tool_calls") == events[-1]
    for place, whole in enumerate(calls):
        own = [delta for delta in deltas if delta.index == place]
        assert whole == ToolCall(*("".join(getattr(d, field) for d in own) for field in ("id", "name", "arguments")))


def test_tool_calls_without_ids_get_ids():
    """A result has to name its call."""
    events = events_of(call(0, None, "f", "{}"), call(0, None, "f", "{}"), chunk(finish="stop"))
    ids = [event.id for event in events if isinstance(event, ToolCall)]

    assert 2 == len(set(ids))
    assert all(re.fullmatch(r"call_\w+", id) for id in ids)
    assert ids == [event.id for event in events if isinstance(event, ToolDelta)]


@requirement("truth.length")
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_call_that_was_cut_short_is_no_call(reason):
    """Nobody may run a tool with half of its arguments."""
    events = events_of(call(0, "a", "rm", '{"path": "/tmp'), chunk(finish=reason))

    assert not [event for event in events if isinstance(event, ToolCall)]
    assert Finish(reason) == events[-1]


def test_done_after_calls_without_a_reason_means_that_the_calls_are_the_answer():
    """`stop` would let an agent end although the model waits for a result."""
    assert Finish("tool_calls") == events_of(call(0, "a", "f", "{}"))[-1]


# usage


def test_usage_is_reported_once_as_it_stood_last():
    """Some upstreams send it with each chunk; a log of them all would be longer than the answer."""
    counted = [text("a", usage={"prompt_tokens": 3, "completion_tokens": n}) for n in range(1, 9)]
    events = events_of(
        *counted, chunk(finish="stop"), {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}
    )

    assert [Usage(3, 9)] == [event for event in events if isinstance(event, Usage)]


def test_usage_so_far_is_reported_when_the_answer_breaks():
    """What was spent was spent."""
    events, _ = decode(stream(text("a", usage={"prompt_tokens": 3, "completion_tokens": 1}), end=b""))

    assert Usage(3, 1) == events[-1]


@pytest.mark.parametrize(
    ("usage", "shown"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 0}, []),
        ({"prompt_tokens": None}, []),
        ({}, []),
        ({"prompt_tokens": 3.0, "completion_tokens": -1, "x": {}}, [Usage(3, 0)]),
        ({"prompt_tokens": "3", "completion_tokens": 10**40}, [Usage(3, 2**53)]),
        ({"prompt_tokens": 3, "completion_tokens": float("nan")}, [Usage(3, 0)]),
        ({"prompt_tokens": 3, "completion_tokens": float("inf")}, [Usage(3, 2**53)]),
    ],
)
def test_usage_that_makes_no_sense_is_ignored_or_made_sensible(usage, shown):
    """A database column is not made for 10**40 tokens."""
    events = events_of(text("a"), chunk(finish="stop"), {"choices": [], "usage": usage})

    assert shown == [event for event in events if isinstance(event, Usage)]


# bodies that are no event stream


def test_a_whole_completion_is_an_answer():
    """Some upstreams ignore `stream`."""
    calls = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": calls}
    completion = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    expected = [
        Reasoning("hm"),
        Text("hi"),
        ToolDelta(0, "a", "f", "{}"),
        ToolCall("a", "f", "{}"),
        Finish("tool_calls"),
        Usage(1, 2),
    ]

    assert (expected, None) == decode(json.dumps(completion, indent=2).encode())
    assert (expected, None) == decode(stream(completion))


def test_a_last_chunk_that_repeats_the_whole_message_is_not_shown_twice():
    """Some upstreams sum up at the end."""
    summary = {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}

    assert [Text("hi"), Finish("stop")] == events_of(text("hi"), summary)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no"}}', "up failed: no"),
        (b'{"error": "no"}', "up failed: no"),
        (b'[{"error": {"message": "no"}}]', "up failed: no"),
        (b'{"object": "error", "message": "no"}', "up failed: no"),
        (b'{"error": {"code": 7}}', "up failed: it did not say why."),
        (b'{"hello": "there"}', "up answered with JSON that is no answer."),
        (b'{"choices": []}', "up answered with JSON that is no answer."),
        (b'{"choices": 7}', "up answered with JSON that is no answer."),
        (b"<html><p>secret</p></html>", "up answered with a page of HTML."),
        (b"no healthy upstream", "up answered with something that is no event stream."),
        (b"", "up answered with something that is no event stream."),
        (b'{"choices": [{"mess', "up broke off in the middle of its answer."),
    ],
)
def test_what_is_no_event_stream_fails_without_being_quoted(body, message):
    """A page may hold anything, so only an error's own words are shown."""
    events, error = decode(body)

    assert ([], message) == (events, str(error))


# limits


def test_an_event_that_is_too_large_is_a_failure():
    """An endless line would fill the memory."""
    events, error = decode(frame(text("so far")), b"data: " + b"x" * 2000, b"y" * 2000, max_event=1000)

    assert [Text("so far")] == events
    assert "up sent an event of more than 1000 bytes." == str(error)


@pytest.mark.parametrize("cuts", [(), (900,), (300, 600, 900, 1200)])
def test_a_word_that_is_too_large_is_a_failure_among_others_like_it_too(cuts):
    """What looks like the chunks before it is read by a shorter way, which has the same limit."""
    alike = [frame(text(f"{number}")) for number in range(5)]
    large = frame(text("x" * 2000))
    pieces = [large[start:stop] for start, stop in pairwise((0, *cuts, len(large)))]
    events, error = decode(*alike, *pieces, max_event=1000)

    assert "01234" == said(events)
    assert "up sent an event of more than 1000 bytes." == str(error)


def test_a_word_that_comes_alone_has_the_same_limit():
    """Where most of a chunk is padding, another text makes it too large although it is not twice as long."""
    alike = [frame(text(f"{number}", padding="x" * 700)) for number in range(5)]
    events, error = decode(*alike, frame(text("y" * 300, padding="x" * 700)), max_event=1000)

    assert "01234" == said(events)
    assert "up sent an event of more than 1000 bytes." == str(error)


def test_many_words_in_one_read_are_no_large_event():
    """The limit is one event's, however many of them come together."""
    events, error = decode(frame(text("a")), frame(text("b")), frame(text("x" * 50)) * 100 + DONE, max_event=1000)

    assert ("ab" + "x" * 5000, None) == (said(events), error)


@pytest.mark.parametrize("body", [b'{"choices": [' + b" " * 3000, b" " * 3000])
def test_a_body_that_is_too_large_is_a_failure(body):
    """So would an endless object, and endless nothing."""
    _, error = decode(*(body[at : at + 100] for at in range(0, 3000, 100)), max_event=1000)

    assert "more than 1000 bytes" in str(error)


@pytest.mark.parametrize(
    "endless", [text("x" * 50), chunk({"reasoning": "x" * 50}), call(0, "a", "f", "x" * 50), call(0, "a", "f")]
)
def test_an_answer_that_is_too_long_is_a_failure(endless):
    """A model that never ends is stopped some day."""
    _, error = decode(*[frame(endless)] * 1000, max_text=5000)

    assert "up sent an answer of more than 5000 characters." == str(error)


@pytest.mark.parametrize("index", [-1, -7, 128, 3_000_000, 2**70])
def test_a_choice_that_nobody_can_have_asked_for_is_a_failure(index):
    """Whoever lists the choices in their order would have to leave room for all before it."""
    events, error = decode(stream(text("a"), text("b", index=index), chunk(finish="stop")))

    assert "a" == said(events)
    assert isinstance(error, ProviderBroke)


def test_choices_without_end_are_a_failure():
    """Each of them costs memory, text or not."""
    _, error = decode(*(frame(chunk(index=n)) for n in range(1000)), max_text=100_000)

    assert isinstance(error, ProviderBroke)
