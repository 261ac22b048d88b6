"""Which proxy leads to a host, and what becomes of requests through one: real proxies, real TLS, both event loops."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.http_client.errors import Broken, NotHTTP, NotThere, ProxyFailed
from holdfast.http_client.pool import Connections
from holdfast.http_client.proxy import is_exempt, parse_proxy, proxy_from_environment, shown_proxy
from holdfast.http_client.request import head_of
from holdfast.http_client.route import route_to
from tests.requirements import requirement
from tests.support.certificates import Authority
from tests.support.forward_proxy import ForwardProxy, Place
from tests.support.waiting import LONG

LOGIN = "user:p%40ss-w0rd"
SECRETS = ("p%40ss-w0rd", "p@ss-w0rd", "dXNlcjpwQHNzLXcwcmQ=")
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"


# -- which proxy


@pytest.mark.parametrize(
    ("no_proxy", "host", "exempt"),
    [
        ("", "up.test", False),
        ("*", "up.test", True),
        ("up.test", "up.test", True),
        ("up.test", "UP.Test.", True),
        ("test", "up.test", True),
        (".test", "up.test", True),
        ("*.test", "up.test", True),
        (".up.test", "up.test", True),
        ("p.test", "up.test", False),
        ("up.test", "up.test.evil", False),
        ("other.test, up.test", "up.test", True),
        ("other.test up.test", "up.test", True),
        ("up.test:443", "up.test", True),
        ("up.test:8443", "up.test", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1:443", "10.0.0.1", True),
        ("10.0.0.1:80", "10.0.0.1", False),
        ("10.0.0.0/8", "10.200.3.4", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "10.test", False),
        ("0.0.1", "10.0.0.1", False),
        ("2001:db8::1", "2001:db8::1", True),
        ("2001:db8:0:0::1", "2001:db8::1", True),
        ("[2001:db8::1]", "2001:db8::1", True),
        ("[2001:db8::1]:443", "2001:db8::1", True),
        ("[2001:db8::1]:80", "2001:db8::1", False),
        ("2001:db8::/32", "2001:db8:9::1", True),
        ("2001:db8::/32", "2001:db9::1", False),
        ("bücher.example", "xn--bcher-kva.example", True),
        (",, .", "up.test", False),
        ("nonsense/99, up.test:port", "up.test", False),
    ],
)
@requirement("start.proxy")
def test_no_proxy_names_hosts_as_it_does_for_other_programs(no_proxy, host, exempt):
    """Operators have the variable already. What it keeps inside must not go to the proxy, nor the other way round."""
    assert exempt == is_exempt(host, 443, no_proxy)


PROXY = {"HTTPS_PROXY": "http://secure:1", "HTTP_PROXY": "plain:2", "ALL_PROXY": "http://all"}


@pytest.mark.parametrize(
    ("url", "environ", "name"),
    [
        ("https://up.test/v1", PROXY, "secure:1"),
        ("http://up.test/v1", PROXY, "plain:2"),
        ("https://up.test/v1", {"ALL_PROXY": "http://all"}, "all:80"),
        ("https://up.test/v1", {"ALL_PROXY": "https://all"}, "all:443"),
        ("https://up.test/v1", {"https_proxy": "lower:3", **PROXY}, "lower:3"),
        ("https://up.test/v1", {**PROXY, "HTTPS_PROXY": ""}, None),
        ("https://up.test/v1", {"HTTP_PROXY": "plain:2"}, None),
        ("https://up.test/v1", {**PROXY, "NO_PROXY": "up.test"}, None),
        ("https://up.test/v1", {**PROXY, "no_proxy": "up.test", "NO_PROXY": ""}, None),
        ("https://up.test:8443/v1", {**PROXY, "NO_PROXY": "up.test:443"}, "secure:1"),
        ("https://up.test/v1", {"HTTPS_PROXY": "http://[2001:db8::1]:3128"}, "[2001:db8::1]:3128"),
        ("http://localhost:8080/v1", PROXY, None),
        ("http://api.localhost/v1", PROXY, None),
        ("http://127.0.0.1:8080/v1", PROXY, None),
        ("http://127.9.9.9/v1", PROXY, None),
        ("http://[::1]:8080/v1", PROXY, None),
        ("http://[::ffff:127.0.0.1]/v1", PROXY, None),
        ("http://0.0.0.0:8080/v1", PROXY, None),
        ("http://localhost.evil.test/v1", PROXY, "plain:2"),
    ],
)
@requirement("start.proxy")
def test_the_environment_names_the_proxy(url, environ, name):
    """By the scheme of the upstream. This machine's own servers are never asked through one."""
    proxy = proxy_from_environment(url, environ)

    assert name == (proxy and proxy.name)


@requirement("start.proxy")
def test_a_provider_s_own_proxy_comes_before_the_environment():
    """It was set for this provider, so neither NO_PROXY nor loopback exempts it. Empty means none."""
    environ = {"HTTPS_PROXY": "http://env:1", "HTTP_PROXY": "http://env:1", "NO_PROXY": "*"}

    own = route_to("https://up.test", proxy="http://own:2", environ=environ).proxy
    near = route_to("http://127.0.0.1:8080", proxy="http://own:2", environ=environ).proxy
    none = route_to("https://up.test", proxy="", environ={**environ, "NO_PROXY": ""}).proxy

    assert own is not None
    assert near is not None
    assert ("own:2", "own:2", None) == (own.name, near.name, none)


@pytest.mark.parametrize(
    "url",
    [
        f"socks5://{LOGIN}@proxy:1080",
        f"http://{LOGIN}@proxy:port",
        f"http://{LOGIN}@proxy:99999",
        f"http://{LOGIN}@",
        f"http://{LOGIN}@proxy:1/path",
        f"{LOGIN}@proxy:1/path",
        f"http://{LOGIN}@[::1",
        "http://",
        f"http://user:a/{SECRETS[0]}@proxy:1",
        f"http://user:1#{SECRETS[0]}@proxy:1",
        f"http://user:a@{SECRETS[1]}@proxy:1/path",
    ],
)
@requirement("safe.proxy-secret")
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(url):
    """The message is printed, logged and shown to admins."""
    with pytest.raises(ValueError, match="prox") as refused:
        parse_proxy(url)
    with pytest.raises(ValueError, match="HTTPS_PROXY in the environment") as named:
        proxy_from_environment("https://up.test", {"HTTPS_PROXY": url})

    for secret in SECRETS:
        assert secret not in str(refused.value)
        assert secret not in str(named.value)


@requirement("safe.proxy-secret")
def test_a_proxy_shows_no_password():
    """Objects end up in logs and tracebacks."""
    proxy = parse_proxy(f"http://{LOGIN}@proxy:1")
    shown = repr(proxy) + str(proxy) + proxy.name + shown_proxy(f"http://{LOGIN}@proxy:1")

    assert [] == [secret for secret in SECRETS if secret in shown]
    assert set(SECRETS) == set(proxy.secrets)
    assert f"Basic {SECRETS[2]}" == proxy.authorization


# -- through one


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


class Origin:
    """A server that answers each request with the same bytes, with TLS or without, and sees its clients leave."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.requests: list[str] = []
        self.left_at: asyncio.Queue[float] = asyncio.Queue()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.requests.append(head)
                writer.write(self._answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left_at.put_nowait(time.monotonic())
            writer.close()


@asynccontextmanager
async def origin(authority: Authority | None = None, answer: bytes = WHOLE) -> AsyncIterator[tuple[Origin, Place]]:
    server = Origin(answer)
    tls = authority.server_context("up.test", "127.0.0.1", "2001:db8::1") if authority else None
    listening = await asyncio.start_server(server, "127.0.0.1", 0, ssl=tls)
    try:
        yield server, listening.sockets[0].getsockname()
    finally:
        listening.close()


def client(url: str, proxy: ForwardProxy, authority: Authority | None = None, timeout: float = 30.0) -> Connections:
    ca_file = str(authority.path) if authority else ""
    proxy_url = proxy.url.replace("://", f"://{LOGIN}@")
    return Connections(url, route=route_to(url, proxy=proxy_url, ca_file=ca_file, environ={}), connect_timeout=timeout)


def get(url: str) -> bytes:
    return head_of("GET", f"{url}/v1/models?a=b", {"Authorization": "Bearer key"})


def post(url: str) -> bytes:
    return head_of("POST", f"{url}/v1/chat/completions", {})


async def body(connections: Connections, head: bytes) -> bytes:
    reply = await connections.send(head)
    return await reply.read_all()


async def tunnelled(authority: Authority) -> None:
    """Ask twice through a tunnel, and leave."""
    async with origin(authority) as (server, place), ForwardProxy({"up.test:443": place}, login="user:p@ss-w0rd") as p:
        connections = client("https://up.test", p, authority)
        assert [b"hi", b"hi"] == [await body(connections, get("https://up.test")) for _ in range(2)]
        connections.close()
        await asyncio.wait_for(server.left_at.get(), LONG)

    assert ["CONNECT up.test:443 HTTP/1.1"] == p.lines
    assert "GET /v1/models?a=b HTTP/1.1\r\nHost: up.test\r\n" in server.requests[0]
    assert "Bearer key" not in p.heads[0]
    assert "Proxy-Authorization" not in server.requests[0]


@requirement("start.proxy")
async def test_https_goes_through_a_tunnel_that_is_used_again(authority):
    """The proxy learns the name and port of the upstream, and nothing else. A tunnel costs three round trips."""
    await tunnelled(authority)


@requirement("start.proxy")
def test_https_goes_through_a_tunnel_on_uvloop(authority):
    """The server runs on uvloop, whose TLS is another one."""
    pytest.importorskip("uvloop").run(tunnelled(authority))


async def both_encrypted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Speak TLS with the proxy, and inside of it with the upstream."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    tls = authority.server_context("127.0.0.1")
    async with origin(authority) as (server, place), ForwardProxy({"up.test:443": place}, tls=tls) as proxy:
        connections = client("https://up.test", proxy, authority)
        assert b"hi" == await body(connections, get("https://up.test"))
        reply = await connections.send(get("https://up.test"))
        reply.close()
        connections.close()
        await asyncio.wait_for(server.left_at.get(), LONG)


@requirement("start.proxy")
async def test_the_connection_to_the_proxy_may_be_encrypted_itself(authority, monkeypatch):
    """Then nobody between us and the proxy learns the proxy's password."""
    await both_encrypted(authority, monkeypatch)


@requirement("start.proxy")
def test_the_connection_to_the_proxy_may_be_encrypted_on_uvloop(authority, monkeypatch):
    """As above."""
    pytest.importorskip("uvloop").run(both_encrypted(authority, monkeypatch))


@requirement("start.proxy")
async def test_http_is_asked_of_the_proxy_by_whole_urls(authority):
    """On one connection, with the proxy's password for the proxy alone."""
    async with origin() as (server, place), ForwardProxy({"up.test:80": place}, login="user:p@ss-w0rd") as proxy:
        connections = client("http://up.test", proxy)
        assert [b"hi", b"hi"] == [await body(connections, get("http://up.test")) for _ in range(2)]
        connections.close()
        await asyncio.wait_for(server.left_at.get(), LONG)

    assert ["GET http://up.test/v1/models?a=b HTTP/1.1"] * 2 == proxy.lines
    assert "Host: up.test\r\n" in proxy.heads[0]
    assert ["GET /v1/models?a=b HTTP/1.1"] * 2 == [head.partition("\r\n")[0] for head in server.requests]
    assert "Proxy-Authorization" not in "".join(server.requests)


@requirement("start.proxy")
async def test_a_proxy_and_an_upstream_may_be_ipv6_addresses(authority):
    """An address stands in brackets in both places."""
    url = "https://[2001:db8::1]"
    async with origin(authority) as (_, place), ForwardProxy({"[2001:db8::1]:443": place}, host="::1") as proxy:
        connections = client(url, proxy, authority)
        assert b"hi" == await body(connections, get(url))
        connections.close()

    assert ["CONNECT [2001:db8::1]:443 HTTP/1.1"] == proxy.lines


def answering(line: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: 4\r\n\r\nbody" % line


@pytest.mark.parametrize(
    ("answer", "status", "is_final", "said"),
    [
        (answering(b"407 Proxy Authentication Required"), 407, True, "refuses the user and password of its URL (407)"),
        (answering(b"403 Forbidden"), 403, True, "does not let us through (403)"),
        (answering(b"302 Found"), 302, False, "does not let us through (302)"),
        (answering(b"502 Bad Gateway"), 502, False, "could not reach it (502)"),
        (answering(b"504 Gateway Timeout"), 504, False, "could not reach it (504)"),
        (b"220 mail ESMTP\r\n", 0, False, "answered with something that is not HTTP"),
        (b"HTTP/1.1 OK\r\n\r\n", 0, False, "answered with something that is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n\x15\x03", 0, False, "answered with bytes before TLS began"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60_000, 0, False, "answered with more than 256 kB of headers"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20_000, 0, False, "answered with more than 256 kB of headers"),
    ],
    ids=lambda value: value[:20].decode("latin-1") if isinstance(value, bytes) else None,
)
@requirement("start.proxy")
@requirement("safe.proxy-secret")
async def test_a_proxy_that_refuses_a_tunnel_is_named(authority, answer, status, is_final, said):
    """An operator has to know that it is the proxy, and which one."""
    async with ForwardProxy({}, answers=answer) as proxy:
        connections = client("https://up.test", proxy, authority)
        with pytest.raises(ProxyFailed) as failed:
            await asyncio.wait_for(connections.send(get("https://up.test")), LONG)
        await asyncio.wait_for(proxy.left.wait(), LONG)  # it was left at once

    assert f"the proxy {proxy.place} {said}" == str(failed.value)
    assert (status, is_final) == (failed.value.status, failed.value.is_final)


@requirement("start.proxy")
async def test_interim_responses_of_a_proxy_are_passed_over(authority):
    """As those of any other server."""
    async with ForwardProxy({}, answers=b"HTTP/1.1 100 Continue\r\n\r\n" + answering(b"403 No")) as proxy:
        with pytest.raises(ProxyFailed, match="403"):
            await client("https://up.test", proxy, authority).send(get("https://up.test"))


@requirement("start.proxy")
async def test_a_proxy_that_refuses_the_password_for_http_is_named(authority):
    """The status is the proxy's, not the upstream's: the request went no further."""
    async with origin() as (server, place), ForwardProxy({"up.test:80": place}, login="other:login") as proxy:
        connections = client("http://up.test", proxy)
        with pytest.raises(ProxyFailed, match="refuses the user and password"):
            await connections.send(post("http://up.test"), b"")
        connections.close()

    assert [] == server.requests


@requirement("start.proxy")
async def test_a_proxy_without_a_password_is_told_to_want_one(authority):
    """The advice is what to write."""
    async with ForwardProxy({}, login="user:password") as proxy:
        route = route_to("https://up.test", proxy=proxy.url, environ={})
        with pytest.raises(ProxyFailed, match=r"asks for a user and password \(407\): its URL may hold them"):
            await Connections("https://up.test", route=route).send(get("https://up.test"))


@pytest.mark.parametrize("url", ["https://up.test", "http://up.test"])
@requirement("start.proxy")
async def test_a_dead_proxy_is_named(url):
    """No connection is tried past it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        route = route_to(url, proxy=f"http://{LOGIN}@127.0.0.1:{port}", environ={})
        with pytest.raises(ProxyFailed) as failed:
            await Connections(url, route=route).send(get(url))

    assert f"the proxy 127.0.0.1:{port} could not be reached: connection refused" == str(failed.value)
    assert not failed.value.is_final


@requirement("start.proxy")
async def test_a_silent_proxy_ends_after_the_time_for_connecting(authority):
    """It accepts, and never answers the CONNECT."""
    async with ForwardProxy({}, is_mute=True) as proxy:
        connections = client("https://up.test", proxy, authority, timeout=0.2)
        with pytest.raises(ProxyFailed, match=r"did not answer within 0\.2 s"):
            await asyncio.wait_for(connections.send(get("https://up.test")), LONG)
        await asyncio.wait_for(proxy.left.wait(), LONG)


@requirement("start.proxy")
async def test_an_upstream_behind_the_proxy_that_is_silent_is_not_blamed_on_the_proxy(authority):
    """The tunnel stands, and nobody speaks TLS at its end."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with ForwardProxy({"up.test:443": listening.sockets[0].getsockname()}) as proxy:
        connections = client("https://up.test", proxy, authority, timeout=0.5)
        with pytest.raises(NotThere, match=r"^nothing was there within 0\.5 s$"):
            await asyncio.wait_for(connections.send(get("https://up.test")), LONG)
        await asyncio.wait_for(proxy.left.wait(), LONG)
    listening.close()


@requirement("start.proxy")
async def test_tls_inside_a_tunnel_is_checked_against_the_upstream_s_name(authority):
    """A proxy that leads elsewhere, or reads along, has no certificate for the name."""
    async with origin(authority) as (server, place), ForwardProxy({"other.test:443": place}) as proxy:
        connections = client("https://other.test", proxy, authority)
        with pytest.raises(NotThere, match="the address must have the name that the certificate is for"):
            await connections.send(get("https://other.test"))

    assert [] == server.requests


@pytest.mark.parametrize("url", ["https://up.test", "http://up.test"])
@requirement("stop.closes-upstream")
async def test_leaving_an_answer_closes_the_upstream_behind_the_proxy(authority, url):
    """A stop awaits nothing: the proxy sees the connection end, and ends its own."""
    port = 443 if url.startswith("https") else 80
    secure = authority if port == 443 else None
    async with origin(secure, HALF) as (server, place), ForwardProxy({f"up.test:{port}": place}) as proxy:
        connections = client(url, proxy, secure)
        reply = await connections.send(post(url))
        assert b"hi" == await reply.read()
        reply.close()
        await asyncio.wait_for(server.left_at.get(), LONG)


@pytest.mark.parametrize("mute", [True, False], ids=["during CONNECT", "before the head"])
@requirement("stop.closes-upstream")
async def test_giving_up_early_leaves_nothing_open_at_the_proxy(authority, mute):
    """As a run that is stopped before its first word does."""
    async with origin(authority, b"") as (server, place), ForwardProxy({"up.test:443": place}, is_mute=mute) as proxy:
        asking = asyncio.create_task(client("https://up.test", proxy, authority).send(post("https://up.test")))
        while not (proxy.heads if mute else server.requests):  # noqa: ASYNC110 - the kernel brings it about
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait_for(proxy.left.wait(), LONG)

    assert asking.cancelled()


@pytest.mark.parametrize("url", ["https://up.test", "http://up.test"])
@requirement("truth.asked-once")
async def test_a_proxy_that_dies_in_the_middle_breaks_the_answer(authority, url):
    """What had arrived is read first. The request is not sent again: the upstream has it."""
    port = 443 if url.startswith("https") else 80
    secure = authority if port == 443 else None
    async with origin(secure, HALF) as (server, place), ForwardProxy({f"up.test:{port}": place}) as proxy:
        reply = await client(url, proxy, secure).send(post(url))
        assert b"hi" == await reply.read()
        proxy.die()
        with pytest.raises(Broken):
            await asyncio.wait_for(reply.read(), LONG)

    assert 1 == len(server.requests)


@requirement("safe.upstream-headers")
async def test_the_limit_of_headers_holds_for_what_a_proxy_answers_in_the_upstream_s_place():
    """It could fill the memory as an upstream could."""
    async with ForwardProxy({}, answers=b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60_000) as proxy:
        with pytest.raises(NotHTTP, match="more than 256 kB of headers"):
            await client("http://up.test", proxy).send(get("http://up.test"))
