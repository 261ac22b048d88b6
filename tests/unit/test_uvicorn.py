"""What http_protocol.py and uvicorn_server.py, in server/kit/http, take from uvicorn. An upgrade that changes any of it
fails here, by name.
"""

import ast
import asyncio
import contextlib
import inspect
import signal
import socket
from functools import partial
from importlib.metadata import version
from typing import Any

import httptools
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from holdfast.server.kit.http import http_protocol, uvicorn_server
from holdfast.server.kit.http.connections import OpenConnections
from holdfast.server.kit.http.http_protocol import Protocol, ShortConnection, protocols_of
from holdfast.server.kit.http.uvicorn_server import Server, SideServer
from tests.support.framing import Wire
from tests.support.waiting import LONG
from tests.unit.test_layers import imports

OF_THE_PROTOCOL = {
    *("access_log", "access_logger", "client", "cycle", "expect_100_continue", "flow", "headers", "loop", "parser"),
    *(
        "pipeline",
        "scope",
        "server_state",
        "timeout_keep_alive_task",
        "transport",
        "url",
        "_unset_keepalive_if_required",
    ),
}
OF_A_CYCLE = {
    *(
        "__class__",
        "access_log",
        "body",
        "chunked_encoding",
        "default_headers",
        "disconnected",
        "keep_alive",
        "message_event",
        "more_body",
    ),
    *("on_response", "receive", "response_complete", "response_started", "scope", "send", "waiting_for_100_continue"),
}
OVERRIDDEN = {
    *("__init__", "connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"),
    *("on_message_begin", "on_headers_complete", "on_body", "on_message_complete", "on_response_complete"),
}
OF_THE_SERVER = {"config", "servers", "should_exit", "started"}
OVERRIDDEN_OF_THE_SERVER = {"__init__", "capture_signals", "handle_exit", "shutdown", "startup"}
REQUEST = b"POST /a?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


NO_OVERRIDES = {"__module__", "__doc__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__"}
"""What every class has of its own."""


class Plain:
    """A connection of uvicorn's own, to an app that waits to be told what to do."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.state = ServerState()
        self.calls: list[tuple[Any, Any, Any]] = []
        config = uvicorn.Config(self._app, lifespan="off", log_config=None, interface="asgi3", proxy_headers=False)
        loop = asyncio.get_running_loop()
        self.protocol = HttpToolsProtocol(config=config, server_state=self.state, app_state={}, _loop=loop)
        self.protocol.connection_made(self.wire)
        self._ends = asyncio.Event()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls.append((scope, receive, send))
        await self._ends.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    async def receive(self, data: bytes) -> RequestResponseCycle:
        self.protocol.data_received(data)
        await asyncio.sleep(0)
        return self.protocol.cycle

    async def end(self) -> None:
        self._ends.set()
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)
        self.protocol.connection_lost(None)


@pytest.fixture
async def plain():
    plain = Plain()
    yield plain
    await plain.end()


def test_the_version_is_the_one_that_was_read():
    """pyproject.toml allows no other. Whoever raises it reads httptools_impl.py, then this file."""
    assert version("uvicorn").startswith("0.54.")


@pytest.mark.parametrize("name", sorted(OF_THE_PROTOCOL))
async def test_the_protocol_has(plain, name):
    """An attribute that is gone would fail in the middle of a request."""
    await plain.receive(REQUEST)

    assert hasattr(plain.protocol, name)


@pytest.mark.parametrize("name", sorted(OF_A_CYCLE))
async def test_a_cycle_has(plain, name):
    """One that is set by us and read by nobody would change nothing, in silence."""
    assert hasattr(await plain.receive(REQUEST), name)


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_the_protocol_calls_what_we_override(name):
    """An override that nobody calls is dead, and its limit with it."""
    ours, theirs = getattr(Protocol, name), getattr(HttpToolsProtocol, name)

    assert ours is not theirs
    if name != "__init__":
        assert len(inspect.signature(theirs).parameters) == len(inspect.signature(ours).parameters)


async def test_a_server_has_what_a_protocol_is_made_of():
    """Sockets with TLS are listened on by ourselves, with the protocols that uvicorn would make."""
    config = uvicorn.Config(lambda: None, http=partial(Protocol, OpenConnections(None)), log_config=None)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)

    made = protocols_of(server)()

    assert isinstance(made, Protocol)
    assert made.server_state is server.server_state
    assert "self.servers.append(" in inspect.getsource(uvicorn.Server.startup)
    assert "for server in self.servers" in inspect.getsource(uvicorn.Server.shutdown)


def used(module: Any) -> set[str]:
    """Every attribute of `self` and of a cycle that a file of ours reads or sets."""
    tree = ast.parse(inspect.getsource(module))
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in attributes if ast.unparse(node.value) in ("self", "cycle", "newest", "self.cycle")}


def test_nothing_else_of_uvicorn_is_used():
    """What is not in the lists above is not checked by them."""
    own = set(vars(Protocol)) | set(Protocol.__slots__) | {"_longest"}

    assert OF_THE_PROTOCOL | OF_A_CYCLE == used(http_protocol) - own


def test_nothing_else_of_uvicorns_server_is_used():
    """Its own attributes are private."""
    not_ours = {name for name in used(uvicorn_server) if not name.startswith("_")}

    assert OF_THE_SERVER == not_ours
    assert OVERRIDDEN_OF_THE_SERVER == {name for name in vars(Server) if name in vars(uvicorn.Server)} - NO_OVERRIDES
    assert {"capture_signals"} == {name for name in vars(SideServer) if name in vars(uvicorn.Server)} - NO_OVERRIDES


def test_uvicorn_is_imported_by_two_files_only():
    """So an upgrade is read against two files."""
    importers = {found.importer for found in imports() if found.imported.partition(".")[0] == "uvicorn"}

    assert {"server.kit.http.http_protocol", "server.kit.http.uvicorn_server"} == importers


async def test_a_short_connection_is_closed_at_its_age():
    """It closes the transport that uvicorn passes to `connection_made`."""
    wire, closed = Wire(), asyncio.Event()
    wire.close = closed.set
    config = uvicorn.Config(lambda: None, log_config=None)
    short = ShortConnection(0.0, config=config, server_state=ServerState(), app_state={}, _loop=None)

    short.connection_made(wire)

    await asyncio.wait_for(closed.wait(), LONG)


# The server.


class Told(uvicorn.Server):
    """A server of uvicorn's own that notes which of its methods are called."""

    def __init__(self) -> None:
        super().__init__(uvicorn.Config(self._app, lifespan="off", log_config=None, log_level=50))
        self.calls: list[tuple[str, Any]] = []

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    @contextlib.contextmanager
    def capture_signals(self):
        self.calls.append(("capture_signals", self.started))
        with super().capture_signals():
            yield

    async def startup(self, sockets=None):
        self.calls.append(("startup", sockets))
        await super().startup(sockets)
        self.should_exit = True

    async def shutdown(self, sockets=None):
        self.calls.append(("shutdown", sockets))
        await super().shutdown(sockets)

    def handle_exit(self, sig, frame):
        self.calls.append(("handle_exit", sig))


@pytest.mark.parametrize("name", sorted(OF_THE_SERVER - {"servers"}))
def test_a_server_has(name):
    """What we read or set."""
    assert hasattr(Told(), name)


@pytest.mark.parametrize("name", sorted(OVERRIDDEN_OF_THE_SERVER - {"__init__"}))
def test_a_server_has_what_we_override(name):
    """With the parameters that ours takes. The source is read, because libraries replace methods when imported."""
    source = ast.parse(inspect.getsource(uvicorn.server))
    functions = [node for node in ast.walk(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    [theirs] = [[arg.arg for arg in node.args.args] for node in functions if node.name == name]

    assert theirs == list(inspect.signature(getattr(Server, name)).parameters)


async def test_serving_captures_signals_starts_and_shuts_down_in_this_order():
    """We listen with TLS after the start, settle runs before the shutdown, and close further sockets by it."""
    server = Told()
    sock, further = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))

    await server.serve([sock])
    await server.shutdown([further])

    assert ["capture_signals", "startup", "shutdown", "shutdown"] == [name for name, _ in server.calls]
    assert ([sock], [sock]) == (server.calls[1][1], server.calls[2][1])
    assert (-1, -1) == (sock.fileno(), further.fileno())
    assert (True, 1) == (server.started, len(server.servers))


def test_a_signal_is_handled_by_handle_exit_and_not_raised_again():
    """uvicorn raises again what its own handler has noted; ours notes nothing."""
    server = Told()
    before = signal.getsignal(signal.SIGTERM)
    with server.capture_signals():
        signal.raise_signal(signal.SIGTERM)

    assert [("capture_signals", False), ("handle_exit", signal.SIGTERM)] == server.calls
    assert before == signal.getsignal(signal.SIGTERM)


def test_a_server_beside_the_main_one_leaves_signals_alone():
    """There is one handler for each signal in a process."""
    before = signal.getsignal(signal.SIGTERM)
    with SideServer(uvicorn.Config(lambda: None, log_config=None)).capture_signals():
        during = signal.getsignal(signal.SIGTERM)

    assert before == during


async def test_a_cycle_that_is_disconnected_writes_nothing_and_says_so(plain):
    """So a request that was refused ends, whatever its app still wants to say."""
    cycle = await plain.receive(REQUEST)
    cycle.response_started = cycle.response_complete = cycle.disconnected = True
    cycle.message_event.set()
    (_, receive, send) = plain.calls[0]

    await send({"type": "http.response.start", "status": 200, "headers": []})

    assert {"type": "http.disconnect"} == await receive()
    assert b"" == plain.wire.written


async def test_a_body_that_was_taken_is_followed_by_the_disconnect(plain):
    """`whole_body` empties the body and clears the event, which is what `receive` leaves behind, too."""
    cycle = await plain.receive(REQUEST + b"5\r\nhello\r\n0\r\n\r\n")
    taken = bytes(cycle.body), cycle.more_body
    cycle.body = bytearray()
    cycle.message_event.clear()
    reading = asyncio.create_task(cycle.receive())
    await asyncio.sleep(0)
    is_waiting = not reading.done()
    cycle.disconnected = True
    cycle.message_event.set()

    assert ((b"hello", False), True) == (taken, is_waiting)
    assert {"type": "http.disconnect"} == await reading


async def test_an_answer_that_we_began_is_gone_on_with_by_send(plain):
    """`begin` sets two attributes and writes a head; the rest may come by either way."""
    cycle = await plain.receive(REQUEST)
    cycle.response_started = cycle.chunked_encoding = True

    await cycle.send({"type": "http.response.body", "body": b"hello", "more_body": True})
    await cycle.send({"type": "http.response.body", "body": b""})

    assert b"5\r\nhello\r\n0\r\n\r\n" == plain.wire.written
    assert cycle.response_complete


async def test_a_connection_whose_keep_alive_is_taken_back_is_closed_after_the_answer(plain):
    """So the answer before a request that was refused is the last."""
    cycle = await plain.receive(REQUEST)
    cycle.keep_alive = False

    await cycle.send({"type": "http.response.start", "status": 204, "headers": []})
    await cycle.send({"type": "http.response.body", "body": b""})

    assert b"connection: close\r\n" in plain.wire.written
    assert plain.wire.is_closed


async def test_a_request_behind_another_waits_in_the_pipeline(plain):
    """It is how we know that an error has no place yet. The newest is the protocol's `cycle`."""
    first = await plain.receive(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n")
    second = await plain.receive(b"GET /2 HTTP/1.1\r\nHost: h\r\n\r\n")

    assert [second] == [cycle for cycle, _ in plain.protocol.pipeline]
    assert (1, True) == (len(plain.calls), plain.protocol.flow.read_paused)
    assert first is not second


async def test_headers_are_collected_in_a_list_that_can_be_taken_away(plain):
    """Trailers go to the protocol's list: one of its own, so that they do not become headers."""
    cycle = await plain.receive(REQUEST)
    plain.protocol.headers = []

    await plain.receive(b"0\r\nX-T: 1\r\n\r\n")

    assert [(b"x-t", b"1")] == plain.protocol.headers
    assert [b"host", b"transfer-encoding"] == [name for name, _ in cycle.scope["headers"]]
    assert (b"/a?b", False) == (plain.protocol.url, cycle.more_body)


async def test_a_body_is_gathered_in_the_cycle_and_read_from_there(plain):
    """Our own callbacks do what uvicorn's do, and `receive` is uvicorn's."""
    cycle = await plain.receive(REQUEST)
    cycle.body += b"abc"
    cycle.message_event.set()
    first = await plain.calls[0][1]()
    cycle.more_body = False
    cycle.message_event.set()
    last = await plain.calls[0][1]()

    assert {"type": "http.request", "body": b"abc", "more_body": True} == first
    assert {"type": "http.request", "body": b"", "more_body": False} == last


async def test_the_timer_of_a_kept_connection_is_unset_by_name(plain):
    """We unset it when a request begins, and not with every byte."""
    plain.protocol.timeout_keep_alive_task = asyncio.get_running_loop().call_later(60, print)

    plain.protocol._unset_keepalive_if_required()

    assert plain.protocol.timeout_keep_alive_task is None


async def test_a_client_that_asks_first_is_told_to_go_on_when_the_app_reads(plain):
    """`waiting_for_100_continue` is taken back where an answer begins."""
    head = REQUEST.replace(b"Host", b"Expect: 100-continue\r\nHost")
    cycle = await plain.receive(head)
    asked = (plain.protocol.expect_100_continue, cycle.waiting_for_100_continue)
    reading = asyncio.create_task(plain.calls[0][1]())
    await asyncio.sleep(0)

    assert (True, True) == asked
    assert b"HTTP/1.1 100 Continue\r\n\r\n" == plain.wire.written
    reading.cancel()


def test_status_lines_are_whole_lines():
    """Ours are joined from them."""
    assert b"HTTP/1.1 200 OK\r\n" == STATUS_LINE[200]
    assert {408, 431, 503} <= STATUS_LINE.keys()


def test_flow_control_says_who_waits_for_whom():
    """Whether the client reads, and whether we do."""
    flow = FlowControl(Wire())
    flow.pause_reading()
    flow.pause_writing()

    assert (True, True) == (flow.read_paused, flow.write_paused)


# httptools.


class Callbacks:
    def on_headers_complete(self) -> None:
        raise ZeroDivisionError


def test_the_parser_says_where_a_head_that_offers_a_protocol_ends():
    """What follows is given to a fresh parser."""
    head = b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: foo\r\nContent-Length: 5\r\n\r\n"
    parser = httptools.HttpRequestParser(object())

    with pytest.raises(httptools.HttpParserUpgrade) as offer:
        parser.feed_data(memoryview(b"__" + head + b"hello")[2:])

    assert (len(head),) == offer.value.args
    assert (True, b"POST", "1.1") == (parser.should_upgrade(), parser.get_method(), parser.get_http_version())


def test_the_parser_passes_on_what_a_callback_raises():
    """So a head can be refused from within, and for its own reason."""
    with pytest.raises(httptools.HttpParserError) as error:
        httptools.HttpRequestParser(Callbacks()).feed_data(b"GET / HTTP/1.1\r\n\r\n")

    assert isinstance(error.value.__context__, ZeroDivisionError)
