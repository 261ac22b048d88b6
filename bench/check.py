"""`python -m bench.check`: do the instruments say the truth? Takes a few seconds, and needs no target."""

import json
import socket
import subprocess
import sys
import time
from typing import Any

from bench import machine
from bench.instruments import Http, Upstream, run_client
from bench.native import paths


def main() -> None:
    upstream = Upstream()
    try:
        for check in CHECKS:
            check(upstream)
            print(f"ok  {check.__doc__}")
    finally:
        upstream.stop()


def a_slow_reader_gets_every_chunk_whole(upstream: Upstream) -> None:
    """A reader that fills the socket gets every chunk once, in order, well formed, and the ending."""
    count = 60_000
    with _ask(upstream, model=f"flat:{count}", stream=True, stream_options={"include_usage": True}) as connection:
        time.sleep(0.2)
        raw = _read_answer(connection, pause=0.0005)
    events = raw.decode().split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"]]
    stamps = [int(text[2:]) for text in texts if text]

    assert events[-2:] == ["data: [DONE]", ""]
    assert len(stamps) == count
    assert stamps == sorted(stamps)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == count


def requests_come_in_any_pieces(upstream: Upstream) -> None:
    """A request is understood byte by byte, as chunks, and behind another one."""
    body = b'{"model": "json", "user": "x"}'
    plain = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:3], body[3:20], body[20:]))
    chunked = b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", upstream.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in plain + chunked + chunked:
            connection.send(bytes([byte]))
        connection.sendall(plain + chunked)
        connection.settimeout(5)
        got = b""
        while got.count(b'"finish_reason":"stop"') < 5:
            got += connection.recv(65536)

    assert got.count(b"HTTP/1.1 200") == 5


def unknown_models_and_paths_are_not_found(upstream: Upstream) -> None:
    """An unknown model and an unknown path are 404."""
    http = Http(upstream.port)

    assert http.call("POST", "/v1/chat/completions", {"model": "nobody"})[0] == 404
    assert http.call("GET", "/v2")[0] == 404
    assert http.call("GET", "/v1/models")[0] == 200


def rates_are_kept(upstream: Upstream) -> None:
    """Fifty streams at 40/s give 2,000 chunks a second."""
    seen = run_client(upstream.port, streams=50, model="paced:100000:40", ramp=0.2, warmup=0.2, for_=2)

    assert abs(seen["chunks_per_second"] - 2000) < 20, seen
    assert seen["errors"] == 0


def the_client_counts_what_was_sent(upstream: Upstream) -> None:
    """The client finds every stamp the upstream sent and sees every ending."""
    upstream.reset()
    seen = run_client(upstream.port, streams=7, requests=100, model="flat:777", expect=777)

    assert seen["chunks"] == upstream.stats()["chunks_sent"] == 77_700
    assert seen["errors"] == 0
    assert seen["ended_with_done"] == seen["ended_with_finish"] == 100


def errors_are_counted(upstream: Upstream) -> None:
    """A bad status, a wrong count and silence are errors, each of its kind."""
    status = run_client(upstream.port, requests=3, model="nobody")
    count = run_client(upstream.port, requests=3, model="flat:5", expect=6)
    silence = run_client(upstream.port, requests=1, model="silent", timeout=0.5)
    dead = run_client(1, requests=2)

    assert status["error_kinds"]["status"] == 3
    assert count["error_kinds"]["count"] == 3
    assert silence["error_kinds"]["timeout"] == 1
    assert dead["error_kinds"]["connect"] == 2


def leaving_is_seen(upstream: Upstream) -> None:
    """A client that leaves is found by its marker: mid-stream, in silence and before the headers."""
    ways: list[tuple[str, dict[str, Any]]] = [
        ("mid", {"model": "paced:10000:50", "leave_after": 3}),
        ("silent", {"model": "silent", "leave_ms": 50}),
        ("mute", {"model": "mute", "leave_ms": 50}),
    ]
    for marker, how in ways:
        seen = run_client(upstream.port, streams=5, requests=20, marker=marker, **how)
        left = {each["marker"]: each["at"] for each in seen["leaves"]}
        closed = upstream.wait_closes(set(left))

        assert len(left) == len(closed) == 20
        assert all(0 <= closed[each] - left[each] < 100_000_000 for each in left)


def closes_of_an_earlier_load_are_not_mistaken_for_new_ones(upstream: Upstream) -> None:
    """After a reset no client has left, and a marker that is used again is found again, later."""
    for _ in range(2):
        upstream.reset()
        assert upstream.closes() == {}
        seen = run_client(upstream.port, streams=5, requests=20, marker="again", model="silent", leave_ms=50)
        left = {each["marker"]: each["at"] for each in seen["leaves"]}
        closed = upstream.wait_closes(set(left))

        assert len(closed) == 20
        assert all(closed[each] >= left[each] for each in left)


def answers_are_timed_and_paths_are_followed(upstream: Upstream) -> None:
    """GETs go to each path in turn, and the time to the whole answer is measured."""
    with paths(["/v1/models", "/v2"]) as file:
        seen = run_client(upstream.port, get=True, paths=file, requests=10, prompt=True)

    assert seen["answered"] == 10
    assert seen["error_kinds"]["status"] == 5
    assert seen["answer_us"]["count"] == 10
    assert 0 < seen["answer_us"]["p50"] < 1e6


def what_repeats_after_the_end_is_not_counted(upstream: Upstream) -> None:
    """Stamps after the word that ends an answer do not count, and an answer without it is an error."""
    ended = run_client(upstream.port, requests=3, model="flat:700", expect=700, ends='"finish_reason":"stop"')
    early = run_client(upstream.port, requests=3, model="flat:700", ends='"role":"assistant"')
    never = run_client(upstream.port, requests=3, model="flat:700", ends="run.settled")

    assert (ended["chunks_all"], ended["errors"]) == (2100, 0)
    assert early["chunks_all"] == 0
    assert never["error_kinds"]["ending"] == 3


def processor_time_is_exact(upstream: Upstream) -> None:
    """The CPU clock of another process agrees with what that process says of itself."""
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint(time.process_time(), flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout
        said = float(it.stdout.readline())
        seen, waited = machine.cpu_seconds(it.pid), machine.waited_seconds(it.pid)
        it.communicate("\n")

    assert said <= seen < said + 0.05
    assert waited >= 0


def _ask(upstream: Upstream, **body: Any) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    connection.connect(("127.0.0.1", upstream.port))
    text = json.dumps(body).encode()
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
    return connection


def _read_answer(connection: socket.socket, pause: float) -> bytes:
    """The text of a chunked answer, read slowly."""
    raw = bytearray()
    while not raw.endswith(b"\r\n0\r\n\r\n"):
        raw += connection.recv(300_000)
        time.sleep(pause)
    rest = bytes(raw).partition(b"\r\n\r\n")[2]
    text: list[bytes] = []
    at = 0
    while True:
        end = rest.index(b"\r\n", at)
        size = int(rest[at:end], 16)
        if size == 0:
            return b"".join(text)
        text.append(rest[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


CHECKS = [
    a_slow_reader_gets_every_chunk_whole,
    requests_come_in_any_pieces,
    unknown_models_and_paths_are_not_found,
    rates_are_kept,
    the_client_counts_what_was_sent,
    errors_are_counted,
    leaving_is_seen,
    closes_of_an_earlier_load_are_not_mistaken_for_new_ones,
    answers_are_timed_and_paths_are_followed,
    what_repeats_after_the_end_is_not_counted,
    processor_time_is_exact,
]

if __name__ == "__main__":
    main()
