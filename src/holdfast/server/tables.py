"""Answers that a spreadsheet can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..batches import as_csv
from ..errors import BadRequest


def wants_csv(request: Request) -> bool:
    """Tell whether the query asks for CSV in place of JSON."""
    form = request.query_params.get("format", "json")
    if form not in ("json", "csv"):
        raise BadRequest("format is json or csv.", param="format")
    return form == "csv"


def csv_answer(rows: Sequence[Mapping[str, Any]], name: str) -> Response:
    """Return rows as a file."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(as_csv(rows), media_type="text/csv; charset=utf-8", headers=headers)
