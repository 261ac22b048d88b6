"""The client of the command line: a run is followed over lost connections."""

from contextlib import closing

import pytest

from holdfast.cli.client import Api, CallFailed
from holdfast.http_client.client import Client
from tests.support.upstream import Cut, Headers, Pause, Raw, Upstream

EVENTS = "/api/runs/run_1/events"
STARTED = Raw(b'data: {"type": "run.started", "seq": 1}\n\n')
SETTLED = Raw(b'data: {"type": "run.settled", "seq": 2}\n\n')


async def test_a_run_that_was_silent_is_followed_on_when_the_connection_is_lost():
    """A model thinks for minutes. Its silence counted as time in which the server could not be reached."""
    scripts = iter([[Headers(), STARTED, Pause(0.3), Cut()], [Headers(), SETTLED]])
    async with Upstream() as up:
        up.at[f"GET {EVENTS}"] = lambda request: next(scripts)
        with closing(Client(f"http://127.0.0.1:{up.port}")) as http:
            seen = [event["type"] async for event in Api(http).events("run_1", patience=0.1)]

    assert ["run.started", "run.settled"] == seen
    assert [f"{EVENTS}?after=0", f"{EVENTS}?after=1"] == [request.path for request in up.others]


async def test_a_server_that_does_not_come_back_is_given_up():
    """The command says so and ends."""
    async with Upstream() as up:
        up.at[f"GET {EVENTS}"] = [Headers(), STARTED, Cut()]
        with closing(Client(f"http://127.0.0.1:{up.port}")) as http:
            events = Api(http).events("run_1", patience=0.1)
            await anext(events)
            up.refuse()
            with pytest.raises(CallFailed, match="could not reconnect"):
                await anext(events)
