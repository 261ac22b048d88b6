"""An agent whose server is killed: nothing that ran is run again, and the events tell what became of the run."""

from pathlib import Path

import pytest

from tests.faults.test_agent_stop import gone
from tests.requirements import requirement
from tests.support.agents import check_anthropic, check_openai
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Gate, Hang, Headers, Role, Upstream, answer, calling

AGENT = """
[[agents]]
name = "helper"
model = "up/m"
tools = ["shell"]
folder = "{folder}"
approvals = {{ shell = "allow" }}
on_restart = "{on_restart}"
"""
MARK = "echo ran >> runs; echo done"
STAY = "echo ran >> runs; echo on; sleep 60"


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


def serving(up: Upstream, folder: Path, on_restart: str) -> Server:
    (folder / "work").mkdir()
    config = AGENT.format(folder=folder / "work", on_restart=on_restart)
    return Server(folder, [provider(up.base_url, models=["m", "next"])], config=config)


async def crash_in_a_call(up: Upstream, server: Server, *later: list) -> tuple[str, str]:
    """A run in its second step, whose command has run and goes on when the server is killed."""
    up.enqueue(calling(("shell", {"command": MARK}), text="First. "), calling(("shell", {"command": STAY})))
    async with server.client() as client:
        api = Native(client)
        session_id = await api.new_session()
        run_id = await api.start(session_id, "Go", "agent/helper")
        reader = await api.events(run_id)
        frame = await reader.next_event()
        while frame.event != "step.started" or frame.json()["step"] != 2:
            frame = await reader.next_event()
        while frame.event != "tool.progress":
            frame = await reader.next_event()
    await server.kill9()
    up.enqueue(*later)
    await server.restart()
    return session_id, run_id


async def next_turn(up: Upstream, api: Native, session_id: str) -> list:
    await api.settled(await api.start(session_id, "And now?", "up/next"))
    return up.requests[-1].body["messages"]


@requirement("crash.no-repeat", "crash.kill9", "hist.no-orphan-tools")
async def test_a_run_is_interrupted_and_nothing_runs_again(up, tmp_path):
    """The default: settled, with all that was done, and words that are true of what nobody knows.

    What the dead server's command went on doing, the next server ends.
    """
    async with serving(up, tmp_path, "settle") as server:
        session_id, run_id = await crash_in_a_call(up, server)
        async with server.client() as client:
            api = Native(client)
            settlement = await api.settled(run_id)
            shown = await next_turn(up, api, session_id)
        await gone(tmp_path / "work")

    assert ("interrupted", "First. ") == (settlement["outcome"], settlement["text"])
    assert "ran\nran\n" == (tmp_path / "work" / "runs").read_text()
    done, cut_off = (said["content"] for said in shown if said["role"] == "tool")
    assert "done\n" == done
    # After what it had printed, if any of that was kept before the crash.
    assert "The server ended before this call finished. It may have run." in cut_off
    check_openai(shown)
    check_anthropic(shown)


@requirement("crash.no-repeat")
async def test_a_run_goes_on_after_its_last_finished_step_where_the_settings_say_so(up, tmp_path):
    """A person is asked about the command that may have run; the events say that the run was resumed."""
    async with serving(up, tmp_path, "continue") as server:
        _, run_id = await crash_in_a_call(up, server, answer("Second."))
        async with server.client() as client:
            api = Native(client)
            reader = await api.events(run_id)
            while (frame := await reader.next_event()).event != "outcome.requested":
                pass
            reader.close()
            told = {"decision": "skip", "note": "It is stuck."}
            response = await client.post(f"/api/runs/{run_id}/outcomes/{frame.json()['id']}", told)
            again = await client.post(f"/api/runs/{run_id}/outcomes/{frame.json()['id']}", told)
            frames = await api.replay(run_id)
    seen = up.requests[-1].body["messages"]
    settlement = frames[-1].json()["settlement"]

    assert (200, 409) == (response.status, again.status)
    assert ("completed", "First. Second.") == (settlement["outcome"], settlement["text"])
    assert "ran\nran\n" == (tmp_path / "work" / "runs").read_text()
    assert "resumed" in [frame.json()["code"] for frame in frames if frame.event == "notice"]
    assert [1, 2, 3] == [frame.json()["step"] for frame in frames if frame.event == "step.started"]
    assert "it may have run. A person decided that it is not run again. They say: It is stuck.]" in seen[-1]["content"]
    assert [str(n) for n in range(1, len(frames) + 1)] == [frame.id for frame in frames]
    check_openai(seen)


@requirement("crash.no-repeat", "crash.resume", "crash.sigterm")
@pytest.mark.parametrize("end", [Server.kill9, Server.terminate], ids=["a crash", "a deploy"])
async def test_an_answer_that_was_cut_off_is_gone_on_with(up, tmp_path, end):
    """What was shown stays, once, and the model is asked to go on behind it."""
    up.enqueue(calling(("shell", {"command": MARK})), [Headers(), Role(), Delta("Half "), Gate(), Hang()])
    async with serving(up, tmp_path, "continue") as server:
        async with server.client() as client:
            api = Native(client)
            run_id = await api.start(await api.new_session(), "Go", "agent/helper")
            (await api.shown(run_id, "Half ")).close()
        await end(server)
        up.enqueue(answer("an answer."))
        await server.restart()
        async with server.client() as client:
            settlement = await Native(client).settled(run_id)
    seen = up.requests[-1].body["messages"]

    assert ("completed", "Half an answer.") == (settlement["outcome"], settlement["text"])
    assert "ran\n" == (tmp_path / "work" / "runs").read_text()
    assert ["user", "assistant", "tool", "assistant", "user"] == [said["role"] for said in seen]
    assert "Half " == seen[-2]["content"]
