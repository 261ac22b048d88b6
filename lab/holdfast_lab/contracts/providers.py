"""The contract of every provider, as checks: one suite for all dialects.

The author of a provider supplies a test upstream that speaks the dialect, and can play each `Ending`. The name of a
check is the sentence that it checks. `holdfast_lab.contracts` exports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol, TypeAlias

from holdfast.errors import ProviderError
from holdfast.events import TRUNCATED, Finish, Notice, Reasoning, Text, Thought, ToolCall, ToolDelta, Usage, Yielded
from holdfast.upstreams import ChatRequest, Provider

__all__ = [
    "PLAYED",
    "PROVIDER_CHECKS",
    "Ending",
    "OpenUpstream",
    "PlayedAnswer",
    "ProviderCheck",
    "UpstreamUnderTest",
    "check_provider",
    "run_provider_check",
]

Ending = Literal[
    "complete",
    "length",
    "content_filter",
    "reasoning",
    "tool_call",
    "parallel_calls",
    "refusal",
    "error_first",
    "error_later",
    "cut",
    "no_end",
    "malformed",
    "silence_first",
    "silence_later",
]
"""How an upstream ends an answer. docs/extending/upstream.md says what each of them sends."""


class PlayedAnswer:
    """The content of the upstream's answers."""

    text = "Héllo wörld 🌊"
    """The text, sent in at least two pieces. If the dialect can cut a character in two, the emoji is cut."""
    reasoning = "I wonder."
    calls = (("add", '{"a":1}'), ("now", "{}"))
    """The name and arguments of each call: the first in `tool_call`, both in `parallel_calls`."""
    input_tokens = 3
    output_tokens = 5
    secret = "key-Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8"
    """The API key of the provider, which the upstream repeats in each of its error messages."""


PLAYED = PlayedAnswer()

SOON = 10.0
"""Timeout of each step of a check, in seconds."""


class UpstreamUnderTest(Protocol):
    """A test upstream, and the provider that speaks to it."""

    provider: Provider
    cannot: frozenset[Ending]
    """Endings that the dialect does not have, such as a refusal that is marked as one."""

    async def play(self, ending: Ending) -> None:
        """Set the ending of the next answer."""
        ...

    async def left(self) -> None:
        """Wait until no client of the upstream waits for an answer."""
        ...

    @property
    def asked(self) -> int:
        """The number of requests for an answer so far."""
        ...


OpenUpstream: TypeAlias = Callable[[], AbstractAsyncContextManager[UpstreamUnderTest]]
"""Starts an upstream with a provider for it, whose API key is `PLAYED.secret`, and ends both."""

ProviderCheck: TypeAlias = Callable[[UpstreamUnderTest], Awaitable[None]]


async def check_provider(open: OpenUpstream) -> None:
    """Run every check of a provider; the first that fails raises an AssertionError."""
    for check in PROVIDER_CHECKS:
        await run_provider_check(check, open)


async def run_provider_check(check: ProviderCheck, open: OpenUpstream) -> None:
    """Run one check, unless it needs an ending that the dialect does not have."""
    async with open() as upstream:
        if _NEEDS.get(check) not in upstream.cannot:
            await check(upstream)


class _Recorder:
    """An outlet that records events. With `is_full`, each `emit` requires a wait for room."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.events: list[Yielded] = []
        self.batches = 0
        self.waits = 0
        self._is_full = is_full
        self.has_text = asyncio.Event()

    def emit(self, events: Sequence[Yielded]) -> bool:
        self.batches += 1
        self.events += [Text(event) if isinstance(event, str) else event for event in events]
        if self.text:
            self.has_text.set()
        return not self._is_full

    async def room(self) -> None:
        self.waits += 1
        await asyncio.sleep(0)

    def all(self, *kinds: type) -> list[Yielded]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Reasoning))

    @property
    def reason(self) -> str:
        """The finish reason. There must be one `Finish`, and nothing of the answer after it."""
        endings = self.all(Finish)
        assert len(endings) == 1, f"the answer has {len(endings)} endings"
        finish = endings[0]
        after = self.events[self.events.index(finish) + 1 :]
        assert all(isinstance(event, Usage | Notice | Thought) for event in after), f"after the end came {after}"
        assert isinstance(finish, Finish)
        return finish.reason


def _request() -> ChatRequest:
    return ChatRequest(model="m", messages=[{"role": "user", "content": "Hello"}], patience=0.0)


async def _ask(upstream: UpstreamUnderTest, ending: Ending, out: _Recorder | None = None) -> _Recorder:
    """Return the events of an answer that must not raise."""
    out = out or _Recorder()
    await upstream.play(ending)
    async with asyncio.timeout(SOON):
        await upstream.provider.answer(_request(), out)
    return out


async def _fail(upstream: UpstreamUnderTest, ending: Ending) -> tuple[_Recorder, ProviderError]:
    """Return the events of an answer that must fail, and its error."""
    out = _Recorder()
    await upstream.play(ending)
    try:
        async with asyncio.timeout(SOON):
            await upstream.provider.answer(_request(), out)
    except ProviderError as error:
        assert not out.all(Finish), f"{ending} raises, and yet there is a Finish"
        return out, error
    raise AssertionError(f"{ending} must raise a ProviderError, and did not")


# the checks


async def a_whole_answer_is_told_exactly(upstream: UpstreamUnderTest) -> None:
    """Every character arrives once, and the ending is one that completes."""
    out = await _ask(upstream, "complete")
    assert out.text == PLAYED.text, f"the text is {out.text!r}"
    assert out.reason == "stop", f"the reason is {out.reason!r}"


async def a_full_outlet_is_waited_for(upstream: UpstreamUnderTest) -> None:
    """An outlet that is full is asked for room, and loses nothing."""
    out = await _ask(upstream, "complete", _Recorder(is_full=True))
    assert out.text == PLAYED.text, f"the text is {out.text!r}"
    assert out.waits, "`emit` returned False, and `room` was never awaited"


async def usage_is_counted_by_the_upstream(upstream: UpstreamUnderTest) -> None:
    """The last usage has the upstream's counts."""
    counted = (await _ask(upstream, "complete")).all(Usage)
    assert counted, "there is no usage"
    last = counted[-1]
    assert isinstance(last, Usage)
    counts = (last.input_tokens, last.output_tokens, last.source)
    assert counts == (PLAYED.input_tokens, PLAYED.output_tokens, "provider"), f"the usage is {counts}"


async def a_limit_truncates(upstream: UpstreamUnderTest) -> None:
    """A model that hit its limit has not completed."""
    out = await _ask(upstream, "length")
    assert (out.text, out.reason) == (PLAYED.text, "length"), f"{out.text!r} ended with {out.reason!r}"


async def a_filter_truncates(upstream: UpstreamUnderTest) -> None:
    """An answer that was filtered has not completed."""
    out = await _ask(upstream, "content_filter")
    assert (out.text, out.reason) == (PLAYED.text, "content_filter"), f"{out.text!r} ended with {out.reason!r}"


async def reasoning_is_apart_from_the_answer(upstream: UpstreamUnderTest) -> None:
    """Reasoning is not part of the text."""
    out = await _ask(upstream, "reasoning")
    assert out.reasoning == PLAYED.reasoning, f"the reasoning is {out.reasoning!r}"
    assert (out.text, out.reason) == (PLAYED.text, "stop"), f"{out.text!r} ended with {out.reason!r}"


async def a_call_is_whole(upstream: UpstreamUnderTest) -> None:
    """A call has an id, and its pieces are its arguments."""
    _check_calls(await _ask(upstream, "tool_call"), 1)


async def calls_at_once_are_told_apart(upstream: UpstreamUnderTest) -> None:
    """Each call has its own id and index."""
    _check_calls(await _ask(upstream, "parallel_calls"), 2)


def _check_calls(out: _Recorder, count: int) -> None:
    calls = [event for event in out.events if isinstance(event, ToolCall)]
    deltas = [event for event in out.events if isinstance(event, ToolDelta)]
    assert [call.name for call in calls] == [name for name, _ in PLAYED.calls[:count]], f"the calls are {calls}"
    assert len({call.id for call in calls} - {""}) == count, "each call needs an id of its own"
    for place, (call, (_, arguments)) in enumerate(zip(calls, PLAYED.calls, strict=False)):
        pieces = "".join(delta.arguments for delta in deltas if delta.index == place)
        assert call.arguments.replace(" ", "") == arguments, f"the arguments are {call.arguments!r}"
        assert pieces == call.arguments, f"the pieces of a call are {pieces!r}, and the call {call.arguments!r}"
    assert out.reason == "tool_calls", f"the reason is {out.reason!r}"


async def a_refusal_is_marked(upstream: UpstreamUnderTest) -> None:
    """A refusal that the upstream marks is marked here, or the answer is filtered."""
    out = await _ask(upstream, "refusal")
    marked = [event.refusal for event in out.events if isinstance(event, Text)]
    assert out.text == PLAYED.text, f"the text is {out.text!r}"
    assert (marked and all(marked)) or out.reason in TRUNCATED, "the refusal looks like an answer"


async def an_error_before_the_answer_is_raised(upstream: UpstreamUnderTest) -> None:
    """The error has the upstream's message without the API key, and there is no retry."""
    out, error = await _fail(upstream, "error_first")
    assert out.text == "", f"the text is {out.text!r}"
    assert PLAYED.secret not in str(error), "the error holds the API key"
    assert upstream.provider.name in str(error), "the error does not name the provider"
    assert upstream.asked == 1, f"it was asked {upstream.asked} times"


async def an_error_in_the_answer_is_raised(upstream: UpstreamUnderTest) -> None:
    """The text before the error is emitted."""
    out, error = await _fail(upstream, "error_later")
    assert out.text == PLAYED.text, f"the text is {out.text!r}"
    assert PLAYED.secret not in str(error), "the error holds the API key"
    assert upstream.asked == 1, f"it was asked {upstream.asked} times"


async def a_cut_connection_is_raised(upstream: UpstreamUnderTest) -> None:
    """The model may have begun the answer, so there is no retry."""
    out, _ = await _fail(upstream, "cut")
    assert out.text == PLAYED.text, f"the text is {out.text!r}"
    assert upstream.asked == 1, f"it was asked {upstream.asked} times"


async def an_answer_without_an_end_is_raised(upstream: UpstreamUnderTest) -> None:
    """A connection that closes normally does not mean that the answer is complete."""
    out, _ = await _fail(upstream, "no_end")
    assert out.text == PLAYED.text, f"the text is {out.text!r}"


async def what_cannot_be_read_is_raised(upstream: UpstreamUnderTest) -> None:
    """Skipping an invalid event would silently lose text."""
    out, _ = await _fail(upstream, "malformed")
    assert out.text == PLAYED.text, f"the text is {out.text!r}"


async def a_stop_closes_a_silent_upstream(upstream: UpstreamUnderTest) -> None:
    """Before and after the first text, a cancel closes the connection to the upstream, and nothing more is emitted."""
    for ending in _both_silences(upstream):
        out = _Recorder()
        await upstream.play(ending)
        asked = upstream.asked
        task = asyncio.create_task(upstream.provider.answer(_request(), out))
        await _wait_for_request(upstream, asked, out, ending)
        task.cancel()
        await asyncio.wait({task}, timeout=SOON)
        batches = out.batches
        assert task.cancelled(), f"{ending}: a cancelled answer must end with CancelledError"
        async with asyncio.timeout(SOON):
            await upstream.left()
        assert out.batches == batches, f"{ending}: something was emitted after the cancel"


def _both_silences(upstream: UpstreamUnderTest) -> list[Ending]:
    silences: list[Ending] = ["silence_first", "silence_later"]
    return [ending for ending in silences if ending not in upstream.cannot]


async def _wait_for_request(upstream: UpstreamUnderTest, before: int, out: _Recorder, ending: Ending) -> None:
    async with asyncio.timeout(SOON):
        while upstream.asked == before:  # noqa: ASYNC110 - the upstream is behind a socket and sets no event here
            await asyncio.sleep(0.001)
        if ending == "silence_later":
            await out.has_text.wait()


async def models_are_listed(upstream: UpstreamUnderTest) -> None:
    """Each name is listed once. Configured models are listed unchanged."""
    provider = upstream.provider
    async with asyncio.timeout(SOON):
        listed = await provider.list_models()
    assert all(listed), f"the models are {listed}"
    assert len(set(listed)) == len(listed), f"a model is listed twice: {listed}"
    assert provider.models is None or listed == [*provider.models], "the configured models are not listed"


async def it_can_be_closed_twice(upstream: UpstreamUnderTest) -> None:
    """A provider that was removed from the settings is closed after its last run, and again at shutdown."""
    await upstream.provider.close()
    await upstream.provider.close()


_NEEDS: dict[ProviderCheck, Ending] = {
    a_filter_truncates: "content_filter",
    reasoning_is_apart_from_the_answer: "reasoning",
    a_call_is_whole: "tool_call",
    calls_at_once_are_told_apart: "parallel_calls",
    a_refusal_is_marked: "refusal",
    an_error_in_the_answer_is_raised: "error_later",
}
"""The ending that a check needs, for endings that not every dialect has."""


PROVIDER_CHECKS: tuple[ProviderCheck, ...] = (
    a_whole_answer_is_told_exactly,
    a_full_outlet_is_waited_for,
    usage_is_counted_by_the_upstream,
    a_limit_truncates,
    a_filter_truncates,
    reasoning_is_apart_from_the_answer,
    a_call_is_whole,
    calls_at_once_are_told_apart,
    a_refusal_is_marked,
    an_error_before_the_answer_is_raised,
    an_error_in_the_answer_is_raised,
    a_cut_connection_is_raised,
    an_answer_without_an_end_is_raised,
    what_cannot_be_read_is_raised,
    a_stop_closes_a_silent_upstream,
    models_are_listed,
    it_can_be_closed_twice,
)
"""Every check, for `pytest.mark.parametrize`: run each with `run_provider_check(check, open)`."""
