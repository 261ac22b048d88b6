"""A real Prometheus, and a node with some of everything that the dashboard shows."""

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from tests.support.http import Client
from tests.support.native import Native
from tests.support.ports import free_port
from tests.support.programs import PROMETHEUS
from tests.support.server import Process, Server, clean_environment, provider
from tests.support.upstream import Delta, Gate, Hang, Headers, Role, Status, Upstream, answer
from tests.support.waiting import LONG

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus-alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
READY = re.compile(r"Server is ready to receive web requests")
RATE_INTERVAL = "20s"
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{alerts}"]
scrape_configs:
  - job_name: holdfast
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

Series = tuple[dict[str, str], list[tuple[float, float]]]
"""The labels of a series, and its values with their times."""


class Prometheus(Process):
    """`async with Prometheus(folder, metrics_port) as prometheus:` reads a node each second."""

    def __init__(self, folder: Path, metrics_port: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        configuration = folder / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(alerts=ALERTS, port=metrics_port))
        command = [
            PROMETHEUS.find_or_skip(),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        super().__init__(command, log=folder / "prometheus.log", env=clean_environment(), cwd=folder)

    async def __aenter__(self) -> Self:
        await self.start(READY, LONG)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill9()

    async def ask(self, path: str, **query: Any) -> Any:
        """Call its API, and return the data of the response."""
        async with Client(self._url) as client:
            response = await client.get(f"/api/v1/{path}?{urlencode(query)}")
            assert 200 == response.status, await response.text()
            return (await response.json())["data"]

    async def series(self, expression: str, begin: float, end: float, step: float = 1.0) -> list[Series]:
        """Return the series of an expression as the dashboard writes it, without values that are no numbers."""
        asked = expression.replace("$instance", ".*").replace("$__rate_interval", RATE_INTERVAL)
        found = await self.ask("query_range", query=asked, start=begin, end=end, step=step)
        series = [
            (each["metric"], [(at, float(value)) for at, value in each["values"] if math.isfinite(float(value))])
            for each in found["result"]
        ]
        return [each for each in series if each[1]]


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard that show metrics."""
    return [each for each in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"] if each["type"] != "row"]


class Busy:
    """A node and its upstream, to cause whatever the dashboard shows."""

    def __init__(self, up: Upstream, server: Server, client: Client, metrics_port: int) -> None:
        self.metrics_port = metrics_port
        self._up, self._server, self._client = up, server, client
        self._api = Native(client)

    async def cause_everything(self) -> None:
        """Have runs of every outcome, a retry, a fallback, a queue, and a refused request."""
        await self._settle(answer("One ", "two ", "three."))
        await self._settle([Status(503)], answer("At the second try."))
        await self._settle([Status(401)], answer("By the fallback."), model="up/first")
        await self._stop_one()
        await self._queue_one()
        await self._settle([Status(401)])  # the last: for some seconds the same request is refused
        await (await self._client.get("/api/sessions", headers={"Origin": "http://elsewhere.example"})).body()

    async def _settle(self, *scripts: Any, model: str = "up/m") -> None:
        self._up.enqueue(*scripts)
        await self._api.settled(await self._api.start(await self._api.new_session(), "Count", model))

    async def _stop_one(self) -> None:
        self._up.enqueue([Headers(), Role(), Delta("One "), Hang()])
        run_id = await self._api.start(await self._api.new_session(), "Count", "up/m")
        await self._api.shown(run_id, "One ")
        await self._api.stop(run_id)
        await self._api.settled(run_id)

    async def _queue_one(self) -> None:
        gate = f"gate{free_port()}"
        self._up.enqueue([Headers(), Role(), Delta("One "), Gate(gate), *answer("two.")[2:]], answer("Next."))
        session_id = await self._api.new_session()
        first = await self._api.start(session_id, "Count", "up/m")
        second = await self._api.start(session_id, "Count on", "up/m", if_busy="queue")
        self._up.open(gate)
        await asyncio.gather(self._api.settled(first), self._api.settled(second))


@asynccontextmanager
async def busy_node(folder: Path, store: str) -> AsyncGenerator[Busy]:
    """Start a node on PostgreSQL that measures itself, with its upstream."""
    port = free_port()
    config = (
        f'metrics_port = {port}\n[fallbacks]\n"up/first" = "up/m"\n[prices]\n"up/m" = {{input = 2.0, output = 4.0}}\n'
    )
    async with Upstream() as up:
        described = provider(up.base_url, models=("m", "first"))
        async with Server(folder, [described], config=config, env={"HOLDFAST_STORE": store}, nodes=1) as server:
            async with server.client() as client:
                yield Busy(up, server, client, port)
