"""An agent that is stopped: its model, its tools and all their processes end, and its history stays valid."""

import asyncio
import json
import random
import sys
import time
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.agents import check_anthropic, check_openai, living, serving
from tests.support.long import count
from tests.support.upstream import Delta, Done, Finish, Headers, Pause, Role, ToolDelta, Upstream, answer, calling
from tests.support.waiting import LONG, SOON

STUBBORN = """
trap '' TERM
setsid sh -c "trap '' TERM; echo $$ >> pids; while true; do sleep 0.1; done" &
(setsid sleep 300 &)
echo ready
while true; do sleep 0.1; done
"""


@pytest.fixture
async def up():
    async with Upstream() as upstream:
        yield upstream


async def gone(folder: Path, within: float = SOON) -> float:
    """Wait until no process is left; how long it took."""
    began = time.monotonic()
    while left := await asyncio.to_thread(living, folder):
        assert time.monotonic() - began < within, left
        await asyncio.sleep(0.05)
    return time.monotonic() - began


@requirement("stop.tools", "hist.no-orphan-tools", "stop.receipt")
async def test_a_stop_ends_processes_that_do_not_want_to_and_reports_them(up, tmp_path):
    """Also those that left their group and ignore the first signal; what refused is in the receipt, by its name."""
    folder = tmp_path / "work"
    async with serving(up, tmp_path, tools=("shell",), folder=str(folder), approvals={"shell": "allow"}) as world:
        up.enqueue(calling(("shell", {"command": STUBBORN}), text="Let me see. "))
        session_id, run_id = await world.start()
        await world.until(run_id, "tool.progress")
        before = await asyncio.to_thread(living, folder)
        stopped = await world.api.stop(run_id)
        await gone(folder)
        shown = await world.next_turn(session_id)
    settlement = stopped["settlement"]

    assert len(before) >= 3
    assert ("stopped", "user", "Let me see. ") == tuple(settlement[name] for name in ("outcome", "by", "text"))
    assert settlement["receipt"]["upstream_closed_at"] is not None
    assert any("ignored the stop and was killed" in words for words in settlement["receipt"]["refused"])
    assert "ready\n[The run was stopped before this call finished. It may have run.]" == shown[2]["content"]
    check_openai(shown)
    check_anthropic(shown)


@requirement("gone.same-for-agents", "stop.tools", "gone.attached")
async def test_leaving_an_attached_agent_does_the_same(up, tmp_path):
    """The client of a plain chat completion leaves: tools and processes end with it."""
    folder = tmp_path / "work"
    async with serving(up, tmp_path, tools=("shell",), folder=str(folder), approvals={"shell": "allow"}) as world:
        up.enqueue(calling(("shell", {"command": STUBBORN})))
        asked = {"model": "agent/helper", "stream": True, "messages": [{"role": "user", "content": "Go"}]}
        asking = asyncio.create_task(
            world.api.client.post("/v1/chat/completions", asked, headers={"X-Session-Id": "s"})
        )
        async with asyncio.timeout(LONG):
            while not await asyncio.to_thread(living, folder):  # noqa: ASYNC110 - it is another process that is waited for
                await asyncio.sleep(0.02)
        response = await asking
        response.leave()
        await gone(folder)
        (run,) = (await world.api.get("/api/runs"))["runs"]
        settlement = await world.api.settled(run["id"])

    assert ("stopped", "disconnect") == (settlement["outcome"], settlement["by"])


@requirement("gone.same-for-agents", "gone.detached")
async def test_a_detached_agent_goes_on_when_its_reader_leaves(up, tmp_path):
    """The same rules as for a chat."""
    async with serving(up, tmp_path) as world:
        up.enqueue(calling(("wait", {})), answer("Done."))
        _, run_id = await world.start()
        reader = await world.api.events(run_id)
        await world.state.begun.wait()
        reader.leave()
        world.state.go_on.set()
        settlement = await world.api.settled(run_id)

    assert ("completed", "Done.") == (settlement["outcome"], settlement["text"])


@requirement("stop.tools")
@pytest.mark.parametrize(
    ("name", "told"),
    [("stubborn", "stubborn ignored the stop"), ("blocking", "blocking runs in a thread, which cannot be stopped")],
)
async def test_what_cannot_be_ended_is_reported_and_does_not_hold_the_stop(up, tmp_path, name, told):
    """The run settles all the same, and says what goes on without it."""
    async with serving(up, tmp_path) as world:
        up.enqueue(calling((name, {})))
        _, run_id = await world.start()
        await world.state.begun.wait()
        began = time.monotonic()
        stopped = await world.api.stop(run_id)
        took = time.monotonic() - began

    assert took < SOON
    assert told in stopped["settlement"]["receipt"]["refused"][0]


async def test_what_a_command_leaves_in_the_background_ends_with_its_call(up, tmp_path):
    """A call that is over has nothing going on: otherwise nobody could ever stop it."""
    folder = tmp_path / "work"
    async with serving(up, tmp_path, tools=("shell",), folder=str(folder), approvals={"shell": "allow"}) as world:
        up.enqueue(calling(("shell", {"command": "setsid sleep 300 & echo started"})), answer("Done."))
        _, run_id = await world.start()
        settlement = await world.api.settled(run_id)
        left = await asyncio.to_thread(living, folder)

    assert "completed" == settlement["outcome"]
    assert [] == left


@requirement("stop.tools")
async def test_a_server_that_ends_ends_the_processes_of_its_agents(up, tmp_path):
    """A command must not outlive the server that could have stopped it."""
    folder = tmp_path / "work"
    shell = {"tools": ("shell",), "folder": str(folder), "approvals": {"shell": "allow"}}
    async with serving(up, tmp_path, settings={"drain": 0.1}, **shell) as world:
        up.enqueue(calling(("shell", {"command": STUBBORN})))
        _, run_id = await world.start()
        await world.until(run_id, "tool.progress")
    await gone(folder)


HIDING = "env -i setsid --fork sleep 300 </dev/null >/dev/null 2>&1"
"""A process without the environment, the session and the parent that it was born with."""


async def hides(folder: Path) -> None:
    """Wait until the process is what it is to be: its parent does not."""
    async with asyncio.timeout(LONG):
        while not any("sleep\x00300" in process for process in await asyncio.to_thread(living, folder)):
            pass


@requirement("stop.tools")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only a process group is ended")
@pytest.mark.parametrize("is_stopped", [True, False], ids=["at a stop", "when its command has ended"])
async def test_a_process_that_hides_from_its_call_ends_with_it(up, tmp_path, is_stopped):
    """It stays below the guardian of its command, whatever it throws away."""
    folder = tmp_path / "work"
    command = f"{HIDING}; echo ready{'; sleep 60' if is_stopped else ''}"
    async with serving(up, tmp_path, tools=("shell",), folder=str(folder), approvals={"shell": "allow"}) as world:
        up.enqueue(calling(("shell", {"command": command})), answer("Done."))
        _, run_id = await world.start()
        await world.until(run_id, "tool.progress")
        if is_stopped:
            await hides(folder)
            await world.api.stop(run_id)
        settlement = await world.api.settled(run_id)
        left = await asyncio.to_thread(living, folder)

    assert [] == left
    assert ("stopped" if is_stopped else "completed") == settlement["outcome"]


@requirement("stop.tools")
async def test_processes_that_hide_end_with_their_own_call_only(up, tmp_path):
    """Two calls side by side: the stop of one leaves what the other has started alone."""
    folders = [tmp_path / "one", tmp_path / "two"]
    shell = {"tools": ("shell",), "folder": str(tmp_path), "approvals": {"shell": "allow"}}
    async with serving(up, tmp_path, **shell) as world:
        runs = []
        for folder in folders:
            folder.mkdir()
            up.enqueue(calling(("shell", {"command": f"cd {folder.name}; {HIDING}; echo ready; sleep 60"})))
            _, run_id = await world.start()
            await world.until(run_id, "tool.progress")
            runs.append(run_id)
        await world.api.stop(runs[0])
        left = [len(await asyncio.to_thread(living, folder)) for folder in folders]
        await world.api.stop(runs[1])
        at_last = [len(await asyncio.to_thread(living, folder)) for folder in folders]

    assert 0 == left[0]
    assert left[1] >= 2
    assert [0, 0] == at_last


# At any moment.


FORKING = "(setsid sleep 300 &) ; sh -c 'sleep 300' & echo on; sleep 0.2; echo off"


def three_steps(request):
    """Two steps with a tool, then an answer; what was asked tells which step it is."""
    since = [said["role"] for said in request.body["messages"]]
    step = since[::-1].index("user")
    if step >= 4:
        return [Headers(), Role(), Delta("All "), Pause(0.1), Delta("done."), Finish(), Done()]
    call = ToolDelta(id=f"c{step}", name="shell", arguments=json.dumps({"command": FORKING}))
    return [Headers(), Role(), Delta("Step. "), Pause(0.1), call, Finish("tool_calls"), Done()]


@requirement("stop.tools", "hist.no-orphan-tools", "stop.partial-once")
async def test_stops_at_random_moments_leave_no_process_and_a_valid_history(up, tmp_path):
    """Whenever it comes: one settlement, nothing alive after 5 s, and messages that strict providers accept."""
    folder, rest, stops = tmp_path / "work", random.Random(6), count(60, 200)
    shell = {"tools": ("shell",), "folder": str(folder), "approvals": {"shell": "allow"}}
    async with serving(up, tmp_path, **shell) as world:
        up.models["m"] = three_steps
        places = asyncio.Semaphore(25)

        async def one() -> tuple[str, list]:
            async with places:
                session_id, run_id = await world.start()
                await asyncio.sleep(rest.uniform(0, 1.2))
                stopped = await world.api.stop(run_id)
                frames = await world.api.replay(run_id)
                assert 1 == sum(frame.event == "run.settled" for frame in frames)
                said = await world.api.transcript(session_id)
                text = stopped["settlement"]["text"]
                assert said[1:] in ([], [("partial", text)], [("assistant", text)])
                return stopped["settlement"]["outcome"], await world.next_turn(session_id)

        ended = await asyncio.gather(*(one() for _ in range(stops)))
        await gone(folder)

    outcomes = [outcome for outcome, _ in ended]
    assert {"stopped"} <= set(outcomes) <= {"stopped", "completed"}
    for _, shown in ended:
        check_openai(shown)
        check_anthropic(shown)


async def test_fifty_agents_side_by_side_do_not_hold_the_loop(up, tmp_path):
    """Processes, scans and saves happen elsewhere: nobody else waits more than a moment.

    It is the loop's own work that is judged: on a busy machine the clock says more of the others.
    """
    folder = tmp_path / "work"
    shell = {"tools": ("shell",), "folder": str(folder), "approvals": {"shell": "allow"}}
    async with serving(up, tmp_path, **shell) as world:
        up.models["m"] = three_steps
        stalls: list[float] = []
        watching = asyncio.create_task(_watch(stalls))
        runs = [await world.start() for _ in range(50)]
        settlements = await asyncio.gather(*(world.api.settled(run_id) for _, run_id in runs))
        watching.cancel()

    assert {"completed"} == {settlement["outcome"] for settlement in settlements}
    assert max(stalls) < 0.2


async def _watch(stalls: list[float]) -> None:
    while True:
        began = time.thread_time()
        await asyncio.sleep(0)
        stalls.append(time.thread_time() - began)
        await asyncio.sleep(0.002)
