"""The dashboard and the alert rules with a real Prometheus: panels have data, and each alert fires for its incident."""

import asyncio
import json
import subprocess
import time
from pathlib import Path

import asyncpg
import pytest
import yaml

from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.programs import PROMETHEUS
from tests.support.prometheus import ALERTS, Prometheus, busy_node, panels
from tests.support.waiting import LONG

STEPS = 120
"""Samples of each series, 15 seconds apart: half an hour."""
AT = "25m"
"""When the alerts are looked at."""
JUST_NOW = f"0x80 1x{STEPS - 80}"
"""A counter that has counted its first at 20 minutes."""


def counter(step: int) -> str:
    """A counter that grows by a step with each sample."""
    return f"0+{step}x{STEPS}"


def gauge(value: float) -> str:
    return f"{value}x{STEPS}"


def histogram(name: str, labels: str, bounds: tuple[str, ...], first: str) -> dict[str, str]:
    """A histogram whose observations are all between the bound before `first` and `first`."""
    at = bounds.index(first)
    return {
        f'{name}_bucket{{{labels}le="{bound}"}}': counter(10 if place >= at else 0)
        for place, bound in enumerate(bounds)
    }


def commits(first: str) -> dict[str, str]:
    bounds = ("0.005", "0.25", "0.5", "+Inf")
    return histogram("holdfast_store_operation_seconds", 'operation="append",', bounds, first)


def first_tokens(first: str) -> dict[str, str]:
    bounds = ("1.0", "10.0", "30.0", "+Inf")
    return histogram("holdfast_time_to_first_token_seconds", 'provider="up",model="m",', bounds, first)


def stops(first: str) -> dict[str, str]:
    return histogram("holdfast_stop_latency_seconds", 'by="user",', ("0.1", "2.5", "5.0", "+Inf"), first)


def lags(first: str) -> dict[str, str]:
    return histogram("holdfast_event_loop_lag_seconds", "", ("0.005", "0.25", "0.5", "+Inf"), first)


def runs(outcome: str) -> str:
    return f'holdfast_runs_total{{outcome="{outcome}",kind="chat",provider="up",model="m"}}'


REFUSED_KEY = 'holdfast_run_errors_total{provider="up",code="upstream_auth"}'
WRONG_KEYS = 'holdfast_requests_refused_total{reason="wrong_key"}'
STORE_ERRORS = 'holdfast_store_errors_total{operation="append"}'

WELL = {
    "up": gauge(1),
    "holdfast_store_available": gauge(1),
    STORE_ERRORS: gauge(0),
    **commits("0.005"),
    "holdfast_postgres_slot_lag_bytes": gauge(1e8),
    runs("completed"): counter(10),
    runs("failed"): gauge(0),
    REFUSED_KEY: gauge(0),
    **first_tokens("1.0"),
    **stops("0.1"),
    "holdfast_runs_running": gauge(5),
    "holdfast_runs_limit": gauge(10),
    **lags("0.005"),
    "holdfast_background_tasks_failing": gauge(0),
    "holdfast_takeovers_total": gauge(0),
    WRONG_KEYS: counter(1),
    "process_open_fds": gauge(100),
    "process_max_fds": gauge(1000),
}
"""The series of a node that is well."""

INCIDENTS = {
    "HoldfastDown": {"up": gauge(0)},
    "HoldfastStoreUnavailable": {"holdfast_store_available": gauge(0)},
    "HoldfastStoreErrors": {STORE_ERRORS: counter(1)},
    "HoldfastStoreSlow": commits("0.5"),
    "HoldfastSlotBehind": {"holdfast_postgres_slot_lag_bytes": gauge(6e9)},
    "HoldfastRunsFail": {runs("failed"): counter(5)},
    "HoldfastUpstreamKeyRefused": {REFUSED_KEY: JUST_NOW},
    "HoldfastFirstTokenSlow": first_tokens("30.0"),
    "HoldfastStopSlow": stops("5.0"),
    "HoldfastRunsNearLimit": {"holdfast_runs_running": gauge(10)},
    "HoldfastEventLoopBlocked": lags("0.5"),
    "HoldfastBackgroundTaskFails": {"holdfast_background_tasks_failing": gauge(1)},
    "HoldfastNodeLost": {"holdfast_takeovers_total": JUST_NOW},
    "HoldfastWrongKeys": {WRONG_KEYS: counter(60)},
    "HoldfastFilesNearLimit": {"process_open_fds": gauge(900)},
}
"""The series of a node in the incident of each alert, as far as they differ."""


def with_job(series: str) -> str:
    """Return a series with the labels that Prometheus adds."""
    name, _, labels = series.partition("{")
    return f'{name}{{job="holdfast",instance="a:9464"{"," + labels if labels else "}"}'


def case(changed: dict[str, str], firing: list[str]) -> dict[str, object]:
    """A test of promtool: with these series exactly these alerts fire."""
    series = [{"series": with_job(name), "values": values} for name, values in (WELL | changed).items()]
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing]
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    asked = {"expr": expression, "eval_time": AT, "exp_samples": samples}
    return {"interval": "15s", "input_series": series, "promql_expr_test": [asked]}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Prometheus's own tool for rules, which comes with it."""
    tool = Path(PROMETHEUS.find_or_skip()).with_name("promtool")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)


def rules_tested(cases: list[dict[str, object]], folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "15s", "tests": cases}))
    return promtool("test", "rules", str(file))


@requirement("ops.alerts")
def test_each_alert_fires_in_its_incident_and_no_other_does(tmp_path):
    """An alert that was never seen to fire is a hope."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    ended = rules_tested([case(changed, [alert]) for alert, changed in INCIDENTS.items()], tmp_path)

    assert [*INCIDENTS] == [rule["alert"] for rule in rules]
    assert 0 == ended.returncode, ended.stdout + ended.stderr


@requirement("ops.alerts")
def test_no_alert_fires_for_a_node_that_is_well(tmp_path):
    """One that fires for nothing is soon ignored."""
    quiet, wrong = rules_tested([case({}, [])], tmp_path), rules_tested([case({}, ["HoldfastDown"])], tmp_path)

    assert 0 == quiet.returncode, quiet.stdout + quiet.stderr
    assert wrong.returncode != 0
    assert 0 == promtool("check", "rules", str(ALERTS)).returncode


@pytest.mark.long("it needs a real Prometheus and some seconds of load; test_metrics_docs.py checks names and labels")
@requirement("ops.dashboard")
async def test_every_panel_of_the_dashboard_has_data_under_load(postgres, tmp_path):
    """An empty panel looks like peace."""
    url, slot = postgres.url(await postgres.new_database()), f"standby_{free_port()}"
    database = await asyncpg.connect(url)
    await database.execute("SELECT pg_create_physical_replication_slot($1, TRUE)", slot)
    try:
        async with (
            busy_node(tmp_path / "node", url) as node,
            Prometheus(tmp_path / "prometheus", node.metrics_port) as prometheus,
            asyncio.timeout(LONG),
        ):
            began, empty = time.time(), {""}
            while empty:
                await node.cause_everything()
                empty = {
                    target["expr"]
                    for panel in panels()
                    for target in panel["targets"]
                    if not await prometheus.series(target["expr"], began, time.time())
                }
            (rules,) = (await prometheus.ask("rules"))["groups"]
    finally:
        await database.execute("SELECT pg_drop_replication_slot($1)", slot)
        await database.close()

    assert [] == [rule for rule in rules["rules"] if rule["health"] != "ok"]
    assert len(INCIDENTS) == len(rules["rules"])
