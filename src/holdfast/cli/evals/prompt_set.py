"""A file of prompts for several models: run in the background, followed here, written as a report."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pathlib
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...evals.model import MOST_PROMPTS, BatchPrompt
from ...wires.csv_rows import as_csv
from .. import show
from ..chat.ctrl_c import interruptible, stopped_by
from ..client import Api, CallFailed, Object, connect
from ..completion.prefixes import BATCH, whole_id
from ..tables import Column, print_list
from .html_report import report_page

STOPPED, FAILED = 4, 1
PATIENCE = 30.0
"""Seconds to wait for a server that is not reachable. The batch continues when the server is back."""


def read_set(file: pathlib.Path) -> list[BatchPrompt]:
    """Return the prompts of a file: JSON lines (objects with `prompt`, or strings), or plain lines in a `.txt`."""
    prompts: list[BatchPrompt] = []
    text = file.read_text(encoding="utf-8-sig")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if file.suffix == ".txt":
            prompts.append(BatchPrompt(line.strip()))
            continue
        try:
            prompts.append(_prompt(msgspec.json.decode(line)))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise click.ClickException(
                f'{file}, line {number}: {error}. Each line is {{"prompt": "…", "expected": "…"}}.'
            ) from None
    if not 1 <= len(prompts) <= MOST_PROMPTS:
        raise click.ClickException(f"{file} has {len(prompts)} prompts; a set has 1 to {MOST_PROMPTS}.")
    return prompts


def _prompt(decoded: Any) -> BatchPrompt:
    return BatchPrompt(decoded) if isinstance(decoded, str) else msgspec.convert(decoded, BatchPrompt)


def check_files(*files: str | None) -> None:
    """Raise an error if an output file cannot be written, before any model is called and paid for."""
    for name in filter(None, files):
        file = pathlib.Path(name)
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise click.UsageError(f"{name} is not writable.")


async def compare_set(
    set_file: str | None,
    resume: str | None,
    *,
    models: tuple[str, ...],
    report: str | None,
    answers: str | None,
    as_csv: bool,
    as_json: bool,
    url: str | None,
    data: str | None,
    config: str | None,
    **how: Any,
) -> int:
    """Send a set of prompts to several models, follow the batch to its end, and write the results."""
    if how["blind"] or how["sequential"]:
        raise click.UsageError("--blind and --sequential do not work with --set.")
    body = _body(set_file, models, how) if resume is None else None
    async with connect(url, data, config) as api:
        with interruptible() as stop_requested:
            batch = await (_resumed(api, resume) if resume is not None else _begun(api, body or {}))
            batch = await _follow(api, batch, stop_requested)
        report_data = await api.call("GET", f"/api/batches/{batch['id']}/report")
        _print(report_data, as_csv=as_csv, as_json=as_json)
        await _write(api, report_data, report, answers)
    return _code(batch)


def _body(set_file: str | None, models: tuple[str, ...], how: dict[str, Any]) -> Object:
    if not models:
        raise click.UsageError("No models given. Use -m MODEL -m MODEL; see `holdfast models`.")
    assert set_file is not None
    file = pathlib.Path(set_file)
    body: Object = {"models": list(models), "prompts": msgspec.to_builtins(read_set(file))}
    body |= {name: how[name] for name in ("match", "concurrency", "system", "timeout") if how[name]}
    if how["kind"]:
        body["prompts"] = [{"kind": how["kind"], **prompt} for prompt in body["prompts"]]
    same = {name: value for name, value in body.items() if name != "concurrency"}
    digest = hashlib.sha256(msgspec.json.encode(same, order="sorted")).hexdigest()[:8]
    return {**body, "name": how["name"] or f"{file.name} {digest}"}


# Start or continue.


async def _begun(api: Api, body: Object) -> Object:
    """Continue the unfinished batch of that name, or start one."""
    if (known := await _unfinished(api, body["name"])) is not None:
        show.note(f"Continuing {known['id']}: {known['progress']['done']} responses so far.")
        return await _resumed(api, known["id"])
    batch = await api.call("POST", "/api/batches", body)
    show.note(f"{batch['id']}: {batch['prompts']} prompts, {len(batch['models'])} models.")
    return batch


async def _unfinished(api: Api, name: str) -> Object | None:
    listed = await api.call("GET", "/api/batches", query={"limit": 200})
    return next((batch for batch in listed["data"] if batch["name"] == name and batch["status"] != "finished"), None)


async def _resumed(api: Api, batch_id: str) -> Object:
    return await api.call("POST", f"/api/batches/{await whole_id(api, BATCH, batch_id)}/resume", {})


# Following.


async def _follow(api: Api, batch: Object, stop_requested: asyncio.Event) -> Object:
    """Show the progress to the end. Ctrl-C stops the batch and keeps its answers."""
    path = f"/api/batches/{batch['id']}"
    with stopped_by(stop_requested, api, path, "batch"):
        with _bar(batch["progress"]) as move:
            async for progress in _progress(api, batch["id"]):
                move(progress)
        return await api.call("GET", path)


async def _progress(api: Api, batch_id: str) -> AsyncGenerator[Object]:
    """Yield the progress. If the connection breaks, reconnect: the batch does not depend on it."""
    loop, lost_at = asyncio.get_running_loop(), 0.0
    while True:
        try:
            async for name, event in api.stream("GET", f"/api/batches/{batch_id}/events"):
                lost_at = 0.0
                yield event["progress"] if name == "batch.progress" else event["batch"]["progress"]
                if name == "batch.settled" and event["batch"]["status"] != "running":
                    return
        except CallFailed as error:
            if error.status in (401, 403, 404) or loop.time() - (lost_at := lost_at or loop.time()) > PATIENCE:
                raise
        await asyncio.sleep(0.3)


@contextlib.contextmanager
def _bar(progress: Object) -> Generator[Any]:
    """Yield a function that updates a progress bar. Without a terminal it prints a line for each tenth."""
    if not show.err.is_terminal:
        yield _Lines()
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[failed]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=show.err) as bar:
        task = bar.add_task("", total=progress["total"], completed=progress["done"], failed="")

        def move(now: Object) -> None:
            failed = f"{now['failed']} failed" if now["failed"] else ""
            bar.update(task, completed=now["done"], failed=failed)

        yield move


class _Lines:
    def __init__(self) -> None:
        self._tenths = -1

    def __call__(self, progress: Object) -> None:
        tenths = 10 * progress["done"] // max(progress["total"], 1)
        if tenths != self._tenths:
            self._tenths = tenths
            failed = f", {progress['failed']} failed" if progress["failed"] else ""
            show.err.print(f"{progress['done']} of {progress['total']} answered{failed}")


def _code(batch: Object) -> int:
    """Return the exit code: not 0 if the batch was stopped or an answer failed."""
    if batch["status"] != "finished":
        show.note(f"Stopped. Continue with: holdfast compare --resume {batch['id']}", "yellow")
        return STOPPED
    return FAILED if batch["progress"]["failed"] else 0


# Writing.


async def _write(api: Api, report_data: Object, report: str | None, answers: str | None) -> None:
    if report is None and answers is None:
        return
    cells = [cell async for cell in _cells(api, report_data["batch"]["id"])]
    cells.sort(key=lambda cell: (cell["number"], report_data["batch"]["models"].index(cell["model"])))
    if answers is not None:
        lines = b"".join(msgspec.json.encode(cell) + b"\n" for cell in cells)
        await asyncio.to_thread(pathlib.Path(answers).write_bytes, lines)
        show.note(f"{len(cells)} responses written to {answers}")
    if report is not None:
        drawn = report_page(report_data, cells).encode("utf-8", "replace")
        await asyncio.to_thread(pathlib.Path(report).write_bytes, drawn)
        show.note(f"Report written to {report}")


async def _cells(api: Api, batch_id: str) -> AsyncGenerator[Object]:
    query: dict[str, str | int] = {"limit": 500}
    while True:
        listed = await api.call("GET", f"/api/batches/{batch_id}/cells", query=query)
        for cell in listed["data"]:
            yield cell
        if not listed["has_more"]:
            return
        query["before"] = listed["data"][-1]["id"]


def _print(report_data: Object, *, as_csv: bool, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(show.as_json(report_data))
    elif as_csv:
        sys.stdout.write(table_of(report_data))
    else:
        print_list(COLUMNS, report_data["models"])


def table_of(report_data: Object) -> str:
    """Return a report as CSV."""
    return as_csv(report_data["models"])


def _others(model: Object) -> int:
    """Return how many responses have neither completed nor failed."""
    outcomes = model["outcomes"]
    return int(sum(outcomes.values()) - outcomes["completed"] - outcomes["failed"])


def _right(model: Object) -> str:
    agreement = model["agreement"]
    return f"{agreement['right']}/{agreement['asked']}" if agreement["asked"] else ""


def _figure(name: str, form: str) -> Callable[[Object], str]:
    """Return what shows a figure of a model; nothing if it is not known."""
    return lambda model: "" if model[name] is None else form.format(model[name])


COLUMNS = (
    Column("model"),
    Column("completed", lambda model: model["outcomes"]["completed"]),
    Column("failed", lambda model: model["outcomes"]["failed"]),
    Column("other", _others, can_wait=True),
    Column("right", _right, can_wait=True),
    Column("first token", _figure("ttft_ms_p50", "{:,.0f} ms"), can_wait=True),
    Column("tok/s", _figure("tokens_per_second_p50", "{:,.1f}"), can_wait=True),
    Column("tokens", "output_tokens", can_wait=True),
    Column("cost", _figure("cost", "{:.4f}"), can_wait=True),
)
