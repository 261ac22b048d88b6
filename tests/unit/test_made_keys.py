"""Names of keys, and what `holdfast doctor` says of keys and their folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.server.config.settings import KeySettings, Settings, SettingsError
from holdfast.server.features.accounts.made_keys import check_key_name, new_key
from holdfast.store.sqlite.beside import SqliteBeside
from tests.requirements import requirement
from tests.support.server import clean_environment

SETTINGS = Settings(keys=(KeySettings("ada", sha256="00"),))


@requirement("safe.key-rights")
@pytest.mark.parametrize("name", ["local", "ada", "", " ", "a b", "a\n", "é", "../x", "\x1b[31m", "a:b", "x" * 65])
def test_a_name_that_is_none_or_is_taken_is_refused(name):
    """It would be an owner that nobody can tell from another, in a log, a list or a path."""
    with pytest.raises(SettingsError, match="name"):
        check_key_name(name, SETTINGS)


@pytest.mark.parametrize("name", ["alice", "a", "Ada.L", "bob@example.com", "x_y-z", "x" * 64])
def test_a_usual_name_is_taken(name):
    """Also an e-mail address."""
    check_key_name(name, SETTINGS)


def doctor(data: Path) -> str:
    command = [sys.executable, "-m", "holdfast", "doctor", "--data", str(data)]
    env = clean_environment() | {"HOME": str(data.parent), "XDG_CONFIG_HOME": str(data.parent), "COLUMNS": "300"}
    return subprocess.run(command, env=env, cwd=data.parent, capture_output=True, text=True, check=False).stdout


@requirement("safe.keys-unreadable", "safe.data-folder")
def test_the_doctor_tells_of_keys_and_of_the_folder(tmp_path):
    """Who looks after a server finds out before the server refuses to start."""
    data = tmp_path / "data"
    SqliteBeside(data).add(new_key("alice").record)
    sound = doctor(data)
    data.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(data / "holdfast.db", 65534, 65534)
    broken = doctor(data)

    assert "ok    1 key\n" in sound
    assert "Other users can write to the data folder" in broken
