"""The dashboard, the alert rules and the table of docs/metrics.md name metrics that exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.server.config.settings import Settings
from holdfast.server.features.observe.metrics.families import FAMILIES
from holdfast.server.features.observe.metrics.prometheus import PrometheusMetrics
from scripts import docs_metrics
from tests.requirements import requirement

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
ALERTS = ROOT / "deploy" / "prometheus-alerts.yml"
PAGE = ROOT / "docs" / "metrics.md"

METRIC = re.compile(r"\b((?:holdfast|process)_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
ADDED = {"instance", "job", "le"}
"""Labels that Prometheus adds."""
SAMPLES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
OF_A_PROCESS = {"cpu_seconds_total", "resident_memory_bytes", "virtual_memory_bytes", "open_fds", "max_fds"}

LABELS = {f"{family.name}{end}": {*family.labels} for family in FAMILIES for end in SAMPLES[family.kind]} | {
    f"process_{name}": set() for name in OF_A_PROCESS
}
"""The labels of every sample that a server has, by its name."""


def wrong(expression: str) -> list[str]:
    """Return the metrics and labels of an expression that no server has."""
    known = {*ADDED}
    found = []
    for name, matchers in METRIC.findall(expression):
        if name not in LABELS:
            found.append(name)
            continue
        known |= LABELS[name]
        used = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)
        found += [f"{name}{{{label}}}" for label in used if label not in LABELS[name] | ADDED]
    grouped = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",")}
    return [*found, *sorted(grouped - known)]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        if panel["type"] != "row":
            yield panel


def test_every_alert_is_about_metrics_that_exist():
    """A rule with a misspelt metric is silent for ever."""
    assert {} == {rule["alert"]: found for rule in rules() if (found := wrong(rule["expr"]))}
    assert len(rules()) > 10


@requirement("ops.dashboard")
def test_every_panel_shows_metrics_that_exist():
    """A panel with a misspelt metric shows "No data", which looks like peace."""
    shown = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]

    assert [] == [(title, found) for title, expression in shown if (found := wrong(expression))]
    assert len(shown) > 20


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("holdfast_run_total", ["holdfast_run_total"]),
        ('holdfast_runs_total{outcom="failed"}', ["holdfast_runs_total{outcom}"]),
        ("sum by (modle) (holdfast_runs_total)", ["modle"]),
        ('sum by (model) (holdfast_runs_total{outcome="failed"})', []),
    ],
)
def test_a_wrong_name_is_found(expression, found):
    """A check that finds nothing proves nothing until it has found something."""
    assert found == wrong(expression)


def test_every_metric_is_on_the_dashboard():
    """What is measured and never shown is not worth its cost."""
    shown = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    names = {family.name for family in FAMILIES} - {"holdfast_build_info"}

    assert set() == {name for name in names if not re.search(rf"\b{name}(_bucket|_sum|_count)?\b", shown)}


async def test_a_server_has_the_metrics_of_the_list_and_those_of_the_process():
    """The checks above compare with this list."""
    text, _ = await PrometheusMetrics(Settings(metrics=True)).text("")
    named = set(re.findall(r"^# TYPE (\w+) \w+$", text.decode(), re.MULTILINE))
    made_at = {name for name in named if name.endswith("_created")}

    assert {family.name for family in FAMILIES} == {name for name in named - made_at if name.startswith("holdfast_")}
    assert {f"process_{name}" for name in OF_A_PROCESS} <= named


def test_the_table_of_metrics_is_the_one_that_the_metrics_give():
    """Run `make reference` after a change."""
    page = PAGE.read_text(encoding="utf-8")

    assert docs_metrics.with_metrics(page) == page


def test_every_alert_says_what_to_do():
    """An alert at night is read by somebody who did not write it."""
    explained = re.findall(r"`(Holdfast\w+)`", PAGE.read_text(encoding="utf-8"))

    assert {rule["alert"] for rule in rules()} == {*explained}
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in rules())


def test_every_configuration_of_prometheus_in_the_page_has_targets_and_rules_that_exist():
    """They are pasted as they are."""
    pasted = [
        yaml.safe_load(code) for code in re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    ]

    assert pasted
    for configuration in pasted:
        assert [job["job_name"] for job in configuration["scrape_configs"] if job["static_configs"][0]["targets"]]
        assert all((ROOT / "deploy" / name).is_file() for name in configuration.get("rule_files", []))
