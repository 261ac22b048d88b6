"""A reader on another node follows the log at its owner, over a socket of the nodes' own."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from holdfast.engine.core import Core
from holdfast.errors import RunNotFound
from holdfast.events import Completed, Event, Settled, Stopped
from holdfast.nodes import remote_log
from holdfast.nodes import unstored as unstored_runs
from holdfast.nodes.remote_log import RemoteLog
from holdfast.nodes.unstored import MOST_SEARCHES
from holdfast.peers import Peers, PeerServer
from holdfast.peers.certificates import cluster_contexts
from holdfast.peers.unproven import MOST_UNPROVEN, Unproven
from holdfast.runs.run import Run
from holdfast.store.memory import MemoryStore
from holdfast.store.records import NodeDetails
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import LONG

KEY = "a key that all nodes share"


class CountsReads(MemoryStore):
    """Counts how often a log was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read_log(self, run_id, after, limit=512):
        self.reads += 1
        return await super().read_log(run_id, after, limit)


class Words:
    """A source that says what a test tells it to."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[str | None] = asyncio.Queue()

    async def source(self) -> AsyncIterator[str]:
        while (word := await self.queue.get()) is not None:
            yield word


@asynccontextmanager
async def two_nodes(
    store: MemoryStore, key: str = KEY, unstored: Peers | None = None
) -> AsyncIterator[tuple[Core, Core, PeerServer]]:
    """The owner, which other nodes can reach, and another that follows it, which has this key."""
    port = free_port()
    async with AsyncExitStack() as stack:
        owner = Core(store, node=NodeDetails(address=f"127.0.0.1:{port}"))
        other = Core(store, follow=Peers(key).follow, unstored=unstored or Peers(key))
        for engine in (owner, other):
            await stack.enter_async_context(engine)
        server = PeerServer(owner, KEY, seconds_to_ask=LONG)
        await server.start(socket.create_server(("127.0.0.1", port)))
        stack.push_async_callback(server.close)
        await other.look()
        yield owner, other, server


async def read_all(run: Run, seen: list[tuple[int, Event]]) -> None:
    async for seq, event in run.read():
        seen.append((seq, event))


def is_followed(run: Run) -> bool:
    return isinstance(run.log, RemoteLog) and run.log.is_followed


async def until(is_so: Any) -> None:
    async with asyncio.timeout(LONG):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@requirement("nodes.follow")
async def test_a_reader_on_another_node_follows_the_owner_without_reading_the_store():
    """The store would be read for each word and each reader."""
    store, words = CountsReads(), Words()
    async with two_nodes(store) as (owner, other, _):
        run = await owner.start(words.source(), keep=True)
        seen: list[tuple[int, Event]] = []
        far = await other.open(run.id)
        reading = asyncio.create_task(read_all(far, seen))
        words.queue.put_nowait("one ")
        await until(lambda: len(seen) == 2 and is_followed(far))
        before = store.reads
        for word in ("two ", "three"):
            words.queue.put_nowait(word)
            await until(lambda word=word: getattr(seen[-1][1], "text", "") == word)
        words.queue.put_nowait(None)
        async with asyncio.timeout(LONG):
            await reading

        assert before == store.reads
        assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
        assert [event for _, event in seen] == await store.read_log(run.id, 0)
        assert isinstance(await run.settled(), Completed)


@requirement("nodes.follow")
@pytest.mark.parametrize("how", ["another key", "no server"])
async def test_a_reader_whose_owner_cannot_be_reached_reads_the_store(how):
    """Nodes may be cut off from each other, and a stranger must not follow a log."""
    store, words = MemoryStore(), Words()
    async with two_nodes(store, "wrong" if how == "another key" else KEY) as (owner, other, server):
        if how == "no server":
            await server.close()
        run = await owner.start(words.source(), keep=True)
        seen: list[tuple[int, Event]] = []
        reading = asyncio.create_task(read_all(await other.open(run.id), seen))
        for word in ("one ", "two ", None):
            words.queue.put_nowait(word)
        async with asyncio.timeout(LONG):
            await reading

        assert [event for _, event in seen] == await store.read_log(run.id, 0)


@requirement("nodes.follow")
async def test_a_connection_that_breaks_loses_and_repeats_nothing():
    """The reader goes on from the store, and follows the owner again."""
    store, words = MemoryStore(), Words()
    async with two_nodes(store) as (owner, other, server):
        run = await owner.start(words.source(), keep=True)
        seen: list[tuple[int, Event]] = []
        reading = asyncio.create_task(read_all(await other.open(run.id), seen))
        for number in range(60):
            words.queue.put_nowait(f"{number} ")
            await until(lambda number=number: len(seen) >= number)
            if number % 20 == 10:
                server.cut()
        words.queue.put_nowait(None)
        async with asyncio.timeout(LONG):
            await reading

        assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
        assert [event for _, event in seen] == await store.read_log(run.id, 0)


async def test_a_number_that_is_not_the_next_ends_the_connection():
    """The owner has shown something else than this reader knows: the store decides."""
    store, words = MemoryStore(), Words()

    async def follow(address, run_id, after, *, hold, take):
        await take(after + 5, await run.log.batch(0))

    async with Core(store, node=NodeDetails(address="somewhere:1")) as owner, Core(store, follow=follow) as other:
        run = await owner.start(words.source(), keep=True)
        await other.look()
        seen: list[tuple[int, Event]] = []
        words.queue.put_nowait("one")
        words.queue.put_nowait(None)
        await run.settled()
        far = await other.open(run.id)
        async with asyncio.timeout(LONG):
            await read_all(far, seen)

        assert [event for _, event in seen] == await store.read_log(run.id, 0)


@requirement("nodes.follow")
async def test_an_attached_run_lives_as_long_as_its_client_on_another_node():
    """That client was given the run by another node than the one that it reads it from."""
    store, words = MemoryStore(), Words()
    async with two_nodes(store) as (owner, other, _):
        run = await owner.start(words.source(), keep=True, lifetime="attached")
        far = await other.open(run.id)
        assert not far.take_hold(), "the owner of the run decides"
        seen: list[tuple[int, Event]] = []
        reading = asyncio.create_task(read_all(far, seen))
        words.queue.put_nowait("one ")
        await until(lambda: len(seen) == 2 and is_followed(far))
        assert not run.take_hold()
        reading.cancel()
        async with asyncio.timeout(LONG):
            settlement = await run.settled()

        assert isinstance(settlement, Stopped)
        assert "disconnect" == settlement.by


@requirement("nodes.follow", "gone.attached")
async def test_a_second_reader_on_another_node_may_leave_an_attached_run():
    """Its client reads it from its owner. Who looks over the shoulder of that client may come and go."""
    store, words = MemoryStore(), Words()
    async with two_nodes(store) as (owner, other, _):
        run = await owner.start(words.source(), keep=True, lifetime="attached")
        assert run.take_hold()
        far = await other.open(run.id)
        assert not far.take_hold()
        seen: list[tuple[int, Event]] = []
        reading = asyncio.create_task(read_all(far, seen))
        words.queue.put_nowait("one ")
        await until(lambda: len(seen) == 2 and is_followed(far))
        reading.cancel()
        words.queue.put_nowait("two")
        await until(lambda: run.text == "one two")

        assert "running" == run.status


async def address_of(owner: Core, other: Core) -> tuple[str, int]:
    (node,) = [node for node in await other.store.nodes() if node.id == owner.node_id]
    host, _, port = node.address.rpartition(":")
    return host, int(port)


@requirement("nodes.tls")
async def test_connections_without_the_key_are_few_and_keep_no_node_out():
    """The port shares its file descriptors with HTTP. One more ends the oldest, which has proven nothing."""
    async with two_nodes(MemoryStore()) as (owner, other, _), asyncio.timeout(LONG):
        host, port = await address_of(owner, other)
        silent = [await asyncio.open_connection(host, port) for _ in range(MOST_UNPROVEN)]
        reachable = [await Peers(KEY).has_same_key(f"{host}:{port}", seconds=LONG) for _ in range(3)]
        nothing = await silent[0][0].read()
        silent += [await asyncio.open_connection(host, port) for _ in range(2 * MOST_UNPROVEN)]
        reachable.append(await Peers(KEY).has_same_key(f"{host}:{port}", seconds=LONG))
        for _, writer in silent:
            writer.close()

    assert b"" == nothing
    assert [True] * 4 == reachable


@requirement("nodes.tls")
async def test_a_flood_ends_connections_of_its_own_address_only():
    """Other nodes may be slow to prove themselves, while one address sends more than there is room for."""
    unproven, places = Unproven(), ["node" if number in (0, 5) else "flood" for number in range(MOST_UNPROVEN + 30)]
    limits = [asyncio.timeout(None) for _ in places]
    async with AsyncExitStack() as stack:
        stack.enter_context(suppress(TimeoutError))
        for place, limit in zip(places, limits, strict=True):
            await stack.enter_async_context(limit)
            stack.enter_context(unproven.place(place, limit))
            assert len(unproven) <= MOST_UNPROVEN
        ended = [place for place, limit in zip(places, limits, strict=True) if limit.when() is not None]

    assert ["flood"] * 30 == ended
    assert 0 == len(unproven)


@requirement("nodes.tls")
@pytest.mark.parametrize("who", ["another key", "no certificate", "an own certificate", "no TLS"])
async def test_nobody_without_the_cluster_key_is_answered_and_it_is_logged_once(who, caplog):
    """Not with a certificate of their own either; and a log that anybody can fill hides what matters."""
    words = Words()
    async with two_nodes(MemoryStore()) as (owner, other, _), asyncio.timeout(LONG):
        run = await owner.start(words.source())
        host, port = await address_of(owner, other)
        asked = msgspec.json.encode({"run_id": run.id, "ask": "run"})
        context, told = await asyncio.to_thread(stranger, who), []
        for _ in range(3):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                writer.write(len(asked).to_bytes(4, "big") + asked)
                told.append(await reader.read())
                writer.close()
        same = await Peers(KEY).has_same_key(f"{host}:{port}", seconds=LONG)
        another = await Peers("another key of 20").has_same_key(f"{host}:{port}", seconds=LONG)
        words.queue.put_nowait(None)

    assert b"" == b"".join(told)
    assert (True, False) == (same, another)
    assert 1 == caplog.text.count("another cluster key or none")


def stranger(who: str) -> ssl.SSLContext | None:
    """What someone has who does not know the cluster key, and checks nobody's certificate."""
    if who == "no TLS":
        return None
    if who == "another key":
        return cluster_contexts("another key of 20").client
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if who == "an own certificate":
        context = cluster_contexts.__wrapped__("another key of 20").client
        context.verify_mode = ssl.CERT_NONE
    return context


@requirement("nodes.tls")
async def test_what_nodes_send_each_other_cannot_be_read_on_the_way():
    """Chats of all people pass here."""
    store, words = MemoryStore(), Words()
    async with two_nodes(store) as (owner, other, _), asyncio.timeout(LONG):
        host, port = await address_of(owner, other)
        async with TcpProxy(port) as between:
            run = await owner.start(words.source())
            found = Peers(KEY)
            words.queue.put_nowait("a secret word")
            await until(lambda: "secret" in run.text)
            answer = await found.find(f"{host}:{between.port}", run.id)
        words.queue.put_nowait(None)

    assert answer is not None
    assert "a secret word" == answer.text
    assert between.seen
    assert b"secret" not in between.seen
    assert run.id.encode() not in between.seen


# runs that are not stored


@requirement("nodes.unstored")
async def test_a_run_that_is_not_stored_is_read_through_another_node_and_stopped():
    """Only its own node has it, which is asked: by its log, and for the stop."""
    words = Words()
    async with two_nodes(MemoryStore()) as (owner, other, _):
        run = await owner.start(words.source(), owner="ann")
        words.queue.put_nowait("one ")
        found = await other.open_anywhere(run.id)
        reader = found.read()
        seen = [await anext(reader) for _ in range(2)]
        words.queue.put_nowait("two ")
        seen.append(await anext(reader))
        async with asyncio.timeout(LONG):
            result = await found.stop()
            rest = [event async for event in reader]

    assert "ann" == found.record.owner
    assert [1, 2, 3, 4] == [seq for seq, _ in [*seen, *rest]]
    assert isinstance(result.settlement, Stopped)
    assert ("one two ", "user", True) == (result.settlement.text, result.settlement.by, result.by_this_call)
    assert result.settlement == await run.settled()


@requirement("nodes.unstored")
async def test_a_run_that_is_not_stored_and_has_ended_is_read_through_another_node():
    """For as long as its node remembers it. One that no node has is not found."""
    async with two_nodes(MemoryStore()) as (owner, other, _):
        words = Words()
        run = await owner.start(words.source())
        for word in ("one ", None):
            words.queue.put_nowait(word)
        await run.settled()
        found = await other.open_anywhere(run.id)
        seen = [event async for event in found.read()]
        owner.forget(run.id)
        with pytest.raises(RunNotFound):
            await other.open_anywhere(run.id)

    assert isinstance(await found.settled(), Completed)
    assert [1, 2, 3] == [seq for seq, _ in seen]


@requirement("nodes.unstored")
async def test_the_reader_of_a_run_that_went_with_its_node_is_not_told_of_a_success():
    """Nothing else has its words."""
    async with two_nodes(MemoryStore()) as (owner, other, server):
        words = Words()
        run = await owner.start(words.source())
        words.queue.put_nowait("one ")
        found = await other.open_anywhere(run.id)
        reader = found.read()
        seen = [await anext(reader) for _ in range(2)]
        await server.close()
        async with asyncio.timeout(LONG):
            settled = await found.settled()
            with pytest.raises(RunNotFound):
                await anext(reader)

    assert 2 == len(seen)
    assert "interrupted" == settled.outcome


@requirement("nodes.unstored")
async def test_searches_for_runs_that_no_node_has_are_few_at_once():
    """Any caller can name any id, and each makes all other nodes be asked. They accept few new connections."""
    now = most = 0

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await reader.read()
        now -= 1
        writer.close()

    port, store = free_port(), MemoryStore()
    silent = await asyncio.start_server(stay_silent, "127.0.0.1", port)
    async with (
        Core(store, node=NodeDetails(address=f"127.0.0.1:{port}")),
        Core(store, follow=Peers(KEY).follow, unstored=Peers(KEY)) as other,
    ):
        await other.look()
        searches = (other.open_anywhere(f"run_{number}") for number in range(MOST_SEARCHES + 20))
        found = await asyncio.gather(*searches, return_exceptions=True)
        silent.close()

    assert {RunNotFound} == set(map(type, found))
    assert 0 < most <= MOST_SEARCHES


@requirement("nodes.unstored")
async def test_a_search_for_an_id_that_is_far_too_long_asks_no_other_node(caplog):
    """It was logged there as one with another cluster key, which an operator would take for an attack."""
    async with two_nodes(MemoryStore()) as (_, other, _):
        for length in (150, 5000):
            with pytest.raises(RunNotFound):
                await other.open_anywhere("\x01" * length)

    assert "another cluster key" not in caplog.text


@requirement("nodes.unstored", "nodes.follow")
async def test_a_reader_of_a_run_that_is_not_stored_survives_any_number_of_broken_connections(monkeypatch):
    """Only tries without a sign of the run count: its node has it, and the reader must miss no word of it."""
    monkeypatch.setattr(remote_log, "AGAIN", 0.01)
    store, words = MemoryStore(), Words()
    async with two_nodes(store) as (owner, other, server):
        run = await owner.start(words.source())
        found = await other.open_anywhere(run.id)
        seen: list[tuple[int, Event]] = []
        reading = asyncio.create_task(read_all(found, seen))
        for number in range(8):
            words.queue.put_nowait(f"{number} ")
            await until(lambda number=number: len(seen) == number + 2 or reading.done())
            server.cut()
        words.queue.put_nowait(None)
        async with asyncio.timeout(LONG):
            await reading

    assert isinstance(seen[-1][1], Settled)
    assert [*range(1, 11)] == [seq for seq, _ in seen]


class Forgetful(Peers):
    """Gets no answer the first time it asks for the end of a run."""

    asked = 0

    async def find(self, address, run_id):
        self.asked += 1
        return None if self.asked == 2 else await super().find(address, run_id)


@requirement("nodes.unstored")
async def test_one_question_without_an_answer_does_not_make_a_run_interrupted(monkeypatch):
    """A busy node may be late. An outcome that is told must be the one that the run has."""
    monkeypatch.setattr(unstored_runs, "LOOK_AGAIN", 0.01)
    words = Words()
    async with two_nodes(MemoryStore(), unstored=Forgetful(KEY)) as (owner, other, _):
        run = await owner.start(words.source())
        found = await other.open_anywhere(run.id)
        words.queue.put_nowait("one")
        words.queue.put_nowait(None)
        async with asyncio.timeout(LONG):
            settled = await found.settled()

    assert isinstance(settled, Completed)
    assert "one" == settled.text
