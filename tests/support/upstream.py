"""U, the misbehaving upstream of the tests: the fault lab's, which plays what a test or a model's name says.

python -m tests.support.upstream --port 0       # the same as a process of its own: prints "listening on PORT"
"""

import argparse
import asyncio
import resource
import signal

from holdfast.prompt.openai_shape import openai_messages
from holdfast_lab.misbehaving.endings import (
    ENDINGS,
    ENDINGS_WITHOUT_TEXT,
    ODDITIES,
    REASONING,
    TEXT,
    answer,
    calling,
    frame,
    named,
    text_chunk,
    tokens,
)
from holdfast_lab.misbehaving.exchange import FALLBACK_KEY, Exchange, Recorded
from holdfast_lab.misbehaving.server import ScriptedUpstream
from holdfast_lab.misbehaving.steps import (
    Chunk,
    Cut,
    Delta,
    Done,
    Eof,
    Finish,
    Gate,
    Hang,
    Headers,
    InBandError,
    Pause,
    Raw,
    ReasoningDelta,
    Repeat,
    Role,
    Script,
    Slices,
    Split,
    Status,
    Step,
    Tokens,
    ToolDelta,
    UsageChunk,
    Wire,
)
from tests.support.prompts import lost

__all__ = [
    "ENDINGS",
    "ENDINGS_WITHOUT_TEXT",
    "FALLBACK_KEY",
    "ODDITIES",
    "REASONING",
    "TEXT",
    "Chunk",
    "Cut",
    "Delta",
    "Done",
    "Eof",
    "Exchange",
    "Finish",
    "Gate",
    "Hang",
    "Headers",
    "InBandError",
    "Pause",
    "Raw",
    "ReasoningDelta",
    "Recorded",
    "Repeat",
    "Role",
    "Script",
    "Slices",
    "Split",
    "Status",
    "Step",
    "Tokens",
    "ToolDelta",
    "Upstream",
    "UsageChunk",
    "Wire",
    "answer",
    "calling",
    "frame",
    "named",
    "text_chunk",
    "tokens",
]


class Upstream(ScriptedUpstream):
    """The fault lab's upstream. It fails a test of which a chat is not the same after it was read as a prompt."""

    write = staticmethod(openai_messages)

    def record(self, request: Recorded) -> None:
        super().record(request)
        is_chat = request.path.partition("?")[0].endswith("/chat/completions")  # other dialects have other shapes
        found = lost(request.body, self.write) if is_chat else []
        self.errors += [AssertionError(f"lost when read as a prompt: {each}") for each in found]


async def serve(host: str, port: int) -> None:
    """Run as a process, until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Upstream(host=host, port=port) as up:
        print(f"listening on {up.port}", flush=True)
        await stop.wait()
        up.errors.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description="The misbehaving upstream; scripts are chosen by the model's name.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve(options.host, options.port))


if __name__ == "__main__":
    main()
