"""How fast an upstream's bytes become events: the decoder alone, and the provider over a loopback socket.

    python bench/micro/bench_provider.py [--profile]

The decoder is fed reads of 64 kB, on one core. Each figure is the best of several rounds, in CPU time, since the
machine is shared. Over the socket a child process plays one answer as fast as it is taken, each chunk in an HTTP chunk
of its own and 32 of them in a write. That rate is by the clock, and the CPU time is of this process alone. Loops:
asyncio and, where it is installed, uvloop.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import importlib.util
import multiprocessing
import pstats
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from holdfast.upstreams import ChatRequest
from holdfast.upstreams.openai.decoder import AnswerDecoder
from holdfast.upstreams.openai.provider import OpenAICompatible

READ = 64 * 1024
CHUNKS = 100_000
ROUNDS = 5
IN_A_WRITE = 32

BEGIN = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"x"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'

VLLM = (
    'data: {{"id":"chatcmpl-8f2c","object":"chat.completion.chunk","created":1760000000,"model":"m",'
    '"choices":[{{"index":0,"delta":{{"content":" tok{n}"}},"logprobs":null,"finish_reason":null}}]}}\n\n'
)
OPENAI = (
    'data: {{"id":"chatcmpl-CqWxYzAbCdEfGhIjKlMnOpQrStUv","object":"chat.completion.chunk","created":1760000000,'
    '"model":"gpt-5-mini-2026-08-07","service_tier":"default","system_fingerprint":"fp_34a54ae93c","choices":[{{"index":0,'
    '"delta":{{"content":" tok{n}"}},"logprobs":null,"finish_reason":null}}],"usage":null,"obfuscation":"{n:x}"}}\n\n'
)
REASONING = 'data: {{"choices":[{{"index":0,"delta":{{"reasoning_content":" tok{n}"}},"finish_reason":null}}]}}\n\n'
TOOL = (
    'data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"function":{{"arguments":" {n}"}}}}]}},'
    '"finish_reason":null}}]}}\n\n'
)
LOGPROBS = (
    'data: {{"choices":[{{"index":0,"delta":{{"content":" tok{n}"}},"logprobs":{{"content":[{{"token":" tok",'
    '"logprob":-0.1,"bytes":null,"top_logprobs":[]}}]}},"finish_reason":null}}]}}\n\n'
)

SHAPES = {
    "text, as vLLM sends it": VLLM,
    "text, as OpenAI sends it (padded at random)": OPENAI,
    "text with logprobs": LOGPROBS,
    "reasoning": REASONING,
    "arguments of a tool": TOOL,
}


def answer(shape: str, count: int = CHUNKS) -> bytes:
    return BEGIN + b"".join(shape.format(n=n).encode() for n in range(count)) + END


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def decode(reads: list[bytes]) -> int:
    decoder = AnswerDecoder("up")
    events = sum(len(said) for read in reads for said in decoder.feed(read))
    assert decoder.finished
    return events


def best_time(work: Callable[[], object]) -> float:
    def once() -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    return min(once() for _ in range(ROUNDS))


def bench_decoder(name: str, shape: str, size: int = READ) -> None:
    reads = cut(answer(shape), size)
    assert decode(reads) >= CHUNKS
    seconds = best_time(lambda: decode(reads))
    print(f"{name:<52} {CHUNKS / seconds:12,.0f} chunks/s {seconds / CHUNKS * 1e6:8.2f} µs each")


# over a socket


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def writes(shape: str) -> Iterator[bytes]:
    """The answer as it goes out, headers first."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    frames = [frame + b"\n\n" for frame in answer(shape).split(b"\n\n") if frame]
    yield head
    for at in range(0, len(frames), IN_A_WRITE):
        yield b"".join(map(framed, frames[at : at + IN_A_WRITE]))
    yield b"0\r\n\r\n"


def play(ports: Connection, shape: str) -> None:
    """Answer every request on every connection with the same stream."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ports.send(listening.getsockname()[1])
        answers = list(writes(shape))
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                while connection.recv(READ):
                    for data in answers:
                        connection.sendall(data)


class Count:
    """An outlet that only counts."""

    def __init__(self) -> None:
        self.events = 0

    def emit(self, events: Sequence[Any]) -> bool:
        self.events += len(events)
        return True

    async def room(self) -> None:
        """It has room always."""


async def read_answers(port: int) -> tuple[float, float]:
    """The best round's seconds, of the clock and of this process."""
    provider = OpenAICompatible("up", f"http://127.0.0.1:{port}/v1")
    times = []
    for _ in range(ROUNDS):
        begin, cpu = time.perf_counter(), time.process_time()
        count = Count()
        await provider.answer(ChatRequest(model="m", messages=[]), count)
        assert count.events >= CHUNKS
        times.append((time.perf_counter() - begin, time.process_time() - cpu))
    await provider.close()
    return min(times)


def loops() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    found: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop"):
        import uvloop

        found["uvloop"] = uvloop.new_event_loop
    return found


def bench_socket(name: str, shape: str) -> None:
    ours, theirs = multiprocessing.Pipe()
    upstream = multiprocessing.get_context("spawn").Process(target=play, args=(theirs, shape), daemon=True)
    upstream.start()
    port = ours.recv()
    for loop, factory in loops().items():
        with asyncio.Runner(loop_factory=factory) as runner:
            seconds, cpu = runner.run(read_answers(port))
        rate = f"{CHUNKS / seconds:12,.0f} chunks/s {cpu / CHUNKS * 1e6:8.2f} µs of cpu each"
        print(f"{f'{name}, {loop}':<52} {rate}")
    upstream.terminate()
    upstream.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show where the decoder's time goes")
    if parser.parse_args().profile:
        reads = cut(answer(OPENAI), READ)
        with cProfile.Profile() as profile:
            decode(reads)
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)
        return

    print("decoder, reads of 64 kB")
    for name, shape in SHAPES.items():
        bench_decoder(name, shape)
    print("\ndecoder, small reads")
    bench_decoder("text, as vLLM sends it, reads of 1460 B", VLLM, 1460)
    bench_decoder("text, as vLLM sends it, about one chunk in each read", VLLM, len(VLLM.format(n=10_000)))
    print("\nprovider over a loopback socket")
    bench_socket("text, as vLLM sends it", VLLM)
    bench_socket("text, as OpenAI sends it", OPENAI)


if __name__ == "__main__":
    main()
