"""Settings that were renamed: the old name works and says so, and both names in one place are refused."""

import subprocess
import sys

import pytest

from holdfast.errors import HoldfastError
from holdfast.server.config.renamed_settings import RENAMED, OldNames
from holdfast.server.config.settings import Settings, load_with_sources
from tests.requirements import requirement
from tests.support.server import Server, clean_environment

TABLE = {"run_limit": "max_runs", "providers.limit": "providers.max_runs"}
PROGRAM = """
from holdfast.server.config import renamed_settings
renamed_settings.RENAMED["run_limit"] = "max_runs"
from holdfast.cli import main
main()
"""


def loaded(file, text="", environ=None, **flags) -> tuple[Settings, list[str]]:
    """Return the settings of a file, variables and flags, and what is noted of their names, with the file as FILE."""
    file.write_text(text)
    old_names = OldNames(TABLE)
    settings, _ = load_with_sources(flags, environ or {}, file, old_names=old_names)
    return settings, [note.replace(str(file), "FILE") for note in old_names.notes]


@requirement("ops.renamed-settings")
@pytest.mark.parametrize(
    ("given", "noted"),
    [
        ({"text": "run_limit = 7"}, "run_limit in FILE has a new name: max_runs."),
        ({"environ": {"HOLDFAST_RUN_LIMIT": "7"}}, "HOLDFAST_RUN_LIMIT has a new name: HOLDFAST_MAX_RUNS."),
        ({"run_limit": 7}, "--run-limit has a new name: --max-runs."),
    ],
)
def test_the_old_name_of_a_setting_still_works_and_is_noted_once(tmp_path, given, noted):
    """An upgrade must not stop a server for the sake of a name."""
    settings, notes = loaded(tmp_path / "holdfast.toml", **given)

    assert 7 == settings.max_runs
    assert [f"{noted} The old one still works; rename it."] == notes


@requirement("ops.renamed-settings")
def test_the_old_name_of_a_field_of_a_table_still_works(tmp_path):
    """It may be in several tables, and is noted once."""
    table = '[[providers]]\nname = "{}"\nbase_url = "http://127.0.0.1:1/v1"\nlimit = 3\n'
    settings, notes = loaded(tmp_path / "holdfast.toml", table.format("a") + table.format("b"))

    assert [3, 3] == [provider.max_runs for provider in settings.providers if provider.name in ("a", "b")]
    assert ["limit of [providers] in FILE has a new name: max_runs. The old one still works; rename it."] == notes


@requirement("ops.renamed-settings")
@pytest.mark.parametrize(
    "given",
    [
        {"text": "run_limit = 7\nmax_runs = 8"},
        {"environ": {"HOLDFAST_RUN_LIMIT": "7", "HOLDFAST_MAX_RUNS": "8"}},
        {"run_limit": 7, "max_runs": 8},
    ],
)
def test_both_names_in_one_place_are_refused(tmp_path, given):
    """Which one counts would be a guess."""
    with pytest.raises(HoldfastError, match=r"is the old name of .* Remove "):
        loaded(tmp_path / "holdfast.toml", **given)


@requirement("ops.renamed-settings")
def test_a_variable_wins_over_the_file_under_either_name(tmp_path):
    """As it does if nothing was renamed."""
    environ = {"HOLDFAST_MAX_RUNS": "8"}

    assert 8 == loaded(tmp_path / "holdfast.toml", "run_limit = 7", environ)[0].max_runs


@requirement("ops.renamed-settings")
@pytest.mark.one_server("its program serves on one port")
async def test_a_server_warns_once_at_its_start(tmp_path):
    """Somebody who upgrades reads the log."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    config = "metrics = true\nrun_limit = 7\n"
    async with Server(tmp_path, config=config, program=[sys.executable, str(program)]) as server:
        async with server.client() as client:
            shown = await (await client.get("/metrics")).text()
        log = server.log_text()

    assert "holdfast_runs_limit 7.0" in shown
    assert 1 == log.count("has a new name: max_runs")
    assert "WARNING run_limit in " in log


@requirement("ops.renamed-settings", "ops.config-check")
def test_config_check_shows_an_old_name_and_is_content(tmp_path):
    """It is no error yet."""
    (tmp_path / "holdfast.toml").write_text("run_limit = 7\n")
    (tmp_path / "holdfast.toml").chmod(0o600)
    arguments = ["config", "check", "--config", str(tmp_path / "holdfast.toml")]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    env = clean_environment() | {"HOME": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)

    assert 0 == ended.returncode
    assert "has a new name: max_runs" in ended.stderr
    assert "The settings are valid" in ended.stdout


def test_every_new_name_is_a_setting():
    """A name that was renamed twice leads to the last one."""
    assert [] == [new for new in RENAMED.values() if "." not in new and new not in Settings.__struct_fields__]
