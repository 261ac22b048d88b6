"""Every block of the documents runs as it is pasted: shell commands against a real server, settings in a real load.

A block that cannot run here has a mark before it, `<!-- not run: the reason -->`, and `NOT_RUN` lists it. Python blocks
have marks and tests of their own (tests/unit/test_docs.py); nginx, Caddy and JavaScript blocks too.
"""

import asyncio
import os
import re
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from holdfast.server.config.settings import load
from holdfast.server.sources.agent_factory import servers_of
from tests.support.pdfs import text_pdf
from tests.support.programs import JQ
from tests.support.server import ROOT, Server, clean_environment, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)
ELSEWHERE = {
    "python": "tests/unit/test_docs.py",
    "html": "tests/browser/test_embedded_page.py",
    "js": "tests/e2e/test_node_clients.py",
    "tsx": "tests/e2e/test_node_clients.py",
    "nginx": "tests/e2e/test_proxies.py",
    "caddyfile": "tests/e2e/test_proxies.py",
    "yaml": "tests/unit/test_metrics_docs.py",
    "json": "the shape of an object in the protocol, which the tests of its clauses check",
    "": "a drawing",
}
"""Languages whose blocks other tests run, or that nothing can run."""
CLIENTS = ROOT / "docs" / "clients"
"""The pages that tests/e2e/test_coding_agents.py runs."""


class Block(NamedTuple):
    """A block of a document."""

    document: str
    number: int
    language: str
    code: str
    reason: str

    def __str__(self) -> str:
        return f"{self.document}-{self.number}"


def blocks() -> list[Block]:
    documents = [ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {*CLIENTS.rglob("*.md")})]
    return [
        Block(str(path.relative_to(ROOT)), number, found["language"], found["code"], found["reason"] or "")
        for path in documents
        for number, found in enumerate(BLOCK.finditer(path.read_text(encoding="utf-8")), 1)
    ]


def of(*languages: str) -> list[Block]:
    return [block for block in blocks() if block.language in languages and not block.reason]


NOT_RUN = {
    "docs/agents.md-5": "it needs a run that waits; tests/acceptance/test_approvals.py has one",
    "docs/agents.md-6": "it needs an agent at work; tests/acceptance/test_steer.py has one",
    "docs/agents.md-8": "it needs a server that was killed; tests/faults/test_effects.py has one",
    "docs/audit.md-3": "its head is an example; tests/acceptance/test_audit.py does the same",
    "docs/cluster.md-1": "it needs PostgreSQL and several machines; tests/e2e/test_nodes.py starts them on one",
    "docs/cluster.md-4": "it needs Docker",
    "docs/cluster.md-6": "it needs the folders of a PostgreSQL server; tests/faults/test_point_in_time.py does it",
    "docs/cluster.md-7": "it needs a PostgreSQL server; tests/unit/test_copy.py starts one",
    "docs/embedding-deploy.md-1": "it needs your app; tests/e2e/test_embedding_frameworks.py does the same",
    "docs/embedding.md-1": "it changes the environment of the tests",
    "docs/performance.md-1": "it takes minutes",
    "docs/privacy.md-1": "it needs an account; tests/acceptance/test_people_data.py does the same",
    "docs/extending/upstream.md-2": "it belongs to a package of yours; tests/unit/test_kinds.py has one",
    "docs/extending/upstream.md-3": "it belongs to a package of yours; tests/unit/test_kinds.py has one",
    "docs/releases.md-1": "it takes half a minute; tests/e2e/test_release.py does the same",
    "docs/releases.md-2": "it needs a tag; tests/e2e/test_release.py compares builds",
    "docs/reverse-proxy.md-6": "it needs the name; tests/e2e/test_deployment.py does the same",
    "docs/scale.md-1": "it takes about eight minutes",
    "docs/service.md-1": "it needs systemd",
    "docs/service.md-2": "it needs systemd",
    "docs/service.md-3": "it needs the folders of the service",
    "docs/service.md-4": "it needs a container engine",
    "docs/service.md-5": "it needs a certificate; tests/e2e/test_tls_server.py does the same",
    "docs/service.md-7": "it needs the folders of the service; tests/e2e/test_cli_operators.py does the same",
    "docs/service.md-8": "it needs the folders of the service; tests/e2e/test_cli_operators.py does the same",
    "docs/settings.md-4": "it needs an account with Groq",
    "docs/sharing.md-1": "it needs a session and its key; tests/acceptance/test_sharing.py does the same",
    "docs/testing.md-3": "it takes minutes",
    "docs/testing.md-4": "it takes minutes; tests/faults/test_simulation.py runs some of it",
    "docs/traces.md-1": "it needs Docker",
    "docs/traces.md-2": "it needs a collector; tests/acceptance/test_traces.py starts one",
    "docs/traces.md-5": "it needs some minutes",
    "docs/tutorials/chat.md-6": "it kills the server; tests/faults/test_kill9.py does the same",
    "docs/tutorials/chat.md-7": "it reads the run from before the kill; tests/faults/test_kill9.py does the same",
    "docs/tutorials/cluster.md-4": "it needs the cluster; tests/e2e/test_serve_cluster.py starts it and kills a node",
    "docs/tutorials/cluster.md-5": "it needs the cluster; tests/e2e/test_serve_cluster.py starts it and kills a node",
    "docs/tutorials/cluster.md-6": "it needs the cluster; tests/e2e/test_cli_top.py has one",
    "docs/tutorials/embed.md-1": "it changes the environment of the tests",
    "docs/tutorials/embed.md-4": "it needs the app on port 8000; tests/e2e/test_examples.py does the same",
}
"""Blocks that cannot run here, with their reasons, as the documents have them."""


def test_every_block_runs_or_says_why_not():
    """A block that nobody runs is wrong sooner or later, and its reader finds out."""
    unknown = {block.language for block in blocks()} - {*ELSEWHERE, "sh", "toml"}

    assert set() == unknown
    assert NOT_RUN == {str(block): block.reason for block in blocks() if block.reason}


# settings


VARIABLES = dict.fromkeys(("UP_KEY", "TICKETS_KEY", "GATEWAY_KEY", "HOOK"), "key-0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_every_block_of_settings_loads(block, tmp_path):
    """A misspelt name in an example is copied into a thousand files."""
    file = tmp_path / "holdfast.toml"
    file.write_text(block.code)
    named = re.findall(r'(?:_env|env_from) = \[?"(\w+)"', block.code)

    settings = load({}, VARIABLES | dict.fromkeys(named, "x" * 40), file)

    servers_of(settings, VARIABLES | dict.fromkeys(named, "x" * 40))


# shell


class World(NamedTuple):
    """A machine on which the blocks are typed: a server, its port, and a folder with what the guides speak of."""

    server: Server
    folder: Path
    env: dict[str, str]


GIVEN = {
    "holdfast.toml": 'log_level = "error"\n',
    "prompts.jsonl": '{"prompt": "What is 6 times 7?", "expected": "42"}\n',
    "notes.txt": "Some notes.\n",
    "notes.md": "Some notes.\n",
    "change.diff": "- one\n+ two\n",
    "package/module.py": "async def agent(request):\n    yield 'hello'\n",
    "my_package/agents.py": "async def travel_agent(request):\n    yield 'hello'\n",
    "models/qwen.gguf": "GGUF",
    "examples/mcp_tickets.toml": 'log_level = "error"\n',
}
"""Files that the reader of a guide has."""

HOLDFAST = """\
#!/bin/sh
# The real command. A server is started on a free port, and ended when it is ready; of the lab, the options are read.
holdfast() {{ exec "{python}" -c "from holdfast.cli import main; main(prog_name='holdfast')" "$@"; }}
case "$1" in
  serve)
    shift
    holdfast serve "$@" --port 0 --host 127.0.0.1 --data "$(mktemp -d)" > serve.log 2>&1 &
    server=$!
    for _ in $(seq 600); do
      grep -q "is ready on" serve.log && kill $server && exit 0
      kill -0 $server 2> /dev/null || break
      sleep 0.1
    done
    cat serve.log >&2
    exit 1 ;;
  lab) holdfast "$@" --help ;;
  *) holdfast "$@" ;;
esac
"""
MAKE = """\
#!/bin/sh
# `make serve` is the command that it runs; for other targets, that they exist.
target=$1
for each in "$@"; do case "$each" in ARGS=*) arguments=${{each#ARGS=}} ;; esac; done
if [ "$target" = serve ]; then exec holdfast serve $arguments; fi
grep -q "^$target:" "{root}/Makefile"
"""


AGENT = '[[agents]]\nname = "helper"\nmodel = "scripted/steps"\ntools = ["files"]\n'
CURL = """\
curl() {
  local code=0
  command curl --fail-with-body "$@" || code=$?
  [ $code = 28 ] || return $code
}"""
"""An answer with an error status fails the block. A reader that leaves with `--max-time` does not."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("reader")
    for name, content in GIVEN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    shutil.copy(ROOT / "examples" / "own_agent.py", folder)
    for name in ("paper.pdf", "old.pdf", "new.pdf"):
        (folder / name).write_bytes(text_pdf("Tides"))
    subprocess.run(["git", "init", "-q", folder], check=True)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in (("holdfast", HOLDFAST), ("make", MAKE)):
        (programs / name).write_text(text.format(python=sys.executable, root=ROOT))
        (programs / name).chmod(stat.S_IRWXU)
    async with Upstream() as up:
        names = ("openai", "up")
        providers = [{**provider(up.base_url, models=None), "name": name} for name in names]
        local = {**provider(up.base_url, models=None), "name": "local"}
        async with Server(folder / "data", [*providers, local], config=AGENT) as server:
            env = clean_environment() | {
                "HOME": str(folder),
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "XDG_STATE_HOME": str(folder / "state"),
                "HOLDFAST_DATA": str(server.data),
                "HOLDFAST_PORT": str(server.port),
                "HOLDFAST_OFFLINE": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
            }
            world = World(server, folder, env)
            await typed(world, 'holdfast run "Hello" -m scripted/echo', env)
            await typed(world, "holdfast presets add brief -m scripted/echo --system 'Be brief.'", env)
            yield world


LOCKING = ("holdfast key", "holdfast user", "holdfast audit")


def alone(block: Block, world: World) -> dict[str, str]:
    """The variables of a block. One that makes a key or an account has a data folder for its document alone.

    Otherwise all other documents would need the key.
    """
    is_locking = any(command in block.code for command in LOCKING)
    return world.env | (
        {"HOLDFAST_DATA": str(world.folder / "locked" / block.document.replace("/", "-").removesuffix(".md"))}
        if is_locking
        else {}
    )


async def typed(world: World, script: str, env: dict[str, str]) -> None:
    """Run a script in the reader's folder; it must succeed."""
    script = re.sub(r"(127\.0\.0\.1|localhost):8787", f"127.0.0.1:{world.server.port}", script)
    process = await asyncio.create_subprocess_exec(
        *("bash", "-eu", "-o", "pipefail", "-c", f"{CURL}\n{script}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=env,
        cwd=world.folder,
    )
    async with asyncio.timeout(LONG):
        out, _ = await process.communicate()
    assert 0 == process.returncode, textwrap.indent(out.decode(errors="replace"), "  ")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("document", dict.fromkeys(block.document for block in of("sh")))
async def test_every_block_of_shell_runs_as_it_is_pasted(world, document):
    """One after the other, as a page is read: with what its earlier blocks have set and made.

    The port is that of the server under test in place of 8787.
    """
    variables: list[str] = []
    for block in [each for each in of("sh") if each.document == document]:
        if "| jq " in block.code:
            JQ.find_or_skip()
        await typed(world, "\n".join([*variables, block.code]), alone(block, world))
        variables += re.findall(r"^[A-Z]+=[^\s$(]+$", block.code, re.M)
