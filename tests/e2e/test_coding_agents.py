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

from tests.e2e.matrix.client import ASKS_AFTER_TEXT
from tests.e2e.matrix.installs import PLACE
from tests.requirements import requirement
from tests.support.proxies import Tap
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
from tests.support.waiting import LONG, SOON

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.long("installs the published programs, 700 MB"),
]

PROGRAMS = Path(__file__).parent / "node_modules" / ".bin"
PAGES = Path(__file__).parents[2] / "docs" / "clients"
KEY = "sk-holdfast-0123456789abcdefghijklmnop"
FACT = "The tide comes at six."


@dataclass(frozen=True)
class Agent:
    """A program, how it is called without a terminal, and how its own tool reads a file, if it has tools."""

    name: str
    command: tuple[str, ...]
    reads: Callable[[Path], tuple[str, dict[str, Any]]] | None
    env: dict[str, str] = field(default_factory=dict)
    folder: Path = PROGRAMS
    code_tells: bool = True
    """A failure is in its exit code, not only in what it prints."""
    page: str = ""
    """Its page in docs/clients, if that has another name."""
    option: str = ""
    """A line of its page that is off by default, behind `# `."""

    def is_work(self, body: dict[str, Any]) -> bool:
        """Tell a request of the conversation from one for its title, which has no tools."""
        return self.reads is None or bool(body.get("tools"))


AGENTS = {
    agent.name: agent
    for agent in [
        Agent(
            "codex",
            ("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"),
            lambda file: ("exec_command", {"cmd": f"cat {file}"}),
        ),
        Agent(
            "codex over a WebSocket",
            ("codex", "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"),
            lambda file: ("exec_command", {"cmd": f"cat {file}"}),
            page="codex",
            option="supports_websockets = true",
        ),
        Agent(
            "claude-code",
            ("claude", "--dangerously-skip-permissions", "-p"),
            lambda file: ("Read", {"file_path": f"{file}"}),
            {"IS_SANDBOX": "1"},  # it refuses to skip its questions as root elsewhere
        ),
        Agent("opencode", ("opencode", "run"), lambda file: ("read", {"filePath": f"{file}"})),
        Agent("cline", ("cline",), lambda file: ("read_files", {"files": [{"path": f"{file}"}]})),
        Agent(
            "continue",
            ("cn", "--config", "$HOME/.continue/config.yaml", "--auto", "-p"),
            lambda file: ("Read", {"filepath": f"{file}"}),
        ),
        Agent(
            "aider",
            ("aider", "--yes-always", "--message"),
            None,
            {"LITELLM_LOCAL_MODEL_COST_MAP": "true", "AIDER_CHECK_UPDATE": "false", "AIDER_ANALYTICS": "false"},
            PLACE / "aider" / "bin",
            code_tells=False,
        ),
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
        self.address = server.url
        self.server = server
        self.up = up

    async def start(self, agent: Agent, prompt: str, key: str = KEY) -> asyncio.subprocess.Process:
        if not (agent.folder / agent.command[0]).exists():
            pytest.skip("coding agents are installed by `make test-all`")
        page = self.page(agent, key)
        known = self.set_up(page)
        for command in re.findall(r"<!-- run -->\n```sh\n(.*?)\n```", page, re.DOTALL):
            await self.ended(await self.run(agent, *command.split(), **known))
        return await self.run(agent, *agent.command, prompt, **known)

    async def run(self, agent: Agent, program: str, *arguments: str, **known: str) -> asyncio.subprocess.Process:
        own = {"HOME": f"{self.home}", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        return await asyncio.create_subprocess_exec(
            *(agent.folder / program, *(Template(each).safe_substitute(HOME=self.home) for each in arguments)),
            cwd=self.repository,
            env=own | known | agent.env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    def page(self, agent: Agent, key: str) -> str:
        """The agent's page with this server, this key and the upstream's model."""
        page = (PAGES / f"{agent.page or agent.name}.md").read_text(encoding="utf-8").replace("sk-any", key)
        if agent.option:
            assert f"# {agent.option}" in page
            page = page.replace(f"# {agent.option}", agent.option)
        return page.replace("http://127.0.0.1:8787", self.address).replace("openai/gpt-5-mini", "up/m")

    def set_up(self, page: str) -> dict[str, str]:
        """Do what the agent's page says: write its files, and return its variables."""
        for name, content in re.findall(r"<!-- file (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL):
            place = Path(Template(name).substitute(HOME=self.home, PROJECT=self.repository))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
        return dict(re.findall(r"^export (\w+)=(\S+)$", page, re.MULTILINE))

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


def asked_to_work(agent: Agent, up: Upstream) -> list[Recorded]:
    return [request for request in up.requests if agent.is_work(request.body)]


def is_answered(body: dict[str, Any]) -> bool:
    """Tell whether a tool has been called."""
    return any(message["role"] == "tool" for message in body["messages"])


@requirement("wire.no-silent-drop")
async def test_a_coding_agent_calls_its_tool_and_answers(desk, agent):
    """In its default configuration: every tool, field and header that it sends is accepted."""
    if agent.reads is None:
        pytest.skip(f"{agent.name} has no tools")

    def work(request: Recorded) -> Script:
        is_new = request.body.get("tools") and not is_answered(request.body)
        return calling(agent.reads(desk.file)) if is_new else answer(FACT)

    desk.up.models["m"] = work
    code, printed = await desk.ended(await desk.start(agent, "When does the tide come? Look into README.md"))
    results = [message for message in asked_to_work(agent, desk.up)[-1].body["messages"] if message["role"] == "tool"]

    assert (0, True) == (code, FACT in printed), printed
    assert FACT in f"{results}"


@requirement("wire.truth")
async def test_a_coding_agent_reports_a_response_that_breaks_off(desk, agent):
    """Half a response is no response, and a script that called the agent must see it: in its exit code too."""
    desk.up.models["m"] = named("end:in-band-error")
    code, printed = await desk.ended(await desk.start(agent, "Say hello."))

    asked, expected = len(asked_to_work(agent, desk.up)), ASKS_AFTER_TEXT[agent.name]
    assert bool(code) == agent.code_tells
    assert "up failed" in printed
    assert asked > 1 if agent.name == "aider" else expected == asked, "docs/clients says how often it asks again"


@requirement("wire.no-useless-retry")
async def test_a_coding_agent_reports_a_wrong_key(desk, agent):
    """At once: it used to try again in silence for minutes."""
    code, printed = await desk.ended(await desk.start(agent, "Say hello.", key="sk-wrong"))

    assert [] == desk.up.requests
    assert bool(code) == agent.code_tells
    assert re.search("key|401|unauthori[sz]ed|not logged in", printed, re.IGNORECASE), printed


async def interrupt(process: asyncio.subprocess.Process, working: Recorded) -> None:
    """Press Ctrl-C as a terminal does: the program may be a child of a small script. Press it again if it was missed.

    aider misses it in the moment in which it sends its request.
    """
    async with asyncio.timeout(LONG):
        while not working.closed.is_set():
            os.killpg(process.pid, signal.SIGINT)
            try:
                await asyncio.wait_for(working.closed.wait(), SOON)
            except TimeoutError:
                pass  # missed


@requirement("gone.attached")
async def test_interrupting_a_coding_agent_stops_the_model(desk, agent):
    """Ctrl-C must end what costs money."""
    half: Script = [Role(), Delta("Half "), Hang()]
    desk.up.models["m"] = lambda request: half if agent.is_work(request.body) else answer("A title")
    process = await desk.start(agent, "Say hello.")
    async with asyncio.timeout(LONG):
        while not asked_to_work(agent, desk.up):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    working = asked_to_work(agent, desk.up)[0]
    await interrupt(process, working)
    await desk.ended(process)

    assert working.left_early


@requirement("wire.no-silent-drop")
async def test_aider_edits_a_file_as_the_model_says(desk):
    """It has no tools: the edit is in the text."""
    edited = "# Tide\n\nThe tide comes at seven.\n"
    desk.up.models["m"] = answer(f"README.md\n```\n{edited}```\n")
    aider = AGENTS["aider"]
    process = await desk.start(aider, "The tide comes at seven. Correct README.md")
    code, printed = await desk.ended(process)

    assert 0 == code, printed
    assert edited == desk.file.read_text(), printed


@requirement("resp.websocket")
async def test_codex_uses_its_websocket_for_every_turn(desk):
    """The option of its page is in effect: no turn is a request of its own."""
    desk.up.models["m"] = answer(FACT)
    async with Tap(int(desk.server.url.rpartition(":")[2])).listening() as tap:
        desk.address = f"http://127.0.0.1:{tap.port}"
        code, printed = await desk.ended(await desk.start(AGENTS["codex over a WebSocket"], "Say hello."))
    asked = [bytes(sent[: sent.find(b"\r\n\r\n")]).lower() for sent in tap.connections if b"/v1/responses" in sent]

    assert (0, True) == (code, FACT in printed), printed
    assert [True] * len(asked) == [b"upgrade: websocket" in head for head in asked]
    assert asked


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
