"""One request is one request: neither its headers nor its body change where it ends, however its bytes arrive."""

import random
from itertools import product

import pytest

from holdfast.server.features.accounts.auth import ALLOWED_HEADERS
from tests.requirements import requirement
from tests.support.framing import Connected, Request, cut, understood_by_h11
from tests.support.long import count

OFFERS = [
    b"h2c",
    b"websocket",
    b"TLS/1.0",
    b"h2c, foo",
    b"foo",
    b"H2C",
    b"WebSocket",
    b"",
    b"h2c\t",
    b"HTTP/2.0, SHTTP/1.3",
]
NAMES = [b"upgrade", b"UPGRADE", b"Upgrade"]
CONNECTIONS = [None, b"Upgrade", b"upgrade, HTTP2-Settings", b"UPGRADE", b"keep-alive, Upgrade"]
OURS = [
    *(name.encode() for name in ALLOWED_HEADERS),
    *(b"host", b"origin", b"cookie", b"accept", b"content-length", b"transfer-encoding", b"connection", b"upgrade"),
    *(b"expect", b"trailer", b"te", b"http2-settings", b"sec-websocket-key", b"sec-fetch-site", b"x-conversation-id"),
]
"""Names of headers that this server, its parser or a proxy gives a meaning to."""
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
AFTER = b"POST /after HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\nafter"
FRAMINGS = ["content-length", "chunked"]
CASES = count(2_000, 10_000)


def framed(framing: str, body: bytes, *lines: bytes, method: bytes = b"POST", target: bytes = b"/first") -> bytes:
    head = b"".join(line + b"\r\n" for line in (method + b" " + target + b" HTTP/1.1", b"Host: 127.0.0.1", *lines))
    if framing == "chunked":
        half = len(body) // 2
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:]) if part)
        return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def offering(offer: bytes, connection: bytes | None, name: bytes = b"Upgrade") -> list[bytes]:
    return [name + b": " + offer, *([b"Connection: " + connection] if connection else [])]


async def understood(pieces: list[bytes]) -> list[Request]:
    connected = Connected()
    await connected.send(pieces)
    await connected.leave()
    assert len(connected.requests) == connected.wire.written.count(b"HTTP/1.1 200 ")
    return connected.requests


def bodies(requests: list[Request]) -> list[tuple[bytes, bytes]]:
    return [(request.target, request.body) for request in requests]


@requirement("safe.one-request")
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("connection", CONNECTIONS, ids=str)
@pytest.mark.parametrize("offer", OFFERS, ids=str)
async def test_an_offer_of_another_protocol_changes_nothing_about_the_framing(offer, connection, framing):
    """The parser would take the body for the other protocol's: it would be run as a request of its own."""
    for name, split in product(NAMES, ["whole", "head and body", "every byte"]):
        first = framed(framing, HIDDEN, *offering(offer, connection, name))
        places = {"whole": [], "head and body": [first.index(b"\r\n\r\n") + 4]}.get(split, range(len(first + AFTER)))

        requests = await understood(cut(first + AFTER, places))

        assert [(b"/first", HIDDEN), (b"/after", b"after")] == bodies(requests), (name, split)


@requirement("safe.one-request")
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("name", OURS, ids=str)
async def test_a_header_inside_a_body_is_a_part_of_the_body(name, framing):
    """A server that looks for a header in what it reads, and not in the head, cuts or moves the end of the body."""
    lines = [name + b":" + blanks + value for blanks in (b"", b" ", b" \t ") for value in (b"h2c", b"chunked", b"5")]
    body = b"\r\n".join([b"", *lines, b"", HIDDEN])
    stream = framed(framing, body, *offering(b"h2c", b"Upgrade")) + framed(framing, body) + AFTER

    for places in ([], [stream.index(b"\r\n\r\n") + 4], [stream.index(name, 200)], range(len(stream))):
        requests = await understood(cut(stream, places))

        assert [(b"/first", body), (b"/first", body), (b"/after", b"after")] == bodies(requests)


@requirement("safe.one-request")
@pytest.mark.parametrize("framing", FRAMINGS)
async def test_the_place_at_which_a_stream_is_cut_is_of_no_matter(framing):
    """Every read may end anywhere: in a name, between CR and LF, in a chunk's size."""
    stream = framed(framing, HIDDEN, *offering(b"foo", b"Upgrade")) + framed(framing, b"two") + AFTER
    expected = [(b"/first", HIDDEN), (b"/first", b"two"), (b"/after", b"after")]

    for place in range(1, len(stream)):
        assert expected == bodies(await understood(cut(stream, [place]))), place


@requirement("safe.one-request")
async def test_trailers_are_no_headers():
    """They come after the request was let in: a key or a name in them must count for nothing."""
    trailers = b"0\r\nAuthorization: Bearer stolen\r\nX-Session-Id: other\r\n\r\n"
    stream = framed("chunked", b"body").removesuffix(b"0\r\n\r\n") + trailers + AFTER

    first, after = await understood([stream])

    assert (b"body", b"after") == (first.body, after.body)
    assert ((b"host", b"127.0.0.1"), (b"transfer-encoding", b"chunked")) == first.headers


@requirement("safe.one-request")
@pytest.mark.parametrize("lines", [[], [b"Content-Length: 43"], offering(b"h2c", b"Upgrade")], ids=str)
async def test_a_tunnel_is_refused_and_nothing_behind_it_is_read(lines):
    """CONNECT has no body whatever its headers say: what follows belongs to a tunnel that there is not."""
    connected = Connected()
    head = b"".join(line + b"\r\n" for line in [b"CONNECT 127.0.0.1:80 HTTP/1.1", b"Host: 127.0.0.1:80", *lines])

    await connected.send([head + b"\r\n" + HIDDEN, HIDDEN])
    await connected.leave()

    assert connected.wire.written.startswith(b"HTTP/1.1 400 ")
    assert (1, []) == (connected.wire.written.count(b"HTTP/1.1"), connected.requests)


# Many requests, made up, against another parser.


HARMLESS = [
    *(b"X-A:", b"Accept: */*", b"X-Long: " + 500 * b"x", b"X-B: \xff\xfe"),
    *(b"Origin: http://127.0.0.1", b"Cookie: upgrade=h2c"),
]
PARTS = [
    *(HIDDEN, AFTER, b"\r\nupgrade: h2c\r\n\r\n", b"\r\nUpgrade:      h2c\r\n"),
    *(b"0\r\n\r\n", b"5\r\nhello\r\n", b"{}", b"\r\n\r\n", 40 * b"\x00"),
]
DAMAGE = [b"", b"\r\n", b"\n", b"\r", b" ", b"\t", b"\x00", b"0", b"9", b",", b":"]


class Maker:
    """Makes up streams of requests from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def stream(self) -> bytes:
        return b"".join(self._request(n) for n in range(self._random.randint(1, 4)))

    def pieces(self, stream: bytes) -> list[bytes]:
        how = self._random.random()
        if how < 0.1:
            return cut(stream, range(len(stream)))
        return cut(stream, self._random.choices(range(len(stream)), k=self._random.choice([0, 1, 2, 5])))

    def damaged(self, stream: bytes) -> bytes:
        """Change, drop, repeat or insert a few bytes."""
        for _ in range(self._random.randint(1, 3)):
            place, end = sorted(self._random.choices(range(len(stream) + 1), k=2))
            end = min(end, place + self._random.choice([0, 1, 2, 8]))
            instead = self._random.choice([*DAMAGE, 2 * stream[place:end]])
            stream = stream[:place] + instead + stream[end:]
        return stream

    def _request(self, number: int) -> bytes:
        choice = self._random.choice
        method = choice([b"GET", b"POST", b"POST", b"PUT", b"DELETE", b"PATCH", b"HEAD", b"OPTIONS"])
        lines = [method + b" /%d?q=%d HTTP/1.1" % (number, self._random.randint(0, 9)), b"Host: 127.0.0.1"]
        lines += self._random.choices(HARMLESS, k=2)
        if self._random.random() < 0.6:
            lines += offering(choice(OFFERS), choice(CONNECTIONS), choice(NAMES))
            if self._random.random() < 0.2:
                lines.append(b"Upgrade: " + choice(OFFERS[:5]))
        framing, rest = self._framed_body()
        lines += framing
        self._shuffle(lines)
        return b"\r\n".join(lines) + b"\r\n\r\n" + rest

    def _shuffle(self, lines: list[bytes]) -> None:
        first, *others = lines
        self._random.shuffle(others)
        lines[:] = [first, *others]

    def _framed_body(self) -> tuple[list[bytes], bytes]:
        body = b"".join(self._random.choices(PARTS, k=self._random.randint(0, 4)))
        how = self._random.choice(["none", "content-length", "chunked"])
        if how == "none":
            return [], b""
        if how == "content-length":
            return [b"Content-Length: %d" % len(body)], body
        pieces = cut(body, self._random.choices(range(len(body) + 1), k=2)) if body else []
        extension = self._random.choice([b"", b";a", b";a=b", b';a="b"'])
        chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        trailers = self._random.choice([b"", b"X-T: 1\r\n", b"Upgrade: h2c\r\nConnection: Upgrade\r\n"])
        return [b"Transfer-Encoding: chunked"], chunks + b"0\r\n" + trailers + b"\r\n"


@requirement("safe.one-request")
async def test_generated_streams_are_understood_as_another_parser_understands_them():
    """What nobody thought of: two parsers by different people agree on each request and on where it ends."""
    asked = 0
    for seed in range(CASES):
        maker = Maker(seed)
        stream = maker.stream()

        expected = understood_by_h11(stream)
        requests = await understood(maker.pieces(stream))

        assert expected == requests, f"seed {seed}: {stream!r}"
        asked += len(requests)
    assert asked > 2 * CASES


@requirement("safe.one-request")
async def test_a_damaged_stream_is_refused_or_understood_as_another_parser_understands_it():
    """A request may be refused. One that is answered must be the one that a proxy in front has seen, too."""
    refused = 0
    for seed in range(CASES // 4):
        maker = Maker(seed)
        stream = maker.damaged(maker.stream())

        expected = understood_by_h11(stream)
        requests = await understood(maker.pieces(stream))

        refused += len(requests) < len(expected)
        for ours, theirs in zip(requests, expected, strict=False):
            assert theirs == ours, f"seed {seed}: {stream!r}"
    assert refused
