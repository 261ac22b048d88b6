"""The examples do what they say, served by uvicorn as their first lines tell: detach, resume, stop, leave."""

import asyncio
import importlib.util
import itertools
import shutil
import time
from pathlib import Path
from types import ModuleType

import pytest

from holdfast import Stopped
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.http import Client, Frame
from tests.support.native import Native
from tests.support.served import NO_HOME, Served, protocol
from tests.support.server import Server, StartFailed
from tests.support.waiting import LONG, SOON

EXAMPLES = Path(__file__).parents[2] / "examples"
STORY = "Once upon a time there was a wave. The end. "


def load(name: str) -> ModuleType:
    """Import an example fresh, so that each test has an engine of its own."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said(frames: list[Frame]) -> str:
    return "".join(frame.json()["text"] for frame in frames if frame.event == "text.delta")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """The examples keep their runs in ./data."""
    monkeypatch.chdir(tmp_path)


def of_ann(served: Served) -> Client:
    return served.client(headers={"Authorization": "Bearer token-of-ann"})


async def tell(client: Client, pause: float = 0.05) -> str:
    response = await client.post(f"/runs?subject=a%20wave&pause={pause}")
    assert 202 == response.status
    return str((await response.json())["id"])


def test_every_example_is_run_by_a_test():
    """An example that nobody runs is the first thing to break, and the first thing that a newcomer tries."""
    assert {
        "ag_ui_client",
        "anthropic_client",
        "asgi_app",
        "blocking_agent",
        "chat_client",
        "django_app",
        "fastapi_app",
        "litestar_app",
        "llama_cpp_client",
        "mcp_tickets",
        "own_agent",
        "page_app",
        "responses_client",
        "starlette_app",
    } == {path.stem for path in EXAMPLES.glob("*.py")}


@requirement("gone.detached", "sub.after-end")
async def test_fastapi_a_story_goes_on_without_its_reader_and_can_be_read_afterwards():
    """Detach: the reader leaves after two words, and the whole story is there for the next one."""
    async with Served(load("fastapi_app").app) as served, of_ann(served) as client:
        run_id = await tell(client)
        first = await client.get(f"/runs/{run_id}/events")
        for _ in range(3):
            await first.next_event()
        first.leave("rst")
        second = await client.get(f"/runs/{run_id}/events")
        frames = await second.all_events()
        again = await (await client.get(f"/runs/{run_id}/events")).all_events()

    assert ("text/event-stream", STORY) == (second.headers["content-type"], said(frames))
    assert ("run.settled", "completed") == (frames[-1].event, frames[-1].json()["settlement"]["outcome"])
    assert frames == again


@requirement("sub.resume-exact")
async def test_fastapi_a_reader_resumes_by_last_event_id_in_the_middle():
    """What a browser's EventSource does by itself after a tunnel."""
    async with Served(load("fastapi_app").app) as served, of_ann(served) as client:
        run_id = await tell(client)
        seen: list[Frame] = []
        while not seen or seen[-1].event != "run.settled":
            headers = {"Last-Event-ID": seen[-1].id} if seen else {}
            reader = await client.get(f"/runs/{run_id}/events", headers=headers)
            for _ in range(4):
                if (frame := await reader.next_event()) is not None:
                    seen.append(frame)
            reader.leave("rst")

    assert [*range(1, len(seen) + 1)] == [int(frame.id or -1) for frame in seen]
    assert STORY == said(seen)


@requirement("stop.prompt", "stop.terminal-event")
async def test_fastapi_a_story_is_stopped_and_says_what_it_has_told():
    """Stop answers with the partial, and the reader sees the same."""
    async with Served(load("fastapi_app").app) as served, of_ann(served) as client:
        run_id = await tell(client, pause=LONG)
        reader = await client.get(f"/runs/{run_id}/events")
        before = [await reader.next_event() for _ in range(2)]
        began = time.monotonic()
        answer = (await (await client.post(f"/runs/{run_id}/stop")).json())["settlement"]
        seconds = time.monotonic() - began
        frames = [*before, *await reader.all_events()]

    assert seconds < SOON
    assert ("stopped", said(frames)) == (answer["outcome"], answer["text"])
    assert STORY.startswith(answer["text"])
    assert "stopped" == frames[-1].json()["settlement"]["outcome"]


@requirement("embed.owner", "start.own-key")
async def test_fastapi_each_user_has_one_story_at_bedtime():
    """A path operation of the app's own: the key belongs to its owner."""
    async with Served(load("fastapi_app").app) as served:
        headers = {user: {"Authorization": f"Bearer token-of-{user}"} for user in ("ann", "bob")}
        async with served.client() as client:
            ids = [
                (await (await client.post("/bedtime", headers=headers[user])).json())["id"]
                for user in ("ann", "bob", "ann")
            ]
            foreign = (await client.get(f"/runs/{ids[0]}", headers=headers["bob"])).status

    assert (True, False, 404) == (ids[0] == ids[2], ids[0] == ids[1], foreign)


@requirement("gone.attached")
@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_starlette_leaving_closes_the_generator(how):
    """The run lives as long as its client stays: the count ends in the middle, and its text is kept."""
    module = load("starlette_app")
    async with Served(module.app) as served, of_ann(served) as client:
        reader = await client.get("/count")
        frames = [await reader.next_event() for _ in range(4)]
        run = await module.engine.open(reader.headers["x-run-id"], owner="ann")
        began = time.monotonic()
        reader.leave(how)
        async with asyncio.timeout(LONG):
            settlement = await run.settled()
        seconds = time.monotonic() - began
        status = await (await client.get(f"/runs/{run.id}")).json()

    assert seconds < SOON
    assert (Stopped, "disconnect") == (type(settlement), settlement.by)
    assert settlement.receipt.upstream_closed_at is not None
    assert ("settled", settlement.text) == (status["status"], status["text"])
    assert settlement.text.startswith(said(frames))
    assert settlement.text in itertools.accumulate(f"{number} " for number in range(1, 100))


@requirement("llama.byte-exact")
async def test_llama_cpp_client_has_the_whole_answer_however_often_it_was_cut_off(capsys):
    """A hundred words in one second, and cuts in them: not a byte is missing, and none is there twice."""
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), MemoryStore(), NO_HOME)
    async with Served(app) as served, served.client() as client:
        await load("llama_cpp_client").main(served.url, "scripted/lorem:100:100", "Hello")
        whole = await (await client.get("/v1/stream?conv_id=example")).body()
    printed = capsys.readouterr()

    assert whole.decode() == printed.out
    assert 100 == printed.out.count('"content":') - 1
    assert "cut off after" in printed.err


@requirement("sub.resume-exact", "gone.attached")
async def test_chat_client_comes_back_to_its_answer_and_leaves_another(capsys):
    """With OpenAI's own client: a hundred words in two parts, and an answer that ends with its client."""
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), MemoryStore(), NO_HOME)
    async with Served(app) as served:
        await load("chat_client").main(f"{served.url}/v1", "scripted/lorem:100:100")
    text, ending = capsys.readouterr().out.splitlines()

    assert 100 == len(text.split())
    assert "cancelled" == ending


@requirement("resp.resume", "resp.cancel", "resp.websocket")
async def test_responses_client_has_the_whole_answer_however_often_it_was_cut_off(capsys):
    """With OpenAI's own client: a hundred words in one second, some cuts, a second answer that is stopped, and two more
    over a WebSocket, which are not stored."""
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), MemoryStore(), NO_HOME)
    async with Served(app, http=protocol()) as served, served.client() as client:
        await load("responses_client").main(f"{served.url}/v1", "scripted/lorem:100:100")
        listed = (await (await client.get("/v1/responses")).json())["data"]
    text, *statuses = capsys.readouterr().out.splitlines()

    assert ["cancelled", "completed", "completed"] == statuses
    assert ["cancelled", "completed"] == [response["status"] for response in listed]
    assert text == listed[1]["output"][0]["content"][0]["text"]
    assert 100 == len(text.split())


@requirement("wire.anthropic")
async def test_anthropic_client_reads_a_whole_answer_and_is_told_of_a_stop(capsys):
    """With Anthropic's own client: all the words, and then ten or a few more of an answer that someone stopped."""
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), MemoryStore(), NO_HOME)
    async with Served(app) as served:
        await load("anthropic_client").main(served.url, "scripted/lorem:300:100")
    whole, stopped = capsys.readouterr().out.splitlines()

    assert 300 == len(whole.split())
    assert stopped.startswith("stopped_by_user: ")
    assert 10 <= len(stopped.removeprefix("stopped_by_user: ").split()) < 300


@requirement("wire.ag-ui")
async def test_ag_ui_client_comes_back_to_its_run_and_stops_it(capsys):
    """With the protocol's own types: every event must be one of them."""
    app = create_app(Settings(providers=(ProviderSettings("scripted", dialect="scripted"),)), MemoryStore(), NO_HOME)
    async with Served(app) as served:
        await load("ag_ui_client").main(served.url, "scripted/lorem:200:50")

    assert "cancelled\n" == capsys.readouterr().out


async def test_an_agent_of_your_own_is_published_from_the_command_line(tmp_path):
    """As its first line tells: the file's folder is where the server is started."""
    shutil.copy(EXAMPLES / "own_agent.py", tmp_path)
    async with Server(data=tmp_path, args=["--agent", "counter=own_agent:agent"]) as server, server.client() as client:
        body = {"model": "agent/counter", "messages": [{"role": "user", "content": "One two three"}]}
        answer = await (await client.post("/v1/chat/completions", body)).json()

    assert "Let me count. You said 3 words." == answer["choices"][0]["message"]["content"]


@requirement("byo.kinds")
async def test_blocking_code_is_published_from_the_command_line(tmp_path):
    """The bridge from its thread is not the reader's business."""
    shutil.copy(EXAMPLES / "blocking_agent.py", tmp_path)
    async with Server(data=tmp_path, args=["--agent", "sorter=blocking_agent:agent"]) as server:
        async with server.client() as client:
            body = {"model": "agent/sorter", "messages": [{"role": "user", "content": "b\nc\na"}]}
            answer = await (await client.post("/v1/chat/completions", body)).json()

    assert "a\nb\nc\n" == answer["choices"][0]["message"]["content"]


@requirement("mcp.tools")
async def test_an_agent_has_the_tools_of_the_example_of_an_mcp_server(tmp_path):
    """With its settings as they are: one tool is allowed, for the other a person is asked."""
    shutil.copy(EXAMPLES / "mcp_tickets.py", tmp_path)
    config = (EXAMPLES / "mcp_tickets.toml").read_text()
    lines = 'tickets__search {"words": "lamp"}\ntickets__close {"number": 2}\nDone.'
    async with Server(data=tmp_path, config=config) as server:
        async with server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), lines, "agent/helper")
            reader = await api.events(run_id)
            while (frame := await reader.next_event()).event != "approval.requested":
                pass
            asked = frame.json()
            answered = await client.post(f"/api/runs/{run_id}/approvals/{asked['id']}", {"decision": "allow"})
            frames = await api.replay(run_id)

    assert ("tickets__close", 200) == (asked["tool"], answered.status)
    assert ["2: The lamp is broken.", "Closed: The lamp is broken."] == [
        frame.json()["output"] for frame in frames if frame.event == "tool.result"
    ]
    assert "completed" == frames[-1].json()["settlement"]["outcome"]


@pytest.mark.parametrize("named", ["own_agent", "own_agent:missing", "no_such_module:agent", "a/b=own_agent:agent"])
async def test_an_agent_that_cannot_be_loaded_keeps_the_server_from_starting(tmp_path, named):
    """A server that starts without an agent it should publish would fail later, at the first request for it."""
    shutil.copy(EXAMPLES / "own_agent.py", tmp_path)

    with pytest.raises(StartFailed, match=r"is not an agent: use|cannot be loaded|not a valid agent name"):
        async with Server(data=tmp_path, args=["--agent", named]):
            pass
