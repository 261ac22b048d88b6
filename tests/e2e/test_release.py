"""A release: its files are reproducible, its list of components is true, and its wheel works alone."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from scripts import sbom
from scripts.installed_wheel import WheelFailed, check_wheel
from scripts.release import Commit, ReleaseRefused, agreed, build, digests, locks
from tests.requirements import requirement
from tests.support.server import ROOT

CHANGELOG = "# Changelog\n\n## [1.2.0] - 2026-11-17\n\n- News.\n\n## [1.1.0] - 2026-01-01\n"
PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "holdfast"
version = "1.2.0"

[project.urls]
Source = "https://code.example/holdfast"
"""


class Checkout:
    """A small git repository with the files that a release looks at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet")
        self.write("pyproject.toml", PYPROJECT)
        self.write("src/holdfast/__init__.py", '__version__ = "1.2.0"\n')
        self.write("CHANGELOG.md", CHANGELOG)
        self.write("requirements/server.txt", "starlette==1.10.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
        self.write("web/package-lock.json", '{"packages": {}}')

    def write(self, name: str, text: str) -> None:
        """Write a file and commit it."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)
        self.git("add", "--all")
        self.git("-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", name)

    def git(self, *arguments: str) -> None:
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(["git", *arguments], cwd=self.folder, check=True, env=os.environ | settings)


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "checkout").mkdir()
    return Checkout(tmp_path / "checkout")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Commit, Path]:
    """The files of a release of the last commit of this checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: a release is built from a commit")
    target = tmp_path_factory.mktemp("dist")
    commit = agreed(ROOT)
    build(ROOT, commit, target)
    return commit, target


# what must agree


@requirement("release.agreed")
def test_a_tagged_commit_is_a_release_and_one_without_a_tag_a_trial(checkout):
    """The same command serves both, and says which it was."""
    trial = agreed(checkout.folder)
    checkout.git("tag", "v1.2.0")
    release = agreed(checkout.folder)

    assert ("1.2.0", "") == (trial.version, trial.tag)
    assert trial._replace(tag="v1.2.0") == release


@requirement("release.agreed")
@pytest.mark.parametrize(
    ("name", "before", "after", "tag", "told"),
    [
        (
            "src/holdfast/__init__.py",
            "1.2.0",
            "1.1.9",
            "",
            "pyproject.toml has version 1.2.0, src/holdfast/__init__.py has",
        ),
        ("CHANGELOG.md", "## [1.2.0]", "## [1.3.0]", "", "the first section of CHANGELOG.md is 1.3.0"),
        ("CHANGELOG.md", "- 2026-11-17", "- Unreleased", "v1.2.0", "CHANGELOG.md calls 1.2.0 'Unreleased'"),
        ("pyproject.toml", "Source", "Nothing", "v1.2.0", "pyproject.toml names no `Source` in [project.urls]"),
        ("CHANGELOG.md", "News", "Other news", "v1.3.0", "The commit has the tag v1.3.0, but its version is 1.2.0"),
    ],
)
def test_a_version_a_changelog_or_a_tag_that_disagrees_is_refused(checkout, name, before, after, tag, told):
    """A version that is published wrong cannot be taken back."""
    text = (checkout.folder / name).read_text()
    checkout.write(name, text.replace(before, after))
    if tag:
        checkout.git("tag", tag)

    with pytest.raises(ReleaseRefused, match=re.escape(told)):
        agreed(checkout.folder)


@requirement("release.agreed")
def test_a_version_that_another_commit_was_released_as_is_refused(checkout):
    """Two packages of one version would have different contents."""
    checkout.git("tag", "v1.2.0")
    checkout.write("CHANGELOG.md", CHANGELOG + "\nMore.\n")

    with pytest.raises(ReleaseRefused, match="was released from another commit"):
        agreed(checkout.folder)


# reproducible


@requirement("release.reproducible")
def test_the_files_of_a_release_depend_on_its_commit_alone(built, tmp_path):
    """`build` compares two builds. A third, of the sdist, gives the same wheel: the sdist is complete."""
    commit, target = built
    (sdist,) = target.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        times = {member.mtime for member in tar.getmembers()}
        tar.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    again = tmp_path / "again"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(again)],
        cwd=source,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(commit.epoch)},
        check=True,
        capture_output=True,
    )

    assert {commit.epoch} == times
    assert digests(again).items() <= digests(target).items()
    listed = dict(reversed(line.split()) for line in (target / "SHA256SUMS").read_text().splitlines())
    assert listed == {name: digest for name, digest in digests(target).items() if name != "SHA256SUMS"}


@requirement("release.reproducible")
def test_the_wheel_has_the_package_and_nothing_else(built):
    """Tests, tools and what lies around in a checkout stay out."""
    commit, target = built
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        names, modes = content.namelist(), {info.external_attr >> 16 & 0o777 for info in content.infolist()}

    committed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", commit.id, "src"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    own = {name for name in names if not name.startswith(f"holdfast-{commit.version}.dist-info/")}
    assert {name.removeprefix("src/") for name in committed} == own
    assert {0o644} == modes


@requirement("release.reproducible")
def test_a_build_that_differs_from_itself_is_refused(checkout, tmp_path):
    """The comparison can fail: here a hook of the build writes the time."""
    checkout.write("hatch_build.py", HOOK)
    checkout.write("pyproject.toml", PYPROJECT + '[tool.hatch.build.hooks.custom]\npath = "hatch_build.py"\n')

    with pytest.raises(ReleaseRefused, match="Two builds of one commit differ"):
        build(checkout.folder, agreed(checkout.folder), tmp_path)


HOOK = """\
import time
from pathlib import Path
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        Path("src/holdfast/when.txt").write_text(str(time.time_ns()))
"""


# components


def components(target: Path) -> dict[str, Any]:
    (file,) = target.glob("*.cdx.json")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


@requirement("release.components")
def test_the_components_of_a_release_are_a_valid_cyclonedx_document(built):
    """By the project's own schema, in which an unknown field is an error."""
    _, target = built
    (file,) = target.glob("*.cdx.json")

    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read_text())

    assert found is None, found.data.message


@requirement("release.components")
def test_the_components_of_a_release_are_those_of_its_locks(built):
    """Each package of an extra with each of its hashes, each package of the page, and the files of the release."""
    _, target = built
    document = components(target)
    listed = {(each["name"], each["version"]): each for each in document["components"]}
    named = {ref for each in document["dependencies"] for ref in (each["ref"], *each["dependsOn"])}

    for lock in locks(ROOT):
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text(), re.MULTILINE):
            assert lock.stem in listed[name, version]["properties"][0]["value"].split(", ")
    hashes = {
        digest["content"]
        for each in document["components"]
        for reference in each.get("externalReferences", ())
        for digest in reference["hashes"]
    }
    assert {*re.findall(r"sha256:(\w+)", (ROOT / "requirements" / "server.txt").read_text())} <= hashes
    assert {"preact", "marked", "katex"} <= {name for name, _ in listed}
    assert not {"pytest", "vite", "hatchling"} & {name for name, _ in listed}
    assert named == {each["bom-ref"] for each in document["components"]} | {
        document["metadata"]["component"]["bom-ref"]
    }
    files = {
        each["url"]: each["hashes"][0]["content"] for each in document["metadata"]["component"]["externalReferences"]
    }
    assert files == {name: digest for name, digest in digests(target).items() if name.endswith((".whl", ".tar.gz"))}


def test_a_lock_without_a_hash_is_refused():
    """The list would say that an installation is checked, and it is not."""
    with pytest.raises(ValueError, match="starlette has no hash"):
        list(sbom.read_lock("starlette==1.10.0\n    # via holdfast (pyproject.toml)\n"))


def test_who_needs_a_package_is_read_from_its_lock():
    """One name stands behind `# via`, several on lines of their own, and constraints among them are no packages."""
    lock = (
        "click==8.5.1 ; sys_platform != 'win32' \\\n    --hash=sha256:"
        + "a" * 64
        + "\n    # via\n    #   -c base.txt\n"
        "    #   holdfast (pyproject.toml)\n    #   uvicorn\n"
        "h11==0.16.0 \\\n    --hash=sha256:" + "b" * 64 + "\n    # via uvicorn\n"
    )

    click, h11 = sbom.read_lock(lock)

    assert ("sys_platform != 'win32'", ("holdfast", "uvicorn")) == (click.marker, click.via)
    assert ("", ("uvicorn",)) == (h11.marker, h11.via)


# the wheel


@requirement("release.wheel-alone")
def test_the_wheel_installed_alone_serves_the_page_the_api_and_a_model(built):
    """In a checkout everything is at hand; people have only the wheel. `make release` asks the built-in model too."""
    commit, target = built
    (wheel,) = target.glob("*.whl")

    lines = list(check_wheel(wheel, [ROOT / "requirements" / "server.txt"], "server", commit.version))

    assert 3 == len(lines), lines


@requirement("release.wheel-alone")
def test_a_wheel_without_the_page_is_caught(built, tmp_path):
    """The check of the wheel can fail."""
    commit, target = built
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(tmp_path / wheel.name, "w") as part:
        for name in whole.namelist():
            if not name.endswith("/web/assets/index.js"):
                part.writestr(name, whole.read(name))

    with pytest.raises(WheelFailed, match=r"GET /assets/index.js failed"):
        list(check_wheel(tmp_path / wheel.name, [ROOT / "requirements" / "server.txt"], "server", commit.version))
