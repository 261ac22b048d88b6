"""`/api/comparisons`: one prompt to several models on one connection, blind or not, and votes."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from ..access import CHAT, READ
from ..engine.core import Core
from ..errors import ModelNotFound
from ..history import Message, Session, branch, text_of
from ..ids import ModelName, new_id
from ..runs.admission import Places
from ..server.features.budgets.budgets import Budgets
from ..server.features.sessions.session_input import check_prompt, one_line
from ..server.features.sessions.session_transfer import copied
from ..server.kit.caller import access_of, owner_of
from ..server.kit.feature import Endpoint, Feature
from ..server.kit.http.errors import Json, NoContent, json_of
from ..server.kit.request import (
    Bodies,
    System,
    check_name,
    check_params,
    decode,
    idempotency,
    wants_events,
    whole_number,
)
from ..server.kit.streams import Streams
from ..server.sources.models import AllowedModels
from ..server.starting.starting import AllowedStart, CheckFiles, Starting
from ..store import Idempotency, Store
from ..store.documents import IdempotencyKeys
from ..store.files import with_files
from ..store.semantics import matched, sought
from ..wires import native, sse
from . import wire as wire
from .audience import Audience, RoundAnswer, RoundFrames
from .model import (
    MOST_PANES,
    Comparison,
    Pane,
    PromptContent,
    StillBlind,
    Winner,
    asked,
    asked_again,
    detached,
    noted_if_blind,
    panes_to_rerun,
    revealed,
    swapped,
    voted,
)
from .runs import ComparisonChange, ComparisonHalfMade, Round, Rounds
from .shapes import ListedComparisonJson
from .synthesis import Syntheses

_shuffled = random.SystemRandom().shuffle  # so that the order does not show which model is in which pane


class NewComparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One prompt for several models."""

    prompt: PromptContent
    models: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_PANES)]
    blind: bool = False
    order: Literal["parallel", "sequential"] = "parallel"
    system: System | None = None
    params: dict[str, Any] = {}
    kind: Annotated[str, msgspec.Meta(max_length=64)] = "general"
    timeout: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None
    """Seconds that each pane may take."""
    lifetime: Literal["attached", "detached"] = "attached"


class NextTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One more prompt for every pane."""

    prompt: PromptContent


class Reroll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a reroll: empty."""


class Swap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new model of a pane."""

    model: str


class NewSynthesis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model or agent that makes one answer of those of the panes."""

    model: str | None = None
    """None for the default one."""


class Ballot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A vote: the number of the preferred pane, `tie`, or `none`."""

    winner: Winner


class Continue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The title of the session that continues from a pane."""

    title: str = ""


_THERE = {404: "no such comparison or pane"}

_ROUND = {
    200: "the comparison, or its events",
    202: "the comparison, which is running",
    409: "not now",
    429: "too many runs",
    503: "the server is ending",
    **_THERE,
}
_ONE = "/api/comparisons/{comparison_id}"


class ComparisonsApi(Feature):
    """Comparisons: rounds, votes and reading."""

    def __init__(
        self,
        bodies: Bodies,
        streams: Streams,
        starting: Starting,
        models: AllowedModels,
        budgets: Budgets,
        rounds: Rounds,
        syntheses: Syntheses,
        engine: Core,
        store: Store,
    ) -> None:
        self._bodies, self._streams, self._starting, self._models = bodies, streams, starting, models
        self._budgets, self._rounds, self._engine = budgets, rounds, engine
        self._syntheses, self._store = syntheses, store

    # Panes that answer.

    @Endpoint("POST", "/api/comparisons", who=CHAT, takes=NewComparison, answers=_ROUND, streams=True)
    async def create_comparison(self, request: Request) -> ASGIApp:
        """Send one prompt to several models. Unless detached, the panes live as long as this connection."""
        raw = await self._bodies.read(request)
        wanted, key = decode(raw, NewComparison), idempotency(request, raw)
        await _check(wanted, self._starting.check_files)
        if key is None:
            return await self._begin(request, wanted)
        key_id = IdempotencyKeys.id_of(key)
        async with self._rounds.lock(key_id):  # concurrent requests with one key make one comparison
            if (comparison := await self._rounds.made_with(key)) is None:
                with contextlib.suppress(ComparisonHalfMade):
                    return await self._begin(request, wanted, key_id, key)
                comparison = await self._rounds.made_with(key)
            if comparison is None:
                raise ComparisonHalfMade
            return await self._answering(request, Audience(self._rounds, comparison))

    async def _begin(
        self,
        request: Request,
        wanted: NewComparison,
        key_id: str | None = None,
        key: Idempotency | None = None,
    ) -> ASGIApp:
        models = [await self._model(request, name) for name in wanted.models]
        if wanted.blind:
            _shuffled(models)
        comparison = Comparison(
            id=new_id("cmp"),
            owner=owner_of(request),
            prompts=(wanted.prompt,),
            panes=tuple(_pane(number, model) for number, model in enumerate(models)),
            system=wanted.system,
            params=wanted.params,
            blind=wanted.blind,
            order=wanted.order,
            kind=wanted.kind,
            timeout=wanted.timeout,
            lifetime=wanted.lifetime,
            created_at=self._engine.now(),
            key=key_id,
            payer=self._budgets.payer(request),
        )
        comparison = noted_if_blind(comparison)
        async with self._reserve(comparison, models) as places:
            async with self._rounds.held(comparison.id):
                if key is not None:
                    await self._rounds.keep_key(key, comparison)
                await self._rounds.add(comparison)
                going_on = self._rounds.begin(comparison, range(len(models)), places.handed_over())
        return await self._answering(request, going_on)

    async def _model(self, request: Request, name: str) -> ModelName:
        """Return the full name of a model, so that its scores are counted under one name."""
        return (await self._models.providers(access_of(request)).find(name)).name

    def _reserve(self, comparison: Comparison, models: Sequence[ModelName]) -> AbstractAsyncContextManager[Places]:
        """Reserve what all panes need, or refuse: either all start or none."""
        at_once = len(models) if comparison.order == "parallel" else 1
        return self._starting.room.reserve_all(comparison.payer, models, at_once=at_once)

    @Endpoint("POST", f"{_ONE}/turns", who=CHAT, takes=NextTurn, answers=_ROUND, streams=True)
    async def next_turn(self, request: Request) -> ASGIApp:
        """Send one more prompt to every pane; each has its own history."""
        kept = await self._own(request)
        prompt = decode(await self._bodies.read(request), NextTurn).prompt
        await check_prompt(prompt, "prompt", self._starting.check_files)
        return await self._next_round(request, kept, range(len(kept.panes)), lambda now: asked(now, prompt))

    @Endpoint("POST", f"{_ONE}/panes/{{n}}/reroll", who=CHAT, takes=Reroll, answers=_ROUND, streams=True)
    async def reroll(self, request: Request) -> ASGIApp:
        """Regenerate the answer of one pane; the model does not see its earlier answer."""
        kept = await self._own(request)
        number = kept.pane(request.path_params["n"]).pane
        decode(await self._bodies.read(request) or b"{}", Reroll)
        return await self._next_round(request, kept, [number], lambda now: asked_again(now, number))

    @Endpoint("POST", f"{_ONE}/rerun", who=CHAT, takes=Reroll, answers=_ROUND, streams=True)
    async def rerun(self, request: Request) -> ASGIApp:
        """Let every pane that did not complete answer the last prompt again."""
        kept = await self._own(request)
        decode(await self._bodies.read(request) or b"{}", Reroll)
        panes = panes_to_rerun(kept)
        return await self._next_round(request, kept, panes, lambda now: asked_again(now, *panes))

    @Endpoint("POST", f"{_ONE}/panes/{{n}}/swap", who=CHAT, takes=Swap, answers=_ROUND, streams=True)
    async def swap(self, request: Request) -> ASGIApp:
        """Replace the model of a pane. The new one gets the prompts only."""
        kept = await self._own(request)
        number = kept.pane(request.path_params["n"]).pane
        wanted = decode(await self._bodies.read(request), Swap)
        swapped(kept, number, ModelName(""))  # raises its refusal before the model is looked up
        model = await self._model(request, wanted.model)
        return await self._next_round(request, kept, [number], lambda now: swapped(now, number, model))

    async def _next_round(
        self, request: Request, kept: Comparison, panes: range | list[int], change: ComparisonChange
    ) -> ASGIApp:
        payer = self._budgets.payer(request)
        async with self._rounds.lock(kept.id):
            then = change(await self._rounds.read(kept.id, kept.owner))  # raises a refusal before the start is counted
            asked_panes = [then.panes[number] for number in panes]
            _require_models(request, asked_panes)
            async with self._reserve(replace(kept, payer=payer), [pane.model for pane in asked_panes]) as places:
                async with self._rounds.held(kept.id):
                    after = await self._rounds.change(
                        kept.id, kept.owner, lambda now: replace(change(now), payer=payer)
                    )
                    going_on = self._rounds.begin(after, panes, places.handed_over())
        return await self._answering(request, going_on)

    async def _answering(self, request: Request, going_on: Round | Audience) -> ASGIApp:
        """Respond with the live events of the panes, or with the comparison: at once if detached, else at the end."""
        if wants_events(request):
            return self._events(going_on)
        if going_on.comparison.lifetime == "attached":
            return RoundAnswer(going_on, self._rounds.shown)
        shown = await self._rounds.shown(going_on.comparison)
        return json_of(shown, status_code=202, headers={"location": f"/api/comparisons/{shown['id']}"})

    def _events(self, going_on: Round | Audience) -> ASGIApp:
        frames = RoundFrames(going_on, self._rounds.shown)
        return self._streams.stream(frames, farewell=sse.farewell(1000), on_leave=going_on.left)

    @Endpoint("POST", f"{_ONE}/stop", who=CHAT, stores=False, answers=_THERE)
    async def stop_comparison(self, request: Request) -> ASGIApp:
        """Stop every pane, including those that have not begun, and the synthesis."""
        kept = await self._own(request)
        await self._syntheses.stop(kept)
        return json_of(await self._rounds.shown(await self._rounds.stop(kept)))

    @Endpoint(
        "POST",
        f"{_ONE}/synthesis",
        who=CHAT,
        takes=NewSynthesis,
        answers={202: "the comparison", 409: "not now, or too few answers", 429: "no room", 503: "no room", **_THERE},
    )
    async def synthesize(self, request: Request) -> ASGIApp:
        """Let a model make one answer of those of the panes that have completed: a run, which goes on by itself."""
        kept = await self._own(request)
        raw = await self._bodies.read(request)
        wanted = decode(raw or b"{}", NewSynthesis)
        allowed = await self._starting.allow(request, wanted.model, idempotency(request, raw))
        if isinstance(allowed, AllowedStart):
            async with self._rounds.lock(kept.id):
                kept = await self._syntheses.begin(kept, allowed)
        return json_of(await self._rounds.shown(kept), status_code=202)

    @Endpoint("POST", f"{_ONE}/detach", who=CHAT, stores=False, answers=_THERE)
    async def detach_comparison(self, request: Request) -> ASGIApp:
        """Let the panes continue when their client leaves."""
        return await self._changed(await self._own(request), detached)

    # Reading.

    @Endpoint(
        "GET",
        "/api/comparisons",
        who=READ,
        query={
            "limit": "1 to 200",
            "before": "the last id before",
            "kind": "only those of this kind",
            "query": "words in their prompts",
        },
    )
    async def list_comparisons(self, request: Request) -> ASGIApp:
        """List comparisons without their texts, the newest first: all, or those whose prompts have some words."""
        limit = whole_number(request, "limit", 50, 200)
        query = request.query_params
        is_wanted = partial(_is_wanted, query.get("kind"), sought(text) if (text := query.get("query")) else None)
        found: list[ListedComparisonJson] = []
        last = query.get("before")
        while len(found) <= limit and (page := await self._rounds.documents.page(owner=owner_of(request), before=last)):
            listed = [it.body for it in page if is_wanted(it.body)][: limit + 1 - len(found)]
            found += [wire.listed_comparison(await self._rounds.as_it_is(kept)) for kept in listed]
            last = page[-1].id
        return json_of({"data": found[:limit], "has_more": len(found) > limit})

    @Endpoint("GET", _ONE, who=READ, answers=_THERE)
    async def get_comparison(self, request: Request) -> ASGIApp:
        """Return a comparison with the texts of its panes so far."""
        return json_of(await self._rounds.shown(await self._own(request)))

    @Endpoint(
        "GET",
        f"{_ONE}/events",
        who=READ,
        answers={200: "the events of its panes, to their end", 204: "it has settled", **_THERE},
        streams=True,
    )
    async def watch_comparison(self, request: Request) -> ASGIApp:
        """Send the events of the running panes, from the first one. A disconnect stops nothing."""
        kept = await self._own(request)
        if kept.status == "settled" and request.headers.get("last-event-id"):
            return NoContent()  # on 204 an EventSource stops reconnecting
        return self._events(Audience(self._rounds, kept))

    @Endpoint("DELETE", _ONE, who=CHAT, audit="comparison.delete", answers=_THERE)
    async def delete_comparison(self, request: Request) -> ASGIApp:
        """Stop a comparison's panes and delete it, its vote included."""
        kept = await self._own(request)
        async with self._rounds.lock(kept.id):
            await self._rounds.delete(kept)
        return NoContent()

    async def _own(self, request: Request) -> Comparison:
        return await self._rounds.read(request.path_params["comparison_id"], owner_of(request))

    # Voting.

    @Endpoint("POST", f"{_ONE}/vote", who=CHAT, takes=Ballot, answers={409: "not now", **_THERE})
    async def vote(self, request: Request) -> ASGIApp:
        """Save the only vote, and reveal the models."""
        kept = await self._own(request)
        winner = decode(await self._bodies.read(request), Ballot).winner
        at = self._engine.now()
        return await self._changed(kept, lambda now: voted(now, winner, at))

    @Endpoint("POST", f"{_ONE}/reveal", who=CHAT, stores=False, answers=_THERE)
    async def reveal(self, request: Request) -> ASGIApp:
        """Reveal the models without a vote."""
        at = self._engine.now()
        return await self._changed(await self._own(request), lambda now: revealed(now, at))

    async def _changed(self, kept: Comparison, change: ComparisonChange) -> ASGIApp:
        async with self._rounds.lock(kept.id):
            change(
                await self._rounds.read(kept.id, kept.owner)
            )  # a refusal: a running round is newer than its document
            after = await self._rounds.change(kept.id, kept.owner, change)
            if (going_on := self._rounds.of(kept.id)) is not None:
                after = going_on.comparison = change(going_on.comparison)
        return json_of(await self._rounds.shown(after))

    @Endpoint(
        "POST",
        f"{_ONE}/panes/{{n}}/continue",
        who=CHAT,
        takes=Continue,
        answers={201: "the session", 409: "still blind", **_THERE},
    )
    async def continue_pane(self, request: Request) -> ASGIApp:
        """Continue a pane in a chat session."""
        kept = await self._own(request)
        pane = kept.pane(request.path_params["n"])
        wanted = decode(await self._bodies.read(request) or b"{}", Continue)
        if not kept.is_revealed:
            raise StillBlind
        session = await self._store.get_session(pane.session_id)
        messages = await self._store.messages(pane.session_id)
        path = branch(messages, session.head_id if session else None)
        with_images = await with_files(self._store, pane.session_id, path)
        copies = copied([_with_model(message, pane.model) for message in with_images])
        now = self._engine.now()
        new = Session(
            id=new_id("ses"),
            owner=kept.owner,
            title=one_line(wanted.title) or (session.title if session else ""),
            model=pane.model,
            system=kept.system,
            params=kept.params,
            created_at=now,
            updated_at=now,
        )
        new = await self._store.copy_session(new, copies)
        self._engine.touch(new.id, new.owner)
        return Json(native.session(new), status_code=201, headers={"location": f"/api/sessions/{new.id}"})


async def _check(wanted: NewComparison, check_files: CheckFiles) -> None:
    await check_prompt(wanted.prompt, "prompt", check_files)
    check_name(wanted.kind, "kind")
    check_params(wanted.params)


def _require_models(request: Request, panes: Sequence[Pane]) -> None:
    """Refuse a round with a model that the caller may not use any more, without its name: it may be hidden."""
    if not all(access_of(request).may_ask(pane.model) for pane in panes):
        raise ModelNotFound("A model of this comparison is no longer available to you.")


def _pane(number: int, model: ModelName) -> Pane:
    return Pane(pane=number, model=model, session_id=new_id("ses"), run_id=new_id("run"))


def _with_model(message: Message, model: str) -> Message:
    """Return a message with the name of its model, which a blind pane does not store."""
    return msgspec.structs.replace(message, model=model) if message.role == "assistant" else message


def _is_wanted(kind: str | None, words: Sequence[str] | None, kept: Comparison) -> bool:
    """Return whether a comparison is of a kind, and its prompts have all of the words that are searched for."""
    if kind not in (None, kept.kind):
        return False
    return words is None or 0 < matched("\n".join(map(text_of, kept.prompts)), words) == len(words)
