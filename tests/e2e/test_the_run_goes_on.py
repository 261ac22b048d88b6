"""A server that is killed in mid-answer, and the run that goes on from the stream of a model that was not."""

import pytest

from holdfast.upstreams.local.weights import fetch_now
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.programs import missing_for_the_built_in_model
from tests.support.server import Server

MISSING = missing_for_the_built_in_model()

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

CONFIG = """
[[providers]]
name = "local"
dialect = "local"
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder that has the weights already."""
    folder = tmp_path_factory.mktemp("data")
    fetch_now(folder / "models")
    return folder


@requirement("crash.goes-on")
async def test_a_run_whose_server_was_killed_goes_on_where_it_was_without_a_lost_or_repeated_word(data):
    """The model had not stopped talking: what it says while nobody listens belongs to the answer too."""
    params = {"max_tokens": 160, "temperature": 0, "seed": 1}
    async with Server(data, config=CONFIG) as server, server.client() as client:
        api = Native(client)
        session_id = await api.new_session()
        whole = await api.settled(await api.start(session_id, "Tell me a long story.", "local/smollm2", params=params))
        run_id = await api.start(await api.new_session(), "Tell me a long story.", "local/smollm2", params=params)
        reader = await api.events(run_id)
        seen = []
        while sum(frame.event == "text.delta" for frame in seen) < 5:
            seen.append(await reader.next_event())
        await server.kill9(group=False)
        await server.restart()
        seen += await api.replay(run_id, after=int(seen[-1].id))
        settlement = (await api.run(run_id))["settlement"]

        assert [str(seq) for seq in range(1, len(seen) + 1)] == [frame.id for frame in seen]
        assert "resumed" in [frame.json()["code"] for frame in seen if frame.event == "notice"]
        told = "".join(frame.json()["text"] for frame in seen if frame.event == "text.delta")
        assert (whole["outcome"], whole["text"]) == (settlement["outcome"], settlement["text"])
        assert whole["text"] == told
