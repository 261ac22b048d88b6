"""Pictures that are too large for one event: left out with words, in each dialect, and however the reads are cut."""

import base64
import json
import tracemalloc
from itertools import pairwise

import pytest

from holdfast.events import Finish, Notice, Picture, Text
from holdfast.upstreams.bedrock.decoder import ConverseDecoder
from holdfast.upstreams.gemini.decoder import GeminiDecoder
from holdfast.upstreams.ollama.decoder import OllamaDecoder
from holdfast.upstreams.openai.decoder import AnswerDecoder
from holdfast.upstreams.responses.decoder import ResponsesDecoder
from tests.requirements import requirement
from tests.support.dialects.bedrock import START, block, end, event
from tests.support.outlets import as_events

LIMIT = 100_000
SMALL = b"\x89PNG\r\n\x1a\n" + b"small"
LARGE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 800


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(data: bytes) -> str:
    return f"data:image/png;base64,{encoded(data)}"


def sse(*values):
    return b"".join(
        b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n" for value in values
    )


def openai(*pictures: bytes) -> bytes:
    images = [{"type": "image_url", "image_url": {"url": url(each)}} for each in pictures]
    delta = {"content": "Here.", "images": images}
    said = [{"choices": [{"index": 0, "delta": {"content": "So: "}, "finish_reason": None}]}]
    return sse(*said, {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}, b"[DONE]")


def whole(*pictures: bytes) -> bytes:
    images = [{"type": "image_url", "image_url": {"url": url(each)}} for each in pictures]
    message = {"role": "assistant", "content": "So: Here.", "images": images}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def gemini(*pictures: bytes) -> bytes:
    data = [{"inlineData": {"mimeType": "image/png", "data": encoded(each)}} for each in pictures]
    parts = [{"text": "So: Here."}, *data]
    return sse({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})


def ollama(*pictures: bytes) -> bytes:
    message = {"role": "assistant", "content": "So: Here.", "images": [encoded(each) for each in pictures]}
    lines = [{"message": message, "done": False}, {"message": {"content": ""}, "done": True, "done_reason": "stop"}]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def responses(*pictures: bytes) -> bytes:
    items = [{"type": "image_generation_call", "id": "ig", "result": encoded(each)} for each in pictures]
    events = [
        {"type": "response.output_text.delta", "output_index": 9, "content_index": 0, "delta": "So: Here."},
        *({"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)),
        {"type": "response.completed", "response": {"status": "completed", "output": items}},
    ]
    return sse(*events)


def bedrock(*pictures: bytes) -> bytes:
    text = block(0, {"text": "So: Here."})
    blocks = [
        block(
            number,
            *({"image": {"source": {"bytes": encoded(data[at : at + 9_000])}}} for at in range(0, len(data), 9_000)),
        )
        for number, data in enumerate(pictures, 1)
    ]
    return START + text + b"".join(blocks) + end()


DIALECTS = {
    "openai": (AnswerDecoder, openai),
    "openai, not streamed": (AnswerDecoder, whole),
    "gemini": (GeminiDecoder, gemini),
    "ollama": (OllamaDecoder, ollama),
    "responses": (ResponsesDecoder, responses),
    "bedrock": (ConverseDecoder, bedrock),
}


def decode(kind, body, size, **options):
    decoder = kind("up", max_event=LIMIT, **options)
    cuts = [*range(0, len(body), size), len(body)]
    reads = [each for start, stop in pairwise(cuts) for each in decoder.feed(body[start:stop])]
    events = as_events([event for read in reads for event in read] + decoder.end())
    return events, decoder.error


@requirement("files.too-large", "files.answers")
@pytest.mark.parametrize("size", [4_000, 10_000_000])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_picture_that_is_too_large_is_left_out_and_the_rest_is_kept(dialect, size):
    """The whole answer had failed for it."""
    kind, body = DIALECTS[dialect]
    both, error = decode(kind, body(SMALL), size)
    events, large_error = decode(kind, body(LARGE), size)
    notices = [event for event in events if isinstance(event, Notice)]

    assert (None, None) == (error, large_error)
    assert [url(SMALL)] == [event.url for event in both if isinstance(event, Picture)]
    assert [] == [event for event in events if isinstance(event, Picture)]
    assert "So: Here." == "".join(event.text for event in events if isinstance(event, Text))
    assert ["content_left_out"] == [notice.code for notice in notices]
    assert "pictures that are too large" in notices[0].message
    assert ["stop"] == [event.reason for event in events if isinstance(event, Finish)]


@requirement("files.too-large", "truth.cut")
@pytest.mark.parametrize("size", [4_000, 10_000_000])
def test_a_text_that_looks_like_data_is_never_shortened(size):
    """A part of a text that looks like all of it would be a lie."""
    long = {"choices": [{"index": 0, "delta": {"content": "x" * 3 * LIMIT}, "finish_reason": None}]}
    first = {"choices": [{"index": 0, "delta": {"content": "So: "}, "finish_reason": None}]}
    for body in (sse(first, long, b"[DONE]"), sse(first, first, long, b"[DONE]")):
        events, error = decode(AnswerDecoder, body, size)

        assert "So: " in "".join(event.text for event in events if isinstance(event, Text))
        assert not [event for event in events if isinstance(event, Text) and event.text.replace("So: ", "")]
        assert f"up sent an event of more than {LIMIT} bytes." == str(error)


@requirement("files.too-large")
def test_pictures_that_are_too_large_together_leave_room_for_the_text():
    """The limit of an answer is one of all that it has."""
    body = openai(SMALL, b"\x89PNG\r\n\x1a\n" + b"." * 3_000)
    events, error = decode(AnswerDecoder, body, 4_000, max_text=2_000)

    assert error is None
    assert [url(SMALL)] == [event.url for event in events if isinstance(event, Picture)]
    assert "So: Here." == "".join(event.text for event in events if isinstance(event, Text))
    assert ["content_left_out"] == [event.code for event in events if isinstance(event, Notice)]


@requirement("files.answers")
def test_a_picture_of_bedrock_that_is_an_error_or_an_address_is_left_out_with_words():
    """An address in Amazon's storage opens for nobody else."""
    odd = [{"source": {"s3Location": {"uri": "s3://a/b"}}}, {"error": {"message": "no"}}, {"source": {"bytes": "?"}}]
    for image in odd:
        events, error = decode(
            ConverseDecoder, START + block(0, {"text": "Here."}) + block(1, {"image": image}) + end(), 99
        )

        assert error is None
        assert ["content_left_out"] == [event.code for event in events if isinstance(event, Notice)]


@requirement("files.too-large")
def test_pictures_that_never_end_take_no_more_memory_than_an_answer():
    """Each is small enough, and an upstream may begin any number of them."""
    piece = {"image": {"source": {"bytes": encoded(LARGE[: LIMIT // 2])}}}
    decoder = ConverseDecoder("up", max_event=LIMIT, max_text=3 * LIMIT)
    decoder.feed(START + block(0, {"text": "Here."}))
    tracemalloc.start()
    try:
        for number in range(1, 100):
            decoder.feed(event("contentBlockDelta", contentBlockIndex=number, delta=piece))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    left = as_events([each for read in decoder.feed(end()) for each in read])

    assert held < 10 * LIMIT
    assert ["content_left_out"] == [each.code for each in left if isinstance(each, Notice)]
    assert decoder.error is None
