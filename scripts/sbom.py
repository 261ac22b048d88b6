"""The components of a release, as a CycloneDX document.

It is made from the locks alone: `requirements/*.txt` for Python packages, with the hashes that an installation checks,
and `web/package-lock.json` for the packages whose code is built into the page. The same commit gives the same bytes.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

NOT_SHIPPED = ("build", "dev")
"""Locks of what only a checkout needs. Each other lock is the one of an extra."""
NAMESPACE = uuid.UUID("1f0c5a52-6d1d-5c0e-8a41-3a8f6a5f0c11")
REQUIREMENT = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\\n]+?))? *\\?$")

Json = dict[str, Any]


class Locked(NamedTuple):
    """A package of a lock."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]
    """Names of the packages that need it."""

    @property
    def purl(self) -> str:
        """Its name in every CycloneDX document."""
        return f"pkg:pypi/{self.name}@{self.version}"


class Release(NamedTuple):
    """What a document is about."""

    name: str
    version: str
    commit: str
    epoch: int
    """Time of the commit, in seconds since 1970."""


def document(root: Path, release: Release, files: dict[str, str]) -> bytes:
    """Return the document of a release whose files have these SHA-256 digests."""
    packages, extras = locked_packages(root)
    pages = page_packages(root)
    top = f"pkg:pypi/{release.name}@{release.version}"
    content: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, f'{release.name} {release.version} {release.commit}')}",
        "version": 1,
        "metadata": _metadata(release, top, files),
        "components": [*(_component(each, extras[each.name]) for each in packages), *(page for page, _ in pages)],
        "dependencies": _dependencies(top, packages, pages),
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _metadata(release: Release, top: str, files: dict[str, str]) -> Json:
    made = datetime.datetime.fromtimestamp(release.epoch, datetime.UTC)
    component = {
        "type": "application",
        "bom-ref": top,
        "name": release.name,
        "version": release.version,
        "purl": top,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "externalReferences": [
            {"type": "distribution", "url": name, "hashes": [_sha256(digest)]} for name, digest in sorted(files.items())
        ],
        "properties": [{"name": "git:commit", "value": release.commit}],
    }
    return {
        "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycles": [{"phase": "build"}],
        "component": component,
    }


def _sha256(digest: str) -> Json:
    return {"alg": "SHA-256", "content": digest}


# Python


def locked_packages(root: Path) -> tuple[list[Locked], dict[str, list[str]]]:
    """Return the packages of all extras by name, and for each name the extras that install it."""
    packages: dict[str, Locked] = {}
    extras: dict[str, list[str]] = {}
    for file in sorted((root / "requirements").glob("*.txt")):
        for each in read_lock(file.read_text("utf-8")) if file.stem not in NOT_SHIPPED else ():
            if packages.setdefault(each.name, each).version != each.version:
                raise ValueError(
                    f"{file.name} has {each.name} {each.version}, another lock {packages[each.name].version}"
                )
            packages[each.name] = _joined(packages[each.name], each)
            extras.setdefault(each.name, []).append(file.stem)
    return [packages[name] for name in sorted(packages)], extras


def _joined(one: Locked, other: Locked) -> Locked:
    via = tuple(sorted({*one.via, *other.via}))
    return one._replace(hashes=tuple(sorted({*one.hashes, *other.hashes})), via=via)


def read_lock(text: str) -> Iterator[Locked]:
    """Yield each package of a lock that `uv pip compile --generate-hashes` wrote."""
    for entry in re.split(r"\n(?=[^\s#])", text.strip()):
        first, *rest = entry.splitlines()
        found = REQUIREMENT.match(first)
        if found is None:
            raise ValueError(f"This line of a lock is not understood: {first}")
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
        if not hashes:
            raise ValueError(f"{found['name']} has no hash in its lock.")
        yield Locked(found["name"], found["version"], found["marker"] or "", hashes, tuple(_via(rest)))


def _via(lines: Sequence[str]) -> Iterator[str]:
    """Yield the names of the comments that end an entry: `# via a`, or one on each line after `# via`."""
    for line in lines:
        found = re.match(r"^ +# +(?:via +)?(?P<name>[a-z0-9][\w.-]*)(?:\[[\w,-]+\])?(?: \(.*\))?$", line)
        if found and found["name"] != "via":
            yield found["name"]


def _component(package: Locked, extras: Sequence[str]) -> Json:
    marker = [{"name": "python:marker", "value": package.marker}] if package.marker else []
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": "required" if _is_always_needed(package) else "optional",
        "purl": package.purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": package.purl,
                "comment": "Each file of this version has one of these hashes.",
                "hashes": [_sha256(digest) for digest in package.hashes],
            }
        ],
        "properties": [{"name": "python:extras", "value": ", ".join(sorted(extras))}, *marker],
    }


def _is_always_needed(package: Locked) -> bool:
    """The engine needs msgspec alone; everything else belongs to an extra."""
    return package.name == "msgspec"


# the page


def page_packages(root: Path) -> list[tuple[Json, list[str]]]:
    """Return the npm packages that the page is built from, as components, each with the names that it needs."""
    lock = json.loads((root / "web" / "package-lock.json").read_text("utf-8"))
    found = ((path.rpartition("node_modules/")[2], entry) for path, entry in lock["packages"].items() if path)
    return [
        (_page_component(name, entry), sorted(entry.get("dependencies", {})))
        for name, entry in sorted(found, key=lambda pair: pair[0])
        if not entry.get("dev")
    ]


def _page_component(name: str, entry: Json) -> Json:
    purl = f"pkg:npm/{quote(name, safe='/')}@{entry['version']}"
    algorithm, _, digest = entry["integrity"].partition("-")
    if algorithm != "sha512":
        raise ValueError(f"{name} is locked by {algorithm}, not by sha512.")
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": entry["version"],
        "scope": "required",
        "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
        "licenses": [{"license": {"id": entry["license"]}}],
        "purl": purl,
        "properties": [{"name": "holdfast:part", "value": "built into the page"}],
    }


def _dependencies(top: str, packages: Sequence[Locked], pages: Sequence[tuple[Json, list[str]]]) -> list[Json]:
    purl = {each.name: each.purl for each in packages} | {page["name"]: page["purl"] for page, _ in pages}
    needs: dict[str, set[str]] = {top: set(), **{ref: set() for ref in purl.values()}}
    for each in packages:
        for name in each.via:
            needs[top if name == "holdfast" else purl[name]].add(each.purl)
    for page, names in pages:
        needs[page["purl"]] |= {purl[name] for name in names}
    below = set().union(*(needs[page["purl"]] for page, _ in pages))
    needs[top] |= {page["purl"] for page, _ in pages} - below
    return [{"ref": ref, "dependsOn": sorted(needs[ref])} for ref in sorted(needs)]
