"""A budget on three nodes: many runs at once, and none of them spends what another one has."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import Store
from holdfast.store.opening import open_store
from tests.requirements import requirement
from tests.support.long import count
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Pause, Role, Upstream
from tests.support.waiting import LONG

NODES = 3
RUNS = count(30, 200)
PIECE = "x" * 40
"""Ten tokens, by the estimate of four characters to a token."""
BUDGET = 100 * RUNS
"""Tokens: half of what the runs would say."""
ANSWER = [Headers(), Role(), Gate(), *[Delta(PIECE), Pause(0.02)] * 20, Finish("stop"), Done()]


@requirement("budget.nodes", "budget.count")
@pytest.mark.timeout(4 * LONG)
async def test_runs_on_three_nodes_overspend_a_budget_by_one_segment_each_at_most(tmp_path: Path):
    """What runs use in all is the budget, and what each has said since it last asked: the last that was saved of it.

    All that was used is counted, and nothing twice: the sum of the settlements is the usage of the day.
    """
    async with Upstream() as up:
        up.models["long"] = ANSWER
        config = f"[budget]\ntokens_per_day = {BUDGET}\n"
        async with Server(tmp_path, [provider(up.base_url, models=("long",))], config=config, nodes=NODES) as server:
            async with server.client() as client:
                api = Native(client)
                runs = await asyncio.gather(*(begun(api) for _ in range(RUNS)))
                up.open()  # all of them have begun: none has used up what another needs for that
                settled = [(run_id, await api.settled(run_id)) for run_id in runs]
                usage = await api.get("/api/usage")
                refused = await api.send(await api.new_session(), "Go", "up/long")
                store = await asyncio.to_thread(open_store, server.environment["HOLDFAST_STORE"])
                try:
                    last = [await last_saved(store, api, run_id) for run_id, _ in settled]
                finally:
                    await store.close()

    used = [each["usage"]["input_tokens"] + each["usage"]["output_tokens"] for _, each in settled]
    outcomes = {(each["outcome"], each.get("by")) for _, each in settled}
    assert {("stopped", "budget")} <= outcomes <= {("stopped", "budget"), ("completed", None)}
    assert 429 == refused.status
    print(f"\n{RUNS} runs, {BUDGET} tokens: used {sum(used)}, saved last {sum(last)}, {len(outcomes)} outcomes")
    assert 0.7 * BUDGET < sum(used) <= BUDGET + sum(last)
    assert (RUNS, sum(used)) == total(usage)


async def begun(api: Native) -> str:
    return await api.start(await api.new_session(), "Go", "up/long")


async def last_saved(store: Store, api: Native, run_id: str) -> int:
    """The tokens of the text that was saved last of a run, and of its prompt: no segment is larger."""
    ends = [0, *[seq for seq, _ in await store.read_times(run_id)]]
    frames = enumerate(await api.replay(run_id), 1)
    texts = {n: frame.json()["text"] for n, frame in frames if frame.event == "text.delta"}
    groups = [sum(len(text) for n, text in texts.items() if a < n <= b) for a, b in pairwise(ends)]
    last = next((size for size in reversed(groups) if size), 0)
    prompt = (await api.run(run_id))["settlement"]["usage"]["input_tokens"]
    return -(-last // 4) + int(prompt)


def total(usage: dict[str, Any]) -> tuple[int, int]:
    rows = usage["usage"]
    return sum(row["runs"] for row in rows), sum(row["input_tokens"] + row["output_tokens"] for row in rows)
