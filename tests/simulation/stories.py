"""Models that write stories and break off; the legs that ship join their answers, and what must be true of these."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from holdfast.errors import AnswerLost, ProviderBroke, ProviderRefused
from holdfast.events import AnySettlement, Completed, Finish, LegStarted, Outlet, Text, ToolCall, ToolDelta, put
from holdfast.server.sources.breaks.legs import MOST_LEGS
from holdfast.upstreams import ChatRequest

from .checker import RunCheck
from .history import RunFacts, SourceFacts
from .loop import PROCESS
from .scenario import AT_ONCE, SourcePlan, StoryPlan

if TYPE_CHECKING:
    from .world import World

ASKS = re.compile(r"ask (run_\d+)")
"""What a message of the simulation says: by it a model knows which run it answers."""
_ANCHOR = re.compile(r"last characters:\n\n(.*)\n\nContinue it:", re.DOTALL)


class Model:
    """A provider with one model, which writes the story of the run that asks it."""

    models: tuple[str, ...] | None = ("m",)
    think = False
    demo = False
    tools = True

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.prefills = name == "fills"
        self.attaches = name == "keeps"
        self.attaches_anywhere = self.attaches

    async def list_models(self) -> list[str]:
        """Return its only model."""
        return ["m"]

    async def close(self) -> None:
        """Do nothing."""

    async def answer(self, request: ChatRequest, out: Outlet) -> None:
        """Write the story, from where the request says, up to where this call ends."""
        run = run_of(self.world, request.messages)
        if run.send.plan.tools:
            await self.world.agents.step(run, request, out)
            return
        begin, plan = self._begin(run, request.messages), story_of(run)
        number = len(run.sources)
        after, how = plan.breaks[number] if number < len(plan.breaks) else (len(plan.text), "stop")
        text = plan.text[begin:] if begin is not None else "Something else altogether, and a lot of it. " * 9
        ends = begin is not None and after >= len(text)
        await self._told(run, text[:after], "stop" if ends and how == "is cut" else how, out)

    async def attach(self, name: str, out: Outlet, *, text: str = "", reasoning: str = "") -> None:
        """Write the rest of a story that this upstream has kept."""
        run = self.world.history.runs[name]
        plan = story_of(run)
        if not plan.is_kept:
            raise AnswerLost("The upstream has forgotten it.")
        await self._told(run, plan.text[len(text) :], "stop", out, is_new=False)

    def _begin(self, run: RunFacts, messages: list[dict[str, Any]]) -> int | None:
        """Return where in the story a request wants the model to begin; None if the model does something else."""
        plan = story_of(run)
        asked = next(place for place, each in enumerate(messages) if run.id in str(each["content"]))
        if not (behind := messages[asked + 1 :]):
            return 0
        if plan.goes_on != "well":
            return 0 if plan.goes_on == "anew" else None
        before = behind[0]["content"]
        if not plan.text.startswith(before):
            self.world.history.violate(f"{run.id}: a model is asked to go on with {before!r}, which none has written")
            return None
        if len(behind) == 1:
            return len(before)
        anchor = _ANCHOR.search(behind[1]["content"])
        return 0 if anchor is None else plan.text.rindex(anchor[1], 0, len(before))

    async def _told(self, run: RunFacts, text: str, how: str, out: Outlet, *, is_new: bool = True) -> None:
        """Be one call of the upstream, and note what it really does."""
        facts = SourceFacts(run.id, _NO_PLAN, PROCESS.get(), after=None if is_new and not run.sources else 0)
        run.sources.append(facts)
        facts.entered = self.world.loop.steps
        self.world.note_source(facts)
        facts.how = "raised"
        try:
            await self._write(facts, text, story_of(run), how, out)
            facts.how = "returned"
        except asyncio.CancelledError:
            facts.note_cancel(self.world.loop.steps, self.world.loop.time())
            facts.how = "cancelled"
            raise
        finally:
            facts.broke = facts.how == "raised"
            facts.ended, facts.closed_at = self.world.loop.steps, self.world.clock()
            self.world.say(f"a model has ended its part of {run.id}: {facts.how}, {how}")

    async def _write(self, facts: SourceFacts, text: str, plan: StoryPlan, how: str, out: Outlet) -> None:
        if how == "is refused":
            raise ProviderRefused("The model is away.", code="upstream_refused", status=503)
        for at in range(0, len(text), plan.piece):
            if plan.pace != AT_ONCE:
                await asyncio.sleep(plan.pace)
            await put(out, [noted(self.world, facts, Text(text[at : at + plan.piece]))])
        if how == "in a call":
            await put(out, [noted(self.world, facts, ToolDelta(0, "call", "look", '{"a": '))])
            raise ProviderBroke("The upstream ended within a call.")
        if how == "falls silent":
            await self.world.loop.create_future()
        if how == "is cut":
            raise ProviderBroke("The upstream ended in mid-sentence.")
        reason = {"stop": "stop", "says failed": "error", "length": "length"}[how]
        await put(out, [noted(self.world, facts, Finish(reason))])


def noted(world: World, facts: SourceFacts, item: Any) -> Any:
    """Note what a model says at the moment in which it says it."""
    facts.yielded.append((world.loop.steps, world.loop.time(), item))
    return item


def run_of(world: World, messages: list[dict[str, Any]]) -> RunFacts:
    """Return the run that asks: its own message is the newest that says so."""
    asked = next(found for each in reversed(messages) if (found := ASKS.findall(str(each["content"]))))
    return world.history.runs[asked[-1]]


def story_of(run: RunFacts) -> StoryPlan:
    """Return what a model writes for a run."""
    plan = run.send.plan.story
    assert plan is not None
    return plan


_NO_PLAN = SourcePlan([])


class StoryCheck(RunCheck):
    """What must be true of an answer in legs: it is the story, as far as it goes, and says where its legs meet."""

    def _check_words(self) -> None:
        assert self.settlement is not None
        text, story = self._text(len(self.log)), story_of(self.run).text
        if text != self.settlement.text:
            self.violate(f"its log says {text!r}, its settlement {self.settlement.text!r}")
        if not story.startswith(text):
            self.violate(f"{_wrong(story, text)}: {text!r}")
        elif isinstance(self.settlement, Completed) and text != story:
            self.violate(f"it is called completed, and lacks its end: {text!r}")
        self._check_first_words(text)
        self._check_seams(self.settlement)

    def _source(self) -> SourceFacts | None:
        """Return the last call of the server that has the run: one that has lost it may ask once more in its sleep."""
        node = None if self.record is None else self.record.node_id
        ours = [source for source in self.run.sources if source.process.engine.node_id == node]  # type: ignore[union-attr]
        return ours[-1] if ours else super()._source()

    def _text(self, until: int) -> str:
        return "".join(event.text for event in self.log[:until] if isinstance(event, Text))

    def _check_first_words(self, text: str) -> None:
        """What the first call has said is there, unless its process may have died with it, or it was stopped."""
        if not self.run.sources or self._asks() or self._was_taken_over(self.run.sources[0]):
            return
        said = "".join(item.text for _, _, item in self.run.sources[0].yielded if isinstance(item, Text))
        if len(text) < len(said):
            self.violate(f"it lost words: {text!r} of {said!r}")

    def _check_seams(self, settlement: AnySettlement) -> None:
        places = [place for place, event in enumerate(self.log) if isinstance(event, LegStarted)]
        legs = [event for event in self.log if isinstance(event, LegStarted)]
        if any(leg.at != len(self._text(place)) for place, leg in zip(places, legs, strict=True)):
            self.violate("a seam is said to be where it is not")
        if any(one.leg >= other.leg for one, other in pairwise(legs)) or any(leg.leg > MOST_LEGS for leg in legs):
            self.violate(f"its legs are {[leg.leg for leg in legs]}")
        if len(settlement.legs) != (1 + len(legs) if legs else 0):
            self.violate(f"its settlement has {len(settlement.legs)} legs, its log {len(legs)} seams")
        if places and any(isinstance(event, (ToolDelta, ToolCall)) for event in self.log[: places[-1]]):
            self.violate("a leg goes on behind a tool call")

    def _completed(self, settlement: Completed) -> str:
        problem = super()._completed(settlement)
        return "" if problem.startswith("and its source never began") and self._ends_behind_a_crash() else problem

    def _ends_behind_a_crash(self) -> bool:
        return self._was_taken_over(self.run.sources[-1]) if self.run.sources else False

    def _stalled(self, source: SourceFacts | None) -> str:
        idle = self.world.scenario.limits.idle
        if source is None or not source.cancels or idle is None or self._was_taken_over(source):
            return ""
        began = source.last_yield
        short = began is not None and source.cancels[0][1] - began < idle - 1e-6
        return "and its source was not silent" if short else ""

    def _stopped(self, settlement: Any) -> str:
        """Between two legs no call is under way, and a stop comes after the end of one."""
        return "" if settlement.by in {ask.by for ask in self._asks()} else f"and nobody ({settlement.by}) asked for it"

    def _failed(self, settlement: Any) -> str:
        if settlement.error.code == "no_answer":
            return "" if not settlement.text else "and it has one"
        return super()._failed(settlement)


def _wrong(story: str, text: str) -> str:
    """Return what is wrong with a text that is not the beginning of a story."""
    at = next(at for at in range(len(text) + 1) if not story.startswith(text[: at + 1]))
    again = any(text[at : at + size] in story[:at] for size in _sizes(text[at:]))
    return "it says words twice" if again else "it lacks words"


def _sizes(rest: str) -> Iterator[int]:
    if rest:
        yield min(len(rest), 8)
