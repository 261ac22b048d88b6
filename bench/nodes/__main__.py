"""`python -m bench.nodes`: measure several nodes on PostgreSQL, and write the table of docs/scale.md.

It takes about eight minutes. `--only appends idle` measures some parts, and keeps the newest results of the others.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import machine
from bench.nodes import appends, faults, readers
from bench.nodes.table import RESULTS, newest, written

PARTS: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
    "appends": appends.measure,
    "readers": readers.measure,
    "takeover": faults.takeover,
    "outage": faults.outage,
    "rolling": faults.rolling_restart,
    "idle": faults.idle,
}


def main() -> None:
    """Measure, keep the results, and write the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--draw", action="store_true", help="Only write the document, from the newest results.")
    asked = parser.parse_args()
    if not asked.draw:
        machine.share_cores()
        machine.allow_many_files()
        results: dict[str, Any] = newest() if set(asked.only) != set(PARTS) else {"parts": {}}
        results["machine"] = machine.facts()
        for name in asked.only:
            load = os.getloadavg()[0]
            figures = asyncio.run(_measured(PARTS[name]))
            at = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
            results["parts"][name] = {"load": round(load, 1), "at": at} | figures
            print(name, json.dumps(results["parts"][name], indent=1))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    document = Path("docs/scale.md")
    document.write_text(written(document.read_text(), newest()))


async def _measured(part: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, Any]:
    return {name: round(value, 3) for name, value in (await part()).items()}


main()
