"""How fast upstream bytes become events, and text becomes reasoning and answer.

    python bench/micro/bench_decode.py

Each figure is the best of several runs over the same input, on one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from holdfast.log.reasoning import ThinkSplitter
from holdfast.upstreams.sse import SSEDecoder

READ = 64 * 1024
ROUNDS = 7

SMALL = b'data: {"t":"hello"}\n\n'
OPENAI = (
    b'data: {"id":"chatcmpl-8f2c","object":"chat.completion.chunk","created":1760000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" hello"},"finish_reason":null}]}\n\n'
)
ANTHROPIC = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" hello"}}\n\n'
)


def best_time(work: Callable[[], object]) -> float:
    def once() -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    return min(once() for _ in range(ROUNDS))


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def decode(reads: Iterable[bytes]) -> int:
    decoder = SSEDecoder()
    return sum(len(said) for read in reads for said in decoder.feed(read))


def split(deltas: Iterable[str]) -> None:
    splitter = ThinkSplitter()
    for delta in deltas:
        splitter.feed(delta)
    splitter.finish()


def report(name: str, count: int, size: int, seconds: float) -> None:
    print(f"{name:<52} {count / seconds / 1e6:8.2f} M/s {size / seconds / 1e6:9.0f} MB/s")


def bench_decoder(name: str, block: bytes, size: int, count: int = 200_000) -> None:
    reads = cut(block * count, size)
    assert decode(reads) == count
    report(name, count, count * len(block), best_time(lambda: decode(reads)))


def bench_splitter(name: str, deltas: list[str]) -> None:
    report(name, len(deltas), sum(map(len, deltas)), best_time(lambda: split(deltas)))


def main() -> None:
    print("SSE decoder: events, bytes")
    bench_decoder(f"small data events, {len(SMALL)} B, 64 kB reads", SMALL, READ)
    bench_decoder(f"OpenAI chunks, {len(OPENAI)} B, 64 kB reads", OPENAI, READ)
    bench_decoder(f"OpenAI chunks, {len(OPENAI)} B, 1460 B reads", OPENAI, 1460)
    bench_decoder("OpenAI chunks, one in each read", OPENAI, len(OPENAI))
    bench_decoder("OpenAI chunks, CRLF, 64 kB reads", OPENAI.replace(b"\n", b"\r\n"), READ)
    bench_decoder("OpenAI chunks, no space after the colon, 64 kB reads", OPENAI.replace(b": ", b":", 1), READ)
    bench_decoder("OpenAI chunks, a comment after each, 64 kB reads", OPENAI + b": ping\n\n", READ)
    bench_decoder(f"Anthropic, {len(ANTHROPIC)} B, 64 kB reads", ANTHROPIC, READ)
    bench_decoder("small data events, one byte in each read", SMALL, 1, count=10_000)

    print("\n<think> splitter: deltas, characters")
    bench_splitter("answer without reasoning", [" hello"] * 200_000)
    bench_splitter("reasoning, plain words", ["<think>", *[" hello"] * 200_000])
    bench_splitter("reasoning, words, newlines and code", ["<think>", *[" let", " `x`", "\n", " be < y"] * 50_000])
    bench_splitter("hostile: 1 M of '<' in reasoning, 1 delta", ["<think>" + "<" * 1_000_000])
    bench_splitter("hostile: 100 kB of <think>, 1 delta", ["<think>" * 14_286])
    bench_splitter("hostile: 1 M of whitespace, 1 character each", [" "] * 1_000_000)
    bench_splitter("hostile: 100 kB of <think></think>, 1 character each", list("<think></think>" * 6_667))


if __name__ == "__main__":
    main()
