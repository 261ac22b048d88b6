"""Schedules and triggers on the command line: added, listed, tried, paused, run, removed, completed."""

import json

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, here
from tests.e2e.test_cli_tables import completed
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

YEARLY = ("--cron", "0 9 24 12 *", "--zone", "Europe/Berlin")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    async with Upstream() as up:
        async with Server(tmp_path_factory.mktemp("schedules"), [provider(up.base_url, models=None)]) as server:
            yield server


@pytest_asyncio.fixture(loop_scope="module")
async def shell(server, tmp_path):
    yield Shell(tmp_path, here(server))
    async with server.client() as client:
        for kind in ("schedules", "triggers"):
            for each in (await Native(client).get(f"/api/{kind}"))[kind]:
                await client.request("DELETE", f"/api/{kind}/{each['id']}")


async def done(shell: Shell, *args: str, stdin: str = "") -> str:
    """The output of a command that succeeds."""
    ended = await shell(*args, stdin=stdin)
    assert 0 == ended.code, ended.err
    return ended.out


@requirement("cli.schedules")
async def test_a_schedule_is_added_listed_run_paused_and_removed(shell, server):
    """A script that sets up a server does without the page, and sees there what became of each time."""
    added = await done(shell, "schedules", "add", "News", "What is new?", *YEARLY, "-m", "up/echo:much")
    assert (True, True) == (added.startswith("News: next "), added.endswith("-12-24T09:00:00+01:00\n"))
    await done(shell, "schedules", "add", "Often", "--every", "2h", "--missed", "skip", "--paused", stdin="Look.\n")
    rows = [line.split("\t") for line in (await done(shell, "schedules", "ls")).splitlines()[1:]]
    assert [["Often", "paused"], ["News", added.split()[-1]]] == [row[1:3] for row in rows]
    assert ["every 2h", "0 9 24 12 * Europe/Berlin"] == [row[4] for row in rows]
    often = json.loads(await done(shell, "schedules", "show", "often"))
    assert ("Look.", "skip", {"kind": "every", "seconds": 7200}) == tuple(
        often[n] for n in ("prompt", "missed", "when")
    )
    run = (await done(shell, "schedules", "run", "News")).strip()
    async with server.client() as client:
        await Native(client).settled(run)
    [one] = [line.split("\t") for line in (await done(shell, "schedules", "history", "News")).splitlines()[1:]]
    assert ["asked", "completed", run] == one[1:4]
    assert "News: paused\n" == await done(shell, "schedules", "pause", "News")
    assert f"News: next {added.split()[-1]}\n" == await done(shell, "schedules", "resume", rows[1][0])
    assert ["News"] == await completed(shell, "holdfast schedules rm Ne")
    assert "Removed News.\nRemoved Often.\n" == await done(shell, "schedules", "rm", "News", "often")
    assert 1 == len((await done(shell, "schedules", "ls")).splitlines())


@requirement("cli.schedules")
async def test_times_are_tried_before_they_are_saved_and_what_is_wrong_is_said_in_a_line(shell):
    """Whoever writes an expression sees what it means; a mistake adds nothing."""
    await done(shell, "schedules", "add", "Twice", "Hi", *YEARLY)
    await done(shell, "schedules", "add", "twice", "Hi", *YEARLY)
    times = [line.split("\t")[0] for line in (await done(shell, "schedules", "next", *YEARLY)).splitlines()[1:]]
    assert ["12-24T09:00:00+01:00"] * 5 == [each[5:] for each in times]
    wrong = {
        ("next", "--cron", "0 25 * * *"): "'25' is wrong for the hour",
        ("next", "--cron", "* * * * *", "--every", "2h"): "Say when",
        ("next", "--every", "soon"): "90s, 15m, 2h or 1d",
        ("next", "--at", "2020-01-01", "--zone", "Mars/Base"): "no time zone 'Mars/Base'",
        ("add", "B", "Hi"): "Say when",
        ("add", "B", *YEARLY): "No prompt given",
        ("add", "B", "Hi", "--every", "0"): "when.seconds",
        ("add", "B", "Hi", *YEARLY, "-s", "ses_none"): "ses_none",
        ("pause", "nobody"): "holdfast schedules ls",
        ("rm", "Twice"): "Give the id",
    }
    for args, word in wrong.items():
        ended = await shell("schedules", *args)
        assert (True, True) == (ended.code in (1, 2), word in ended.err), (args, ended)
    assert ["Twice", "twice"] == sorted(
        each["name"] for each in json.loads(await done(shell, "schedules", "ls", "--json"))
    )


@requirement("cli.schedules")
async def test_a_trigger_prints_its_address_once_and_is_rotated_and_paused(shell, server):
    """The address goes to a script, alone; lists never have it."""
    ended = await shell("triggers", "add", "Issues", "Sort {{body}}", "-m", "up/echo:much")
    path = ended.out.strip()
    assert (0, True) == (ended.code, "shown once" in ended.err)
    async with server.client() as client:
        called = await (await client.request("POST", path, body=b"this")).json()
        await Native(client).settled(called["run_id"])
        shown = json.loads(await done(shell, "triggers", "show", "issues"))
        assert [called["run_id"]] == [call["run_id"] for call in shown["calls"]]
        other = (await done(shell, "triggers", "rotate", "Issues")).strip()
        assert 404 == (await client.request("POST", path, body=b"this")).status
        assert "Paused Issues.\n" == await done(shell, "triggers", "pause", "Issues")
        assert 409 == (await client.request("POST", other, body=b"this")).status
        [row] = [line.split("\t") for line in (await done(shell, "triggers", "ls")).splitlines()[1:]]
        assert ["paused", "up/echo:much", "Sort {{body}}"] == row[3:]
        assert "Resumed Issues.\n" == await done(shell, "triggers", "resume", "Issues")
        assert 202 == (await client.request("POST", other, body=b"this")).status
    signed = (await done(shell, "triggers", "add", "Hooks", "{{body}}", "--signed")).splitlines()
    assert (True, True) == (signed[0].endswith("/call"), signed[1].startswith("whsec_"))
    listed = await done(shell, "triggers", "ls", "--json")
    assert [] == [each for each in (other.rpartition("/")[2], signed[1]) if each in listed]
    assert "Removed Issues.\n" == await done(shell, "triggers", "rm", "Issues")
