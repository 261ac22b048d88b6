"""`make release`: wheel, sdist, their components and checksums in `dist/`, from the last commit.

Everything is built from the files of the commit, not from those of the checkout, so that nothing else gets in. It is
built twice, in two folders under different conditions, and both results must be equal byte by byte.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scripts import sbom
from scripts.installed_wheel import WheelFailed, check_wheel

ROOT = Path(__file__).parents[1]
NAME = "holdfast"
EMBEDDED = "local/smollm2"
CONDITIONS = (("022", "UTC", "C.UTF-8"), ("077", "Asia/Kolkata", "C"))
"""Umask, time zone and locale of the two builds: what people's machines differ in."""
SECTION = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<date>\S+)", re.MULTILINE)


class ReleaseRefused(Exception):
    """The commit is not one to release. The message says why, and what to do."""


class Commit(NamedTuple):
    """The commit that is built."""

    version: str
    id: str
    epoch: int
    """Its time, in seconds since 1970."""
    tag: str
    """`v` and the version; empty if the commit has no tag."""


# what must agree


def agreed(root: Path) -> Commit:
    """Return the last commit of a checkout whose version, changelog and tag agree."""
    version = _version(root)
    date = _changelog_date(root, version)
    id, epoch = _git(root, "log", "-1", "--format=%H %ct").split()
    tag = _tag(root, version, id)
    if tag and not source_address(_show(root, "pyproject.toml")):
        raise ReleaseRefused(
            f"The commit has the tag {tag}, but pyproject.toml names no `Source` in [project.urls]. Write the address "
            f"of the public repository there, commit, and move the tag: git tag --force {tag}"
        )
    if tag and not _is_date(date):
        raise ReleaseRefused(
            f"The commit has the tag {tag}, but CHANGELOG.md calls {version} {date!r}. Write the date of the release "
            f"there (## [{version}] - YYYY-MM-DD), commit, and move the tag: git tag --force {tag}"
        )
    return Commit(version, id, int(epoch), tag)


def source_address(pyproject: str) -> str:
    """Return the address of the public repository; empty if the project names none."""
    address: str = tomllib.loads(pyproject)["project"].get("urls", {}).get("Source", "")
    return address


def _version(root: Path) -> str:
    """Return the version of pyproject.toml, which the package must have too."""
    version: str = tomllib.loads(_show(root, "pyproject.toml"))["project"]["version"]
    found = re.search(r'^__version__ = "([^"]+)"$', _show(root, "src/holdfast/__init__.py"), re.MULTILINE)
    other = found[1] if found else "none"
    if other != version:
        raise ReleaseRefused(
            f"pyproject.toml has version {version}, src/holdfast/__init__.py has {other}. Write the same in both."
        )
    return version


def _changelog_date(root: Path, version: str) -> str:
    """Return the date of the newest section of the changelog, which must be the version's."""
    found = SECTION.search(_show(root, "CHANGELOG.md"))
    if found is None or found["version"] != version:
        newest = found["version"] if found else "none"
        raise ReleaseRefused(
            f"The version is {version}, but the first section of CHANGELOG.md is {newest}. Add a section "
            f"## [{version}] - Unreleased with the changes, or correct the version in pyproject.toml."
        )
    return found["date"]


def _tag(root: Path, version: str, commit: str) -> str:
    """Return the tag of the commit. It must be the version's, which no other commit may have."""
    wanted = f"v{version}"
    tags = [tag for tag in _git(root, "tag", "--points-at", "HEAD").split() if re.match(r"v\d", tag)]
    if tags and tags != [wanted]:
        raise ReleaseRefused(
            f"The commit has the tag {' and '.join(tags)}, but its version is {version}. Change the version in "
            f"pyproject.toml, or the tag: git tag --delete {tags[0]}"
        )
    if not tags and wanted in _git(root, "tag", "--list", wanted).split():
        raise ReleaseRefused(
            f"Version {version} was released from another commit, which has the tag {wanted}. Raise the version in "
            "pyproject.toml and src/holdfast/__init__.py, and add its section to CHANGELOG.md."
        )
    return wanted if tags else ""


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _show(root: Path, path: str) -> str:
    """Return a file as it is in the commit."""
    return _git(root, "show", f"HEAD:{path}")


def _git(root: Path, *arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ReleaseRefused(f"git {' '.join(arguments)} failed: {ended.stderr.strip()}")
    return ended.stdout


# building


def build(root: Path, commit: Commit, target: Path) -> dict[str, str]:
    """Build the files of a release into an empty folder, and return their SHA-256 digests by name."""
    with tempfile.TemporaryDirectory(prefix="holdfast-release-") as folder:
        one, other = (
            _built(root, commit, Path(folder) / f"build-{number}", *conditions)
            for number, conditions in enumerate(CONDITIONS)
        )
        if digests(one) != digests(other):
            raise ReleaseRefused(f"Two builds of one commit differ: {digests(one)} and {digests(other)}.")
        for file in sorted(one.iterdir()):
            shutil.copyfile(file, target / file.name)
        source = one.parent / "source"
        about = sbom.Release(NAME, commit.version, commit.id, commit.epoch)
        document = sbom.document(source, about, digests(target))
    (target / f"{NAME}-{commit.version}.cdx.json").write_bytes(document)
    found = digests(target)
    (target / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(found.items())))
    return found


def _built(root: Path, commit: Commit, folder: Path, umask: str, zone: str, locale: str) -> Path:
    """Build wheel and sdist in a folder, and return the folder that has them."""
    source, made = folder / "source", folder / "made"
    for each in (source, made):
        each.mkdir(parents=True)
    _export(root, commit, source)
    environment = {
        "SOURCE_DATE_EPOCH": str(commit.epoch),
        "TZ": zone,
        "LC_ALL": locale,
        "PATH": os.environ.get("PATH", os.defpath),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(made)],
        cwd=source,
        env=environment,
        umask=int(umask, 8),
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise ReleaseRefused(f"The build failed:\n{ended.stdout}{ended.stderr}")
    return made


def _export(root: Path, commit: Commit, folder: Path) -> None:
    """Write the files of a commit."""
    archive = subprocess.run(["git", "archive", "--format=tar", commit.id], cwd=root, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 digest of each file of a folder."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def locks(root: Path) -> list[Path]:
    """Return the locks of all extras."""
    return [lock for lock in sorted((root / "requirements").glob("*.txt")) if lock.stem not in sbom.NOT_SHIPPED]


# the command


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, build, and try out."""
    parser = argparse.ArgumentParser(prog="make release", description="Build a release from the last commit.")
    parser.add_argument("--target", type=Path, default=ROOT / "dist", help="folder for the files (dist)")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        help="Python to try the wheel on, such as 3.13; repeatable (this one)",
    )
    parser.add_argument("--extras", default="all", help="extras of the installation that is tried out (all)")
    parser.add_argument("--model", default=EMBEDDED, help=f"model that must answer ({EMBEDDED}); '' for none")
    options = parser.parse_args(arguments)
    try:
        _release(options.target, options.extras, options.model, options.python or [sys.executable])
    except (ReleaseRefused, WheelFailed) as error:
        sys.exit(f"No release: {error}")


def _release(target: Path, extras: str, model: str, pythons: Sequence[str]) -> None:
    commit = agreed(ROOT)
    print(_what_it_is(commit))
    if changed := _git(ROOT, "status", "--porcelain", "--untracked-files=no").splitlines():
        print(f"Not part of it, since not committed: {', '.join(line[3:] for line in changed)}")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    files = build(ROOT, commit, target)
    print("Built twice, with equal bytes:")
    for name, digest in files.items():
        print(f"  {digest}  {target / name}")
    (wheel,) = target.glob("*.whl")
    for python in pythons:
        print(f"Tried out on {python}:")
        for line in check_wheel(wheel, locks(ROOT), extras, commit.version, model=model, python=python):
            print(f"  works: {line}", flush=True)
    print("Complete." if commit.tag else "Complete, as a trial.")


def _what_it_is(commit: Commit) -> str:
    if commit.tag:
        return f"Release {commit.version}: commit {commit.id[:12]}, tag {commit.tag}."
    return (
        f"A trial of {commit.version}: commit {commit.id[:12]} has no tag. To release it, write the date into "
        f"CHANGELOG.md, commit, `git tag v{commit.version}`, and run `make release` again."
    )


if __name__ == "__main__":
    main()
