"""The description that the server serves: every route is in it, and the server does as it says, whatever is asked."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.features.page.web import is_of_the_page
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement
from tests.support.long import count
from tests.support.native import Native
from tests.support.routes import ENDPOINTS
from tests.support.served import NO_HOME
from tests.support.server import Server, provider
from tests.support.upstream import Upstream
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
ENDLESS = "GET /api/sessions/{session_id}/events"
LIST = "GET /api/events"
"""Endless for any cursor: each request would take the whole timeout."""
DESTRUCTIVE = "DELETE /api/sessions/{session_id}"
CHANGING = "PUT /api/settings"
LOCKING = ("POST /api/first-admin", "POST /api/admin/people", "POST /api/admin/keys")
"""After the first account or key all that follow would be refused; tests of accounts ask for these."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    async with Upstream() as up:
        folder, config = tmp_path_factory.mktemp("openapi"), 'default_model = "up/m"'
        async with Server(folder, [provider(up.base_url)], config=config) as server:
            yield server


@pytest_asyncio.fixture(loop_scope="module")
async def api(server):
    async with server.client() as client:
        yield Native(client)


async def schemathesis(server: Server, folder: Path, *options: str, config: str = "") -> str:
    """Let schemathesis ask for everything; what it reports, where it found nothing wrong."""
    folder.mkdir()
    (folder / "schemathesis.toml").write_text(config)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    always = ["--checks", CHECKS, "--generation-deterministic", "--no-color", "--warnings", "off"]
    limits = [
        "--max-examples",
        str(count(2, 20)),
        "--request-timeout",
        "15",
        "--suppress-health-check",
        "all",
        "--no-shrink",
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        *always,
        *limits,
        *options,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(4 * LONG):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    report = printed.decode(errors="replace")
    assert 0 == process.returncode, report[-6000:]
    return report


def without(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--exclude-name", name)]


def cases(report: str) -> int:
    found = re.search(r"(\d+) generated, (\d+) passed", report)
    assert found is not None, report[-3000:]
    assert found[1] == found[2]
    return int(found[1])


@requirement("start.bad-input")
async def test_the_server_does_as_its_description_says_whatever_is_asked(server, api, tmp_path):
    """A thousand requests that nobody would write: no 5xx, no status, type or shape that is not described.

    At random about a session and a run that are there, and field by field about ones that are not. (What is endless,
    and what would take the session away, is asked only of the ones that are not there; what adds providers comes last.)
    """
    session_id = await api.new_session(model="up/m")
    run_id = await api.start(session_id, "hello", "up/m")
    await api.settled(run_id)
    known = {
        "session_id": session_id,
        "run_id": run_id,
        "completion_id": "chatcmpl-" + run_id.removeprefix("run_"),
        "answer_id": f"msg_{run_id}",
        "model": "up/m",
    }
    config = "\n".join(["[parameters]", *(f'"path.{name}" = "{value}"' for name, value in known.items())])

    there, not_there = await asyncio.gather(
        schemathesis(
            server,
            tmp_path / "there",
            *(
                argument
                for name in (ENDLESS, LIST, DESTRUCTIVE, CHANGING, *LOCKING)
                for argument in ("--exclude-name", name)
            ),
            *("--phases", "fuzzing"),
            config=config,
        ),
        schemathesis(
            server,
            tmp_path / "not there",
            *without(LIST, CHANGING, *LOCKING),
            *("--phases", "coverage"),
        ),
    )
    changing = await schemathesis(server, tmp_path / "changing", "--include-name", CHANGING, "--phases", "coverage")

    assert cases(there) > 100
    assert cases(not_there) > 500
    assert cases(changing) > 10
    assert await api.session(session_id)
    assert "Traceback" not in server.log_text()


@requirement("start.bad-input")
async def test_the_description_names_every_route_and_no_other(api):
    """A route that is not described is not tested above."""
    settings = Settings(providers=(ProviderSettings("scripted", dialect="scripted"),))
    app = create_app(settings, MemoryStore(), NO_HOME)

    paths = (await api.get("/openapi.json"))["paths"]

    described = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    routed = [endpoint for endpoint in app.state.server.router.endpoints if not is_of_the_page(endpoint.path)]
    assert described == {(endpoint.method, endpoint.path.replace(":path}", "}")) for endpoint in routed}
    assert len(routed) == len(described)
    assert {("POST", "/v1/chat/completions"), ("GET", "/openapi.json")} <= described


async def test_every_operation_says_what_it_does_and_how_it_can_fail(api):
    """An operation that takes a body can be sent a bad one; one that names something can miss it.

    And one of our own API refuses a query parameter that it does not have.
    """
    paths = (await api.get("/openapi.json"))["paths"]
    operations = [(path, operation) for path, methods in paths.items() for operation in methods.values()]
    ids = [operation["operationId"] for _, operation in operations]

    assert all(operation["summary"].endswith(".") for _, operation in operations)
    assert sorted(set(ids)) == sorted(ids)
    assert [] == [path for path, operation in operations if "{" in path and "404" not in operation["responses"]]
    own = {endpoint.path for endpoint in ENDPOINTS if endpoint.is_own}
    assert [] == [path for path, operation in operations if path in own and "400" not in operation["responses"]]
    assert [] == [
        path
        for path, operation in operations
        if "requestBody" in operation and not {"400", "413"} <= set(operation["responses"])
    ]
