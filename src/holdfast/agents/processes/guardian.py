"""Runs one command and stays an ancestor of everything that it starts: `python guardian.py FD COMMAND ...`.

On Linux a process whose parent has ended gets its nearest ancestor that is a subreaper as the new parent, and the
guardian is one. So all descendants of the command stay below the guardian, even a process that has wiped its
environment, left its session and lost its parent. The guardian writes to FD, one line each, `started PID` or `failed
ERRNO`, and later `exited CODE`. It ends when it has no children left.
"""

import contextlib
import ctypes
import os
import signal
import sys

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_MOST_FILES = 1 << 20


def run_guarded(report: int, command: list[str]) -> None:
    """Start the command, then wait until it and all of its descendants have ended."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    _keep_only(report)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    try:
        child = _spawn(command)
    except OSError as error:
        _report(report, b"failed %d\n" % (error.errno or 0))
        return
    _report(report, b"started %d\n" % child)
    _release_files()
    _wait(child, report)


def _keep_only(report: int) -> None:
    """Close every file but the standard ones and the report, which the command does not inherit."""
    os.set_inheritable(report, False)
    os.closerange(3, report)
    os.closerange(report + 1, _MOST_FILES)


def _spawn(command: list[str]) -> int:
    """Start the command in a new session, with default signal handlers."""
    defaults = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ)
    return os.posix_spawnp(command[0], command, os.environ, setsid=True, setsigdef=defaults)


def _release_files() -> None:
    """Release the command's pipes and its folder."""
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)


def _wait(child: int, report: int) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if pid == child:
            _report(report, b"exited %d\n" % os.waitstatus_to_exitcode(status))


def _report(report: int, line: bytes) -> None:
    """Report to the server. A missing server is ignored: the guardian continues."""
    with contextlib.suppress(BrokenPipeError):
        os.write(report, line)


if __name__ == "__main__":
    run_guarded(int(sys.argv[1]), sys.argv[2:])
