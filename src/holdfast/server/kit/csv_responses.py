"""CSV responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...errors import BadRequest
from ...wires.csv_rows import as_csv
from .http.errors import PRIVATE


def wants_csv(request: Request) -> bool:
    """Return whether the query asks for CSV in place of JSON."""
    form = request.query_params.get("format", "json")
    if form not in ("json", "csv"):
        raise BadRequest("format must be json or csv.", param="format")
    return form == "csv"


def csv_answer(rows: Sequence[Mapping[str, Any]], name: str) -> Response:
    """Return rows as a CSV file."""
    headers = {**PRIVATE, "content-disposition": f'attachment; filename="{name}"'}
    return Response(as_csv(rows), media_type="text/csv; charset=utf-8", headers=headers)
