"""`/api/comparisons/scores` and `/export`: ratings and votes as JSON and CSV."""

from __future__ import annotations

import datetime

from starlette.requests import Request
from starlette.types import ASGIApp

from ..access import READ
from ..errors import BadRequest
from ..server.kit.caller import owner_of
from ..server.kit.csv_responses import csv_answer, wants_csv
from ..server.kit.feature import Endpoint, Feature
from ..server.kit.http.errors import Json
from ..server.kit.http.offload import Offload
from ..server.sources.thumbs import thumbs_in
from ..store import Store
from ..wires import native
from .model import Comparison
from .runs import Rounds
from .scores import scoreboard, vote_rows, votes

_QUERY = {"kind": "only comparisons of this kind", "since": "made at or after", "until": "made before"}


class ScoresApi(Feature):
    """The scores of models, from votes."""

    def __init__(self, rounds: Rounds, offload: Offload, store: Store) -> None:
        self._rounds, self._offload, self._thumbs = rounds, offload, thumbs_in(store)

    @Endpoint("GET", "/api/comparisons/scores", who=READ, query={**_QUERY, "format": "json or csv"})
    async def comparison_scores(self, request: Request) -> ASGIApp:
        """Return the scores of the models: ratings from blind votes, counts, thumbs, and speed of completed panes."""
        as_table, chosen = wants_csv(request), await self._chosen(request)
        thumbs = await self._thumbs_of(request)
        scores = await self._offload.run(lambda: scoreboard(chosen, thumbs))  # many votes take a second
        return csv_answer(scores["models"], "scores.csv") if as_table else Json(scores)

    @Endpoint("GET", "/api/comparisons/export", who=READ, query={**_QUERY, "format": "json or csv"})
    async def export_votes(self, request: Request) -> ASGIApp:
        """Return every vote with its panes."""
        as_table, votes_json = wants_csv(request), votes(await self._chosen(request))
        for vote in votes_json:
            vote["at"] = native.moment(vote["at"])
        return csv_answer(vote_rows(votes_json), "votes.csv") if as_table else Json({"data": votes_json})

    async def _thumbs_of(self, request: Request) -> list[tuple[str, str]]:
        """Return the caller's votes on answers of chats, each with its model. Chats are of no kind."""
        if request.query_params.get("kind") is not None:
            return []
        since, until = _moment(request, "since") or 0.0, _moment(request, "until") or float("inf")
        thumbs = self._thumbs.all(owner=owner_of(request))
        return [(each.body.model, each.body.vote) async for each in thumbs if since <= each.updated_at < until]

    async def _chosen(self, request: Request) -> list[Comparison]:
        """Return the caller's comparisons that match the query's kind and time, the newest first."""
        kind, since, until = request.query_params.get("kind"), _moment(request, "since"), _moment(request, "until")
        chosen: list[Comparison] = []
        async for stored in self._rounds.documents.all(owner=owner_of(request)):
            comparison = stored.body
            is_in_time = (since or 0.0) <= comparison.created_at < (until or float("inf"))
            if is_in_time and kind in (None, comparison.kind):
                chosen.append(comparison)
        return chosen


def _moment(request: Request, name: str) -> float | None:
    """Return a time of the query as seconds; a day is its beginning, and a time without a zone is UTC."""
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text.replace(" ", "+"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequest(f"{name} is a day or a time, as 2026-11-16 or 2026-11-16T04:00:00Z.", param=name) from None
