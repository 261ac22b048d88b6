"""How long a server takes from its command to its first answer, and what it is then."""

from __future__ import annotations

import os
import re
import sys
import tempfile

from bench import machine
from bench.instruments import Upstream
from bench.measure import Figures
from bench.plays import MODELS
from bench.targets import Target


def start(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Cold: no bytecode and no data folder; warm: with the bytecode that the cold start has left."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as bytecode:
        own = {"PYTHONPYCACHEPREFIX": bytecode}
        cold = _started(target, upstream, own)
        warm = _started(target, upstream, own)
        loaded = _started(target, upstream, own | {"PYTHONPROFILEIMPORTTIME": "1"})
    return {
        "cold_start_s": cold.started_in,
        "warm_start_s": warm.started_in,
        "rss_mb": warm.rss_kb / 1024,
        "modules": len(loaded.modules),
        "packages": len({name.partition(".")[0] for name in loaded.modules} - sys.stdlib_module_names),
    }


class _Seen:
    """What is known of a server that has answered once."""

    def __init__(self, server: Target) -> None:
        assert server.pid
        self.started_in = server.started_in
        self.rss_kb = machine.memory(server.pid).rss_kb
        self.modules = set(re.findall(r"^import time:.*\| +(\S+)$", server.output(), re.MULTILINE))


def _started(target: Target, upstream: Upstream, environment: dict[str, str]) -> _Seen:
    before = dict(os.environ)
    os.environ.update(environment)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or no start would ever be a warm one
    try:
        server = type(target)(upstream.port, MODELS)
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        return _Seen(server)
    finally:
        server.stop()
