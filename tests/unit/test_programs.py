"""The programs of the tests are found or fetched. If neither works a line says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import CHROMIUM, why_it_does_not_start

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[2]
SCRIPT = f"""#!{sys.executable}
import sys
from pathlib import Path

here = Path(__file__).parent
with open(here / "asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
"""
APT = (
    SCRIPT
    + """
if "--no-download" in sys.argv and (here / "fetched").exists():
    (here / "chromium").touch(0o755)
if "--download-only" in sys.argv:
    (here / "fetched").touch()
if "download" in sys.argv:
    Path("caddy_2.deb").touch()
"""
)
APT_WITH_EMPTY_LISTS = APT.replace(
    'if "download" in',
    """
own = [each for each in sys.argv if each.startswith("Dir::State::Lists=")]
if "update" in sys.argv and own:
    Path(own[0].split("=")[1], "packages").touch()
if "download" in sys.argv and not (own and Path(own[0].split("=")[1], "packages").exists()):
    sys.exit("E: No such package")
if "download" in""",
)
BROKEN_APT = f"""#!{sys.executable}
import sys

print("Reading package lists...")
sys.exit("E: Unable to locate package")
"""
DPKG_DEB = (
    SCRIPT
    + """
command = Path(sys.argv[-1], "usr", "bin", "caddy")
command.parent.mkdir(parents=True)
command.write_text("#!" + sys.executable + chr(10) + (here / "program").read_text())
command.chmod(0o755)
"""
)
NO_CHROMIUM = "No chromium could be found or fetched: tests of the browser UI will be skipped."
NO_CADDY = "No caddy could be found or fetched: tests of Caddy in front of the server will be skipped."

as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root installs packages")


def printed(folder: Path, program: str, apt: str = "", **environment: str) -> list[str]:
    """Run `make setup-dev`'s command for one program, on a machine that has no commands but this apt-get."""
    for name, text in (("apt-get", apt), ("dpkg-deb", apt and DPKG_DEB)):
        if text:
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
    alone = {
        "PATH": str(folder),
        "HOLDFAST_TEST_PROGRAMS": str(folder / "programs"),
        "PLAYWRIGHT_BROWSERS_PATH": str(folder / "own"),
        "PLAYWRIGHT_DOWNLOAD_HOST": "http://127.0.0.1:9",  # nothing listens there
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_TEST_")}
    command = [sys.executable, "-m", "tests.support.programs", program]
    ended = subprocess.run(
        command, cwd=ROOT, env=kept | alone | environment, capture_output=True, text=True, check=True
    )
    assert "" == ended.stderr
    return ended.stdout.splitlines()


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_a_browser_that_cannot_be_had_is_reported_in_one_line(tmp_path):
    """The other tests run, and nobody wonders why these do not."""
    lines = printed(tmp_path, "chromium")

    assert [False, True, False] == [line.startswith("  ") for line in lines]  # what was tried, why not, what follows
    assert NO_CHROMIUM == lines[-1]


@as_root
def test_the_browser_is_downloaded_before_it_is_installed(tmp_path):
    """A download that takes too long is killed, and that must never happen in the middle of an installation."""
    lines = printed(tmp_path, "chromium", APT)

    assert str(tmp_path / "chromium") == lines[-1]
    assert ["update", "install", "install"] == [each.split()[0] for each in asked(tmp_path)]
    assert ["--download-only", "--no-download"] == [each.split()[-1] for each in asked(tmp_path)[1:]]


@as_root
def test_a_package_that_is_not_there_is_reported_and_the_next_way_is_tried(tmp_path):
    """In the package manager's own words."""
    lines = printed(tmp_path, "chromium", BROKEN_APT)

    assert "  E: Unable to locate package" in lines
    assert any("playwright install" in line for line in lines)
    assert NO_CHROMIUM == lines[-1]


@pytest.mark.parametrize("apt", [APT, APT_WITH_EMPTY_LISTS], ids=["with package lists", "without"])
def test_a_proxy_is_unpacked_and_not_installed(tmp_path, apt):
    """Installing Debian's package starts a service on port 80, and needs root."""
    (tmp_path / "program").write_text("")
    lines = printed(tmp_path, "caddy", apt)

    assert str(tmp_path / "programs" / "caddy" / "usr" / "bin" / "caddy") == lines[-1]
    assert not any("install" in each for each in asked(tmp_path))
    assert lines[-1:] == printed(tmp_path, "caddy")  # the second time nothing is fetched


def test_a_proxy_that_does_not_start_is_thrown_away(tmp_path):
    """A library may be missing; a test that is skipped for that says more than one that fails."""
    message = "caddy: error while loading shared libraries: libssl.so.3"
    (tmp_path / "program").write_text(f"import sys; sys.exit({message!r})")
    lines = printed(tmp_path, "caddy", APT)

    assert [f"  {message}", NO_CADDY] == lines[-2:]
    assert [] == list((tmp_path / "programs").iterdir())


def test_a_proxy_that_cannot_be_had_is_reported_in_one_line(tmp_path):
    assert [NO_CADDY] == printed(tmp_path, "caddy")
    assert ["  E: Unable to locate package", NO_CADDY] == printed(tmp_path, "caddy", BROKEN_APT)[-2:]


def test_a_test_whose_program_lacks_a_library_is_skipped_with_the_reason(tmp_path, monkeypatch):
    """A browser that Playwright has downloaded needs libraries that only root installs: that is no failure of ours."""
    mine = tmp_path / "chromium"
    mine.write_text(
        f"#!{sys.executable}\nimport sys; sys.exit('chrome: error while loading shared libraries: libnss3')"
    )
    mine.chmod(0o755)
    monkeypatch.setenv("HOLDFAST_TEST_CHROMIUM", str(mine))

    with pytest.raises(pytest.skip.Exception, match=r"does not start: chrome: error while loading .* libnss3"):
        CHROMIUM.find_or_skip()
    mine.write_text("#!/bin/sh\necho Chromium 1.0")
    why_it_does_not_start.cache_clear()

    assert str(mine) == CHROMIUM.find_or_skip()


@pytest.mark.parametrize("program", ["chromium", "nginx", "caddy"])
def test_a_program_that_is_named_is_taken(tmp_path, program):
    """Before all others, and nothing is fetched then."""
    mine = tmp_path / "mine"
    mine.touch()

    assert [str(mine)] == printed(tmp_path, program, **{f"HOLDFAST_TEST_{program.upper()}": str(mine)})
