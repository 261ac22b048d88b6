"""What several processes of one server share: the board, the boxes, and the rule that says whose a request is."""

import asyncio
import os
import resource
import socket
import subprocess
import sys

import pytest

from holdfast.ids import mark_of, marked, new_id
from holdfast.server.configured import Configured, SavedFile
from holdfast.server.settings import ProviderSettings, Settings, SettingsError, processes_of
from tests.requirements import requirement

if sys.platform != "linux":
    pytest.skip("several workers need Linux", allow_module_level=True)

from holdfast.server import board as boards
from holdfast.server.board import Board, new_board
from holdfast.server.boxes import Handed, Inbox, Outbox, new_boxes
from holdfast.server.crew import Orders
from holdfast.server.whose import LONGEST_BODY, OWNER, Head, Whose

RUN = "run_00d1wk94abpv73eab1d9shgcccx92wqpr9nm"  # the same in all processes that run these tests
OF_WORKER = marked(RUN, 1)


@pytest.fixture
def both():
    """The board as two processes see it."""
    file = new_board()
    owner, worker = Board(file, 0, 2), Board(file, 1, 2)
    owner.come_up()
    yield owner, worker
    os.close(file)


# Ids.


def test_an_id_tells_its_process_and_that_of_the_owner_is_as_ever():
    """What was stored before there were workers has no mark, and is the owner's."""
    assert RUN == marked(RUN, 0)
    assert len(RUN) == len(new_id("run"))
    assert [0, 1, 31] == [mark_of(marked(RUN, process).removeprefix("run_")) for process in (0, 1, 31)]
    assert [0, 0, 0] == [mark_of(text) for text in ("", OF_WORKER[4:] + "1", OF_WORKER[4:-1] + "u")]


def test_ids_are_made_where_a_process_cannot_be_copied():
    """On Windows there is no fork, and nothing to forget after one."""
    script = "import os; del os.fork, os.register_at_fork; from holdfast.ids import new_id; print(len(new_id('run')))"

    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)

    assert (str(len(RUN)), "") == (made.stdout.strip(), made.stderr)


# The board.


@requirement("workers.limits")
def test_runs_are_counted_over_all_processes_and_by_their_owner(both):
    """Limits are the server's, not those of a process."""
    owner, worker = both
    owner.count("ann", 2)
    worker.count("ann", 1)
    worker.count("bob", 4)

    assert [(5, 1), (5, 4), (5, 0)] == [owner.elsewhere(name) for name in ("ann", "bob", "eve")]
    assert [(2, 2), (2, 0)] == [worker.elsewhere(name) for name in ("ann", "bob")]
    worker.count("bob", -4)
    assert (1, 0) == owner.elsewhere("bob")
    assert 3 == owner.runs


@requirement("workers.limits")
def test_what_a_dead_process_had_counts_no_more(both):
    """The next one in its place begins with nothing, and is found again by those who knew where to look."""
    owner, worker = both
    worker.come_up()
    worker.connect(3)
    worker.count("ann", 5)
    known = owner.elsewhere("ann")
    owner.clear(1)

    assert (5, 5) == known
    assert ((0, 0), 0, False) == (owner.elsewhere("ann"), owner.load(1), owner.is_there(1))
    Board.count(worker, "bob", 1)
    assert [(1, 0), (1, 1)] == [owner.elsewhere("ann"), owner.elsewhere("bob")]


@requirement("workers.limits")
def test_more_owners_than_there_are_places_are_counted_together(both, monkeypatch):
    """A limit may then come early for them; it is never exceeded."""
    monkeypatch.setattr(boards, "OWNERS", 3)
    owner, worker = both
    for name in ("ann", "bob", "carl", "dora"):
        worker.count(name, 1)

    assert [(4, 1), (4, 1), (4, 2), (4, 2)] == [owner.elsewhere(name) for name in ("ann", "bob", "carl", "dora")]


def test_a_connection_on_its_way_weighs_as_if_it_had_arrived(both):
    """Or a burst would all go to the process that had the least to do before it."""
    owner, worker = both
    owner.connect(4)
    owner.send(1)
    owner.send(1)
    worker.get(1)
    worker.connect(1)

    assert (4, 2) == (owner.load(0), owner.load(1))


# Whose a request is.


def whose(board: Board, tmp_path, **more) -> Whose:
    upstreams = (
        ProviderSettings("up", base_url="http://127.0.0.1:9/v1", models=("m", "frail")),
        ProviderSettings("few", base_url="http://127.0.0.1:9/v1", models=("f",), max_runs=2),
    )
    settings = Settings(providers=upstreams, fallbacks={"up/frail": "up/m"}, data=str(tmp_path), **more)
    return Whose(board, settings, Configured(settings, {}, {}, SavedFile(tmp_path)), has_agents=False)


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "host: x", *headers, ""]).encode()


ASKS = "POST /v1/chat/completions"


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (head(ASKS, "Content-Length: 12"), Head(None, 12)),
        (head("POST /v1/messages", "content-length:12"), Head(None, 12)),
        (head(ASKS, f"content-length: {LONGEST_BODY + 1}"), Head(OWNER, LONGEST_BODY + 1)),
        (head(ASKS, "content-length: 12", "Idempotency-Key: once"), Head(OWNER, 12)),
        (head(ASKS, "content-length: 12", "X-SESSION-ID:s"), Head(OWNER, 12)),
        (head(ASKS, "content-length: 12", "x-conversation-id: c"), Head(OWNER, 12)),
        (head(ASKS, "content-length: 12", "expect: 100-continue"), Head(OWNER, 12)),
        (head(ASKS, "transfer-encoding: chunked"), Head(OWNER, None)),
        (head(ASKS, "content-length: twelve"), Head(OWNER, None)),
        (head(f"{ASKS}?a=b", "content-length: 12"), Head(OWNER, 12)),
        (head("POST /v1/responses", "content-length: 12"), Head(OWNER, 12)),
        (head("GET /"), Head(OWNER, 0)),
        (head(f"GET /api/runs/{RUN}"), Head(OWNER, 0)),
        (head(f"GET /api/runs/{OF_WORKER}"), Head(1, 0)),
        (head(f"GET /api/runs/{OF_WORKER}/events?after=2"), Head(1, 0)),
        (head(f"POST /api/runs/{OF_WORKER}/stop"), Head(1, 0)),
        (head(f"GET /v1/chat/completions/chatcmpl-{OF_WORKER[4:]}?stream=true"), Head(1, 0)),
        (head(f"GET /v1/messages/msg_{OF_WORKER}"), Head(1, 0)),
        (b"\r\n" + head(f"GET /api/runs/{OF_WORKER}"), Head(1, 0)),
        (head(f"GET /api/runs/{marked(RUN, 7)}"), Head(OWNER, 0)),
        (head(f"GET /api/sessions?query=/{OF_WORKER}/"), Head(OWNER, 0)),
        (b"nonsense", Head(OWNER, 0)),
    ],
)
def test_a_head_tells_whose_a_request_is(both, tmp_path, sent, told):
    """What is not known to be otherwise is the owner's."""
    both[1].come_up()

    assert told == whose(both[0], tmp_path).head(sent)


def test_a_run_of_a_worker_that_is_gone_is_looked_for_by_the_owner(both, tmp_path):
    """Who says that there is none: nobody waits for a process that may not come back."""
    assert Head(OWNER, 0) == whose(both[0], tmp_path).head(head(f"GET /api/runs/{OF_WORKER}"))


@pytest.mark.parametrize(
    ("body", "is_anyones"),
    [
        (b'{"model": "up/m", "messages": [], "stream": true}', True),
        (b'{"model": "m", "background": false, "session_id": null}', True),
        (b'{"model": "up/m", "session_id": "s"}', False),
        (b'{"model": "up/m", "background": true}', False),
        (b'{"model": "up/m", "background": "yes"}', False),
        (b'{"model": "up/m", "background": false, "background": true}', False),
        (b'{"messages": []}', False),
        (b'{"model": "up/unknown"}', False),
        (b'{"model": "up/frail"}', False),
        (b'{"model": "frail"}', False),
        (b'{"model": "few/f"}', False),
        (b'{"model": "agent/mine"}', False),
        (b'{"model": 1}', False),
        (b'["model"]', False),
        (b"{", False),
        (b"\xff", False),
        (b'{"model": "up/m", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", False),
    ],
)
async def test_a_body_tells_whether_a_request_is_anyones(both, tmp_path, body, is_anyones):
    """Only what leaves nothing behind, and is counted by nobody but the limits of all."""
    assert is_anyones == whose(both[0], tmp_path).is_anyones(body)


async def test_near_the_limit_and_where_starts_are_counted_only_the_owner_starts_runs(both, tmp_path):
    """One process can count exactly."""
    asked = b'{"model": "up/m"}'
    small, counting = whose(both[0], tmp_path, max_runs=20), whose(both[0], tmp_path, starts_per_minute=5)
    both[1].count("ann", 4)
    before = small.is_anyones(asked)
    both[1].count("ann", 1)

    assert (True, False) == (before, small.is_anyones(asked))
    assert Head(OWNER, 12) == counting.head(head(ASKS, "content-length: 12"))


async def test_a_process_that_ends_and_a_server_that_does_start_nothing(both, tmp_path):
    """A worker that was asked to end leaves new runs to the owner; where all of them end, the owner refuses them."""
    asked = b'{"model": "up/m"}'
    owner, worker = (whose(board, tmp_path) for board in both)
    before = worker.is_anyones(asked)
    both[1].come_up()
    up = worker.is_anyones(asked)
    both[1].go_down()
    down = worker.is_anyones(asked)
    both[0].begin_to_end()

    assert (False, True, False) == (before, up, down)
    assert not owner.is_anyones(asked)


# The boxes.


@requirement("workers.hand-over")
@pytest.mark.parametrize("size", [10, 300_000])
async def test_connections_arrive_in_order_with_what_was_read_though_there_is_no_room(both, size):
    """A burst is larger than what the kernel takes at once, and none of it is lost."""
    (box,) = new_boxes(1)
    arrived, all_there = [], asyncio.Event()

    def welcome(handed: Handed) -> None:
        arrived.append(handed)
        if len(arrived) == len(pairs):
            all_there.set()

    out, pairs = Outbox(box.put), [socket.socketpair() for _ in range(400)]
    for number, (ours, theirs) in enumerate(pairs):
        out.send(theirs.fileno(), b"%d " % number + b"x" * size, was_dealt=number % 2 == 0)
        theirs.close()
        ours.sendall(b"more")
    waited = not out.is_empty.is_set()
    inbox = Inbox(box.take, both[0], 0, welcome)
    async with asyncio.timeout(30):
        await out.is_empty.wait()  # before a process that has sent them may end
        await all_there.wait()
    inbox.close()

    assert waited

    assert [b"%d " % number + b"x" * size for number in range(len(pairs))] == [handed.read for handed in arrived]
    assert [True, False] == [handed.was_dealt for handed in arrived[:2]]
    assert {b"more"} == {handed.connection.recv(9) for handed in arrived}
    for handed, (ours, _) in zip(arrived, pairs, strict=True):
        handed.connection.close()
        ours.close()
    for end in box:
        end.close()


@requirement("workers.hand-over")
@pytest.mark.parametrize("size", [10, 300_000])
async def test_a_connection_that_finds_no_room_among_the_open_files_is_closed(both, size, caplog):
    """Its client sees that, instead of waiting for a request that was lost on the way."""
    (box,) = new_boxes(1)
    ours, theirs = socket.socketpair()
    Outbox(box.put).send(theirs.fileno(), b"x" * size, was_dealt=False)
    theirs.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = os.dup(0)
    os.close(least)
    resource.setrlimit(resource.RLIMIT_NOFILE, (least + (size > 1000), hard))  # none is free, or one of the two
    try:
        inbox = Inbox(box.take, both[0], 0, lambda handed: pytest.fail("half of it is nothing"))
        inbox._receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    inbox.close()

    assert b"" == ours.recv(9)
    assert "too many files are open" in caplog.text
    for end in (ours, *box):
        end.close()


# Settings.


def test_a_worker_is_told_all_settings_as_they_are():
    """Numbers without end too, and keys of any letters: one that it cannot read would keep it from starting."""
    settings = Settings(
        deadline=float("inf"), idle_limit=float("-inf"), api_key='é\n"\u2028', providers=(ProviderSettings("up"),)
    )
    orders = Orders(settings, {"deadline": "flag"}, True, 1, 2, 3, 4, [5, 6], 7)

    assert orders == Orders.of(orders.line())
    assert orders.line().index(b"\n") == len(orders.line()) - 1


def test_workers_are_as_many_as_wanted_or_as_there_are_cores(monkeypatch):
    """Where it cannot be, that is said before anything starts."""
    wanted = [processes_of(Settings(workers=number)) for number in (1, 3, 0)]
    monkeypatch.setattr(sys, "platform", "win32")

    assert [1, 3, len(os.sched_getaffinity(0))] == wanted
    assert [1, 1] == [processes_of(Settings(workers=number)) for number in (0, 1)]
    with pytest.raises(SettingsError, match="needs Linux"):
        processes_of(Settings(workers=2))
