"""The fork server of the tests: a process that it forks must see what a process sees that the command starts."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.agents import living
from tests.support.forked import CAN_FORK, ForkedProcess, ForkServerEnded, Starter, at_start
from tests.support.server import LAUNCHER, Server, clean_environment, provider
from tests.support.waiting import LONG

pytestmark = [
    pytest.mark.skipif(not CAN_FORK, reason="every start is a real one"),
    pytest.mark.asyncio(loop_scope="module"),
]

PROBE = """
import gc, json, os, signal, sys, threading

def opened():
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[entry] = os.readlink(f"/proc/self/fd/{entry}")
        except FileNotFoundError:
            pass  # that of the listing
    return found

open_at_start, mask = opened(), os.umask(0)
print(json.dumps({
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "name": __name__,
    "package": __package__,
    "file": __file__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "path": sys.path,
    "flags": str(sys.flags),
    "folder": os.getcwd(),
    "environ": dict(os.environ),
    "in C": os.popen("env | sort").read().replace("_=/usr/bin/env", ""),
    "signals": {str(each): str(signal.getsignal(each)) for each in signal.valid_signals()},
    "blocked": str(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "wakeup": signal.set_wakeup_fd(-1),
    "stdin": sys.stdin.read(),
    "buffering": [str(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
    "through": [sys.stdout.write_through, sys.stderr.write_through],
    "open": open_at_start,
    "leads its session": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "mask": mask,
    "threads": threading.active_count(),
    "gc": [gc.isenabled(), gc.get_threshold()],
}))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def starter() -> AsyncIterator[Starter]:
    starter = Starter(clean_environment())
    yield starter
    starter.stop()


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., list[str]]:
    """Write a module, and return the command that runs it in its folder."""

    def written(code: str, *arguments: str) -> list[str]:
        file = tmp_path / "probe.py"
        if not file.exists():  # a process may be reading it
            file.write_text(code)
        return [sys.executable, "-m", "probe", *arguments]

    return written


@pytest.fixture
def forks(starter: Starter, tmp_path: Path, program: Callable[..., list[str]]) -> Callable[..., Any]:
    """Fork, and return the process; its output goes to a file named `log`."""

    async def forked(code: str, *arguments: str, **more: str) -> ForkedProcess:
        with (tmp_path / "log").open("ab") as log:
            env = clean_environment() | more
            return await starter.start(program(code, *arguments), output=log, environment=env, folder=tmp_path)

    return forked


@pytest.fixture
def unusual_mask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


async def end_of(process: ForkedProcess) -> int:
    async with asyncio.timeout(LONG):
        return await process.wait()


@pytest.mark.usefixtures("unusual_mask")
async def test_a_forked_process_sees_what_a_started_one_sees(
    starter: Starter, tmp_path: Path, program: Callable[..., list[str]]
) -> None:
    """Arguments, environment, folder, signals, streams, open files: the tests of the server stand on all of them."""
    command, environment = program(PROBE, "one", "--two=3"), clean_environment() | {"ONLY_HERE": "1"}
    environment.pop("UP_KEY")
    log = tmp_path / "log"
    with log.open("ab") as output:
        forked = await starter.start(command, output=output, environment=environment, folder=tmp_path)
    code = await end_of(forked)
    seen = log.read_text()
    log.unlink()
    with log.open("ab") as output:
        started = subprocess.run(
            [*LAUNCHER, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=tmp_path,
            start_new_session=True,
            check=False,
        )

    assert (0, 0) == (code, started.returncode), seen
    assert json.loads(log.read_text()) == json.loads(seen)


@pytest.mark.parametrize(
    ("code", "expected", "printed"),
    [
        ("", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('no such setting')", 1, "no such setting\n"),
        ("import sys; sys.stdout.write('unflushed')", 0, "unflushed"),
        ("import atexit; atexit.register(print, 'at exit'); raise SystemExit(3)", 3, "at exit\n"),
        ("import threading; threading.Thread(target=print, args=['a thread']).start()", 0, "a thread\n"),
        ("import os; os._exit(9)", 9, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
    ],
)
async def test_its_end_is_that_of_a_started_one(
    forks: Callable[..., Any], tmp_path: Path, code: str, expected: int, printed: str
) -> None:
    """An exit code is what a service manager sees; a signal is negative, as `subprocess` has it."""
    process = await forks(code)

    assert expected == await end_of(process) == process.returncode
    assert printed == (tmp_path / "log").read_text()


async def test_an_error_is_printed_and_ends_it_with_one(forks: Callable[..., Any], tmp_path: Path) -> None:
    """A traceback in the server's log is what tests look for."""
    process = await forks("1 / 0")

    assert 1 == await end_of(process)
    assert (tmp_path / "log").read_text().endswith("ZeroDivisionError: division by zero\n")


HANGS = """
import time
print('hangs', flush=True)
while True:  # not `signal.pause`: a SIGINT just before it would be noted, and never looked at
    time.sleep(0.05)
"""


async def printed(log: Path, text: str) -> None:
    async with asyncio.timeout(LONG):
        while text not in log.read_text():  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_and_it_is_no_zombie(
    forks: Callable[..., Any], tmp_path: Path, number: signal.Signals
) -> None:
    """The fork server is its parent, so it has to wait for it."""
    process = await forks(HANGS)
    await printed(tmp_path / "log", "hangs")
    assert process.returncode is None
    os.kill(process.pid, number)

    assert -number == await end_of(process)
    assert not Path(f"/proc/{process.pid}").exists()


ENDS_WITH = "import sys; sys.exit(int(sys.argv[1]))"


async def test_several_run_at_once_and_each_has_its_own_end(forks: Callable[..., Any]) -> None:
    """Tests with several nodes start them together."""
    processes = await asyncio.gather(*(forks(ENDS_WITH, str(code)) for code in range(10)))

    assert list(range(10)) == [await end_of(each) for each in processes]
    assert 10 == len({each.pid for each in processes})


async def test_two_may_wait_for_one_end(forks: Callable[..., Any]) -> None:
    """A test that waits for the end of a server may also kill it."""
    process = await forks(HANGS)
    waiting = [asyncio.create_task(end_of(process)) for _ in range(2)]
    await asyncio.sleep(0)
    os.kill(process.pid, signal.SIGKILL)

    assert [-9, -9] == await asyncio.gather(*waiting)


async def test_a_start_that_is_cancelled_leaves_no_process(
    starter: Starter, forks: Callable[..., Any], tmp_path: Path
) -> None:
    """A test that is given up while its server starts must not leave it behind."""
    os.kill(starter.pid, signal.SIGSTOP)
    starting = asyncio.create_task(forks(HANGS))
    await asyncio.sleep(0)  # it has asked, and waits for the answer
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    os.kill(starter.pid, signal.SIGCONT)
    later = await forks(HANGS)  # requests are answered in order, so the first process was there
    os.kill(later.pid, signal.SIGKILL)
    await end_of(later)

    async with asyncio.timeout(LONG):
        while living(tmp_path):  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.01)


async def test_forked_processes_draw_different_random_numbers(forks: Callable[..., Any], tmp_path: Path) -> None:
    """They have the state of one process, and would choose the same ids and the same pauses."""
    for _ in range(3):
        await end_of(
            await forks("import random, secrets, uuid; print(random.random(), secrets.token_hex(), uuid.uuid4())")
        )

    drawn = (tmp_path / "log").read_text().split()
    assert 9 == len(set(drawn))


PARENT = """
import asyncio, os, sys
from pathlib import Path
from tests.support.agents import living
from tests.support.forked import Starter
from tests.support.server import clean_environment

async def main():
    folder = Path(sys.argv[1])
    with (folder / "log").open("ab") as log:
        environment, command = clean_environment(), [sys.executable, "-m", "probe"]
        process = await Starter(environment).start(command, output=log, environment=environment, folder=folder)
    print(process.pid, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


async def test_all_end_if_the_test_process_is_killed(tmp_path: Path, program: Callable[..., list[str]]) -> None:
    """A run of the tests that is aborted must not leave servers on a developer's machine."""
    program(HANGS)
    tests = subprocess.run(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    pid = int(tests.stdout)

    assert -9 == tests.returncode
    async with asyncio.timeout(LONG):
        while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.01)


async def test_a_fork_server_that_ends_is_an_error(tmp_path: Path, program: Callable[..., list[str]]) -> None:
    """A server under test that has died with it has not crashed."""
    starter = Starter(clean_environment())
    with (tmp_path / "log").open("ab") as log:
        given = {"output": log, "environment": clean_environment(), "folder": tmp_path}
        process = await starter.start(program(HANGS), **given)
    starter.stop()

    with pytest.raises(ForkServerEnded, match="ended with 0"):
        await end_of(process)


@pytest.mark.parametrize(
    ("command", "more", "expected"),
    [
        (["-m", "holdfast", "serve"], {}, True),
        (["-m", "holdfast", "serve"], {"HOLDFAST_STORE": "x", "ANY_KEY": "y"}, True),
        (["-m", "holdfast", "serve"], {"PYTHONPATH": "/elsewhere"}, False),
        (["-m", "holdfast", "serve"], {"PYTHONWARNINGS": "error"}, False),
        (["-m", "holdfast", "serve"], {"LC_ALL": "C"}, False),
        (["-m", "holdfast", "serve"], {"TZ": "Asia/Tokyo"}, False),
        (["-m", "probe"], {}, False),
        (["-c", "pass"], {}, False),
        (["-X", "dev", "-m", "holdfast", "serve"], {}, False),
    ],
)
async def test_only_what_would_be_the_same_is_forked(
    starter: Starter, command: list[str], more: Mapping[str, str], expected: bool
) -> None:
    """Everything else is a real start: another program, and variables that are read before the command runs."""
    assert expected == starter.can_start([sys.executable, *command], clean_environment() | more)


READ_BY_IMPORTS = """
import os
read = set()

class Environ(type(os.environ)):
    def __getitem__(self, name):
        read.add(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        read.add(name)
        return super().__contains__(name)

os.environ.__class__ = Environ
import importlib, tests.support.fork_server
for each in tests.support.fork_server.PRELOADED:
    importlib.import_module(each)
print(*read, sep="\\n")
"""


async def test_imports_read_no_variable_that_may_differ() -> None:
    """What an import reads is read once, in the fork server."""
    command = [sys.executable, "-c", READ_BY_IMPORTS]
    read = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=True).stdout.split()

    assert "LANG" in read
    assert [] == [name for name in read if name not in at_start(dict.fromkeys(read, ""))]


MODULES = """
import importlib, sys, tests.support.fork_server
for each in tests.support.fork_server.PRELOADED:
    importlib.import_module(each)
print(*sys.modules, sep="\\n")
"""


TELLS_MODULES = """
import atexit, runpy, sys
atexit.register(lambda: print("modules:", *sys.modules))
runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
"""


async def test_the_fork_server_has_imported_what_a_server_imports_and_no_more(tmp_path: Path) -> None:
    """Less would be slow, and nobody would see why. More would hide a module that the server forgets to import."""
    program = [sys.executable, "-c", TELLS_MODULES]
    async with Server(tmp_path, [provider("http://127.0.0.1:1/v1")], program=program, nodes=1) as server:
        async with server.client() as client:
            await client.get("/health")
        await server.terminate()
    needed = {*server.log_text().rpartition("modules:")[2].split()}
    ran = subprocess.run(
        [sys.executable, "-c", MODULES], env=clean_environment(), capture_output=True, text=True, check=True
    )
    imported = {*ran.stdout.split()}

    assert needed == imported - {"tests", "tests.support", "tests.support.fork_server"}
