"""Format of the server's log: text or JSON. No text in an entry can forge another entry."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import holdfast

from ..redaction import hide_link
from ..server.config.settings import Settings, SettingsError
from ..server.config.settings_errors import suggestion
from ..task_context.logged_run import LOGGED_RUN
from .screen import safe

FORMAT = "%(asctime)s %(levelname)s %(message)s"
ACCESS = "uvicorn.access"
"""The logger of the access log. The arguments of its entries are client, method, path, HTTP version and status."""
IDS = ("run", "session", "request", "outcome")
TRACE_IDS = ("trace_id", "span_id")
_ID = re.compile(r"(run|ses|req)_[0-9a-z]{36}")
_FIELDS = {"run": "run", "ses": "session", "req": "request"}

TraceIds = Callable[[str], tuple[str, str] | None]
"""Returns the ids of the trace and the span in which an entry is written, or else those of the run that it names."""


def no_trace(run_id: str) -> None:
    """Return no ids: traces are off."""


class LogFormatter(logging.Formatter):
    """Indents the continuation lines of an entry, and removes control characters.

    Names of models, errors of upstreams and the error output of MCP servers come from others. Without
    the indent, a line end in one of them could forge an entry.
    """

    def __init__(self, trace: TraceIds = no_trace) -> None:
        super().__init__(FORMAT)
        self._trace = trace

    def format(self, record: logging.LogRecord) -> str:
        """Return an entry. Ids that are not in the message stand at its end, without that of the span."""
        first, *more = super().format(_as_ours(record)).splitlines() or [""]
        known = ids_of(record)
        ids = [id for id in known.values() if id not in first]
        if trace := self._trace(known.get("run", "")):
            ids.append(f"trace:{trace[0]}")
        first = f"{first} [{' '.join(ids)}]" if ids else first
        return "\n    ".join(map(safe, (first, *more)))


class JsonLogFormatter(logging.Formatter):
    """Returns an entry as one line of JSON: time, level, logger, message, and ids as far as they are known."""

    def __init__(self, node: Callable[[], str], trace: TraceIds = no_trace) -> None:
        super().__init__()
        self._node, self._trace = node, trace

    def format(self, record: logging.LogRecord) -> str:
        """Return an entry."""
        ids = ids_of(record)
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _lines(_as_ours(record).getMessage()),
            **ids,
        }
        if trace := self._trace(ids.get("run", "")):
            entry |= zip(TRACE_IDS, trace, strict=True)
        if node := self._node():
            entry["node"] = node
        if record.name == ACCESS:
            entry |= _access_fields(record)
        if record.exc_info:
            entry["error"] = _lines(self.formatException(record.exc_info))
        return msgspec.json.encode(_writable(entry)).decode()


def _writable(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without half characters (surrogates), which UTF-8 does not have."""
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in entry.items()
    }


def _lines(text: str) -> str:
    """Return a text without control characters but line ends, which JSON escapes."""
    return "\n".join(map(safe, text.splitlines()))


def _as_ours(record: logging.LogRecord) -> logging.LogRecord:
    """Return an entry of the access log in our format, without the query, which may hold a secret."""
    if record.name != ACCESS:
        return record
    fields = _access_fields(record)
    message = f"{fields['method']} {fields['path']} {fields['status']} {fields['client']}"
    return logging.makeLogRecord({**record.__dict__, "msg": message, "args": ()})


def _access_fields(record: logging.LogRecord) -> dict[str, Any]:
    client, method, path, _, status = record.args if isinstance(record.args, tuple) else ("", "", "", "", 0)
    return {
        "client": safe(str(client)),
        "method": method,
        "path": safe(hide_link(str(path).partition("?")[0])),
        "status": status,
    }


def ids_of(record: logging.LogRecord) -> dict[str, str]:
    """Return the ids of an entry: those given with it, those of the task, and arguments that are ids."""
    given = {name: getattr(record, name) for name in IDS if hasattr(record, name)}
    found = {name: id for name, id in zip(IDS, LOGGED_RUN.get(), strict=False) if id} | given
    args = record.args if isinstance(record.args, tuple) else ()
    for arg in args if record.name != ACCESS else ():
        if isinstance(arg, str) and (match := _ID.fullmatch(arg)):
            found.setdefault(_FIELDS[match[1]], arg)
    return found


class ServerLog:
    """The log of this process, on standard error."""

    def __init__(self, settings: Settings) -> None:
        self.node: Callable[[], str] = str
        """Returns the id of this node, once it is known."""
        self.trace: TraceIds = no_trace
        self._handler = logging.StreamHandler()
        self._levels: Mapping[str, str] = {}
        logging.basicConfig(handlers=[self._handler])
        self.change(settings)

    def change(self, settings: Settings) -> None:
        """Apply the format and the levels of the settings."""
        check_loggers(settings)
        is_json = settings.log_format == "json"
        self._handler.setFormatter(
            JsonLogFormatter(lambda: self.node(), self._trace_of) if is_json else LogFormatter(self._trace_of)
        )
        logging.getLogger().setLevel(settings.log_level.upper())
        for name in self._levels:
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in settings.log_levels.items():
            logging.getLogger(name).setLevel(level.upper())
        self._levels = settings.log_levels

    def _trace_of(self, run_id: str) -> tuple[str, str] | None:
        return self.trace(run_id)


def check_loggers(settings: Settings) -> None:
    """Refuse a level for a module of ours that does not exist."""
    root = Path(holdfast.__file__).parent
    known = {".".join(("holdfast", *path.relative_to(root).with_suffix("").parts)) for path in root.rglob("*.py")}
    known = {name.removesuffix(".__init__") for name in known}
    for name in settings.log_levels:
        if name.startswith("holdfast") and name not in known:
            raise SettingsError(f"log_levels: there is no module {name!r}.{suggestion(name, known)}")
