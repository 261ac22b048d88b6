"""What a client receives on any wire: the text, the kind of its end, and the words for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .http import Broken, Reply
from .sse import SSEDecoder

__all__ = ["Reader", "follow"]


class Reader:
    """Reads one answer to its end, over one connection or several.

    Each wire has a subclass that says what its frames mean. `ending` is one of `scripts.WORDS`, and `words` what was
    really said. An error counts for more than anything that was said before it.
    """

    def __init__(self) -> None:
        self.text = ""
        self.ending = "unsaid"
        self.words = ""
        self.run = ""
        """The id by which the wire stops, resumes and fetches the answer."""
        self.arguments = ""
        """What a tool was called with."""
        self.frames = 0
        self.bytes = 0
        self.seen: list[str] = []
        """The texts of the deltas, in order."""
        self._decoder = SSEDecoder()

    # What a wire says.

    def frame(self, event: str, data: Any) -> None:
        """Take one frame of a stream."""
        raise NotImplementedError

    def whole(self, body: Any) -> None:
        """Take an answer that is one object."""
        raise NotImplementedError

    def begun(self, reply: Reply) -> None:
        """Take what the headers say."""

    # What they have in common.

    def say(self, text: str) -> None:
        """Add visible text."""
        if text:
            self.text += text
            self.seen.append(text)

    def end(self, ending: str, words: str) -> None:
        """Note how it ended."""
        if self.ending != "failure":
            self.ending, self.words = ending, words

    def take(self, data: bytes) -> None:
        """Take bytes of a stream."""
        self.bytes += len(data)
        for event, payload in self._decoder.feed(data):
            self.frames += 1
            if payload == b"[DONE]":
                continue
            try:
                self.frame(event.decode(errors="replace"), msgspec.json.decode(payload))
            except (msgspec.DecodeError, AttributeError, TypeError, LookupError):
                self.end("failure", "a frame that no client can read")

    def again(self) -> None:
        """Begin a new connection: half a frame of the last one is not the beginning of the next."""
        self._decoder = SSEDecoder()

    def broke(self, why: str) -> None:
        """Note that the connection broke: a client sees that, unless the end came before."""
        if self.ending == "unsaid":
            self.end("failure", why)


async def follow(reply: Reply, reader: Reader, until: Callable[[Reader], bool] | None = None) -> None:
    """Read an answer to its end and leave, or until enough was seen and stay."""
    reader.begun(reply)
    try:
        if await _read(reply, reader, until):
            return
    except Broken as broken:
        reader.broke(str(broken))
    except BaseException:
        reply.leave()
        raise
    reply.leave()


async def _read(reply: Reply, reader: Reader, until: Callable[[Reader], bool] | None) -> bool:
    """Read, and tell whether enough was seen before the end."""
    if reply.status >= 400:
        reader.end("failure", f"HTTP {reply.status}")
        await reply.body()
    elif reply.is_stream:
        async for data in reply.reads():
            reader.take(data)
            if until is not None and until(reader):
                return True
    else:
        _take_whole(reader, await reply.body())
    return False


def _take_whole(reader: Reader, body: bytes) -> None:
    try:
        reader.whole(msgspec.json.decode(body))
    except (msgspec.DecodeError, AttributeError, TypeError, LookupError):
        reader.end("failure", "a body that no client can read")
