"""The parent's side of the built-in model's process: start or claim it, send requests, end it.

Costs a pipe or a connection as its lifeline, one task that waits for its end, and one connection for each answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from ...environment import child_environment
from ...errors import ProviderBroke, ProviderError, ProviderRefused
from ...http_client.connection import Reply
from ...http_client.errors import Broken, NotThere
from ...http_client.pool import Connections
from ...http_client.request import head_of
from ...redaction import redact
from ..resume_check import lost
from . import child as local_child
from .child import CLAIMED, END, LOOPBACK, Note, Order, Ready

__all__ = ["WHO", "ModelProcess", "ProcessGone", "claim", "is_any_left", "start_model"]

WHO = "The built-in model"

_ENDING = 2.0  # seconds for the process to end
_CLAIMING = 1.0  # seconds for it to notice the end of its old parent and to accept this one
_CONNECT_PAUSE = 0.02
_LARGEST = 1024 * 1024  # bytes of an answer that is not a stream
_STDERR_LIMIT = 2000  # bytes of its stderr that are stored
_VARIABLES = ("CUDA_", "GGML_", "GOMP_", "HIP_", "HSA_", "LLAMA_", "OMP_", "PYTHON", "ROCR_", "VK_")
"""Prefixes of the variables that llama.cpp and Python read."""


class ProcessGone(ProviderBroke):
    """The process had ended before the request: it can be sent to a new one."""


async def start_model(order: Order) -> ModelProcess:
    """Start the process and wait until it has loaded the model."""
    child = await _Child.spawn()
    address = ""
    try:
        address = await _give(order, child)
    finally:
        if not address:
            child.kill()
            await child.ended()
    return ModelProcess(child, address, order.key)


async def _give(order: Order, child: _Child) -> str:
    """Send the order, and return the address of the server."""
    line = await child.converse(msgspec.json.encode(order) + b"\n")
    if not line:
        raise ProviderBroke(f"{WHO} did not start: {await child.ended()}.")
    ready = msgspec.json.decode(line, type=Ready)
    if ready.error:
        what_to_do = ". Install libgomp (on Debian: apt install libgomp1)" if "libgomp" in ready.error else ""
        problem = f"{order.model} could not be loaded: {redact(ready.error)}{what_to_do}"
        raise ProviderError(problem, code="model_not_loaded")
    return ready.address


def is_any_left(folder: Path) -> bool:
    """Return whether there are notes of processes that may be claimed."""
    return any(True for _ in _notes(folder))


async def claim(order: Order) -> ModelProcess | None:
    """Claim a lingering process of a killed parent with the same model and context; None if there is none."""
    for note in await asyncio.to_thread(lambda: list(_notes(Path(order.notes)))):
        if (note.order.model, note.order.context) != (order.model, order.context):
            continue
        if claimed := await _ClaimedProcess.claim(note):
            return ModelProcess(claimed, note.address, note.order.key)
    return None


def _notes(folder: Path) -> Iterator[Note]:
    """Yield the notes of lingering processes, and remove those of dead ones."""
    for path in folder.glob(".process-*.json"):
        try:
            note = msgspec.json.decode(path.read_bytes(), type=Note)
        except (OSError, msgspec.DecodeError):
            continue  # just removed, or written by another version
        if sys.platform == "linux" and not Path(f"/proc/{note.pid}").exists():
            path.unlink(missing_ok=True)
        else:
            yield note


# lifelines


class Lifeline(Protocol):
    """The connection to the process that keeps it running: when it closes, the process ends."""

    pid: int

    @property
    def is_cut(self) -> bool:
        """True if the process has ended."""
        ...

    async def ended(self) -> str:
        """Wait for the end of the process, and return its cause."""
        ...

    def send_last(self, line: bytes) -> None:
        """Send a last line, and close the lifeline."""
        ...

    def kill(self) -> None:
        """Kill the process."""
        ...


class _Child:
    """The lifeline of a process that this process has started: its stdin."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process
        self._stderr = asyncio.create_task(_tail(process.stderr))

    @classmethod
    async def spawn(cls) -> _Child:
        command, pipe = [sys.executable, "-P", "-m", local_child.__name__], asyncio.subprocess.PIPE
        env = child_environment(prefixes=_VARIABLES)
        return cls(
            await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
            )
        )

    async def converse(self, line: bytes) -> bytes:
        """Send one line and read one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        return await self._process.stdout.readline()

    @property
    def is_cut(self) -> bool:
        return self._process.returncode is not None

    async def ended(self) -> str:
        code = await self._process.wait()
        how = f"signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"exit code {code}"
        lines = (await asyncio.shield(self._stderr)).strip().splitlines()
        return f"{how}: {redact(lines[-1])}" if lines else how

    def send_last(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.close()

    def kill(self) -> None:
        try:
            self._process.kill()
        except ProcessLookupError:
            pass  # it has ended already


async def _tail(stream: asyncio.StreamReader | None) -> str:
    """Read to the end, and return the last bytes as text."""
    assert stream is not None
    tail = b""
    try:
        while data := await stream.read(_STDERR_LIMIT):
            tail = (tail + data)[-_STDERR_LIMIT:]
    except OSError:
        pass  # treated as the end
    return tail.decode("utf-8", "replace")


class _ClaimedProcess:
    """The lifeline of a process that another parent has started: the connection on which it was claimed."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._writer = writer
        self._silence = asyncio.create_task(_tail(reader))

    @classmethod
    async def claim(cls, note: Note) -> _ClaimedProcess | None:
        """Claim a process with its key; None if it has a parent, or has ended."""
        writer = None
        try:
            async with asyncio.timeout(_CLAIMING):
                reader, writer = await _connect(note.port)
                writer.write(note.order.key.encode() + b"\n")
                if await reader.readline() == CLAIMED:
                    return cls(note.pid, reader, writer)
        except (OSError, TimeoutError):
            pass
        if writer is not None:
            writer.close()
        return None

    @property
    def is_cut(self) -> bool:
        return self._silence.done()

    async def ended(self) -> str:
        await asyncio.wait({self._silence})
        return "why is not known"

    def send_last(self, line: bytes) -> None:
        self._writer.write(line)
        self._writer.close()

    def kill(self) -> None:
        if not self.is_cut:  # else the pid may belong to another process
            os.kill(self.pid, signal.SIGKILL)


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as the port listens."""
    while True:
        try:
            return await asyncio.open_connection(LOOPBACK, port)
        except ConnectionRefusedError:
            await asyncio.sleep(_CONNECT_PAUSE)


# the process


class _ErrorBody(msgspec.Struct, frozen=True):
    message: str = ""
    type: str = ""
    n_prompt_tokens: int = 0
    n_ctx: int = 0


class _Refusal(msgspec.Struct, frozen=True):
    error: _ErrorBody = _ErrorBody()


class _Slot(msgspec.Struct, frozen=True):
    is_processing: bool


class ModelProcess:
    """A llama.cpp server in a child process, for this process only."""

    def __init__(self, lifeline: Lifeline, address: str, key: str) -> None:
        self._lifeline = lifeline
        self._address = address
        self._connections = Connections(address, keep=0)  # it closes a connection after a stream
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    @property
    def pid(self) -> int:
        """The process id."""
        return self._lifeline.pid

    @property
    def is_gone(self) -> bool:
        """True if the process has ended."""
        return self._lifeline.is_cut

    async def ask(self, body: bytes, name: str = "") -> Reply:
        """Return the response with the answer.

        An answer with a `name` is finished without a reader: it can be attached to, and has to be dropped.
        """
        response = await self._send("POST", "/v1/chat/completions", body, {"X-Conversation-Id": name} if name else {})
        return await self._accepted(response)

    async def attach(self, name: str) -> Reply:
        """Return the response with a named answer, from its beginning."""
        response = await self._send("GET", f"/v1/stream?{urlencode({'conv_id': name, 'from': '0'})}")
        if response.status != HTTPStatus.OK:
            response.close()
            raise lost(WHO, "has no such answer, or no longer all of it")
        return response

    async def drop(self, name: str) -> None:
        """Stop and delete a named answer."""
        try:
            async with asyncio.timeout(_ENDING):
                (await self._send("DELETE", f"/v1/stream?{urlencode({'conv_id': name})}")).close()
        except (ProviderBroke, TimeoutError):
            pass  # the process has ended, or will be ended

    async def working(self) -> int:
        """Return the number of answers in progress."""
        response = await self._send("GET", "/slots")
        slots = msgspec.json.decode(await response.read_upto(_LARGEST), type=list[_Slot])
        return sum(slot.is_processing for slot in slots)

    async def _send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        head = head_of(method, self._address + path, {**self._headers, **(headers or {})}, len(body))
        try:
            return await self._connections.send(head, body)
        except NotThere as error:
            raise await self._unanswered(ProcessGone) from error
        except Broken as error:
            raise await self._unanswered(ProviderBroke) from error

    async def _accepted(self, response: Reply) -> Reply:
        if response.status == HTTPStatus.OK:
            return response
        try:
            raise _refusal(await response.read_upto(_LARGEST))
        except Broken as error:
            raise await self._unanswered(ProviderBroke) from error
        finally:
            response.close()

    async def _unanswered(self, gone: type[ProviderBroke]) -> ProviderBroke:
        """Return the error of a request without a response: `gone` if the process has ended, else `ProviderBroke`."""
        if await self._ends_within(_ENDING):
            return gone(f"{WHO}'s process ended before it answered ({await self._lifeline.ended()}).")
        return ProviderBroke(f"{WHO} closed the connection before it answered.")

    async def explain(self, error: ProviderError) -> ProviderError:
        """Return the error of an interrupted answer. It says so if the process has ended, which is the usual cause."""
        if not isinstance(error, ProviderBroke) or not await self._ends_within(_ENDING):
            return error
        how = await self._lifeline.ended()
        return ProviderBroke(f"{WHO}'s process ended in the middle of its work ({how}). The next run starts it again.")

    async def end(self) -> None:
        """End the process and wait for it."""
        self._lifeline.send_last(END)
        if not await self._ends_within(_ENDING):
            self._lifeline.kill()
        await self._lifeline.ended()

    async def _ends_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._lifeline.ended()
        except TimeoutError:
            return False
        return True


def _refusal(body: bytes) -> ProviderError:
    """Return the error of a refused request. A server error before the answer begins is caused by the request too."""
    try:
        why = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.DecodeError:
        return ProviderBroke(f"{WHO} answered with something that makes no sense.")
    if why.type == "exceed_context_size_error":
        return ProviderRefused(
            f"The prompt has {why.n_prompt_tokens} tokens, and the built-in model can hold {why.n_ctx}. "
            "Shorten it, or choose another model.",
            code="context_length_exceeded",
            status=400,
        )
    return ProviderRefused(f"{WHO} refused: {redact(why.message)}", code="upstream_rejected", status=400)
