"""The acceptance suite, with three nodes in place of every server: each request goes to a random one of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.waiting import LONG

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    "test_stop",
    "test_subscribe",
    "test_busy",
    "test_history",
    "test_turns",
    "test_continue",
    "test_start",
    "test_disconnect",
    "test_session_list",
    "test_steer",
    "test_approvals",
    "test_ai_sdk",
    "test_ag_ui",
    "test_pictures",
    "test_limits",
    "test_safety",
    "test_bad_input",
    "test_keys",
    "test_settings",
    "test_compare",
    "test_batches",
    "test_search",
    "test_blind",
    "test_webhooks",
    "test_usage",
    "test_own_data",
    "test_one_client",
    "test_messages",
    "test_responses",
    "test_every_wire",
    "test_fields",
    "test_truth",
    "test_page",
    "test_log",
    "test_log_format",
    "test_secrets",
    "test_reload",
    "test_metrics",
    "test_compression",
    "test_llama_cpp",
    "test_crash",
    "test_ollama_wire",
    "test_accounts",
    "test_sharing",
    "test_group_sessions",
    "test_budgets",
    "test_audit",
    "test_people_data",
    "test_push",
    "test_seen",
    "test_presets",
    "test_schedules",
    "test_triggers",
    "test_legs",
]
SOME = "fifty_stops or status_has or queued_message_can_be or attached_run_lives_by"
"""A few of the tests that failed before nodes knew each other's runs."""


def play(*arguments: str) -> None:
    """Run tests with three nodes. A test marked `one_server` is left out."""
    environment = dict(os.environ) | {"HOLDFAST_TEST_NODES": "3"}
    played = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *arguments],
        cwd=ROOT,
        env={name: value for name, value in environment.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == played.returncode, played.stdout[-8000:] + played.stderr[-2000:]
    assert " passed" in played.stdout, "no test was run"


@requirement("nodes.any", "nodes.follow")
@pytest.mark.timeout(4 * LONG)
def test_some_requirements_hold_at_a_random_node_of_three():
    """What a client was told by one node it can go on with at any other."""
    play(
        *(f"tests/acceptance/{name}.py" for name in ("test_stop", "test_subscribe", "test_busy", "test_disconnect")),
        "-k",
        SOME,
    )


@requirement("nodes.any", "nodes.follow")
@pytest.mark.long("the same tests have run with one server")
@pytest.mark.timeout(10 * LONG)
@pytest.mark.parametrize("name", FILES)
def test_requirements_hold_at_a_random_node_of_three(name):
    """The tests do not know that each request may reach another node."""
    play(f"tests/acceptance/{name}.py")
