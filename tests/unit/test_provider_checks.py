"""The public suite for providers catches the mistakes that it is there for."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast.errors import ProviderBroke, ProviderError, ProviderRefused
from holdfast.events import Finish, Reasoning, Text, ToolCall, ToolDelta, Usage, put
from holdfast_lab.contracts import PLAYED, check_provider
from tests.requirements import requirement

REASONS = {
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
    "parallel_calls": "tool_calls",
}


class InMemory:
    """A provider without a socket that keeps the contract, unless a fault is named."""

    prefills = think = demo = False

    def __init__(self, fault=""):
        self.name, self.models = "toy", ("m",)
        self.fault = fault
        self.provider, self.cannot = self, frozenset()
        self.asked, self.ending = 0, "complete"
        self.open = 0
        self._closed = False

    async def play(self, ending):
        self.ending = ending

    async def left(self):
        assert not self.open, "the upstream has a client that it was told has left"

    async def answer(self, request, out):
        self.asked += 1
        self.open += 1
        try:
            await self._answer(self.ending, out)
        finally:
            if self.fault != "stays open":
                self.open -= 1

    async def _answer(self, ending, out):
        if ending == "error_first":
            key = PLAYED.secret if self.fault == "tells the key" else "…"
            self.asked += self.fault == "asks again"
            who = "it" if self.fault == "names nobody" else self.name
            raise ProviderRefused(f"{who} refuses {key}", code="upstream_auth", status=502)
        if ending == "silence_first":
            await self._silence(out)
        if ending == "reasoning":
            out.emit([Text(PLAYED.reasoning) if self.fault == "says its thoughts" else Reasoning(PLAYED.reasoning)])
        count = {"tool_call": 1, "parallel_calls": 2}.get(ending, 0)
        for place, (name, arguments) in enumerate(PLAYED.calls[:count]):
            id = "same" if self.fault == "one id" else f"call_{place}"
            pieces = "" if self.fault == "no pieces" else arguments
            await put(
                out, [ToolDelta(place, id, name), ToolDelta(place, arguments=pieces), ToolCall(id, name, arguments)]
            )
        if not count:
            await self._say(out, ending)
        await self._end(ending, out)

    async def _say(self, out, ending):
        text = PLAYED.text[:-1] if self.fault == "loses a character" else PLAYED.text
        refusal = ending == "refusal" and self.fault != "answers a refusal"
        for piece in (text[:5], text[5:]):
            has_room = out.emit([Text(piece, refusal=refusal)])
            if not has_room and self.fault != "ignores a full outlet":
                await out.room()

    async def _end(self, ending, out):
        if ending == "silence_later":
            await self._silence(out)
        if ending in ("error_later", "cut", "no_end", "malformed") and self.fault != f"completes {ending}":
            raise (ProviderError if ending == "error_later" else ProviderBroke)(f"{self.name} {ending}")
        reason = "stop" if self.fault == f"completes {ending}" else REASONS.get(ending, "stop")
        counted = Usage(source="estimated") if self.fault == "counts nothing" else Usage(3, 5)
        out.emit([counted, Finish(reason)] + [Finish(reason)] * (self.fault == "ends twice"))
        if self.fault == "speaks after the end":
            out.emit([Text("!")])

    async def _silence(self, out):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self.fault == "swallows the cancel":
                return
            raise

    async def list_models(self):
        return ["m", "m"] if self.fault == "lists twice" else ["m"]

    async def close(self):
        if self._closed and self.fault == "closes once":
            raise RuntimeError("it is closed already")
        self._closed = True


def opened(fault=""):
    @asynccontextmanager
    async def open():
        yield InMemory(fault)

    return open


@requirement("upstream.contract")
async def test_a_provider_that_keeps_the_contract_passes():
    """The suite asks for nothing that cannot be done."""
    await check_provider(opened())


@requirement("upstream.contract")
@pytest.mark.parametrize(
    "fault",
    [
        "loses a character",
        "ignores a full outlet",
        "counts nothing",
        "completes length",
        "completes content_filter",
        "says its thoughts",
        "one id",
        "no pieces",
        "answers a refusal",
        "tells the key",
        "names nobody",
        "asks again",
        "completes error_later",
        "completes cut",
        "completes no_end",
        "completes malformed",
        "ends twice",
        "speaks after the end",
        "swallows the cancel",
        "lists twice",
        "stays open",
    ],
)
async def test_a_provider_with_a_known_fault_is_caught(fault):
    """A suite that passes everything proves nothing."""
    with pytest.raises(AssertionError):
        await check_provider(opened(fault))


@requirement("upstream.contract")
async def test_a_provider_that_cannot_be_closed_twice_is_caught():
    """By what it raises."""
    with pytest.raises(RuntimeError):
        await check_provider(opened("closes once"))
