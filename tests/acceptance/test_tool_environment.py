"""What a tool's processes can learn of the server's environment: nothing that the settings do not give them."""

import ast
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.processes import MARK
from holdfast.environment import ALLOWED
from holdfast.server.config.settings import McpSettings, SettingsError
from tests.requirements import requirement
from tests.support.agents import serving
from tests.support.native import Native
from tests.support.served import NO_HOME
from tests.support.server import Server, clean_environment
from tests.support.upstream import Upstream, answer, calling

SECRETS = {
    name: f"canary-{name.lower()}"
    for name in (
        "UPSTREAM_PAT",
        "HOOK_SIGN",
        "DATABASE_URL",
        "PGPASS",
        "SMTP_PWD",
        "OPENAI_API_KEY",
        "HOLDFAST_API_KEY",
    )
}
API_KEY = SECRETS["HOLDFAST_API_KEY"]
MCP_SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
CALLS = {"shell": ("shell", {"command": "env"}), "python": ("environment", {}), "mcp": ("slow__environment", {})}


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


@requirement("safe.tool-environment")
@pytest.mark.parametrize("kind", CALLS)
async def test_a_tool_has_the_harmless_variables_and_those_that_the_settings_name(up, tmp_path, monkeypatch, kind):
    """A list of what is allowed: no list of forbidden words knows every name that a secret can have."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    command = {"command": sys.executable, "args": ("-P", str(MCP_SERVER), str(tmp_path / "seen"))}
    mcp = McpSettings("slow", **command, approval="allow", env_from=("WANTED",))
    tools = ("mcp:slow",) if kind == "mcp" else ("shell", "tests.support.agents:environment")
    agent = {"tools": tools, "env_from": ("WANTED",), "approvals": {} if kind == "mcp" else {"shell": "allow"}}
    environ = {**NO_HOME, "WANTED": "given"}
    async with serving(up, tmp_path, settings={"mcp": (mcp,)}, environ=environ, **agent) as world:
        up.enqueue(calling(CALLS[kind]), answer("Done."))
        frames = await world.api.replay((await world.start())[1])
    (output,) = [frame.json()["output"] for frame in frames if frame.event == "tool.result"]
    seen = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    added_by_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}

    assert ("given", os.environ["PATH"], "C.UTF-8") == (seen["WANTED"], seen["PATH"], seen["LC_TIME"])
    about_the_call = {MARK, "WANTED"} if kind == "mcp" else {MARK, "WANTED", "HOLDFAST_EFFECT_ID"}
    assert (
        set() == {name for name in seen if not name.startswith("LC_")} - ALLOWED - about_the_call - added_by_the_shell
    )
    assert "canary" not in output


async def test_a_variable_that_is_named_and_not_set_is_told_at_the_start(up, tmp_path):
    """A tool that lacks its key would fail in the middle of a run, and nobody would know why."""
    with pytest.raises(SettingsError, match="Agent 'helper' needs the variable MISSING, which is not set"):
        async with serving(up, tmp_path, env_from=("MISSING",)):
            pass


LOOKING = """
import ctypes, os, subprocess, sys
from holdfast.agents.processes import MARK, ProcessTable
from holdfast.server.kit.http.hardening import forbid_inspection

if os.geteuid() == 0:  # who may look anywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # a change of user closes it too: be as a process that never was root
look = ["/bin/cat", f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/maps"]
before = subprocess.run(look, capture_output=True, env={})
forbid_inspection()
after = subprocess.run(look, capture_output=True, env={})
child = subprocess.Popen(["/bin/sleep", "60"], env={MARK: "the mark"})
marks = [seen.mark for seen in ProcessTable().look_now() if seen.pid == child.pid]
child.kill()
child.wait()
print(b"canary-of-the-server" in before.stdout, len(after.stdout), after.returncode, marks)
"""


@requirement("safe.tool-environment")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows it in /proc")
def test_another_process_of_the_same_user_cannot_read_the_servers_environment():
    """A key that a tool does not inherit must not lie open in /proc. The server still finds its tools' processes."""
    env = {**clean_environment(), "UPSTREAM_PAT": "canary-of-the-server"}
    looked = subprocess.run([sys.executable, "-c", LOOKING], capture_output=True, text=True, env=env)

    assert "True 0 1 ['the mark']" == looked.stdout.strip(), looked.stderr


AGENT = """
import ctypes


async def dumpable(request):
    yield f"dumpable: {ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)}"
"""


@requirement("safe.tool-environment")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it")
async def test_a_server_closes_its_own_process(tmp_path):
    """`holdfast serve` does so at its start, before anything can be started by it."""
    (tmp_path / "looking.py").write_text(AGENT)
    async with Server(tmp_path, args=["--agent", "looking:dumpable"]) as server, server.client() as client:
        api = Native(client)
        settlement = await api.settled(await api.start(await api.new_session(), "Hi", "agent/dumpable"))

    assert "dumpable: 0" == settlement["text"]


# What the server itself starts.


SRC = Path(__file__).parents[2] / "src" / "holdfast"
STARTS = re.compile(
    r"\.(create_subprocess_(exec|shell)|subprocess_(exec|shell)|Popen|run_process|open_process)$"
    r"|^subprocess\.(run|call|check_call|check_output)$|^os\.(system|popen|spawn\w+|exec\w+)$"
)


def environments(ancestor: int) -> Iterator[str]:
    """What /proc shows of the processes below a process. Some may end while they are looked at."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    below = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    for pid in below - {ancestor}:
        with contextlib.suppress(OSError):
            yield Path(f"/proc/{pid}/environ").read_text()


@requirement("safe.tool-environment")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows it in /proc")
async def test_no_process_of_the_server_carries_its_secrets(tmp_path):
    """/proc shows the environment of a child to the tools, whatever the server does about its own."""
    prompts = [{"prompt": "one", "expected": "on+e"}]
    async with (
        Server(tmp_path, env=SECRETS, forked=False) as server,
        server.client(authorization=f"Bearer {API_KEY}") as client,
    ):
        batch = {"models": ["scripted/echo"], "match": "regex", "prompts": prompts}
        made = await (await client.post("/api/batches", batch)).json()
        await (await client.get(f"/api/batches/{made['id']}/events")).all_events()
        found = list(environments(server.pid))

    assert found, "the process that tries patterns was not there"
    assert [] == [environ for environ in found if "canary" in environ]


@requirement("safe.tool-environment")
def test_every_start_of_a_process_names_its_environment():
    """A child inherits all of it if nothing is said, and nobody sees that in the call."""
    unnamed = []
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and STARTS.search(ast.unparse(node.func)):
                named = {keyword.arg for keyword in node.keywords}
                if not {"env", None} & named:  # None stands for **options, which the test above looks at
                    unnamed.append(f"{path.relative_to(SRC)}:{node.lineno}")

    assert [] == unnamed
