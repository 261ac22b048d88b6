"""The fault lab judges our own server on every wire, or any other: `pytest tests/protocol --url http://…/v1`.

The whole suite is played once on each wire, and then each check is a test of its own.
"""

import shlex
import sys
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from holdfast_lab import CHECKS, SERVERS, WIRES, Http, Lab, Upstream, judge, trouble
from holdfast_lab.process import Judged
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.server import Server, clean_environment, config_text, provider

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENT = {"patience": 60.0, "limit": 15.0, "open": 30.0, "samples": 3}
"""How long things take on a busy machine is no matter here: tests/acceptance and tests/faults hold the times."""
ONLY_A_LIMIT_ENDS = {"truth/stall", "truth/silence", "truth/silence.json"}
WITH_A_PROCESS = {"crash/told", "crash/kept"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judged(request, tmp_path_factory):
    """The upstream, the address of the judged server, and a model that it takes from there."""
    option = request.config.getoption
    async with AsyncExitStack() as stack:
        if option("--url"):
            upstream = await stack.enter_async_context(Upstream(port=option("--upstream-port")))
            yield upstream, Http(option("--url"), option("--api-key")), option("--model"), SERVERS[option("--server")]
            return
        upstream = await stack.enter_async_context(Upstream())
        server = Server(tmp_path_factory.mktemp("lab"), [provider(upstream.base_url)], config="retry_patience = 0.05")
        await stack.enter_async_context(server)
        yield upstream, Http(f"{server.url}/v1"), "up/m", SERVERS["holdfast"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(WIRES))
async def found(request, judged):
    """All findings on one wire, by the check's id."""
    upstream, http, model, facts = judged
    wires = request.config.getoption("--wire")
    if wires and request.param not in wires:
        pytest.skip("this wire was not asked for")
    lab = Lab(WIRES[request.param](http, model), upstream, silence=0.3, **PATIENT)
    why = await trouble(lab)
    if why is not None:
        pytest.fail(f"{why} {facts.how(upstream.base_url, model)}")
    return {finding.id: finding async for finding in judge(lab, facts)}


@requirement(
    "truth.completed",
    "truth.length",
    "truth.content-filter",
    "truth.in-band-error",
    "truth.cut",
    "truth.eof",
    "truth.no-error-text-in-content",
    "gone.attached",
    "stop.closes-upstream",
    "stop.terminal-event",
    "sub.resume-exact",
    "sub.same-for-all",
    "sub.slow-reader-bounded",
    "wire.truth",
)
@pytest.mark.parametrize("check", [check.id for check in CHECKS])
async def test_the_lab_finds_no_broken_promise(found, check):
    """What we ask of every other server we keep ourselves."""
    finding = found[check]

    assert finding.verdict != "fail", f"{finding.promise}: {finding.seen}"


async def test_everything_that_a_wire_has_words_for_was_judged(request, found):
    """A lab that looks at nothing finds nothing."""
    if request.config.getoption("--url"):
        pytest.skip("another server may promise less")
    unjudged = {finding.id for finding in found.values() if finding.verdict == "not judged"}
    wordless = [finding for finding in found.values() if finding.verdict == "not promised"]

    assert ONLY_A_LIMIT_ENDS | WITH_A_PROCESS >= unjudged
    assert all("has no words for it" in finding.why for finding in wordless)


@requirement("truth.stall")
async def test_a_silent_upstream_is_judged_where_the_server_has_a_limit(request, tmp_path):
    """Without one the lab can only say that it has waited."""
    if request.config.getoption("--url"):
        pytest.skip("it is our own server that is set so here")
    async with (
        Upstream() as upstream,
        Server(tmp_path, [provider(upstream.base_url)], config="idle_limit = 1.5") as server,
    ):
        lab = Lab(WIRES["openai-chat"](Http(f"{server.url}/v1"), "up/m"), upstream, silence=60.0)
        found = [finding async for finding in judge(lab, SERVERS["holdfast"], sorted(ONLY_A_LIMIT_ENDS))]

    assert ONLY_A_LIMIT_ENDS == {finding.id for finding in found}
    assert {"pass"} == {finding.verdict for finding in found}


@requirement("crash.kill9")
@pytest.mark.parametrize(
    ("wire", "checks"), [("native", ["crash/told", "crash/kept", "slow/readers"]), ("responses", ["crash/kept"])]
)
async def test_a_server_that_the_lab_starts_is_killed_and_has_kept_what_was_seen(
    request, wire, checks, tmp_path, monkeypatch
):
    """Only who starts a server may kill it."""
    if request.config.getoption("--url"):
        pytest.skip("that server is not the lab's to kill")
    for name, value in clean_environment().items():
        monkeypatch.setenv(name, value)
    async with Upstream() as upstream:
        config, port = tmp_path / "holdfast.toml", free_port()
        config.write_text(config_text("", [provider(upstream.base_url)]))
        where = ["--port", str(port), "--data", str(tmp_path / "data"), "--config", str(config)]
        command = shlex.join([sys.executable, "-m", "holdfast", "serve", *where])
        async with Judged(command, f"http://127.0.0.1:{port}/v1", log=tmp_path / "log") as process:
            http = Http(f"http://127.0.0.1:{port}/v1")
            lab = Lab(WIRES[wire](http, "up/m"), upstream, judged=process, **PATIENT)
            found = {finding.id: finding async for finding in judge(lab, SERVERS["holdfast"], checks)}

    assert dict.fromkeys(checks, "pass") == {id: finding.verdict for id, finding in found.items()}
    assert "slow/readers" not in checks or "memory_mb" in found["slow/readers"].figures
