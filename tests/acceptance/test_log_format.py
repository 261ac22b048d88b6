"""The log as text or JSON: which run, session and request an entry is about, and nothing secret."""

import json
import logging
import sys

import pytest

from holdfast.cli.log_format import JsonLogFormatter, LogFormatter, check_loggers
from holdfast.server.config.settings import Settings, SettingsError
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Status, Upstream

SECRET = "sk-7c1d0c2b9a8e7d6c5b4a39281706f5e4"


def entries(server):
    """The entries of a log of JSON lines. Other lines are those that the command prints before."""
    return [json.loads(line) for line in server.log_text().splitlines() if line.startswith("{")]


@requirement("ops.log", "safe.log")
async def test_an_entry_with_half_a_character_is_one_line_of_json_too():
    """Python makes such text of file names and of JSON escapes. An entry that failed was printed as a traceback."""
    record = logging.makeLogRecord({"name": "x", "msg": "no model %s", "args": ("a\ud800b",), "levelname": "ERROR"})
    entry = json.loads(JsonLogFormatter(str).format(record))

    assert "no model a?b" == entry["message"]


@requirement("ops.log")
async def test_an_entry_of_a_run_has_the_ids_of_run_session_and_node(tmp_path):
    """Who reads of a failure looks for the chat that it belongs to, and for the server."""
    async with Upstream() as up:
        config = 'log_format = "json"\nretry_patience = 0.0\n'
        async with Server(tmp_path, [provider(up.base_url)], config=config) as server, server.client() as client:
            up.enqueue([Status(401)])
            api = Native(client)
            session_id = await api.new_session()
            run_id = await api.start(session_id, "Hi", "up/m")
            await api.settled(run_id)
            (entry,) = [entry for entry in entries(server) if "the source ended" in entry["message"]]

    assert (run_id, session_id) == (entry["run"], entry["session"])
    assert entry["node"].startswith("eng_")
    assert ("info", "holdfast.runs.pump") == (entry["level"], entry["logger"])


@requirement("ops.log")
@pytest.mark.one_server("its program serves on one port")
async def test_an_internal_error_has_the_request_id_that_the_client_got(tmp_path):
    """A user reports the id of the response; the operator finds the entry by it."""
    program = (
        "from holdfast.server.features.observe.health import StoreCheck\n"
        "async def passes(self): raise RuntimeError('broken')\n"
        "StoreCheck.passes = passes\n"
        "from holdfast.cli import main\n"
        "main()\n"
    )
    (tmp_path / "program.py").write_text(program)
    async with (
        Server(
            tmp_path, config='log_format = "json"\n', program=[sys.executable, str(tmp_path / "program.py")]
        ) as server,
        server.client() as client,
    ):
        response = await client.get("/ready")
        (entry,) = [entry for entry in entries(server) if "GET /ready failed" in entry["message"]]

    assert 500 == response.status
    assert response.headers["x-request-id"] == entry["request"]
    assert "RuntimeError: broken" in entry["error"]


@requirement("ops.log")
@pytest.mark.one_server("each node logs its own requests, so their order is not known")
async def test_the_access_log_is_off_by_default_and_has_no_query_and_no_key(tmp_path):
    """People paste keys into addresses, and a log is read by more than those who may have them."""
    said = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    logs = []
    for config in ("", 'access_log = true\nlog_format = "json"\n'):
        async with Server(tmp_path, config=config) as server, server.client() as client:
            authorized = {"Authorization": f"Bearer {SECRET}"}
            await (await client.get(f"/api/sessions?key={SECRET}", headers=authorized)).body()
            await (await client.get(f"/api/sessions?query={SECRET}", headers=authorized)).body()
            await (await client.get(f"/?key={SECRET}")).body()
            streamed = await client.post("/v1/chat/completions", said)
            await streamed.body()
            logs.append(server)
            if config:
                found = [entry for entry in entries(server) if "path" in entry]
            else:
                assert "/api/sessions" not in server.log_text()

    assert [
        ("GET", "/api/sessions", 400),
        ("GET", "/api/sessions", 200),
        ("GET", "/", 200),
        ("POST", "/v1/chat/completions", 200),
    ] == [(entry["method"], entry["path"], entry["status"]) for entry in found if entry["path"] != "/health"]
    assert streamed.headers["x-run-id"] == found[-1]["run"]
    assert SECRET not in logs[-1].log_text()


@requirement("ops.log")
async def test_the_level_of_one_module_can_be_set(tmp_path):
    """To look at one part closely, without the noise of all others."""
    config = 'log_level = "error"\n[log_levels]\n"holdfast.runs" = "info"\n'
    async with Upstream() as up:
        async with Server(tmp_path, [provider(up.base_url)], config=config) as server, server.client() as client:
            up.enqueue([Status(401)])
            api = Native(client)
            await api.settled(await api.start(await api.new_session(), "Hi", "up/m"))
            await client.get("/api/sessions", headers={"Authorization": "Bearer wrong"})

            assert "the source ended" in server.log_text()
            assert "WARNING" not in server.log_text()


def test_a_level_for_a_module_that_does_not_exist_is_refused():
    """A misspelt name would be silent for ever."""
    with pytest.raises(SettingsError, match=r"no module 'holdfast\.engin'\. Did you mean 'holdfast\.engine'\?"):
        check_loggers(Settings(log_levels={"holdfast.engin": "debug"}))
    check_loggers(Settings(log_levels={"holdfast.engine": "debug", "uvicorn": "info"}))


@pytest.mark.parametrize("formatter", [LogFormatter(), JsonLogFormatter(str)])
def test_no_text_forges_an_entry_or_an_id(formatter):
    """A name of a model comes from a caller, and so may one that looks like an id."""
    name = "x\n2026-01-01 00:00:00,000 ERROR forged\x1b]0;owned\x07 run_forged"
    shown = formatter.format(logging.makeLogRecord({"msg": "model %s", "args": (name,), "levelname": "INFO"}))

    assert not [line for line in shown.splitlines()[1:] if not line.startswith("    ")]
    assert shown.replace("\n", "").isprintable()
    assert "[run_forged]" not in shown
    assert '"run":' not in shown
