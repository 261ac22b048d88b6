"""Coding agents as they are published, set up as docs/clients says, against the real server and a scripted upstream.

The programs take 700 MB, so only `make test-all` installs and runs them.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import pytest
import pytest_asyncio

from tests.requirements import requirement
from tests.support.server import Server, provider
from tests.support.upstream import (
    Delta,
    Hang,
    Headers,
    Raw,
    Recorded,
    Role,
    Script,
    Upstream,
    answer,
    calling,
    named,
)
from tests.support.waiting import LONG

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.long("installs the published programs, 700 MB"),
]

PROGRAMS = Path(__file__).parent / "coding_agents" / "node_modules" / ".bin"
PAGES = Path(__file__).parents[2] / "docs" / "clients"
KEY = "sk-holdfast-0123456789abcdefghijklmnop"
FACT = "The tide comes at six."


@dataclass(frozen=True)
class Agent:
    """A program, how it is called without a terminal, and how its own tool reads a file."""

    name: str
    command: tuple[str, ...]
    reads: Callable[[Path], tuple[str, dict[str, Any]]]
    env: dict[str, str] = field(default_factory=dict)


AGENTS = {
    agent.name: agent
    for agent in [
        Agent(
            "codex",
            ("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"),
            lambda file: ("exec_command", {"cmd": f"cat {file}"}),
        ),
        Agent(
            "claude-code",
            ("claude", "--dangerously-skip-permissions", "-p"),
            lambda file: ("Read", {"file_path": f"{file}"}),
            {"IS_SANDBOX": "1"},  # it refuses to skip its questions as root elsewhere
        ),
        Agent("opencode", ("opencode", "run"), lambda file: ("read", {"filePath": f"{file}"})),
    ]
}


class Desk:
    """A home and a repository for one agent, set up by the blocks of its page."""

    def __init__(self, folder: Path, server: Server, up: Upstream) -> None:
        self.home, self.repository = folder / "home", folder / "repository"
        self.home.mkdir(parents=True)
        self.repository.mkdir()
        self.file = self.repository / "README.md"
        self.file.write_text(f"# Tide\n\n{FACT}\n")
        self.server = server
        self.up = up

    async def start(self, agent: Agent, prompt: str, key: str = KEY) -> asyncio.subprocess.Process:
        if not (program := PROGRAMS / agent.command[0]).exists():
            pytest.skip("coding agents are installed by `make test-all`")
        known = self.set_up(agent, key)
        return await asyncio.create_subprocess_exec(
            *(program, *agent.command[1:], prompt),
            cwd=self.repository,
            env={"HOME": f"{self.home}", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            | known
            | agent.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    def set_up(self, agent: Agent, key: str) -> dict[str, str]:
        """Do what the agent's page says: write its files, and return its variables."""
        page = (PAGES / f"{agent.name}.md").read_text(encoding="utf-8")
        page = page.replace("http://127.0.0.1:8787", self.server.url).replace("openai/gpt-5-mini", "up/m")
        for name, content in re.findall(r"<!-- file (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL):
            place = Path(Template(name).substitute(HOME=self.home, PROJECT=self.repository))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
        variables = dict(re.findall(r"^export (\w+)=(\S+)$", page, re.MULTILINE))
        return {name: key if value.startswith("sk-") else value for name, value in variables.items()}

    async def ended(self, process: asyncio.subprocess.Process) -> tuple[int, str]:
        try:
            async with asyncio.timeout(2 * LONG):
                printed, errors = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode is not None
        return process.returncode, (printed + errors).decode()


@pytest_asyncio.fixture(loop_scope="module")
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with Upstream() as up:
        config = '[[keys]]\nname = "ada"\nkey_env = "ADA"'
        async with Server(
            tmp_path / "data", [provider(up.base_url, models=None)], config=config, env={"ADA": KEY}
        ) as server:
            yield Desk(tmp_path / "desk", server, up)


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> Agent:
    return AGENTS[request.param]


def asked_to_work(up: Upstream) -> list[dict[str, Any]]:
    """The requests with tools: those for the title of a conversation have none."""
    return [request.body for request in up.requests if request.body.get("tools")]


def is_answered(body: dict[str, Any]) -> bool:
    """Tell whether a tool has been called."""
    return any(message["role"] == "tool" for message in body["messages"])


@requirement("wire.no-silent-drop")
async def test_a_coding_agent_calls_its_tool_and_answers(desk, agent):
    """In its default configuration: every tool, field and header that it sends is accepted."""

    def work(request: Recorded) -> Script:
        is_new = request.body.get("tools") and not is_answered(request.body)
        return calling(agent.reads(desk.file)) if is_new else answer(FACT)

    desk.up.models["m"] = work
    code, printed = await desk.ended(await desk.start(agent, "When does the tide come? Look into README.md"))
    results = [message for message in asked_to_work(desk.up)[-1]["messages"] if message["role"] == "tool"]

    assert (0, True) == (code, FACT in printed), printed
    assert FACT in f"{results}"


@requirement("wire.truth")
async def test_a_coding_agent_reports_a_response_that_breaks_off(desk, agent):
    """Half a response is no response, and a script that called the agent must see it in the exit code."""
    desk.up.models["m"] = named("end:in-band-error")
    code, printed = await desk.ended(await desk.start(agent, "Hello"))

    assert code != 0
    assert "up failed" in printed


@requirement("wire.no-useless-retry")
async def test_a_coding_agent_reports_a_wrong_key(desk, agent):
    """At once: it used to try again in silence for minutes."""
    code, printed = await desk.ended(await desk.start(agent, "Hello", key="sk-wrong"))

    assert [] == desk.up.requests
    assert code != 0
    assert re.search("key|401|unauthori[sz]ed|not logged in", printed, re.IGNORECASE), printed


@requirement("gone.attached")
async def test_interrupting_a_coding_agent_stops_the_model(desk, agent):
    """Ctrl-C must end what costs money."""
    half: Script = [Role(), Delta("Half "), Hang()]
    desk.up.models["m"] = lambda request: half if request.body.get("tools") else answer("A title")
    process = await desk.start(agent, "Hello")
    async with asyncio.timeout(LONG):
        while not asked_to_work(desk.up):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    working = next(request for request in desk.up.requests if request.body.get("tools"))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the program may be a child of a small script
    await working.wait_closed()
    await desk.ended(process)

    assert working.left_early


def claude_says(*blocks: dict[str, Any]) -> Script:
    """An answer of Anthropic's own: each block as it streams it."""
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 0}}}
    ]
    for index, block in enumerate(blocks):
        is_call = block["type"] == "tool_use"
        start = {**block, "input": {}} if is_call else {"type": "text", "text": ""}
        given = {"type": "input_json_delta", "partial_json": json.dumps(block.get("input"))}
        delta = given if is_call else {"type": "text_delta", "text": block["text"]}
        told.append({"type": "content_block_start", "index": index, "content_block": start})
        told.append({"type": "content_block_delta", "index": index, "delta": delta})
        told.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    told.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
    told.append({"type": "message_stop"})
    return [Headers(), *(Raw(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode()) for each in told)]


@requirement("wire.no-silent-drop", "wire.anthropic-cache")
async def test_claude_code_reaches_anthropics_own_models_as_it_would_without_us(tmp_path):
    """Its betas, its marks of the cache and its tools are Anthropic's, and cost money if they are lost."""

    def work(request: Recorded) -> Script:
        sent = json.dumps(request.body["messages"])
        if request.body.get("tools") and "tool_result" not in sent:
            call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": f"{desk.file}"}}
            return claude_says({"type": "text", "text": "I look."}, call)
        return claude_says({"type": "text", "text": FACT})

    async with Upstream() as up:
        up.models["m"] = work
        base_url = up.base_url.removesuffix("/v1")
        claude = {"name": "up", "dialect": "anthropic", "base_url": base_url, "api_key_env": "UP_KEY", "models": ["m"]}
        async with Server(tmp_path / "data", [claude]) as server:
            desk = Desk(tmp_path / "desk", server, up)
            process = await desk.start(AGENTS["claude-code"], "When does the tide come? Look into README.md")
            code, printed = await desk.ended(process)
    working = [request for request in up.requests if request.body.get("tools")]

    assert (0, True) == (code, FACT in printed), printed
    assert {"/v1/messages"} == {request.path.partition("?")[0] for request in working}
    assert all("anthropic-beta" in request.headers for request in working)
    assert "cache_control" in json.dumps(working[-1].body["messages"])
    assert FACT in json.dumps(working[-1].body["messages"])
